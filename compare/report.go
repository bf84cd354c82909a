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

// Tally counts one kind in one direction.
type Tally struct {
	Kind      Kind      `json:"kind"`
	Direction Direction `json:"direction"`
	Count     uint64    `json:"count"`
	Units     int64     `json:"units"`
}

// OperationCount counts one operation in one stage.
type OperationCount struct {
	Stage    holdover.Stage `json:"stage"`
	Op       string         `json:"op"`
	Eligible uint64         `json:"eligible"`
	Compared uint64         `json:"compared"`
	Differed uint64         `json:"differed"`
}

// Unanswered counts one pair of outcomes that could not be compared.
type Unanswered struct {
	Redis string `json:"redis"`
	MySQL string `json:"mysql"`
	Count uint64 `json:"count"`
}

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

// Verified sums up the verifications of a period.
type Verified struct {
	Runs        uint64          `json:"runs"`
	Clean       uint64          `json:"clean"`
	Last        []*Verification `json:"last,omitempty"` // the newest of each pod
	Differences uint64          `json:"differences"`    // of the newest ones
	Unsettled   uint64          `json:"unsettled"`      // of the newest ones
}

// Counts are the exact figures of a period: every observation is in them,
// whatever happened to its event.
type Counts struct {
	// Eligible is every observation of a dual stage. It is the sum of all
	// kinds but foreign-write, and of the operations.
	Eligible uint64 `json:"eligible"`
	// Compared is how many of them had an answer from both sides.
	Compared uint64 `json:"compared"`
	// Ignored is observations outside a dual stage, or of another pod.
	Ignored uint64 `json:"ignored"`
	// Kinds has a row for each kind and direction that occurred.
	Kinds []Tally `json:"kinds,omitempty"`
	// OverBudget is the part of unexplained that had evidence, by the kind it
	// would have been.
	OverBudget []Tally `json:"over_budget,omitempty"`
	// Operations has a row for each stage and operation that occurred.
	Operations []OperationCount `json:"operations,omitempty"`
	// NotComparable splits that kind by what the two sides said.
	NotComparable []Unanswered `json:"not_comparable,omitempty"`
	// EventsDropped is events that found the queue full; their counts stand.
	EventsDropped uint64 `json:"events_dropped"`
	// EventsFailed is events and snapshots that could not be written.
	EventsFailed uint64 `json:"events_failed"`
	// Panics is observations whose comparison panicked; they count as not comparable.
	Panics uint64 `json:"panics"`
	// Untimed is compared observations without a time on both sides.
	Untimed uint64 `json:"untimed"`
}

// Count adds up one kind over its directions.
func (c Counts) Count(k Kind) (count uint64, units int64) {
	for _, t := range c.Kinds {
		if t.Kind == k {
			count += t.Count
			units += t.Units
		}
	}
	return count, units
}

// Coverage is compared over eligible; zero when nothing was eligible.
func (c Counts) Coverage() float64 {
	if c.Eligible == 0 {
		return 0
	}
	return float64(c.Compared) / float64(c.Eligible)
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
	for _, t := range r.OverBudget {
		bad = append(bad, fmt.Sprintf("%d of them had evidence of %s, over its budget", t.Count, t.Kind))
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
