package mysqlpool

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdover"
)

// TestRetention: what is past its time goes, in batches; what a journal row
// names, what is owed and what is held stays; and the journal's sum is the
// ledger all the while.
func TestRetention(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.load(t, 1, 1, 10_000)
	f.load(t, 2, 1, 100)
	const holds = 2*retainBatch + 50
	for i := range holds {
		h := f.reserveOne(t, line(1, 1, 1), line(2, 1, int64(i%2)+0+boolUnit(i%2 == 0)))
		state := []holdover.State{holdover.StateClaimed, holdover.StateReleased}[boolUnit(i >= 60)]
		if _, err := f.Apply(ctx, holdover.Hold{Token: h.Token, Shop: shop, Lines: h.Lines, State: state}); err != nil {
			t.Fatal(err)
		}
	}
	held := f.reserveOne(t, line(1, 1, 3))
	named := f.reserveOne(t, line(1, 1, 1))
	if _, err := f.End(ctx, 0, 0, named.Token, holdover.StateReleased, true); err != nil {
		t.Fatal(err)
	}
	owed, settled := adjustment(1, 50), adjustment(1, -20)
	for _, a := range []holdover.Adjustment{owed, settled} {
		if _, err := f.Adjust(ctx, 0, a, holdover.AdjustTerms{Redis: true, Lowered: 20, Free: 20}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.AdjustmentSettled(ctx, settled.Token); err != nil {
		t.Fatal(err)
	}
	if done, err := f.Retain(ctx); err != nil || done != (Retained{}) {
		t.Fatalf("too early: %+v, %v", done, err)
	}
	entries := f.number(t, "SELECT COUNT(*) FROM ledger_entries")
	f.exec(t, "UPDATE reserved_quantities SET expires_at = expires_at - INTERVAL 31 DAY, ended_at = ended_at - INTERVAL 31 DAY")
	if done, err := f.Retain(ctx); err != nil || done != (Retained{Holds: holds}) {
		t.Fatalf("holds: %+v, %v", done, err)
	}
	f.exec(t, "UPDATE ledger_entries SET at = at - INTERVAL 401 DAY WHERE entry <> ?", int64(adjustEntry))
	f.exec(t, "UPDATE holdover_adjustments SET at = at - INTERVAL 401 DAY")
	f.exec(t, "INSERT INTO ledger_entries VALUES (?, 0, ?, 1, 1, -5, 'oversold', UTC_TIMESTAMP(3) - INTERVAL 402 DAY)", make([]byte, 16), shop)
	forever := f.open(t, func(c *Config) { c.EntryRetention = -1 })
	if done, err := forever.Retain(ctx); err != nil || done != (Retained{}) {
		t.Fatalf("kept for ever: %+v, %v", done, err)
	}
	if done, err := f.Retain(ctx); err != nil || done != (Retained{Entries: int(entries) - 2 + 1, Adjustments: 1}) {
		t.Fatalf("entries: %+v, %v of %d", done, err, entries)
	}
	f.journaled(t)
	f.conserved(t)
	if n := f.number(t, "SELECT SUM(entries) FROM holdover_balances"); n != entries-2+1 {
		t.Errorf("%d entries in balances", n)
	}
	for name, want := range map[string]int64{
		"SELECT COUNT(*) FROM ledger_entries":                                   2, // the two adjustments are younger
		"SELECT COUNT(*) FROM holdover_adjustments WHERE owed = 1":              1,
		"SELECT COUNT(*) FROM holdover_adjustments":                             1,
		"SELECT COUNT(*) FROM holdover_unmirrored":                              1,
		"SELECT COUNT(DISTINCT token) FROM reserved_quantities":                 2,
		"SELECT COUNT(*) FROM reserved_quantities WHERE state = 'held'":         1,
		"SELECT COUNT(*) FROM reserved_quantities WHERE state = 'released'":     1,
		"SELECT COUNT(*) FROM holdover_balances WHERE item_id IN (1, 2)":        2,
		"SELECT carried FROM holdover_balances WHERE item_id = 2":               100 - 60,
		"SELECT available FROM inventory_ledger WHERE item_id = 1":              10_000 - 60 + 30,
		"SELECT COUNT(*) FROM ledger_entries WHERE entry <> 2147483648 LIMIT 1": 0,
	} {
		if n := f.number(t, name); n != want {
			t.Errorf("%s: %d, want %d", name, n, want)
		}
	}
	if h, err := f.Lookup(ctx, held.Token); err != nil || h.State != holdover.StateHeld {
		t.Errorf("%+v, %v", h, err)
	}
}

func boolUnit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// TestRetentionBlocksNobody: rows that somebody has locked are left for the next
// round; it does not wait for them, and ends when it is told to.
func TestRetentionBlocksNobody(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.load(t, 1, 1, 100)
	var tokens []holdover.Token
	for range 3 {
		h := f.reserveOne(t, line(1, 1, 1))
		if _, err := f.Apply(ctx, holdover.Hold{Token: h.Token, Shop: shop, Lines: h.Lines, State: holdover.StateClaimed}); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, h.Token)
	}
	f.exec(t, "UPDATE reserved_quantities SET expires_at = expires_at - INTERVAL 31 DAY, ended_at = ended_at - INTERVAL 31 DAY")
	f.exec(t, "UPDATE ledger_entries SET at = at - INTERVAL 401 DAY")
	named := f.reserveOne(t, line(1, 1, 1))
	if _, err := f.End(ctx, 0, 0, named.Token, holdover.StateReleased, true); err != nil {
		t.Fatal(err)
	}
	f.exec(t, "UPDATE reserved_quantities SET expires_at = expires_at - INTERVAL 31 DAY, ended_at = ended_at - INTERVAL 31 DAY WHERE token = ?", named.Token[:])
	other := begin(t, plain(t, f.dsn, dialect(committed)))
	if _, err := other.ExecContext(ctx, "UPDATE holdover_unmirrored SET version = version + 1 WHERE token = ?", named.Token[:]); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"SELECT 1 FROM reserved_quantities WHERE token = ? FOR UPDATE", "SELECT 1 FROM ledger_entries WHERE token = ? FOR UPDATE"} {
		var one int
		if err := other.QueryRowContext(ctx, q, tokens[1][:]).Scan(&one); err != nil {
			t.Fatal(err)
		}
	}
	done, err := f.Retain(ctx)
	if err != nil || done != (Retained{Holds: 2, Entries: 3}) { // one of them the import's
		t.Errorf("beside a lock: %+v, %v", done, err)
	}
	if n := f.Stats().LockWaits; n != 0 {
		t.Errorf("it waited %d times", n)
	}
	_ = other.Rollback()
	f.journaled(t)
	stopped, stop := context.WithCancel(ctx)
	stop()
	if done, err := f.Retain(stopped); !errors.Is(err, holdover.ErrUnavailable) || done != (Retained{}) {
		t.Errorf("stopped: %+v, %v", done, err)
	}
	if done, err := f.Retain(ctx); err != nil || done != (Retained{Holds: 1, Entries: 1}) {
		t.Errorf("the rest: %+v, %v", done, err)
	}
	f.journaled(t)
}

