package report_test

import (
	"fmt"
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
func TestMustSeeNeverCompared(t *testing.T) {
	in := healthy()
	for i := range in.Rollups {
		for j := range in.Rollups[i].Strata {
			if s := &in.Rollups[i].Strata[j]; s.Name == "refused" || s.Name == "last-unit" {
				s.Eligible, s.Compared, s.Differed = 10, 0, 0 // 10 of 1000 reserves: coverage of reserve stays 99 %
			}
		}
	}
	r := mustNotPass(t, in)
	if g := gate(t, r, "exercised"); g.OK || !strings.Contains(g.Reason, "never compared: last-unit (360), refused (360)") {
		t.Errorf("exercised: %s: %s", g.Verdict, g.Reason)
	}
}

// A claim happened 19 times in all, and none could be compared.
func TestRareOperationNeverCompared(t *testing.T) {
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
			s.Eligible, s.Compared = 19, 1 // the gate of the stratum is not what is meant here
		}
	}
	onlyObjects(t, mustNotPass(t, in), "coverage:shadow/claim", "0 of 19")
}

// One of 20 instances can't reach MySQL: nothing of it was ever compared.
func TestOneInstanceNeverCompared(t *testing.T) {
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
	addLive(&in, "checkout-3")
	in.Limits.MinCoverage, in.Limits.MaxThin = 0.6, 24*time.Hour // of the pod it is two thirds
	onlyObjects(t, mustNotPass(t, in), "coverage:instances", "pod-a/checkout-3: 0 of 9000")
}

// Seven days were asked for; there are three hours of it, while the pod was in
// shadow all the time.
func TestSixDaysAndMoreAreMissing(t *testing.T) {
	in := healthy()
	in.Since = began.Add(-7 * 24 * time.Hour)
	for i := range in.Fences {
		in.Fences[i].At = in.Fences[i].At.Add(-8 * 24 * time.Hour)
	}
	onlyObjects(t, mustNotPass(t, in), "gaps", "no instance of pod-a counted anything from 2026-10-26 09:00:00Z to 2026-11-02 09:00:00Z")
}

// The pod is in joint since ten minutes; not one call of joint was compared. The
// report that a person signs for the step to mysql passes.
func TestNothingOfThePresentStage(t *testing.T) {
	in := healthy()
	in.Fences = append(in.Fences, fence("pod-a", 175*time.Minute, 3, holdover.StageJoint, false, "flag", "flag says mysql"))
	onlyObjects(t, mustNotPass(t, in), "exercised", "nothing was compared in joint, where pod-a is since 2026-11-02 11:55:00Z")
}

// What was compared in joint before the pod went back says nothing of joint now;
// neither do a few calls.
func TestPresentStageBeforeItsTime(t *testing.T) {
	in := healthy()
	for i := range in.Rollups {
		if r := &in.Rollups[i]; r.Seq == 4 {
			for j := range r.Cells {
				r.Cells[j].Stage = holdover.StageJoint
			}
		}
	}
	in.Fences = append(in.Fences,
		fence("pod-a", 30*time.Minute, 3, holdover.StageJoint, false, "flag", "flag says mysql"),
		fence("pod-a", 40*time.Minute, 4, holdover.StageShadow, false, "flag", "flag says shadow"),
		fence("pod-a", 170*time.Minute, 5, holdover.StageJoint, false, "flag", "flag says mysql"),
		fence("pod-a", 175*time.Minute, 6, holdover.StageJoint, false, "anna", "a new epoch, the same stage"))
	onlyObjects(t, mustNotPass(t, in), "exercised", "nothing was compared in joint, where pod-a is since 2026-11-02 11:50:00Z")

	last := &in.Rollups[len(in.Rollups)-1]
	last.Cells = append(last.Cells, compare.Cell{Stage: holdover.StageJoint, Op: "reserve", Eligible: 19, Compared: 19,
		Outcomes: []compare.OutcomeCount{{Redis: "granted", MySQL: "granted", Count: 19}}, Kinds: []compare.Tally{{Kind: compare.KindMatch, Count: 19}}})
	onlyObjects(t, mustNotPass(t, in), "exercised", "only 19 operations were compared in joint")
}

// One kind was planted once, a week ago, by the version before this one.
func TestPlantedOnceByAnOldVersion(t *testing.T) {
	in := healthy()
	for i := range in.Rollups {
		if i > 0 {
			in.Rollups[i].Version = "v0.6.0"
		}
		in.Rollups[i].Planted = nil
	}
	in.Rollups[0].Planted = []compare.Planted{{Want: compare.KindLocation, Got: compare.KindLocation, Count: 1}}
	onlyObjects(t, mustNotPass(t, in), "selftest", "foreign-write")
}

// The disk was full for two hours, so that the open period was not rewritten;
// then the process was killed. The next start adopts the old file as torn.
func TestTornAfterAFullDisk(t *testing.T) {
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
	onlyObjects(t, r, "gaps", "1h50m0s, of checkout-2 of pod-a")
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "was killed after 2026-11-02 10:00:00Z and started again at 2026-11-02 11:50:00Z") {
		t.Errorf("notes: %s", notes)
	}
}

