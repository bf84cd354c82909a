package holdover

import (
	"fmt"
	"time"
)

// Comparison is what one run of one instance compared in one period, as MySQL
// keeps it: counts that can be asked for in SQL, and payloads that package
// compare wrote and reads.
type Comparison struct {
	Pod, Instance string
	Run           string // random, one for each start of a process
	Seq           uint64 // 1, 2, 3 ... within the run: a number is kept once
	Lost          uint64 // those of the run just before this one that will never come
	From, To      time.Time
	Head          []byte // JSON: everything that is not in Cells and Divergences
	Cells         []ComparisonCell
	Divergences   []DivergenceRow // samples; the counts are in Cells
}

// SequenceError is the refusal of a Comparison that is not its run's next.
type SequenceError struct {
	Run  string
	Last uint64 // the newest that is kept; zero: none
	Seq  uint64 // the one that was refused
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("rollup %d of run %s comes after %d: send those between first, or say that they are lost", e.Seq, e.Run, e.Last)
}

// ComparisonCell is the part of a Comparison in one stage and operation.
type ComparisonCell struct {
	Stage                                     Stage
	Op                                        Op
	Eligible, Compared, Differed, Unexplained uint64
	Payload                                   []byte // JSON
}

// DivergenceRow is one sampled observation.
type DivergenceRow struct {
	Place   uint64 // among the observations of its run
	Kind    string
	At      time.Time
	Shop    int64
	Token   Token
	Payload []byte // JSON
}

// SignOff is somebody's decision about a report.
type SignOff struct {
	Pod      string    `json:"pod"`
	Stage    Stage     `json:"stage,omitzero"` // agreed when it was signed; left out when nothing was
	Epoch    Epoch     `json:"epoch"`
	Digest   string    `json:"digest"`   // of the report's data
	Verdict  string    `json:"verdict"`  // the report's
	Decision string    `json:"decision"` // go or no-go
	As       string    `json:"as"`       // who says so
	Note     string    `json:"note"`
	From     time.Time `json:"from"` // the report's period
	To       time.Time `json:"to"`
	At       time.Time `json:"at"` // MySQL's clock
}
