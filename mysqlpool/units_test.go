package mysqlpool

import (
	"context"
	"testing"
	"time"

	"holdover"
	"holdover/internal/teststack"
)

// TestRunLeavesNeighbours: units in a row are deleted by the row's ends, and
// the one behind them, which somebody else has locked, is not waited for.
func TestRunLeavesNeighbours(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.LockWait = time.Second })
	f.load(t, 1, 1, 100)
	if _, err := f.refill(t.Context(), key{shop, 1, 1}, 100, 100); err != nil {
		t.Fatal(err)
	}
	const n = 2 * minRun
	_ = f.transact(t.Context(), f.main, "test", holdover.Token{}, func(ctx context.Context, tx *tx) error {
		units, err := tx.lockUnits(ctx, true, amount{key{shop, 1, 1}, n})
		if err != nil || len(units) != n || units[n-1].number-units[0].number != n-1 {
			t.Fatalf("%v, %v: want %d in a row", units, err, n)
		}
		other := begin(t, f.db)
		if _, err := other.ExecContext(ctx, `SELECT unit FROM reservation_units WHERE shop_id=? AND item_id=1 AND group_id=1 AND unit=? FOR UPDATE`, shop, units[n-1].number+1); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.Rollback() }()
		changed, err := tx.send(ctx, new(statement).deleteUnits(units))
		if err != nil || len(changed) != 1 || changed[0] != n {
			t.Errorf("%v rows in %d statements, %v; want %d in one", changed, len(changed), err, n)
		}
		if !teststack.MariaDB() {
			if locks := f.number(t, `SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_name='reservation_units'
				AND object_schema=DATABASE() AND lock_type='RECORD'`); locks != n+1 {
				t.Errorf("%d record locks, want %d and the other buyer's", locks, n)
			}
		}
		return errShort
	})
	if n := f.number(t, "SELECT COUNT(*) FROM reservation_units"); n != 100 {
		t.Errorf("%d rows after the rollback", n)
	}
}

// TestListedUnits: while a location is sold by this process alone, each
// transaction looks up numbers of its own. Where somebody else has taken some,
// the others are found, and looked for from then on.
func TestListedUnits(t *testing.T) {
	f := newFixture(t)
	k := key{shop, 1, 1}
	f.load(t, 1, 1, 100)
	if err := f.ensurePools(t.Context(), "test", []key{k}); err != nil {
		t.Fatal(err)
	}
	f.exec(t, "UPDATE pool_state SET next_unit = ?", hintFrom)
	if _, err := f.refill(t.Context(), k, 100, 100); err != nil {
		t.Fatal(err)
	}
	lock := func(n int64, locked func(units []unit)) {
		t.Helper()
		_ = f.transact(t.Context(), f.main, "test", holdover.Token{}, func(ctx context.Context, tx *tx) error {
			units, err := tx.lockUnits(ctx, true, amount{k, n})
			if err != nil || int64(len(units)) != n {
				t.Errorf("%d units, %v; want %d", len(units), err, n)
			}
			locked(units)
			return errShort
		})
	}
	lock(5, func(first []unit) {
		lock(5, func(second []unit) {
			if second[0].number != first[4].number+1 {
				t.Errorf("%v, then %v: not the next ones", first, second)
			}
		})
	})
	next := f.positions.places([]amount{{k, 1}})[0]
	if !next.listed {
		t.Fatalf("%+v: not listed", next)
	}
	f.exec(t, "DELETE FROM reservation_units WHERE unit BETWEEN ? AND ?", next.from, next.from+20) // another instance
	f.exec(t, "UPDATE pool_state SET issued = issued - 21")
	lock(10, func(units []unit) {
		if at := f.positions.places([]amount{{k, 1}})[0]; at.listed {
			t.Errorf("%+v: still listed", at)
		}
	})
	lock(60, func([]unit) {})
	f.conserved(t)
}
