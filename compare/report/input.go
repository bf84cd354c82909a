package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdover"
	"holdover/compare"
)

// Input is everything that a report is made of. The same input gives the same
// report, byte for byte.
type Input struct {
	// Source says where the rollups were read: a digest is of what one source has.
	Source Source
	// Pods to report on; those of the rollups and fences when empty. A pod that
	// is named here and is not in the data is reported as unknown.
	Pods []string
	// Since and Until bound the period: rollups that touch it are counted whole.
	// Zero: from the first rollup, to the last.
	Since, Until time.Time
	// Rollups in any order. Of two with one run and number the later one counts:
	// an open rollup grows.
	Rollups []compare.Rollup
	// Pulse is the same rollups minute by minute, where Rollups are sums of longer
	// times; nil: Rollups are as they were written.
	Pulse *Pulse
	// Fences is each change of agreement, oldest first; those before Since say
	// what the period began with.
	Fences []holdover.Fence
	// Verified is the complete verifications in the period, and the newest before it.
	// Of later ones it is said that they are later.
	Verified []holdover.Verified
	// Drills are the kills that were rehearsed, by the epochs of their latches; one
	// whose outcome was not kept has no At. No other latch is a drill's.
	Drills []holdover.Drill
	// Incidents is what else happened in the period, repairs and rebuilds: kills and
	// verifications with differences are made of the fields above.
	Incidents []Incident
	// SignOffs are shown. They are no part of the digest.
	SignOffs []holdover.SignOff
	// Instances are the live ones of each pod, by the names of their runs, which
	// have to be reporting; nil where nobody can be asked. They are no part of the
	// digest.
	Instances map[string][]holdover.Instance
	// Read is when the rollups were read, by the clock of who keeps them: one that
	// reaches beyond it was written by a clock that is ahead. Zero: Until where
	// Instances are given, else no clock is judged. It is no part of the digest.
	Read time.Time
	// Ahead is which rollups were kept before they ended, by the clock of who keeps
	// them: where that is by more than Limits.MaxAhead their instance's clock was ahead
	// then, and may be right again.
	Ahead []Ahead
	// Heard is what instances said of themselves outside of the period, before it and
	// after it: who lived through it, and is not in it, is missing. For a period that
	// has ended long ago, of which nobody can be asked who lived. It is no part of the
	// digest.
	Heard []Heard
	// Past: the period ended before now, so that who lived in it is told by Heard and
	// by Instances, who live now and may have started since; false.
	Past bool
	// Unplanted is why nothing, or not each kind, is planted, where that is known: a
	// sentence each. It is no part of the digest.
	Unplanted []string
	// Notes is what the reader should know of how the data was read.
	Notes []string
	// Baseline is the times of an earlier period. With it, slower is a gate.
	Baseline *Baseline
	// Noise is what a calibration saw between two equal stores: a delta within
	// it is no delta.
	Noise *Baseline
	// Limits are what the gates demand.
	Limits Limits
}

// Ahead is a run's rollup that reached beyond the time at which it was kept.
type Ahead struct {
	Pod, Instance, Run string
	From, To           time.Time     // of the rollup, by the instance's clock
	By                 time.Duration // how far it reached: the clock was ahead by that or more
}

// Heard is a rollup outside of a report's period, without its counts.
type Heard struct {
	Pod, Instance, Run string
	Started, From, To  time.Time
	Ended              bool // the run ended with it, or is known as killed
}

// Baseline is the times of another report.
type Baseline struct {
	Digest string    // of that report
	Pods   []string  // that it is about
	From   time.Time // when its period began
	To     time.Time // when its period ended
	Rows   []Latency

	Compared, Differed uint64 // how often both stores answered, and how often not the same
}

// BaselineOf takes the times of a report, to compare another one with.
func BaselineOf(r Report) *Baseline {
	return &Baseline{Digest: r.Digest, Pods: r.Pods, From: r.From, To: r.To, Rows: r.Latency.Operations,
		Compared: r.Divergences.Compared, Differed: r.Divergences.Differed}
}

// Budget bounds how many divergences of one kind may be explained: the larger
// of Floor and Share of the eligible observations.
type Budget struct {
	Floor uint64  `json:"floor"`
	Share float64 `json:"share"` // 0.01 is 1 %
}

