package mysqlpool

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/internal/teststack"
)

var (
	repeatable = map[string]string{"innodb_lock_wait_timeout": "1", "transaction_isolation": "'REPEATABLE-READ'"}
	committed  = map[string]string{"innodb_lock_wait_timeout": "1", "transaction_isolation": "'READ-COMMITTED'"}
)

func dialect(params map[string]string) map[string]string {
	if !teststack.MariaDB() {
		return params
	}
	out := map[string]string{}
	for k, v := range params {
		if k == "transaction_isolation" {
			k = "tx_isolation"
		}
		out[k] = v
	}
	return out
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// TestOneRowOneLock: a grab of one unit locks one record, and nothing else in
// the table: no gap, no neighbour.
func TestOneRowOneLock(t *testing.T) {
	teststack.NeedMySQL(t)
	f := newFixture(t)
	f.load(t, 1, 1, 20)
	f.load(t, 2, 1, 20)
	for item := int64(1); item <= 2; item++ {
		if _, err := f.refill(t.Context(), key{shop, item, 1}, 20, 20); err != nil {
			t.Fatal(err)
		}
	}
	err := f.transact(t.Context(), f.main, "test", holdover.Token{}, func(ctx context.Context, tx *tx) error {
		units, err := tx.lockUnits(ctx, true, amount{key{shop, 1, 1}, 1}, amount{key{shop, 2, 1}, 2})
		if err != nil || len(units) != 3 {
			t.Errorf("%d units, %v", len(units), err)
		}
		if n := f.number(t, `SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_name='reservation_units'
			AND object_schema=DATABASE() AND lock_type='RECORD' AND lock_mode='X,REC_NOT_GAP'`); n != 3 {
			t.Errorf("%d record locks for 3 units", n)
		}
		if n := f.number(t, `SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_name='reservation_units'
			AND object_schema=DATABASE() AND lock_type='RECORD' AND lock_mode<>'X,REC_NOT_GAP'`); n != 0 {
			t.Errorf("%d other locks", n)
		}
		return errShort
	})
	if err == nil {
		t.Fatal("committed")
	}
}

// TestEveryBranchLocks: a second connection can lock none of the rows that the
// union returned, in any of its branches.
func TestEveryBranchLocks(t *testing.T) {
	f := newFixture(t)
	const items = 5
	for item := int64(1); item <= items; item++ {
		f.load(t, item, 1, 2)
		if _, err := f.refill(t.Context(), key{shop, item, 1}, 2, 2); err != nil {
			t.Fatal(err)
		}
	}
	for _, skip := range []bool{true, false} {
		_ = f.transact(t.Context(), f.main, "test", holdover.Token{}, func(ctx context.Context, tx *tx) error {
			var wants []amount
			for item := int64(1); item <= items; item++ {
				wants = append(wants, amount{key{shop, item, 1}, 1})
			}
			units, err := tx.lockUnits(ctx, skip, wants...)
			if err != nil || len(units) != items {
				t.Errorf("%d units, %v", len(units), err)
			}
			for _, u := range units {
				n := f.number(t, `SELECT COUNT(*) FROM (SELECT unit FROM reservation_units
					WHERE shop_id=? AND item_id=? AND group_id=? AND unit=? FOR UPDATE SKIP LOCKED) x`, shop, u.item, u.group, u.number)
				if n != 0 {
					t.Errorf("skip locked %v: unit %d of item %d is not locked", skip, u.number, u.item)
				}
			}
			// The unit behind it is free: only what was asked for is locked.
			for item := int64(1); item <= items; item++ {
				if n := f.number(t, `SELECT COUNT(*) FROM (SELECT unit FROM reservation_units
					WHERE shop_id=? AND item_id=? AND group_id=1 ORDER BY unit LIMIT 2 FOR UPDATE SKIP LOCKED) x`, shop, item); n != 1 {
					t.Errorf("item %d: %d rows left to others, want 1", item, n)
				}
			}
			return errShort
		})
	}
}

// TestSupremumBlocksRefill: under REPEATABLE READ a buyer who finds too few
// rows locks the gap behind the last one, and the refill waits for the buyer;
// under READ COMMITTED it does not.
func TestSupremumBlocksRefill(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 10)
	insert := func(params map[string]string) error {
		short := begin(t, plain(t, f.dsn, dialect(params)))
		rows, err := short.QueryContext(t.Context(), `SELECT unit FROM reservation_units WHERE shop_id=? AND item_id=1 AND group_id=1 ORDER BY unit LIMIT 3 FOR UPDATE SKIP LOCKED`, shop)
		if err != nil {
			t.Fatal(err)
		}
		_ = rows.Close()
		refill := begin(t, plain(t, f.dsn, dialect(committed)))
		_, err = refill.ExecContext(t.Context(), `INSERT INTO reservation_units VALUES (?,1,1,1)`, shop)
		_ = refill.Rollback()
		_ = short.Rollback()
		return err
	}
	if err := insert(repeatable); number(err) != errLockWait {
		t.Errorf("under REPEATABLE READ: %v, want a lock wait", err)
	}
	if err := insert(committed); err != nil {
		t.Errorf("under READ COMMITTED: %v", err)
	}
}

