package compare

import (
	"cmp"
	"math"
	"slices"
	"time"

	"holdover"
)

func addTallies(into, more []Tally) []Tally {
	into = slices.Clone(into)
	for _, t := range more {
		i := slices.IndexFunc(into, func(x Tally) bool { return x.Kind == t.Kind && x.Direction == t.Direction })
		if i < 0 {
			into = append(into, t)
			continue
		}
		into[i].Count += t.Count
		into[i].Units = addUnits(into[i].Units, t.Units)
	}
	slices.SortFunc(into, func(a, b Tally) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Direction, b.Direction))
	})
	return into
}

func opIndex(name string) int {
	for op := holdover.OpReserve; op <= holdover.OpExtend; op++ {
		if op.String() == name {
			return int(op)
		}
	}
	return 0
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// addUnits adds without wrapping around.
func addUnits(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
