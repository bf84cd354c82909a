package compare

import (
	"time"

	"holdover"
)

// Rollup is everything that one run of one instance counted in one period.
// Rollups add up: of several periods, instances and pods.
type Rollup struct {
	Pod      string    `json:"pod"`
	Instance string    `json:"instance"`
	Run      string    `json:"run"`              // random, one for each start
	Seq      uint64    `json:"seq"`              // 1, 2, 3 ... within the run, without gaps
	Version  string    `json:"version"`          // of the build
	Config   string    `json:"config"`           // hash of the configuration, without secrets
	Started  time.Time `json:"started"`          // of the run
	From     time.Time `json:"from"`             // the period, by the instance's clock
	To       time.Time `json:"to"`               //
	Final    bool      `json:"final,omitempty"`  // the run was closed with it
	Torn     bool      `json:"torn,omitempty"`   // the run ended without closing it: what came after To is not known
	Lost     uint64    `json:"lost,omitempty"`   // rollups of this run that were dropped before it, for want of room on disk
	Cells    []Cell    `json:"cells,omitempty"`  // one for each stage and operation that occurred
	Strata   []Stratum `json:"strata,omitempty"` // one for each that occurred

	// Bypassed is dual operations that nobody handed to the comparator. They are
	// in the denominator of coverage.
	Bypassed uint64 `json:"bypassed,omitempty"`
	// Ignored is observations outside a dual stage, or of another pod.
	Ignored uint64 `json:"ignored,omitempty"`
	// Panics is observations whose comparison panicked; they count as not comparable.
	Panics uint64 `json:"panics,omitempty"`
	// Untimed is compared observations without a time on both sides.
	Untimed uint64 `json:"untimed,omitempty"`
	// EventsDropped is events that found the queue full, EventsFailed events and
	// rollups that could not be written; the counts stand.
	EventsDropped uint64 `json:"events_dropped,omitempty"`
	EventsFailed  uint64 `json:"events_failed,omitempty"`

	Connections []Connection `json:"connections,omitempty"` // hold times, by what for
	Planted     []Planted    `json:"planted,omitempty"`     // on reserved shops: in no other figure
	Samples     []Event      `json:"samples,omitempty"`     // drawn evenly over the period, a bounded number of each kind
}

// Cell is what happened in one stage and operation.
type Cell struct {
	Stage    holdover.Stage `json:"stage"`
	Op       string         `json:"op"`
	Eligible uint64         `json:"eligible"` // dual operations seen: the sum of Outcomes
	Compared uint64         `json:"compared"` // with an answer from both stores
	Differed uint64         `json:"differed"` // divergences
	Outcomes []OutcomeCount `json:"outcomes"` // what both sides said
	Kinds    []Tally        `json:"kinds"`    // by kind and direction; adds up to Eligible
	Times    []Times        `json:"times,omitempty"`
}

// OutcomeCount counts one pair of outcomes. None and none: an observation that
// could not be read.
type OutcomeCount struct {
	Redis string `json:"redis"`
	MySQL string `json:"mysql"`
	Count uint64 `json:"count"`
}

// Times are the paired times of one cell. Probes, which read without locking,
// stand apart from real votes.
type Times struct {
	Probe bool      `json:"probe"`
	Pairs uint64    `json:"pairs"`
	Redis Quantiles `json:"redis"`
	MySQL Quantiles `json:"mysql"`
	Delta Quantiles `json:"delta"` // mysql minus redis, pair by pair: negative when MySQL was faster
}

// Stratum counts the observations of one kind of call, or of circumstances.
// An observation may be in several.
type Stratum struct {
	Name        string `json:"name"`
	Eligible    uint64 `json:"eligible"`
	Compared    uint64 `json:"compared"`
	Differed    uint64 `json:"differed"`
	Unexplained uint64 `json:"unexplained"`
}

// Connection is how long connections of one store were taken, by what for.
type Connection struct {
	Store string    `json:"store"`
	Tag   string    `json:"tag"`
	Holds uint64    `json:"holds"`
	Held  Quantiles `json:"held"`
}

// Planted counts planted observations by the kind they were made to be and the
// kind that was seen. A plant that was never seen is Got KindNone.
type Planted struct {
	Want  Kind   `json:"want"`
	Got   Kind   `json:"got"`
	Count uint64 `json:"count"`
}
