package compare

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	randv2 "math/rand/v2"
	"sync"
	"time"

	"holdover"
)

// Comparator takes the observations of one pod in one process. All methods
// are safe for concurrent use.
type Comparator struct {
	cfg     Config
	run     string
	started time.Time
	pick    func(n uint64) uint64 // a random number below n
	ring    *ring                 // nil when there is no writer to read it

	mu      sync.Mutex // covers what Observe touches; held for no longer than a swap
	closed  bool
	place   uint64 // eligible observations so far
	open    *tally // since the last fold
	total   counts // of the run, but for what is open
	hot     hotItems
	plants  plants
	foreign [numDirections]amount

	folding sync.Mutex // covers the rest; taken before mu
	spare   *tally     // the next open one
	period  *tally     // since the last rollup was closed
	whole   *tally     // of the run
	bypass  uint64     // Config.Bypassed at the last fold

	out *writer // nil when there is neither a sink nor a spool
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
	started := time.Now()
	c := &Comparator{
		cfg: cfg, run: newRun(started), started: plain(started), pick: randv2.Uint64N,
		open: new(tally), spare: new(tally), period: new(tally), whole: new(tally),
	}
	sink := cfg.sink()
	if sink == nil && cfg.Spool == "" {
		return c, nil
	}
	if c.out, err = newWriter(c, sink); err != nil {
		return nil, err
	}
	c.ring = newRing()
	go c.out.run()
	return c, nil
}

// Run names this run in its rollups.
func (c *Comparator) Run() string { return c.run }

// newRun names a run: a random name for each start. They sort by their time.
func newRun(started time.Time) string {
	id := make([]byte, 6)
	_, _ = rand.Read(id) // crypto/rand.Read never fails
	return fmt.Sprintf("%012x%s", uint64(max(0, started.UnixMilli()))&(1<<48-1), hex.EncodeToString(id))
}

// Observe counts o and keeps it if it is worth an event or was drawn as a
// sample. It never blocks on the sink, and no panic leaves it. o may be reused
// when it returns. An observation after Close is counted but not written.
func (c *Comparator) Observe(o holdover.Observation) {
	reached := notCounted
	defer func() {
		if r := recover(); r != nil {
			c.panicked(&o, reached, r)
		}
	}()
	if o.Pod != c.cfg.Pod || !o.Stage.Dual() {
		c.mu.Lock()
		c.open.ignored++
		c.mu.Unlock()
		return
	}
	if c.cfg.Reserved != nil && c.cfg.Reserved(o.Shop) {
		reached = inPlants
		c.plant(o.Token, classify(&o, c.cfg.LastUnitWindow).kind)
		return
	}
	f := classify(&o, c.cfg.LastUnitWindow)
	c.mu.Lock()
	defer c.mu.Unlock()
	strata := strataOf(&o, c.hot.note(o.Shop, o.Lines))
	c.place++
	c.open.count(&o, &f, strata)
	reached = inCounts
	if c.ring != nil {
		c.ring.put(c.place, &o, &f)
	}
	c.keep(&o, &f)
	if f.compared {
		c.open.time(&o, c.cfg.SketchAccuracy)
	}
}

// How far an observation had come when its comparison panicked.
const (
	notCounted = iota
	inPlants
	inCounts
)

// panicked counts an observation whose comparison failed, once. One of a
// reserved shop is none of the figures.
func (c *Comparator) panicked(o *holdover.Observation, reached int, cause any) {
	c.mu.Lock()
	c.open.panics++
	n := c.total.panics + c.open.panics
	if reached == notCounted {
		c.place++
		c.open.count(o, &finding{kind: KindNotComparable}, 0)
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

// keep draws o for the samples of its kind, and hands a divergence to the
// writer.
func (c *Comparator) keep(o *holdover.Observation, f *finding) {
	r := &c.open.samples[f.kind][f.direction]
	slot := r.slot(capOf(f.kind, c.cfg.SamplesPerKind), c.pick)
	write := c.out != nil && f.kind.Divergence()
	if write && (c.closed || c.out.full()) {
		c.open.dropped++
		write = false
	}
	if slot < 0 && !write {
		return
	}
	k := keep(o, c.place, f)
	if slot >= 0 {
		r.kept[slot] = k
	}
	if write {
		c.out.queue <- k // there is room: nobody else puts anything in without c.mu
	}
}

// RecordVerification puts a verification into the counts: its counter
// differences count as foreign writes.
func (c *Comparator) RecordVerification(v Verification) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A difference that stays is found by each verification: the row says what
	// the newest one saw, so that a repaired counter leaves it.
	c.foreign = [numDirections]amount{}
	for _, row := range v.ForeignWrites {
		c.foreign[row.Direction] = amount{row.Count, row.Units}
	}
}

// Counts returns the exact figures of the run: cheap enough for a metrics scrape.
func (c *Comparator) Counts() Counts {
	n := new(counts)
	c.mu.Lock()
	n.add(&c.total)
	n.add(&c.open.counts)
	foreign := c.foreign
	c.mu.Unlock()
	return withForeign(n.public(), foreign)
}

func withForeign(n Counts, foreign [numDirections]amount) Counts {
	for d, a := range foreign {
		if a.count > 0 {
			n.Kinds = addTallies(n.Kinds, []Tally{{Kind: KindForeignWrite, Direction: Direction(d), Count: a.count, Units: a.units}})
		}
	}
	return n
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
