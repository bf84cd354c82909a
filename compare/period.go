package compare

import (
	"cmp"
	"slices"
	"time"

	"holdover"
)

// fold takes what was counted since the last fold into the period and the run.
// Observers wait for the swap only. c.folding is held.
func (c *Comparator) fold() {
	var bypassed uint64
	if c.cfg.Bypassed != nil {
		if now := c.cfg.Bypassed(); now > c.bypass {
			bypassed, c.bypass = now-c.bypass, now
		}
	}
	c.mu.Lock()
	done := c.open
	c.open = c.spare
	done.bypassed += bypassed
	c.total.add(&done.counts)
	c.mu.Unlock()
	for _, into := range []*tally{c.period, c.whole} {
		into.add(done, c.cfg.SamplesPerKind, c.pick)
	}
	done.reset()
	c.spare = done
}

// Total returns everything that was seen since New as one rollup, whatever was
// written of it. It can be added up with those of other runs, not with the
// rollups of its own.
func (c *Comparator) Total() Rollup {
	c.folding.Lock()
	defer c.folding.Unlock()
	c.fold()
	return c.rollup(c.whole, 1, c.started, plain(time.Now()))
}

// rollup puts a tally into its public form. c.folding is held.
func (c *Comparator) rollup(t *tally, seq uint64, from, to time.Time) Rollup {
	if to.Before(from) { // the clock was set back
		to = from
	}
	r := Rollup{
		Pod: c.cfg.Pod, Instance: c.cfg.Instance, Run: c.run, Seq: seq, Version: c.cfg.Version, Config: c.cfg.ConfigHash,
		Started: c.started, From: from, To: to,
		Bypassed: t.bypassed, Ignored: t.ignored, Panics: t.panics, Untimed: t.untimed,
		EventsDropped: t.dropped, EventsFailed: t.failed, Planted: t.plants(),
	}
	for stage := range t.cells {
		for op := range t.cells[stage] {
			if cell := &t.cells[stage][op]; cell.eligible > 0 {
				r.Cells = append(r.Cells, cell.public(firstDual+holdover.Stage(stage), holdover.Op(op), &t.times[stage][op]))
			}
		}
	}
	for i, s := range t.strata {
		if s.eligible > 0 {
			r.Strata = append(r.Strata, Stratum{Name: strataNames[i], Eligible: s.eligible, Compared: s.compared, Differed: s.differed, Unexplained: s.unexplained})
		}
	}
	for kind := range t.samples {
		for direction := range t.samples[kind] {
			for _, k := range t.samples[kind][direction].kept {
				r.Samples = append(r.Samples, k.render(c.run))
			}
		}
	}
	sortSamples(r.Samples)
	return r
}

func (c *cell) public(stage holdover.Stage, op holdover.Op, times *[2]*paired) Cell {
	out := Cell{Stage: stage, Op: op.String(), Eligible: c.eligible, Compared: c.compared, Differed: c.differed, Kinds: rows(&c.kinds)}
	for redis := range c.outcomes {
		for mysql, n := range c.outcomes[redis] {
			if n > 0 {
				out.Outcomes = append(out.Outcomes, OutcomeCount{Redis: holdover.Outcome(redis).String(), MySQL: holdover.Outcome(mysql).String(), Count: n})
			}
		}
	}
	for probe, p := range times {
		if p != nil && p.delta.n > 0 {
			out.Times = append(out.Times, Times{
				Probe: probe == 1, Pairs: p.delta.n,
				Redis: p.redis.quantiles(), MySQL: p.mysql.quantiles(), Delta: p.delta.quantiles(),
			})
		}
	}
	return out
}

func sortSamples(events []Event) {
	slices.SortFunc(events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Seq, b.Seq))
	})
}
