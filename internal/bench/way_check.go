package bench

import (
	"context"
)

// checkThenWrite is wrong on purpose: it reads the stock, checks it in the
// program, and writes what it has computed. Between the two others do the same.
type checkThenWrite struct{ rows }

func openCheckThenWrite(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	return checkThenWrite{r}, err
}

const (
	readStock = `SELECT available FROM bench_stock WHERE item_id = ?`
	setStock  = `UPDATE bench_stock SET available = ? WHERE item_id = ?`
)

func (w checkThenWrite) reserve(ctx context.Context, c *call) (bool, error) {
	l := c.line()
	return c.tried(func() error {
		var available int64
		if err := w.db.QueryRowContext(ctx, readStock, l.Item).Scan(&available); err != nil {
			return err
		}
		if available < l.Quantity {
			return errShort
		}
		return begun(ctx, w.db, nil, beginTx+insertHold+"; "+setStock+"; "+commitTx,
			c.token[:], 0, l.Item, l.Quantity, available-l.Quantity, l.Item)
	})
}
