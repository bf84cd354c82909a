package connhold

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover/internal/teststack"
)

func TestMain(m *testing.M) { teststack.Main(m) }

// both runs a test on go-sql-driver's connections, bare and wrapped, against
// the same kind of real server: what holds for one holds for the other.
func both(t *testing.T, test func(t *testing.T, db *sql.DB, notes *book)) {
	t.Helper()
	for _, wrapped := range []bool{false, true} {
		t.Run(fmt.Sprintf("wrapped=%t", wrapped), func(t *testing.T) {
			notes := new(book)
			connector := mysqlConnector(t)
			if wrapped {
				connector = Wrap(connector, notes)
			}
			db := sql.OpenDB(connector)
			t.Cleanup(func() { _ = db.Close() })
			test(t, db, notes)
		})
	}
}

func mysqlConnector(t testing.TB) driver.Connector {
	t.Helper()
	cfg, err := mysql.ParseDSN(teststack.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg.InterpolateParams, cfg.ParseTime, cfg.MultiStatements = true, true, true
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return connector
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

func TestEveryInterfaceOfTheDriver(t *testing.T) {
	optional := []reflect.Type{
		of[driver.Pinger](), of[driver.ExecerContext](), of[oldExecer](), of[driver.QueryerContext](), of[oldQueryer](),
		of[driver.ConnPrepareContext](), of[driver.ConnBeginTx](), of[driver.SessionResetter](), of[driver.Validator](),
		of[driver.NamedValueChecker](),
	}
	connector := mysqlConnector(t)
	bare := must[driver.Conn](t)(connector.Connect(t.Context()))
	defer bare.Close()
	wrapped := must[driver.Conn](t)(Wrap(connector, new(Totals)).Connect(t.Context()))
	defer wrapped.Close()
	has := func(c driver.Conn) (names []string) {
		for _, i := range optional {
			if reflect.TypeOf(c).Implements(i) {
				names = append(names, i.Name())
			}
		}
		return names
	}
	if want, got := has(bare), has(wrapped); !slices.Equal(want, got) || len(want) == 0 {
		t.Errorf("the driver's connection is %v, wrapped it is %v", want, got)
	}
	if got := wrapped.(interface{ Unwrap() driver.Conn }).Unwrap(); reflect.TypeOf(got) != reflect.TypeOf(bare) {
		t.Errorf("unwrapped it is a %T, not a %T", got, bare)
	}
}

func TestRawResults(t *testing.T) {
	both(t, func(t *testing.T, db *sql.DB, _ *book) {
		ctx := t.Context()
		must[sql.Result](t)(db.ExecContext(ctx, "CREATE TABLE t (n INT PRIMARY KEY)"))
		c := must[*sql.Conn](t)(db.Conn(ctx))
		defer c.Close()
		affected := func(inner driver.ExecerContext) (got []int64, err error) {
			result, err := inner.ExecContext(ctx, "BEGIN; DELETE FROM t; INSERT INTO t VALUES (1),(2),(3); UPDATE t SET n = n + 10 WHERE n < 3; COMMIT", nil)
			if err != nil {
				return nil, err
			}
			return result.(mysql.Result).AllRowsAffected(), nil
		}
		for round := range 2 {
			err := c.Raw(func(dc any) error {
				inner := dc.(driver.ExecerContext)
				if u, ok := dc.(interface{ Unwrap() driver.Conn }); ok && round == 1 {
					inner = u.Unwrap().(driver.ExecerContext)
				}
				got, err := affected(inner)
				if want := []int64{0, int64(round) * 3, 3, 2, 0}; !slices.Equal(got, want) {
					t.Errorf("rows affected by each statement %v, want %v", got, want)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestRawRows(t *testing.T) {
	both(t, func(t *testing.T, db *sql.DB, _ *book) {
		c := must[*sql.Conn](t)(db.Conn(t.Context()))
		defer c.Close()
		err := c.Raw(func(dc any) error {
			rows, err := dc.(driver.QueryerContext).QueryContext(t.Context(), "SELECT 1; SELECT 2, 3", nil)
			if err != nil {
				return err
			}
			for dest := make([]driver.Value, 1); err == nil; {
				err = rows.Next(dest) // the server says at a set's end whether there is another
			}
			if !errors.Is(err, io.EOF) {
				return err
			}
			next := rows.(driver.RowsNextResultSet)
			if !next.HasNextResultSet() {
				t.Error("the second result set is not there")
			}
			if err := next.NextResultSet(); err != nil {
				return err
			}
			if got := len(rows.Columns()); got != 2 {
				t.Errorf("the second result set has %d columns, want 2", got)
			}
			return rows.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestResultSetsAndValues(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 987654000, time.UTC)
	both(t, func(t *testing.T, db *sql.DB, _ *book) {
		ctx := t.Context()
		read := func(rows *sql.Rows) {
			defer rows.Close()
			var big uint64
			var when time.Time
			var null sql.Null[string]
			for rows.Next() {
				if err := rows.Scan(&big, &when, &null); err != nil {
					t.Fatal(err)
				}
			}
			if big != math.MaxUint64 || !when.Equal(at) || null.Valid {
				t.Errorf("read %d, %v, %v", big, when, null)
			}
			types, err := rows.ColumnTypes()
			if err != nil || types[0].DatabaseTypeName() != "UNSIGNED BIGINT" {
				t.Errorf("column types %v, %v", types, err)
			}
			if !rows.NextResultSet() || !rows.Next() {
				t.Fatalf("the second result set is not there: %v", rows.Err())
			}
			var n int
			if err := rows.Scan(&n); err != nil || n != 7 {
				t.Errorf("the second result set has %d, %v", n, err)
			}
			if err := rows.Close(); err != nil {
				t.Error(err)
			}
		}
		must[sql.Result](t)(db.ExecContext(ctx, "CREATE TABLE t (big BIGINT UNSIGNED, at_time DATETIME(6), word TEXT)"))
		must[sql.Result](t)(db.ExecContext(ctx, "INSERT INTO t VALUES (?, ?, ?)", uint64(math.MaxUint64), at, nil))
		read(must[*sql.Rows](t)(db.QueryContext(ctx, "SELECT * FROM t WHERE big = ? AND at_time = ?; SELECT 7", uint64(math.MaxUint64), at)))

		// Prepared statements check their arguments themselves.
		prepared := must[*sql.Stmt](t)(db.PrepareContext(ctx, "SELECT COUNT(*) FROM t WHERE big = ? AND at_time = ?"))
		defer prepared.Close()
		var n int
		if err := prepared.QueryRowContext(ctx, uint64(math.MaxUint64), at).Scan(&n); err != nil || n != 1 {
			t.Errorf("the prepared statement finds %d rows, %v", n, err)
		}
		if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (?, ?, ?)", struct{}{}, at, nil); err == nil {
			t.Error("a type that the driver doesn't know was taken")
		}
	})
}

func TestTransactionOptions(t *testing.T) {
	both(t, func(t *testing.T, db *sql.DB, _ *book) {
		ctx := t.Context()
		must[sql.Result](t)(db.ExecContext(ctx, "CREATE TABLE t (n INT)"))
		tx := must[*sql.Tx](t)(db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelSerializable}))
		defer tx.Rollback()
		_, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (1)")
		if failure := new(mysql.MySQLError); !errors.As(err, &failure) || failure.Number != 1792 {
			t.Errorf("a write in a read-only transaction: %v, want error 1792", err)
		}
	})
}

func TestCancelledStatement(t *testing.T) {
	both(t, func(t *testing.T, db *sql.DB, notes *book) {
		ctx, cancel := context.WithTimeout(WithTag(t.Context(), "slow"), 100*time.Millisecond)
		defer cancel()
		if _, err := db.ExecContext(ctx, "DO SLEEP(20)"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's end", err)
		}
		if s := db.Stats(); s.OpenConnections != 0 {
			t.Errorf("%d connections open: the cancelled one is no longer of use", s.OpenConnections)
		}
		if err := db.PingContext(t.Context()); err != nil {
			t.Error(err)
		}
		if _, isWrapped := wrappedConn(t, db); isWrapped && tags(notes)["slow"] != 1 {
			t.Errorf("holds %q", notes.holds)
		}
	})
}

func TestCancelledTransaction(t *testing.T) {
	both(t, func(t *testing.T, db *sql.DB, _ *book) {
		ctx, cancel := context.WithCancel(t.Context())
		must[*sql.Tx](t)(db.BeginTx(ctx, nil))
		cancel()
		eventually(t, "the transaction is rolled back", func() bool { return db.Stats().InUse == 0 })
		if s := db.Stats(); s.OpenConnections != 1 {
			t.Errorf("%d connections open: this driver's survive a cancelled transaction", s.OpenConnections)
		}
	})
}

func TestKilledConnection(t *testing.T) {
	both(t, func(t *testing.T, db *sql.DB, notes *book) {
		killer := sql.OpenDB(mysqlConnector(t))
		defer killer.Close()
		kill := func(ctx context.Context, c *sql.Conn) {
			var id int64
			if err := c.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id); err != nil {
				t.Fatal(err)
			}
			must[sql.Result](t)(killer.ExecContext(ctx, fmt.Sprintf("KILL CONNECTION %d", id)))
			eventually(t, "the connection is gone", func() bool {
				var n int
				err := killer.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?", id).Scan(&n)
				return err == nil && n == 0
			})
		}
		ctx := WithTag(t.Context(), "killed")
		c := must[*sql.Conn](t)(db.Conn(ctx))
		kill(ctx, c)
		if _, err := c.ExecContext(ctx, "DO 1"); err == nil {
			t.Error("a statement on a killed connection worked")
		}
		_ = c.Close()
		if s := db.Stats(); s.OpenConnections != 0 {
			t.Errorf("%d connections open after the only one was killed in use", s.OpenConnections)
		}

		// Killed while it lies in the pool: the next taker gets another.
		db.SetMaxIdleConns(1)
		c = must[*sql.Conn](t)(db.Conn(ctx))
		kill(ctx, c)
		_ = c.Close()
		must[sql.Result](t)(db.ExecContext(WithTag(ctx, "next"), "DO 1"))
		if _, isWrapped := wrappedConn(t, db); isWrapped {
			if got := tags(notes); got["killed"] != 2 || got["next"] != 1 {
				t.Errorf("holds %q", notes.holds)
			}
		}
	})
}

// A hold lasts as long as its transaction, whatever the statements in it take.
func TestHoldOnARealServer(t *testing.T) {
	var totals Totals
	db := sql.OpenDB(Wrap(mysqlConnector(t), &totals))
	defer db.Close()
	ctx := WithTag(t.Context(), "reserve")
	for range 2 {
		tx := must[*sql.Tx](t)(db.BeginTx(ctx, nil))
		must[sql.Result](t)(tx.ExecContext(ctx, "DO SLEEP(0.2)"))
		must[sql.Result](t)(tx.ExecContext(ctx, "DO SLEEP(0.2)"))
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	got := totals.Snapshot()
	if len(got) != 1 || got[0].Tag != "reserve" || got[0].Count != 2 || got[0].Held < 800*time.Millisecond {
		t.Errorf("totals %+v, want 2 holds of at least 0.4 s each", got)
	}
}

func wrappedConn(t *testing.T, db *sql.DB) (inner driver.Conn, ok bool) {
	t.Helper()
	c := must[*sql.Conn](t)(db.Conn(t.Context()))
	defer c.Close()
	_ = c.Raw(func(dc any) error {
		var u interface{ Unwrap() driver.Conn }
		if u, ok = dc.(interface{ Unwrap() driver.Conn }); ok {
			inner = u.Unwrap()
		}
		return nil
	})
	return inner, ok
}

func tags(b *book) map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	count := map[string]int{}
	for _, hold := range b.holds {
		var tag string
		_, _ = fmt.Sscan(hold, &tag)
		count[tag]++
	}
	return count
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
