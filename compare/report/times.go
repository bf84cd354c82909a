package report

import (
	"errors"
	"math"

	"holdover/compare"
	"holdover/compare/stats"
)

// binValue is the value that stands for a bin: within the accuracy of each
// value in it.
func binValue(index int64, accuracy float64) float64 {
	return math.Pow((1+accuracy)/(1-accuracy), float64(index)) * (1 + accuracy)
}

// dist reads a sketch as a sorted sample.
func dist(s Series) (stats.Dist, error) {
	if s.Sketch == nil {
		return stats.Dist{}, nil
	}
	var bins []stats.Bin
	add := func(v float64, n int64) {
		bins = append(bins, stats.Bin{Value: min(max(v, s.Min), s.Max), Count: uint64(n)}) // the ends are exact, the sketch is not
	}
	if s.Sketch.Zeros > 0 {
		add(0, int64(s.Sketch.Zeros))
	}
	for _, b := range s.Sketch.Positive {
		add(binValue(b[0], s.Sketch.Accuracy), b[1])
	}
	for _, b := range s.Sketch.Negative {
		add(-binValue(b[0], s.Sketch.Accuracy), b[1])
	}
	return stats.NewDist(bins)
}

// series writes down the quantiles with their intervals.
func series(from compare.Quantiles, alpha float64) (Series, error) {
	s := Series{Min: from.Min, Max: from.Max, Sketch: from.Sketch}
	d, err := dist(s)
	if err != nil || d.N() == 0 {
		return Series{}, err
	}
	for _, at := range []struct {
		q  float64
		to *Quantile
	}{{0.5, &s.P50}, {0.9, &s.P90}, {0.99, &s.P99}, {0.999, &s.P999}} {
		in := d.Interval(at.q, alpha)
		*at.to = Quantile{Value: d.Quantile(at.q), Low: finite(in.Low), High: finite(in.High)}
	}
	return s, nil
}

func finite(v float64) *float64 {
	if math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func (s *sum) fillLatency(alpha float64) (Latencies, error) {
	out := Latencies{Operations: []Latency{}, Connections: []Connection{}, Shifts: []Shift{}}
	var errs []error
	read := func(q compare.Quantiles) Series {
		times, err := series(q, alpha)
		errs = append(errs, err)
		return times
	}
	for _, c := range s.Cells {
		for _, t := range c.Times {
			out.Operations = append(out.Operations, Latency{
				Stage: c.Stage, Op: c.Op, Probe: t.Probe, Pairs: t.Pairs, Redis: read(t.Redis), MySQL: read(t.MySQL), Delta: read(t.Delta),
			})
		}
	}
	for _, c := range s.Connections {
		out.Connections = append(out.Connections, Connection{Store: c.Store, Tag: c.Tag, Holds: c.Holds, Held: read(c.Held)})
	}
	return out, errors.Join(errs...)
}

func asked(probe bool) string {
	if probe {
		return "probe"
	}
	return "vote"
}
