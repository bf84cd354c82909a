package dualwrite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"holdover"
)

// sickness is something that MySQL does to every call.
type sickness struct {
	name  string
	hangs bool
	fault func(*gate) fault
}

// sicknesses of G3. A call that hangs comes back when its deadline has passed or
// the test ends it; on the buyer's path the deadline has passed at once.
func sicknesses() []sickness {
	always := func(f fault) func(*gate) fault { return func(*gate) fault { return f } }
	hangs := func(onItsPath fault) func(*gate) fault {
		return func(g *gate) fault {
			return func(ctx context.Context, c call, do func(context.Context) error) error {
				if ctx.Value(place{}) == onPath {
					return onItsPath(ctx, c, do)
				}
				return g.stuck(ctx, c, do)
			}
		}
	}
	return []sickness{
		{"hung", true, hangs(dropped)},
		{"slow", true, hangs(plain)},
		{"panicking", false, always(panics)},
		{"refusing connections", false, always(refused)},
		{"full", false, always(overloaded)},
		{"losing each reply", false, always(replyLost)},
	}
}

// TestMatrixShadow is G3, operation x what MySQL does: in shadow the buyer is told
// what he would be told in redis with the same MySQL, he waits for no call that
// he would not wait for there, and he is answered although none of the shadow's
// calls has been let through: the tape holds them back until then, and here they
// hang after it. Afterwards MySQL catches up.
func TestMatrixShadow(t *testing.T) {
	a := newArena(t)
	for _, op := range matrixOps() {
		if op.mute {
			continue
		}
		for _, sick := range sicknesses() {
			t.Run(op.name+"/"+sick.name, func(t *testing.T) {
				alone, _ := underSickness(t, a, holdover.StageRedis, op, sick)
				shadowed, w := underSickness(t, a, holdover.StageShadow, op, sick)
				if alone != shadowed {
					t.Errorf("in redis: %s\nin shadow: %s", alone, shadowed)
				}
				if len(w.problems) > 0 {
					t.Errorf("afterwards: %q", w.problems)
					a.wipe(t)
				}
			})
		}
	}
}

// underSickness does the operation while MySQL is sick, and says what the buyer
// was told and what he waited for.
func underSickness(t *testing.T, a *arena, stage holdover.Stage, op matrixOp, sick sickness) (story string, w *world) {
	t.Helper()
	w = &world{arena: a, op: op, stage: stage, shop: newShop(), token: holdover.NewToken()}
	if op.blind != [2]int64{} {
		w.op.load = op.blind
	}
	a.enter(t, stage)
	w.stock(t, w.op.load)
	if op.prepare != nil {
		op.prepare(t, w)
	}
	w.a = newInstance(t, w.stores, stage)
	defer w.a.end()
	g := newGate(t)
	w.a.inject(mysqlOps(), func(ctx context.Context, c call, do func(context.Context) error) error {
		return w.a.step(ctx, c, func(ctx context.Context) error { return sick.fault(g)(ctx, c, do) })
	})
	w.a.record(-1, nil)
	got := await(t, async(func() told { return op.do(of(context.Background(), onPath), w, w.a.Facade) }), "the buyer, who waits for mysql")
	waited := script(w.a.soFar())
	close(w.a.answered)
	shadows := stage == holdover.StageShadow && op.calls[stageAt(stage)] != op.calls[stageAt(holdover.StageRedis)]
	if shadows && sick.hangs { // he has been answered, and only now it is asked
		if c := g.wait(t); c.store != holdover.StoreMySQL {
			t.Errorf("%s hangs", c)
		}
	}
	w.a.faults.heal()
	g.open()
	eventually(t, "the lane is empty", func() bool { return w.a.Stats().LaneJobs == 0 })
	w.a.tape.stop()
	w.heal(t)
	w.settle(t, true)
	want := []units{op.after}
	if got.err != nil && op.no == nil { // it may have been done
		want = append(want, op.before)
	}
	w.stands(t, "afterwards", true, want...)
	w.goes(t)
	return fmt.Sprintf("%s; he waited for %s", answerClass(got), waited), w
}

// answerClass is what a caller sees of an answer.
func answerClass(got told) string {
	for _, class := range []error{
		holdover.ErrOutOfStock, holdover.ErrUnknownOutcome, holdover.ErrUnavailable, holdover.ErrOverloaded, holdover.ErrTryAgain,
		holdover.ErrUnknownHold, holdover.ErrEnded, holdover.ErrAlreadyClaimed, holdover.ErrTokenReused,
	} {
		if errors.Is(got.err, class) {
			return class.Error()
		}
	}
	if got.err != nil {
		return got.err.Error()
	}
	return fmt.Sprintf("%s, pending %t, replayed %t, changed %d", got.hold.State, got.pending, got.replayed, got.changed)
}
