package compare

import (
	"errors"
	"fmt"
	"math"

	"github.com/DataDog/sketches-go/ddsketch"
	"github.com/DataDog/sketches-go/ddsketch/mapping"
	"github.com/DataDog/sketches-go/ddsketch/store"
)

// maxBins bounds a sketch: at 1 % accuracy it spans 1 ns to an hour, and
// beyond that the values nearest to zero lose accuracy first.
const maxBins = 2048

func newStore() store.Store { return store.NewCollapsingLowestDenseStore(maxBins) }

// Quantiles sum up one series of times in microseconds. The sketch behind
// them travels along, because quantiles can't be merged and sketches can.
type Quantiles struct {
	Min    float64 `json:"min_us"`
	P50    float64 `json:"p50_us"`
	P90    float64 `json:"p90_us"`
	P99    float64 `json:"p99_us"`
	P999   float64 `json:"p999_us"`
	Max    float64 `json:"max_us"`
	Sketch []byte  `json:"sketch,omitempty"`
}

// series is one sketch with its exact ends.
type series struct {
	sketch   *ddsketch.DDSketch
	min, max float64
	n        uint64
}

func newSeries(accuracy float64) (*series, error) {
	m, err := mapping.NewLogarithmicMapping(accuracy)
	if err != nil {
		return nil, fmt.Errorf("latency sketch of accuracy %v: %w", accuracy, err)
	}
	return &series{sketch: ddsketch.NewDDSketchFromStoreProvider(m, newStore)}, nil
}

func (s *series) add(us float64) error {
	if err := s.sketch.Add(us); err != nil { // NaN and the untrackable are refused here
		return err
	}
	if s.n == 0 || us < s.min {
		s.min = us
	}
	if s.n == 0 || us > s.max {
		s.max = us
	}
	s.n++
	return nil
}

func (s *series) quantiles() Quantiles {
	if s.n == 0 {
		return Quantiles{}
	}
	q := Quantiles{Min: s.min, Max: s.max}
	values, err := s.sketch.GetValuesAtQuantiles([]float64{0.5, 0.9, 0.99, 0.999})
	if err == nil {
		for i, at := range []*float64{&q.P50, &q.P90, &q.P99, &q.P999} {
			*at = min(max(values[i], s.min), s.max) // the ends are exact, the sketch is not
		}
	}
	s.sketch.Encode(&q.Sketch, false)
	return q
}

// readSeries rebuilds a series from a report; n is the report's count, which
// the sketch must agree with.
func readSeries(q Quantiles, n uint64) (s *series, err error) {
	defer func() {
		if r := recover(); r != nil { // the decoder trusts its input; a file does not deserve that
			s, err = nil, fmt.Errorf("latency sketch can't be decoded: %v", r)
		}
	}()
	sketch, err := ddsketch.DecodeDDSketch(q.Sketch, newStore, nil)
	if err != nil {
		return nil, fmt.Errorf("latency sketch can't be decoded: %w", err)
	}
	count := sketch.GetCount()
	switch {
	case math.IsNaN(count) || math.IsNaN(q.Min) || math.IsNaN(q.Max) || math.IsInf(count, 0):
		return nil, errors.New("latency sketch holds NaN or infinity: it can't be merged")
	case count != float64(n):
		return nil, fmt.Errorf("latency sketch holds %v values where the report says %d", count, n)
	}
	return &series{sketch: sketch, min: q.Min, max: q.Max, n: n}, nil
}

func (s *series) merge(other *series) error {
	if !s.sketch.IndexMapping.Equals(other.sketch.IndexMapping) {
		return fmt.Errorf("latency sketches of accuracy %.4g and %.4g can't be merged: run every instance with the same accuracy",
			s.sketch.RelativeAccuracy(), other.sketch.RelativeAccuracy())
	}
	if other.n == 0 {
		return nil
	}
	if err := s.sketch.MergeWith(other.sketch); err != nil {
		return fmt.Errorf("latency sketches can't be merged: %w", err)
	}
	if s.n == 0 || other.min < s.min {
		s.min = other.min
	}
	if s.n == 0 || other.max > s.max {
		s.max = other.max
	}
	s.n += other.n
	return nil
}

// paired holds the three series of one stage, operation and way of asking.
type paired struct {
	redis, mysql, delta *series
}

func newPaired(accuracy float64) (*paired, error) {
	var p paired
	for _, s := range []**series{&p.redis, &p.mysql, &p.delta} {
		var err error
		if *s, err = newSeries(accuracy); err != nil {
			return nil, err
		}
	}
	return &p, nil
}

// add takes one pair in nanoseconds; the delta is mysql minus redis.
func (p *paired) add(redisNS, mysqlNS int64) error {
	const us = 1e3
	return errors.Join(
		p.redis.add(float64(redisNS)/us),
		p.mysql.add(float64(mysqlNS)/us),
		p.delta.add(float64(mysqlNS-redisNS)/us),
	)
}
