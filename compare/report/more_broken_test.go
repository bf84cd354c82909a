package report_test

import (
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

// Two processes share one instance name; one of them never reports. (Each has an
// ID of its own in the heartbeat.)
func TestBrokenNamesake(t *testing.T) {
	in := healthy()
	in.Instances["pod-a"] = append(in.Instances["pod-a"], holdover.Instance{Name: "checkout-2", ID: "z"})
	mustNotPass(t, in)
}

// A process falls silent and goes on living; its namesake is started a minute
// later, which is taken for its successor.
func TestBrokenSilentNamesake(t *testing.T) {
	in := healthy()
	var kept []compare.Rollup
	for _, r := range in.Rollups {
		if r.Instance == "checkout-1" || r.Seq <= 6 {
			kept = append(kept, r) // checkout-2 falls silent after an hour, and lives
		}
	}
	for seq := uint64(1); seq <= 12; seq++ {
		r := rollup("pod-a", "checkout-2", "run-namesake", seq, holdover.StageShadow)
		r.Started = began.Add(61 * time.Minute)
		r.From, r.To = r.Started.Add(time.Duration(seq-1)*10*time.Minute), r.Started.Add(time.Duration(seq)*10*time.Minute)
		kept = append(kept, r)
	}
	in.Rollups = kept
	in.Instances["pod-a"] = append(in.Instances["pod-a"], holdover.Instance{Name: "checkout-2", ID: "z"})
	mustNotPass(t, in)
}

// The baseline knows shadow only; joint is ten times slower than shadow was.
func TestBrokenBaselineOfAnotherStage(t *testing.T) {
	baseline := report.BaselineOf(build(t, timed(1, nil)))
	in, slow := timed(2, nil), timed(3, func(_, us float64) float64 { return 10 * us })
	for i := range in.Rollups {
		if in.Rollups[i].Seq > 9 {
			for j := range in.Rollups[i].Cells {
				in.Rollups[i].Cells[j].Stage = holdover.StageJoint
			}
			in.Rollups[i].Cells[0].Times = slow.Rollups[i].Cells[0].Times
		}
	}
	in.Fences = append(in.Fences, fence("pod-a", 90*time.Minute, 3, holdover.StageJoint, false, "flag", "flag says joint"))
	in.Baseline = baseline
	r := mustNotPass(t, in)
	t.Log(gate(t, r, "latency").Reason)
}

// A pod's report against another pod's baseline, which was a hundred times slower.
func TestBrokenBaselineOfAnotherPod(t *testing.T) {
	other := timed(1, func(_, us float64) float64 { return 100 * us })
	other.Pods, other.Instances = []string{"pod-b"}, nil
	for i := range other.Rollups {
		other.Rollups[i].Pod = "pod-b"
	}
	for i := range other.Fences {
		other.Fences[i].Pod = "pod-b"
	}
	in := timed(2, func(_, us float64) float64 { return 50 * us })
	in.Baseline = report.BaselineOf(build(t, other))
	mustNotPass(t, in)
}

// Ten minutes of the period, before its end, in which no call could be compared.
func TestBrokenTenMinutesWithoutComparing(t *testing.T) {
	in := healthy()
	for i := range in.Rollups {
		r := &in.Rollups[i]
		if r.Seq != 12 {
			continue
		}
		r.Samples = nil
		for j := range r.Cells {
			c := &r.Cells[j]
			c.Compared, c.Differed, c.Times = 0, 0, nil
			c.Kinds = []compare.Tally{{Kind: compare.KindNotComparable, Count: c.Eligible}}
			c.Outcomes = []compare.OutcomeCount{{Redis: "granted", MySQL: "unknown", Count: c.Eligible}}
		}
	}
	mustNotPass(t, in)
}

// The clock of one instance was ten minutes ahead: what it counted in the last
// ten minutes belongs to no period that ends now. It is counted as reporting.
func TestBrokenClockAhead(t *testing.T) {
	in := healthy()
	in.Rollups = append(in.Rollups, func() compare.Rollup {
		r := rollup("pod-a", "checkout-2", "run-checkout-2", 19, holdover.StageShadow)
		unexplained(&r, compare.DirectionOversell, 3)
		return r // begins at Until, by the clock of that instance
	}())
	mustNotPass(t, in)
}

// A failed gate "unexplained" with oversells may not be waived.
func TestBrokenOversellWaived(t *testing.T) {
	in := healthy()
	unexplained(&in.Rollups[0], compare.DirectionOversell, 7)
	in.Limits.Waived = []string{"unexplained", "unexplained-rate", "panics"}
	in.Rollups[0].Panics = 9
	mustNotPass(t, in)
}

// A waiver of a gate that does not exist is a typing mistake.
func TestBrokenWaiverOfNothing(t *testing.T) {
	in := healthy()
	in.Limits.Waived = []string{"verificaton"}
	if _, err := report.Build(in); err == nil {
		t.Error("accepted")
	}
}

// 4.9 % of the reserves oversell for lost mirrors, 4.9 % for races, and so on:
// each kind is within its own budget.
func TestBrokenSumOfBudgets(t *testing.T) {
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

// Redis can't be asked who lives: the command has no access to it.
func TestBrokenWhoLivesIsNotKnown(t *testing.T) {
	in := healthy()
	in.Instances = map[string][]holdover.Instance{}
	in.Notes = append(in.Notes, "pod pod-a: which instances live is not known: dial tcp: i/o timeout")
	mustNotPass(t, in)
}
