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

// Two processes share one instance name; one of them never reports.
func TestNamesakeThatNeverReports(t *testing.T) {
	in := healthy()
	in.Instances["pod-a"] = append(in.Instances["pod-a"], holdover.Instance{Name: "checkout-2", ID: "run-namesake"})
	onlyObjects(t, mustNotPass(t, in), "instances", "checkout-2 of pod-a (run run-namesake) is live and has not reported")
}

// silentNamesake is a process that falls silent after an hour, and another one of
// its name that is started a minute later.
func silentNamesake() report.Input {
	in := healthy()
	in.Rollups = slices.DeleteFunc(in.Rollups, func(r compare.Rollup) bool { return r.Instance == "checkout-2" && r.Seq > 6 })
	for seq := uint64(1); seq <= 12; seq++ {
		r := rollup("pod-a", "checkout-2", "run-namesake", seq, holdover.StageShadow)
		r.Started = began.Add(61 * time.Minute)
		r.From, r.To = r.Started.Add(time.Duration(seq-1)*10*time.Minute), r.Started.Add(time.Duration(seq)*10*time.Minute)
		in.Rollups = append(in.Rollups, r)
	}
	in.Instances["pod-a"] = append(in.Instances["pod-a"], holdover.Instance{Name: "checkout-2", ID: "run-namesake"})
	in.Limits.MaxAhead = 2 * time.Minute // the namesake's last rollup
	return in
}

// A process falls silent and goes on living: its namesake is no successor, whether
// or not it can be told who lives.
func TestSilentNamesake(t *testing.T) {
	in := silentNamesake()
	onlyObjects(t, mustNotPass(t, in), "instances", "checkout-2 of pod-a (run run-checkout-2) fell silent at 2026-11-02 10:00:00Z; a process of its name was started at 2026-11-02 10:01:00Z")
	in.Instances = nil
	onlyObjects(t, mustNotPass(t, in), "instances", "(run run-checkout-2) fell silent at")
	for i := range in.Rollups { // it was killed, and its successor has sent what it left
		r := &in.Rollups[i]
		r.Torn = r.Run == "run-checkout-2" && r.Seq == 6
	}
	if r := build(t, in); r.Verdict != report.Pass || !strings.Contains(gate(t, r, "instances").Reason, "2 of 3 runs reported to their end") {
		t.Errorf("torn: %s: %+v", r.Verdict, gate(t, r, "instances"))
	}
}

// A process is killed 85 s before the report: its rollups of a minute end two
// minutes before the period does, or one, and then it lives no longer.
func TestKilledAMomentAgo(t *testing.T) {
	short := func(last time.Duration) report.Input {
		in := healthy()
		in.Until = began.Add(3*time.Hour + 2*time.Minute)
		for _, instance := range []string{"checkout-1", "checkout-2"} {
			for seq := uint64(19); seq <= 20; seq++ {
				r := rollup("pod-a", instance, "run-"+instance, seq, holdover.StageShadow)
				r.From = began.Add(3*time.Hour + time.Duration(seq-19)*time.Minute)
				r.To = r.From.Add(time.Minute)
				if instance == "checkout-1" || r.To.Sub(began.Add(3*time.Hour)) <= last {
					in.Rollups = append(in.Rollups, r)
				}
			}
		}
		for i := range in.Rollups { // rollups of a minute, of which one in ten counted something
			if r := &in.Rollups[i]; r.Seq <= 18 {
				r.Seq, r.From = 10*r.Seq, r.To.Add(-time.Minute)
			} else {
				r.Seq += 180 - 18
			}
		}
		in.Rollups = fill(in.Rollups)
		return in
	}
	if r := build(t, short(2*time.Minute)); r.Verdict != report.Pass {
		t.Errorf("both live: %+v", r.Gates)
	}
	if r := build(t, short(time.Minute)); r.Verdict != report.Pass {
		t.Errorf("its last rollup is on its way: %+v", r.Gates)
	}
	in := short(0)
	in.Instances = nil
	onlyObjects(t, mustNotPass(t, in), "instances", "checkout-2 of pod-a (run run-checkout-2) fell silent at 2026-11-02 12:00:00Z")
	in = short(time.Minute)
	in.Instances["pod-a"] = in.Instances["pod-a"][:1]
	onlyObjects(t, mustNotPass(t, in), "instances", "(run run-checkout-2) lives no longer and never said that it ended: what it did after 2026-11-02 12:01:00Z")
}

// fill puts an empty rollup of a minute between those of one run that are apart.
func fill(all []compare.Rollup) []compare.Rollup {
	last := map[string]uint64{}
	for _, r := range slices.Clone(all) {
		for seq := last[r.Run] + 1; seq < r.Seq; seq++ {
			empty := compare.Rollup{Pod: r.Pod, Instance: r.Instance, Run: r.Run, Seq: seq, Version: r.Version, Config: r.Config, Started: r.Started}
			empty.To = r.From.Add(-time.Duration(r.Seq-seq-1) * time.Minute)
			empty.From = empty.To.Add(-time.Minute)
			all = append(all, empty)
		}
		last[r.Run] = r.Seq
	}
	return all
}

