package mysqlpool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"holdover"
	"holdover/internal/teststack"
)

func adjustment(item, delta int64) holdover.Adjustment {
	return holdover.Adjustment{Token: holdover.NewToken(), Shop: shop, Item: item, Group: 1, Delta: delta, Reason: "test", By: "ada"}
}

func setting(item, units int64) holdover.Adjustment {
	a := adjustment(item, 0)
	a.Set = &units
	return a
}

func clamped(a holdover.Adjustment) holdover.Adjustment {
	a.Clamp = true
	return a
}

// journaled fails the test unless every location keeps every rule, the sum of
// its journal included.
func (f *fixture) journaled(t testing.TB) {
	t.Helper()
	c, err := f.Conserve(context.WithoutCancel(t.Context()), ConserveConfig{Looks: 1})
	if err != nil || !c.OK() {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestRestock: 30,000 units are one update and one entry, and no row.
func TestRestock(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 10)
	rows := f.number(t, "SELECT COUNT(*) FROM reservation_units")
	done, err := f.Adjust(t.Context(), 0, adjustment(1, 30_000), holdover.AdjustTerms{})
	if err != nil || done.Changed != 30_000 || done.Available != 30_010 || done.Owed || done.Replayed || done.At.IsZero() {
		t.Fatalf("%+v, %v", done, err)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM reservation_units"); n != rows {
		t.Errorf("%d rows in the pool instead of %d", n, rows)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM ledger_entries WHERE kind='adjust' AND delta=30000"); n != 1 {
		t.Errorf("%d entries", n)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM holdover_adjustments WHERE changed_by='ada' AND reason='test' AND at IS NOT NULL"); n != 1 {
		t.Errorf("%d audit rows", n)
	}
	f.journaled(t)
}

// TestLowering: units outside the pool go first, then rows of the pool, and what
// is held stays: refused with what is free, or clamped.
func TestLowering(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.PoolCap, c.RefillBatch = 50, 50 })
	ctx := t.Context()
	f.load(t, 1, 1, 100)
	if err := f.WarmUp(ctx); err != nil {
		t.Fatal(err)
	}
	f.reserveOne(t, line(1, 1, 20))
	if st := f.stock(t, 1, 1); st.Pooled != 30 || st.Held != 20 {
		t.Fatalf("%+v", st)
	}
	for _, c := range []struct {
		name             string
		a                holdover.Adjustment
		changed, refused int64 // refused: what is free then
		after            holdover.Stock
	}{
		{"outside of the pool", adjustment(1, -40), -40, 0, holdover.Stock{Available: 60, Issued: 50, Pooled: 30, Held: 20}},
		{"more than is free", adjustment(1, -41), 0, 40, holdover.Stock{Available: 60, Issued: 50, Pooled: 30, Held: 20}},
		{"set below what is held", setting(1, 19), 0, 40, holdover.Stock{Available: 60, Issued: 50, Pooled: 30, Held: 20}},
		{"some of the pool", adjustment(1, -15), -15, 0, holdover.Stock{Available: 45, Issued: 45, Pooled: 25, Held: 20}},
		{"set lower", setting(1, 40), -5, 0, holdover.Stock{Available: 40, Issued: 40, Pooled: 20, Held: 20}},
		{"set what it is", setting(1, 40), 0, -1, holdover.Stock{Available: 40, Issued: 40, Pooled: 20, Held: 20}},
		{"clamped", clamped(adjustment(1, -1000)), -20, 0, holdover.Stock{Available: 20, Issued: 20, Held: 20}},
		{"clamped to nothing", clamped(setting(1, 0)), 0, -1, holdover.Stock{Available: 20, Issued: 20, Held: 20}},
		{"nothing is free", adjustment(1, -1), 0, 0, holdover.Stock{Available: 20, Issued: 20, Held: 20}},
		{"set higher", setting(1, 25), 5, 0, holdover.Stock{Available: 25, Issued: 20, Held: 20}},
	} {
		for try := range 2 { // the same answer again, refusals included
			done, err := f.Adjust(ctx, 0, c.a, holdover.AdjustTerms{})
			var refused *holdover.AdjustRefusedError
			if wantRefusal := c.changed == 0 && c.refused >= 0; wantRefusal != errors.As(err, &refused) || !wantRefusal && err != nil {
				t.Fatalf("%s: %+v, %v", c.name, done, err)
			}
			if refused != nil && (refused.Free != c.refused || refused.Available != c.after.Available || refused.Wanted != -c.a.Wanted(c.after.Available)) {
				t.Errorf("%s: %+v", c.name, refused)
			}
			if done.Changed != c.changed || done.Available != c.after.Available || done.Replayed != (try == 1) {
				t.Errorf("%s: %+v", c.name, done)
			}
			c.after.Shop, c.after.Item, c.after.Group = shop, 1, 1
			if st := f.stock(t, 1, 1); st != c.after {
				t.Fatalf("%s, call %d: %+v, want %+v", c.name, try+1, st, c.after)
			}
		}
		f.journaled(t)
	}
}

