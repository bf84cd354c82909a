package mysqlpool_test

import (
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/reservertest"
	"holdover/internal/teststack"
	"holdover/mysqlpool"
)

var _ dualwrite.MySQL = (*mysqlpool.Store)(nil)

func TestConformance(t *testing.T) {
	conform(t, mysqlpool.Ledger{}, `SELECT available FROM inventory_ledger WHERE shop_id=? AND item_id=? AND group_id=?`,
		`SELECT COALESCE(SUM(available),0) FROM inventory_ledger WHERE shop_id=? AND item_id=?`)
}

// TestConformanceForeignLedger: the same on a table that the application has.
func TestConformanceForeignLedger(t *testing.T) {
	conform(t, mysqlpool.Ledger{Table: "stock", Shop: "branch", Item: "sku", Group: "depot", Available: "on_hand"},
		`SELECT on_hand FROM stock WHERE branch=? AND sku=? AND depot=?`, `SELECT COALESCE(SUM(on_hand),0) FROM stock WHERE branch=? AND sku=?`,
		`CREATE TABLE stock (note VARCHAR(20) NOT NULL DEFAULT 'none', depot BIGINT NOT NULL, sku BIGINT NOT NULL, branch BIGINT NOT NULL,
		on_hand INT UNSIGNED NOT NULL, PRIMARY KEY (branch, sku, depot)) ENGINE=InnoDB`)
}

// conform runs the suite on a ledger, with the statements that read it.
func conform(t *testing.T, ledger mysqlpool.Ledger, available, sum string, tables ...string) {
	dsn := teststack.MySQLDSN(t)
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range tables {
		if _, err := db.ExecContext(t.Context(), table); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := mysqlpool.Migrate(t.Context(), dsn, ledger); err != nil {
		t.Fatal(err)
	}
	store, err := mysqlpool.Open(t.Context(), mysqlpool.Config{Pod: "pod-test", DSN: dsn, OpTimeout: 20 * time.Second, Ledger: ledger})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	number := func(t *testing.T, q string, args ...any) (n int64) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), q, args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	pool := mysqlpool.NewPool(store, mysqlpool.PoolConfig{})
	var shops atomic.Int64
	reservertest.Run(t, func(*testing.T) reservertest.Fixture {
		shop := shops.Add(10) // fixtures share the schema, never a shop
		return reservertest.Fixture{
			Reserver: pool,
			Shop:     shop,
			Load: func(t *testing.T, stock map[[2]int64]int64) {
				t.Helper()
				var rows []mysqlpool.StockRow
				for k, n := range stock {
					rows = append(rows, mysqlpool.StockRow{Shop: shop, Item: k[0], Group: k[1], Available: n})
				}
				if _, err := store.ImportStock(t.Context(), rows); err != nil {
					t.Fatal(err)
				}
			},
			Free: func(t *testing.T, item, group int64) int64 {
				t.Helper()
				return number(t, `SELECT (`+available+`) -
					(SELECT COALESCE(SUM(quantity),0) FROM reserved_quantities WHERE shop_id=? AND item_id=? AND group_id=? AND state='held')`,
					shop, item, group, shop, item, group)
			},
			Ledger: func(t *testing.T, item int64) int64 {
				t.Helper()
				return number(t, sum, shop, item)
			},
			Expire: func(t *testing.T) {
				t.Helper()
				if _, err := pool.Reap(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			WaitExpired: func(t *testing.T, token holdover.Token) {
				t.Helper()
				for deadline := time.Now().Add(30 * time.Second); ; {
					if number(t, `SELECT expires_at <= UTC_TIMESTAMP(3) FROM reserved_quantities WHERE token=? AND line=0`, token[:]) == 1 {
						return
					}
					if time.Now().After(deadline) {
						t.Fatal("the hold's expiry does not pass")
					}
					time.Sleep(5 * time.Millisecond)
				}
			},
		}
	})
}