// allows is the most that it allows.
func (b Budget) allows(eligible uint64) uint64 {
	return max(b.Floor, uint64(b.Share*float64(eligible)))
}

// Limits are what the gates demand. Zero fields mean the default.
type Limits struct {
	// Alpha is the level of every bound and interval; 0.05, which is 95 %.
	Alpha float64 `json:"alpha"`
	// MinCoverage is the least share of observations that must have been
	// compared, overall, of each pod and instance, and of each operation in each stage; 0.9.
	MinCoverage float64 `json:"min_coverage"`
	// MinCompared is how many compared observations there must be at least; 100.
	MinCompared uint64 `json:"min_compared"`
	// MinOperation is how often an operation must have occurred in a stage for
	// its own coverage to be judged, how many operations an instance must have had
	// for its own, and how many must have been compared in the stage that a pod is
	// in at the end; 20. An operation that is rarer is listed as hardly exercised,
	// and judged where none of it was compared.
	MinOperation uint64 `json:"min_operation"`
	// Unexplained is how many unexplained divergences are allowed; 0. One that
	// oversells is never allowed.
	Unexplained uint64 `json:"unexplained"`
	// UnexplainedRate is the rate of unexplained divergences that the
	// observations must rule out; 0.001.
	UnexplainedRate float64 `json:"unexplained_rate"`
	// Budget is the budget of each kind that Budgets does not name; 100 or 5 %.
	Budget Budget `json:"budget"`
	// BudgetAll bounds the explained divergences of all kinds together; 200 or 10 %.
	BudgetAll Budget `json:"budget_all"`
	// Budgets overrides Budget by the name of the kind.
	Budgets map[string]Budget `json:"budgets,omitempty"`
	// VerifiedWithin is how old the newest verification of a pod may be at the
	// end of the period; 24 h.
	VerifiedWithin time.Duration `json:"verified_within_ns"`
	// MaxGap is the longest stretch that may be missing, of an instance's life or
	// of a pod's time in the stages that compare, and how long an instance's last
	// rollup may be back; 5 min.
	MaxGap time.Duration `json:"max_gap_ns"`
	// SilentAfter is how far a run's last rollup may be back at the end of the
	// period, in lengths of the pod's longest rollup (of a minute at least), before
	// it has fallen silent: 1.5, since the next one is on its way; MaxGap at most.
	SilentAfter float64 `json:"silent_after"`
	// MaxAhead is how far a rollup may reach beyond the time at which it was read
	// before its instance's clock is ahead; 10 s.
	MaxAhead time.Duration `json:"max_ahead_ns"`
	// ThinCoverage is the share of operations that must have been compared in any
	// stretch longer than MaxThin, of a pod and of an instance; 0.5 and 5 min. A
	// stretch has at least MinOperation operations.
	ThinCoverage float64       `json:"thin_coverage"`
	MaxThin      time.Duration `json:"max_thin_ns"`
	// BaselineWithin is how long before the end of the period the baseline's may
	// have ended before a note says so; 30 days.
	BaselineWithin time.Duration `json:"baseline_within_ns"`
	// UndecidedFloor and UndecidedShare bound the differences that never stood still
	// long enough to be judged, by the larger of the two; 5, and 0.0005 of the
	// eligible observations.
	UndecidedFloor uint64  `json:"undecided_floor"`
	UndecidedShare float64 `json:"undecided_share"`
	// MustSee names the strata that must have been compared; claim, release, expire,
	// last-unit and refused. A list with one empty name demands none.
	MustSee []string `json:"must_see"`
	// SlowerBy is the share of MySQL's time in the baseline by which the paired
	// delta may have grown, at each quantile; 0.1.
	SlowerBy float64 `json:"slower_by"`
	// SlowerByAtLeast is the growth that is always allowed; 100 µs.
	SlowerByAtLeast time.Duration `json:"slower_by_at_least_ns"`
	// Waived names gates that are shown and not demanded (selftest,
	// verification, exercised ...).
	Waived []string `json:"waived,omitempty"`
}

// mustSee is what a report demands to have seen when nothing else is asked.
var mustSee = []string{"claim", "release", "expire", "last-unit", "refused"}

// Undemanded are the strata that a report demands by default, and this one does not.
func (l Limits) Undemanded() []string {
	return slices.DeleteFunc(slices.Clone(mustSee), func(name string) bool { return slices.Contains(l.MustSee, name) })
}