// uncompared makes a rollup one of operations that MySQL did not take.
func uncompared(r *compare.Rollup) {
	r.Samples = nil
	for j := range r.Cells {
		c := &r.Cells[j]
		c.Compared, c.Differed, c.Times = 0, 0, nil
		c.Kinds = []compare.Tally{{Kind: compare.KindNotComparable, Count: c.Eligible}}
		c.Outcomes = []compare.OutcomeCount{{Redis: "granted", MySQL: "shed", Count: c.Eligible}}
	}
}

// Ten minutes of the period in which no call could be compared, of the pod or of
// one instance: the rest of it has coverage enough.
func TestTenMinutesWithoutComparing(t *testing.T) {
	for name, of := range map[string]string{"10m0s from 2026-11-02 10:50:00Z to 2026-11-02 11:00:00Z (0 of 10000 operations of pod-a)": "checkout", "0 of 5000 operations of checkout-2 of pod-a": "checkout-2"} {
		in := healthy()
		in.Limits.ThinCoverage = 0.4 // one of two is not the pod
		for i := range in.Rollups {
			if r := &in.Rollups[i]; r.Seq == 12 && strings.HasPrefix(r.Instance, of) {
				uncompared(r)
			}
		}
		onlyObjects(t, mustNotPass(t, in), "coverage:stretch", name)
		digest := build(t, in).Digest
		in.Limits.MaxThin = 10 * time.Minute
		r := build(t, in)
		if g := gate(t, r, "coverage:stretch"); r.Verdict != report.Pass || g.Value != 600 || !strings.Contains(g.Reason, name) {
			t.Errorf("%s: %s, %v: %s", name, r.Verdict, g.Value, g.Reason)
		}
		// The same hour, added up, with what its minutes were beside it.
		in.Limits.MaxThin = 0
		in.Pulse = new(report.Pulse)
		for _, r := range in.Rollups {
			in.Pulse.Add(r)
		}
		if r := build(t, in); r.Verdict != report.NoVerdict || r.Digest != digest {
			t.Errorf("%s: with its minutes beside it: %s, another digest: %v", name, r.Verdict, r.Digest != digest)
		}
	}
}

// Minutes without operations do not end a stretch, and a few operations are none.
func TestThinStretches(t *testing.T) {
	for _, x := range []struct {
		name  string
		quiet int // operations of the uncompared rollups, 12 and 14
		want  float64
	}{{"a pause between", 20, 1800}, {"a few operations", 5, 0}} {
		in := healthy()
		for i := range in.Rollups {
			r := &in.Rollups[i]
			if r.Seq < 12 || r.Seq > 14 {
				continue
			}
			r.Cells, r.Samples, r.Strata = nil, nil, nil
			if r.Seq != 13 {
				r.Bypassed = uint64(x.quiet) / 4
			}
		}
		if g := gate(t, build(t, in), "coverage:stretch"); g.Value != x.want || (g.Verdict == report.Pass) != (x.want == 0) {
			t.Errorf("%s: %v: %s", x.name, g.Value, g.Reason)
		}
	}
}

// The clock of one instance was ten minutes ahead: what it counted last belongs to
// no period that ends now.
func TestClockAhead(t *testing.T) {
	in := healthy()
	r := rollup("pod-a", "checkout-2", "run-checkout-2", 19, holdover.StageShadow)
	unexplained(&r, compare.DirectionOversell, 3)
	in.Rollups = append(in.Rollups, r)
	got := mustNotPass(t, in)
	says := "the clock of checkout-2 of pod-a (run run-checkout-2) is ahead by 10m0s or more"
	onlyObjects(t, got, "instances", says)
	if notes := strings.Join(got.Notes, "\n"); !strings.Contains(notes, says) {
		t.Errorf("no note: %s", notes)
	}
	in.Read = began.Add(4 * time.Hour) // an hour later it is nothing special
	if r := build(t, in); r.Verdict != report.Pass {
		t.Errorf("read later: %+v", r.Gates)
	}
	in.Instances, in.Read = nil, in.Until.Add(time.Minute)
	onlyObjects(t, mustNotPass(t, in), "instances", "is ahead by 9m0s")
}

// The baseline knows shadow only; joint is ten times slower than shadow was.
func TestBaselineOfAnotherStage(t *testing.T) {
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
	onlyObjects(t, mustNotPass(t, in), "latency", "of joint reserve")
}

