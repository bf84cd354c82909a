package mysqlpool

import (
	"container/list"
	"context"
	"errors"
	"runtime"
	"sync"

	"holdover"
)

// batcher lets the calls of one process share transactions. A call that finds
// a free slot goes at once, alone, in its caller's goroutine: nobody waits for
// company. While all slots are taken calls wait, and the slot that comes free
// takes them together, round about between the flows, so that a hot item can't
// starve the others. The calls of a batch are answered by run, through their
// own fields; a call's error is returned by the function that asked.
type batcher[C any] struct {
	run   func(ctx context.Context, calls []*C)
	begin func() (context.Context, context.CancelFunc) // the context of a shared run

	size  int // calls of one batch
	slots int // batches under way
	limit int // calls that may wait; a flow may have half of them

	mu      sync.Mutex
	busy    int
	waiting int
	flows   map[key]*flow[C]
	turn    *list.List // of *flow[C]: whose turn it is
	closed  bool
	owned   sync.WaitGroup
}

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
}

func newBatcher[C any](size, slots, limit int, begin func() (context.Context, context.CancelFunc), run func(context.Context, []*C)) *batcher[C] {
	return &batcher[C]{
		run: run, begin: begin, size: size, slots: slots, limit: limit,
		flows: make(map[key]*flow[C]), turn: list.New(),
	}
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
		b.run(ctx, []*C{call})
		return nil
	}
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return errBatchClosed
	case b.busy < b.slots:
		b.busy++
		b.mu.Unlock()
		defer b.hand() // also when run panics
		b.run(ctx, []*C{call})
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
	w := &waiter[C]{call: call, done: make(chan struct{}), flow: f}
	w.place = f.calls.PushBack(w)
	b.waiting++
	b.mu.Unlock()

	select {
	case <-w.done:
		if w.panic != nil {
			panic(w.panic)
		}
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.place != nil { // still waiting: it never happened
		b.remove(w)
		return ctx.Err()
	}
	select {
	case <-w.done:
		return nil
	default:
		return errLeft
	}
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
		return
	}
	b.owned.Add(1)
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
		batch = append(batch, w)
	}
	return batch
}

// work runs one batch after the other until nobody waits.
func (b *batcher[C]) work(batch []*waiter[C]) {
	defer b.owned.Done()
	for {
		b.runTogether(batch)
		// Those who were just answered may have a next call: let them queue up.
		runtime.Gosched()
		b.mu.Lock()
		if batch = b.take(); len(batch) == 0 {
			b.busy--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
	}
}

func (b *batcher[C]) runTogether(batch []*waiter[C]) {
	ctx, cancel := b.begin()
	defer cancel()
	calls := make([]*C, len(batch))
	for i, w := range batch {
		calls[i] = w.call
	}
	defer func() {
		broken := recover() // the process is not this goroutine's to end
		for _, w := range batch {
			w.panic = broken
			close(w.done)
		}
	}()
	b.run(ctx, calls)
}

// close refuses new calls and waits for the batches under way; the context of
// a shared run has to end for it to be quick. Waiting calls are still carried
// out or refused by their run.
func (b *batcher[C]) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.owned.Wait()
}
