package report

import (
	"time"

	"holdover"
	"holdover/compare"
)

// Verdict is what a report, or one of its gates, comes to.
type Verdict string

// The verdicts. NoVerdict is not a mild form of pass: nothing was shown.
const (
	Pass      Verdict = "pass"
	Fail      Verdict = "fail"
	NoVerdict Verdict = "no-verdict"
)

// Source is where the data of a report was read. A file has no changes of stage,
// verifications and repairs, so the digest of one period is another one there.
type Source string

// The sources. An empty one is not known: of a report by an older version.
const (
	SourceMySQL Source = "mysql" // what the pods' MySQLs keep
	SourceFiles Source = "files" // event files and spooled records
	// SourceCalibration: two equal stores, of which holdover calibrate counted how far they are apart.
	SourceCalibration Source = "calibration"
)

// Schema is the version of a report's JSON. Keys may be added within a version.
const Schema = 1

// Report is what a person signs. Its JSON is described in the package's doc.go.
type Report struct {
	Schema       int              `json:"schema"`
	Source       Source           `json:"source,omitempty"`
	Verdict      Verdict          `json:"verdict"`
	Gates        []Gate           `json:"gates"`
	Pods         []string         `json:"pods"`
	UnknownPods  []string         `json:"unknown_pods"` // asked for, and not in the data
	From         time.Time        `json:"from"`
	To           time.Time        `json:"to"`
	Data         Data             `json:"data"`
	Stages       []holdover.Stage `json:"stages"` // observed, in the order of the migration
	Instances    []Run            `json:"instances"`
	Versions     []string         `json:"versions"`
	Configs      []string         `json:"configs"` // hashes
	Timeline     []Change         `json:"timeline"`
	Incidents    []Incident       `json:"incidents"`
	Divergences  Divergences      `json:"divergences"`
	Coverage     Coverage         `json:"coverage"`
	Latency      Latencies        `json:"latency"`
	Noise        *Noise           `json:"noise,omitempty"` // with a calibration only
	Verification []Verification   `json:"verification"`
	SelfTest     SelfTest         `json:"selftest"`
	NotExercised []string         `json:"not_exercised"`
	SignOffs     []SignOff        `json:"sign_offs"`
	Notes        []string         `json:"notes"`
	Limits       Limits           `json:"limits"`
	Digest       string           `json:"digest"` // SHA-256 of the data, in hex
}

// Data is the part of the period that was counted at all.
type Data struct {
	From    time.Time `json:"from"`  // of the first counts in the period; zero: there are none
	To      time.Time `json:"to"`    // of the last
	Seconds float64   `json:"s"`     // in which at least one instance counted
	Share   float64   `json:"share"` // of the period
}

// Gate is one condition of the verdict.
type Gate struct {
	Name      string  `json:"name"`
	OK        bool    `json:"ok"`
	Verdict   Verdict `json:"verdict"` // no-verdict: it could not be judged
	Waived    bool    `json:"waived"`  // shown, and not part of the report's verdict
	Value     float64 `json:"value"`
	Threshold float64 `json:"threshold"`
	Unit      string  `json:"unit"` // share, count or seconds
	N         uint64  `json:"n"`    // what the value is made of
	Reason    string  `json:"reason"`
}

