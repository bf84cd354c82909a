package dualwrite_test

import (
	"context"
	"slices"
	"testing"

	"holdover"
)

// matrixFault is what happens at one call of an operation.
type matrixFault struct {
	name string
	// at makes it for the call that it happens to.
	at func(*testing.T, *world) fault
	// flip is the stage that the pod is brought to; unknown: none, or the kill.
	flip  func(holdover.Stage) holdover.Stage
	kills bool
	loses bool // the store gives no answer
	dies  bool // the instance does
	// late: the call runs after all. afterRepeat: only when the buyer has come back.
	late, afterRepeat bool
	after             bool // only what the call has written makes a difference
}

// matrixFaults is every fault: one store, one instance or one call, and one
// change of the agreement beside it.
func matrixFaults() []matrixFault {
	always := func(f fault) func(*testing.T, *world) fault { return func(*testing.T, *world) fault { return f } }
	later := func(_ *testing.T, w *world) fault { return w.a.later }
	die := func(_ *testing.T, w *world) func() { return w.a.die }
	forward := func(s holdover.Stage) holdover.Stage { return s.Toward(holdover.StageMySQLOnly) }
	back := func(s holdover.Stage) holdover.Stage {
		if s == holdover.StageMySQLOnly { // Redis is rebuilt first: that is no step
			return s
		}
		return s.Toward(holdover.StageRedis)
	}
	kill := func(t *testing.T, w *world) func() { return func() { w.kill(t) } }
	killAndTell := func(t *testing.T, w *world) func() {
		return func() {
			w.kill(t)
			if err := w.a.Refresh(context.Background()); err != nil { // what the follower does
				t.Errorf("refresh: %v", err)
			}
		}
	}
	step := func(to func(holdover.Stage) holdover.Stage) func(*testing.T, *world) func() {
		return func(t *testing.T, w *world) func() { return func() { w.step(t, to(w.stage)) } }
	}
	first := func(hook func(*testing.T, *world) func(), then fault) func(*testing.T, *world) fault {
		return func(t *testing.T, w *world) fault {
			do := hook(t, w)
			return func(ctx context.Context, c call, step func(context.Context) error) error {
				do()
				return then(ctx, c, step)
			}
		}
	}
	last := func(what fault, hook func(*testing.T, *world) func()) func(*testing.T, *world) fault {
		return func(t *testing.T, w *world) fault {
			do := hook(t, w)
			return func(ctx context.Context, c call, step func(context.Context) error) error {
				err := what(ctx, c, step)
				do()
				return err
			}
		}
	}
	away := func(_ *testing.T, w *world) fault {
		return func(_ context.Context, c call, _ func(context.Context) error) error {
			w.a.lose(c.store)
			return noAnswer(c)
		}
	}
	both := func(a, b func(*testing.T, *world) func()) func(*testing.T, *world) func() {
		return func(t *testing.T, w *world) func() {
			first, second := a(t, w), b(t, w)
			return func() { first(); second() }
		}
	}
	return []matrixFault{
		{name: "lost", loses: true, at: always(dropped)},
		{name: "its reply lost", loses: true, after: true, at: always(replyLost)},
		{name: "late", loses: true, late: true, after: true, at: later},
		{name: "later than the repeat", loses: true, late: true, afterRepeat: true, after: true, at: later},
		{name: "store away from here", loses: true, at: away},
		{name: "death before", dies: true, at: first(die, dropped)},
		{name: "death after", dies: true, after: true, at: last(plain, die)},
		{name: "kill before", kills: true, at: first(kill, plain)},
		{name: "kill after", kills: true, after: true, at: last(plain, kill)},
		{name: "kill before, and told", kills: true, at: first(killAndTell, plain)},
		{name: "kill after, and told", kills: true, after: true, at: last(plain, killAndTell)},
		{name: "kill before, reply lost", kills: true, loses: true, after: true, at: first(kill, replyLost)},
		{name: "kill after, reply lost", kills: true, loses: true, after: true, at: last(replyLost, kill)},
		{name: "kill, store away from here", kills: true, loses: true, at: func(t *testing.T, w *world) fault { return first(kill, away(t, w))(t, w) }},
		{name: "death after, then kill", kills: true, dies: true, after: true, at: last(plain, both(die, kill))},
		{name: "forward before", flip: forward, at: first(step(forward), plain)},
		{name: "forward after", flip: forward, after: true, at: last(plain, step(forward))},
		{name: "back before", flip: back, at: first(step(back), plain)},
		{name: "back after", flip: back, after: true, at: last(plain, step(back))},
	}
}

// fits says whether it can happen in the stage at a call of this name. After a
// call that only reads is before the next one.
func (f matrixFault) fits(stage holdover.Stage, name string) bool {
	if f.after && slices.Contains([]string{"Due", "Look", "Lookup", "Probe", "Counters", "Journal", "Marked", "AdjustmentOf"}, name[2:]) {
		return false
	}
	if f.kills && stage == holdover.StageMySQLOnly { // the kill is refused there
		return false
	}
	return f.flip == nil || f.flip(stage) != stage
}

// kill is the real switch.
func (w *world) kill(t *testing.T) {
	tripped, err := w.sw.Trip(t.Context(), "test", "drill")
	if err != nil || tripped.Owed != "" {
		t.Errorf("trip: %v, %s", err, tripped.Owed)
	}
}

// step moves the agreement by the healthy instance. Retirement has checks that
// nothing is under way; here it comes without them.
func (w *world) step(t *testing.T, to holdover.Stage) {
	from, err := w.b.Agreed()
	if to == holdover.StageMySQLOnly && err == nil {
		fence := holdover.Fence{Pod: pod, Epoch: from.Epoch + 1, Stage: to, By: "test", Reason: "flip"}
		if err = w.redis.CompareAndSetFence(t.Context(), from.Epoch, fence); err == nil {
			_, err = w.mysql.RaiseFence(t.Context(), fence)
		}
	} else if err == nil {
		_, err = w.b.Step(t.Context(), from, to, "test", "flip")
	}
	if err != nil {
		t.Errorf("step to %s: %v", to, err)
	}
}
