package connhold

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
)

// program does with a database what programs do, and returns what it saw.
// Messages of errors are not compared, only whether there was one.
func program(db *sql.DB, synchronize func()) []string {
	db.SetMaxOpenConns(1)
	var seen []string
	saw := func(what string, args ...any) {
		for i, a := range args {
			if err, ok := a.(error); ok && !errors.Is(err, context.Canceled) && !errors.Is(err, errPlanned) {
				args[i] = "an error"
			}
		}
		seen = append(seen, fmt.Sprint(append([]any{what, ": "}, args...)...))
	}
	ctx, cancel := context.WithCancel(WithTag(context.Background(), "program"))
	defer cancel()

	saw("ping", db.PingContext(ctx))
	for _, arg := range []any{int64(1), odd{2}, struct{ x int }{3}, "text", sql.Named("name", 4)} {
		_, err := db.ExecContext(ctx, "E", arg)
		saw(fmt.Sprintf("exec %T", arg), err)
		rows, err := db.QueryContext(ctx, "Q", arg)
		saw(fmt.Sprintf("query %T", arg), err)
		if err == nil {
			n := 0
			for rows.Next() {
				n++
			}
			saw("rows", n, rows.Err(), rows.Close())
		}
		prepared, err := db.PrepareContext(ctx, "P")
		saw("prepare", err)
		if err == nil {
			_, err = prepared.ExecContext(ctx, arg)
			saw(fmt.Sprintf("run %T", arg), err, prepared.Close())
		}
	}
	for _, opts := range []*sql.TxOptions{nil, {Isolation: sql.LevelSerializable}, {ReadOnly: true}} {
		tx, err := db.BeginTx(ctx, opts)
		saw("begin", opts, err)
		if err == nil {
			_, err = tx.ExecContext(ctx, "E")
			saw("in transaction", err, tx.Commit())
		}
	}
	if tx, err := db.BeginTx(ctx, nil); err == nil {
		saw("rollback", tx.Rollback())
	}
	cancelled, stop := context.WithCancel(ctx)
	tx, err := db.BeginTx(cancelled, nil)
	saw("begin", err)
	stop()
	synchronize() // database/sql rolls back in a goroutine of its own
	_, err = tx.ExecContext(ctx, "E")
	saw("after cancellation", err, db.Stats().OpenConnections)
	_, err = db.ExecContext(ctx, "E")
	saw("on the next", err, db.Stats().OpenConnections)
	saw("close", db.Close())
	return seen
}

func TestEveryShapeBehavesAsBare(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bare, wrapped := &world{shape: shape}, &world{shape: shape}
				want := program(sql.OpenDB(bare), synctest.Wait)
				got := program(sql.OpenDB(Wrap(wrapped, new(Totals))), synctest.Wait)
				diff(t, "the program saw", want, got)
				diff(t, "the driver was asked for", bare.log(), wrapped.log())
			})
		})
	}
}

func TestFailuresPassThrough(t *testing.T) {
	calls := []string{"connect", "reset", "valid", "ping", "exec", "query", "prepare in context ", "begin in context ", "commit", "rollback", "close"}
	for _, call := range calls {
		for _, failure := range []error{errPlanned, driver.ErrBadConn} {
			t.Run(fmt.Sprint(call, " ", failure), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					bare, wrapped := &world{shape: full}, &world{shape: full}
					bare.fail(call, failure)
					wrapped.fail(call, failure)
					want := program(sql.OpenDB(bare), synctest.Wait)
					got := program(sql.OpenDB(Wrap(wrapped, new(Totals))), synctest.Wait)
					diff(t, "the program saw", want, got)
					diff(t, "the driver was asked for", bare.log(), wrapped.log())
				})
			})
		}
	}
}

func diff(t *testing.T, what string, bare, wrapped []string) {
	t.Helper()
	for i := range max(len(bare), len(wrapped)) {
		at := func(all []string) string {
			if i < len(all) {
				return all[i]
			}
			return "nothing more"
		}
		if at(bare) != at(wrapped) {
			t.Fatalf("%s, at %d\n   bare: %s\nwrapped: %s\nbefore: %q", what, i, at(bare), at(wrapped), bare[max(0, i-5):i])
		}
	}
}

func TestExecAndQueryOnlyWhereTheDriverHasThem(t *testing.T) {
	for name, want := range map[string][2]bool{
		"full": {true, true}, "bare": {false, false}, "exec": {true, false}, "query": {false, true}, "both of old": {true, true}, "check and exec": {true, false},
	} {
		c, err := Wrap(&world{shape: shapes[name]}, new(Totals)).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, execs := c.(driver.ExecerContext)
		_, queries := c.(driver.QueryerContext)
		if got := [2]bool{execs, queries}; got != want {
			t.Errorf("%s: execs and queries %v, want %v", name, got, want)
		}
	}
}

type closing struct {
	driver.Connector
	closed *int
}

func (c closing) Close() error { *c.closed++; return errPlanned }

func TestConnectorIsClosedIfItCanBe(t *testing.T) {
	closed := 0
	db := sql.OpenDB(Wrap(closing{&world{shape: full}, &closed}, new(Totals)))
	if err := db.Close(); !errors.Is(err, errPlanned) || closed != 1 {
		t.Errorf("closing the pool: %v, the connector was closed %d times, want once and its error", err, closed)
	}
	if _, ok := Wrap(&world{shape: full}, new(Totals)).(io.Closer); ok {
		t.Error("a connector that can't be closed can be when wrapped")
	}
	var c driver.Connector = closing{&world{shape: full}, &closed}
	if Wrap(c, nil) != c {
		t.Error("without a recorder the connector is not left as it is")
	}
}

func TestInnermostTagCounts(t *testing.T) {
	ctx := t.Context()
	got := []string{Tag(ctx), Tag(WithTag(ctx, "a")), Tag(WithTag(WithTag(ctx, "a"), "b"))}
	if want := []string{"", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("tags %q, want %q", got, want)
	}
}
