package mysqlpool

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/internal/teststack"
)

// orders is the host application's own table, and a plain connection pool of
// its own: no several statements at once, server-side parameters, REPEATABLE
// READ, as an application has it.
func (f *fixture) orders(t *testing.T) *sql.DB {
	t.Helper()
	f.exec(t, "CREATE TABLE orders (token BINARY(16) PRIMARY KEY, total BIGINT NOT NULL) ENGINE=InnoDB")
	db := plain(t, f.dsn, nil)
	db.SetMaxOpenConns(24)
	return db
}

func placeOrder(ctx context.Context, t testing.TB, tx *sql.Tx, token holdover.Token) {
	t.Helper()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, 1)", token[:]); err != nil {
		t.Fatal(err)
	}
}

// TestClaimTx: the caller's row and the deduction commit together, or not at
// all, whatever the caller's isolation level and however old its snapshot is.
func TestClaimTx(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 50)
	p := NewPool(f.Store, PoolConfig{})
	db := f.orders(t)
	ctx := t.Context()
	for _, level := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		for _, commit := range []bool{true, false} {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(ctx, "SELECT COUNT(*) FROM orders"); err != nil { // its snapshot is older than the hold
				t.Fatal(err)
			}
			h := f.reserveOne(t, line(1, 1, 2))
			before := f.stock(t, 1, 1)
			placeOrder(ctx, t, tx, h.Token)
			res, err := p.ClaimTx(ctx, tx, shop, h.Token)
			if err != nil || res.Hold.State != holdover.StateClaimed || res.Replayed {
				t.Fatalf("%v: %+v, %v", level, res, err)
			}
			if st := f.stock(t, 1, 1); st != before {
				t.Fatalf("%v: others see the claim before the commit: %+v, %+v", level, before, st)
			}
			end, want := tx.Rollback, holdover.StateHeld
			if commit {
				end, want = tx.Commit, holdover.StateClaimed
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			after, err := p.Lookup(ctx, shop, h.Token)
			if err != nil || after.Hold.State != want {
				t.Fatalf("%v, commit %v: %v, %v", level, commit, after.Hold.State, err)
			}
			orders := f.number(t, "SELECT COUNT(*) FROM orders WHERE token = ?", h.Token[:])
			entries := f.number(t, "SELECT COUNT(*) FROM ledger_entries WHERE token = ?", h.Token[:])
			if commit != (orders == 1) || commit != (entries == 1) {
				t.Fatalf("%v, commit %v: %d orders, %d entries", level, commit, orders, entries)
			}
			if !commit { // the hold is as good as before
				if _, err := p.Claim(ctx, shop, h.Token); err != nil {
					t.Fatal(err)
				}
			}
			f.conserved(t)
		}
	}
}

