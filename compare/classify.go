package compare

import (
	"fmt"
	"math"

	"holdover"
)

// finding is what one observation means. Its text is put together later, and
// only for observations that are kept.
type finding struct {
	kind      Kind
	direction Direction
	units     int64
	compared  bool
	evidence  holdover.Evidence // what explains it, or the first that was refused
	lack      lack              // why it was refused
}

// classify compares the two answers. It reads o and keeps nothing of it.
func classify(o *holdover.Observation, lastUnitWindow int64) finding {
	if !answered(&o.Redis) || !answered(&o.MySQL) || o.Op < holdover.OpReserve || o.Op > holdover.OpExtend {
		return finding{kind: KindNotComparable}
	}
	f := finding{kind: KindMatch, compared: true}
	switch {
	case o.Redis.Outcome != o.MySQL.Outcome:
		f.units = unitsOf(o.Lines)
		f.direction = DirectionUndersell
		if truth(o).Outcome == holdover.OutcomeGranted {
			f.direction = DirectionOversell
		}
	case statesDiffer(o.Redis.State, o.MySQL.State):
		t, other := takes(truth(o).State), takes(shadow(o).State)
		switch {
		case !t && other:
			f.direction, f.units = DirectionOversell, unitsOf(o.Lines)
		case t && !other:
			f.direction, f.units = DirectionUndersell, unitsOf(o.Lines)
		}
	default:
		return f
	}
	f.kind = KindUnexplained
	for _, e := range o.Evidence {
		k, lacks := explains(e, o, lastUnitWindow)
		if k != KindNone {
			f.kind, f.evidence, f.lack = k, e, lackNothing
			break
		}
		if f.evidence == 0 {
			f.evidence, f.lack = e, lacks
		}
	}
	return f
}

func answered(a *holdover.Answer) bool {
	return a.Outcome == holdover.OutcomeGranted || a.Outcome == holdover.OutcomeRefused
}

func truth(o *holdover.Observation) *holdover.Answer {
	if o.Stage.Truth() == holdover.StoreMySQL {
		return &o.MySQL
	}
	return &o.Redis
}

func shadow(o *holdover.Observation) *holdover.Answer {
	if o.Stage.Truth() == holdover.StoreMySQL {
		return &o.Redis
	}
	return &o.MySQL
}

// statesDiffer compares states where both are known. Redis's claiming is a
// claim on its way: MySQL may be before it or after it.
func statesDiffer(redis, mysql holdover.State) bool {
	if redis == holdover.StateNone || mysql == holdover.StateNone || redis == mysql {
		return false
	}
	if redis == holdover.StateClaiming {
		return mysql != holdover.StateHeld && mysql != holdover.StateClaimed
	}
	return true
}

// takes reports whether a hold in state s keeps its units from other buyers.
func takes(s holdover.State) bool { return s.Live() || s == holdover.StateClaimed }

func unitsOf(lines []holdover.Line) int64 {
	var n int64
	for _, l := range lines {
		if l.Quantity > math.MaxInt64-n {
			return math.MaxInt64
		}
		n += l.Quantity
	}
	return n
}

// why says in words what made f of o.
func why(f finding, o *holdover.Observation) string {
	switch {
	case f.kind == KindNotComparable:
		s := ""
		for _, side := range []struct {
			store  holdover.Store
			answer *holdover.Answer
		}{{holdover.StoreRedis, &o.Redis}, {holdover.StoreMySQL, &o.MySQL}} {
			if answered(side.answer) {
				continue
			}
			if s != "" {
				s += "; "
			}
			s += fmt.Sprintf("%s did not answer: %s", side.store, side.answer.Outcome)
		}
		if s == "" {
			return "the observation could not be read"
		}
		return s
	case f.kind == KindUnexplained && f.evidence != 0:
		return fmt.Sprintf("evidence %s explains nothing: %s", f.evidence, f.lack)
	case f.kind == KindUnexplained:
		return "no evidence was recorded"
	case f.kind == KindMatch:
		return ""
	default:
		return "evidence " + f.evidence.String()
	}
}
