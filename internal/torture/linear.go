package torture

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"holdover"
)

// The histories of short schedules are checked for linearizability, item by
// item: their carts have one line each, so the items know nothing of each other.
//
// State: the free units of the item, and a letter for each token:
//
//	.  nobody has it
//	t  taken by a call without a clear answer, which may give it back
//	h  held: somebody was told
//	c  claimed, or marked so that it will be
//	e  released, and its units are on their way back: another call may be told so
//	   before the release itself is answered
//	r  released, and its units are free
//
// A call without a clear answer stays open to the end: it may take effect at any
// moment, or never, which is to say after everything else. What it took may
// be given back at any moment until somebody is told of it.

// The limits of a history, and how long the checker may take. Time-out is a
// failure.
const (
	maxHistory  = 500
	maxItems    = 3
	checkerTime = 30 * time.Second
	// A refusal is not held against the product when the fence was seen to move
	// so close to the call: a vote of the old stage may hold units that the new
	// stage then denies to it.
	flipMargin = 400 * time.Millisecond
)

type stepKind uint8

const (
	stepReserve stepKind = iota
	stepGiveBack
	stepClaim
	stepRelease
	stepUnitsBack // the other half of a release
)

var stepNames = [...]string{"reserve", "give back", "claim", "release", "units of a release come back:"}

// told is what a buyer was told.
type told uint8

const (
	toldYes told = iota
	toldNo       // out of stock
	toldReleased
	toldClaimed
	toldNothing // no clear answer
	toldExcused // out of stock, and not to be held against anybody
)

var toldNames = [...]string{"yes", "out of stock", "it is released", "it is claimed", "nothing clear", "out of stock, in joint or next to a flip"}

type stepIn struct {
	kind  stepKind
	item  int64
	token int // its place in the state
	units int64
}

type itemState struct {
	free   int64
	tokens string
}

func (s itemState) with(token int, letter byte, free int64) itemState {
	tokens := []byte(s.tokens)
	tokens[token] = letter
	return itemState{free, string(tokens)}
}

// apply is the sequential meaning of one operation.
func (s itemState) apply(in stepIn, out told) (bool, itemState) {
	is := s.tokens[in.token]
	switch in.kind {
	case stepReserve:
		switch out {
		case toldYes:
			switch {
			case is == 'h':
				return true, s
			case is == 't':
				return true, s.with(in.token, 'h', s.free)
			case is == '.' && s.free >= in.units:
				return true, s.with(in.token, 'h', s.free-in.units)
			}
			return false, s
		case toldNo:
			return is == '.' && s.free < in.units, s
		case toldExcused:
			return is == '.', s
		case toldReleased:
			return is == 'r' || is == 'e', s
		case toldClaimed:
			return is == 'c', s
		default:
			if is == '.' && s.free >= in.units {
				return true, s.with(in.token, 't', s.free-in.units)
			}
			return true, s
		}
	case stepGiveBack:
		if is == 't' {
			return true, s.with(in.token, '.', s.free+in.units)
		}
		return true, s
	}
	ended := is == 'r' || is == 'e'
	switch {
	case in.kind == stepUnitsBack && is == 'e':
		return true, s.with(in.token, 'r', s.free+in.units)
	case in.kind == stepUnitsBack:
		return is == 'r' || out == toldNothing, s
	case out == toldReleased:
		return ended, s
	case out == toldClaimed:
		return is == 'c', s
	case out != toldYes && out != toldNothing:
		return false, s
	case is == 'h' && in.kind == stepClaim:
		return true, s.with(in.token, 'c', s.free)
	case is == 'h':
		return true, s.with(in.token, 'e', s.free)
	case out == toldNothing:
		return true, s
	case in.kind == stepClaim:
		return is == 'c', s
	}
	return ended, s
}

func describe(in stepIn, out told) string {
	return fmt.Sprintf("%s %d of item %d as token %d: %s", stepNames[in.kind], in.units, in.item, in.token, toldNames[out])
}

