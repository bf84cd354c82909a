package bench

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/go-sql-driver/mysql"
)

// The ways over unit rows with a transaction for each call: take rows that
// nobody has locked, delete them, insert the hold, commit. The pool is refilled
// beside them.
const (
	grabUnit   = `SELECT unit FROM bench_units WHERE item_id = ? ORDER BY unit LIMIT 1 FOR UPDATE SKIP LOCKED`
	deleteUnit = `DELETE FROM bench_units WHERE item_id = ? AND unit = ?`
	anyUnit    = `SELECT EXISTS (SELECT 1 FROM bench_units WHERE item_id = ?)`
	callTake   = `CALL bench_take(?, ?)`
)

// units is what these ways have in common.
type units struct {
	servers *servers
	db      *sql.DB
	items   int
	pool    *refiller
}

func openUnits(ctx context.Context, s *servers, set setting, change func(*mysql.Config)) (units, error) {
	u := units{servers: s, items: len(set.stock)}
	var err error
	if u.pool, err = openRefiller(ctx, s, set); err != nil {
		return u, err
	}
	if u.db, err = s.open(ctx, set, change); err != nil {
		err = errors.Join(err, u.pool.close())
	}
	return u, err
}

func (u units) close() error {
	if u.db == nil {
		return nil
	}
	return errors.Join(u.db.Close(), u.pool.close())
}

func (u units) count(ctx context.Context) (t truth, err error) {
	if t, err = u.servers.countRow(ctx, u.items); err != nil {
		return t, err
	}
	pooled, err := u.servers.perItem(ctx, u.items, "SELECT item_id, COUNT(*) FROM bench_units GROUP BY item_id")
	t.left = add(t.left, pooled)
	return t, err
}

// shortFor bounds how long a call waits for a refill.
const shortFor = 2 * time.Second

// taken runs take until it got a unit. A short answer is not "sold out": other
// transactions may have the rows, and may roll back. Sold out is when nothing
// is left to refill from and no row is there, locked or not.
func (u units) taken(ctx context.Context, c *call, take func() error) (bool, error) {
	began := time.Now()
	for {
		granted, err := c.tried(take)
		switch {
		case granted:
			u.pool.sold(c.lines)
			return true, nil
		case err != nil:
			return false, err
		}
		u.pool.hurry()
		if item, out := u.pool.exhausted(c.lines); out {
			var there bool
			if err := u.db.QueryRowContext(ctx, anyUnit, item).Scan(&there); err != nil || !there {
				return false, err
			}
		}
		if time.Since(began) > shortFor {
			return false, errGaveUp
		}
		c.conflicts++
		if err := pause(ctx, time.Millisecond); err != nil {
			return false, err
		}
	}
}

// usual is the code that one writes first: BeginTx with an isolation level,
// prepared statements, four statements and the commit, each a round trip.
type usual struct {
	units
	grab, remove, insert *sql.Stmt
}

func openUsual(ctx context.Context, s *servers, set setting) (way, error) {
	u, err := openUnits(ctx, s, set, func(cfg *mysql.Config) { cfg.InterpolateParams = false })
	w := &usual{units: u}
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{{&w.grab, grabUnit}, {&w.remove, deleteUnit}, {&w.insert, insertHold}} {
		if err == nil {
			*p.stmt, err = u.db.PrepareContext(ctx, p.text)
		}
	}
	return w, err
}

func (w *usual) reserve(ctx context.Context, c *call) (bool, error) {
	l := c.line()
	return w.taken(ctx, c, func() error {
		tx, err := w.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		defer tx.Rollback() // after a commit it does nothing
		var unit int64
		if err := tx.StmtContext(ctx, w.grab).QueryRowContext(ctx, l.Item).Scan(&unit); err != nil {
			return noRows(err)
		}
		if _, err := tx.StmtContext(ctx, w.remove).ExecContext(ctx, l.Item, unit); err != nil {
			return err
		}
		if _, err := tx.StmtContext(ctx, w.insert).ExecContext(ctx, c.token[:], 0, l.Item, l.Quantity); err != nil {
			return err
		}
		return tx.Commit()
	})
}

func noRows(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errShort
	}
	return err
}

// interpolated is the same with the parameters in the text and the isolation
// level in the connection string: five round trips.
type interpolated struct{ units }

func openInterpolated(ctx context.Context, s *servers, set setting) (way, error) {
	u, err := openUnits(ctx, s, set, nil)
	return interpolated{u}, err
}

func (w interpolated) reserve(ctx context.Context, c *call) (bool, error) {
	l := c.line()
	return w.taken(ctx, c, func() error {
		tx, err := w.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // after a commit it does nothing
		var unit int64
		if err := tx.QueryRowContext(ctx, grabUnit, l.Item).Scan(&unit); err != nil {
			return noRows(err)
		}
		if _, err := tx.ExecContext(ctx, deleteUnit, l.Item, unit); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, insertHold, c.token[:], 0, l.Item, l.Quantity); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// procedure is the same as one call: one round trip.
type procedure struct{ units }

func openProcedure(ctx context.Context, s *servers, set setting) (way, error) {
	u, err := openUnits(ctx, s, set, nil)
	return procedure{u}, err
}

func (w procedure) reserve(ctx context.Context, c *call) (bool, error) {
	return w.taken(ctx, c, func() error {
		conn, err := w.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		var unit sql.NullInt64
		err = conn.QueryRowContext(ctx, callTake, c.token[:], c.line().Item).Scan(&unit)
		switch {
		case err != nil:
			_, _ = conn.ExecContext(ctx, rollbackTx) // an error leaves the procedure's transaction open
		case !unit.Valid:
			err = errShort
		}
		return err
	})
}
