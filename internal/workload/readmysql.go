package workload

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"holdover"
)

// The auditor's own statements. None of them locks: they run in one snapshot.
const (
	// The clock of the expiries.
	sqlNow = `SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)`

	sqlLedger = `SELECT shop_id, item_id, group_id, available FROM inventory_ledger WHERE shop_id IN (%s)`

	// The end record of a hold that MySQL never knew has a line without an item.
	sqlHolds = `SELECT token, shop_id, item_id, group_id, quantity, state FROM reserved_quantities`

	// What stock the run began with, and how it was changed, is known to it.
	sqlEntries = `SELECT token, shop_id, item_id, group_id, delta, kind FROM ledger_entries WHERE shop_id IN (%s) AND kind NOT IN ('import', 'opening', 'adjust')`
)

// readMySQL reads ledger, holds and entries in one consistent snapshot.
func readMySQL(ctx context.Context, db *sql.DB, c AuditConfig) (Reading, error) {
	r := Reading{
		Ledger: map[holdover.Stock]int64{}, MySQL: map[holdover.Token]StoredHold{},
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return r, err
	}
	defer tx.Rollback() //nolint:errcheck // it only reads

	shops, places := shopList(c.Stock)
	err = eachRow(ctx, tx, fmt.Sprintf(sqlLedger, places), shops, func(scan scanner) error {
		var k holdover.Stock
		var n int64
		err := scan(&k.Shop, &k.Item, &k.Group, &n)
		r.Ledger[k] = n
		return err
	})
	if err != nil {
		return r, fmt.Errorf("inventory_ledger: %w", err)
	}
	err = eachRow(ctx, tx, sqlHolds, nil, func(scan scanner) error {
		var raw []byte
		var shop int64
		var line holdover.Line
		var state string
		if err := scan(&raw, &shop, &line.Item, &line.Group, &line.Quantity, &state); err != nil {
			return err
		}
		token, err := toToken(raw)
		if err != nil {
			return err
		}
		h := r.MySQL[token]
		if h.State, err = holdover.ParseState(state); err != nil {
			return err
		}
		h.Shop = shop
		if line.Quantity > 0 {
			h.Lines = append(h.Lines, line)
		}
		r.MySQL[token] = h
		return nil
	})
	if err != nil {
		return r, fmt.Errorf("reserved_quantities: %w", err)
	}
	err = eachRow(ctx, tx, fmt.Sprintf(sqlEntries, places), shops, func(scan scanner) error {
		var raw []byte
		var e Entry
		if err := scan(&raw, &e.Shop, &e.Item, &e.Group, &e.Delta, &e.Kind); err != nil {
			return err
		}
		var err error
		e.Token, err = toToken(raw)
		r.Entries = append(r.Entries, e)
		return err
	})
	if err != nil {
		return r, fmt.Errorf("ledger_entries: %w", err)
	}
	// Last, so that a hold that expired while the tables were read is past it.
	var now int64
	if err := tx.QueryRowContext(ctx, sqlNow).Scan(&now); err != nil {
		return r, fmt.Errorf("clock: %w", err)
	}
	r.Now = unixMilli(now)
	return r, nil
}

type scanner func(dest ...any) error

func eachRow(ctx context.Context, tx *sql.Tx, statement string, args []any, row func(scanner) error) error {
	rows, err := tx.QueryContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func toToken(raw []byte) (holdover.Token, error) {
	var t holdover.Token
	if len(raw) != len(t) {
		return t, fmt.Errorf("a token of %d bytes: want %d", len(raw), len(t))
	}
	copy(t[:], raw)
	return t, nil
}

// shopList is the stock's shops as arguments, with a placeholder for each.
func shopList(stock []holdover.Stock) ([]any, string) {
	ids := make([]int64, len(stock))
	for i, s := range stock {
		ids[i] = s.Shop
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	return args, strings.TrimSuffix(strings.Repeat("?,", len(ids)), ",")
}