// Estimate is a rate with its bounds.
type Estimate struct {
	Rate float64 `json:"rate"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Run is what is known of one start of one instance.
type Run struct {
	Pod      string    `json:"pod"`
	Instance string    `json:"instance"`
	Run      string    `json:"run"`
	Version  string    `json:"version"`
	Config   string    `json:"config"`
	Started  time.Time `json:"started"`
	From     time.Time `json:"from"` // of its first rollup in the period
	To       time.Time `json:"to"`   // of its last
	State    string    `json:"state"`
	Rollups  int       `json:"rollups"`
	Lost     uint64    `json:"lost"`      // rollups that are missing
	Gap      float64   `json:"gap_s"`     // the longest stretch without counts
	Missing  float64   `json:"missing_s"` // all of them
}

// The states of a run.
const (
	RunRunning  = "running"  // it reported to the end of the period
	RunClosed   = "closed"   // it was closed in order
	RunTorn     = "torn"     // it was killed: a second of it may be missing
	RunReplaced = "replaced" // it fell silent, and one of its name was started later
	RunMissing  = "missing"  // it fell silent
)

// Change is one change of what the instances agreed on.
type Change struct {
	Pod     string         `json:"pod"`
	At      time.Time      `json:"at"`
	Epoch   holdover.Epoch `json:"epoch"`
	Stage   holdover.Stage `json:"stage"`
	Latched bool           `json:"latched"`
	By      string         `json:"by"`
	Reason  string         `json:"reason"`
	Before  bool           `json:"before"` // it was before the period, which began with it
}

// Incident is what the reader should know of besides the counts.
type Incident struct {
	Pod  string    `json:"pod"`
	What string    `json:"what"` // kill, verification, mysql-away ... (incidents.go), or what the caller named
	From time.Time `json:"from"`
	To   time.Time `json:"to"`   // the end of the period when it lasts
	Open bool      `json:"open"` // it lasts
	By   string    `json:"by"`
	Text string    `json:"text"`
}

// Divergences says how often the stores differed, and how.
type Divergences struct {
	Eligible        uint64         `json:"eligible"`
	Compared        uint64         `json:"compared"`
	Differed        uint64         `json:"differed"`
	Unexplained     uint64         `json:"unexplained"`
	UnexplainedRate Estimate       `json:"unexplained_rate"`
	Kinds           []KindCount    `json:"kinds"` // those that occurred
	Strata          []StratumCount `json:"strata"`
}

// KindCount is one kind of observation.
type KindCount struct {
	Kind       string           `json:"kind"`
	Count      uint64           `json:"count"`
	Units      int64            `json:"units"`
	Rate       Estimate         `json:"rate"`       // of those compared; not-comparable: of those eligible
	Budget     uint64           `json:"budget"`     // the most that are allowed; 0 for kinds without one
	Directions []DirectionCount `json:"directions"` // those that occurred
	Samples    []compare.Event  `json:"samples"`    // drawn evenly; none of matches
}

// DirectionCount is the part of a kind in one direction.
type DirectionCount struct {
	Direction compare.Direction `json:"direction"`
	Count     uint64            `json:"count"`
	Units     int64             `json:"units"`
}

// StratumCount is one kind of call, with the bounds of its unexplained rate.
type StratumCount struct {
	Name        string   `json:"name"`
	Eligible    uint64   `json:"eligible"`
	Compared    uint64   `json:"compared"`
	Differed    uint64   `json:"differed"`
	Unexplained uint64   `json:"unexplained"`
	Rate        Estimate `json:"unexplained_rate"`
	Demanded    bool     `json:"demanded"`
}

// Coverage says how much of what happened was compared.
type Coverage struct {
	Eligible   uint64              `json:"eligible"` // dual operations that were seen
	Compared   uint64              `json:"compared"`
	Bypassed   uint64              `json:"bypassed"` // that nobody handed to the comparator
	Share      float64             `json:"share"`    // compared / (eligible + bypassed)
	Operations []OperationCoverage `json:"operations"`
	Outcomes   []OutcomeCoverage   `json:"outcomes"`
	Pods       []PodCoverage       `json:"pods"`
	Hours      []HourCoverage      `json:"hours"`
	NeverSeen  []string            `json:"never_seen"` // strata
}

// OperationCoverage is one operation in one stage.
type OperationCoverage struct {
	Stage    holdover.Stage `json:"stage"`
	Op       string         `json:"op"`
	Eligible uint64         `json:"eligible"`
	Compared uint64         `json:"compared"`
	Differed uint64         `json:"differed"`
	Share    float64        `json:"share"`
}

// OutcomeCoverage is one pair of answers.
type OutcomeCoverage struct {
	Op    string `json:"op"`
	Redis string `json:"redis"`
	MySQL string `json:"mysql"`
	Count uint64 `json:"count"`
}

// PodCoverage is one pod.
type PodCoverage struct {
	Pod      string  `json:"pod"`
	Eligible uint64  `json:"eligible"`
	Compared uint64  `json:"compared"`
	Bypassed uint64  `json:"bypassed"`
	Share    float64 `json:"share"`
}

// HourCoverage is one operation in one hour (UTC), by the begin of the rollups.
type HourCoverage struct {
	Hour     time.Time `json:"hour"`
	Op       string    `json:"op"`
	Eligible uint64    `json:"eligible"`
	Compared uint64    `json:"compared"`
	Share    float64   `json:"share"`
}

// Latencies are the paired times, in microseconds.
type Latencies struct {
	Operations  []Latency    `json:"operations"`
	Connections []Connection `json:"connections"`
	Baseline    string       `json:"baseline"` // digest of the report it was compared with
	Shifts      []Shift      `json:"shifts"`   // where it is slower than that
}

// Latency is one operation in one stage. Probes, which read without locking,
// stand apart from real votes.
type Latency struct {
	Stage holdover.Stage `json:"stage"`
	Op    string         `json:"op"`
	Probe bool           `json:"probe"`
	Pairs uint64         `json:"pairs"`
	Redis Series         `json:"redis"`
	MySQL Series         `json:"mysql"`
	Delta Series         `json:"delta"` // mysql minus redis, pair by pair: negative when MySQL was faster
}

// Series is the quantiles of one series of times, and the sketch that they
// were read off, so that a later report can be compared with this one.
type Series struct {
	Min    float64         `json:"min_us"`
	P50    Quantile        `json:"p50_us"`
	P90    Quantile        `json:"p90_us"`
	P99    Quantile        `json:"p99_us"`
	P999   Quantile        `json:"p999_us"`
	Max    float64         `json:"max_us"`
	Sketch *compare.Sketch `json:"sketch"`
}

// Quantile is a quantile with its interval. An end that there are too few
// values for is null.
type Quantile struct {
	Value float64  `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// Connection is how long connections of one store were taken, by what for.
type Connection struct {
	Store string `json:"store"`
	Tag   string `json:"tag"`
	Holds uint64 `json:"holds"`
	Held  Series `json:"held"`
}

// Noise is what a calibration saw between two equal stores: old against old, beside
// which old against new is read.
type Noise struct {
	Digest     string    `json:"digest"` // of the calibration's report
	Pods       []string  `json:"pods"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Compared   uint64    `json:"compared"`
	Differed   uint64    `json:"differed"`
	Rate       Estimate  `json:"rate"` // of differing
	Operations []Latency `json:"operations"`
}

// Shift is a quantile of the paired delta that is above the baseline's by more
// than is allowed.
type Shift struct {
	Stage    holdover.Stage `json:"stage"`
	Op       string         `json:"op"`
	Probe    bool           `json:"probe"`
	Quantile string         `json:"quantile"`
	Tail     bool           `json:"tail"` // only the tail moved: the median and p90 did not
	Before   float64        `json:"before_us"`
	After    float64        `json:"after_us"`
	Allowed  float64        `json:"allowed_us"`
}

// Verification is the newest complete verification of one pod in the data.
type Verification struct {
	holdover.Verified
	Runs    int     `json:"runs"` // in the period
	Cleaned int     `json:"clean_runs"`
	Age     float64 `json:"age_s"` // at the end of the period
}

// SelfTest is what became of planted divergences.
type SelfTest struct {
	Planted       uint64        `json:"planted"`
	Caught        uint64        `json:"caught"`
	Missed        uint64        `json:"missed"`
	Misclassified uint64        `json:"misclassified"`
	Unjudged      uint64        `json:"unjudged"` // a store did not answer, or not in time: neither caught nor missed
	ByKind        []PlantedKind `json:"by_kind"`
}

// PlantedKind is one kind that was planted, and what was seen in its place.
type PlantedKind struct {
	Kind     string            `json:"kind"`
	Planted  uint64            `json:"planted"`
	Caught   uint64            `json:"caught"`
	Unjudged uint64            `json:"unjudged"`
	Seen     map[string]uint64 `json:"seen_as"` // what was not caught, by what it was taken for; "none" was missed
}

// SignOff is a decision that was recorded, about this data or earlier data.
type SignOff struct {
	holdover.SignOff
	SameData bool `json:"same_data"` // its digest is this report's
}
