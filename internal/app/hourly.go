package app

import (
	"cmp"
	"slices"
	"time"

	"holdover/compare"
)

// hourly adds up what one run counted in one hour as it is read, so that a report
// of weeks holds hours in memory, not minutes: the last rollup of an hour carries
// its counts, the others keep their place in the run and nothing else. A report
// of them says the same.
type hourly struct {
	open map[string][]compare.Rollup // by run: those of its last hour
	done []compare.Rollup
}

// add takes the rollups of each run in their order.
func (h *hourly) add(r compare.Rollup) error {
	if h.open == nil {
		h.open = map[string][]compare.Rollup{}
	}
	if hour := h.open[r.Run]; len(hour) > 0 && !sameHour(hour[0], r) {
		if err := h.close(r.Run); err != nil {
			return err
		}
	}
	h.open[r.Run] = append(h.open[r.Run], r)
	return nil
}

func sameHour(a, b compare.Rollup) bool {
	return a.From.UTC().Truncate(time.Hour).Equal(b.From.UTC().Truncate(time.Hour))
}

// rollups are all that were added, by run and number.
func (h *hourly) rollups() ([]compare.Rollup, error) {
	for run := range h.open {
		if err := h.close(run); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(h.done, func(a, b compare.Rollup) int { return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Seq, b.Seq)) })
	return h.done, nil
}

func (h *hourly) close(run string) error {
	hour := h.open[run]
	delete(h.open, run)
	sum, err := compare.Sum(hour)
	if err != nil {
		return err
	}
	for i, r := range hour {
		kept := compare.Rollup{
			Pod: r.Pod, Instance: r.Instance, Run: r.Run, Seq: r.Seq, Version: r.Version, Config: r.Config,
			Started: r.Started, From: r.From, To: r.To, Final: r.Final, Torn: r.Torn, Lost: r.Lost,
		}
		if i == len(hour)-1 {
			kept.Cells, kept.Strata, kept.Connections, kept.Planted, kept.Samples = sum.Cells, sum.Strata, sum.Connections, sum.Planted, sum.Samples
			kept.Bypassed, kept.Ignored, kept.Panics, kept.Untimed = sum.Bypassed, sum.Ignored, sum.Panics, sum.Untimed
			kept.EventsDropped, kept.EventsFailed = sum.EventsDropped, sum.EventsFailed
		}
		h.done = append(h.done, kept)
	}
	return nil
}
