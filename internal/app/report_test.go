package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
	"holdover/killswitch"
	"holdover/mysqlpool"
)

// TestParsePeriod: durations back from the last full minute, which is the end
// too, dates and times; anything else is refused with the field's name.
func TestParsePeriod(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	late := now.Add(59*time.Second + 999*time.Millisecond)
	for text, want := range map[string]time.Time{
		"7d": now.AddDate(0, 0, -7), "2w": now.AddDate(0, 0, -14), "90m": now.Add(-90 * time.Minute), "1h30m": now.Add(-90 * time.Minute),
		"2026-03-01": time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), "2026-03-01T10:00:00+02:00": time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC),
	} {
		if from, to, err := ParsePeriod(text, "", late); err != nil || !from.Equal(want) || !to.Equal(now) {
			t.Errorf("%s: %s, %s, %v", text, from, to, err)
		}
	}
	if _, to, err := ParsePeriod("7d", "", now.Add(arriving-time.Millisecond)); err != nil || !to.Equal(now.Add(-time.Minute)) {
		t.Errorf("a minute whose counts are on their way: until %s, %v", to, err)
	}
	if _, to, err := ParsePeriod("7d", "", now.Add(arriving)); err != nil || !to.Equal(now) {
		t.Errorf("a minute whose counts have arrived: until %s, %v", to, err)
	}
	if from, to, err := ParsePeriod("7d", "1d", late); err != nil || !from.Equal(now.AddDate(0, 0, -7)) || !to.Equal(now.AddDate(0, 0, -1)) {
		t.Errorf("%s, %s, %v", from, to, err)
	}
	for _, bad := range [][2]string{
		{"", ""}, {"0d", ""}, {"-1d", ""}, {"1.5d", ""}, {"-1h", ""}, {"0s", ""}, {"7", ""}, {"99999d", ""}, {"yesterday", ""}, {"2026-13-01", ""},
		{"7d", "8d"}, {"7d", "7d"}, {"7d", "x"}, {strings.Repeat("9", 1000) + "d", ""},
		{"2026-03-10T12:00:00Z", ""}, {"2026-03-10T12:00:30Z", ""}, {"2026-03-11", ""}, {"2026-03-11", "2026-03-12"},
	} {
		_, _, err := ParsePeriod(bad[0], bad[1], late)
		if !errors.Is(err, holdover.ErrInvalid) || !(strings.Contains(err.Error(), "since") || strings.Contains(err.Error(), "until")) || len(err.Error()) > 300 {
			t.Errorf("%q to %q: %v", bad[0], bad[1], err)
		}
	}
}

// TestHash: it is the same in all instances of an installation, has no secret in
// it, and another one as soon as something else differs.
func TestHash(t *testing.T) {
	c := Config{Instance: "one", Pods: []PodConfig{{Name: "pod-a", Shops: []string{"1-9"}, Redis: RedisConfig{Addr: "a:1", Password: "p"}, MySQL: MySQLConfig{DSN: "user:secret@tcp(a:1)/s"}}}}.WithDefaults()
	change := func(do func(*Config)) string {
		other := c
		other.Pods = []PodConfig{c.Pods[0]}
		do(&other)
		return other.Hash()
	}
	for name, do := range map[string]func(*Config){
		"instance": func(c *Config) { c.Instance, c.Listen = "two", "127.0.0.1:1" }, "token": func(c *Config) { c.OperatorToken = "x" },
		"password": func(c *Config) { c.Pods[0].Redis.Password, c.Pods[0].MySQL.DSN = "q", "user:other@tcp(a:1)/s" },
	} {
		if change(do) != c.Hash() {
			t.Errorf("another %s makes another hash", name)
		}
	}
	for name, do := range map[string]func(*Config){
		"timing": func(c *Config) { c.Timing.Call++ }, "shops": func(c *Config) { c.Pods[0].Shops = []string{"1-8"} },
		"server": func(c *Config) { c.Pods[0].MySQL.DSN = "user:secret@tcp(b:1)/s" },
	} {
		if change(do) == c.Hash() {
			t.Errorf("another %s makes the same hash", name)
		}
	}
}

