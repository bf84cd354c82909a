package mysqlpool

import (
	"slices"
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
	// The oldest go beyond the bound, the newest clean one stays.
	for range keptVerifications / 1000 {
		f.exec(t, "INSERT INTO holdover_verifications (pod, at, epoch, redis_id, clean, differences, unsettled, summary, verified_by) "+
			"SELECT 'pod-test', UTC_TIMESTAMP(3), i, '', 0, 1, 0, '', '' FROM "+numbers+" n", 1000)
	}
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

// TestVerificationsAreKeptAsRollups: for as long as a report of their time can be
// made, which counts them; the newest clean one for ever.
func TestVerificationsAreKeptAsRollups(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	const every, days = 10, 8
	for day := range days { // 144 a day
		f.exec(t, "INSERT INTO holdover_verifications (pod, at, epoch, redis_id, clean, differences, unsettled, summary, verified_by) "+
			"SELECT 'pod-test', UTC_TIMESTAMP(3) - INTERVAL (? - i * ?) MINUTE, ? + i, '', ? + i = 1, 0, 0, '', '' FROM "+numbers+" n ORDER BY i",
			(days-day)*24*60+every, every, day*1000, day*1000, 24*60/every)
	}
	since := time.Now().Add(-7 * 24 * time.Hour)
	before, err := f.VerifiedSince(ctx, since)
	if err != nil || len(before) < 7*24*60/every || !before[0].At.Before(since) || before[1].At.Before(since) {
		t.Fatalf("%d, %v", len(before), err)
	}
	record := func() {
		t.Helper()
		if err := f.RecordVerified(ctx, holdover.Verified{Epoch: 9999, By: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	record()
	record()
	after, err := f.VerifiedSince(ctx, since)
	if err != nil || len(after) != len(before)+2 || !slices.Equal(after[:len(before)], before) {
		t.Errorf("%d of %d and two new ones, %v", len(after), len(before), err)
	}
	f.cfg.ComparisonRetention = 7 * 24 * time.Hour
	record()
	if n := f.number(t, "SELECT COUNT(*) FROM holdover_verifications WHERE at < UTC_TIMESTAMP(3) - INTERVAL 7 DAY AND clean = 0"); n != 0 {
		t.Errorf("%d that are too old are kept", n)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM holdover_verifications"); n < int64(len(before)) {
		t.Errorf("%d are kept", n)
	}
	if _, clean, err := f.LastVerified(ctx); err != nil || clean.Epoch != 1 {
		t.Errorf("the newest clean one went: %+v, %v", clean, err)
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
