package mysqlpool

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
	"holdover/internal/teststack"
)

type ask struct {
	n    int
	runs int
}

// gate is a run that reports each batch and waits until it is let go.
type gate struct {
	batches chan []*ask
	open    chan struct{}
}

func newGate() *gate { return &gate{make(chan []*ask, 100), make(chan struct{})} }

func (g *gate) run(_ context.Context, calls []*ask, _ func(*ask)) func(context.Context, func(*ask)) {
	for _, c := range calls {
		c.runs++
	}
	g.batches <- calls
	<-g.open
	return nil
}

func background() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

func (b *batcher[C]) queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

// TestBatcherGoesAtOnce: a call that finds a free slot waits for nobody; those
// that find none go together when a slot is free, never more than size.
func TestBatcherGoesAtOnce(t *testing.T) {
	teststack.NoLeaks(t)
	g := newGate()
	b := newBatcher(3, 2, 100, background, g.run)
	var wg sync.WaitGroup
	calls := make([]ask, 9)
	do := func(i int) {
		wg.Go(func() {
			if err := b.do(t.Context(), key{item: int64(i)}, &calls[i]); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 2 {
		do(i)
		if batch := <-g.batches; len(batch) != 1 {
			t.Fatalf("a lone call went in a batch of %d", len(batch))
		}
	}
	for i := 2; i < 9; i++ {
		do(i)
	}
	eventually(t, "seven calls wait", func() bool { return b.queued() == 7 })
	close(g.open)
	wg.Wait()
	b.close()
	close(g.batches)
	var sizes []int
	for batch := range g.batches {
		sizes = append(sizes, len(batch))
	}
	if slices.Max(sizes) > 3 || len(sizes) < 3 {
		t.Errorf("batches of %v for 7 calls, at most 3 each", sizes)
	}
	for i := range calls {
		if calls[i].runs != 1 {
			t.Errorf("call %d ran %d times", i, calls[i].runs)
		}
	}
}

// TestBatcherIsFair: one call of another item is in the very next batch,
// however many wait for the hot one.
func TestBatcherIsFair(t *testing.T) {
	g := newGate()
	b := newBatcher(4, 1, 1000, background, g.run)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(g.open)
	enter := func(item int64, c *ask) {
		before := b.queued()
		wg.Go(func() { _ = b.do(t.Context(), key{item: item}, c) })
		eventually(t, "the call waits", func() bool { return b.queued() > before })
	}
	wg.Go(func() { _ = b.do(t.Context(), key{item: 1}, &ask{}) })
	<-g.batches // it has the slot
	for range 20 {
		enter(1, &ask{n: 1})
	}
	enter(2, &ask{n: 2})
	enter(3, &ask{n: 3})
	g.open <- struct{}{}
	var items []int
	for _, c := range <-g.batches {
		items = append(items, c.n)
	}
	if !slices.Contains(items, 2) || !slices.Contains(items, 3) || len(items) != 4 {
		t.Errorf("the next batch has items %v", items)
	}
}

// TestBatcherBounds: over the bound a call is refused at once, and one item
// can't have more than half of it.
func TestBatcherBounds(t *testing.T) {
	g := newGate()
	b := newBatcher(10, 1, 4, background, g.run)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(g.open)
	wait := func(item int64) {
		before := b.queued()
		wg.Go(func() {
			if err := b.do(t.Context(), key{item: item}, &ask{}); err != nil {
				t.Error(err)
			}
		})
		eventually(t, "the call waits", func() bool { return b.queued() > before })
	}
	wg.Go(func() { _ = b.do(t.Context(), key{}, &ask{}) })
	<-g.batches
	wait(1)
	wait(1)
	refused := &ask{}
	if err := b.do(t.Context(), key{item: 1}, refused); !errors.Is(err, holdover.ErrOverloaded) {
		t.Errorf("a third call for one item: %v", err)
	}
	wait(2)
	wait(3)
	if err := b.do(t.Context(), key{item: 4}, refused); !errors.Is(err, holdover.ErrOverloaded) {
		t.Errorf("a fifth call: %v", err)
	}
	if refused.runs != 0 {
		t.Error("a refused call ran")
	}
}

// TestBatcherCallerGivesUp: one that waits never happens, one that is under way
// belongs to the run, and both are answered at once.
func TestBatcherCallerGivesUp(t *testing.T) {
	teststack.NoLeaks(t)
	g := newGate()
	b := newBatcher(10, 1, 10, background, g.run)
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.do(t.Context(), key{}, &ask{}) })
	<-g.batches

	ctx, cancel := context.WithCancel(t.Context())
	waiting := &ask{}
	answer := make(chan error, 1)
	wg.Go(func() { answer <- b.do(ctx, key{}, waiting) })
	eventually(t, "the call waits", func() bool { return b.queued() == 1 })
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Errorf("a waiting call that was given up: %v", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	under := &ask{}
	wg.Go(func() { answer <- b.do(ctx, key{}, under) })
	eventually(t, "the call waits", func() bool { return b.queued() == 1 })
	g.open <- struct{}{}
	<-g.batches // it is under way
	cancel()
	if err := <-answer; !errors.Is(err, errLeft) {
		t.Errorf("a call under way that was given up: %v", err)
	}
	close(g.open)
	wg.Wait()
	b.close()
	if waiting.runs != 0 || under.runs != 1 {
		t.Errorf("the waiting call ran %d times, the one under way %d", waiting.runs, under.runs)
	}
}

// TestBatcherPanic: a panic of a shared run reaches its callers, not the process.
func TestBatcherPanic(t *testing.T) {
	hold := make(chan struct{})
	started := make(chan struct{}, 1)
	b := newBatcher(10, 1, 10, background, func(_ context.Context, calls []*ask, _ func(*ask)) func(context.Context, func(*ask)) {
		if calls[0].n == 1 {
			panic("a bug")
		}
		started <- struct{}{}
		<-hold
		return nil
	})
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.do(t.Context(), key{}, &ask{}) })
	<-started
	var panics atomic.Int64
	for range 3 {
		wg.Go(func() {
			defer func() {
				if recover() != nil {
					panics.Add(1)
				}
			}()
			_ = b.do(t.Context(), key{}, &ask{n: 1})
		})
	}
	eventually(t, "three calls wait", func() bool { return b.queued() == 3 })
	close(hold)
	wg.Wait()
	if panics.Load() != 3 {
		t.Errorf("%d callers saw the panic of their batch, want 3", panics.Load())
	}
	hold, started = make(chan struct{}), make(chan struct{}, 1)
	close(hold)
	if err := b.do(t.Context(), key{}, &ask{}); err != nil {
		t.Errorf("after a panic: %v", err)
	}
	b.close()
	if err := b.do(t.Context(), key{}, &ask{}); !errors.Is(err, errBatchClosed) {
		t.Errorf("after close: %v", err)
	}
}

