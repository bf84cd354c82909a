package mysqlpool

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover"
	"holdover/internal/teststack"
)

func TestMain(m *testing.M) { teststack.Main(m) }

const shop = 7

// fixture is a migrated schema of the test's own, a store on it, and a plain
// connection pool to look behind the store's back.
type fixture struct {
	*Store
	dsn string
	db  *sql.DB
}

func newFixture(t testing.TB, change ...func(*Config)) *fixture {
	t.Helper()
	dsn := teststack.PreparedDSN(t, func(ctx context.Context, dsn string) error {
		_, err := Migrate(ctx, dsn)
		return err
	})
	f := &fixture{dsn: dsn, db: plain(t, dsn, nil)}
	f.Store = f.open(t, change...)
	return f
}

// open makes one more store on the fixture's schema.
func (f *fixture) open(t testing.TB, change ...func(*Config)) *Store {
	t.Helper()
	cfg := Config{Pod: "pod-test", DSN: f.dsn, OpTimeout: 20 * time.Second, LockWait: 5 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// plain connects without the store's settings, but for the given parameters.
func plain(t testing.TB, dsn string, params map[string]string) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ParseTime, cfg.Loc, cfg.InterpolateParams = true, time.UTC, true
	cfg.Params = params
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (f *fixture) load(t testing.TB, item, group, n int64) {
	t.Helper()
	if _, err := f.ImportStock(t.Context(), []StockRow{{shop, item, group, n}}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) exec(t testing.TB, q string, args ...any) {
	t.Helper()
	if _, err := f.db.ExecContext(t.Context(), q, args...); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

func (f *fixture) number(t testing.TB, q string, args ...any) (n int64) {
	t.Helper()
	if err := f.db.QueryRowContext(t.Context(), q, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return n
}

// stock is the count of one location, in SQL.
func (f *fixture) stock(t testing.TB, item, group int64) (st holdover.Stock) {
	t.Helper()
	st = holdover.Stock{Shop: shop, Item: item, Group: group}
	err := f.db.QueryRowContext(t.Context(), `SELECT
		(SELECT available FROM inventory_ledger WHERE shop_id=? AND item_id=? AND group_id=?),
		(SELECT issued FROM pool_state WHERE shop_id=? AND item_id=? AND group_id=?),
		(SELECT COUNT(*) FROM reservation_units WHERE shop_id=? AND item_id=? AND group_id=?),
		(SELECT COALESCE(SUM(quantity),0) FROM reserved_quantities WHERE shop_id=? AND item_id=? AND group_id=? AND state='held')`,
		shop, item, group, shop, item, group, shop, item, group, shop, item, group).Scan(&st.Available, &st.Issued, &st.Pooled, &st.Held)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// conserved fails the test unless every location keeps the invariant.
func (f *fixture) conserved(t testing.TB) {
	t.Helper()
	var after holdover.Stock
	for {
		page, err := f.Stocks(context.WithoutCancel(t.Context()), after, 50)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range page {
			if st.Available < st.Issued || st.Issued != st.Pooled+st.Held || st.Available < 0 {
				t.Errorf("not conserved: %+v", st)
			}
			after = st
		}
		if len(page) < 50 {
			return
		}
	}
}

func request(lines ...holdover.Line) holdover.Request {
	return holdover.Request{Shop: shop, Token: holdover.NewToken(), Lines: lines, TTL: time.Hour}
}

func line(item, group, n int64) holdover.Line {
	return holdover.Line{Item: item, Group: group, Quantity: n}
}

// alone is the ticket of a store without a fence.
var alone = holdover.Ticket{}

func (f *fixture) reserveOne(t testing.TB, lines ...holdover.Line) holdover.Hold {
	t.Helper()
	g, err := f.Vote(t.Context(), alone, request(lines...), false)
	if err != nil {
		t.Fatal(err)
	}
	return g.Hold
}

// lockUnits is a grab alone.
func (t *tx) lockUnits(ctx context.Context, skipLocked bool, wants ...amount) (units []unit, err error) {
	there := &stockHere{units: map[key][]unit{}}
	err = t.grab(ctx, new(statement), nil, wants, there, skipLocked)
	for _, w := range wants {
		units = append(units, there.units[w.key]...)
	}
	return units, err
}

func fence(epoch holdover.Epoch, stage holdover.Stage) holdover.Fence {
	return holdover.Fence{Pod: "pod-test", Epoch: epoch, Stage: stage, By: "test", Reason: fmt.Sprint("epoch ", epoch)}
}

// eventually waits for a condition that something else brings about.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
