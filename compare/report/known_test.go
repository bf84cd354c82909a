package report_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

// TestClockWasWrong: counts that were kept before they ended, and counts without a
// length, take the verdict as long as they are in the period, whenever it is read.
func TestClockWasWrong(t *testing.T) {
	in := healthy()
	in.Ahead = []report.Ahead{{Pod: "pod-a", Instance: "checkout-2", Run: "run-checkout-2", From: began, To: began.Add(10 * time.Minute), By: 9 * time.Second}}
	if r := build(t, in); r.Verdict != report.Pass {
		t.Fatalf("a clock that is as good as right: %+v", r.Gates)
	}
	in.Ahead[0].By = 7 * time.Minute
	in.Read = in.Until.Add(48 * time.Hour)
	r := mustNotPass(t, in)
	onlyObjects(t, r, "instances", "the clock of checkout-2 (run run-checkout-2) was wrong: it was ahead by 7m0s or more")
	if i := incident(t, r, report.WhatClock); !i.From.Equal(began) || !i.To.Equal(began.Add(10*time.Minute)) {
		t.Errorf("%+v", i)
	}

	in = healthy() // it was set back: the counts go on where they were
	for i := range in.Rollups {
		if one := &in.Rollups[i]; one.Run == "run-checkout-2" && one.Seq == 3 {
			one.From = one.To
		}
	}
	onlyObjects(t, mustNotPass(t, in), "instances", "it was set back, and 1 rollup")
}

// TestWhoLivedThen: of a period that has ended, who was heard of around it and is not
// in it is missing, and who can't be known is named.
func TestWhoLivedThen(t *testing.T) {
	before, after := began.Add(-time.Minute), healthy().Until.Add(time.Minute)
	heard := func(instance, run string, started, at time.Time) report.Heard {
		return report.Heard{Pod: "pod-a", Instance: instance, Run: run, Started: started, From: at.Add(-time.Minute), To: at}
	}
	ended := heard("x", "run-x", before.Add(-time.Hour), before)
	ended.Ended = true
	for name, x := range map[string]struct {
		heard []report.Heard
		live  string
		want  string // empty: a pass
	}{
		"around it":            {[]report.Heard{heard("x", "run-x", before.Add(-time.Hour), before), heard("x", "run-x", before.Add(-time.Hour), after.Add(time.Minute))}, "", "of what it did in the period nothing is kept"},
		"after it":             {[]report.Heard{heard("x", "run-x", before, after.Add(time.Minute))}, "run-x", "of what it did in the period nothing is kept"},
		"before it":            {[]report.Heard{heard("x", "run-x", before.Add(-time.Hour), before)}, "", "never said that it ended"},
		"before it, and again": {[]report.Heard{heard("checkout-1", "run-x", before.Add(-2*time.Hour), before)}, "", ""}, // its name was started after that
		"replaced":             {[]report.Heard{heard("x", "run-x", before.Add(-time.Hour), before), heard("x", "run-y", after, after.Add(2*time.Minute))}, "", ""},
		"it ended":             {[]report.Heard{ended}, "", ""},
		"started since":        {[]report.Heard{heard("x", "run-x", after, after.Add(2*time.Minute))}, "run-x", ""},
		"lives, never heard":   {nil, "run-x", "lives now and was not heard of"},
		"nobody else":          {nil, "", ""},
	} {
		in := healthy()
		in.Past, in.Heard, in.Instances = true, x.heard, map[string][]holdover.Instance{"pod-a": {}}
		if x.live != "" {
			in.Instances["pod-a"] = []holdover.Instance{{Name: "x", ID: x.live}}
		}
		r := build(t, in)
		if x.want == "" {
			if g := gate(t, r, "instances"); !g.OK || !strings.Contains(g.Reason, "the period has ended") {
				t.Errorf("%s: %+v", name, g)
			}
			continue
		}
		if g := gate(t, r, "instances"); g.Verdict != report.NoVerdict || !strings.Contains(g.Reason, x.want) {
			t.Errorf("%s: %+v", name, g)
		}
		if r.Digest != build(t, healthy()).Digest {
			t.Errorf("%s: the digest is of who lives", name)
		}
	}
	in := healthy()
	in.Past, in.Instances = true, nil
	if g := gate(t, build(t, in), "instances"); !g.OK || !strings.Contains(g.Reason, "could not be asked of pod-a") {
		t.Errorf("nobody could be asked: %+v", g)
	}
}

