package bench

import (
	"context"
)

// floor is what a commit costs: one INSERT of a hold in autocommit, and nothing
// is taken. No way that survives a crash can be quicker.
type floor struct{ rows }

func openFloor(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	return floor{r}, err
}

func (w floor) reserve(ctx context.Context, c *call) (bool, error) {
	l := c.line()
	return c.tried(func() error {
		_, err := w.db.ExecContext(ctx, insertHold, c.token[:], 0, l.Item, l.Quantity)
		return err
	})
}

// count: it takes no stock, so the stock is what its holds have left of it.
func (w floor) count(ctx context.Context) (truth, error) {
	t, err := w.rows.count(ctx)
	for i := range t.left {
		t.left[i] -= t.held[i]
	}
	return t, err
}
