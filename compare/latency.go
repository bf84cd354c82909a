package compare

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/DataDog/sketches-go/ddsketch"
	"github.com/DataDog/sketches-go/ddsketch/mapping"
	"github.com/DataDog/sketches-go/ddsketch/store"
)

// maxBins bounds a sketch: at 1 % accuracy it spans 1 ns to an hour, and
// beyond that the values nearest to zero lose accuracy first.
const maxBins = 2048

// The accuracies that make sense: finer ones need more bins than there are.
const (
	minAccuracy = 0.007
	maxAccuracy = 0.1
)

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
	Sketch *Sketch `json:"sketch,omitempty"`
}

// Sketch is the content of a DDSketch as plain numbers: bin i of accuracy a
// counts the values around ((1+a)/(1-a))^i microseconds. A format of our own,
// because the library's decoder trusts its input and a file does not deserve that.
type Sketch struct {
	Accuracy float64 `json:"accuracy"`
	Zeros    uint64  `json:"zeros,omitempty"`
	Positive []Bin   `json:"positive,omitempty"`
	Negative []Bin   `json:"negative,omitempty"`
}

// Bin is an index and a count.
type Bin [2]int64

// maxIndex bounds an index that is read: at the finest accuracy allowed it is
// far beyond any time.
const maxIndex = 100_000

// series is one sketch with its exact ends.
type series struct {
	accuracy float64
	sketch   *ddsketch.DDSketch
	min, max float64
	n        uint64
}

func newSeries(accuracy float64) (*series, error) {
	m, err := mapping.NewLogarithmicMapping(accuracy)
	if err != nil {
		return nil, fmt.Errorf("latency sketch of accuracy %v: %w", accuracy, err)
	}
	return &series{accuracy: accuracy, sketch: ddsketch.NewDDSketchFromStoreProvider(m, newStore)}, nil
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
	q.Sketch = &Sketch{
		Accuracy: s.accuracy, Zeros: uint64(s.sketch.GetZeroCount()),
		Positive: binsOf(s.sketch.GetPositiveValueStore()), Negative: binsOf(s.sketch.GetNegativeValueStore()),
	}
	return q
}

func binsOf(from store.Store) (bins []Bin) {
	from.ForEach(func(index int, count float64) (stop bool) {
		bins = append(bins, Bin{int64(index), int64(count)})
		return false
	})
	return bins
}

// readSeries rebuilds a series from a report; n is the report's count, which
// the sketch must agree with.
func readSeries(q Quantiles, n uint64) (*series, error) {
	if q.Sketch == nil {
		return nil, errors.New("the report has no latency sketch: a compact report can't be merged")
	}
	if math.IsNaN(q.Min) || math.IsNaN(q.Max) || !(q.Sketch.Accuracy >= minAccuracy && q.Sketch.Accuracy <= maxAccuracy) {
		return nil, fmt.Errorf("latency sketch from %v to %v of accuracy %v: NaN or out of range, it can't be merged", q.Min, q.Max, q.Sketch.Accuracy)
	}
	s, err := newSeries(q.Sketch.Accuracy)
	if err != nil {
		return nil, err
	}
	count := q.Sketch.Zeros
	for _, part := range []struct {
		to   store.Store
		from []Bin
	}{{s.sketch.GetPositiveValueStore(), q.Sketch.Positive}, {s.sketch.GetNegativeValueStore(), q.Sketch.Negative}} {
		for _, b := range part.from {
			index, c := b[0], b[1]
			if c <= 0 || index < -maxIndex || index > maxIndex || len(part.from) > maxBins {
				return nil, fmt.Errorf("latency sketch has bin %d with count %d of %d bins: it can't be read", index, c, len(part.from))
			}
			part.to.AddWithCount(int(index), float64(c))
			count += uint64(c)
		}
	}
	if q.Sketch.Zeros > 0 {
		if err := s.sketch.AddWithCount(0, float64(q.Sketch.Zeros)); err != nil {
			return nil, fmt.Errorf("latency sketch can't be read: %w", err)
		}
	}
	if count != n {
		return nil, fmt.Errorf("latency sketch holds %d values where the report says %d", count, n)
	}
	s.min, s.max, s.n = q.Min, q.Max, n
	return s, nil
}

func (s *series) merge(other *series) error {
	if !s.sketch.IndexMapping.Equals(other.sketch.IndexMapping) {
		return fmt.Errorf("latency sketches of accuracy %.4g and %.4g can't be merged: run every instance with the same accuracy",
			s.accuracy, other.accuracy)
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

// merge takes in another pair's series, which stay as they are.
func (p *paired) merge(o *paired) error {
	return errors.Join(p.redis.merge(o.redis), p.mysql.merge(o.mysql), p.delta.merge(o.delta))
}

func (p *paired) reset() {
	for _, s := range []*series{p.redis, p.mysql, p.delta} {
		s.sketch.Clear()
		s.min, s.max, s.n = 0, 0, 0
	}
}

// All returns the sketch's values in microseconds with their counts, from the
// smallest on. A value is right within the sketch's accuracy.
func (s *Sketch) All() iter.Seq2[float64, uint64] {
	return func(yield func(float64, uint64) bool) {
		m, err := mapping.NewLogarithmicMapping(s.Accuracy)
		if err != nil {
			return
		}
		for _, b := range slices.Backward(s.Negative) {
			if !yield(-m.Value(int(b[0])), uint64(b[1])) {
				return
			}
		}
		if s.Zeros > 0 && !yield(0, s.Zeros) {
			return
		}
		for _, b := range s.Positive {
			if !yield(m.Value(int(b[0])), uint64(b[1])) {
				return
			}
		}
	}
}
