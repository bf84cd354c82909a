package mysqlpool

import (
	"container/list"
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"holdover"
)

// batcher lets the calls of one process share transactions. A call that finds
// a free slot goes at once, alone, in its caller's goroutine: nobody waits for
// company. While all slots are taken calls wait, and the slot that comes free
// takes them together, round about between the flows, so that a hot item can't
// starve the others.
type batcher[C any] struct {
	run   run[C]
	begin func() (context.Context, context.CancelFunc) // the context of a shared run

	size  int // calls of one batch
	slots int // batches under way
	limit int // calls that may wait; a flow may have half of them

	mu      sync.Mutex
	idle    *sync.Cond // busy, after or waiting went down
	busy    int
	after   int // rests under way
	waiting int
	gathers bool // somebody waits for company, and a timer ends that
	flows   map[key]*flow[C]
	turn    *list.List // of *flow[C]: whose turn it is
	closed  bool
}

// run carries out the calls of a batch; each is answered through its own
// fields. done tells that a call has its answer, before the others have theirs.
// What has to wait for somebody, a lock or a refill, is returned as the rest: it
// goes on without the slot, and the calls that are not done are its.
type run[C any] func(ctx context.Context, calls []*C, done func(*C)) (rest func(context.Context, func(*C)))

type flow[C any] struct {
	key   key
	calls *list.List // of *waiter[C]
	place *list.Element
}

type waiter[C any] struct {
	call  *C
	done  chan struct{}
	flow  *flow[C]
	place *list.Element // nil once it is in a batch
	panic any           // run's, for the caller to have

	patience *holdover.Patience // nil: it waits for a slot only
	since    time.Time          // when it came, of one with patience
}

func newBatcher[C any](size, slots, limit int, begin func() (context.Context, context.CancelFunc), run run[C]) *batcher[C] {
	b := &batcher[C]{
		run: run, begin: begin, size: size, slots: slots, limit: limit,
		flows: make(map[key]*flow[C]), turn: list.New(),
	}
	b.idle = sync.NewCond(&b.mu)
	return b
}

var (
	errBatchClosed = errors.New("the store is closed")
	errLeft        = errors.New("the caller gave up while its call was under way")
)

// do carries out one call: nil says that run has answered it. Else nothing was
// sent (ErrOverloaded, errBatchClosed, the context's error), or errLeft says
// that it may yet happen and that the call belongs to run now.
func (b *batcher[C]) do(ctx context.Context, k key, call *C) error {
	if b.size <= 1 {
		if rest := b.run(ctx, []*C{call}, func(*C) {}); rest != nil {
			rest(ctx, func(*C) {})
		}
		return nil
	}
	patience := holdover.PatienceOf(ctx)
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return errBatchClosed
	case b.busy < b.slots && patience == nil:
		b.busy++
		b.mu.Unlock()
		if rest := b.alone(ctx, call); rest != nil {
			rest(ctx, func(*C) {})
		}
		return nil
	}
	f := b.flows[k]
	if b.waiting >= b.limit || f != nil && f.calls.Len() >= (b.limit+1)/2 {
		b.mu.Unlock()
		return holdover.ErrOverloaded
	}
	if f == nil {
		f = &flow[C]{key: k, calls: list.New()}
		f.place = b.turn.PushBack(f)
		b.flows[k] = f
	}
	w := &waiter[C]{call: call, done: make(chan struct{}), flow: f, patience: patience}
	w.place = f.calls.PushBack(w)
	b.waiting++
	if patience != nil {
		w.since = time.Now()
		b.gather(patience.For)
	}
	b.mu.Unlock()

	select {
	case <-w.done:
		return w.answered()
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.place != nil { // still waiting: it never happened
		b.remove(w)
		b.idle.Broadcast()
		return ctx.Err()
	}
	select {
	case <-w.done:
		return w.answered()
	default:
		return errLeft
	}
}

func (w *waiter[C]) answered() error {
	if w.panic != nil {
		panic(w.panic)
	}
	return nil
}

