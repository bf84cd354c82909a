package dualwrite_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdover"
)

// matrixCase is one operation in one stage with one fault at one call.
type matrixCase struct {
	stage holdover.Stage
	op    matrixOp
	at    int    // the number of the call; -1: no fault
	call  string // its name
	fault matrixFault
	gone  bool // the buyer does not come back
}

func (c matrixCase) String() string {
	if c.at < 0 {
		return fmt.Sprintf("%s/%s/no fault", c.stage, c.op.name)
	}
	return fmt.Sprintf("%s/%s/%d %s/%s", c.stage, c.op.name, c.at+1, c.call, c.fault.name)
}

// run reports whether the buyer was left without an answer.
func (c matrixCase) run(t *testing.T, a *arena) (unanswered bool) {
	w := &world{arena: a, op: c.op, stage: c.stage, shop: newShop(), token: holdover.NewToken()}
	a.enter(t, c.stage)
	if c.op.blind != [2]int64{} && c.stage <= holdover.StageShadow {
		w.op.load = c.op.blind
	}
	w.stock(t, w.op.load)
	if c.op.prepare != nil {
		c.op.prepare(t, w)
	}
	unanswered = c.play(t, w)
	name := c.String()
	if c.gone {
		name += "/the buyer never comes back"
	}
	for _, p := range w.problems {
		t.Errorf("%s: %s", name, p)
	}
	retired, err := a.b.Agreed()
	if err != nil {
		t.Fatal(err)
	}
	if len(w.problems) > 0 || retired.Stage == holdover.StageMySQLOnly && c.stage != retired.Stage {
		a.wipe(t)
	}
	return unanswered
}

// play plays the case, and reports whether the buyer was left without an answer.
func (c matrixCase) play(t *testing.T, w *world) (unanswered bool) {
	w.a = newInstance(t, w.stores, c.stage)
	defer w.a.end()
	if c.at < 0 {
		w.a.record(-1, nil)
	} else {
		w.a.record(c.at, c.fault.at(t, w))
	}
	got := c.op.do(of(context.Background(), onPath), w, w.a.Facade)
	close(w.a.answered)
	eventually(t, "the lane is empty", func() bool { return w.a.Stats().LaneJobs == 0 })
	calls := w.a.tape.stop()
	if c.at < 0 {
		if asked := script(calls); asked != c.op.calls[stageAt(c.stage)] {
			w.problem("it asks %q of the stores, and the table has %q", asked, c.op.calls[stageAt(c.stage)])
		}
	} else if c.at >= len(calls) || calls[c.at].String() != c.call {
		w.problem("the calls were %q", script(calls))
		return false
	}

	answer := c.answer(w, got, calls)
	if c.fault.late && !c.fault.afterRepeat {
		w.a.runLate()
	}
	w.heal(t)
	w.settle(t, answer == done)
	switch {
	case answer == done:
		w.stands(t, "after the answer", !c.fault.dies, c.op.after)
	case answer == refusal:
		w.stands(t, "after the refusal", !c.fault.dies, c.op.before)
	case c.op.mute:
		w.stands(t, "after the sweep", true, c.op.after)
	case c.op.takes && !c.fault.dies && !c.fault.late: // the instance has given back what it took for nobody
		w.stands(t, "after no answer", true, c.op.before)
	default:
		w.stands(t, "after no answer", false, append(c.op.halfway, c.op.before, c.op.after)...)
	}
	if answer == done && c.op.name == "extend" {
		w.keepsExtension(t, "after the answer", got.hold.ExpiresAt)
	}
	if c.gone || c.op.mute {
		w.goes(t)
		return false
	}
	c.comesBack(t, w, answer)
	return answer == nothing
}

// answer judges what the buyer was told, if he was.
func (c matrixCase) answer(w *world, got told, calls []taped) verdict {
	if c.at < 0 {
		return w.judge("the buyer", got, true)
	}
	hit := calls[c.at]
	if c.fault.dies && !hit.lane {
		return nothing
	}
	// He may go without an answer when a store that he needs gave none: one that
	// decides, or, with a kill beside it, one that decides now.
	letter := c.call[:1]
	certain := hit.lane || !c.fault.loses || !c.fault.kills && !strings.Contains(c.op.needs[stageAt(c.stage)], letter)
	if c.op.mute { // nobody waits for it, and the next one goes on
		certain = certain && !c.fault.loses && !c.fault.dies
	}
	return w.judge("the buyer", got, certain)
}

// goes: the buyer does not come back, and the time of what he may hold ends.
func (w *world) goes(t *testing.T) {
	w.later(t, 24*time.Hour)
	w.settle(t, true)
	before, after := w.op.before, w.op.after
	before.held, after.held = 0, 0
	if w.op.mute {
		before = after
	}
	w.stands(t, "in the end", true, before, after)
	w.ending(t, false)
}

// comesBack: the buyer repeats his call to a healthy instance, and later claims
// what he was promised.
func (c matrixCase) comesBack(t *testing.T, w *world, before verdict) {
	again := c.op.do(context.Background(), w, w.b)
	answer := w.judge("the buyer who repeats", again, true)
	if before != nothing && answer != before {
		w.problem("told one thing and then another")
	}
	if before == done && c.op.name != "extend" && !again.replayed {
		w.problem("the repeat is no replay: %s", again)
	}
	if c.fault.afterRepeat {
		w.a.runLate()
	}
	w.settle(t, true)
	w.stands(t, "after the repeat", true, c.op.after)
	if c.op.name == "extend" {
		w.keepsExtension(t, "after the repeat", again.hold.ExpiresAt)
		w.later(t, 2*time.Hour)
		w.settle(t, true)
		w.stands(t, "when its first expiry has passed", true, c.op.after)
	}
	end := c.op.after
	if end.held == 0 {
		w.ending(t, true)
		return
	}
	if answer == done {
		if res, err := w.b.Claim(t.Context(), w.shop, w.token); err != nil || res.Pending {
			w.problem("the claim of what was promised: %s", tell(res, err))
		}
		end.held, end.sold = end.held-1, end.sold+1
	} else {
		if _, err := w.b.Release(t.Context(), w.shop, w.others[0]); err != nil {
			w.problem("release of another buyer's hold: %v", err)
		}
		end.held--
	}
	w.settle(t, true)
	w.stands(t, "in the end", true, end)
	w.ending(t, true)
}
