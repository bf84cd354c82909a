package report

import (
	"slices"
	"time"

	"holdover/compare"
)

// stretch is a part of the period.
type stretch struct{ from, to time.Time }

// comparing are the stretches in which the stage that the pod agreed on compares.
func (r *Report) comparing(pod string) (all []stretch) {
	changes := slices.DeleteFunc(slices.Clone(r.Timeline), func(c Change) bool { return c.Pod != pod })
	for i, c := range changes {
		if !c.Stage.Dual() {
			continue
		}
		s := stretch{later(c.At, r.From), r.To}
		if i+1 < len(changes) {
			s.to = changes[i+1].At
		}
		if n := len(all); n > 0 && all[n-1].to.Equal(s.from) {
			all[n-1].to = s.to
		} else {
			all = append(all, s)
		}
	}
	return all
}

// covered are the stretches that the runs of the pod counted, by their begin.
// sorted is in the order of latest.
func covered(sorted []compare.Rollup, pod string) (all []stretch) {
	var last compare.Rollup
	for _, r := range sorted {
		if r.Pod != pod {
			continue
		}
		s := stretch{r.From, r.To}
		if r.Run == last.Run && r.Seq == last.Seq+1 && r.Lost == 0 && last.To.Before(s.from) {
			s.from = last.To // nothing is missing between the two
		}
		all = append(all, s)
		last = r
	}
	slices.SortStableFunc(all, func(a, b stretch) int { return a.from.Compare(b.from) })
	return all
}

// unseen are the stretches longer than maxGap in which the pod should have
// compared, and no run of it counted anything.
func (r *Report) unseen(sorted []compare.Rollup, pod string) (all []stretch) {
	counted := covered(sorted, pod)
	for _, s := range r.comparing(pod) {
		missing := func(to time.Time) {
			if to.Sub(s.from) > r.Limits.MaxGap {
				all = append(all, stretch{s.from, to})
			}
		}
		for _, c := range counted {
			if !c.from.Before(s.to) {
				break
			}
			missing(c.from)
			s.from = later(s.from, c.to)
		}
		missing(s.to)
	}
	return all
}
