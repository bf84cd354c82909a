package workload

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/internal/teststack"
	"holdover/legacyredis"
	"holdover/mysqlpool"
)

// TestAuditOfTheRealPaths lets buyers in on both paths, each standing alone,
// and judges them: the audit must find nothing, and have found sold-out items.
func TestAuditOfTheRealPaths(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageRedis, holdover.StageMySQLOnly} {
		t.Run(stage.String(), func(t *testing.T) {
			cfg := Config{
				Seed: 4, Shops: []int64{1, 2}, Items: 30, SmallCarts: true, Groups: 2, HotItem: 900, HotShare: 0.3, HotStock: 15,
				Clients: 8, MaxBuyers: 500, ThinkMax: 10 * time.Millisecond, PaymentFail: 0.3, Abandon: 0.1, TTL: 300 * time.Millisecond,
			}
			stock, err := Stock(cfg)
			if err != nil {
				t.Fatal(err)
			}
			dsn := teststack.PreparedDSN(t, migrate)
			pool, err := mysqlpool.Open(t.Context(), mysqlpool.Config{Pod: "p", DSN: dsn})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { pool.Close() })
			rows := make([]mysqlpool.StockRow, len(stock))
			counters := map[int64]map[int64]int64{}
			for i, s := range stock {
				rows[i] = mysqlpool.StockRow{Shop: s.Shop, Item: s.Item, Group: s.Group, Available: s.Available}
				if counters[s.Shop] == nil {
					counters[s.Shop] = map[int64]int64{}
				}
				counters[s.Shop][s.Item] += s.Available
			}
			if _, err := pool.ImportStock(t.Context(), rows); err != nil {
				t.Fatal(err)
			}
			addr, n := teststack.FreshRedis(t)
			rdb := redis.NewClient(&redis.Options{Addr: addr, DB: n, MaxRetries: -1})
			t.Cleanup(func() { rdb.Close() })

			reserver := holdover.Reserver(mysqlpool.NewPool(pool, mysqlpool.PoolConfig{}))
			if stage == holdover.StageRedis {
				reserver = redisPath(t, addr, n, pool, counters)
			}
			a := NewAccount(AccountConfig{})
			stats, err := Run(t.Context(), cfg, []holdover.Reserver{reserver}, a)
			if err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("mysql", dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			v, err := Audit(t.Context(), a, db, func(ctx context.Context, args ...any) (any, error) {
				return rdb.Do(ctx, args...).Result()
			}, AuditConfig{Stock: stock, Stage: stage})
			if err != nil {
				t.Fatal(err)
			}
			if !v.OK || v.Refusals == 0 || v.Deductions == 0 || v.Foreign != 0 {
				t.Errorf("stats %+v, counts %+v, verdict %+v", stats, a.Counts(), v)
			}
		})
	}
}

// redisPath is the Redis path with its sweeper.
func redisPath(t *testing.T, addr string, n int, ledger legacyredis.Ledger, counters map[int64]map[int64]int64) holdover.Reserver {
	t.Helper()
	store, err := legacyredis.Open(t.Context(), legacyredis.Config{Pod: "p", Addr: addr, DB: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	for shop, items := range counters {
		if _, err := store.Load(t.Context(), shop, items, false); err != nil {
			t.Fatal(err)
		}
	}
	path, err := legacyredis.NewPath(store, ledger, legacyredis.PathConfig{SweepEvery: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { path.Run(ctx) })
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	return path
}