// demanding is what a report demands to have seen by default.
var demanding = report.Limits{MustSee: report.Limits{}.Undemanded()}

// TestSignOfLessThanIsDemanded: a report that demands less than the default is
// no pass that somebody signs without saying why.
func TestSignOfLessThanIsDemanded(t *testing.T) {
	s := newStores(t, newConfig(t))
	fences(t, s, holdover.StageRedis)
	r := report.Report{Verdict: report.Pass, Pods: []string{s.Name}, Digest: "abc", From: time.Now().Add(-time.Hour), To: time.Now(), Limits: report.Limits{MustSee: []string{"claim"}}}
	o := SignOptions{As: "Ada", Decision: mysqlpool.DecisionGo, Note: "fine"}
	if _, err := Sign(t.Context(), s, r, o); !errors.Is(err, ErrNotSigned) || !strings.Contains(err.Error(), "release, expire, last-unit, refused") {
		t.Errorf("told %v", err)
	}
	o.Override = "nothing is released here"
	if d, err := Sign(t.Context(), s, r, o); err != nil || !strings.Contains(d.Note, "[not demanded: release, expire, last-unit, refused]") {
		t.Errorf("kept %q, %v", d.Note, err)
	}
}

// TestSignOfThePast: a go is for the stage that the report reaches into.
func TestSignOfThePast(t *testing.T) {
	s := newStores(t, newConfig(t))
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	passed := func(to time.Time) report.Report {
		return report.Report{Verdict: report.Pass, Pods: []string{"pod-a"}, Digest: "abc", From: to.Add(-time.Hour), To: to, Limits: demanding}
	}
	o := SignOptions{As: "Ada", Decision: "go", Note: "fine"}
	if _, err := Sign(t.Context(), s, passed(time.Now().Add(-time.Minute)), o); !errors.Is(err, ErrNotSigned) || !strings.Contains(err.Error(), "before the pod came to shadow") {
		t.Errorf("an old report: %v", err)
	}
	other := passed(time.Now().Add(time.Minute))
	other.Pods = []string{"pod-b"}
	if _, err := Sign(t.Context(), s, other, o); !errors.Is(err, ErrNotSigned) || !strings.Contains(err.Error(), "about pod-b") {
		t.Errorf("another pod's: %v", err)
	}
	failed := passed(time.Now().Add(time.Minute))
	failed.Verdict, failed.Gates = report.Fail, []report.Gate{{Name: "unexplained", Reason: "3 of them"}, {Name: "gaps", Waived: true}}
	if _, err := Sign(t.Context(), s, failed, o); !errors.Is(err, ErrNotSigned) || !strings.Contains(err.Error(), "unexplained (3 of them)") || strings.Contains(err.Error(), "gaps") {
		t.Errorf("one that fails: %v", err)
	}
	if all, err := s.MySQL.SignOffs(t.Context(), time.Now().Add(-time.Hour)); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	// Nothing was compared since, and a rollup that began before shows nothing.
	agreed, err := s.MySQL.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keep(t, s, minute(t, "run-before", 1, agreed.At.Add(-time.Second)))
	if _, err := Sign(t.Context(), s, passed(time.Now().Add(time.Minute)), o); !errors.Is(err, ErrNotSigned) || !strings.Contains(err.Error(), "nothing that was compared there since is in it") {
		t.Errorf("one that has seen nothing of the stage: %v", err)
	}
	keep(t, s, minute(t, "run-since", 1, agreed.At))
	// A go is no older than what was seen, and what was waived needs a reason.
	s.rules.SignoffMaxAge = time.Nanosecond
	if _, err := Sign(t.Context(), s, passed(time.Now()), o); !errors.Is(err, ErrNotSigned) || !strings.Contains(err.Error(), "rollout.signoff_max_age is 1ns") {
		t.Errorf("just ended: %v", err)
	}
	s.rules.SignoffMaxAge = time.Hour
	waived := passed(time.Now().Add(time.Minute))
	waived.Limits.Waived = []string{"selftest"}
	waived.Gates = []report.Gate{{Name: "selftest", Verdict: report.NoVerdict, Waived: true, Reason: "nothing was planted"}, {Name: "panics", Verdict: report.Pass, OK: true}}
	_, err = Sign(t.Context(), s, waived, o)
	if !errors.Is(err, ErrNotSigned) || !strings.Contains(err.Error(), "were waived: selftest (nothing was planted)") || !strings.Contains(err.Error(), "override") {
		t.Errorf("one with a waiver: %v", err)
	}
	live := o // only who read it knew who lived
	live.Read = &waived
	if _, err := Sign(t.Context(), s, passed(time.Now().Add(time.Minute)), live); !errors.Is(err, ErrNotSigned) || !strings.Contains(err.Error(), "in the report that was read") {
		t.Errorf("one that was read with a waiver: %v", err)
	}
	if all, err := s.MySQL.SignOffs(t.Context(), time.Now().Add(-time.Hour)); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	long := o
	long.Note, long.Override = strings.Repeat("x", 1990), "there is no planter here"
	if _, err := Sign(t.Context(), s, waived, long); !errors.Is(err, holdover.ErrInvalid) {
		t.Errorf("a note that leaves no room for the waiver: %v", err)
	}
	overridden := o
	overridden.Override = "there is no planter here"
	if got, err := Sign(t.Context(), s, waived, overridden); err != nil || got.Note != "fine [waived: selftest (no-verdict)] [override: there is no planter here]" {
		t.Errorf("%+v, %v", got, err)
	}
	signed, err := Sign(t.Context(), s, passed(time.Now().Add(time.Minute)), o)
	if err != nil || signed.Stage != holdover.StageShadow || signed.Epoch != 2 || signed.At.IsZero() {
		t.Errorf("%+v, %v", signed, err)
	}
}

