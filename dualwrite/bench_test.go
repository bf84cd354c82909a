package dualwrite

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
)

// silentStores answer nothing: what is measured never asks them.
type silentRedis struct{ Redis }

type silentMySQL struct{ MySQL }

func benchFacade(t testing.TB) *Facade {
	f, err := New(Config{Pod: "bench", Instance: "bench", Redis: silentRedis{}, MySQL: silentMySQL{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	f.view.Store(&view{Fence: holdover.Fence{Pod: "bench", Epoch: 7, Stage: holdover.StageMySQL}, moved: make(chan struct{})})
	return f
}

// stageOf is what each call does to choose its stage.
func stageOf(f *Facade) (holdover.Stage, holdover.Epoch) {
	v := f.view.Load()
	if v == nil {
		return holdover.StageUnknown, 0
	}
	return v.Stage, v.Epoch
}

// Choosing the stage is one atomic read: it costs a buyer nothing.
func TestChoosingTheStageAllocatesNothing(t *testing.T) {
	f := benchFacade(t)
	if n := testing.AllocsPerRun(1000, func() {
		if stage, _ := stageOf(f); stage != holdover.StageMySQL {
			t.Error(stage)
		}
		if fence, err := f.Agreed(); err != nil || fence.Epoch != 7 {
			t.Error(fence, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkView chooses the stage on all processors while the agreement moves.
// Target: at most 50 ns, no allocation.
func BenchmarkView(b *testing.B) {
	f := benchFacade(b)
	stop := make(chan struct{})
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				old := f.view.Load()
				f.view.Store(&view{Fence: holdover.Fence{Pod: "bench", Epoch: old.Epoch + 1, Stage: holdover.StageMySQL}, moved: make(chan struct{})})
			case <-stop:
				return
			}
		}
	}()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var epochs holdover.Epoch
		for pb.Next() {
			stage, epoch := stageOf(f)
			if stage == holdover.StageUnknown {
				b.Error("no stage")
			}
			epochs += epoch
		}
		keep.Add(uint64(epochs))
	})
	close(stop)
	<-moved
}

var keep atomic.Uint64

// BenchmarkObservation is what recording one reserve of four lines for comparing
// adds to its call: the record, both times, what overlaps, and the hand-over;
// the stores and the comparator are not in it. Target, with the comparator: at
// most 2 µs and 1 allocation.
func BenchmarkObservation(b *testing.B) {
	f := benchFacade(b)
	f.cfg.Observe = func(o holdover.Observation) { keep.Add(uint64(o.Redis.Latency)) }
	v := f.view.Load()
	q := holdover.Request{Shop: 1, Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}, {Item: 2, Group: 1, Quantity: 1}, {Item: 3, Group: 1, Quantity: 1}, {Item: 4, Group: 1, Quantity: 1}}}
	g := holdover.Grant{Hold: holdover.Hold{Shop: 1, Lines: q.Lines, State: holdover.StateHeld}}
	ask := func() (holdover.Grant, error) { return g, nil }
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		a := newAttempt(holdover.NewToken())
		for pb.Next() {
			o := f.observation(v, a, holdover.OpReserve, q)
			_, _ = timed(&o.Redis, ask)
			f.asked(&o, q.Lines)
			_, _ = timed(&o.MySQL, ask)
			f.settle(v, o)
		}
	})
}

// BenchmarkLanes is one piece of mirror work through its lane: queued by many
// callers, done by the lanes' workers.
func BenchmarkLanes(b *testing.B) {
	var done atomic.Int64
	l := newLanes(8, 1024, time.Second, func(job, error) {})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); l.run(ctx) }()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		token := holdover.NewToken()
		for pb.Next() {
			token[15]++
			l.add(job{token: token, run: func(context.Context) error { done.Add(1); return nil }})
		}
	})
	stop()
	<-ended
	_, _, shed := l.size(0, time.Hour)
	b.ReportMetric(float64(shed)/float64(b.N), "shed/op")
	if done.Load()+shed != int64(b.N) {
		b.Errorf("%d pieces of work: %d done, %d shed", b.N, done.Load(), shed)
	}
}

// Lanes run one token's work in order, contain panics, shed over their bound,
// and finish what is queued when they stop.
func TestLanes(t *testing.T) {
	var failed, shed atomic.Int64
	l := newLanes(2, 8, time.Minute, func(j job, err error) { failed.Add(1); j.failed(err) })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.run(ctx) }()

	entered, gate := make(chan struct{}), make(chan struct{})
	var ran []int // by one lane's worker only
	token := holdover.Token{15: 4}
	add := func(n int, run func(context.Context) error) bool {
		return l.add(job{token: token, what: "test", run: func(ctx context.Context) error {
			ran = append(ran, n)
			return run(ctx)
		}, failed: func(error) {}, shed: func() { shed.Add(1) }})
	}
	ok := func(context.Context) error { return nil }
	add(0, func(context.Context) error { close(entered); <-gate; return nil })
	<-entered
	add(1, func(context.Context) error { panic("mirror work") })
	add(2, func(context.Context) error { return errors.New("failed") })
	for n := 3; n < 9; n++ {
		if !add(n, ok) {
			t.Errorf("work %d was shed", n)
		}
	}
	if add(9, ok) {
		t.Error("the ninth piece of waiting work was taken by a lane of eight")
	}
	if all, late, n := l.size(1, time.Hour); all != 9 || late != 9 || n != 1 { // all are of epoch 0
		t.Errorf("%d pieces of work, %d late, %d shed", all, late, n)
	}
	stop()
	close(gate)
	<-ended
	if add(10, ok) {
		t.Error("stopped lanes took work")
	}
	for i, n := range ran {
		if i != n {
			t.Fatalf("work ran in the order %v", ran)
		}
	}
	if len(ran) != 9 || failed.Load() != 2 || shed.Load() != 2 {
		t.Errorf("%d pieces of work ran, %d failed, %d shed", len(ran), failed.Load(), shed.Load())
	}
}
