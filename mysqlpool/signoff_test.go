package mysqlpool

import (
	"errors"
	"strings"
	"testing"
	"time"

	"holdover"
)

// TestSignOffs: kept as it was given, by the server's clock, and found by epoch.
func TestSignOffs(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	d := holdover.SignOff{Pod: "pod-test", Stage: holdover.StageShadow, Epoch: 4, Digest: "abc", Verdict: "pass", Decision: DecisionGo, As: "Ada O'Neil", Note: "looks good ✓", From: noon, To: noon.Add(time.Hour)}
	if _, found, err := f.LastSignOff(ctx, 4); found || err != nil {
		t.Fatalf("before the first: %v, %v", found, err)
	}
	if err := f.SignOff(ctx, d); err != nil {
		t.Fatal(err)
	}
	no := d
	no.Decision, no.Note = DecisionNoGo, strings.Repeat("ü", 2000)
	if err := f.SignOff(ctx, no); err != nil {
		t.Fatal(err)
	}
	begun := d
	begun.Stage, begun.Epoch, begun.Decision = holdover.StageUnknown, 0, DecisionNoGo
	if err := f.SignOff(ctx, begun); err != nil {
		t.Fatal(err)
	}
	all, err := f.SignOffs(ctx, time.Now().Add(-time.Hour))
	if err != nil || len(all) != 3 || time.Since(all[0].At) > time.Hour {
		t.Fatalf("%+v, %v", all, err)
	}
	d.At = all[0].At
	if all[0] != d || len([]rune(all[1].Note)) != 2000 || all[2].Stage != holdover.StageUnknown {
		t.Errorf("%+v", all)
	}
	if last, found, err := f.LastSignOff(ctx, 4); !found || err != nil || last.Decision != DecisionNoGo {
		t.Errorf("%+v, %v, %v", last, found, err)
	}
	if later, err := f.SignOffs(ctx, time.Now().Add(time.Hour)); err != nil || len(later) != 0 {
		t.Errorf("%+v, %v", later, err)
	}
	for name, spoil := range map[string]func(*holdover.SignOff){
		"decision": func(d *holdover.SignOff) { d.Decision = "maybe" },
		"name":     func(d *holdover.SignOff) { d.As = "" },
		"pod":      func(d *holdover.SignOff) { d.Pod = "x" },
		"digest":   func(d *holdover.SignOff) { d.Digest = "" },
		"note":     func(d *holdover.SignOff) { d.Note = strings.Repeat("ü", 2001) },
		"period":   func(d *holdover.SignOff) { d.From = time.Time{} },
	} {
		bad := d
		spoil(&bad)
		if err := f.SignOff(ctx, bad); !errors.Is(err, holdover.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFencesSince: the fences of a period and the one that was in force when it
// began, over several pages.
func TestFencesSince(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	if got, err := f.FencesSince(ctx, noon); err != nil || len(got) != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	const fences = 2*fencePage + 1
	f.exec(t, `INSERT INTO holdover_audit (pod, epoch, stage, latched, changed_by, reason, at)
		SELECT 'pod-test', i, 'shadow', 0, 'test', 'it', ? + INTERVAL i MINUTE FROM `+numbers+" n ORDER BY i", noon, fences)
	for minutes, first := range map[int]holdover.Epoch{-5: 1, 1: 1, 2: 1, 3: 2, fencePage: fencePage - 1, fences: fences - 1, fences + 5: fences} {
		got, err := f.FencesSince(ctx, noon.Add(time.Duration(minutes)*time.Minute))
		if err != nil || len(got) != int(fences-first)+1 || got[0].Epoch != first || got[len(got)-1].Epoch != fences || got[0].Stage != holdover.StageShadow {
			t.Errorf("since minute %d: %d, %v, want from epoch %d", minutes, len(got), err, first)
		}
	}
}

// TestCompared: of the stage, by a rollup that began in the period.
func TestCompared(t *testing.T) {
	f := newFixture(t)
	f.exec(t, "INSERT INTO holdover_rollups VALUES (1, 'r', 1, 0, 'p', 'i', ?, ?, '')", noon, noon.Add(time.Minute))
	f.exec(t, "INSERT INTO holdover_rollup_cells VALUES (1, 'shadow', 'reserve', ?, 9, 1, 0, 0, ''), (1, 'joint', 'reserve', ?, 9, 0, 0, 0, '')", noon, noon)
	for _, x := range []struct {
		stage      holdover.Stage
		from, till time.Duration
		want       bool
	}{
		{holdover.StageShadow, 0, time.Second, true}, {holdover.StageShadow, -time.Hour, time.Hour, true}, {holdover.StageShadow, time.Millisecond, time.Hour, false},
		{holdover.StageShadow, -time.Hour, 0, false}, {holdover.StageJoint, 0, time.Hour, false}, {holdover.StageMySQL, 0, time.Hour, false},
	} {
		if got, err := f.Compared(t.Context(), x.stage, noon.Add(x.from), noon.Add(x.till)); err != nil || got != x.want {
			t.Errorf("%+v: %v, %v", x, got, err)
		}
	}
}

// TestDrillsSince lists them in their order.
func TestDrillsSince(t *testing.T) {
	f := newFixture(t)
	for i := range 3 {
		if err := f.RecordDrill(t.Context(), holdover.Drill{By: "ada", Reason: "weekly", From: holdover.StageMySQL, Epoch: holdover.Epoch(i + 1), KillMS: 5, Instances: 2, OK: i > 0}); err != nil {
			t.Fatal(err)
		}
	}
	f.exec(t, "UPDATE holdover_drills SET at = at - INTERVAL 2 HOUR WHERE epoch = 1")
	got, err := f.DrillsSince(t.Context(), time.Now().Add(-time.Hour))
	if err != nil || len(got) != 2 || got[0].Epoch != 2 || got[1].Epoch != 3 || got[0].From != holdover.StageMySQL || got[0].KillMS != 5 || !got[0].OK {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestVerifiedSince lists what RecordVerified kept, and the last one before.
func TestVerifiedSince(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for i := range 4 {
		if err := f.RecordVerified(ctx, holdover.Verified{Epoch: holdover.Epoch(i + 1), RedisID: "r", Clean: i > 1, Summary: "s", By: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	f.exec(t, "UPDATE holdover_verifications SET at = at - INTERVAL 2 HOUR WHERE epoch <= 2")
	got, err := f.VerifiedSince(ctx, time.Now().Add(-time.Hour))
	if err != nil || len(got) != 3 || got[0].Epoch != 2 || got[0].Clean || got[1].Epoch != 3 || !got[1].Clean || got[2].Epoch != 4 {
		t.Errorf("%+v, %v", got, err)
	}
}
