package torture

import (
	"strings"
	"testing"
	"time"

	"holdover"
)

// history is written by hand: each call has its own moment unless it overlaps.
type history struct {
	calls  []call
	at     time.Duration
	tokens map[string]holdover.Token
}

func (h *history) token(name string) holdover.Token {
	if h.tokens == nil {
		h.tokens = map[string]holdover.Token{}
	}
	if _, ok := h.tokens[name]; !ok {
		h.tokens[name] = holdover.NewToken()
	}
	return h.tokens[name]
}

func (h *history) add(op, token string, units int64, err error) *history {
	c := call{op: op, token: h.token(token), start: h.at, end: h.at + 5*time.Millisecond, err: err, res: holdover.Result{Decision: holdover.Decision{Stage: holdover.StageShadow}}}
	if op == "reserve" {
		c.lines = []holdover.Line{{Item: 1, Group: 1, Quantity: units}}
	}
	h.calls = append(h.calls, c)
	h.at += 10 * time.Millisecond
	return h
}

var (
	soldOut  = &holdover.OutOfStockError{Store: holdover.StoreRedis}
	lost     = &holdover.StoreError{Unknown: true}
	released = &holdover.EndedError{State: holdover.StateReleased}
)

func TestLinearizability(t *testing.T) {
	for name, c := range map[string]struct {
		h    *history
		want string // empty: linearizable
	}{
		"one after the other": {h: new(history).add("reserve", "a", 2, nil).add("reserve", "b", 1, soldOut).add("release", "a", 2, nil).add("reserve", "b", 1, nil).
			add("claim", "b", 1, nil).add("claim", "b", 1, nil).add("release", "b", 1, holdover.ErrAlreadyClaimed).add("release", "a", 2, nil).add("reserve", "a", 2, released)},
		"oversold":              {h: new(history).add("reserve", "a", 2, nil).add("reserve", "b", 1, nil), want: "no order"},
		"refused for nothing":   {h: new(history).add("reserve", "a", 1, nil).add("reserve", "b", 1, soldOut), want: "no order"},
		"a hold is forgotten":   {h: new(history).add("reserve", "a", 1, nil).add("reserve", "a", 1, soldOut), want: "no order"},
		"claimed and released":  {h: new(history).add("reserve", "a", 1, nil).add("claim", "a", 1, nil).add("release", "a", 1, nil), want: "no order"},
		"sold again after it":   {h: new(history).add("reserve", "a", 2, nil).add("claim", "a", 2, nil).add("reserve", "b", 1, nil), want: "no order"},
		"unknown, and it took":  {h: new(history).add("reserve", "a", 2, lost).add("reserve", "b", 1, soldOut).add("reserve", "a", 2, nil)},
		"unknown, it did not":   {h: new(history).add("reserve", "a", 2, lost).add("reserve", "b", 2, nil).add("reserve", "a", 2, soldOut)},
		"given back":            {h: new(history).add("reserve", "a", 2, lost).add("reserve", "b", 1, soldOut).add("reserve", "b", 2, nil)},
		"told, then given back": {h: new(history).add("reserve", "a", 2, lost).add("reserve", "a", 2, nil).add("reserve", "b", 2, nil), want: "no order"},
		"a release that took":   {h: new(history).add("reserve", "a", 2, nil).add("release", "a", 2, lost).add("reserve", "b", 2, nil).add("release", "a", 2, nil)},
		"an answer of no place": {h: new(history).add("reserve", "a", 1, nil).add("claim", "a", 1, holdover.ErrUnknownHold), want: "no place"},
	} {
		err := linear(c.h.calls, map[int64]int64{1: 2}, nil, checkerTime)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Another call may hear of a release before the release is answered; until then,
// and no longer, its units may be missing.
func TestUnitsOfAReleaseOnTheirWay(t *testing.T) {
	h := new(history).add("reserve", "a", 2, nil).add("release", "a", 2, nil).add("claim", "a", 2, released).add("reserve", "b", 1, soldOut)
	if err := linear(h.calls, map[int64]int64{1: 2}, nil, checkerTime); err == nil {
		t.Error("a refusal after the release was answered passed")
	}
	h.calls[1].end = h.at
	if err := linear(h.calls, map[int64]int64{1: 2}, nil, checkerTime); err != nil {
		t.Error(err)
	}
}

// Next to a flip, and in joint, a refusal is held against nobody.
func TestExcusedRefusals(t *testing.T) {
	h := new(history).add("reserve", "a", 1, nil).add("reserve", "b", 1, soldOut)
	if err := linear(h.calls, map[int64]int64{1: 2}, []time.Duration{h.at + flipMargin/2}, checkerTime); err != nil {
		t.Error(err)
	}
	h.calls[1].res.Decision.Stage = holdover.StageJoint
	if err := linear(h.calls, map[int64]int64{1: 2}, nil, checkerTime); err != nil {
		t.Error(err)
	}
}

// A checker that does not decide in time, and a history that is too long, fail.
func TestCheckerTimeOutFails(t *testing.T) {
	h := new(history)
	for n := range 24 { // open calls that may all take effect, or none
		name := string(rune('a' + n))
		h.add("reserve", name, 1, lost)
	}
	h.add("reserve", "last", 60, nil)
	err := linear(h.calls, map[int64]int64{1: 40}, nil, time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "did not decide") {
		t.Errorf("the checker's time-out passed: %v", err)
	}
	for range maxHistory {
		h.add("reserve", "x", 1, lost)
	}
	if err := linear(h.calls, map[int64]int64{1: 40}, nil, time.Second); err == nil {
		t.Error("a history over the bound passed")
	}
}
