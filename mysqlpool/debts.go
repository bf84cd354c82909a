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

// Levels is Probe, and the units of each item that the other store gave to holds
// which could not be placed here (see Owe), both at one moment. Items of which
// nothing is owed are left out of the map. It locks nothing.
func (s *Store) Levels(ctx context.Context, shop int64, items []int64) (stocks []holdover.Stock, owed map[int64]int64, err error) {
	owed = make(map[int64]int64)
	for chunk := range slices.Chunk(items, maxKeys) {
		b := new(statement).add(s.ledger.owedItems, shop).in(chunk).add(s.ledger.levelsTail)
		err := s.read(ctx, s.main, "probe", holdover.Token{}, func(rows *sql.Rows) error {
			var st holdover.Stock
			var units int64
			err := rows.Scan(&st.Shop, &st.Item, &st.Group, &st.Available, &st.Issued, &st.Pooled, &units)
			st.Held = st.Issued - st.Pooled
			stocks = append(stocks, st)
			if units > 0 {
				owed[st.Item] = units
			}
			return err
		}, b.String())
		if err != nil {
			return nil, nil, err
		}
	}
	return stocks, owed, nil
}

// Standing is what is here of the items at one moment, hold by hold: one statement
// that locks nothing. It reads all live holds: ask only where they are few.
func (s *Store) Standing(ctx context.Context, shop int64, items []int64) (holdover.Standing, error) {
	var all holdover.Standing
	for chunk := range slices.Chunk(items, maxKeys) {
		b := new(statement).add(s.ledger.standingStocks, shop).in(chunk).add(standingHolds, shop).in(chunk).add(standingOwed, shop).in(chunk).add(standingTail)
		err := s.read(ctx, s.main, "read hold by hold", holdover.Token{}, func(rows *sql.Rows) error {
			var part int
			var token []byte
			var item, group, a, issued, pooled int64
			if err := rows.Scan(&part, &token, &item, &group, &a, &issued, &pooled); err != nil {
				return err
			}
			if part == 0 {
				all.Stocks = append(all.Stocks, holdover.Stock{Shop: shop, Item: item, Group: group, Available: a, Issued: issued, Pooled: pooled, Held: issued - pooled})
				return nil
			}
			h := holdover.StandingHold{Item: item, Units: a}
			var err error
			if h.Token, err = tokenOf(token); part == 1 {
				all.Held = append(all.Held, h)
			} else {
				all.Owed = append(all.Owed, h)
			}
			return err
		}, b.String())
		if err != nil {
			return holdover.Standing{}, err
		}
	}
	return all, nil
}