// TestClaimTxAnswers: a replay, a part, and what can't be claimed.
func TestClaimTxAnswers(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 20)
	f.load(t, 2, 1, 20)
	p := NewPool(f.Store, PoolConfig{})
	db := f.orders(t)
	ctx := t.Context()
	claim := func(shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := p.ClaimTx(ctx, tx, shop, token, lines...)
		if err == nil {
			return res, tx.Commit()
		}
		return res, errors.Join(err, tx.Rollback())
	}
	h := f.reserveOne(t, line(1, 1, 3), line(2, 1, 4))
	res, err := claim(shop, h.Token, line(2, 1, 1))
	if err != nil || !holdover.SameLines(res.Hold.Part(), []holdover.Line{line(2, 1, 1)}) {
		t.Fatalf("%+v, %v", res, err)
	}
	if a, b := f.stock(t, 1, 1), f.stock(t, 2, 1); a.Available != 20 || b.Available != 19 || a.Held+b.Held != 0 {
		t.Fatalf("%+v %+v", a, b)
	}
	if res, err := claim(shop, h.Token, line(2, 1, 1)); err != nil || !res.Replayed {
		t.Errorf("the same part again: %+v, %v", res, err)
	}
	released := f.reserveOne(t, line(1, 1, 1))
	if _, err := p.Release(ctx, shop, released.Token); err != nil {
		t.Fatal(err)
	}
	live := f.reserveOne(t, line(1, 1, 1))
	for name, c := range map[string]struct {
		want error
		do   func() (holdover.Result, error)
	}{
		"another part":   {holdover.ErrTokenReused, func() (holdover.Result, error) { return claim(shop, h.Token) }},
		"released":       {holdover.ErrEnded, func() (holdover.Result, error) { return claim(shop, released.Token) }},
		"unknown":        {holdover.ErrUnknownHold, func() (holdover.Result, error) { return claim(shop, holdover.NewToken()) }},
		"another shop":   {holdover.ErrUnknownHold, func() (holdover.Result, error) { return claim(shop+1, live.Token) }},
		"no part of it":  {holdover.ErrInvalid, func() (holdover.Result, error) { return claim(shop, live.Token, line(1, 1, 2)) }},
		"no transaction": {holdover.ErrInvalid, func() (holdover.Result, error) { return p.ClaimTx(ctx, nil, shop, live.Token) }},
	} {
		if res, err := c.do(); !errors.Is(err, c.want) || res.Decision.Reason == "" {
			t.Errorf("%s: %+v, %v, want %v", name, res.Decision, err, c.want)
		}
	}
	// It changed between the read and the write: the caller rolls back, Claim says how it stands.
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.look(ctx, live.Token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Release(ctx, shop, live.Token); err != nil {
		t.Fatal(err)
	}
	if err := f.claimSteps(ctx, tx, r.Hold); !errors.Is(err, holdover.ErrTryAgain) {
		t.Errorf("it was released meanwhile: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	f.conserved(t)
}

// TestClaimTxTogether: many orders of one hot item at once, each with its own
// order row first, next to the pool's own claims: nobody deadlocks, and the
// ledger loses what the orders took.
func TestClaimTxTogether(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 1000)
	f.load(t, 2, 1, 1000)
	p := NewPool(f.Store, PoolConfig{})
	db := f.orders(t)
	ctx := t.Context()
	var holds []holdover.Hold
	for range 80 {
		holds = append(holds, f.reserveOne(t, line(1, 1, 1), line(2, 1, 2)))
	}
	var wg sync.WaitGroup
	errs := make(chan error, len(holds))
	for i, h := range holds {
		wg.Go(func() {
			if i%2 == 0 {
				_, err := p.Claim(ctx, shop, h.Token)
				errs <- err
				return
			}
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				errs <- err
				return
			}
			_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, 1)", h.Token[:])
			if err == nil {
				_, err = p.ClaimTx(ctx, tx, shop, h.Token)
			}
			if err != nil {
				errs <- errors.Join(err, tx.Rollback())
				return
			}
			errs <- tx.Commit()
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if n := f.number(t, "SELECT COUNT(*) FROM orders"); n != 40 {
		t.Errorf("%d orders of 40", n)
	}
	if a, b := f.stock(t, 1, 1).Available, f.stock(t, 2, 1).Available; a != 920 || b != 840 {
		t.Errorf("the ledger has %d and %d, want 920 and 840", a, b)
	}
	f.conserved(t)
}

// TestClaimTxIsBounded: a lock that somebody else keeps ends in an error within
// the pool's own deadline, and the caller can roll back.
func TestClaimTxIsBounded(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.OpTimeout = 300 * time.Millisecond })
	f.load(t, 1, 1, 5)
	h := f.reserveOne(t, line(1, 1, 2))
	db := f.orders(t)
	blocker := begin(t, f.db)
	if _, err := blocker.ExecContext(t.Context(), "SELECT * FROM inventory_ledger FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPool(f.Store, PoolConfig{}).ClaimTx(t.Context(), tx, shop, h.Token); !errors.Is(err, holdover.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	_ = tx.Rollback()
	if err := blocker.Rollback(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim goes through", func() bool {
		_, err := f.Claim(t.Context(), 0, shop, h.Token, nil, false)
		return err == nil
	})
	f.conserved(t)
}

// TestClaimTxLocksNoGap: at REPEATABLE READ too the claim locks its rows and
// nothing beside them: other buyers' inserts never wait for an order that takes
// its time.
func TestClaimTxLocksNoGap(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 1000)
	f.load(t, 2, 1, 1000)
	db := f.orders(t)
	h := f.reserveOne(t, line(1, 1, 2), line(2, 1, 1))
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPool(f.Store, PoolConfig{}).ClaimTx(t.Context(), tx, shop, h.Token, line(1, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if !teststack.MariaDB() {
		if n := f.number(t, `SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_schema = DATABASE()
			AND lock_type = 'RECORD' AND lock_mode NOT LIKE '%REC_NOT_GAP%'`); n != 0 {
			t.Errorf("%d locks on gaps", n)
		}
	}
	s := f.open(t, func(c *Config) { c.OpTimeout, c.LockWait, c.MaxRetries = 3*time.Second, time.Second, 1 })
	for range 50 { // random tokens fall on either side of the claimed one
		if _, err := s.Vote(t.Context(), alone, request(line(1, 1, 1)), false); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	f.conserved(t)
}
