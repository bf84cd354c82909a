package report_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

// without makes part of what a rollup counted unanswered by MySQL or by Redis.
func without(r *compare.Rollup, store holdover.Store, n uint64) {
	c, name := &r.Cells[0], "mysql-away"
	lost := compare.OutcomeCount{Redis: "granted", MySQL: "error", Count: n}
	if store == holdover.StoreRedis {
		lost, name = compare.OutcomeCount{Redis: "error", MySQL: "granted", Count: n}, "redis-away"
	}
	c.Outcomes[0].Count -= n
	c.Outcomes = append(c.Outcomes, lost)
	c.Compared -= n
	c.Kinds[0].Count -= n
	c.Kinds[1].Count += n
	for i := range r.Strata {
		if r.Strata[i].Name == name {
			r.Strata[i] = compare.Stratum{Name: name, Eligible: n}
		}
	}
}

// quiet is healthy without the strata of an outage, which the others have by default.
func quiet() report.Input {
	in := healthy()
	for i := range in.Rollups {
		r := &in.Rollups[i]
		r.Strata = slices.DeleteFunc(r.Strata, func(s compare.Stratum) bool { return strings.HasSuffix(s.Name, "-away") })
		r.Strata = append(r.Strata, compare.Stratum{Name: "redis-away"}, compare.Stratum{Name: "mysql-away"})
	}
	return in
}

func incident(t *testing.T, r report.Report, what string) report.Incident {
	t.Helper()
	i := slices.IndexFunc(r.Incidents, func(i report.Incident) bool { return i.What == what })
	if i < 0 {
		t.Fatalf("no incident %s in %+v", what, r.Incidents)
	}
	return r.Incidents[i]
}

