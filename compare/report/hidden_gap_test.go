package report_test

import (
	"testing"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

// 4.9 % of the reserves oversell for lost mirrors, 4.9 % for races, and so on:
// each kind is within its own budget.
func TestSumOfBudgets(t *testing.T) {
	in := healthy()
	for i := range in.Rollups {
		c := &in.Rollups[i].Cells[0]
		n := uint64(0)
		for _, k := range []compare.Kind{compare.KindMirrorLost, compare.KindPoolShort, compare.KindStraddledFlip, compare.KindPreShadow} {
			c.Kinds = append(c.Kinds, compare.Tally{Kind: k, Direction: compare.DirectionOversell, Count: 200, Units: 200})
			n += 200
		}
		c.Kinds[0].Count -= n
		c.Outcomes[0].Count -= n
		c.Outcomes[1].Count += n
		c.Differed += n
	}
	r := mustNotPass(t, in)
	for _, o := range r.Coverage.Operations {
		if o.Op == "reserve" {
			t.Logf("%d of %d reserves differed", o.Differed, o.Compared)
		}
	}
}

// A failed gate "unexplained" with oversells may not be waived.
func TestOversellWaived(t *testing.T) {
	in := healthy()
	unexplained(&in.Rollups[0], compare.DirectionOversell, 7)
	in.Limits.Waived = []string{"unexplained", "unexplained-rate", "panics"}
	in.Rollups[0].Panics = 9
	mustNotPass(t, in)
}

// A waiver of a gate that does not exist is a typing mistake.
func TestWaiverOfNothing(t *testing.T) {
	in := healthy()
	in.Limits.Waived = []string{"verificaton"}
	if _, err := report.Build(in); err == nil {
		t.Error("accepted")
	}
}

// Redis can't be asked who lives: the command has no access to it.
func TestWhoLivesIsNotKnown(t *testing.T) {
	in := healthy()
	in.Instances = map[string][]holdover.Instance{}
	in.Notes = append(in.Notes, "pod pod-a: which instances live is not known: dial tcp: i/o timeout")
	mustNotPass(t, in)
}
