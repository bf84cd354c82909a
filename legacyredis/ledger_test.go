package legacyredis_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover"
	"holdover/internal/teststack"
)

// sqlLedger is the smallest ledger in a real MySQL: units per item, and an
// entry per token that makes a deduction happen once.
type sqlLedger struct {
	db    *sql.DB
	away  atomic.Bool // gives no answer
	ended atomic.Bool // says that the token had expired
	lost  atomic.Bool // deducts, and its answer is lost
}

func newLedger(t *testing.T) *sqlLedger {
	t.Helper()
	cfg, err := mysql.ParseDSN(teststack.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(8)
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{
		"CREATE TABLE stock (shop_id BIGINT, item_id BIGINT, available BIGINT NOT NULL, PRIMARY KEY (shop_id, item_id))",
		"CREATE TABLE entries (token CHAR(36) PRIMARY KEY)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return &sqlLedger{db: db}
}

func (l *sqlLedger) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	if l.away.Load() {
		return holdover.Hold{}, &holdover.StoreError{Store: holdover.StoreMySQL, Pod: podA, Op: "apply claimed", Token: h.Token, Err: errors.New("the test took it away")}
	}
	if l.ended.Load() {
		h.State, h.Claimed = holdover.StateExpired, nil
		return h, nil
	}
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return holdover.Hold{}, err
	}
	defer func() { _ = tx.Rollback() }()
	result, err := tx.ExecContext(ctx, "INSERT IGNORE INTO entries (token) VALUES (?)", h.Token.String())
	if err != nil {
		return holdover.Hold{}, err
	}
	if n, err := result.RowsAffected(); err != nil {
		return holdover.Hold{}, err
	} else if n == 1 {
		for _, line := range h.Part() {
			if _, err := tx.ExecContext(ctx, "UPDATE stock SET available = available - ? WHERE shop_id = ? AND item_id = ?", line.Quantity, h.Shop, line.Item); err != nil {
				return holdover.Hold{}, err
			}
		}
	}
	if err := tx.Commit(); err != nil {
		return holdover.Hold{}, err
	}
	if l.lost.Load() {
		return holdover.Hold{}, &holdover.StoreError{Store: holdover.StoreMySQL, Pod: podA, Op: "apply claimed", Token: h.Token, Unknown: true, Err: errors.New("the test lost the answer")}
	}
	return h, nil
}

func (l *sqlLedger) add(t *testing.T, shop, item, units int64) {
	t.Helper()
	_, err := l.db.ExecContext(t.Context(), "INSERT INTO stock VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE available = available + VALUES(available)", shop, item, units)
	if err != nil {
		t.Fatal(err)
	}
}

func (l *sqlLedger) available(t *testing.T, shop, item int64) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var n int64
	if err := l.db.QueryRowContext(ctx, "SELECT available FROM stock WHERE shop_id = ? AND item_id = ?", shop, item).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
