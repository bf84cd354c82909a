package compare

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	randv2 "math/rand/v2"
	"slices"
	"sync"
	"time"

	"holdover"
)

const (
	numStages   = int(holdover.StageMySQLOnly) + 1
	numOps      = int(holdover.OpExtend) + 1
	numOutcomes = int(holdover.OutcomeShed) + 1
)

// Comparator takes the observations of one pod in one process. All methods
// are safe for concurrent use.
type Comparator struct {
	cfg      Config
	run      string
	started  time.Time
	classify func(holdover.Observation, int64) finding
	pick     func(n uint64) uint64 // a random number below n

	mu     sync.Mutex
	closed bool
	tally  tally

	out *writer // nil when there is no sink
}

// tally is everything that is counted, under one lock, so that a report's
// figures are of one moment.
type tally struct {
	eligible, compared, ignored      uint64
	dropped, failed, panics, untimed uint64
	kinds                            [numKinds][numDirections]amount
	over                             [numKinds][numDirections]amount
	explained                        [numKinds]uint64
	operations                       [numStages][numOps]OperationCount
	unanswered                       [numOutcomes][numOutcomes]uint64
	latency                          [numStages][numOps][2]*paired
	samples                          [numKinds][]*kept
	seen                             [numKinds]uint64 // by kind, for the reservoirs
	from, to                         time.Time
	verified                         Verified
}

type amount struct {
	count uint64
	units int64
}

// New starts a comparator. Close it to have the last counts written.
func New(cfg Config) (*Comparator, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := newPaired(cfg.SketchAccuracy); err != nil {
		return nil, err
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // crypto/rand.Read never fails
	c := &Comparator{
		cfg: cfg, run: hex.EncodeToString(id), started: plain(time.Now()),
		classify: classify, pick: randv2.Uint64N,
	}
	if sink := cfg.sink(); sink != nil {
		c.out = startWriter(c, sink)
	}
	return c, nil
}

// Observe counts o and keeps it if it is worth an event or was drawn as a
// sample. It never blocks on the sink, and no panic leaves it. o may be reused
// when it returns. An observation after Close is counted but not written.
func (c *Comparator) Observe(o holdover.Observation) {
	counted := false
	defer func() {
		if r := recover(); r != nil {
			c.panicked(o, counted, r)
		}
	}()
	if o.Pod != c.cfg.Pod || !o.Stage.Dual() {
		c.mu.Lock()
		c.tally.ignored++
		c.mu.Unlock()
		return
	}
	f := c.classify(o, c.cfg.LastUnitWindow)
	c.mu.Lock()
	defer c.mu.Unlock()
	was, over := c.count(&o, &f)
	counted = true
	c.keep(&o, f, was, over)
	if f.compared {
		c.time(&o)
	}
}

// panicked counts an observation whose comparison failed, once.
func (c *Comparator) panicked(o holdover.Observation, counted bool, cause any) {
	c.mu.Lock()
	c.tally.panics++
	n := c.tally.panics
	if !counted {
		c.count(&o, &finding{kind: KindNotComparable})
	}
	c.mu.Unlock()
	if n&(n-1) != 0 {
		return // the 1st, 2nd, 4th, 8th ... are logged: each call of a broken build may panic
	}
	_ = guard(func() error {
		c.cfg.Logger.Error("comparing an observation panicked: counted as a panic, the buyer's answer is not touched; report this as a bug",
			"pod", o.Pod, "token", o.Token.String(), "op", o.Op.String(), "panics", n, "panic", fmt.Sprint(cause))
		return nil
	})
}

// count moves every figure that o belongs to. A finding over its budget
// becomes unexplained here; was and over say so.
func (c *Comparator) count(o *holdover.Observation, f *finding) (was Kind, over string) {
	t := &c.tally
	t.eligible++
	if !o.At.IsZero() {
		if t.from.IsZero() || o.At.Before(t.from) {
			t.from = o.At
		}
		if o.At.After(t.to) {
			t.to = o.At
		}
	}
	if f.kind.Explained() {
		b, ok := c.cfg.ExplainBudget[f.kind]
		if !ok {
			b = c.cfg.Budget
		}
		if b.allows(t.explained[f.kind], t.eligible) {
			t.explained[f.kind]++
		} else {
			was, over = f.kind, "explained over budget"
			t.over[was][f.direction].add(f.units)
			f.kind = KindUnexplained
		}
	}
	t.kinds[f.kind][f.direction].add(f.units)

	op := &t.operations[clamp(int(o.Stage), numStages)][clamp(int(o.Op), numOps)]
	op.Eligible++
	switch {
	case f.kind == KindNotComparable:
		t.unanswered[clamp(int(o.Redis.Outcome), numOutcomes)][clamp(int(o.MySQL.Outcome), numOutcomes)]++
	case f.compared:
		t.compared++
		op.Compared++
	}
	if f.kind.Divergence() {
		op.Differed++
	}
	return was, over
}

func (a *amount) add(units int64) {
	a.count++
	a.units = addUnits(a.units, units)
}

// keep draws o for the samples of its kind, and hands a divergence to the
// writer. Matches are drawn only; so is what was not comparable, since an
// outage makes thousands of those that say the same.
func (c *Comparator) keep(o *holdover.Observation, f finding, was Kind, over string) {
	t := &c.tally
	t.seen[f.kind]++
	slot := -1
	if n := len(t.samples[f.kind]); n < c.cfg.SamplesPerKind {
		t.samples[f.kind] = append(t.samples[f.kind], nil)
		slot = n
	} else if at := c.pick(t.seen[f.kind]); at < uint64(n) { // every observation is as likely to stay
		slot = int(at)
	}
	write := c.out != nil && (f.kind.Divergence() || slot >= 0)
	if slot < 0 && !write {
		return
	}
	k := keep(*o)
	k.seq, k.find, k.was, k.over = t.eligible, f, was, over
	if slot >= 0 {
		t.samples[f.kind][slot] = k
	}
	if write && (c.closed || !c.out.offer(k)) {
		t.dropped++
	}
}

func (c *Comparator) time(o *holdover.Observation) {
	t := &c.tally
	if o.Redis.Latency <= 0 || o.MySQL.Latency <= 0 {
		t.untimed++
		return
	}
	probe := 0
	if o.Redis.Probe || o.MySQL.Probe {
		probe = 1
	}
	p := &t.latency[o.Stage][o.Op][probe]
	if *p == nil {
		*p, _ = newPaired(c.cfg.SketchAccuracy) // New has shown that it can't fail
	}
	if err := (*p).add(int64(o.Redis.Latency), int64(o.MySQL.Latency)); err != nil {
		t.untimed++
	}
}

// RecordVerification puts a verification into the report: its counter
// differences count as foreign writes, everything else is in its summary.
func (c *Comparator) RecordVerification(v Verification) {
	v.Started = plain(v.Started)
	v.Differences = slices.Clone(v.Differences)
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &c.tally
	t.verified.Runs++
	if v.Clean {
		t.verified.Clean++
	}
	t.verified.Last = []*Verification{&v}
	t.verified.sum()
	// A difference that stays is found by each verification: the row says what
	// the newest one saw, so that a repaired counter leaves it.
	t.kinds[KindForeignWrite] = [numDirections]amount{}
	for _, row := range v.ForeignWrites {
		t.kinds[KindForeignWrite][row.Direction] = amount{row.Count, row.Units}
	}
}

// Counts returns the exact figures without samples and times: cheap enough
// for a metrics scrape.
func (c *Comparator) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tally.counts()
}

