package report_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

func mustNotPass(t *testing.T, in report.Input) report.Report {
	t.Helper()
	r := build(t, in)
	if r.Verdict == report.Pass {
		t.Errorf("verdict pass: %+v", r.Gates)
	}
	return r
}

// A stratum that must be seen was never compared.
func TestBrokenMustSeeNeverCompared(t *testing.T) {
	in := healthy()
	for i := range in.Rollups {
		for j := range in.Rollups[i].Strata {
			if s := &in.Rollups[i].Strata[j]; s.Name == "refused" || s.Name == "last-unit" {
				s.Eligible, s.Compared, s.Differed = 10, 0, 0 // 10 of 1000 reserves: coverage of reserve stays 99 %
			}
		}
	}
	mustNotPass(t, in)
}

// A claim happened 19 times in all, and none could be compared.
func TestBrokenRareOperationNeverCompared(t *testing.T) {
	in := healthy()
	for i := range in.Rollups {
		r := &in.Rollups[i]
		r.Cells = slices.DeleteFunc(r.Cells, func(c compare.Cell) bool { return c.Op == "claim" })
		for j := range r.Strata {
			if s := &r.Strata[j]; s.Name == "claim" {
				s.Eligible, s.Compared, s.Differed = 0, 0, 0
			}
		}
	}
	r := &in.Rollups[0]
	r.Cells = append(r.Cells, compare.Cell{Stage: holdover.StageShadow, Op: "claim", Eligible: 19,
		Outcomes: []compare.OutcomeCount{{Redis: "granted", MySQL: "error", Count: 19}},
		Kinds:    []compare.Tally{{Kind: compare.KindNotComparable, Count: 19}}})
	for j := range r.Strata {
		if s := &r.Strata[j]; s.Name == "claim" {
			s.Eligible = 19
		}
	}
	mustNotPass(t, in)
}

// One of 20 instances can't reach MySQL: nothing of it was ever compared.
func TestBrokenOneInstanceNeverCompared(t *testing.T) {
	in := healthy()
	for seq := uint64(1); seq <= 18; seq++ {
		r := rollup("pod-a", "checkout-3", "run-checkout-3", seq, holdover.StageShadow)
		r.Samples, r.Planted, r.Connections = nil, nil, nil
		for j := range r.Cells {
			r.Cells[j] = compare.Cell{Stage: holdover.StageShadow, Op: r.Cells[j].Op, Eligible: 100,
				Outcomes: []compare.OutcomeCount{{Redis: "granted", MySQL: "error", Count: 100}},
				Kinds:    []compare.Tally{{Kind: compare.KindNotComparable, Count: 100}}}
		}
		for j := range r.Strata {
			r.Strata[j].Eligible, r.Strata[j].Compared, r.Strata[j].Differed = 20, 0, 0
		}
		in.Rollups = append(in.Rollups, r)
	}
	mustNotPass(t, in)
}

// Seven days were asked for; there are three hours of it, while the pod was in
// shadow all the time.
func TestBrokenSixDaysAndMoreAreMissing(t *testing.T) {
	in := healthy()
	in.Since = began.Add(-7 * 24 * time.Hour)
	for i := range in.Fences {
		in.Fences[i].At = in.Fences[i].At.Add(-8 * 24 * time.Hour)
	}
	mustNotPass(t, in)
}

// The pod is in joint since ten minutes; not one call of joint was compared. The
// report that a person signs for the step to mysql passes.
func TestBrokenNothingOfThePresentStage(t *testing.T) {
	in := healthy()
	in.Fences = append(in.Fences, fence("pod-a", 175*time.Minute, 3, holdover.StageJoint, false, "flag", "flag says mysql"))
	r := mustNotPass(t, in)
	for _, s := range r.NotExercised {
		if strings.Contains(s, "joint") {
			t.Log("it even says so:", s)
		}
	}
}

// One kind was planted once, a week ago, by the version before this one.
func TestBrokenPlantedOnceByAnOldVersion(t *testing.T) {
	in := healthy()
	for i := range in.Rollups {
		if i > 0 {
			in.Rollups[i].Version = "v0.6.0"
		}
		in.Rollups[i].Planted = nil
	}
	in.Rollups[0].Planted = []compare.Planted{{Want: compare.KindLocation, Got: compare.KindLocation, Count: 1}}
	mustNotPass(t, in)
}

// The disk was full for two hours, so that the open period was not rewritten;
// then the process was killed. The next start adopts the old file as torn.
func TestBrokenTornAfterAFullDisk(t *testing.T) {
	in := healthy()
	in.Instances = nil
	var kept []compare.Rollup
	for _, r := range in.Rollups {
		if r.Instance == "checkout-1" || r.Seq <= 6 { // checkout-2: to the first hour only
			r.Torn = r.Instance == "checkout-2" && r.Seq == 6
			kept = append(kept, r)
		}
	}
	again := rollup("pod-a", "checkout-2", "run-checkout-2b", 1, holdover.StageShadow) // it was started again two hours later
	again.Started = began.Add(170 * time.Minute)
	again.From, again.To = again.Started, began.Add(3*time.Hour)
	in.Rollups = append(kept, again)
	r := mustNotPass(t, in)
	t.Log(r.Notes)
}
