package bench

import (
	"context"
	"database/sql"
	"errors"

	"github.com/go-sql-driver/mysql"
)

// rows is what the ways with one stock row for each item have in common.
type rows struct {
	servers *servers
	db      *sql.DB
	items   int
}

func openRows(ctx context.Context, s *servers, set setting, change func(*mysql.Config)) (rows, error) {
	if err := s.fillStock(ctx, set.stock); err != nil {
		return rows{}, err
	}
	db, err := s.open(ctx, set, change)
	return rows{s, db, len(set.stock)}, err
}

func (w rows) count(ctx context.Context) (truth, error) { return w.servers.countRow(ctx, w.items) }
func (w rows) close() error                             { return w.db.Close() }

// claim ends a hold: the stock has lost its units already.
func (w rows) claim(ctx context.Context, c *call) error {
	_, err := w.db.ExecContext(ctx, claimHold, c.token[:])
	return err
}

var errShort = errors.New("short of stock")

// tried runs a transaction, again after a deadlock or a lock wait, and maps
// errShort to a refusal.
func (c *call) tried(tx func() error) (granted bool, err error) {
	for range maxTries {
		c.attempts++
		switch err = tx(); {
		case err == nil:
			return true, nil
		case errors.Is(err, errShort):
			return false, nil
		case !c.lost(err):
			return false, err
		}
	}
	return false, err
}

// conditionalFirst takes the stock row's lock with its first statement and
// holds it to the commit: UPDATE ... WHERE available >= n, then the hold.
type conditionalFirst struct{ rows }

func openConditionalFirst(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	return conditionalFirst{r}, err
}

func (w conditionalFirst) reserve(ctx context.Context, c *call) (bool, error) {
	l := c.line()
	return c.tried(func() error {
		return begun(ctx, w.db, func(conn *sql.Conn, r sql.Result) error {
			if n, err := r.RowsAffected(); err != nil || n == 0 {
				return cmpErr(err, errShort)
			}
			_, err := conn.ExecContext(ctx, insertHold+"; "+commitTx, c.token[:], 0, l.Item, l.Quantity)
			return err
		}, beginTx+updateStock, l.Quantity, l.Item, l.Quantity)
	})
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// conditionalLast takes the lock with its last statement, in the first of two
// packets: it is held for the answer's way back, the commit's way there, and
// the commit.
type conditionalLast struct{ rows }

func openConditionalLast(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	return conditionalLast{r}, err
}

func (w conditionalLast) reserve(ctx context.Context, c *call) (bool, error) {
	l := c.line()
	return c.tried(func() error {
		return begun(ctx, w.db, func(conn *sql.Conn, r sql.Result) error {
			if n, err := r.RowsAffected(); err != nil || n == 0 {
				return cmpErr(err, errShort)
			}
			_, err := conn.ExecContext(ctx, commitTx)
			return err
		}, beginTx+insertHold+"; "+updateStock, c.token[:], 0, l.Item, l.Quantity, l.Quantity, l.Item, l.Quantity)
	})
}

// conditionalPipelined sends the whole transaction in one packet: the lock is
// taken last and held for nothing but the commit, whatever the round trip. The
// condition is the table's check constraint: where it fails the server stops
// before the COMMIT.
type conditionalPipelined struct{ rows }

func openConditionalPipelined(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	return conditionalPipelined{r}, err
}

const takeStock = `UPDATE bench_stock SET available = available - ? WHERE item_id = ?`

func (w conditionalPipelined) reserve(ctx context.Context, c *call) (bool, error) {
	l := c.line()
	return c.tried(func() error {
		return shortIfChecked(begun(ctx, w.db, nil, beginTx+insertHold+"; "+takeStock+"; "+commitTx,
			c.token[:], 0, l.Item, l.Quantity, l.Quantity, l.Item))
	})
}
