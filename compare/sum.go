package compare

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"holdover"
)

// Total is rollups added up: of several periods, instances and pods.
type Total struct {
	Pods, Instances, Runs, Versions, Configs []string
	From, To                                 time.Time
	Rollups                                  int    // added up
	Torn                                     int    // of them
	Lost                                     uint64 // rollups that were dropped

	Cells  []Cell
	Strata []Stratum

	Bypassed, Ignored, Panics, Untimed uint64
	EventsDropped, EventsFailed        uint64

	Connections []Connection
	Planted     []Planted
	// Samples are drawn evenly over all that happened, whatever rollup it was in;
	// the same ones for the same rollups in any order.
	Samples []Event
}

// Sum adds rollups up. One that is there twice, one whose counts don't add up, and
// sketches that don't go together are refused, by name.
func Sum(rollups []Rollup) (Total, error) {
	s := summing{
		seen: map[rollupKey]bool{}, cells: map[cellKey]*Cell{}, times: map[timesKey]*paired{}, strata: map[string]*Stratum{},
		held: map[connectionKey]*series{}, planted: map[Planted]uint64{}, samples: map[sampleKey][]weighed{},
	}
	for i := range rollups {
		if err := s.add(&rollups[i]); err != nil {
			return Total{}, err
		}
	}
	return s.total(), nil
}

type summing struct {
	t       Total
	seen    map[rollupKey]bool
	cells   map[cellKey]*Cell
	times   map[timesKey]*paired
	strata  map[string]*Stratum
	held    map[connectionKey]*series
	planted map[Planted]uint64 // with no count of their own
	samples map[sampleKey][]weighed
}

type cellKey struct {
	stage holdover.Stage
	op    string
}

type timesKey struct {
	cellKey
	probe bool
}

type sampleKey struct {
	kind      Kind
	direction Direction
}

// weighed is a sample and its place in the draw: the smallest are kept.
type weighed struct {
	place float64
	event *Event
}

func (s *summing) add(r *Rollup) error {
	bad := func(err error) error {
		return fmt.Errorf("rollup %d of run %s, pod %s, instance %s: %w", r.Seq, r.Run, r.Pod, r.Instance, err)
	}
	if err := r.check(); err != nil {
		return bad(err)
	}
	key := rollupKey{r.Run, r.Seq}
	if s.seen[key] {
		return bad(fmt.Errorf("it is there twice: its counts would be added up twice; leave one out"))
	}
	s.seen[key] = true
	t := &s.t
	t.Rollups++
	if r.Torn {
		t.Torn++
	}
	t.From = earlier(t.From, r.From)
	if r.To.After(t.To) {
		t.To = r.To
	}
	for _, names := range []struct {
		into *[]string
		name string
	}{{&t.Pods, r.Pod}, {&t.Instances, r.Instance}, {&t.Runs, r.Run}, {&t.Versions, r.Version}, {&t.Configs, r.Config}} {
		if i, ok := slices.BinarySearch(*names.into, names.name); !ok && names.name != "" {
			*names.into = slices.Insert(*names.into, i, names.name)
		}
	}
	for _, n := range []struct {
		into *uint64
		n    uint64
	}{
		{&t.Lost, r.Lost}, {&t.Bypassed, r.Bypassed}, {&t.Ignored, r.Ignored}, {&t.Panics, r.Panics}, {&t.Untimed, r.Untimed},
		{&t.EventsDropped, r.EventsDropped}, {&t.EventsFailed, r.EventsFailed},
	} {
		*n.into += n.n
	}
	for i := range r.Cells {
		if err := s.cell(&r.Cells[i]); err != nil {
			return bad(err)
		}
	}
	for _, one := range r.Strata {
		into := entry(s.strata, one.Name, func() *Stratum { return &Stratum{Name: one.Name} })
		into.Eligible += one.Eligible
		into.Compared += one.Compared
		into.Differed += one.Differed
		into.Unexplained += one.Unexplained
	}
	for _, one := range r.Connections {
		read, err := readSeries(one.Held, one.Holds)
		if err != nil {
			return bad(fmt.Errorf("connections of %s for %s: %w", one.Store, one.Tag, err))
		}
		key := connectionKey{one.Store, one.Tag}
		if s.held[key] == nil {
			s.held[key] = read
		} else if err := s.held[key].merge(read); err != nil {
			return bad(err)
		}
	}
	for _, p := range r.Planted {
		s.planted[Planted{Want: p.Want, Got: p.Got}] += p.Count
	}
	s.draw(r)
	return nil
}

