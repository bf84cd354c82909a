package mysqlpool

import (
	"context"
	"database/sql"
	"slices"

	"holdover"
)

const (
	debtHead = `INSERT INTO holdover_debts (token, shop_id, item_id, quantity, expires_at) VALUES `
	debtRow  = `(?, ?, ?, ?, ?)`
	debtTail = ` ON DUPLICATE KEY UPDATE expires_at = GREATEST(expires_at, ?) /*app='holdover',op='debt',step='note'*/`
	// Those that nobody counts any more go with the next one that comes.
	stmtDebtsForget = `DELETE FROM holdover_debts WHERE expires_at < UTC_TIMESTAMP(3) - INTERVAL 1 DAY ORDER BY expires_at LIMIT 1000 /*app='holdover',op='debt',step='forget'*/`

	stmtOwes = `SELECT 1 FROM holdover_debts WHERE token = ? LIMIT 1 /*app='holdover',op='debt',step='token'*/`

	// A token of which MySQL has a record is no debt any more: it was placed since,
	// or has ended. One whose time passed a minute ago without one is nobody's.
	owedHead = `SELECT d.item_id, CAST(SUM(d.quantity) AS SIGNED) FROM holdover_debts d
WHERE d.shop_id = ? AND d.expires_at > UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE
AND NOT EXISTS (SELECT 1 FROM reserved_quantities r WHERE r.token = d.token AND r.line = 0) AND d.item_id IN (`
	owedTail = `) GROUP BY d.item_id /*app='holdover',op='debt',step='owed'*/`
)

// Owe notes a hold that the other store granted and that was refused here: what
// is free here of its items is more than what the other store can give, by its
// units, until they are placed or it ends. Once per token; again when it is extended.
func (s *Store) Owe(ctx context.Context, h holdover.Hold) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	units := make(map[int64]int64)
	var items []int64
	for _, line := range h.Lines {
		if _, there := units[line.Item]; !there {
			items = append(items, line.Item)
		}
		units[line.Item] += line.Quantity
	}
	if len(items) == 0 {
		return nil
	}
	slices.Sort(items)
	b := new(statement).add(debtHead)
	for i, item := range items {
		b.sep(i, ", ").add(debtRow, h.Token[:], h.Shop, item, units[item], h.ExpiresAt)
	}
	b.add(debtTail, h.ExpiresAt)
	return s.transact(ctx, s.main, "note a debt", h.Token, func(ctx context.Context, t *tx) error {
		if _, err := t.exec(ctx, b.String()); err != nil {
			return err
		}
		_, err := t.exec(ctx, stmtDebtsForget)
		return err
	})
}

// Owes reports whether the token is noted as a debt, still open or not.
func (s *Store) Owes(ctx context.Context, token holdover.Token) (owes bool, err error) {
	err = s.read(ctx, s.main, "read a debt", token, func(*sql.Rows) error { owes = true; return nil }, stmtOwes, token[:])
	return owes, err
}

// Owed is the units of each item that the other store gave to holds which could
// not be placed here (see Owe). Items without any are left out. It locks nothing.
func (s *Store) Owed(ctx context.Context, shop int64, items []int64) (map[int64]int64, error) {
	owed := make(map[int64]int64)
	for chunk := range slices.Chunk(items, maxKeys) {
		b := new(statement).add(owedHead, shop).in(chunk).add(owedTail)
		err := s.read(ctx, s.main, "read debts", holdover.Token{}, func(rows *sql.Rows) error {
			var item, units int64
			err := rows.Scan(&item, &units)
			owed[item] = units
			return err
		}, b.String())
		if err != nil {
			return nil, err
		}
	}
	return owed, nil
}