// TestIncidents: what happened is one list in the order of time, each with from
// when to when and its reason, in every format.
func TestIncidents(t *testing.T) {
	in := quiet()
	for i := range in.Rollups {
		r := &in.Rollups[i]
		switch {
		case r.Seq == 5 || r.Seq == 6: // 9:40 to 10:00, both instances
			without(r, holdover.StoreMySQL, 400)
		case r.Seq == 10 && r.Instance == "checkout-1":
			without(r, holdover.StoreRedis, 600)
		case r.Seq == 12:
			without(r, holdover.StoreMySQL, 3) // of 10,000: no outage
		}
	}
	at := func(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }
	for _, m := range []int{70, 80} {
		in.Verified = append(in.Verified, holdover.Verified{Pod: "pod-a", At: at(m), Differences: 2, Summary: "not clean: counter 2", By: "checkout-2"})
	}
	in.Incidents = []report.Incident{
		{Pod: "pod-a", What: report.WhatRebuild, From: at(85), To: at(86), By: "ada", Text: "Redis had lost its data"},
		{Pod: "pod-a", What: report.WhatRepair, From: at(87), To: at(87), By: "ada", Text: "3 changes in redis"},
	}
	for i := range in.Rollups {
		if r := &in.Rollups[i]; r.Instance == "checkout-2" && r.Seq > 15 { // it was killed after 15, and started again
			if r.Run += "-again"; r.Seq == 16 {
				in.Rollups[i-2].Torn = true
			}
			r.Seq, r.Started = r.Seq-15, at(152)
			r.From = later(r.From, r.Started)
		}
	}
	r := build(t, in)
	var names []string
	for _, i := range r.Incidents {
		names = append(names, i.What)
	}
	if got, want := strings.Join(names, " "), "mysql-away verification rebuild repair redis-away process-killed"; got != want {
		t.Errorf("incidents %s, want %s", got, want)
	}
	if !slices.IsSortedFunc(r.Incidents, func(a, b report.Incident) int { return a.From.Compare(b.From) }) {
		t.Errorf("not in the order of time: %+v", r.Incidents)
	}
	away := incident(t, r, report.WhatMySQLAway)
	if !away.From.Equal(at(40)) || !away.To.Equal(at(60)) || !strings.Contains(away.Text, "gave no answer to 1600 of 20000 operations") || !strings.Contains(away.Text, "error 1600") {
		t.Errorf("mysql away: %+v", away)
	}
	if v := incident(t, r, report.WhatVerification); !v.From.Equal(at(70)) || !v.To.Equal(at(80)) || !strings.Contains(v.Text, "2 verifications one after the other") || !strings.Contains(v.Text, "counter 2") {
		t.Errorf("verifications: %+v", v)
	}
	if k := incident(t, r, report.WhatProcess); !k.From.Equal(at(150)) || !k.To.Equal(at(152)) || !strings.Contains(k.Text, "started again") {
		t.Errorf("killed: %+v", k)
	}
	for format, write := range formats() {
		var b bytes.Buffer
		if err := write(r, &b); err != nil {
			t.Fatal(err)
		}
		for _, what := range append(names, "gave no answer to 600") {
			if !strings.Contains(strings.ReplaceAll(b.String(), "\\", ""), what) {
				t.Errorf("the %s does not have %s", format, what)
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// TestOutagesAreBounded: a store that fails now and then for weeks makes no endless
// list, and nothing is left out of the sum.
func TestOutagesAreBounded(t *testing.T) {
	p := new(report.Pulse)
	const n = 300
	for i := range n {
		r := rollup("pod-a", "checkout-1", "run", 1, holdover.StageShadow)
		r.From = began.Add(time.Duration(i) * time.Hour)
		r.To = r.From.Add(time.Minute)
		r.Strata = []compare.Stratum{{Name: "mysql-away", Eligible: 500}}
		p.Add(r)
	}
	in := healthy()
	in.Pulse, in.Since, in.Until = p, began, began.Add(n*time.Hour)
	r := build(t, in)
	all := slices.DeleteFunc(slices.Clone(r.Incidents), func(i report.Incident) bool { return i.What != report.WhatMySQLAway })
	if len(all) == 0 || len(all) > 60 || !slices.ContainsFunc(all, func(i report.Incident) bool { return strings.Contains(i.Text, "more stretches") }) {
		t.Errorf("%d outages are listed", len(all))
	}
}

// TestPeriodSaysWhatThereIs: a week was asked for and three hours are there: the page
// says so, and draws those.
func TestPeriodSaysWhatThereIs(t *testing.T) {
	in := healthy()
	in.Since = in.Until.Add(-7 * 24 * time.Hour)
	in.Fences[1].At = began // dual writing begins then
	r := build(t, in)
	if !r.Data.From.Equal(began) || !r.Data.To.Equal(in.Until) || r.Data.Seconds != 3*3600 || r.Data.Share < 0.017 || r.Data.Share > 0.018 {
		t.Errorf("%+v", r.Data)
	}
	g := gate(t, r, "gaps")
	if g.Verdict != report.Pass || !strings.Contains(g.Reason, "nothing is known of the 6 days 21 h") || !strings.Contains(g.Reason, "2026-11-02 09:00:00Z") {
		t.Errorf("gaps: %+v", g)
	}
	var text, page bytes.Buffer
	if err := errors.Join(r.WriteText(&text), r.WriteHTML(&page)); err != nil {
		t.Fatal(err)
	}
	if want := "(7 days); data: 3 h, 1.79 % of it, from 2026-11-02 09:00:00Z to 2026-11-02 12:00:00Z"; !strings.Contains(text.String(), want) || !strings.Contains(page.String(), want) {
		t.Errorf("the period is not told: %.900s", text.String())
	}
	if !strings.Contains(page.String(), ">08:51:00</text>") { // from a little before the first counts
		t.Error("the drawing is not of the part with data")
	}
	if whole := build(t, healthy()); whole.Data.Share != 1 || strings.Contains(gate(t, whole, "gaps").Reason, "nothing is known") {
		t.Errorf("a whole period: %+v, %s", whole.Data, gate(t, whole, "gaps").Reason)
	}
}

// TestSamplesSayWhy: proof, cause and what to do stand in each format, and what was
// verified later is no work any more.
func TestSamplesSayWhy(t *testing.T) {
	in := healthy()
	e := &in.Rollups[0].Samples[0]
	e.Proof = &holdover.Proof{
		Cause: "failed: dial tcp: connection refused", Overlapping: 3,
		Sides: []holdover.ItemSides{{Item: 7, Redis: 4, MySQL: []holdover.Stock{{Shop: 12, Item: 7, Group: 1, Available: 5, Issued: 2, Held: 2}}, Owed: 1}},
	}
	e.MySQL.Err, e.Next = "mysql did not have the hold", "verify and repair"
	lost := *e
	lost.Kind = compare.KindMirrorLost
	in.Rollups[0].Samples = append(in.Rollups[0].Samples, lost)
	for i := range in.Rollups[0].Cells[0].Kinds {
		if k := &in.Rollups[0].Cells[0].Kinds[i]; k.Kind == compare.KindLastUnitRace {
			k.Count, k.Units = 2, 3
		}
	}
	in.Rollups[0].Cells[0].Kinds = append(in.Rollups[0].Cells[0].Kinds, compare.Tally{Kind: compare.KindMirrorLost, Direction: compare.DirectionOversell, Count: 1, Units: 2})
	in.Rollups[0].Samples[1].Seq = 18
	r := build(t, in)
	for format, write := range formats() {
		if format == "json" {
			continue
		}
		var b bytes.Buffer
		if err := write(r, &b); err != nil {
			t.Fatal(err)
		}
		plain := strings.ReplaceAll(strings.ReplaceAll(b.String(), "\\", ""), "&#43;", "+")
		for _, want := range []string{"connection refused", "mysql did not have the hold", "item 7: redis 4, mysql 3 at group 1 free, 1 owed", "3 operations under way",
			"Nothing in the stores: both stores were compared completely at 2026-11-02 11:00:00Z"} {
			if !strings.Contains(plain, want) {
				t.Errorf("the %s does not say %q", format, want)
			}
		}
	}
}

// TestNextFitsWhatIsKnown: without a verification since, what was lost is work.
func TestNextFitsWhatIsKnown(t *testing.T) {
	in := healthy()
	in.Verified[0].At = began.Add(-time.Minute)
	unexplained(&in.Rollups[20], compare.DirectionOversell, 3)
	for i := range in.Rollups[20].Samples {
		in.Rollups[20].Samples[i].Next = "verify and repair"
	}
	text := func(in report.Input) string {
		var b bytes.Buffer
		if err := build(t, in).WriteText(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if s := text(in); !strings.Contains(s, "next      verify and repair\n") {
		t.Errorf("%s", s)
	}
	in.Verified[0].At = in.Until.Add(-time.Second)
	if s := text(in); !strings.Contains(s, "verify and repair Now both stores were compared completely at") {
		t.Errorf("%s", s)
	}
}

// TestDigestsOfTwoSources: what was read elsewhere has another digest, which the page
// says, and is not compared.
func TestDigestsOfTwoSources(t *testing.T) {
	in := healthy()
	in.Source = report.SourceMySQL
	mysql := build(t, in)
	in.Source = report.SourceFiles
	files := build(t, in)
	var text bytes.Buffer
	if err := files.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if mysql.Digest == files.Digest || !strings.Contains(text.String(), files.Digest+" (of event files") {
		t.Errorf("%s and %s:\n%.1500s", mysql.Digest, files.Digest, text.String())
	}
	if _, err := report.Diff(mysql, files); !errors.Is(err, holdover.ErrInvalid) {
		t.Errorf("two sources were compared: %v", err)
	}
	if d, err := report.Diff(mysql, mysql); err != nil || !d.SameData {
		t.Errorf("%+v, %v", d.SameData, err)
	}
}

// TestPlantsOfABusyMachine: what no store answered says nothing of the comparator;
// when it is most of all, neither does the rest; what it took for something else
// fails.
func TestPlantsOfABusyMachine(t *testing.T) {
	for name, x := range map[string]struct {
		got  compare.Kind
		n    uint64
		want report.Verdict
		says string
	}{
		"some unjudged": {compare.KindNotComparable, 50, report.Pass, "50 could not be judged"},
		"most unjudged": {compare.KindNotComparable, 5000, report.NoVerdict, "could not be judged"},
		"not seen":      {compare.KindNone, 1, report.NoVerdict, "missed 1 planted divergences (1 of"},
		"for a match":   {compare.KindMatch, 1, report.Fail, "took 1 for something else"},
		"another":       {compare.KindLocation, 1, report.Fail, "took 1 for something else"},
	} {
		in := healthy()
		in.Rollups[0].Planted = append(in.Rollups[0].Planted, compare.Planted{Want: compare.KindUnexplained, Got: x.got, Count: x.n})
		r := build(t, in)
		if g := gate(t, r, "selftest"); g.Verdict != x.want || !strings.Contains(g.Reason, x.says) {
			t.Errorf("%s: %+v", name, g)
		}
	}
	if g := gate(t, build(t, healthy()), "selftest"); !strings.Contains(g.Reason, "location 72") || !strings.Contains(g.Reason, "unexplained 72") {
		t.Errorf("it does not list what was planted: %s", g.Reason)
	}
}

// TestNoiseIsShown: a calibration that was given stands beside the figures, with
// whose it is.
func TestNoiseIsShown(t *testing.T) {
	in := healthy()
	in.Noise = report.BaselineOf(build(t, healthy()))
	in.Noise.Pods = []string{"calibration"}
	r := build(t, in)
	if r.Noise == nil || r.Noise.Digest != in.Noise.Digest || r.Noise.Compared == 0 || len(r.Noise.Operations) == 0 || !r.Noise.From.Equal(began) {
		t.Fatalf("%+v", r.Noise)
	}
	for format, write := range formats() {
		var b bytes.Buffer
		if err := write(r, &b); err != nil {
			t.Fatal(err)
		}
		if s := b.String(); !strings.Contains(s, in.Noise.Digest[:12]) || !strings.Contains(s, "calibration") {
			t.Errorf("the %s does not show it", format)
		}
	}
	if r := build(t, healthy()); r.Noise != nil {
		t.Errorf("noise of nothing: %+v", r.Noise)
	}
}
