package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"holdover"
	"holdover/compare"
)

// sum is the rollups added up: the total, and what of it is by pod, instance and hour.
type sum struct {
	compare.Total
	rollups   []compare.Rollup
	pods      map[string]*PodCoverage
	instances map[string]*PodCoverage // by pod/name, over their runs
	hours     map[hourKey]*HourCoverage
	thin      []thinStretch
}

type hourKey struct {
	hour time.Time
	op   string
}

func sumOf(rollups []compare.Rollup, pods []string) (*sum, error) {
	total, err := compare.Sum(rollups)
	if err != nil {
		return nil, err
	}
	s := &sum{Total: total, rollups: rollups, pods: map[string]*PodCoverage{}, instances: map[string]*PodCoverage{}, hours: map[hourKey]*HourCoverage{}}
	for _, pod := range pods { // one that reported nothing is in the table too
		s.pods[pod] = &PodCoverage{Pod: pod}
	}
	for _, r := range rollups {
		name := r.Pod + "/" + r.Instance
		if s.instances[name] == nil {
			s.instances[name] = &PodCoverage{Pod: r.Pod}
		}
		pod, instance := s.pods[r.Pod], s.instances[name]
		pod.Bypassed += r.Bypassed
		instance.Bypassed += r.Bypassed
		hour := r.From.Truncate(time.Hour)
		for _, c := range r.Cells {
			pod.Eligible += c.Eligible
			pod.Compared += c.Compared
			instance.Eligible += c.Eligible
			instance.Compared += c.Compared
			key := hourKey{hour, c.Op}
			if s.hours[key] == nil {
				s.hours[key] = &HourCoverage{Hour: hour, Op: c.Op}
			}
			s.hours[key].Eligible += c.Eligible
			s.hours[key].Compared += c.Compared
		}
	}
	return s, nil
}

// fillCoverage writes down the sums in the order of a report.
func (s *sum) fillCoverage() Coverage {
	c := Coverage{
		Bypassed: s.Bypassed, Operations: []OperationCoverage{}, Outcomes: []OutcomeCoverage{}, Pods: []PodCoverage{}, Hours: []HourCoverage{}, NeverSeen: []string{},
	}
	c.Eligible, c.Compared, _, _ = s.Counts()
	c.Share = share(c.Compared, c.Eligible+c.Bypassed)
	for _, cell := range s.Cells {
		c.Operations = append(c.Operations, OperationCoverage{
			Stage: cell.Stage, Op: cell.Op, Eligible: cell.Eligible, Compared: cell.Compared, Differed: cell.Differed, Share: share(cell.Compared, cell.Eligible),
		})
		for _, o := range cell.Outcomes {
			c.addOutcome(OutcomeCoverage{Op: cell.Op, Redis: o.Redis, MySQL: o.MySQL, Count: o.Count})
		}
	}
	slices.SortFunc(c.Outcomes, func(a, b OutcomeCoverage) int {
		return cmp.Or(compareOps(a.Op, b.Op), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Redis, b.Redis), cmp.Compare(a.MySQL, b.MySQL))
	})
	for _, pod := range slices.Sorted(maps.Keys(s.pods)) {
		p := *s.pods[pod]
		p.Share = share(p.Compared, p.Eligible+p.Bypassed)
		c.Pods = append(c.Pods, p)
	}
	for _, h := range s.hours {
		h.Share = share(h.Compared, h.Eligible)
		c.Hours = append(c.Hours, *h)
	}
	slices.SortFunc(c.Hours, func(a, b HourCoverage) int {
		return cmp.Or(a.Hour.Compare(b.Hour), compareOps(a.Op, b.Op))
	})
	for _, name := range compare.StratumNames() {
		if name != compare.StratumUndecided && !slices.ContainsFunc(s.Strata, func(x compare.Stratum) bool { return x.Name == name && x.Eligible > 0 }) {
			c.NeverSeen = append(c.NeverSeen, name)
		}
	}
	return c
}

// addOutcome adds up the stages.
func (c *Coverage) addOutcome(o OutcomeCoverage) {
	for i, x := range c.Outcomes {
		if x.Op == o.Op && x.Redis == o.Redis && x.MySQL == o.MySQL {
			c.Outcomes[i].Count += o.Count
			return
		}
	}
	c.Outcomes = append(c.Outcomes, o)
}

func compareOps(a, b string) int {
	return cmp.Or(cmp.Compare(opIndex(a), opIndex(b)), cmp.Compare(a, b))
}

func opIndex(name string) int {
	for op := holdover.OpReserve; op <= holdover.OpExtend; op++ {
		if op.String() == name {
			return int(op)
		}
	}
	return math.MaxInt
}

func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// addUnits adds without wrapping around.
func addUnits(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
