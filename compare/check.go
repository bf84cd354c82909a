package compare

import (
	"errors"
	"fmt"
	"slices"

	"holdover"
)

// check holds a rollup to its own sums: figures whose parts disagree are worth
// nothing.
func (r *Rollup) check() error {
	if r.Pod == "" || r.Run == "" || r.Seq == 0 {
		return errors.New("a rollup without its pod, run or number")
	}
	if r.To.Before(r.From) {
		return fmt.Errorf("rollup %s-%d ends before it begins", r.Run, r.Seq)
	}
	type place struct {
		stage holdover.Stage
		op    string
	}
	seen := map[place]bool{}
	for i := range r.Cells {
		c := &r.Cells[i]
		if seen[place{c.Stage, c.Op}] {
			return fmt.Errorf("rollup %s-%d has %s in stage %s twice", r.Run, r.Seq, c.Op, c.Stage)
		}
		seen[place{c.Stage, c.Op}] = true
		if err := c.check(); err != nil {
			return fmt.Errorf("rollup %s-%d, %s in stage %s: %w", r.Run, r.Seq, c.Op, c.Stage, err)
		}
	}
	for _, s := range r.Strata {
		if s.Compared > s.Eligible || s.Differed > s.Compared || s.Unexplained > s.Differed || !slices.Contains(strataNames[:], s.Name) {
			return fmt.Errorf("rollup %s-%d: stratum %q is not known, or its counts don't add up", r.Run, r.Seq, s.Name)
		}
	}
	for _, e := range r.Samples {
		if e.Kind == KindNone {
			return fmt.Errorf("rollup %s-%d has a sample without its kind", r.Run, r.Seq)
		}
	}
	return nil
}

func (c *Cell) check() error {
	if c.Stage == holdover.StageUnknown || c.Op != holdover.Op(0).String() && opIndex(c.Op) == 0 {
		return errors.New("the stage or operation is not known")
	}
	var outcomes, answers, kinds, differed, unanswered, pairs uint64
	for _, o := range c.Outcomes {
		redis, err := outcomeIndex(o.Redis)
		mysql, err2 := outcomeIndex(o.MySQL)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		outcomes += o.Count
		if isAnswer(redis) && isAnswer(mysql) {
			answers += o.Count
		}
	}
	for _, t := range c.Kinds {
		if t.Kind == KindNone || t.Kind >= numKinds || t.Direction >= numDirections || t.Units < 0 {
			return errors.New("a count without its kind")
		}
		kinds += t.Count
		switch {
		case t.Kind == KindNotComparable:
			unanswered += t.Count
		case t.Kind.Divergence():
			differed += t.Count
		}
	}
	for _, t := range c.Times {
		pairs += t.Pairs
	}
	if outcomes != c.Eligible || kinds != c.Eligible || answers != c.Compared || kinds-unanswered != c.Compared ||
		differed != c.Differed || pairs > c.Compared {
		return fmt.Errorf("the counts don't add up: %d eligible, %d compared and %d differed, but %d and %d by outcome, %d, %d and %d by kind, %d pairs of times",
			c.Eligible, c.Compared, c.Differed, outcomes, answers, kinds, kinds-unanswered, differed, pairs)
	}
	return nil
}

func outcomeIndex(name string) (int, error) {
	for i := range numOutcomes {
		if holdover.Outcome(i).String() == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("outcome %q is not known to this version", name)
}
