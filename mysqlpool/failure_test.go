package mysqlpool

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover"
	"holdover/internal/teststack"
)

// TestLostCommit: a COMMIT that was sent and not answered is unknown, and a
// repeat with the token finds out; an answer lost before it certainly did nothing.
func TestLostCommit(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 5)
	s, c := f.overCable(t)
	ctx := t.Context()

	commit := "COMMIT"
	r := request(line(1, 1, 2))
	if _, err := s.refill(ctx, key{shop, 1, 1}, 5, 5); err != nil {
		t.Fatal(err)
	}
	c.cut.Store(&commit)
	_, err := s.Vote(ctx, alone, r, false)
	var se *holdover.StoreError
	if !errors.As(err, &se) || !se.Unknown || !errors.Is(err, holdover.ErrUnknownOutcome) || se.Token != r.Token {
		t.Fatalf("a lost COMMIT: %v", err)
	}
	g, err := s.Vote(ctx, alone, r, false)
	if err != nil || !g.Replayed {
		t.Fatalf("repeated: %+v, %v", g, err)
	}
	if st := f.stock(t, 1, 1); st.Held != 2 {
		t.Fatalf("taken twice: %+v", st)
	}
	if n := s.Stats().Unknown; n != 1 {
		t.Errorf("%d unknown counted", n)
	}

	// The packet before the one with the commit: tried again on another connection.
	grab := "step='grab'"
	c.cut.Store(&grab)
	g, err = s.Vote(ctx, alone, request(line(1, 1, 1)), false)
	if err != nil || g.Replayed {
		t.Fatalf("a lost grab: %+v, %v", g, err)
	}
	f.conserved(t)

	// The pool on its own resolves it by itself.
	p := NewPool(s, PoolConfig{})
	c.cut.Store(&commit)
	if _, err := p.Claim(ctx, shop, r.Token); err != nil {
		t.Fatalf("a claim whose COMMIT was lost: %v", err)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM ledger_entries WHERE kind = 'claim'"); n != 1 {
		t.Fatalf("%d entries", n)
	}
	f.conserved(t)
}

// TestKilledConnection: the server ends a connection in the middle of a
// transaction: it did nothing, and another one does it.
func TestKilledConnection(t *testing.T) {
	f := newFixture(t)
	tries := 0
	err := f.transact(t.Context(), f.main, "test", holdover.Token{}, func(ctx context.Context, tx *tx) error {
		tries++
		if tries == 1 {
			var id int64
			if err := tx.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&id) }, "SELECT CONNECTION_ID()"); err != nil {
				return err
			}
			f.exec(t, fmt.Sprintf("KILL %d", id))
		}
		_, err := tx.exec(ctx, stmtJournal, make([]byte, 16), 1, 1)
		return err
	})
	if err != nil || tries != 2 {
		t.Fatalf("%d tries, %v", tries, err)
	}
}

// waitsForLock tells whether a transaction waits for a lock. (The statements'
// texts in the process list can't be compared: their tokens are binary. And
// innodb_trx is only brought up to date when nobody has read it for 100 ms.)
func (f *fixture) waitsForLock(t *testing.T) bool {
	t.Helper()
	<-time.After(150 * time.Millisecond)
	return f.number(t, "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'") > 0
}

