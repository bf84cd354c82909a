package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// lineVersion is the version of the event file's lines.
const lineVersion = 1

// line is one line of the event file: an event, or a snapshot of everything
// counted so far in its run. Matches are not written one by one: the snapshot
// is what makes a file's figures exact.
type line struct {
	V        int     `json:"v"`
	Event    *Event  `json:"event,omitempty"`
	Snapshot *Report `json:"snapshot,omitempty"`
	Final    bool    `json:"final,omitempty"` // the snapshot was written by Close
}

// writer owns the sink and the one goroutine that writes to it.
type writer struct {
	c     *Comparator
	sink  io.WriteCloser
	queue chan *kept
	quit  chan struct{}
	done  chan struct{}
	err   error // of the last writes and of closing; read after done
	sick  bool  // the last write failed: log the change, not every failure
}

func startWriter(c *Comparator, sink io.WriteCloser) *writer {
	w := &writer{
		c: c, sink: sink, queue: make(chan *kept, c.cfg.QueueLen),
		quit: make(chan struct{}), done: make(chan struct{}),
	}
	go w.run()
	return w
}

// offer queues k unless the queue is full.
func (w *writer) offer(k *kept) bool {
	select {
	case w.queue <- k:
		return true
	default:
		return false
	}
}

func (w *writer) run() {
	defer close(w.done)
	tick := time.NewTicker(w.c.cfg.SnapshotEvery)
	defer tick.Stop()
	for {
		select {
		case k := <-w.queue:
			w.event(k)
		case <-tick.C:
			w.snapshot(false)
		case <-w.quit:
			// Observe has seen closed, so that nothing is queued any more.
			for len(w.queue) > 0 {
				w.event(<-w.queue)
			}
			w.err = errors.Join(w.snapshot(true), guard(w.sink.Close))
			return
		}
	}
}

// event writes k; its failure is counted and logged here, and not returned.
func (w *writer) event(k *kept) {
	_ = w.write(func() line { e := k.render(w.c.run); return line{Event: &e} })
}

func (w *writer) snapshot(final bool) error {
	return w.write(func() line { r := w.c.Report(); return line{Snapshot: &r, Final: final} })
}

func (w *writer) write(build func() line) error {
	err := guard(func() error {
		l := build()
		l.V = lineVersion
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		n, err := w.sink.Write(append(b, '\n'))
		if err == nil && n <= len(b) {
			err = io.ErrShortWrite
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("event file of pod %s: %w", w.c.cfg.Pod, err)
		w.c.mu.Lock()
		w.c.tally.failed++
		w.c.mu.Unlock()
		if !w.sick {
			w.c.cfg.Logger.Error("an event could not be written: counts go on, check the disk", "error", err)
		}
	}
	w.sick = err != nil
	return err
}

// guard turns a panic of the sink into an error: comparing must go on.
func guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}

// close ends the goroutine. A sink that hangs is closed under it, which frees
// a pipe or a socket; the goroutine ends when the write returns.
func (w *writer) close(first bool, timeout time.Duration) error {
	if first {
		close(w.quit)
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w.done:
		return w.err
	case <-timer.C:
		_ = guard(w.sink.Close)
		return fmt.Errorf("event file of pod %s: the sink took no line for %s: its last counts are missing", w.c.cfg.Pod, timeout)
	}
}