// linear checks one schedule's history. units is each item's stock; changes are
// the moments at which the fence was seen to move.
func linear(calls []call, units map[int64]int64, changes []time.Duration, limit time.Duration) error {
	if len(calls) > maxHistory || len(units) > maxItems {
		return fmt.Errorf("the history has %d operations on %d items: the checker gets at most %d on %d", len(calls), len(units), maxHistory, maxItems)
	}
	carts := map[holdover.Token]holdover.Line{}
	for _, c := range calls {
		if c.op == "reserve" {
			if len(c.lines) != 1 {
				return fmt.Errorf("a cart of %d lines in a short history: the checker knows one", len(c.lines))
			}
			carts[c.token] = c.lines[0]
		}
	}
	place := map[holdover.Token]int{}
	count := map[int64]int{}
	ops := map[int64][]porcupine.Operation{}
	end := int64(0)
	for _, c := range calls {
		if c.end != underWay {
			end = max(end, int64(c.end)+1)
		}
	}
	for n, c := range calls {
		cart, ok := carts[c.token]
		if !ok {
			continue
		}
		if _, known := place[c.token]; !known {
			place[c.token] = count[cart.Item]
			count[cart.Item]++
		}
		in := stepIn{item: cart.Item, token: place[c.token], units: cart.Quantity}
		switch c.op {
		case "reserve":
		case "claim":
			in.kind = stepClaim
		case "release":
			in.kind = stepRelease
		default:
			continue
		}
		out, err := c.told(changes)
		if err != nil {
			return err
		}
		op := porcupine.Operation{ClientId: n, Input: in, Call: int64(c.start), Output: out, Return: int64(c.end)}
		if out == toldNothing {
			op.Return = settledAt(c, calls, end)
		}
		ops[cart.Item] = append(ops[cart.Item], op)
		switch {
		case out == toldNothing && in.kind == stepReserve:
			in.kind = stepGiveBack
		case (out == toldNothing || out == toldYes) && in.kind == stepRelease:
			in.kind = stepUnitsBack
		default:
			continue
		}
		op.Input = in
		ops[cart.Item] = append(ops[cart.Item], op)
	}
	for item, history := range ops {
		if err := check(item, history, units[item], count[item], limit); err != nil {
			return err
		}
	}
	return nil
}

// settledAt is the last moment at which an unclear call can still matter. Once a
// later call for the token was told that it is held, claimed or released, the
// unclear one changes nothing any more: it took effect before, or never. Else it
// stays open to the end.
func settledAt(unclear call, calls []call, end int64) int64 {
	for _, c := range calls {
		out, err := c.told(nil)
		if err == nil && c.token == unclear.token && c.start >= unclear.start && (out == toldYes || out == toldReleased || out == toldClaimed) && c.end != underWay {
			end = min(end, int64(c.end)+1)
		}
	}
	return end
}

func check(item int64, history []porcupine.Operation, free int64, tokens int, limit time.Duration) error {
	model := porcupine.Model{
		Init:              func() any { return itemState{free, strings.Repeat(".", tokens)} },
		Step:              func(state, in, out any) (bool, any) { return state.(itemState).apply(in.(stepIn), out.(told)) },
		DescribeOperation: func(in, out any) string { return describe(in.(stepIn), out.(told)) },
	}
	result, info := porcupine.CheckOperationsVerbose(model, history, limit)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("item %d: the checker did not decide about %d operations within %s: that counts as a failure", item, len(history), limit)
	}
	longest := 0
	var last []int
	for _, partial := range info.PartialLinearizations()[0] {
		if len(partial) > longest {
			longest, last = len(partial), partial
		}
	}
	var stuck []string
	for n, op := range history {
		if !slices.Contains(last, n) && op.Output.(told) != toldNothing && len(stuck) < 5 {
			stuck = append(stuck, fmt.Sprintf("%.1f-%.1f ms: %s", ms(time.Duration(op.Call)), ms(time.Duration(op.Return)), describe(op.Input.(stepIn), op.Output.(told))))
		}
	}
	return fmt.Errorf("item %d with %d units: no order of its %d operations explains the answers; %d can be put in one, then comes one of: %s", item, free, len(history), longest, strings.Join(stuck, "; "))
}

// told maps an answer to what it means. An error is an answer that the model has
// no place for.
func (c call) told(changes []time.Duration) (told, error) {
	var ended *holdover.EndedError
	switch {
	case c.err == nil:
		return toldYes, nil
	case !c.clear():
		return toldNothing, nil
	case errors.As(c.err, &ended) && ended.State == holdover.StateReleased:
		return toldReleased, nil
	case errors.Is(c.err, holdover.ErrAlreadyClaimed), errors.Is(c.err, holdover.ErrClaimPending):
		return toldClaimed, nil
	case errors.Is(c.err, holdover.ErrOutOfStock) && c.op == "reserve":
		if c.res.Decision.Stage == holdover.StageJoint || slices.ContainsFunc(changes, func(at time.Duration) bool {
			return at > c.start-flipMargin && at < c.end+flipMargin
		}) {
			return toldExcused, nil
		}
		return toldNo, nil
	}
	return toldNothing, fmt.Errorf("%s of hold %s: the model has no place for the answer: %w", c.op, c.token, c.err)
}
