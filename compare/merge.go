package compare

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"holdover"
)

// Merge adds up reports of different runs: instances of a pod, or pods. Two
// reports of one run, or sketches that don't go together, are refused.
func Merge(reports ...Report) (Report, error) {
	var m Report
	runs := map[string]bool{}
	latest := map[string]*Verification{}
	latency := map[latencyKey]*paired{}
	for _, r := range reports {
		for _, run := range r.Runs {
			if runs[run] {
				return Report{}, fmt.Errorf("run %s is in two of the reports: its counts would be added up twice; leave one out", run)
			}
			runs[run] = true
		}
		if err := m.addLatency(latency, r); err != nil {
			return Report{}, fmt.Errorf("report of pods %s, instances %s: %w", strings.Join(r.Pods, ","), strings.Join(r.Instances, ","), err)
		}
		for _, v := range r.Verified.Last {
			if old := latest[v.Pod]; old == nil || v.Started.After(old.Started) {
				latest[v.Pod] = v
			}
		}
		m.add(r)
	}
	if len(reports) == 1 {
		m.Latency = reports[0].Latency // the same figures, not only about the same
	} else {
		m.Latency = latencyRows(latency)
	}
	for _, pod := range slices.Sorted(maps.Keys(latest)) {
		m.Verified.Last = append(m.Verified.Last, latest[pod])
	}
	m.Verified.sum()
	// Several instances verify the same stores: what the newest one of each pod
	// found is what there is.
	m.Kinds = slices.DeleteFunc(m.Kinds, func(t Tally) bool { return t.Kind == KindForeignWrite })
	for _, v := range m.Verified.Last {
		m.Kinds = addTallies(m.Kinds, v.ForeignWrites)
	}
	sortSamples(m.Samples)
	m.finish()
	return m, nil
}

// add takes over everything of r that is summed or joined.
func (m *Report) add(r Report) {
	m.Samples = mergeSamples(m.Samples, m.Counts, r.Samples, r.Counts, max(m.Keep, r.Keep))
	m.Need, m.Keep = max(m.Need, r.Need), max(m.Keep, r.Keep)
	m.Pods, m.Instances, m.Runs = union(m.Pods, r.Pods), union(m.Instances, r.Instances), union(m.Runs, r.Runs)
	for _, note := range r.Notes {
		if !slices.Contains(m.Notes, note) {
			m.Notes = append(m.Notes, note)
		}
	}
	m.Started, m.From = earlier(m.Started, r.Started), earlier(m.From, r.From)
	if r.To.After(m.To) {
		m.To = r.To
	}
	m.Eligible += r.Eligible
	m.Compared += r.Compared
	m.Ignored += r.Ignored
	m.EventsDropped += r.EventsDropped
	m.EventsFailed += r.EventsFailed
	m.Panics += r.Panics
	m.Untimed += r.Untimed
	m.Verified.Runs += r.Verified.Runs
	m.Verified.Clean += r.Verified.Clean
	m.Kinds = addTallies(m.Kinds, r.Kinds)
	for _, o := range r.Operations {
		m.addOperation(o)
	}
	for _, u := range r.NotComparable {
		m.addUnanswered(u)
	}
}

func (c *Counts) addOperation(o OperationCount) {
	i := slices.IndexFunc(c.Operations, func(x OperationCount) bool { return x.Stage == o.Stage && x.Op == o.Op })
	if i < 0 {
		c.Operations = append(slices.Clip(c.Operations), o)
		slices.SortStableFunc(c.Operations, func(a, b OperationCount) int {
			return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(opIndex(a.Op), opIndex(b.Op)))
		})
		return
	}
	c.Operations = slices.Clone(c.Operations)
	c.Operations[i].Eligible += o.Eligible
	c.Operations[i].Compared += o.Compared
	c.Operations[i].Differed += o.Differed
}

func (c *Counts) addUnanswered(u Unanswered) {
	for i, x := range c.NotComparable {
		if x.Redis == u.Redis && x.MySQL == u.MySQL {
			c.NotComparable = slices.Clone(c.NotComparable)
			c.NotComparable[i].Count += u.Count
			return
		}
	}
	c.NotComparable = append(slices.Clip(c.NotComparable), u)
}

// mergeSamples keeps of each kind a part of either side as large as its part
// of all observations of the kind.
func mergeSamples(a []Event, na Counts, b []Event, nb Counts, keep int) []Event {
	if len(a) == 0 {
		return slices.Clone(b)
	}
	var out []Event
	for _, kind := range Kinds() {
		of := func(events []Event) (part []Event) {
			for _, e := range events {
				if e.Kind == kind {
					part = append(part, e)
				}
			}
			return part
		}
		keep := capOf(kind, keep)
		ka, kb := of(a), of(b)
		if len(ka)+len(kb) > keep {
			ca, _ := na.Count(kind)
			cb, _ := nb.Count(kind)
			share := float64(keep) * float64(ca) / float64(max(ca+cb, 1))
			fromA := min(len(ka), max(keep-len(kb), int(math.Round(share))))
			ka, kb = ka[:fromA], kb[:min(len(kb), keep-fromA)]
		}
		out = append(append(out, ka...), kb...)
	}
	return out
}

type latencyKey struct {
	stage holdover.Stage
	op    string
	probe bool
}

func (m *Report) addLatency(into map[latencyKey]*paired, r Report) error {
	for _, l := range r.Latency {
		key := latencyKey{l.Stage, l.Op, l.Probe}
		var p paired
		for _, s := range []struct {
			name string
			to   **series
			from Quantiles
		}{{"redis", &p.redis, l.Redis}, {"mysql", &p.mysql, l.MySQL}, {"delta", &p.delta, l.Delta}} {
			read, err := readSeries(s.from, l.Pairs)
			if err != nil {
				return fmt.Errorf("%s of %s in stage %s: %w", s.name, l.Op, l.Stage, err)
			}
			*s.to = read
		}
		have := into[key]
		if have == nil {
			into[key] = &p
			continue
		}
		for _, s := range [][2]*series{{have.redis, p.redis}, {have.mysql, p.mysql}, {have.delta, p.delta}} {
			if err := s[0].merge(s[1]); err != nil {
				return fmt.Errorf("%s in stage %s: %w", l.Op, l.Stage, err)
			}
		}
	}
	return nil
}

func latencyRows(from map[latencyKey]*paired) []Latency {
	keys := slices.SortedFunc(maps.Keys(from), func(a, b latencyKey) int {
		probe := func(k latencyKey) int {
			if k.probe {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(a.stage, b.stage), cmp.Compare(opIndex(a.op), opIndex(b.op)), cmp.Compare(probe(a), probe(b)))
	})
	var rows []Latency
	for _, k := range keys {
		p := from[k]
		rows = append(rows, Latency{
			Stage: k.stage, Op: k.op, Probe: k.probe, Pairs: p.delta.n,
			Redis: p.redis.quantiles(), MySQL: p.mysql.quantiles(), Delta: p.delta.quantiles(),
		})
	}
	return rows
}