// gather sees to it that those who wait for company begin when the first of them
// has waited for long enough, or there is a whole batch. The lock is held.
func (b *batcher[C]) gather(most time.Duration) {
	switch {
	case b.busy >= b.slots: // a slot that comes free takes them
	case b.waiting >= b.size:
		b.busy++
		go b.work(b.take())
	case !b.gathers:
		b.gathers = true
		time.AfterFunc(most, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.gathers = false
			if b.busy < b.slots && b.waiting > 0 {
				b.busy++
				go b.work(b.take())
			}
		})
	}
}

// alone runs a call that found a free slot, in its caller's goroutine.
func (b *batcher[C]) alone(ctx context.Context, call *C) (rest func(context.Context, func(*C))) {
	defer b.hand() // also when run panics
	return b.run(ctx, []*C{call}, func(*C) {})
}

// remove takes a waiting call out of its flow.
func (b *batcher[C]) remove(w *waiter[C]) {
	w.flow.calls.Remove(w.place)
	w.place = nil
	b.waiting--
	if w.flow.calls.Len() == 0 {
		b.turn.Remove(w.flow.place)
		delete(b.flows, w.flow.key)
	}
}

// hand gives a slot that came free to those who wait, or back.
func (b *batcher[C]) hand() {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch := b.take()
	if len(batch) == 0 {
		b.busy--
		b.idle.Broadcast()
		return
	}
	go b.work(batch)
}

// take chooses the next batch: one call of each flow in turn.
func (b *batcher[C]) take() []*waiter[C] {
	batch := make([]*waiter[C], 0, min(b.size, b.waiting))
	for len(batch) < b.size && b.waiting > 0 {
		f := b.turn.Front().Value.(*flow[C])
		w := f.calls.Front().Value.(*waiter[C])
		b.turn.MoveToBack(f.place)
		b.remove(w)
		if w.patience != nil {
			w.patience.Took(time.Since(w.since))
		}
		batch = append(batch, w)
	}
	return batch
}

// work runs one batch after the other until nobody waits.
func (b *batcher[C]) work(batch []*waiter[C]) {
	for {
		b.together(batch)
		// Those who were just answered may have a next call: let them queue up.
		runtime.Gosched()
		b.mu.Lock()
		if batch = b.take(); len(batch) == 0 {
			b.busy--
			b.idle.Broadcast()
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
	}
}

// together runs a batch, and its rest, if there is one, in a goroutine of its own.
func (b *batcher[C]) together(batch []*waiter[C]) {
	calls := make([]*C, len(batch))
	open := make(map[*C]*waiter[C], len(batch))
	for i, w := range batch {
		calls[i], open[w.call] = w.call, w
	}
	var mu sync.Mutex // a rest may have several goroutines
	done := func(c *C) {
		mu.Lock()
		defer mu.Unlock()
		if w := open[c]; w != nil {
			delete(open, c)
			close(w.done)
		}
	}
	all := func(broken any) {
		mu.Lock()
		left := slices.Collect(maps.Values(open))
		mu.Unlock()
		for _, w := range left {
			w.panic = broken
			done(w.call)
		}
	}
	step := func(run func(ctx context.Context)) {
		defer func() {
			if broken := recover(); broken != nil { // the process is not this goroutine's to end
				all(broken)
			}
		}()
		ctx, cancel := b.begin()
		defer cancel()
		run(ctx)
	}
	var rest func(context.Context, func(*C))
	step(func(ctx context.Context) { rest = b.run(ctx, calls, done) })
	if rest == nil {
		all(nil)
		return
	}
	b.mu.Lock()
	b.after++
	b.mu.Unlock()
	go func() {
		defer func() {
			b.mu.Lock()
			b.after--
			b.idle.Broadcast()
			b.mu.Unlock()
		}()
		step(func(ctx context.Context) { rest(ctx, done) })
		all(nil)
	}()
}

// close refuses new calls and waits for all others; the context of a shared run
// has to end for it to be quick.
func (b *batcher[C]) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for b.busy+b.after+b.waiting > 0 {
		b.idle.Wait()
	}
}
