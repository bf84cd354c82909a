package mysqlpool

import (
	"strings"
	"testing"
	"time"

	"holdover"
)

func TestRecordVerified(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	last, clean, err := f.LastVerified(ctx)
	if err != nil || !last.At.IsZero() || !clean.At.IsZero() {
		t.Fatalf("none yet: %+v, %+v, %v", last, clean, err)
	}
	dirty := holdover.Verified{Epoch: 3, RedisID: "r1", Differences: 2, Unsettled: 1, Summary: strings.Repeat("x", 2000), By: "a"}
	if err := f.RecordVerified(ctx, dirty); err != nil {
		t.Fatal(err)
	}
	last, clean, err = f.LastVerified(ctx)
	if err != nil || last.At.IsZero() || last.Pod != "pod-test" || last.Differences != 2 || last.Unsettled != 1 || len(last.Summary) != 1000 || !clean.At.IsZero() {
		t.Fatalf("one that is not clean: %+v, %+v, %v", last, clean, err)
	}
	if err := f.RecordVerified(ctx, holdover.Verified{Epoch: 4, RedisID: "r2", Clean: true, Summary: "clean", By: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := f.RecordVerified(ctx, dirty); err != nil {
		t.Fatal(err)
	}
	last, clean, err = f.LastVerified(ctx)
	if err != nil || last.Clean || last.Epoch != 3 || !clean.Clean || clean.Epoch != 4 || clean.RedisID != "r2" || clean.By != "b" || clean.At.IsZero() {
		t.Fatalf("clean, then not: %+v, %+v, %v", last, clean, err)
	}
	// The oldest go, the newest clean one stays.
	f.exec(t, "INSERT INTO holdover_verifications (pod, at, epoch, redis_id, clean, differences, unsettled, summary, verified_by) "+
		"WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT 'pod-test', UTC_TIMESTAMP(3), i, '', 0, 1, 0, '', '' FROM n")
	if err := f.RecordVerified(ctx, dirty); err != nil {
		t.Fatal(err)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM holdover_verifications"); n != keptVerifications+1 {
		t.Errorf("%d are kept", n)
	}
	if _, clean, err = f.LastVerified(ctx); err != nil || clean.Epoch != 4 {
		t.Fatalf("the clean one went: %+v, %v", clean, err)
	}
}

func TestRepairsAudit(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	r := Repair{Epoch: 5, By: "ada", Reason: "drift", Store: holdover.StoreMySQL, Action: "grant", Subject: holdover.NewToken().String(), Before: "unknown", After: "held"}
	seq, err := f.BeginRepair(ctx, r)
	if err != nil || seq == 0 {
		t.Fatal(seq, err)
	}
	if _, err := f.BeginRepair(ctx, Repair{By: "died", Store: holdover.StoreRedis}); err != nil {
		t.Fatal(err)
	}
	if err := f.EndRepair(ctx, seq, "done"); err != nil {
		t.Fatal(err)
	}
	all, err := f.Repairs(ctx, 10)
	if err != nil || len(all) != 2 || all[0].By != "died" || all[0].Outcome != "" {
		t.Fatalf("%+v, %v", all, err)
	}
	got := all[1]
	r.Seq, r.Pod, r.At, r.Outcome = seq, "pod-test", got.At, "done"
	if got != r || got.At.IsZero() {
		t.Errorf("%+v, want %+v", got, r)
	}
}

// TestRepairedBetween: one row for each who, why, epoch and store, and only of
// the period.
func TestRepairedBetween(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	begin := func(r Repair, outcome string) {
		t.Helper()
		seq, err := f.BeginRepair(ctx, r)
		if err == nil && outcome != "" {
			err = f.EndRepair(ctx, seq, outcome)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ada := Repair{Epoch: 5, By: "ada", Reason: "drift", Store: holdover.StoreMySQL, Action: "grant", Subject: "x"}
	begin(ada, "done")
	ada.Action = "end"
	begin(ada, "failed: away")
	begin(ada, "") // died meanwhile
	begin(Repair{Epoch: 5, By: "ada", Reason: "drift", Store: holdover.StoreRedis, Action: "rebuild from mysql"}, "done: 3 holds")
	begin(Repair{Epoch: 6, By: "bob", Reason: "drift", Store: holdover.StoreMySQL, Action: "grant"}, "done")
	f.exec(t, "UPDATE holdover_repairs SET at = '2026-03-01 10:00:00' WHERE repaired_by = 'ada'")
	f.exec(t, "UPDATE holdover_repairs SET at = '2026-03-01 11:00:00' WHERE repaired_by = 'bob'")
	ten := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

	all, err := f.RepairedBetween(ctx, ten, ten.Add(time.Hour), 10)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	want := []Repaired{
		{Pod: "pod-test", Epoch: 5, By: "ada", Reason: "drift", Store: holdover.StoreRedis, Actions: "rebuild from mysql", First: ten, Last: ten, Begun: 1, Done: 1},
		{Pod: "pod-test", Epoch: 5, By: "ada", Reason: "drift", Store: holdover.StoreMySQL, Actions: "end, grant", First: ten, Last: ten, Begun: 3, Done: 1},
	}
	for i := range want {
		if all[i] != want[i] {
			t.Errorf("%+v, want %+v", all[i], want[i])
		}
	}
	if all, err = f.RepairedBetween(ctx, ten, ten.Add(2*time.Hour), 1); err != nil || len(all) != 1 || all[0].By != "bob" {
		t.Errorf("the newest: %+v, %v", all, err)
	}
}
