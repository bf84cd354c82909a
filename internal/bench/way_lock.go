package bench

import (
	"context"
)

// selectForUpdate locks the row, decides in the program, and writes: two
// packets. The hold goes first, so that the lock is taken as late as can be.
type selectForUpdate struct{ rows }

func openSelectForUpdate(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	return selectForUpdate{r}, err
}

const lockStock = `SELECT available FROM bench_stock WHERE item_id = ? FOR UPDATE`

func (w selectForUpdate) reserve(ctx context.Context, c *call) (bool, error) {
	l := c.line()
	return c.tried(func() error {
		conn, err := w.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		var available int64
		err = conn.QueryRowContext(ctx, beginTx+insertHold+"; "+lockStock, c.token[:], 0, l.Item, l.Quantity, l.Item).Scan(&available)
		if err == nil && available < l.Quantity {
			err = errShort
		}
		if err == nil {
			_, err = conn.ExecContext(ctx, takeStock+"; "+commitTx, l.Quantity, l.Item)
		}
		if err != nil {
			_, _ = conn.ExecContext(ctx, rollbackTx) // a connection that can't is broken, and dropped
		}
		return err
	})
}
