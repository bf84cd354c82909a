package dualwrite

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"holdover"
)

// job is one piece of mirror work for a token.
type job struct {
	token  holdover.Token
	epoch  holdover.Epoch
	what   string
	run    func(ctx context.Context) error
	failed func(err error) // after run failed or panicked; nil: only logged
	shed   func()          // instead of run, when the lane was full; nil: only counted
	waits  bool            // nobody needs it soon: the store may let it wait for company
	added  time.Time
}

// lanes run mirror work in order per token: a claim must not overtake its
// reserve. Each lane is a bounded queue with one worker.
type lanes struct {
	lane    []*lane
	depth   int
	timeout time.Duration
	linger  time.Duration // how long a job that waits may wait for company; zero: it does not
	failed  func(job, error)

	mu   sync.Mutex // guards the two below and every lane's queue
	done bool
	shed int64
}

type lane struct {
	queue   []job
	running *job
	wake    chan struct{}
}

func newLanes(n, depth int, timeout time.Duration, failed func(job, error)) *lanes {
	l := &lanes{depth: depth, timeout: timeout, failed: failed}
	for range n {
		l.lane = append(l.lane, &lane{wake: make(chan struct{}, 1)})
	}
	return l
}

// add queues j, or sheds it when its lane is full or the lanes have stopped.
func (l *lanes) add(j job) bool {
	ln := l.lane[int(j.token[15])%len(l.lane)]
	j.added = time.Now()
	l.mu.Lock()
	if l.done || len(ln.queue) >= l.depth {
		l.shed++
		l.mu.Unlock()
		if j.shed != nil {
			j.shed()
		}
		return false
	}
	ln.queue = append(ln.queue, j)
	l.mu.Unlock()
	select {
	case ln.wake <- struct{}{}:
	default:
	}
	return true
}

// run works until ctx ends, then finishes what is queued within one timeout.
func (l *lanes) run(ctx context.Context) {
	ending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		l.done = true
		l.mu.Unlock()
		time.AfterFunc(l.timeout, cancel)
	})
	defer stop()
	var workers sync.WaitGroup
	for _, ln := range l.lane {
		workers.Go(func() { l.work(ctx, ending, ln) })
	}
	workers.Wait()
}

func (l *lanes) work(ctx, ending context.Context, ln *lane) {
	for {
		j, ok := l.next(ln)
		if !ok {
			select {
			case <-ln.wake:
				continue
			case <-ctx.Done():
				l.mu.Lock()
				l.done = true // from here on add sheds
				l.mu.Unlock()
			}
			if j, ok = l.next(ln); !ok { // done is set or about to be: nothing follows
				return
			}
		}
		if err := l.runOne(ending, j); err != nil {
			l.failed(j, err)
		}
		l.mu.Lock()
		ln.running = nil
		l.mu.Unlock()
	}
}

func (l *lanes) next(ln *lane) (job, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(ln.queue) == 0 {
		return job{}, false
	}
	j := ln.queue[0]
	ln.queue[0] = job{} // lets go of what the closure holds
	ln.queue = ln.queue[1:]
	ln.running = &j
	return j, true
}

// runOne contains a panic of the other store's code: the truth never sees it.
func (l *lanes) runOne(ctx context.Context, j job) (err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in mirror work: %v\n%s", p, debug.Stack())
		}
	}()
	if j.waits && l.linger > 0 {
		ctx = holdover.WithPatience(ctx, &holdover.Patience{For: l.linger})
	}
	return j.run(ctx)
}

// size counts the work waiting or running, and of it what holds up a step
// forward: work from an epoch before now, or older than lag.
func (l *lanes) size(now holdover.Epoch, lag time.Duration) (all, late int, shed int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := time.Now()
	count := func(j *job) {
		all++
		if j.epoch < now || at.Sub(j.added) > lag {
			late++
		}
	}
	for _, ln := range l.lane {
		for i := range ln.queue {
			count(&ln.queue[i])
		}
		if ln.running != nil {
			count(ln.running)
		}
	}
	return all, late, l.shed
}

func (f *Facade) laneFailed(j job, err error) {
	f.stats.laneFailed.Add(1)
	f.log.Warn("mirror work failed", "what", j.what, "token", j.token, "err", err)
	if j.failed != nil {
		j.failed(err)
	}
}