// Every kind was planted and caught: by the version before this one.
func TestPlantsOfAnOldVersionDoNotCount(t *testing.T) {
	in := healthy()
	for i := range in.Rollups {
		if r := &in.Rollups[i]; r.Seq > 9 {
			r.Version = "v0.6.0"
			r.Planted = nil
		}
	}
	onlyObjects(t, mustNotPass(t, in), "selftest", "by version v0.6.0, the newest")
	for i := range in.Rollups { // all by the newest, nothing by the old one
		if r := &in.Rollups[i]; r.Seq > 9 {
			r.Planted = rollup(r.Pod, r.Instance, r.Run, r.Seq, holdover.StageShadow).Planted
		} else {
			r.Planted = nil
		}
	}
	if r := build(t, in); r.Verdict != report.Pass {
		t.Errorf("planted by the newest version: %+v", r.Gates)
	}
}

func TestUndecided(t *testing.T) {
	for _, x := range []struct {
		undecided uint64
		limits    report.Limits
		verdict   report.Verdict
		reason    string
	}{
		{0, report.Limits{}, report.Pass, "every difference could be judged"},
		{90, report.Limits{}, report.Pass, "90 differences never stood still long enough to be judged, 90 allowed"}, // 0.0005 of 180000
		{91, report.Limits{}, report.NoVerdict, "91 differences never stood still"},
		{5, report.Limits{UndecidedShare: 1e-9}, report.Pass, "5 allowed"},
		{6, report.Limits{UndecidedShare: 1e-9}, report.NoVerdict, "5 allowed"},
	} {
		in := healthy()
		in.Limits = x.limits
		if x.undecided > 0 {
			in.Rollups[0].Strata = append(in.Rollups[0].Strata, compare.Stratum{Name: compare.StratumUndecided, Eligible: x.undecided})
		}
		r := build(t, in)
		if g := gate(t, r, "undecided"); g.Verdict != x.verdict || r.Verdict != x.verdict || !strings.Contains(g.Reason, x.reason) {
			t.Errorf("%d undecided: report %s, gate %s: %s", x.undecided, r.Verdict, g.Verdict, g.Reason)
		}
		for _, said := range r.NotExercised {
			if strings.Contains(said, compare.StratumUndecided) {
				t.Errorf("%d undecided: %s", x.undecided, said)
			}
		}
	}
	in := healthy()
	in.Limits.MustSee = []string{compare.StratumUndecided}
	if _, err := report.Build(in); err == nil {
		t.Error("undecided differences can be demanded")
	}
}

// Repairs and rebuilds stand among the kills, in their order and in the digest.
func TestIncidentsOfTheCaller(t *testing.T) {
	in := scenarios()["flip-and-kill"]
	before := build(t, in)
	for _, x := range []struct {
		pod  string
		from time.Duration
	}{{"pod-a", 130 * time.Minute}, {"pod-b", time.Hour}, {"pod-a", 30 * time.Minute}, {"pod-a", -time.Hour}, {"pod-a", 4 * time.Hour}} {
		in.Incidents = append(in.Incidents, report.Incident{Pod: x.pod, What: "repair", From: began.Add(x.from), To: began.Add(x.from + time.Minute), By: "anna", Text: "3 counters"})
	}
	in.Incidents = append(in.Incidents, report.Incident{Pod: "pod-a", What: "rebuild", From: began.Add(150 * time.Minute), To: began.Add(5 * time.Hour)})
	r := build(t, in)
	var got []string
	for _, i := range r.Incidents {
		got = append(got, fmt.Sprint(i.What, " ", i.From.Sub(began), " to ", i.To.Sub(began), " ", i.Open))
	}
	if want := []string{"repair 30m0s to 31m0s false", "kill 1h40m0s to 2h0m0s false", "repair 2h10m0s to 2h11m0s false", "rebuild 2h30m0s to 3h0m0s true"}; !slices.Equal(got, want) {
		t.Errorf("incidents %v, want %v", got, want)
	}
	if r.Digest == before.Digest {
		t.Error("incidents are no part of the digest")
	}
	if text := textOf(t, r); !strings.Contains(text, "kills 1, drills 0, verifications with differences 0, rebuild 1, repair 2") {
		t.Errorf("the header does not count them:\n%s", text)
	}
}

func TestPageNamesWhatIsKnown(t *testing.T) {
	in := healthy()
	in.Rollups[0].Connections[0].Tag = ""
	in.Rollups = slices.DeleteFunc(in.Rollups, func(r compare.Rollup) bool { return r.Seq > 16 })
	in.Fences = append(in.Fences, fence("pod-a", 170*time.Minute, 3, holdover.StageJoint, false, "flag", "flag says mysql"),
		fence("pod-b", -24*time.Hour, 1, holdover.StageRedis, false, "migrate", "first start"))
	in.Pods = append(in.Pods, "pod-b")
	r := build(t, in)
	text := textOf(t, r)
	for _, want := range []string{"untagged", "stages     redis, shadow, joint\n", "nothing of the pod was observed in the period"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q:\n%s", want, text)
		}
	}
	if len(r.UnknownPods) > 0 || strings.Contains(text, "check its name") {
		t.Errorf("pod-b is in the data, and unknown: %v", r.UnknownPods)
	}
}

func textOf(t *testing.T, r report.Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// onlyObjects fails the test unless the gate alone objects, and for this reason.
func onlyObjects(t *testing.T, r report.Report, name, reason string) {
	t.Helper()
	for _, g := range r.Gates {
		if g.OK == (g.Name == name) {
			t.Errorf("gate %s: %s: %s", g.Name, g.Verdict, g.Reason)
		}
		if g.Name == name && !strings.Contains(g.Reason, reason) {
			t.Errorf("gate %s says %q, want %q in it", name, g.Reason, reason)
		}
	}
}