// TestLoweringInSteps: more rows of the pool than one transaction removes.
func TestLoweringInSteps(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.PoolCap, c.RefillBatch = 3500, 3500 })
	f.load(t, 1, 1, 3500)
	if err := f.WarmUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := f.stock(t, 1, 1); st.Pooled != 3500 {
		t.Fatalf("%+v", st)
	}
	done, err := f.Adjust(t.Context(), 0, adjustment(1, -3400), holdover.AdjustTerms{})
	if err != nil || done.Changed != -3400 || done.Available != 100 {
		t.Fatalf("%+v, %v", done, err)
	}
	if st := f.stock(t, 1, 1); st.Pooled != 100 || st.Issued != 100 {
		t.Errorf("%+v", st)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM ledger_entries WHERE kind='adjust'"); n != 1 {
		t.Errorf("%d entries", n)
	}
	f.journaled(t)
}

// TestAdjustTerms: no more goes than Redis has given up, and what it has not
// been told of is owed.
func TestAdjustTerms(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.load(t, 1, 1, 100)
	for _, c := range []struct {
		name          string
		a             holdover.Adjustment
		terms         holdover.AdjustTerms
		changed, free int64
		refused       bool
	}{
		{"up", adjustment(1, 5), holdover.AdjustTerms{Redis: true}, 5, 0, false},
		{"down", adjustment(1, -5), holdover.AdjustTerms{Redis: true, Lowered: 5, Free: 70}, -5, 0, false},
		{"redis gave up nothing", adjustment(1, -5), holdover.AdjustTerms{Redis: true, Free: 3}, 0, 3, true},
		{"redis gave up a part", clamped(adjustment(1, -5)), holdover.AdjustTerms{Redis: true, Lowered: 2, Free: 2}, -2, 0, false},
		{"the ledger grew", setting(1, 0), holdover.AdjustTerms{Redis: true, Lowered: 50, Free: 70}, 0, 70, true},
		{"the ledger shrank", setting(1, 120), holdover.AdjustTerms{Redis: true, Lowered: 10, Free: 70}, 22, 0, false},
	} {
		done, err := f.Adjust(ctx, 0, c.a, c.terms)
		if c.refused != errors.Is(err, holdover.ErrAdjustRefused) || !c.refused && err != nil || done.Changed != c.changed || done.Free != c.free || !done.Owed {
			t.Errorf("%s: %+v, %v", c.name, done, err)
		}
	}
	owed, err := f.OwedAdjustments(ctx, 10)
	if err != nil || len(owed) != 6 || owed[0].Changed != 5 {
		t.Fatalf("%+v, %v", owed, err)
	}
	for _, a := range owed[:4] {
		if err := f.AdjustmentSettled(ctx, a.Token); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := f.OwedAdjustments(ctx, 10); err != nil || len(left) != 2 {
		t.Errorf("%+v, %v", left, err)
	}
	if got, found, err := f.AdjustmentOf(ctx, owed[1].Adjustment); err != nil || !found || got.Owed || got.Changed != -5 || !got.Replayed {
		t.Errorf("%+v, %v, %v", got, found, err)
	}
	f.journaled(t)
}

// TestAdjustToken: one token stands for one change.
func TestAdjustToken(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.load(t, 1, 1, 100)
	f.load(t, 2, 1, 100)
	a := adjustment(1, 5)
	if _, err := f.Adjust(ctx, 0, a, holdover.AdjustTerms{}); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*holdover.Adjustment){
		"units": func(a *holdover.Adjustment) { a.Delta = 6 }, "item": func(a *holdover.Adjustment) { a.Item = 2 },
		"clamp": func(a *holdover.Adjustment) { a.Clamp = true },
		"set":   func(a *holdover.Adjustment) { n := a.Delta; a.Set, a.Delta = &n, 0 },
	} {
		other := a
		change(&other)
		if _, err := f.Adjust(ctx, 0, other, holdover.AdjustTerms{}); !errors.Is(err, holdover.ErrTokenReused) {
			t.Errorf("other %s: %v", name, err)
		}
		if _, found, err := f.AdjustmentOf(ctx, other); !found || !errors.Is(err, holdover.ErrTokenReused) {
			t.Errorf("other %s, looked up: %v", name, err)
		}
	}
	retold := a
	retold.Reason, retold.By = "again", "bob" // who repeats it does not change it
	if done, err := f.Adjust(ctx, 0, retold, holdover.AdjustTerms{}); err != nil || !done.Replayed || done.By != "ada" || done.Reason != "test" {
		t.Errorf("%+v, %v", done, err)
	}
	// A hold with the token of an adjustment is claimed as any other.
	r := request(line(1, 1, 1))
	r.Token = a.Token
	if _, err := f.Vote(ctx, alone, r, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Apply(ctx, holdover.Hold{Token: r.Token, Shop: shop, Lines: r.Lines, State: holdover.StateClaimed}); err != nil {
		t.Error(err)
	}
	if n := f.number(t, "SELECT available FROM inventory_ledger WHERE item_id = 1"); n != 104 {
		t.Errorf("%d in the ledger", n)
	}
	f.journaled(t)
	if _, err := f.Adjust(ctx, 0, adjustment(99, 1), holdover.AdjustTerms{}); !errors.Is(err, holdover.ErrNotLoaded) {
		t.Errorf("no such row: %v", err)
	}
	if _, err := f.Adjust(ctx, 0, adjustment(1, holdover.MaxUnits), holdover.AdjustTerms{}); !errors.Is(err, holdover.ErrInvalid) {
		t.Errorf("too many: %v", err)
	}
	if err := f.CompareAndSetFence(ctx, 0, fence(4, holdover.StageMySQL)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Adjust(ctx, 3, adjustment(1, 1), holdover.AdjustTerms{}); !errors.Is(err, holdover.ErrStale) {
		t.Errorf("an old epoch: %v", err)
	}
}

// TestAdjustUnderTraffic: restocks, corrections and one token from many callers,
// while buyers reserve, claim and release the same items.
func TestAdjustUnderTraffic(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.PoolCap, c.RefillBatch = 40, 20 })
	ctx := t.Context()
	const items = 2
	for item := int64(1); item <= items; item++ {
		f.load(t, item, 1, 200)
	}
	var changed, claimed, refused, lowered atomic.Int64
	same := adjustment(1, 7)
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 25 {
				g, err := f.Vote(ctx, alone, request(line(int64(1+i%items), 1, int64(1+i%5))), false)
				if errors.Is(err, holdover.ErrOutOfStock) {
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				if i%2 == 0 {
					_, err = f.Apply(ctx, holdover.Hold{Token: g.Hold.Token, Shop: shop, Lines: g.Hold.Lines, State: holdover.StateClaimed})
					claimed.Add(int64(1 + i%5))
				} else if i%4 == 1 {
					_, err = f.Apply(ctx, holdover.Hold{Token: g.Hold.Token, Shop: shop, Lines: g.Hold.Lines, State: holdover.StateReleased})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			for i := range 25 {
				a := adjustment(int64(1+i%items), int64(3+worker))
				switch i % 4 {
				case 1:
					a.Delta = -30
				case 2:
					a = clamped(adjustment(1, -60))
				case 3:
					a = same
				}
				done, err := f.Adjust(ctx, 0, a, holdover.AdjustTerms{})
				if errors.Is(err, holdover.ErrAdjustRefused) {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
				if !done.Replayed {
					changed.Add(done.Changed)
				}
				if done.Changed < 0 {
					lowered.Add(1)
				}
			}
		})
	}
	all.Wait()
	if left := f.number(t, "SELECT SUM(available) FROM inventory_ledger"); left != items*200+changed.Load()-claimed.Load() {
		t.Errorf("%d left, %d adjusted, %d claimed", left, changed.Load(), claimed.Load())
	}
	if n := f.number(t, "SELECT COUNT(*) FROM ledger_entries WHERE token = ?", same.Token[:]); n != 1 {
		t.Errorf("%d entries of one token", n)
	}
	if lowered.Load() == 0 {
		t.Error("nothing was lowered: the test shows nothing")
	}
	if d := f.Stats().Deadlocks; d != 0 {
		t.Errorf("%d deadlocks", d)
	}
	t.Logf("%d lowered, %d refused", lowered.Load(), refused.Load())
	f.conserved(t)
	f.journaled(t)
}

// TestAdjustPlans: whole keys, and nothing sorted, on pools of any size.
func TestAdjustPlans(t *testing.T) {
	f := newFixture(t)
	a := adjustment(1, -1)
	for _, size := range []int64{1, 20, 1000} {
		f.exec(t, "DELETE FROM reservation_units")
		f.exec(t, "DELETE FROM holdover_adjustments")
		f.exec(t, "INSERT INTO reservation_units SELECT ?, 1, 1, i FROM "+numbers+" n", shop, size)
		f.exec(t, "INSERT INTO holdover_adjustments SELECT UNHEX(REPLACE(UUID(), '-', '')), 7, 1, 1, 1, 0, 0, 0, 1, 1, 0, i % 50 = 0, 'a', 'b', UTC_TIMESTAMP(3) FROM "+numbers+" n", size)
		f.exec(t, "ANALYZE TABLE reservation_units, holdover_adjustments, pool_state, inventory_ledger")
		units := make([]int64, maxUnits)
		for i := range units {
			units[i] = int64(i + 1)
		}
		f.plans(t, fmt.Sprintf("%d rows", size), map[string]*statement{
			"pool":    new(statement).add(stmtAdjustPool, shop, 1, 1),
			"ledger":  new(statement).add(f.ledger.available, shop, 1, 1),
			"pooled":  new(statement).add(stmtAdjustPooled, shop, 1, 1),
			"units":   new(statement).add(stmtAdjustUnits, shop, 1, 1, 10),
			"shrink":  shrinkStatement(a, units),
			"one":     shrinkStatement(a, units[:1]),
			"issued":  new(statement).add(stmtAdjustIssued, 1, shop, 1, 1),
			"change":  new(statement).add(f.ledger.change, 1, shop, 1, 1),
			"look up": new(statement).add(stmtAdjustFound, a.Token[:]),
			"settled": new(statement).add(stmtAdjustDone, a.Token[:]),
			"owed":    new(statement).add(stmtAdjustOwed, 100),
		}, "holdover_adjustments_owed")
	}
}

// numbers is a table of 1 to ?.
const numbers = "(WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n)"

// plans fails the test when a statement reads a table without a key, through
// another key than PRIMARY or the allowed ones, or sorts.
func (f *fixture) plans(t *testing.T, when string, statements map[string]*statement, allowed ...string) {
	t.Helper()
	for name, b := range statements {
		for _, step := range explain(t, f.db, b.String(), b.args...) {
			if step.table == "" || strings.HasPrefix(step.table, "<") || len(step.table) == 1 && step.key == "" && step.kind != "ALL" {
				continue
			}
			if (step.table == "d" || step.table == "t") && strings.Contains(b.String(), ") "+step.table+" ") { // the list that a DELETE joins with
				continue
			}
			known := step.key == "PRIMARY"
			for _, key := range allowed {
				known = known || step.key == key
			}
			if !known || step.kind == "ALL" || step.kind == "index" {
				t.Errorf("%s, %s: %s is read by %s over key %q", when, name, step.table, step.kind, step.key)
			}
			if strings.Contains(step.extra, "filesort") || strings.Contains(step.extra, "temporary") {
				t.Errorf("%s, %s: %s", when, name, step.extra)
			}
		}
	}
}

// TestLoweringLocksTheEnd: it takes rows from the end of the pool, one lock each,
// and a buyer meanwhile takes from the beginning without waiting.
func TestLoweringLocksTheEnd(t *testing.T) {
	teststack.NeedMySQL(t)
	f := newFixture(t, func(c *Config) { c.PoolCap = 20 })
	f.load(t, 1, 1, 20)
	if err := f.WarmUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := f.number(t, "SELECT MIN(unit) FROM reservation_units")
	_ = f.transact(t.Context(), f.main, "test", holdover.Token{}, func(ctx context.Context, tx *tx) error {
		units, err := tx.lockUnitsFromEnd(ctx, adjustment(1, -5), 5)
		if err != nil || len(units) != 5 || units[4] != first+15 {
			t.Errorf("%v, %v", units, err)
		}
		if n := f.number(t, `SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_name='reservation_units'
			AND object_schema=DATABASE() AND lock_type='RECORD'`); n != 5 {
			t.Errorf("%d record locks for 5 units", n)
		}
		f.reserveOne(t, line(1, 1, 15))
		return errShort
	})
	if st := f.stock(t, 1, 1); st.Pooled != 5 || st.Held != 15 {
		t.Errorf("%+v", st)
	}
}
