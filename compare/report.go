package compare

import (
	"fmt"
	"slices"
	"time"

	"holdover"
)

// Verdict is what a report comes to.
type Verdict string

// The verdicts. NoVerdict is not a mild form of ok: nothing was shown.
const (
	VerdictOK    Verdict = "ok"
	VerdictNotOK Verdict = "not-ok"
	NoVerdict    Verdict = "no-verdict"
)

// Latency compares times in one stage and operation. Probes, which read
// without locking, stand apart from real votes.
type Latency struct {
	Stage holdover.Stage `json:"stage"`
	Op    string         `json:"op"`
	Probe bool           `json:"probe"`
	Pairs uint64         `json:"pairs"`
	Redis Quantiles      `json:"redis"`
	MySQL Quantiles      `json:"mysql"`
	Delta Quantiles      `json:"delta"` // mysql minus redis, pair by pair: negative when MySQL was faster
}

// Report is what a person signs off on, and what a gate asks.
type Report struct {
	Verdict Verdict  `json:"verdict"`
	Reasons []string `json:"reasons"`         // why it is not ok, or why there is none
	Notes   []string `json:"notes,omitempty"` // what a reader should know besides

	Pods      []string         `json:"pods"`
	Instances []string         `json:"instances,omitempty"`
	Runs      []string         `json:"runs"`             // one for each comparator
	Started   time.Time        `json:"started,omitzero"` // of the first run
	From      time.Time        `json:"from,omitzero"`    // first observation
	To        time.Time        `json:"to,omitzero"`      // last observation
	Stages    []holdover.Stage `json:"stages"`           // seen, in the order of the migration
	Coverage  float64          `json:"coverage"`         // compared / eligible
	Need      float64          `json:"coverage_needed"`  // below it there is no verdict
	Keep      int              `json:"samples_per_kind"` // the most samples of a kind
	Counts
	Latency  []Latency `json:"latency,omitempty"`
	Samples  []Event   `json:"samples,omitempty"` // by kind, then by run and place
	Verified Verified  `json:"verified"`
}

// finish computes what follows from the counts: one place for a live report,
// one read from a file and a merged one, so that they can't disagree.
func (r *Report) finish() {
	r.Coverage = r.Counts.Coverage()
	r.Stages = []holdover.Stage{}
	for _, o := range r.Operations {
		if !slices.Contains(r.Stages, o.Stage) {
			r.Stages = append(r.Stages, o.Stage)
		}
	}
	slices.Sort(r.Stages)
	r.judge()
}

func (r *Report) judge() {
	var bad, none []string
	if n, units := r.Count(KindUnexplained); n > 0 {
		bad = append(bad, fmt.Sprintf("%d unexplained divergences (%d units)", n, units))
	}
	if n, units := r.Count(KindForeignWrite); n > 0 {
		bad = append(bad, fmt.Sprintf("%d counters changed by foreign writes (%d units)", n, units))
	}
	if r.Verified.Differences > 0 {
		bad = append(bad, fmt.Sprintf("the last verification found %d differences", r.Verified.Differences))
	}
	if r.Panics > 0 {
		bad = append(bad, fmt.Sprintf("the comparison panicked %d times", r.Panics))
	}
	switch {
	case r.Compared == 0:
		none = append(none, "nothing was compared")
	case r.Coverage < r.Need:
		none = append(none, fmt.Sprintf("coverage is %.2f %%, below the %.2f %% that a verdict needs", 100*r.Coverage, 100*r.Need))
	}
	for _, v := range r.Verified.Last {
		if v.Clean || v.Count > 0 {
			continue
		}
		none = append(none, fmt.Sprintf("the last verification of pod %s is not clean: %s", v.Pod, v.Summary()))
	}
	r.Reasons = append(bad, none...)
	switch {
	case len(bad) > 0:
		r.Verdict = VerdictNotOK
	case len(none) > 0:
		r.Verdict = NoVerdict
	default:
		r.Verdict, r.Reasons = VerdictOK, []string{}
	}
}

// Compact returns the report without the sketches: smaller, for reading, and
// no longer fit for Merge.
func (r Report) Compact() Report {
	r.Latency = slices.Clone(r.Latency)
	for i := range r.Latency {
		l := &r.Latency[i]
		l.Redis.Sketch, l.MySQL.Sketch, l.Delta.Sketch = nil, nil, nil
	}
	return r
}

// Report returns everything seen since New.
func (c *Comparator) Report() Report {
	c.folding.Lock()
	defer c.folding.Unlock()
	c.fold()
	t := c.whole
	c.mu.Lock()
	verified, foreign := c.verified, c.foreign
	c.mu.Unlock()
	verified.Last = slices.Clone(verified.Last)
	r := Report{
		Pods: []string{c.cfg.Pod}, Runs: []string{c.run}, Started: c.started, From: plain(t.first), To: plain(t.last),
		Need: c.cfg.MinCoverage, Keep: c.cfg.SamplesPerKind, Counts: withForeign(t.public(), foreign), Verified: verified,
	}
	if c.cfg.Instance != "" {
		r.Instances = []string{c.cfg.Instance}
	}
	total := c.rollup(t, 1, c.started, c.started)
	r.Samples = total.Samples
	for _, cell := range total.Cells {
		for _, times := range cell.Times {
			r.Latency = append(r.Latency, Latency{cell.Stage, cell.Op, times.Probe, times.Pairs, times.Redis, times.MySQL, times.Delta})
		}
	}
	r.finish()
	return r
}

// snapshot writes a report to the event file.
func (w *writer) snapshot(final bool) error {
	return w.line(func() line { r := w.c.Report(); return line{Snapshot: &r, Final: final} })
}
