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

// TestWaiverOfAFamily: each gate that a waiver covers is named and counted, and those
// that passed, were waived, and neither are all.
func TestWaiverOfAFamily(t *testing.T) {
	in := healthy()
	unplant(&in)
	in.Limits.Waived = []string{"coverage", "selftest"}
	r := build(t, in)
	covered := 0
	for _, g := range r.Gates {
		if g.Waived {
			covered++
			if !strings.Contains(r.Waived(), g.Name+" (") {
				t.Errorf("%s is waived in silence: %s", g.Name, r.Waived())
			}
		}
	}
	want := fmt.Sprintf("%d of %d gates passed, %d waived: coverage (passed anyway), coverage:instances (passed anyway)", len(r.Gates)-covered, len(r.Gates), covered)
	if covered < 4 || !strings.HasPrefix(r.Tally(), want) {
		t.Errorf("%s, want %s", r.Tally(), want)
	}
	// A failure is not excused, and counted as what it is.
	unexplained(&in.Rollups[0], compare.DirectionOversell, 1)
	in.Limits.Waived = []string{"unexplained", "selftest"}
	r = build(t, in)
	not := 0
	for _, g := range r.Gates {
		if !g.OK && g.Name != "selftest" {
			not++
		}
	}
	want = fmt.Sprintf("%d of %d gates passed, %d not, 1 waived: selftest (no-verdict)", len(r.Gates)-1-not, len(r.Gates), not)
	if r.Verdict != report.Fail || not == 0 || r.Tally() != want {
		t.Errorf("%s: %s, want %s", r.Verdict, r.Tally(), want)
	}
	if text := textOf(t, r); !strings.Contains(text, want) {
		t.Errorf("not beside the verdict:\n%.500s", text)
	}
}

// TestDrillsAreNoKills: a rehearsal is told and counted as one, with what it measured,
// and a kill that takes its latch over is a kill.
func TestDrillsAreNoKills(t *testing.T) {
	in := healthy()
	in.Fences = append(in.Fences,
		fence("pod-a", 10*time.Minute, 3, holdover.StageShadow, true, "ada", "drill: weekly"),
		fence("pod-a", 11*time.Minute, 4, holdover.StageShadow, false, "ada", "drill: weekly"),
		fence("pod-a", 20*time.Minute, 5, holdover.StageShadow, true, "ada", "drill: again"),
		fence("pod-a", 21*time.Minute, 6, holdover.StageShadow, true, "ben", "it is slow"),
		fence("pod-a", 25*time.Minute, 7, holdover.StageShadow, false, "ben", "mended"))
	in.Drills = []holdover.Drill{
		{Pod: "pod-a", Epoch: 3, At: began.Add(11 * time.Minute), KillMS: 412, RestoreMS: 37, Instances: 2, OK: true},
		{Pod: "pod-a", Epoch: 5},
	}
	var got []string
	r := build(t, in)
	for _, i := range r.Incidents {
		got = append(got, fmt.Sprint(i.What, " ", i.From.Sub(began), " to ", i.To.Sub(began), " ", i.Open))
	}
	if want := []string{"drill 10m0s to 11m0s false", "drill 20m0s to 21m0s false", "kill 21m0s to 25m0s false"}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for i, want := range []string{
		"passed: acknowledged by 2 instances after 412 ms, the restore after 37 ms", "taken over by ben at 2026-11-02 09:21:00Z: it is slow; its outcome was not kept", "restored by ben",
	} {
		if !strings.Contains(r.Incidents[i].Text, want) {
			t.Errorf("%s, want %s", r.Incidents[i].Text, want)
		}
	}
	if text := textOf(t, r); !strings.Contains(text, "kills 1, drills 2, verifications with") {
		t.Errorf("%.900s", text)
	}
	var page strings.Builder
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	if kills, drills := strings.Count(page.String(), "▲ kill"), strings.Count(page.String(), "▲ drill"); kills != 1 || drills != 2 {
		t.Errorf("%d kills and %d drills are drawn", kills, drills)
	}
	in.Drills[0].OK, in.Drills[0].Problem = false, "two is at epoch 2"
	failed := build(t, in)
	if !strings.Contains(failed.Incidents[0].Text, "failed: two is at epoch 2") || failed.Digest == r.Digest {
		t.Errorf("%s, the same digest: %v", failed.Incidents[0].Text, failed.Digest == r.Digest)
	}
}

// TestFilesOfALivingProcess: a file does not tell a running process from a killed one,
// and holds nothing of the agreement.
func TestFilesOfALivingProcess(t *testing.T) {
	in := healthy()
	in.Source, in.Fences, in.Verified, in.Instances = report.SourceFiles, nil, nil, nil
	in.Rollups[len(in.Rollups)-1].Torn = true
	r := build(t, in)
	if i := incident(t, r, report.WhatProcessOpen); !strings.Contains(i.Text, "is running, or was killed") {
		t.Errorf("%+v", i)
	}
	if text := textOf(t, r); strings.Contains(text, report.WhatProcess) || strings.Contains(text, "was killed at about") || strings.Contains(text, "kills 0") ||
		!strings.Contains(text, "kills, drills, verifications and repairs: not in event files, process-open 1") || !strings.Contains(text, "running or killed") {
		t.Errorf("%.3000s", text)
	}
	if g := gate(t, r, "verification"); g.Verdict != report.NoVerdict || !strings.Contains(g.Reason, "not in event files") || strings.Contains(g.Reason, "holdover verify") {
		t.Errorf("%+v", g)
	}
	// Its next start tells.
	again := rollup("pod-a", "checkout-2", "run-again", 1, holdover.StageShadow)
	again.Started, again.From, again.To = in.Until.Add(time.Second), in.Until.Add(time.Second), in.Until.Add(time.Minute)
	in.Rollups, in.Until = append(in.Rollups, again), in.Until.Add(time.Minute)
	incident(t, build(t, in), report.WhatProcess)
	in.Source = report.SourceMySQL
	in.Rollups = in.Rollups[:len(in.Rollups)-1]
	incident(t, build(t, in), report.WhatProcess)
}

