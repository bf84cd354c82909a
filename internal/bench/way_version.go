package bench

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"time"
)

// versionCAS reads the row without a lock and writes it only if nobody did
// meanwhile: success is one affected row. The losing try is rolled back, waits
// a little, and reads again, outside the transaction, a bounded number of
// times. The UPDATE comes first, because losing is the common case where many
// want one row.
type versionCAS struct{ rows }

func openVersionCAS(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	return versionCAS{r}, err
}

const (
	casTries   = 20
	casBackoff = time.Millisecond // doubled each time, with full jitter
	casLongest = 64 * time.Millisecond

	readVersion = `SELECT available, version FROM bench_stock WHERE item_id = ?`
	swapVersion = `UPDATE bench_stock SET available = available - ?, version = version + 1 WHERE item_id = ? AND version = ?`
)

var (
	errConflict = errors.New("the row changed since it was read")
	errGaveUp   = errors.New("gave up after the bounded number of tries")
)

func (w versionCAS) reserve(ctx context.Context, c *call) (bool, error) {
	longest := casBackoff
	for range casTries {
		c.attempts++
		err := w.try(ctx, c)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, errShort):
			return false, nil
		case errors.Is(err, errConflict):
			c.conflicts++
		case !c.lost(err):
			return false, err
		}
		if err := pause(ctx, rand.N(longest)); err != nil {
			return false, err
		}
		longest = min(2*longest, casLongest)
	}
	return false, errGaveUp
}

func (w versionCAS) try(ctx context.Context, c *call) error {
	l := c.line()
	var available, version int64
	if err := w.db.QueryRowContext(ctx, readVersion, l.Item).Scan(&available, &version); err != nil {
		return err
	}
	if available < l.Quantity {
		return errShort
	}
	return begun(ctx, w.db, func(conn *sql.Conn, r sql.Result) error {
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return cmpErr(err, errConflict)
		}
		_, err := conn.ExecContext(ctx, insertHold+"; "+commitTx, c.token[:], 0, l.Item, l.Quantity)
		return err
	}, beginTx+swapVersion, l.Quantity, l.Item, version)
}