// TestOutageInALongRollup: two minutes without MySQL are an incident in counts of an
// hour, with the seconds of its samples; as many errors as come in ten seconds are not.
func TestOutageInALongRollup(t *testing.T) {
	hour := func(away uint64, samples ...time.Duration) report.Input {
		in := quiet()
		one := in.Rollups[0]
		one.From, one.To = began, began.Add(time.Hour)
		without(&one, holdover.StoreMySQL, away)
		for i, after := range samples {
			e := event(one, holdover.StageShadow, uint64(i+1), compare.KindNotComparable, compare.DirectionNeutral, 0, "mysql did not answer")
			e.At, e.MySQL.Outcome = began.Add(after), "error"
			one.Samples = append(one.Samples, e)
		}
		in.Rollups = []compare.Rollup{one}
		return in
	}
	all := quiet().Rollups[0].Cells[0].Eligible
	for _, c := range quiet().Rollups[0].Cells[1:] {
		all += c.Eligible
	}
	r := build(t, hour(all/30, 17*time.Minute+12*time.Second, 18*time.Minute+41*time.Second))
	i := incident(t, r, report.WhatMySQLAway)
	if want := "the samples of it are of 2026-"; !strings.Contains(i.Text, "as many as come in about 1m5") && !strings.Contains(i.Text, "as many as come in about 2m0") || !strings.Contains(i.Text, ":17:12Z to ") || !strings.Contains(i.Text, ":18:41Z") {
		t.Errorf("%q has not %q", i.Text, want)
	}
	for _, i := range build(t, hour(all/360)).Incidents {
		if i.What == report.WhatMySQLAway {
			t.Errorf("ten seconds of an hour: %+v", i)
		}
	}
}

// TestWhyNothingWasPlanted: the gate says it itself.
func TestWhyNothingWasPlanted(t *testing.T) {
	in := healthy()
	unplant(&in)
	in.Unplanted = []string{"pod pod-a: no shop is reserved"}
	if g := gate(t, build(t, in), "selftest"); g.Verdict != report.NoVerdict || !strings.Contains(g.Reason, "nothing was planted (pod pod-a: no shop is reserved)") {
		t.Errorf("%+v", g)
	}
	if g := gate(t, build(t, healthy()), "selftest"); !g.OK || strings.Contains(g.Reason, "(pod") {
		t.Errorf("%+v", g)
	}
}

// TestNoiseIsACalibration: no other report is taken for one.
func TestNoiseIsACalibration(t *testing.T) {
	in := healthy()
	for _, source := range []report.Source{"", report.SourceMySQL, report.SourceFiles} {
		in.Source = source
		if b, err := report.NoiseOf(build(t, in)); !errors.Is(err, holdover.ErrInvalid) || b != nil || !strings.Contains(err.Error(), "holdover calibrate --out") {
			t.Errorf("%q: %v, %v", source, b, err)
		}
	}
	in.Source = report.SourceCalibration
	if b, err := report.NoiseOf(build(t, in)); err != nil || b == nil {
		t.Errorf("%v, %v", b, err)
	}
}

// TestSignCommand: each page ends with the command that records the decision about it.
func TestSignCommand(t *testing.T) {
	in := healthy()
	in.Source = report.SourceMySQL
	ok := build(t, in)
	in.Limits.Waived = []string{"latency"}
	waived := build(t, in)
	in.Limits.Waived = nil
	unplant(&in)
	not := build(t, in)
	in.Source = report.SourceFiles
	for _, x := range []struct {
		r         report.Report
		has, none []string
	}{
		{ok, []string{"holdover report sign --pod pod-a --since 2", "--digest " + ok.Digest, "--decision go\n", "--decision no-go\n"}, []string{"--override", "--report"}},
		{waived, []string{"--report FILE --digest " + waived.Digest}, []string{"--since 2"}},
		{not, []string{"--decision go --override REASON\n", "--digest " + not.Digest}, []string{"--decision go\n"}},
		{build(t, in), []string{"A report of files is not signed"}, []string{"holdover report sign --"}},
	} {
		for format, write := range formats() {
			if format == "json" {
				continue
			}
			var b bytes.Buffer
			if err := write(x.r, &b); err != nil {
				t.Fatal(err)
			}
			page := b.String()
			page = page[strings.LastIndex(page, "Decision"):] // the foot: reasons above may name the command too
			for _, s := range x.has {
				if !strings.Contains(page, s) {
					t.Errorf("the %s has not %q:\n%s", format, s, page)
				}
			}
			for _, s := range x.none {
				if strings.Contains(page, s) {
					t.Errorf("the %s has %q:\n%s", format, s, page)
				}
			}
		}
	}
}
