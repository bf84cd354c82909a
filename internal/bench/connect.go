package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover/mysqlpool/connhold"
)

// holdTime sums how long MySQL connections were taken.
type holdTime struct{ ns atomic.Int64 }

// Held implements connhold.Recorder.
func (h *holdTime) Held(_ string, d time.Duration) { h.ns.Add(int64(d)) }

func (h *holdTime) total() time.Duration { return time.Duration(h.ns.Load()) }

func (h *holdTime) wrap(c driver.Connector) driver.Connector { return connhold.Wrap(c, h) }

// callTimeout bounds each statement of a competitor, on the connection itself:
// a deadline in a context would cost the driver a goroutine for each statement.
const callTimeout = 20 * time.Second

// open opens conns connections to the scratch schema, all of them now. change
// sets what the way wants otherwise.
func (s *servers) open(ctx context.Context, set setting, change func(*mysql.Config)) (*sql.DB, error) {
	cfg := s.mysql.Clone()
	isolation := "transaction_isolation"
	if s.mariadb {
		isolation = "tx_isolation"
	}
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params[isolation] = "'READ-COMMITTED'"
	cfg.Params["innodb_lock_wait_timeout"] = "5"
	cfg.ReadTimeout, cfg.WriteTimeout = callTimeout, callTimeout
	if set.proxy != "" {
		cfg.Addr = set.proxy
	}
	if change != nil {
		change(cfg)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("bench: the MySQL DSN: %w", err)
	}
	db := sql.OpenDB(set.held.wrap(connector))
	db.SetMaxOpenConns(set.conns)
	db.SetMaxIdleConns(set.conns)
	if err := fillPool(ctx, db, set.conns); err != nil {
		db.Close()
		return nil, fmt.Errorf("bench: open %d connections to MySQL: %w", set.conns, err)
	}
	return db, nil
}

// fillPool opens all connections at once.
func fillPool(ctx context.Context, db *sql.DB, n int) error {
	var opening sync.WaitGroup
	conns, errs := make([]*sql.Conn, n), make([]error, n)
	for i := range n {
		opening.Go(func() { conns[i], errs[i] = db.Conn(ctx) })
	}
	opening.Wait()
	var failed error
	for i := range n {
		if conns[i] != nil {
			conns[i].Close()
		}
		if errs[i] != nil {
			failed = errs[i]
		}
	}
	return failed
}

// begun runs statements that begin a transaction, in one packet, on a
// connection taken from db, and hands it to rest, which ends the transaction.
// On an error the transaction is rolled back.
func begun(ctx context.Context, db *sql.DB, rest func(*sql.Conn, sql.Result) error, statements string, args ...any) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	result, err := conn.ExecContext(ctx, statements, args...)
	if err == nil && rest != nil {
		err = rest(conn, result)
	}
	if err != nil {
		// A connection that can't roll back is broken, and the pool drops it.
		_, _ = conn.ExecContext(ctx, rollbackTx)
	}
	return err
}

// fillStock puts the stock into bench_stock.
func (s *servers) fillStock(ctx context.Context, stock []int64) error {
	var b strings.Builder
	b.WriteString("INSERT INTO bench_stock (item_id, available) VALUES ")
	for i, n := range stock {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "(%d, %d)", i+1, n)
	}
	if _, err := s.scratch.ExecContext(ctx, b.String()); err != nil {
		return fmt.Errorf("bench: fill in the stock: %w", err)
	}
	return nil
}

// countRow counts what the ways over bench_stock and bench_holds have done.
func (s *servers) countRow(ctx context.Context, items int) (t truth, err error) {
	if t.left, err = s.perItem(ctx, items, "SELECT item_id, available FROM bench_stock"); err != nil {
		return t, err
	}
	if t.held, err = s.perItem(ctx, items, "SELECT item_id, SUM(quantity) FROM bench_holds GROUP BY item_id"); err != nil {
		return t, err
	}
	t.holds, err = s.one(ctx, "SELECT COUNT(*) FROM bench_holds WHERE line = 0")
	return t, err
}
