package dualwrite_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/teststack"
	"holdover/legacyredis"
	"holdover/mysqlpool"
)

func TestMain(m *testing.M) { teststack.Main(m) }

const pod = "pod-test"

// stores are one pod's two real stores, and clients that look behind them.
type stores struct {
	redis *legacyredis.Store
	mysql *mysqlpool.Store
	raw   *redis.Client
	db    *sql.DB
}

func newStores(t *testing.T) *stores {
	t.Helper()
	dsn := teststack.PreparedDSN(t, func(ctx context.Context, dsn string) error {
		_, err := mysqlpool.Migrate(ctx, dsn)
		return err
	})
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	addr, number := teststack.FreshRedis(t)
	raw := redis.NewClient(&redis.Options{Addr: addr, DB: number, MaxRetries: -1})
	t.Cleanup(func() { _ = raw.Close() })
	s := &stores{raw: raw, db: db}
	s.redis, err = legacyredis.Open(t.Context(), legacyredis.Config{Pod: pod, Addr: addr, DB: number, OpTimeout: 10 * time.Second, GiveBackWindow: 12 * time.Second, RebuildLease: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.redis.Close() })
	s.mysql, err = mysqlpool.Open(t.Context(), mysqlpool.Config{Pod: pod, DSN: dsn, OpTimeout: 10 * time.Second, GiveBackWindow: 12 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.mysql.Close() })
	return s
}

// load brings stock into ledger and counters.
func (s *stores) load(t *testing.T, shop int64, stock map[[2]int64]int64) {
	t.Helper()
	var rows []mysqlpool.StockRow
	sums := map[int64]int64{}
	for place, units := range stock {
		rows = append(rows, mysqlpool.StockRow{Shop: shop, Item: place[0], Group: place[1], Available: units})
		sums[place[0]] += units
	}
	if _, err := s.mysql.ImportStock(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	for item, units := range sums {
		if _, err := s.redis.Load(t.Context(), shop, map[int64]int64{item: units}, false); err != nil {
			t.Fatal(err)
		}
	}
}

// counter reads Redis's counter without the product.
func (s *stores) counter(t *testing.T, shop, item int64) int64 {
	t.Helper()
	n, err := s.raw.Get(t.Context(), fmt.Sprintf("inventory:%d:%d", shop, item)).Int64()
	if err != nil {
		t.Fatalf("counter of item %d: %v", item, err)
	}
	return n
}

func (s *stores) count(t *testing.T, query string, args ...any) int64 {
	t.Helper()
	var n sql.NullInt64
	if err := s.db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n.Int64
}

// free counts in SQL what MySQL could still give.
func (s *stores) free(t *testing.T, shop, item, group int64) int64 {
	t.Helper()
	return s.count(t, "SELECT available FROM inventory_ledger WHERE shop_id=? AND item_id=? AND group_id=?", shop, item, group) -
		s.count(t, "SELECT SUM(quantity) FROM reserved_quantities WHERE state='held' AND shop_id=? AND item_id=? AND group_id=?", shop, item, group)
}

// ledger sums available over locations.
func (s *stores) ledger(t *testing.T, shop, item int64) int64 {
	t.Helper()
	return s.count(t, "SELECT SUM(available) FROM inventory_ledger WHERE shop_id=? AND item_id=?", shop, item)
}

// journal counts unmirrored facts.
func (s *stores) journal(t *testing.T) int64 {
	t.Helper()
	return s.count(t, "SELECT COUNT(*) FROM holdover_unmirrored")
}

// newFacade starts a facade on the stores; change may wrap them. Its own sweep
// stays out: tests call SweepOnce.
func newFacade(t *testing.T, s *stores, change ...func(*dualwrite.Config)) *dualwrite.Facade {
	t.Helper()
	cfg := dualwrite.Config{
		Pod: pod, Instance: "test", Redis: s.redis, MySQL: s.mysql,
		CallTimeout: 10 * time.Second, MirrorTimeout: 5 * time.Second, LaneTimeout: 10 * time.Second, RefreshTimeout: 5 * time.Second,
		UnsureFor: 20 * time.Millisecond, SweepEvery: time.Hour, DrainEvery: 10 * time.Millisecond, RecheckEvery: 10 * time.Millisecond,
		ReadinessEvery: -1, // tests that count calls must see their own; readiness_test.go turns it on
		Verify:         func(context.Context) (bool, string, error) { return true, "", nil },
	}
	for _, c := range change {
		c(&cfg)
	}
	f, err := dualwrite.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return f
}

// reach takes the pod to a stage from wherever it is, one step at a time.
func reach(t *testing.T, f *dualwrite.Facade, stage holdover.Stage) holdover.Fence {
	t.Helper()
	fence, err := f.Init(t.Context(), "test", "set up")
	if err != nil {
		t.Fatalf("init: %v", err)
	}
	if err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		fence, err = f.Agreed()
		if err != nil {
			t.Fatal(err)
		}
		if fence.Stage == stage {
			return fence
		}
		if err := move(t, f, fence, fence.Stage.Toward(stage)); err != nil {
			t.Fatalf("step from %s: %v", fence, err)
		}
	}
}

// move goes to a neighbouring stage: by a step, or from mysql-only by a return.
func move(t *testing.T, f *dualwrite.Facade, from holdover.Fence, to holdover.Stage) error {
	t.Helper()
	if from.Stage != holdover.StageMySQLOnly {
		_, err := f.Step(t.Context(), from, to, "test", "moved by the test")
		return err
	}
	if _, err := f.Return(t.Context(), "test", "moved by the test"); err != nil {
		return err
	}
	_, err := f.Rebuild(t.Context(), nil)
	return err
}

// settle waits until nothing is left to carry over. A debt may stay: MySQL has
// the units at another location.
func settle(t *testing.T, s *stores, f *dualwrite.Facade) {
	t.Helper()
	eventually(t, "mirror work is done", func() bool {
		st := f.Stats()
		return st.LaneJobs == 0 && st.Unmirrored == 0 && (st.RedisAway || s.journal(t) == 0)
	})
}

// eventually waits for an event with a wide bound.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("waited 30 s in vain until %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

var lastShop atomic.Int64

// newShop is a shop of the test's own; the next number stays free.
func newShop() int64 { return lastShop.Add(2) }

func request(shop int64, token holdover.Token, lines ...holdover.Line) holdover.Request {
	return holdover.Request{Shop: shop, Token: token, Lines: lines, TTL: time.Hour}
}

func line(item, quantity int64) holdover.Line {
	return holdover.Line{Item: item, Group: 1, Quantity: quantity}
}
