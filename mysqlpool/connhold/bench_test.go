package connhold

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
)

// silent has every interface that go-sql-driver's connection has, and does
// nothing: what is left is the price of database/sql and of the wrapper.
type silent struct{}

func (silent) Connect(context.Context) (driver.Conn, error)                 { return silent{}, nil }
func (silent) Driver() driver.Driver                                        { return nil }
func (silent) Prepare(string) (driver.Stmt, error)                          { return nil, driver.ErrSkip }
func (silent) Close() error                                                 { return nil }
func (silent) Begin() (driver.Tx, error)                                    { return silent{}, nil }
func (silent) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return silent{}, nil }
func (silent) Commit() error                                                { return nil }
func (silent) Rollback() error                                              { return nil }
func (silent) Ping(context.Context) error                                   { return nil }
func (silent) ResetSession(context.Context) error                           { return nil }
func (silent) IsValid() bool                                                { return true }
func (silent) CheckNamedValue(*driver.NamedValue) error                     { return nil }
func (silent) PrepareContext(context.Context, string) (driver.Stmt, error) {
	return nil, driver.ErrSkip
}
func (silent) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, nil
}

func (silent) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return nil, driver.ErrSkip
}

// One checkout is one statement without arguments. The wrapper's cost is the
// difference; alone is the wrapper without database/sql around it.
func BenchmarkCheckout(b *testing.B) {
	ctx := WithTag(context.Background(), "reserve")
	run := func(c driver.Connector) func(*testing.B) {
		return func(b *testing.B) {
			db := sql.OpenDB(c)
			defer db.Close()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := db.ExecContext(ctx, "E"); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("bare", run(silent{}))
	b.Run("wrapped", run(Wrap(silent{}, new(Totals))))
	b.Run("alone", func(b *testing.B) {
		checkout := checkouts(b)
		b.ReportAllocs()
		for b.Loop() {
			checkout(ctx)
		}
	})
}

// checkouts returns what the wrapper does for one taking and giving back.
func checkouts(t testing.TB) func(context.Context) {
	c, err := Wrap(silent{}, new(Totals)).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	resetter, execer, validator := c.(driver.SessionResetter), c.(driver.ExecerContext), c.(driver.Validator)
	return func(ctx context.Context) {
		_ = resetter.ResetSession(ctx)
		_, _ = execer.ExecContext(ctx, "E", nil)
		_ = validator.IsValid()
	}
}

func TestCheckoutAllocatesNothing(t *testing.T) {
	ctx := WithTag(t.Context(), "reserve")
	checkout := checkouts(t)
	if n := testing.AllocsPerRun(100, func() { checkout(ctx) }); n != 0 {
		t.Errorf("%v allocations a checkout, want none", n)
	}
	if n := testing.AllocsPerRun(100, func() { checkout(WithTag(ctx, "claim")) }); n > 2 {
		t.Errorf("%v allocations with a tag of its own, want at most 2", n)
	}
}
