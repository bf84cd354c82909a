package dualwrite_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// A tape records the calls that one operation makes at the stores, in order, and
// does something to one of them. Calls of the buyer's path come first; what the
// operation leaves to the lanes is held back until the buyer has been answered,
// so that the order is the same each time.

// place tells the buyer's path from work in the background: the facade hands on
// the values of the contexts that it was called and started with.
type place struct{}

const (
	onPath     = "path"
	background = "background"
)

// inLane tells the lanes' work from what else goes on in the background.
func inLane() bool {
	var stack [64]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack[:])])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "(*lanes).runOne") {
			return true
		}
		if !more {
			return false
		}
	}
}

func of(ctx context.Context, where string) context.Context {
	return context.WithValue(ctx, place{}, where)
}

// taped is one call on a tape.
type taped struct {
	call
	lane bool // after the buyer was answered
}

// String is "R.Vote" or "M.Apply".
func (c taped) String() string {
	if c.store == holdover.StoreRedis {
		return "R." + c.op
	}
	return "M." + c.op
}

type tape struct {
	mu       sync.Mutex
	on       bool
	calls    []taped
	at       int // the call that something is done to; -1: none
	hit      fault
	dead     bool           // the instance is dead: nothing of it goes out any more
	away     holdover.Store // does not answer from that call on
	answered chan struct{}
	started  map[string]bool // first calls of the loops in the background
	quiet    chan struct{}   // closed when those are over
}

func newTape(stage holdover.Stage) *tape {
	t := &tape{at: -1, answered: make(chan struct{}), started: map[string]bool{}, quiet: make(chan struct{})}
	if stage == holdover.StageMySQLOnly { // the loops have nothing to do
		close(t.quiet)
	}
	return t
}

// record begins: the call with this number, counted from 0, gets the fault.
func (t *tape) record(at int, hit fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on, t.at, t.hit = true, at, hit
}

// stop ends it and heals the stores. A dead instance stays dead.
func (t *tape) stop() []taped {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on, t.away = false, holdover.StoreNone
	return t.calls
}

// soFar are the calls until now.
func (t *tape) soFar() []taped {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.calls)
}

func (t *tape) die() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
}

func (t *tape) isDead() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dead
}

func (t *tape) lose(store holdover.Store) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away = store
}

// idle notes that a loop's first pass is over: it would mix with the recording.
func (t *tape) idle(c call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch c.op {
	case "Journal", "LoweredAdjustments":
		t.started[c.op] = true
	}
	if len(t.started) == 2 && t.quiet != nil {
		close(t.quiet)
		t.quiet = nil
	}
}

// step is the fault that stands in every call of the facade.
func (t *tape) step(ctx context.Context, c call, do func(context.Context) error) error {
	t.mu.Lock()
	if !t.on && !t.dead {
		t.mu.Unlock()
		err := do(ctx)
		t.idle(c)
		return err
	}
	lane := ctx.Value(place{}) == background
	if lane && !t.dead {
		t.mu.Unlock()
		watching := !inLane()
		if !watching {
			<-t.answered
		}
		t.mu.Lock()
		if watching && !t.dead && t.away != c.store { // it only looks
			t.mu.Unlock()
			return do(ctx)
		}
	}
	if t.dead || t.away == c.store {
		t.mu.Unlock()
		return noAnswer(c)
	}
	mine := len(t.calls) == t.at
	t.calls = append(t.calls, taped{c, lane})
	t.mu.Unlock()
	if !mine || t.hit == nil {
		return do(ctx)
	}
	err := t.hit(ctx, c, do)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead { // whatever it was, nobody is there to hear it
		return noAnswer(c)
	}
	return err
}

// instance is a process of the service: a facade whose calls are on a tape.
type instance struct {
	*dualwrite.Facade
	*tape
	*faults
	end func() // waits until nothing of it runs any more
}

// newInstance starts one that has just read the agreement, and does by itself
// nothing but what its operations leave to the lane.
func newInstance(t *testing.T, s *stores, stage holdover.Stage) *instance {
	t.Helper()
	i := &instance{tape: newTape(stage), faults: new(faults)}
	i.inject(func(call) bool { return true }, i.step)
	cfg := dualwrite.Config{
		Pod: pod, Instance: "traced",
		Redis: &tapedRedis{&faultyRedis{s.redis, i.faults}}, MySQL: &tapedMySQL{&faultyMySQL{s.mysql, i.faults}},
		CallTimeout: 10 * time.Second, UnsureFor: 10 * time.Millisecond, MirrorTimeout: 10 * time.Second, LaneTimeout: 10 * time.Second, RefreshTimeout: 10 * time.Second,
		GiveBackTimeout: 10 * time.Second, Lanes: 1,
		SweepEvery: time.Hour, DrainEvery: time.Hour, RecheckEvery: time.Hour, ReaperGrace: 24 * time.Hour, ClaimAge: time.Millisecond,
	}
	f, err := dualwrite.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	i.Facade = f
	quiet := i.quiet
	ctx, stop := context.WithCancel(of(context.Background(), background))
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	i.end = func() { stop(); <-done }
	await(t, quiet, "the first pass of the loops")
	return i
}

// tapedRedis and tapedMySQL also show the calls that the faulty stores hand on
// as they are.
type tapedRedis struct{ *faultyRedis }

type tapedMySQL struct{ *faultyMySQL }

func (r *tapedRedis) LoweredAdjustments(ctx context.Context, age time.Duration, limit int) ([]holdover.Lowered, error) {
	return through(r.faults, ctx, r.call("LoweredAdjustments", holdover.Token{}), func(ctx context.Context) ([]holdover.Lowered, error) {
		return r.Redis.LoweredAdjustments(ctx, age, limit)
	})
}

func (m *tapedMySQL) OwedAdjustments(ctx context.Context, limit int) ([]holdover.Adjusted, error) {
	return through(m.faults, ctx, m.call("OwedAdjustments", holdover.Token{}), func(ctx context.Context) ([]holdover.Adjusted, error) {
		return m.MySQL.OwedAdjustments(ctx, limit)
	})
}

func (m *tapedMySQL) AdjustmentOf(ctx context.Context, a holdover.Adjustment) (done holdover.Adjusted, found bool, err error) {
	err = m.run(ctx, m.call("AdjustmentOf", a.Token), func(ctx context.Context) (err error) {
		done, found, err = m.MySQL.AdjustmentOf(ctx, a)
		return err
	})
	return done, found, err
}