// TestCartOrder: two carts that lock [A, B] and [B, A] deadlock; through the
// pool, whose lines are in one order, they never do.
func TestCartOrder(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.PoolCap = 5 })
	f.load(t, 1, 1, 400)
	f.load(t, 2, 1, 400)
	if err := f.ensurePools(t.Context(), "test", []key{{shop, 1, 1}, {shop, 2, 1}}); err != nil {
		t.Fatal(err)
	}
	db := plain(t, f.dsn, dialect(committed))
	first, second := begin(t, db), begin(t, db)
	lock := func(tx *sql.Tx, item int) error {
		_, err := tx.ExecContext(t.Context(), `UPDATE pool_state SET next_unit = next_unit + 1 WHERE shop_id=? AND item_id=? AND group_id=1`, shop, item)
		return err
	}
	if err := lock(first, 1); err != nil {
		t.Fatal(err)
	}
	if err := lock(second, 2); err != nil {
		t.Fatal(err)
	}
	crossed := make(chan error, 1)
	go func() { crossed <- lock(first, 2) }()
	err, other := lock(second, 1), <-crossed
	if number(err) != errDeadlock && number(other) != errDeadlock {
		t.Errorf("unsorted carts: %v and %v, want a deadlock", err, other)
	}
	_, _ = first.Rollback(), second.Rollback()

	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for j := range 10 {
				r := holdover.Request{Shop: shop, Token: holdover.NewToken(), TTL: 1e12, Lines: []holdover.Line{line(1, 1, 1), line(2, 1, 1)}}
				if i%2 == 1 {
					r.Lines[0], r.Lines[1] = r.Lines[1], r.Lines[0]
				}
				r, err := r.Normalize(holdover.Limits{})
				if err != nil {
					t.Error(err)
				}
				if _, err = f.Vote(t.Context(), alone, r, false); err != nil {
					t.Error(err)
				}
				switch j % 3 {
				case 0:
					_, err = f.Claim(t.Context(), 0, 0, r.Token, nil, false)
				case 1:
					_, err = f.End(t.Context(), 0, 0, r.Token, holdover.StateReleased, false)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := f.Stats().Deadlocks; n != 0 {
		t.Errorf("%d deadlocks through the pool", n)
	}
	f.conserved(t)
}

// TestPlans: the hot statements use the primary key and sort nothing, on pools
// of any size, those of a few rows too, where the optimizer likes to scan.
func TestPlans(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.RefillBatch = 1 })
	ctx := t.Context()
	keys := []key{{shop, 1, 1}, {shop, 2, 1}, {shop, 3, 2}}
	for _, k := range keys {
		f.load(t, k.item, k.group, 5000)
	}
	lines := []amount{{keys[0], 3}, {keys[1], 1}, {keys[2], 2}}
	build := func(b *statement) (string, []any) { return b.String(), b.args }
	token := holdover.NewToken()
	f.load(t, 4, 1, 100) // the holds' item, with a pool of its own
	for i, size := range []int64{0, 1, 20, 1000} {
		for range i * i { // holds: 0, 1, 4, 9 more
			f.reserveOne(t, line(4, 1, 1))
		}
		for _, k := range keys {
			if size > 0 {
				if _, err := f.refill(ctx, k, size, size); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.exec(t, "ANALYZE TABLE reservation_units, pool_state, inventory_ledger, reserved_quantities")
		var units, row []unit
		for _, k := range keys {
			for n := int64(1); n <= maxUnits/3; n++ {
				units = append(units, unit{k, 2 * n})
			}
		}
		for n := int64(1); n <= maxUnits; n++ {
			row = append(row, unit{keys[0], n})
		}
		statements := map[string]*statement{
			"grab":      new(statement).grab(lines, []int64{0, 0, 0}),
			"wait":      new(statement).grab(lines, nil),
			"grab one":  new(statement).grab(lines[:1], []int64{0}),
			"wait one":  new(statement).grab(lines[:1], nil),
			"listed":    new(statement).grabListed(units),
			"listed 1":  new(statement).grabListed(units[:1]),
			"delete":    new(statement).deleteUnits(units),
			"run":       new(statement).deleteUnits(row),
			"short run": new(statement).deleteUnits(row[:minRun]),
			"one":       new(statement).deleteUnits(units[:1]),
			"issued":    new(statement).moveIssued(lines, 1),
			"deduct":    new(statement).deduct(f.ledger, lines),
			"pools":     new(statement).add(lockPoolsHead).keysWhere(keys).add(lockPoolsTail),
			"ledger":    new(statement).add(f.ledger.lockHead).ledgerKeys(f.ledger, keys).add(f.ledger.lockTail),
			"count":     new(statement).add(stmtPooled, shop, 1, 1, 1, 1000),
			"end all":   new(statement).holds([]holdRef{{holdover.Hold{Token: token, GrantedAt: never}, holdover.StateReleased, never}, {holdover.Hold{Token: token, GrantedAt: never}, holdover.StateReleased, never}}, endHoldsTail),
			"extend":    new(statement).holds([]holdRef{{holdover.Hold{Token: token, GrantedAt: never}, holdover.StateHeld, never}}, extendHoldsTail),
			"holds":     new(statement).add(holdsHead, 1).add("?, ?", token[:], token[:]).add(holdsTail),
			"taken":     new(statement).add(takenHead).add("?, ?", token[:], token[:]).add(takenTail),
			"part":      new(statement).add(stmtClaimedPart, 1, token[:], 0),
			"later":     new(statement).add(stmtLater, time.Now(), token[:], time.Now()),
			"refilled":  new(statement).add(stmtRefilled, 1, 1, shop, 1, 1),
			"available": new(statement).add(f.ledger.setAvailable, 1, shop, 1, 1),
			"hold":      new(statement).add(stmtHoldUpdate, 1, token[:]),
			"look up":   new(statement).add(stmtHold, 1, token[:]),
			"firm":      new(statement).add(stmtFirm, token[:]),
			"end":       new(statement).add(stmtEndHold, "released", token[:], 1, time.Now(), never),
			"give back": new(statement).add(stmtGiveBack, token[:], 1, time.Now(), 1),
			"purge":     new(statement).add(stmtPurge, token[:]),
			"journal":   new(statement).add(stmtJournalDone, token[:], 1),
		}
		for name, b := range statements {
			q, args := build(b)
			if first, _, more := strings.Cut(q, ";\n"); more { // the check behind it is not explained
				q, args = first, args[:strings.Count(first, "?")]
			}
			for _, step := range explain(t, f.db, q, args...) {
				if step.table == "" || strings.HasPrefix(step.table, "<") {
					continue // the derived table itself
				}
				if step.table == "d" || step.table == "t" { // the list that a DELETE joins with
					continue
				}
				if size < 20 && (name == "count" || name == "taken") {
					continue // plain reads: they lock nothing, whatever the optimizer makes of a table that looks empty
				}
				if step.key != "PRIMARY" || step.kind == "ALL" || step.kind == "index" {
					t.Errorf("%d rows, %s: %s is read by %s over key %q", size, name, step.table, step.kind, step.key)
				}
				if strings.Contains(step.extra, "filesort") || strings.Contains(step.extra, "temporary") {
					t.Errorf("%d rows, %s: %s", size, name, step.extra)
				}
			}
		}
	}
}

type planStep struct{ table, kind, key, extra string }

func explain(t *testing.T, db *sql.DB, q string, args ...any) (steps []planStep) {
	t.Helper()
	format := "EXPLAIN "
	if !teststack.MariaDB() {
		format = "EXPLAIN FORMAT=TRADITIONAL "
	}
	rows, err := db.QueryContext(t.Context(), format+q, args...)
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		cells := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		var s planStep
		for i, name := range names {
			switch strings.ToLower(name) {
			case "table":
				s.table = cells[i].String
			case "type":
				s.kind = cells[i].String
			case "key":
				s.key = cells[i].String
			case "extra":
				s.extra = cells[i].String
			}
		}
		steps = append(steps, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}

// TestSessions: READ COMMITTED and the rest of the settings, on every
// connection of both pools, however many are opened.
func TestSessions(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxOpenConns = 5 })
	isolation := "@@transaction_isolation"
	if teststack.MariaDB() {
		isolation = "@@tx_isolation"
	}
	for _, db := range []*sql.DB{f.main, f.control} {
		for range 4 {
			conn, err := db.Conn(t.Context()) // kept, so that the next one is another
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var level, zone, mode string
			var wait, auto int
			if err := conn.QueryRowContext(t.Context(), "SELECT "+isolation+", @@session.time_zone, @@session.sql_mode, @@session.innodb_lock_wait_timeout, @@autocommit").Scan(&level, &zone, &mode, &wait, &auto); err != nil {
				t.Fatal(err)
			}
			want := 5
			if db == f.control {
				want = 1
			}
			if level != "READ-COMMITTED" || zone != "+00:00" || !strings.Contains(mode, "STRICT_ALL_TABLES") || wait != want || auto != 1 {
				t.Errorf("%s, %s, %s, %d, %d", level, zone, mode, wait, auto)
			}
		}
	}
}