// TestRetries: deadlocks and lock waits are tried again outside the
// transaction, a bounded number of times; then the store is unavailable, and
// nothing is half written.
func TestRetries(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 5)
	short := f.open(t, func(c *Config) { c.LockWait, c.MaxRetries = time.Second, 1 })
	h := f.reserveOne(t, line(1, 1, 2))
	blocker := begin(t, f.db)
	if _, err := blocker.ExecContext(t.Context(), "SELECT * FROM inventory_ledger FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	_, err := short.Claim(t.Context(), 0, 0, h.Token, nil, false)
	if !errors.Is(err, holdover.ErrUnavailable) || errors.Is(err, holdover.ErrUnknownOutcome) || number(err) != errLockWait {
		t.Fatalf("%v", err)
	}
	// Once in the shared transaction, and without it as often as MaxRetries allows.
	if st := short.Stats(); st.LockWaits != 3 || st.Retries != 1 {
		t.Errorf("%+v", st)
	}
	// Half of the transaction (pool_state) had been written before the wait: it must be gone, and unlocked.
	if st := f.stock(t, 1, 1); st.Issued != st.Pooled+2 {
		t.Errorf("kept half of a transaction: %+v", st)
	}
	// With the blocker gone while it waits, the retry gets through.
	claim := make(chan error, 1)
	go func() { _, err := f.Claim(t.Context(), 0, 0, h.Token, nil, false); claim <- err }()
	eventually(t, "the claim waits", func() bool {
		return f.waitsForLock(t)
	})
	if err := blocker.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-claim; err != nil {
		t.Fatal(err)
	}

	// A deadlock: this transaction has pool_state of item 1 and wants item 2's, the other the reverse.
	f.load(t, 2, 1, 5)
	lock := "SELECT * FROM pool_state WHERE shop_id=? AND item_id=? FOR UPDATE"
	other := begin(t, f.db)
	if _, err := other.ExecContext(t.Context(), lock, shop, 2); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	tries := 0
	err = f.transact(t.Context(), f.main, "test", holdover.Token{}, func(ctx context.Context, tx *tx) error {
		tries++
		if _, err := tx.exec(ctx, lock, shop, 1); err != nil {
			return err
		}
		if tries == 1 {
			// More work makes the other one the heavier, so that this one is the victim.
			if _, err := other.ExecContext(ctx, "UPDATE reserved_quantities SET firm = 1 - firm"); err != nil {
				t.Error(err)
			}
			wg.Go(func() {
				_, _ = other.ExecContext(ctx, lock, shop, 1)
				_ = other.Rollback()
			})
		}
		_, err := tx.exec(ctx, lock, shop, 2)
		return err
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if st := f.Stats(); tries == 2 && st.Deadlocks != 1 {
		t.Errorf("%d tries, %+v", tries, st)
	}
}

// TestDeadline: a call that waits for a lock ends with its context, as
// unavailable; the connection does not come back with an open transaction.
func TestDeadline(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.OpTimeout, c.MaxOpenConns = 300*time.Millisecond, 1 })
	f.load(t, 1, 1, 5)
	h := f.reserveOne(t, line(1, 1, 2))
	blocker := begin(t, f.db)
	if _, err := blocker.ExecContext(t.Context(), "SELECT * FROM inventory_ledger FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	_, err := f.Claim(t.Context(), 0, 0, h.Token, nil, false)
	// Its COMMIT is in the packet that waits: the server may yet carry it out.
	if !errors.Is(err, holdover.ErrUnknownOutcome) || !errors.Is(err, errOpTimeout) {
		t.Fatalf("%v", err)
	}
	if err := blocker.Rollback(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim goes through", func() bool {
		_, err := f.Claim(t.Context(), 0, 0, h.Token, nil, false)
		return err == nil
	})
	if n := f.number(t, "SELECT available FROM inventory_ledger"); n != 3 {
		t.Errorf("%d units left of 5 after one claim of 2", n)
	}
	f.conserved(t)
}

// TestPanic: a step that panics gives back no open transaction.
func TestPanic(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxOpenConns = 1 })
	func() {
		defer func() { _ = recover() }()
		_ = f.transact(t.Context(), f.main, "test", holdover.Token{}, func(ctx context.Context, tx *tx) error {
			if _, err := tx.exec(ctx, stmtJournal, make([]byte, 16), 1, 1); err != nil {
				t.Error(err)
			}
			panic("a bug")
		})
	}()
	if err := f.transact(t.Context(), f.main, "test", holdover.Token{}, func(context.Context, *tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM holdover_unmirrored"); n != 0 {
		t.Fatal("the next transaction committed what the panicking one wrote")
	}
}

