package app

import (
	"cmp"
	"slices"
	"time"

	"holdover/compare"
	"holdover/compare/report"
)

// hearing is how long before and after its period a report listens for instances
// that say nothing in it. No rollup is longer.
const hearing = longestRollup

// heard keeps of each run its last rollup before a period and its first after it,
// without their counts.
type heard struct {
	since, until time.Time
	before       map[string]report.Heard
	after        map[string]report.Heard
}

// add notes a rollup that is outside of the period; false: it is in it.
func (h *heard) add(r compare.Rollup) bool {
	one := report.Heard{Pod: r.Pod, Instance: r.Instance, Run: r.Run, Started: r.Started.UTC(), From: r.From.UTC(), To: r.To.UTC(), Ended: r.Final || r.Torn}
	switch {
	case !r.To.After(h.since):
		if h.before == nil {
			h.before = map[string]report.Heard{}
		}
		if last, had := h.before[r.Run]; r.To.After(h.since.Add(-hearing)) && (!had || one.To.After(last.To) || one.To.Equal(last.To) && one.Ended) {
			h.before[r.Run] = one
		}
		return true
	case !h.until.IsZero() && !r.From.Before(h.until):
		if h.after == nil {
			h.after = map[string]report.Heard{}
		}
		if first, had := h.after[r.Run]; !had || one.From.Before(first.From) {
			h.after[r.Run] = one
		}
		return true
	}
	return false
}

// all are sorted, those before the period first.
func (h *heard) all() (list []report.Heard) {
	for _, side := range []map[string]report.Heard{h.before, h.after} {
		for _, one := range side {
			list = append(list, one)
		}
	}
	slices.SortFunc(list, func(a, b report.Heard) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Run, b.Run)) })
	return list
}
