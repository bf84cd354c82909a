package stats

import "math"

// Level is one quantile of two samples.
type Level struct {
	Name      string
	Q         float64
	Tail      bool // one of the grid over the tail
	Before    Interval
	After     Interval
	Tolerance float64
	// Judged is false when one of the samples is too small to say anything
	// about this quantile. Nothing seen is not the same as nothing moved.
	Judged bool
	// Moved: after is above before by more than the tolerance.
	Moved bool
}

// levels are the quantiles that Shift looks at. The named ones would miss a
// tail that is slower only beyond the last that a sample can resolve, or only
// between two of them: the grid is for that.
func levels() []Level {
	return []Level{
		{Name: "p50", Q: 0.5}, {Name: "p90", Q: 0.9}, {Name: "p99", Q: 0.99}, {Name: "p99.9", Q: 0.999},
		{Name: "p95", Q: 0.95, Tail: true}, {Name: "p97.5", Q: 0.975, Tail: true},
		{Name: "p99.25", Q: 0.9925, Tail: true}, {Name: "p99.5", Q: 0.995, Tail: true},
		{Name: "p99.75", Q: 0.9975, Tail: true}, {Name: "p99.95", Q: 0.9995, Tail: true},
	}
}

// Shift says for each quantile whether after is above before by more than
// tolerance(q), in the samples' unit. For two samples of one distribution, any
// level has Moved set with a probability of at most alpha, over all looks.
func Shift(before, after Dist, tolerance func(q float64) float64, alpha float64) []Level {
	all := levels()
	each := alpha / float64(2*len(all)) // two intervals for each
	for i := range all {
		l := &all[i]
		l.Before, l.After = before.Interval(l.Q, each), after.Interval(l.Q, each)
		l.Tolerance = tolerance(l.Q)
		l.Judged = !math.IsInf(l.Before.High, 0) && !math.IsInf(l.After.Low, 0)
		l.Moved = l.Judged && l.After.Low > l.Before.High+l.Tolerance
	}
	return all
}