// TestReadOnly: a server that refuses writes is said so, and its connection is dropped.
func TestReadOnly(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 5)
	cfg, err := mysql.ParseDSN(f.dsn)
	if err != nil {
		t.Fatal(err)
	}
	user := "u" + cfg.DBName[2:]
	f.exec(t, "CREATE USER '"+user+"'@'%' IDENTIFIED BY 'secret-word'")
	f.exec(t, "GRANT ALL ON `"+cfg.DBName+"`.* TO '"+user+"'@'%'")
	defer f.db.ExecContext(context.Background(), "DROP USER '"+user+"'@'%'")
	cfg.User, cfg.Passwd = user, "secret-word"
	s := f.open(t, func(c *Config) { c.DSN = cfg.FormatDSN() })
	if _, err := s.Vote(t.Context(), alone, request(line(1, 1, 1)), false); err != nil {
		t.Fatal(err)
	}
	f.exec(t, "SET GLOBAL read_only = 1")
	_, err = s.Vote(t.Context(), alone, request(line(1, 1, 1)), false)
	f.exec(t, "SET GLOBAL read_only = 0")
	if !errors.Is(err, holdover.ErrUnavailable) || errors.Is(err, holdover.ErrUnknownOutcome) || !strings.Contains(err.Error(), "read-only") {
		t.Fatalf("%v", err)
	}
	if _, err := s.Vote(t.Context(), alone, request(line(1, 1, 1)), false); err != nil {
		t.Fatal(err)
	}
}

// TestUnreachable: nothing was sent, so nothing is unknown; a lazy store comes
// up by itself; passwords are in no error.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	dsn := "root:secret-word@tcp(" + addr + ")/x"
	_, err = Open(t.Context(), Config{Pod: "p", DSN: dsn})
	if !errors.Is(err, holdover.ErrUnavailable) || strings.Contains(err.Error(), "secret-word") {
		t.Fatalf("%v", err)
	}
	s, err := Open(t.Context(), Config{Pod: "p", DSN: dsn, LazyConnect: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, call := range []func() error{
		func() error { _, err := s.Vote(t.Context(), alone, request(line(1, 1, 1)), false); return err },
		func() error {
			_, err := s.Apply(t.Context(), fact(request(line(1, 1, 1)), holdover.StateClaimed))
			return err
		},
		func() error { _, err := s.Fence(t.Context()); return err },
		func() error { _, err := s.TripFence(t.Context(), fence(1, holdover.StageShadow)); return err },
	} {
		if err := call(); !errors.Is(err, holdover.ErrUnavailable) || errors.Is(err, holdover.ErrUnknownOutcome) {
			t.Errorf("%v", err)
		}
	}
	for _, bad := range []string{"", "nonsense:secret-word", "root:secret-word@tcp(x:1)/"} {
		if _, err := Open(t.Context(), Config{Pod: "p", DSN: bad}); !errors.Is(err, holdover.ErrInvalid) || strings.Contains(err.Error(), "secret-word") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestNotMigrated: an empty schema is refused with what to do.
func TestNotMigrated(t *testing.T) {
	_, err := Open(t.Context(), Config{Pod: "p", DSN: teststack.MySQLDSN(t)})
	if !errors.Is(err, holdover.ErrNotReady) || !strings.Contains(err.Error(), "migrat") {
		t.Fatalf("%v", err)
	}
}

// TestOversoldIsLogged: nobody is told but the operator, once.
func TestOversoldIsLogged(t *testing.T) {
	var out bytes.Buffer
	f := newFixture(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
	f.load(t, 1, 1, 1)
	h := fact(request(line(1, 1, 3)), holdover.StateClaimed)
	for range 2 {
		if _, err := f.Apply(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "level=ERROR"); n != 1 || !strings.Contains(out.String(), "units=2") {
		t.Errorf("%d lines: %s", n, out.String())
	}
}
