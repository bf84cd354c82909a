package torture

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"holdover/internal/mutants"
	"holdover/internal/teststack"
)

// TestCampaign is the short form: real servers, real processes, a few schedules.
func TestCampaign(t *testing.T) {
	teststack.NoLeaks(t)
	var progress bytes.Buffer
	report, err := Run(t.Context(), Config{Schedules: 6, Seed: 3, Program: program, Progress: &progress})
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if !report.OK || report.Schedules != 6 || report.Operations < 100 || report.Flips < 6 || len(report.Faults) < 3 {
		t.Errorf("%+v\n%s", report, &progress)
	}
}

// TestAMutantIsCaught: without end records a repeated claim is told that nobody
// knows the hold.
func TestAMutantIsCaught(t *testing.T) {
	teststack.NoLeaks(t)
	var progress bytes.Buffer
	report, err := Run(t.Context(), Config{Schedules: 6, Seed: 1, Mutate: mutants.EndRecords, Program: program, Progress: &progress})
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if report.OK || len(report.Failed) == 0 || report.LostHolds+report.DoubleClaims == 0 {
		t.Errorf("%+v\n%s", report, &progress)
	}
	if !bytes.Contains(progress.Bytes(), []byte("holdover torture --replay")) {
		t.Errorf("a failure does not say how to replay it:\n%s", &progress)
	}
}

// TestALieIsCounted: an instance says that going back is safe, although MySQL's
// journal has what Redis lacks.
func TestALieIsCounted(t *testing.T) {
	teststack.NoLeaks(t)
	var progress bytes.Buffer
	report, err := Run(t.Context(), Config{Schedules: 6, Seed: 1, Mutate: mutants.JournalInReadiness, Program: program, Progress: &progress})
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if report.OK || report.ReadinessLied == 0 {
		t.Errorf("%+v\n%s", report, &progress)
	}
}

// TestRebuildAfterALoss: Redis loses its data while MySQL decides; it is rebuilt by
// the product, and a kill right after that loses nothing.
func TestRebuildAfterALoss(t *testing.T) {
	teststack.NoLeaks(t)
	var progress bytes.Buffer
	report, err := Run(t.Context(), Config{Schedules: 2, Seed: 1, Aim: aimRebuild, Program: program, Progress: &progress})
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if !report.OK || report.Faults[string(LoseRedis)] != 2 {
		t.Errorf("%+v\n%s", report, &progress)
	}
}

// TestRedisIsRetiredUnderWay: buyers buy while Redis is retired, and while the pod
// comes back to it.
func TestRedisIsRetiredUnderWay(t *testing.T) {
	teststack.NoLeaks(t)
	var progress bytes.Buffer
	report, err := Run(t.Context(), Config{Schedules: 2, Seed: 2, Aim: aimRetire, Program: program, Progress: &progress})
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if !report.OK || report.retired != 2 {
		t.Errorf("%+v\n%s", report, &progress)
	}
}

// The JSON has the names that its readers know.
func TestReportNames(t *testing.T) {
	text, err := json.Marshal(newReport(Config{Seed: 7}))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := []string{"ok", "schedules", "seed", "operations", "faults", "flips", "oversold", "lost_holds", "false_sold_out", "double_claims",
		"unknown_resolved", "linearizable", "readiness_lied", "unmirrored_at_end", "seconds"}
	for _, name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("%s is missing in %s", name, text)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("more than its readers know: %v", got)
	}
}

func TestConfigurationIsChecked(t *testing.T) {
	for _, c := range []Config{{Mutate: "no-such"}, {Schedules: -1}} {
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%+v passes", c)
		}
	}
	c, err := Config{}.withDefaults()
	if err != nil || c.Schedules != 100 || c.Program == "" || !slices.Contains(mutants.Names(), mutants.RedisEpoch) {
		t.Errorf("%+v, %v", c, err)
	}
}