// A pod's report against another pod's baseline, which was a hundred times slower.
func TestBaselineOfAnotherPod(t *testing.T) {
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
	r := mustNotPass(t, in)
	onlyObjects(t, r, "latency", "the baseline is of pod-b, and this report of pod-a")
	if r.Latency.Shifts == nil || len(r.Latency.Shifts) > 0 {
		t.Errorf("shifts %v", r.Latency.Shifts)
	}
}

// What was usual months ago is noted to be old.
func TestOldBaseline(t *testing.T) {
	for age, noted := range map[time.Duration]bool{29 * 24 * time.Hour: false, 31 * 24 * time.Hour: true} {
		in := timed(2, nil)
		in.Baseline = report.BaselineOf(build(t, timed(1, nil)))
		in.Baseline.To = in.Until.Add(-age)
		r := build(t, in)
		if said := strings.Contains(strings.Join(r.Notes, "\n"), "the baseline's period ended at"); said != noted || r.Verdict != report.Pass {
			t.Errorf("%s: noted %v, %s", age, said, r.Verdict)
		}
	}
}

// A verification says nothing of what happened after it.
func TestVerificationIsYoungerThanWhatHappened(t *testing.T) {
	lost := func(in *report.Input) { // of the last rollup, three hours in; the verification was after two
		c := &in.Rollups[len(in.Rollups)-1].Cells[0]
		c.Kinds[0].Count--
		c.Outcomes[0].Count--
		c.Outcomes[1].Count++
		c.Differed++
		c.Kinds = append(c.Kinds, compare.Tally{Kind: compare.KindMirrorLost, Direction: compare.DirectionUndersell, Count: 1, Units: 1})
	}
	away := func(stratum string) func(*report.Input) {
		return func(in *report.Input) {
			r := &in.Rollups[len(in.Rollups)-4]
			for i := range r.Strata {
				if r.Strata[i].Name == stratum {
					r.Strata[i] = compare.Stratum{Name: stratum, Eligible: 2000}
				}
			}
		}
	}
	incident := func(what string) func(*report.Input) {
		return func(in *report.Input) {
			in.Incidents = append(in.Incidents, report.Incident{Pod: "pod-a", What: what, From: began.Add(100 * time.Minute), To: began.Add(130 * time.Minute), By: "anna", Text: "3 changes"})
		}
	}
	for reason, change := range map[string]func(*report.Input){
		"older than the last lost mirror, in the counts until 2026-11-02 12:00:00Z": lost,
		"older than the last outage of MySQL, until 2026-11-02 11:50:00Z":           away("mysql-away"),
		"older than the last outage of Redis, until 2026-11-02 11:50:00Z":           away("redis-away"),
		"older than the last repair, until 2026-11-02 11:10:00Z":                    incident(report.WhatRepair),
		"older than the last rebuild of Redis, until 2026-11-02 11:10:00Z":          incident(report.WhatRebuild),
	} {
		in := healthy()
		change(&in)
		onlyObjects(t, mustNotPass(t, in), "verification", "pod-a: the newest, at 2026-11-02 11:00:00Z, is "+reason)
		again := in.Verified[0]
		again.At = began.Add(3 * time.Hour)
		in.Verified = append(in.Verified, again)
		if r := build(t, in); r.Verdict != report.Pass {
			t.Errorf("%s: verified again: %s: %+v", reason, r.Verdict, r.Gates)
		}
	}
}

// A waiver is told with the verdict; where everything is waived there is none.
func TestWaiversAreNamed(t *testing.T) {
	in := healthy()
	unplant(&in)
	in.Limits.Waived = []string{"selftest", "gaps"}
	r := build(t, in)
	if r.Verdict != report.Pass || r.Waived() != "selftest (no-verdict), gaps (passed anyway)" || len(r.Excused()) != 1 || r.Excused()[0].Name != "selftest" {
		t.Errorf("%s, waived %q, excused %v", r.Verdict, r.Waived(), r.Excused())
	}
	for format, write := range formats() {
		var b strings.Builder
		if err := write(r, &b); err != nil {
			t.Fatal(err)
		}
		if format != "json" && !strings.Contains(b.String(), fmt.Sprintf("is met; %d of %d gates passed, 2 waived: selftest (no-verdict), gaps (passed anyway)", len(r.Gates)-2, len(r.Gates))) {
			t.Errorf("%s does not name the waiver beside the verdict", format)
		}
	}
	in.Limits.Waived = nil
	for _, g := range build(t, in).Gates {
		in.Limits.Waived = append(in.Limits.Waived, g.Name)
	}
	if r := build(t, in); r.Verdict != report.NoVerdict || !strings.Contains(textOf(t, r), "every gate was waived") {
		t.Errorf("everything is waived: %s", r.Verdict)
	}
	unexplained(&in.Rollups[0], compare.DirectionOversell, 1)
	if text := textOf(t, build(t, in)); !strings.Contains(text, "- unexplained: differences that no evidence explains") {
		t.Error("a failure that was waived is not among the reasons: " + fmt.Sprintf("%.800s", text))
	}
}