// TestDigestIsOfTheData: what it is compared with is named apart.
func TestDigestIsOfTheData(t *testing.T) {
	in := healthy()
	plain := build(t, in)
	in.Noise, in.Baseline = report.BaselineOf(plain), report.BaselineOf(plain)
	in.Noise.Digest, in.Baseline.Digest = strings.Repeat("a", 64), strings.Repeat("b", 64)
	r := build(t, in)
	if r.Digest != plain.Digest {
		t.Error("the same data has another digest")
	}
	if text := textOf(t, r); !strings.Contains(text, "digest aaaaaaaaaaaa)") || !strings.Contains(text, "the report with digest bbbbbbbbbbbb") {
		t.Errorf("%.1500s", text)
	}
}

// TestVerifiedAfterThePeriod: one that came after the end is not asked for again.
func TestVerifiedAfterThePeriod(t *testing.T) {
	in := healthy()
	late := in.Verified[0]
	late.At = in.Until.Add(30 * time.Second)
	before := build(t, in)
	in.Verified = append(in.Verified, late)
	if r := build(t, in); r.Digest != before.Digest || !gate(t, r, "verification").OK {
		t.Errorf("what came later is of this data: %+v", gate(t, r, "verification"))
	}
	in.Verified = in.Verified[1:]
	g := gate(t, build(t, in), "verification")
	if g.Verdict != report.NoVerdict || strings.Contains(g.Reason, "run holdover verify") ||
		!strings.Contains(g.Reason, "the newest verification (2026-11-02 12:00:30Z, clean) is after the period's end: repeat the report in a minute") {
		t.Errorf("%+v", g)
	}
	in.Verified[0].Clean, in.Verified[0].Summary = false, "3 items differ"
	if g := gate(t, build(t, in), "verification"); !strings.Contains(g.Reason, "not clean: 3 items differ") || strings.Contains(g.Reason, "repeat") {
		t.Errorf("%+v", g)
	}
	in.Verified = nil
	if g := gate(t, build(t, in), "verification"); !strings.Contains(g.Reason, "run holdover verify --pod pod-a") {
		t.Errorf("%+v", g)
	}
}

// TestDiffOfWhatIsNew: no share is not a share of nothing.
func TestDiffOfWhatIsNew(t *testing.T) {
	a, b := healthy(), healthy()
	for i := range a.Rollups {
		a.Rollups[i].Cells = slices.DeleteFunc(a.Rollups[i].Cells, func(c compare.Cell) bool { return c.Op == "expire" })
	}
	says := func(a, b report.Report) (string, report.ShareChange) {
		t.Helper()
		d, err := report.Diff(a, b)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := d.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if strings.Contains(line, "shadow expire") && strings.Contains(line, "99.00 %") && !strings.Contains(line, "(") {
				return strings.Join(strings.Fields(line), " "), d.Coverage[slices.IndexFunc(d.Coverage, func(s report.ShareChange) bool { return s.Of == "shadow expire" })]
			}
		}
		t.Fatal(text.String())
		return "", report.ShareChange{}
	}
	without, with := build(t, a), build(t, b)
	if line, s := says(without, with); line != "shadow expire new 99.00 %" || !s.New || s.Gone {
		t.Errorf("%s, %+v", line, s)
	}
	if line, s := says(with, without); line != "shadow expire 99.00 % did not occur" || s.New || !s.Gone {
		t.Errorf("%s, %+v", line, s)
	}
	if line, s := says(with, with); line != "shadow expire 99.00 % 99.00 %" || s.New || s.Gone {
		t.Errorf("%s, %+v", line, s)
	}
}

// TestPassSaysThatLatencyWasNotJudged: beside the verdict, in every format, and
// only without a baseline.
func TestPassSaysThatLatencyWasNotJudged(t *testing.T) {
	in := healthy()
	r := build(t, in)
	const want = "latency: not judged, no --baseline; MySQL"
	if not := r.LatencyNotJudged(); r.Verdict != report.Pass || !strings.HasPrefix(not, want) || !strings.Contains(not, "times Redis' (shadow reserve: 1") {
		t.Errorf("%s: %s", r.Verdict, not)
	}
	for format, write := range formats() {
		var b strings.Builder
		if err := write(r, &b); err != nil {
			t.Fatal(err)
		}
		if format != "json" && !strings.Contains(b.String(), want) {
			t.Errorf("%s does not say so", format)
		}
	}
	in.Baseline = report.BaselineOf(r)
	if r = build(t, in); r.LatencyNotJudged() != "" || strings.Contains(textOf(t, r), "latency: not judged") {
		t.Errorf("with a baseline: %s", r.LatencyNotJudged())
	}
}