// TestRetentionConfig: entries are never kept shorter than what they explain.
func TestRetentionConfig(t *testing.T) {
	for _, c := range []struct {
		ends, entries time.Duration
		ok            bool
	}{{0, 0, true}, {time.Hour, time.Hour, true}, {time.Hour, time.Minute, false}, {0, -1, true}, {1000 * 24 * time.Hour, 0, true}} {
		s, err := Open(t.Context(), Config{Pod: "p", DSN: "u@tcp(127.0.0.1:1)/s", LazyConnect: true, EndRetention: c.ends, EntryRetention: c.entries})
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// TestRetentionPlans: it finds what is old through the key that is sorted by
// age, and deletes by whole keys.
func TestRetentionPlans(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 10)
	for _, size := range []int64{20, 1000} {
		for _, table := range []string{"reserved_quantities", "ledger_entries", "holdover_adjustments", "holdover_unmirrored"} {
			f.exec(t, "DELETE FROM "+table)
		}
		f.exec(t, `INSERT INTO reserved_quantities (token, line, shop_id, item_id, group_id, quantity, state, expires_at, granted_at, ended_at, attempt, firm)
			SELECT UNHEX(REPLACE(UUID(), '-', '')), 0, 7, 1, 1, 1, IF(i % 3 = 0, 'held', 'claimed'), UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 0, 1 FROM `+numbers+" n", size)
		f.exec(t, "INSERT INTO ledger_entries SELECT UNHEX(REPLACE(UUID(), '-', '')), 0, 7, i % 7, 1, 5, 'claim', UTC_TIMESTAMP(3) FROM "+numbers+" n", size)
		f.exec(t, "INSERT INTO holdover_adjustments SELECT UNHEX(REPLACE(UUID(), '-', '')), 7, 1, 1, 1, 0, 0, 0, 1, 1, 0, i % 50 = 0, 'a', 'b', UTC_TIMESTAMP(3) FROM "+numbers+" n", size)
		f.exec(t, "INSERT INTO holdover_unmirrored SELECT UNHEX(REPLACE(UUID(), '-', '')), 1, UTC_TIMESTAMP(3) FROM "+numbers+" n", size)
		f.exec(t, "ANALYZE TABLE reserved_quantities, ledger_entries, holdover_adjustments, holdover_unmirrored")
		tokens := func(head, tail string) *statement {
			b := new(statement).add(head).add(retainTokensFirst, make([]byte, 16))
			for range retainBatch - 1 {
				b.add(retainTokensNext, make([]byte, 16))
			}
			return b.add(tail)
		}
		entries := new(statement).add(retainEntriesHead).add(retainEntriesFirst, make([]byte, 16), 0)
		for i := range retainBatch - 1 {
			entries.add(retainEntriesNext, make([]byte, 16), i)
		}
		f.plans(t, fmt.Sprintf("%d rows", size), map[string]*statement{
			"holds":              new(statement).add(stmtRetainHolds, "claimed", 1, 1, retainBatch),
			"delete holds":       tokens(retainHoldsHead, retainHoldsTail),
			"entries":            new(statement).add(stmtRetainEntries, shop, 1, 1, 1, retainBatch),
			"delete entries":     entries.add(retainEntriesTail),
			"adjustments":        new(statement).add(stmtRetainAdjustments, 1, retainBatch),
			"delete adjustments": tokens(retainAdjustmentsHead, retainAdjustmentsTail),
		}, "reserved_quantities_due", "ledger_entries_location", "holdover_adjustments_owed")
	}
}
