package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// lineVersion is the version of the lines of the event file, and of the files in
// the spool, which are one line each.
const lineVersion = 1

// line is one line of the event file: a divergence, or the rollup of a period.
// What did not differ is not written one by one: the rollups are what makes a
// file's figures exact.
type line struct {
	V      int     `json:"v"`
	Event  *Event  `json:"event,omitempty"`
	Rollup *Rollup `json:"rollup,omitempty"`
}

// writer owns the sink, the spool's files of this run, and the one goroutine
// that writes to them.
type writer struct {
	c     *Comparator
	sink  io.WriteCloser // nil for none
	spool *runSpool      // nil for none
	queue chan *kept
	quit  chan struct{}
	done  chan struct{}
	err   error // of the last writes and of closing; read after done
	sick  bool  // the last write failed: log the change, not every failure

	// The rest belongs to the goroutine.
	waiting []waiting // divergences whose trace is not whole yet, oldest first
	seq     uint64    // of the open period
	from    time.Time // its begin
	ends    time.Time // when it is to be closed
	lost    uint64    // rollups that were dropped before it
	left    bool      // what dead runs left open is still to be closed
}

type waiting struct {
	k   *kept
	due time.Time
}

func newWriter(c *Comparator, sink io.WriteCloser) (*writer, error) {
	w := &writer{
		c: c, sink: sink, queue: make(chan *kept, c.cfg.QueueLen),
		quit: make(chan struct{}), done: make(chan struct{}), seq: 1, from: c.started,
	}
	if c.cfg.Spool == "" {
		return w, nil
	}
	var err error
	w.left = true
	w.spool, err = openRunSpool(c.cfg.Spool, c.cfg.Pod, c.cfg.Instance, c.run, c.cfg.SpoolMax)
	return w, err
}

// full reports whether the queue takes nothing.
func (w *writer) full() bool { return len(w.queue) == cap(w.queue) }

func (w *writer) run() {
	defer close(w.done)
	every := min(w.c.cfg.FlushEvery, w.c.cfg.RollupEvery)
	w.ends = after(time.Now(), w.c.cfg.RollupEvery)
	w.adopt()
	timer := time.NewTimer(time.Until(after(time.Now(), every)))
	defer timer.Stop()
	for {
		select {
		case k := <-w.queue:
			w.take(k)
		case <-timer.C:
			w.tick(time.Now())
			timer.Reset(time.Until(after(time.Now(), every)))
		case <-w.quit:
			w.finish()
			return
		}
	}
}

// after is the next multiple of every, with the monotonic clock of now: a clock
// that is set does not stretch a period.
func after(now time.Time, every time.Duration) time.Time {
	return now.Add(now.Truncate(every).Add(every).Sub(now.Round(0)))
}

// take notes what came before k, while it is still remembered; what comes after
// it is noted when its event is written.
func (w *writer) take(k *kept) {
	k.look(w.c.ring)
	if len(w.waiting) >= w.c.cfg.QueueLen {
		w.settle(1)
	}
	w.waiting = append(w.waiting, waiting{k, time.Now().Add(traceAfter)})
}

func (w *writer) tick(now time.Time) {
	due := 0
	for due < len(w.waiting) && !w.waiting[due].due.After(now) {
		due++
	}
	w.settle(due)
	if now.Before(w.ends) {
		w.flush(now)
	} else {
		w.adopt()
		_ = w.closePeriod(now, false)
		w.ends = after(now, w.c.cfg.RollupEvery)
	}
}

// settle writes the events of the n oldest that wait.
func (w *writer) settle(n int) {
	for _, each := range w.waiting[:n] {
		each.k.look(w.c.ring)
		e := each.k.settle(w.c.run)
		_ = w.line(func() line { return line{Event: &e} }) // counted and logged there
	}
	rest := copy(w.waiting, w.waiting[n:])
	clear(w.waiting[rest:])
	w.waiting = w.waiting[:rest]
}

// flush rewrites the open period in the spool.
func (w *writer) flush(now time.Time) {
	c := w.c
	c.folding.Lock()
	c.fold()
	if w.spool == nil {
		c.folding.Unlock()
		return
	}
	r := c.rollup(c.period, w.seq, w.from, plain(now))
	c.folding.Unlock()
	r.Lost = w.lost
	_ = w.guarded(func() error {
		lost, err := w.spool.flush(r)
		w.lost += lost
		return err
	})
}

// closePeriod closes the period: a line in the event file, a file in the spool.
func (w *writer) closePeriod(now time.Time, final bool) error {
	c := w.c
	var connections []Connection
	if c.cfg.Connections != nil {
		connections = c.cfg.Connections()
	}
	c.folding.Lock()
	c.fold()
	r := c.rollup(c.period, w.seq, w.from, plain(now))
	c.period.reset()
	c.folding.Unlock()
	r.Connections, r.Final, r.Lost = connections, final, w.lost
	w.seq, w.from, w.lost = w.seq+1, r.To, 0
	err := w.line(func() line { return line{Rollup: &r} })
	if w.spool != nil {
		err = errors.Join(err, w.guarded(func() error {
			lost, err := w.spool.close(r)
			w.lost += lost
			return err
		}))
	}
	return err
}

// adopt closes what runs of this pod and instance left open that were killed.
func (w *writer) adopt() {
	if w.spool == nil || !w.left {
		return
	}
	_ = w.guarded(func() error {
		torn, err := w.spool.adopt()
		w.left = passing(err)
		for _, r := range torn {
			w.c.cfg.Logger.Warn("a process of this name ended without closing its comparison: it is closed now, as torn; what it saw after its last flush is not known",
				"pod", r.Pod, "instance", r.Instance, "run", r.Run, "seq", r.Seq, "until", r.To)
			err = errors.Join(err, w.line(func() line { return line{Rollup: &r} }))
		}
		return err
	})
}

// finish writes everything that is there. Observe has seen closed, so that
// nothing is queued any more.
func (w *writer) finish() {
	for len(w.queue) > 0 {
		w.take(<-w.queue)
	}
	w.settle(len(w.waiting))
	w.err = w.closePeriod(time.Now(), true)
	if w.sink != nil {
		w.err = errors.Join(w.err, guard(w.sink.Close))
	}
	if w.spool != nil {
		w.err = errors.Join(w.err, w.spool.end())
	}
}

// line writes one line to the event file, if there is one.
func (w *writer) line(build func() line) error {
	if w.sink == nil {
		return nil
	}
	return w.guarded(func() error {
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
}

// guarded counts a failed write, and logs the first of a row of them.
func (w *writer) guarded(write func() error) error {
	err := guard(write)
	if err != nil {
		err = fmt.Errorf("comparison files of pod %s: %w", w.c.cfg.Pod, err)
		w.c.mu.Lock()
		w.c.open.failed++
		w.c.mu.Unlock()
		if !w.sick {
			w.c.cfg.Logger.Error("an event or a rollup could not be written: counts go on, check the disk", "error", err)
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
		if w.sink != nil {
			_ = guard(w.sink.Close)
		}
		return fmt.Errorf("comparison files of pod %s: they took nothing for %s: the last counts are missing", w.c.cfg.Pod, timeout)
	}
}