func (l Limits) withDefaults() (Limits, error) {
	setDefault(&l.Alpha, 0.05)
	setDefault(&l.MinCoverage, 0.9)
	setDefault(&l.MinCompared, 100)
	setDefault(&l.MinOperation, 20)
	setDefault(&l.UnexplainedRate, 1e-3)
	setDefault(&l.Budget, Budget{Floor: 100, Share: 0.05})
	setDefault(&l.BudgetAll, Budget{Floor: 200, Share: 0.1})
	setDefault(&l.UndecidedFloor, 5)
	setDefault(&l.UndecidedShare, 0.0005)
	setDefault(&l.VerifiedWithin, 24*time.Hour)
	setDefault(&l.MaxGap, 5*time.Minute)
	setDefault(&l.SilentAfter, 1.5)
	setDefault(&l.MaxAhead, 10*time.Second)
	setDefault(&l.ThinCoverage, 0.5)
	setDefault(&l.MaxThin, 5*time.Minute)
	setDefault(&l.BaselineWithin, 30*24*time.Hour)
	setDefault(&l.SlowerBy, 0.1)
	setDefault(&l.SlowerByAtLeast, 100*time.Microsecond)
	if l.MustSee == nil {
		l.MustSee = slices.Clone(mustSee)
	}
	l.MustSee = slices.DeleteFunc(slices.Clone(l.MustSee), func(name string) bool { return name == "" })

	var errs []error
	bad := func(field string, value any, problem string) {
		errs = append(errs, &holdover.InvalidError{Field: "report " + field, Value: fmt.Sprint(value), Problem: problem})
	}
	for field, v := range map[string]float64{
		"alpha": l.Alpha, "unexplained_rate": l.UnexplainedRate, "budget share": l.Budget.Share, "undecided_share": l.UndecidedShare,
		"thin_coverage": l.ThinCoverage,
	} {
		if !(v >= 0 && v < 1) {
			bad(field, v, "must be at least 0 and below 1")
		}
	}
	if !(l.MinCoverage > 0 && l.MinCoverage <= 1) {
		bad("min_coverage", l.MinCoverage, "must be above 0 and at most 1")
	}
	if !(l.SlowerBy >= 0) || l.SlowerByAtLeast < 0 {
		bad("slower_by", fmt.Sprint(l.SlowerBy, " ", l.SlowerByAtLeast), "is negative")
	}
	for field, v := range map[string]float64{
		"verified_within": float64(l.VerifiedWithin), "max_gap": float64(l.MaxGap), "silent_after": l.SilentAfter, "max_ahead": float64(l.MaxAhead),
		"max_thin": float64(l.MaxThin), "baseline_within": float64(l.BaselineWithin),
	} {
		if !(v >= 0) {
			bad(field, v, "is negative")
		}
	}
	for name, b := range l.Budgets {
		var k compare.Kind
		if err := k.UnmarshalText([]byte(name)); err != nil || !k.Explained() {
			bad("budgets", name, "is not a kind that evidence explains")
		}
		if !(b.Share >= 0 && b.Share <= 1) {
			bad("budgets "+name, b.Share, "must be a share between 0 and 1")
		}
	}
	for _, name := range l.Waived {
		if family, _, _ := strings.Cut(name, ":"); !slices.Contains(gateFamilies, family) {
			bad("waived", name, "is not a gate: want some of "+strings.Join(gateFamilies, ", "))
		}
	}
	for _, name := range l.MustSee {
		if !slices.Contains(compare.StratumNames(), name) {
			bad("must_see", name, "is not a stratum: want some of "+strings.Join(compare.StratumNames(), ", "))
		} else if name == compare.StratumUndecided {
			bad("must_see", name, "can't be demanded: it ought not to occur")
		}
	}
	return l, errors.Join(errs...)
}

// gateFamilies are the gates by the first part of their names.
var gateFamilies = []string{
	"unexplained", "unexplained-rate", "coverage", "budget", "verification", "selftest", "undecided", "exercised", "panics", "instances", "gaps", "latency",
}

// budget is the budget of one kind.
func (l Limits) budget(kind string) Budget {
	if b, ok := l.Budgets[kind]; ok {
		return b
	}
	return l.Budget
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