// Report returns everything seen since New.
func (c *Comparator) Report() Report {
	c.mu.Lock()
	t := &c.tally
	r := Report{
		Pods: []string{c.cfg.Pod}, Runs: []string{c.run}, Started: c.started, From: plain(t.from), To: plain(t.to),
		Need: c.cfg.MinCoverage, Keep: c.cfg.SamplesPerKind, Counts: t.counts(), Latency: t.latencies(), Verified: t.verified,
	}
	r.Verified.Last = slices.Clone(t.verified.Last)
	var samples []*kept
	for k := range t.samples {
		samples = append(samples, t.samples[k]...)
	}
	c.mu.Unlock()

	if c.cfg.Instance != "" {
		r.Instances = []string{c.cfg.Instance}
	}
	for _, k := range samples { // texts are made outside the lock
		r.Samples = append(r.Samples, k.render(c.run))
	}
	sortSamples(r.Samples)
	r.finish()
	return r
}

// Close writes what is queued and the last counts, closes the sink and waits
// for it, at most CloseTimeout.
func (c *Comparator) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if c.out == nil {
		return nil
	}
	return c.out.close(first, c.cfg.CloseTimeout)
}

func (t *tally) counts() Counts {
	n := Counts{
		Eligible: t.eligible, Compared: t.compared, Ignored: t.ignored,
		EventsDropped: t.dropped, EventsFailed: t.failed, Panics: t.panics, Untimed: t.untimed,
		Kinds: rows(&t.kinds), OverBudget: rows(&t.over),
	}
	for stage := range t.operations {
		for op, row := range t.operations[stage] {
			if row.Eligible > 0 {
				row.Stage, row.Op = holdover.Stage(stage), holdover.Op(op).String()
				n.Operations = append(n.Operations, row)
			}
		}
	}
	for redis := range t.unanswered {
		for mysql, count := range t.unanswered[redis] {
			if count > 0 {
				n.NotComparable = append(n.NotComparable, Unanswered{
					Redis: holdover.Outcome(redis).String(), MySQL: holdover.Outcome(mysql).String(), Count: count,
				})
			}
		}
	}
	return n
}

func rows(from *[numKinds][numDirections]amount) (rows []Tally) {
	for k := range from {
		for d, a := range from[k] {
			if a.count > 0 {
				rows = append(rows, Tally{Kind: Kind(k), Direction: Direction(d), Count: a.count, Units: a.units})
			}
		}
	}
	return rows
}

func (t *tally) latencies() (rows []Latency) {
	for stage := range t.latency {
		for op := range t.latency[stage] {
			for probe, p := range t.latency[stage][op] {
				if p == nil || p.delta.n == 0 {
					continue
				}
				rows = append(rows, Latency{
					Stage: holdover.Stage(stage), Op: holdover.Op(op).String(), Probe: probe == 1, Pairs: p.delta.n,
					Redis: p.redis.quantiles(), MySQL: p.mysql.quantiles(), Delta: p.delta.quantiles(),
				})
			}
		}
	}
	return rows
}

// clamp keeps a value that no version knows from leaving its table.
func clamp(i, n int) int {
	if i < n {
		return i
	}
	return 0
}
