package app

import (
	"encoding/json"
	"fmt"
	"time"

	"holdover"
	"holdover/compare"
)

// keptRollup is the head of a rollup as MySQL keeps it.
type keptRollup struct {
	compare.Rollup
	// At is when it was sent, by the clock of MySQL; zero: not known. A rollup that
	// ends later was written by a clock that was ahead, though it may be right since.
	At time.Time `json:"kept,omitzero"`
}

// comparisonOf is a rollup as MySQL keeps it, sent at a time that is not known. What
// was lost is found by the numbers on the way, whatever the rollup says of it: each is
// counted once. An error means that no repeat helps.
func comparisonOf(r compare.Rollup) (holdover.Comparison, error) {
	return comparisonAt(r, time.Time{})
}

// comparisonAt is one that is sent then, by the clock of MySQL.
func comparisonAt(r compare.Rollup, at time.Time) (holdover.Comparison, error) {
	c := holdover.Comparison{Pod: r.Pod, Instance: r.Instance, Run: r.Run, Seq: r.Seq, From: r.From, To: r.To}
	bad := func(problem string, err error) (holdover.Comparison, error) {
		return c, &holdover.InvalidError{Field: "rollup", Value: fmt.Sprintf("%s-%d", r.Run, r.Seq), Problem: problem + ": " + err.Error()}
	}
	for _, cell := range r.Cells {
		op, err := opNamed(cell.Op)
		if err != nil {
			return bad("has a cell that MySQL can't keep", err)
		}
		payload, err := json.Marshal(cell)
		if err != nil {
			return bad("has a cell that is no JSON", err)
		}
		row := holdover.ComparisonCell{Stage: cell.Stage, Op: op, Eligible: cell.Eligible, Compared: cell.Compared, Differed: cell.Differed, Payload: payload}
		for _, t := range cell.Kinds {
			if t.Kind == compare.KindUnexplained {
				row.Unexplained += t.Count
			}
		}
		c.Cells = append(c.Cells, row)
	}
	for _, e := range r.Samples {
		token, err := holdover.ParseToken(e.Token)
		if err != nil {
			return bad("has a sample without a token", err)
		}
		payload, err := json.Marshal(e)
		if err != nil {
			return bad("has a sample that is no JSON", err)
		}
		c.Divergences = append(c.Divergences, holdover.DivergenceRow{Place: e.Seq, Kind: e.Kind.String(), At: e.At, Shop: e.Shop, Token: token, Payload: payload})
	}
	r.Cells, r.Samples = nil, nil
	head, err := json.Marshal(keptRollup{r, at.UTC()})
	if err != nil {
		return bad("is no JSON", err)
	}
	c.Head = head
	return c, nil
}

// rollupOf is what comparisonOf was given.
func rollupOf(c holdover.Comparison) (r keptRollup, err error) {
	bad := func(what string, err error) (keptRollup, error) {
		return r, fmt.Errorf("pod %s: rollup %d of run %s in MySQL: %s can't be read, by a version older than its writer perhaps: %w", c.Pod, c.Seq, c.Run, what, err)
	}
	if err := json.Unmarshal(c.Head, &r); err != nil {
		return bad("its head", err)
	}
	if r.Run != c.Run || r.Seq != c.Seq || r.Pod != c.Pod {
		return bad("its head", fmt.Errorf("it says that it is rollup %d of run %s of pod %s", r.Seq, r.Run, r.Pod))
	}
	r.Lost = c.Lost
	for _, row := range c.Cells {
		var cell compare.Cell
		if err := json.Unmarshal(row.Payload, &cell); err != nil {
			return bad("a cell", err)
		}
		if cell.Stage != row.Stage || cell.Op != row.Op.String() || cell.Eligible != row.Eligible || cell.Compared != row.Compared || cell.Differed != row.Differed {
			return bad("a cell", fmt.Errorf("its counts are not those beside it in %s, %s", row.Stage, row.Op))
		}
		r.Cells = append(r.Cells, cell)
	}
	for _, row := range c.Divergences {
		var e compare.Event
		if err := json.Unmarshal(row.Payload, &e); err != nil {
			return bad("a sample", err)
		}
		r.Samples = append(r.Samples, e)
	}
	return r, nil
}

func opNamed(name string) (holdover.Op, error) {
	for op := holdover.OpReserve; op <= holdover.OpExtend; op++ {
		if op.String() == name {
			return op, nil
		}
	}
	return 0, &holdover.InvalidError{Field: "operation", Value: clip(name), Problem: "is not known to this version"}
}