// TestBatcherRest: a call that is done is answered before its neighbours, and
// what has to wait does so without the slot.
func TestBatcherRest(t *testing.T) {
	teststack.NoLeaks(t)
	slow, started := make(chan struct{}), make(chan struct{})
	first := make(chan struct{}, 1)
	b := newBatcher(10, 1, 100, background, func(_ context.Context, calls []*ask, done func(*ask)) func(context.Context, func(*ask)) {
		if calls[0].n == 0 { // takes the slot until the others wait
			first <- struct{}{}
			<-started
			return nil
		}
		var left []*ask
		for _, c := range calls {
			if c.n == 1 {
				done(c)
			} else {
				left = append(left, c)
			}
		}
		if left == nil {
			return nil
		}
		return func(_ context.Context, done func(*ask)) {
			<-slow
			for _, c := range left {
				c.runs++
				done(c)
			}
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.do(t.Context(), key{}, &ask{}) })
	<-first
	quick, blocked := &ask{n: 1}, &ask{n: 2}
	quickly, blockedly := make(chan struct{}), make(chan struct{})
	wg.Go(func() { _ = b.do(t.Context(), key{item: 1}, quick); close(quickly) })
	wg.Go(func() { _ = b.do(t.Context(), key{item: 2}, blocked); close(blockedly) })
	eventually(t, "both wait", func() bool { return b.queued() == 2 })
	close(started)
	<-quickly                                                    // although its neighbour is not done
	if err := b.do(t.Context(), key{}, &ask{n: 1}); err != nil { // the slot is free
		t.Error(err)
	}
	select {
	case <-blockedly:
		t.Error("the call that waits was answered")
	default:
	}
	close(slow)
	<-blockedly
	wg.Wait()
	b.close()
	if blocked.runs != 1 {
		t.Errorf("the rest ran %d times", blocked.runs)
	}
}

// BenchmarkBatcher is the batcher's own cost for a call, without a database:
// alone, and for one that waits for its batch (its waiter, its channel, and its
// place in the batch).
func BenchmarkBatcher(b *testing.B) {
	for _, mode := range []struct {
		name  string
		procs int
	}{{"lone", 0}, {"256 callers", 128}} {
		b.Run(mode.name, func(b *testing.B) {
			q := newBatcher(128, 3, 10_000, background, func(context.Context, []*ask, func(*ask)) func(context.Context, func(*ask)) { return nil })
			b.ReportAllocs()
			if mode.procs == 0 {
				c := &ask{}
				for b.Loop() {
					_ = q.do(b.Context(), key{}, c)
				}
				return
			}
			b.SetParallelism(mode.procs)
			b.RunParallel(func(pb *testing.PB) {
				c := &ask{}
				for pb.Next() {
					if err := q.do(b.Context(), key{}, c); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// TestBatcherPatience: a call with patience waits for company although a slot is
// free, until a batch is full or its time is over; one without it never does.
func TestBatcherPatience(t *testing.T) {
	teststack.NoLeaks(t)
	g := newGate()
	close(g.open)
	b := newBatcher(3, 2, 100, background, g.run)
	var wg sync.WaitGroup
	do := func(p *holdover.Patience) {
		ctx := t.Context()
		if p != nil {
			ctx = holdover.WithPatience(ctx, p)
		}
		wg.Go(func() {
			if err := b.do(ctx, key{}, new(ask)); err != nil {
				t.Error(err)
			}
		})
	}
	long := &holdover.Patience{For: time.Hour}
	do(long)
	do(long)
	eventually(t, "two calls wait for company", func() bool { return b.queued() == 2 })
	select {
	case batch := <-g.batches:
		t.Fatalf("a batch of %d began: nobody was in a hurry", len(batch))
	default:
	}
	do(long)
	if batch := <-g.batches; len(batch) != 3 {
		t.Errorf("a batch of %d began, want the full one", len(batch))
	}
	wg.Wait()
	if long.Waited() <= 0 {
		t.Error("the wait for company was not noted")
	}

	do(nil)
	if batch := <-g.batches; len(batch) != 1 {
		t.Errorf("a call without patience began in a batch of %d", len(batch))
	}
	wg.Wait()
	b.gathers = false // the hour's timer is not waited for
	short := &holdover.Patience{For: time.Millisecond}
	do(short)
	if batch := <-g.batches; len(batch) != 1 {
		t.Errorf("a batch of %d began when the time was over, want 1", len(batch))
	}
	wg.Wait()
	if w := short.Waited(); w <= 0 || w > short.For {
		t.Errorf("waited %s for company, want at most %s", w, short.For)
	}
	b.close()
}