func (s *summing) cell(c *Cell) error {
	key := cellKey{c.Stage, c.Op}
	into := entry(s.cells, key, func() *Cell { return &Cell{Stage: c.Stage, Op: c.Op} })
	into.Eligible += c.Eligible
	into.Compared += c.Compared
	into.Differed += c.Differed
	into.Kinds = addTallies(into.Kinds, c.Kinds)
	for _, o := range c.Outcomes {
		i := slices.IndexFunc(into.Outcomes, func(x OutcomeCount) bool { return x.Redis == o.Redis && x.MySQL == o.MySQL })
		if i < 0 {
			into.Outcomes = append(into.Outcomes, o)
		} else {
			into.Outcomes[i].Count += o.Count
		}
	}
	for _, t := range c.Times {
		var p paired
		for _, part := range []struct {
			name string
			into **series
			from Quantiles
		}{{"redis", &p.redis, t.Redis}, {"mysql", &p.mysql, t.MySQL}, {"delta", &p.delta, t.Delta}} {
			read, err := readSeries(part.from, t.Pairs)
			if err != nil {
				return fmt.Errorf("%s of %s in stage %s: %w", part.name, c.Op, c.Stage, err)
			}
			*part.into = read
		}
		key := timesKey{key, t.Probe}
		if s.times[key] == nil {
			s.times[key] = &p
		} else if err := s.times[key].merge(&p); err != nil {
			return fmt.Errorf("%s in stage %s: %w", c.Op, c.Stage, err)
		}
	}
	return nil
}

// draw gives each sample a place by the method of Efraimidis and Spirakis (2006):
// it weighs as much as the observations that it stands for. The random number
// comes from the sample itself, so that the same samples are drawn in any order; and
// from its weight, so that one that was drawn before, in a sum of its hour, has no
// better chance for that.
func (s *summing) draw(r *Rollup) {
	of := map[sampleKey]float64{}
	for _, e := range r.Samples {
		of[sampleKey{e.Kind, e.Direction}]++
	}
	counted := map[sampleKey]float64{}
	for _, c := range r.Cells {
		for _, t := range c.Kinds {
			counted[sampleKey{t.Kind, t.Direction}] += float64(t.Count)
		}
	}
	for i := range r.Samples {
		e := &r.Samples[i]
		key := sampleKey{e.Kind, e.Direction}
		weight := max(1, counted[key]/of[key])
		sum := sha256.Sum256(fmt.Appendf(nil, "%s-%d-%g", e.Run, e.Seq, weight))
		u := (float64(binary.BigEndian.Uint64(sum[:])>>11) + 0.5) / (1 << 53)
		w := weighed{-math.Log(u) / weight, e}
		drawn := s.samples[key]
		at, _ := slices.BinarySearchFunc(drawn, w, func(a, b weighed) int { return cmp.Compare(a.place, b.place) })
		if at < capOf(e.Kind, defaultSamples) {
			drawn = slices.Insert(drawn, at, w)
			s.samples[key] = drawn[:min(len(drawn), capOf(e.Kind, defaultSamples))]
		}
	}
}

func (s *summing) total() Total {
	t := s.t
	for key, p := range s.times {
		c := s.cells[key.cellKey]
		c.Times = append(c.Times, Times{Probe: key.probe, Pairs: p.delta.n, Redis: p.redis.quantiles(), MySQL: p.mysql.quantiles(), Delta: p.delta.quantiles()})
	}
	for _, c := range s.cells {
		slices.SortFunc(c.Outcomes, func(a, b OutcomeCount) int {
			return cmp.Or(cmp.Compare(a.Redis, b.Redis), cmp.Compare(a.MySQL, b.MySQL))
		})
		slices.SortFunc(c.Times, func(a, b Times) int { return cmp.Compare(probeIndex(a.Probe), probeIndex(b.Probe)) })
		t.Cells = append(t.Cells, *c)
	}
	slices.SortFunc(t.Cells, func(a, b Cell) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(opIndex(a.Op), opIndex(b.Op)))
	})
	for _, name := range strataNames {
		if one := s.strata[name]; one != nil {
			t.Strata = append(t.Strata, *one)
		}
	}
	for key, held := range s.held {
		t.Connections = append(t.Connections, Connection{Store: key.store, Tag: key.tag, Holds: held.n, Held: held.quantiles()})
	}
	sortConnections(t.Connections)
	for p, n := range s.planted {
		t.Planted = append(t.Planted, Planted{Want: p.Want, Got: p.Got, Count: n})
	}
	slices.SortFunc(t.Planted, func(a, b Planted) int { return cmp.Or(cmp.Compare(a.Want, b.Want), cmp.Compare(a.Got, b.Got)) })
	for _, drawn := range s.samples {
		for _, w := range drawn {
			t.Samples = append(t.Samples, *w.event)
		}
	}
	sortSamples(t.Samples)
	return t
}

// Counts adds the cells up.
func (t Total) Counts() (eligible, compared, differed, unexplained uint64) {
	for _, c := range t.Cells {
		eligible += c.Eligible
		compared += c.Compared
		differed += c.Differed
		for _, k := range c.Kinds {
			if k.Kind == KindUnexplained {
				unexplained += k.Count
			}
		}
	}
	return eligible, compared, differed, unexplained
}

func probeIndex(probe bool) int {
	if probe {
		return 1
	}
	return 0
}

// entry returns what is under a key, made when it is missing.
func entry[K comparable, V any](m map[K]*V, key K, fresh func() *V) *V {
	if m[key] == nil {
		m[key] = fresh()
	}
	return m[key]
}