// TestRepairsAreIncidents: what was repaired in the period is in the report, and
// another digest.
func TestRepairsAreIncidents(t *testing.T) {
	c := newConfig(t)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	o := ReportOptions{Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}
	before, err := Report(t.Context(), c, []*Stores{s}, o)
	if err != nil || len(before.Incidents) != 0 {
		t.Fatalf("%+v, %v", before.Incidents, err)
	}
	for _, outcome := range []string{"done", "done", "failed: away"} {
		ended, err := audit(t.Context(), s, mysqlpool.Repair{Epoch: 2, By: "Ada", Reason: "drift", Store: holdover.StoreMySQL, Action: "grant", Subject: "x"})
		if err == nil {
			err = ended(t.Context(), outcome)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	after, err := Report(t.Context(), c, []*Stores{s}, o)
	if err != nil || len(after.Incidents) != 1 || after.Digest == before.Digest {
		t.Fatalf("%+v, %v", after.Incidents, err)
	}
	got := after.Incidents[0]
	if got.Pod != "pod-a" || got.What != "repair" || got.By != "Ada" || got.Text != "3 changes in mysql (grant): drift; 1 of them were left, failed or are not known" || got.From.IsZero() || got.To.Before(got.From) {
		t.Errorf("%+v", got)
	}
	o.Until = time.Now().Add(-time.Minute)
	if early, err := Report(t.Context(), c, []*Stores{s}, o); err != nil || len(early.Incidents) != 0 {
		t.Errorf("before it: %+v, %v", early.Incidents, err)
	}
}

// TestClockAheadIsSeen: what an instance counted whose clock is ahead is kept, is in
// no period that ends now, and the report says so.
func TestClockAheadIsSeen(t *testing.T) {
	c := newConfig(t)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	now := time.Now().UTC().Truncate(time.Minute)
	for seq := uint64(1); seq <= 20; seq++ {
		from := now.Add(time.Duration(seq-10) * time.Minute)
		kept, err := comparisonOf(compare.Rollup{Pod: s.Name, Instance: "fast", Run: "run-fast", Seq: seq, Started: from, From: from, To: from.Add(time.Minute)})
		if err == nil {
			_, err = s.MySQL.AppendComparison(t.Context(), kept)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := Report(t.Context(), c, []*Stores{s}, ReportOptions{Since: now.Add(-time.Hour), Until: now})
	if err != nil {
		t.Fatal(err)
	}
	g := r.Gates[slices.IndexFunc(r.Gates, func(g report.Gate) bool { return g.Name == "instances" })]
	if g.OK || !strings.Contains(g.Reason, "the clock of fast of pod-a (run run-fast) is ahead by") || !strings.Contains(strings.Join(r.Notes, "\n"), "the clock of fast") {
		t.Errorf("%+v, notes %q", g, r.Notes)
	}
	if len(r.Instances) != 1 || r.Instances[0].Rollups != 9 {
		t.Errorf("what it counted by then: %+v", r.Instances)
	}
	later, err := Report(t.Context(), c, []*Stores{s}, ReportOptions{Since: now.Add(-time.Hour), Until: now.Add(time.Hour)})
	if err != nil || later.Instances[0].Rollups != 20 {
		t.Errorf("its later counts are lost: %+v, %v", later.Instances, err)
	}
}

// TestWhoLivesIsToldByRun: an instance is in the heartbeats by the name of its run, so
// that a namesake does not report for it.
func TestWhoLivesIsToldByRun(t *testing.T) {
	c := newConfig(t)
	c.Timing.Heartbeat = time.Minute // a slow machine takes nobody for dead
	pod, err := OpenPod(t.Context(), c, c.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pod.Close(context.Background()) })
	if pod.instanceID != pod.Comparator.Run() {
		t.Errorf("it is known as %s, and its run is %s", pod.instanceID, pod.Comparator.Run())
	}
	s := pod.Stores
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	now := time.Now().UTC().Truncate(time.Minute)
	kept, err := comparisonOf(compare.Rollup{Pod: s.Name, Instance: "checkout", Run: "run-1", Seq: 1, Started: now.Add(-time.Minute), From: now.Add(-time.Minute), To: now})
	if err == nil {
		_, err = s.MySQL.AppendComparison(t.Context(), kept)
	}
	if err != nil {
		t.Fatal(err)
	}
	for run, want := range map[string]string{"run-1": "all 1 runs", "run-2": "checkout of pod-a (run run-2) is live and has not reported"} {
		if err := s.Redis.Heartbeat(t.Context(), holdover.Instance{Name: "checkout", ID: run, Epoch: 2}); err != nil {
			t.Fatal(err)
		}
		r, err := Report(t.Context(), c, []*Stores{s}, ReportOptions{Since: now.Add(-time.Hour), Until: now, Live: true})
		if err != nil {
			t.Fatal(err)
		}
		g := r.Gates[slices.IndexFunc(r.Gates, func(g report.Gate) bool { return g.Name == "instances" })]
		if !strings.Contains(g.Reason, want) {
			t.Errorf("%s: %+v", run, g)
		}
		if err := s.Redis.Forget(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
}

// keep puts a rollup where instances put theirs.
func keep(t *testing.T, s *Stores, r compare.Rollup) {
	t.Helper()
	c, err := comparisonOf(r)
	if err == nil {
		_, err = s.MySQL.AppendComparison(t.Context(), c)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestOneReportTwoSteps: a report opens the step of the epoch that it saw, and no
// later one, not even with an override.
func TestOneReportTwoSteps(t *testing.T) {
	c := newConfig(t)
	c.Rollout.RequireSignoff = true
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	shadow, err := s.MySQL.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keep(t, s, minute(t, "run-1", 1, shadow.At))
	now := time.Now()
	r := report.Report{Verdict: report.Pass, Pods: []string{s.Name}, Digest: "abc", From: now.Add(-time.Hour), To: now, Limits: demanding}
	o := SignOptions{As: "Ada", Decision: "go", Note: "fine"}
	if _, err := Sign(t.Context(), s, r, o); err != nil {
		t.Fatal(err)
	}
	if why, err := s.unsigned(t.Context(), shadow, holdover.StageJoint); err != nil || why != nil {
		t.Fatalf("%+v, %v", why, err)
	}
	if _, err := s.MySQL.RaiseFence(t.Context(), holdover.Fence{Pod: s.Name, Epoch: 3, Stage: holdover.StageJoint, By: "test", Reason: "a step"}); err != nil {
		t.Fatal(err)
	}
	joint, err := s.MySQL.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Sign(t.Context(), s, r, o); !errors.Is(err, ErrNotSigned) || !strings.Contains(err.Error(), "before the pod came to joint at epoch 3") {
		t.Errorf("a second step: %v", err)
	}
	o.Override = "we are in a hurry"
	if _, err := Sign(t.Context(), s, r, o); err != nil {
		t.Fatal(err)
	}
	if why, err := s.unsigned(t.Context(), joint, holdover.StageMySQL); err != nil || why == nil || !strings.Contains(why.Text, "before the pod came to joint at epoch 3") {
		t.Errorf("a second step with an override: %+v, %v", why, err)
	}
}

// TestReportStaysItself: a verification after its end makes no other data of a period,
// and is told; and a drill is no kill.
func TestReportStaysItself(t *testing.T) {
	c := newConfig(t)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	record := func() {
		t.Helper()
		if err := s.MySQL.RecordVerified(t.Context(), holdover.Verified{Epoch: 2, RedisID: "r", Clean: true, Summary: "clean", By: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	latch := holdover.Fence{Pod: s.Name, Epoch: 3, Stage: holdover.StageShadow, Latched: true, By: "ada", Reason: killswitch.DrillPrefix + "weekly"}
	free := holdover.Fence{Pod: s.Name, Epoch: 4, Stage: holdover.StageShadow, By: "ada", Reason: killswitch.DrillPrefix + "weekly"}
	for _, f := range []holdover.Fence{latch, free} {
		if _, err := s.MySQL.RaiseFence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.MySQL.RecordDrill(t.Context(), holdover.Drill{By: "ada", Reason: "weekly", From: holdover.StageShadow, Epoch: 3, KillMS: 412, RestoreMS: 37, Instances: 2, OK: true}); err != nil {
		t.Fatal(err)
	}
	until := time.Now()
	o := ReportOptions{Since: until.Add(-7 * 24 * time.Hour), Until: until}
	made := func() report.Report {
		t.Helper()
		r, err := Report(t.Context(), c, []*Stores{s}, o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := made()
	if len(first.Incidents) != 1 || first.Incidents[0].What != report.WhatDrill || !strings.Contains(first.Incidents[0].Text, "by 2 instances after 412 ms") {
		t.Errorf("%+v", first.Incidents)
	}
	record()
	after := made()
	if after.Digest != first.Digest {
		t.Error("a later verification is other data")
	}
	g := after.Gates[slices.IndexFunc(after.Gates, func(g report.Gate) bool { return g.Name == "verification" })]
	if !strings.Contains(g.Reason, ", clean) is after the period's end: repeat the report in a minute") {
		t.Errorf("%+v", g)
	}
}

// TestSignNamesTheMissingFlag: what a report was compared with is no part of its
// digest, and has to be given again.
func TestSignNamesTheMissingFlag(t *testing.T) {
	s := newStores(t, newConfig(t))
	fences(t, s, holdover.StageRedis)
	now := time.Now()
	plain := report.Report{Verdict: report.Pass, Pods: []string{s.Name}, Digest: "abc", From: now.Add(-time.Hour), To: now, Limits: demanding}
	noisy, based, other := plain, plain, plain
	noisy.Noise = &report.Noise{Digest: "eeee"}
	based.Latency.Baseline, other.Latency.Baseline = "bbbb", "cccc"
	for _, x := range []struct {
		read, again report.Report
		want        string
	}{
		{noisy, plain, "made with --noise, which is missing here: give the same --noise FILE, whose digest is eeee"},
		{based, plain, "made with --baseline, which is missing here"},
		{plain, noisy, "made without --noise"},
		{based, other, "made with another --baseline: the digest of its FILE is bbbb, and that of the one given here is cccc"},
		{noisy, noisy, ""},
	} {
		d, err := Sign(t.Context(), s, x.again, SignOptions{As: "Ada", Decision: "no-go", Note: "fine", Read: &x.read})
		if x.want == "" && (err != nil || d.Note != "fine [noise: eeee]") || x.want != "" && (!errors.Is(err, ErrNotSigned) || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%+v, %v, want %q", d, err, x.want)
		}
	}
}

// TestUnsigned: what a go has to be for a step.
func TestUnsigned(t *testing.T) {
	c := newConfig(t)
	c.Rollout.RequireSignoff = true
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	agreed, err := s.MySQL.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check := func(name, want string, agreed holdover.Fence, to holdover.Stage) {
		t.Helper()
		why, err := s.unsigned(t.Context(), agreed, to)
		switch {
		case err != nil:
			t.Fatal(err)
		case want == "" && why != nil, want != "" && (why == nil || why.Code != codeNoSignoff || !strings.Contains(why.Text, want) || !strings.Contains(why.Do, "report sign")):
			t.Errorf("%s: %+v", name, why)
		}
	}
	ended := time.Now()
	sign := func(epoch holdover.Epoch, decision string) {
		t.Helper()
		d := holdover.SignOff{Pod: s.Name, Stage: agreed.Stage, Epoch: epoch, Digest: "d", Verdict: "pass", Decision: decision, As: "Ada", Note: "n [waived: gaps (no-verdict)]", From: ended.Add(-time.Hour), To: ended}
		if err := s.MySQL.SignOff(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	check("none", "nobody has signed", agreed, holdover.StageJoint)
	check("back", "", agreed, holdover.StageRedis)
	check("the first step", "", holdover.Fence{Stage: holdover.StageRedis, Epoch: 1}, holdover.StageShadow)
	check("the last step", "nobody has signed", holdover.Fence{Stage: holdover.StageMySQL, Epoch: 9}, holdover.StageMySQLOnly)
	sign(1, "go")
	check("of another epoch", "nobody has signed", agreed, holdover.StageJoint)
	// A report of before the present epoch opens no step, with an override or not.
	ended = agreed.At.Add(-time.Second)
	sign(2, "go")
	check("of before the epoch", "says nothing of the present: it ends at "+ended.UTC().Format(time.RFC3339)+", before the pod came to shadow at epoch 2", agreed, holdover.StageJoint)
	ended = time.Now()
	keep(t, s, minute(t, "run-before", 1, agreed.At.Add(-time.Millisecond)))
	sign(2, "go")
	check("nothing compared since", "nothing that was compared there since is in it", agreed, holdover.StageJoint)
	keep(t, s, minute(t, "run-since", 1, agreed.At))
	check("another stage at it", "nothing that was compared there since", holdover.Fence{Stage: holdover.StageJoint, Epoch: 2, At: agreed.At}, holdover.StageMySQL)
	sign(2, "go")
	check("go", "", agreed, holdover.StageJoint)
	all, err := s.MySQL.SignOffs(t.Context(), time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"the pod is in shadow at epoch 2", "Ada decided again", "Ada decided again", ""} {
		if got, err := s.Spent(t.Context(), all, i); err != nil || (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("sign-off %d: %q, %v, want %q", i, got, err, want)
		}
	}
	s.rules.SignoffMaxAge = time.Nanosecond
	check("old", "may be 1ns", agreed, holdover.StageJoint)
	// What was seen counts, not when somebody signed; and nobody has seen the future.
	s.rules.SignoffMaxAge = time.Hour
	ended = time.Now().Add(-2 * time.Hour)
	sign(2, "go")
	check("of an old report", "is about a report that ended 2h0m", agreed, holdover.StageJoint)
	check("of an old report", "n [waived: gaps (no-verdict)])", agreed, holdover.StageJoint)
	ended = time.Now().Add(1000 * time.Hour)
	sign(2, "go")
	check("of the future", "", agreed, holdover.StageJoint)
	s.rules.SignoffMaxAge = time.Nanosecond
	check("of the future, a moment later", "may be 1ns", agreed, holdover.StageJoint)
	s.rules.SignoffMaxAge, ended = time.Hour, time.Now()
	sign(2, "no-go")
	check("taken back", "Ada said no-go", agreed, holdover.StageJoint)
	s.rules.RequireSignoff = false
	check("not required", "", agreed, holdover.StageJoint)
}
