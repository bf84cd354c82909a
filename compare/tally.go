package compare

import (
	"math/bits"

	"holdover"
)

const (
	firstDual   = holdover.StageShadow // the dual stages follow each other
	numDual     = int(holdover.StageMySQL-firstDual) + 1
	numOps      = int(holdover.OpExtend) + 1
	numOutcomes = int(holdover.OutcomeShed) + 1
)

// tally is everything that is counted in some time, in fixed arrays: moving a
// figure looks nothing up and allocates nothing.
type tally struct {
	counts
	times   [numDual][numOps][2]*paired // votes and probes; nil until used
	samples [numKinds][numDirections]reservoir
}

// counts is the part of a tally without times and samples: cheap to add up.
type counts struct {
	cells    [numDual][numOps]cell
	strata   [numStrata]stratum
	planted  [numKinds][numKinds]uint64 // wanted, seen
	bypassed uint64
	ignored  uint64
	panics   uint64
	untimed  uint64
	dropped  uint64
	failed   uint64
}

type cell struct {
	eligible, compared, differed uint64
	outcomes                     [numOutcomes][numOutcomes]uint64 // redis, mysql
	kinds                        [numKinds][numDirections]amount
}

type stratum struct{ eligible, compared, differed, unexplained uint64 }

type amount struct {
	count uint64
	units int64
}

func (a *amount) add(units int64) {
	a.count++
	a.units = addUnits(a.units, units)
}

// count moves every figure that o belongs to.
func (t *tally) count(o *holdover.Observation, f *finding, strata uint32) {
	var compared, differed, unexplained uint64
	if f.compared {
		compared = 1
	}
	if f.kind.Divergence() {
		differed = 1
	}
	if f.kind == KindUnexplained {
		unexplained = 1
	}
	c := &t.cells[o.Stage-firstDual][clamp(int(o.Op), numOps)]
	c.eligible++
	c.compared += compared
	c.differed += differed
	redis, mysql := clamp(int(o.Redis.Outcome), numOutcomes), clamp(int(o.MySQL.Outcome), numOutcomes)
	if !f.compared && answered(&o.Redis) && answered(&o.MySQL) {
		redis, mysql = 0, 0 // they could not be read: a panic, or an operation of a later version
	}
	c.outcomes[redis][mysql]++
	c.kinds[f.kind][f.direction].add(f.units)
	for ; strata != 0; strata &= strata - 1 {
		s := &t.strata[bits.TrailingZeros32(strata)]
		s.eligible++
		s.compared += compared
		s.differed += differed
		s.unexplained += unexplained
	}
}

// time adds the pair of times of a compared observation.
func (t *tally) time(o *holdover.Observation, accuracy float64) {
	if o.Redis.Latency <= 0 || o.MySQL.Latency <= 0 {
		t.untimed++
		return
	}
	probe := 0
	if o.Redis.Probe || o.MySQL.Probe {
		probe = 1
	}
	p := &t.times[o.Stage-firstDual][o.Op][probe]
	if *p == nil {
		*p, _ = newPaired(accuracy) // New has shown that it can't fail
	}
	if err := (*p).add(int64(o.Redis.Latency), int64(o.MySQL.Latency)); err != nil {
		t.untimed++
	}
}

// add takes in another tally, which stays as it is.
func (t *tally) add(o *tally, keep int, pick func(uint64) uint64) {
	t.counts.add(&o.counts)
	for stage := range o.times {
		for op := range o.times[stage] {
			for probe, p := range o.times[stage][op] {
				if p == nil || p.delta.n == 0 {
					continue
				}
				into := &t.times[stage][op][probe]
				if *into == nil {
					*into, _ = newPaired(p.delta.accuracy)
				}
				_ = (*into).merge(p) // of one accuracy
			}
		}
	}
	for kind := range o.samples {
		for direction := range o.samples[kind] {
			t.samples[kind][direction].merge(&o.samples[kind][direction], capOf(Kind(kind), keep), pick)
		}
	}
}

func (c *counts) add(o *counts) {
	for stage := range o.cells {
		for op := range o.cells[stage] {
			c.cells[stage][op].add(&o.cells[stage][op])
		}
	}
	for i, s := range o.strata {
		into := &c.strata[i]
		into.eligible += s.eligible
		into.compared += s.compared
		into.differed += s.differed
		into.unexplained += s.unexplained
	}
	for want := range o.planted {
		for got, n := range o.planted[want] {
			c.planted[want][got] += n
		}
	}
	c.bypassed += o.bypassed
	c.ignored += o.ignored
	c.panics += o.panics
	c.untimed += o.untimed
	c.dropped += o.dropped
	c.failed += o.failed
}

func (c *cell) add(o *cell) {
	if o.eligible == 0 {
		return
	}
	c.eligible += o.eligible
	c.compared += o.compared
	c.differed += o.differed
	for redis := range o.outcomes {
		for mysql, n := range o.outcomes[redis] {
			c.outcomes[redis][mysql] += n
		}
	}
	for kind := range o.kinds {
		for direction, a := range o.kinds[kind] {
			into := &c.kinds[kind][direction]
			into.count += a.count
			into.units = addUnits(into.units, a.units)
		}
	}
}

// reset empties t and keeps its memory.
func (t *tally) reset() {
	t.counts = counts{}
	for stage := range t.times {
		for op := range t.times[stage] {
			for _, p := range t.times[stage][op] {
				if p != nil {
					p.reset()
				}
			}
		}
	}
	for kind := range t.samples {
		for direction := range t.samples[kind] {
			t.samples[kind][direction].reset()
		}
	}
}

// clamp keeps a value that no version knows from leaving its table.
func clamp(i, n int) int {
	if i < n {
		return i
	}
	return 0
}
