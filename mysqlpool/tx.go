package mysqlpool

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"time"

	"holdover"
)

// tx is one transaction on one connection. BEGIN, COMMIT and ROLLBACK are sent
// as statements, not through sql.Tx: its Commit knows no deadline, and what
// was sent when the answer got lost has to be known here.
type tx struct {
	s    *Store
	conn *sql.Conn
}

// transact runs step in one transaction, and again when it lost a deadlock, a
// lock wait or its connection: never more often than MaxRetries, with a
// jittered pause that holds no connection. Any error rolls back, and nothing
// goes on in a transaction after one. Errors of the server come back as
// *holdover.StoreError; what step itself returns comes back as it is.
func (s *Store) transact(ctx context.Context, db *sql.DB, op string, token holdover.Token, step func(context.Context, *tx) error) error {
	pause := s.cfg.RetryBackoff
	for try := 0; ; try++ {
		err := s.attempt(ctx, db, step)
		if err == nil {
			return nil
		}
		var se *serverError
		if !errors.As(err, &se) {
			return err
		}
		switch number(err) {
		case errDeadlock:
			s.stats.deadlocks.Add(1)
		case errLockWait:
			s.stats.lockWaits.Add(1)
		}
		if !retryable(err) || try >= s.cfg.MaxRetries || !sleep(ctx, rand.N(pause+1)) {
			return s.fail(op, token, timedOut(ctx, err))
		}
		s.stats.retries.Add(1)
		pause *= 2
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

func (s *Store) attempt(ctx context.Context, db *sql.DB, step func(context.Context, *tx) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return &serverError{err: err}
	}
	defer conn.Close()
	t := &tx{s: s, conn: conn}
	open := true
	defer func() { // also when step panics: the pool must never get an open transaction back
		if open {
			t.rollback(ctx)
		}
	}()
	if _, err := t.exec(ctx, stmtBegin); err != nil {
		return err
	}
	if err := step(ctx, t); err != nil {
		if readOnly(err) {
			discard(conn)
			open = false
		}
		return err
	}
	if err := ctx.Err(); err != nil {
		return &serverError{err: err} // COMMIT not sent: certainly rolled back
	}
	open = false
	if _, err := conn.ExecContext(ctx, stmtCommit); err != nil {
		discard(conn)
		// Without a write, or with the server's word that it rolled back, the outcome is known.
		known := errors.Is(err, driver.ErrBadConn)
		switch number(err) {
		case errDeadlock, errLockWait, errGroupRollback, errSnapshot:
			known = true
		}
		return &serverError{err: err, unknown: !known}
	}
	return nil
}

// rollback frees the locks now when the server answers, else by dropping the
// connection. It is bounded by itself: the caller's context may be over.
func (t *tx) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
	defer cancel()
	if _, err := t.conn.ExecContext(ctx, stmtRollback); err != nil {
		discard(t.conn)
	}
}

// discard closes the connection instead of giving it back to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// exec returns the number of changed rows.
func (t *tx) exec(ctx context.Context, q string, args ...any) (int64, error) {
	res, err := t.conn.ExecContext(ctx, q, args...)
	if err != nil {
		return 0, &serverError{err: err}
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, &serverError{err: err}
	}
	return n, nil
}

// query calls scan for each row.
func (t *tx) query(ctx context.Context, scan func(*sql.Rows) error, q string, args ...any) error {
	return each(ctx, t.conn, scan, q, args...)
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func each(ctx context.Context, db querier, scan func(*sql.Rows) error, q string, args ...any) error {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return &serverError{err: err}
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return &serverError{err: err}
		}
	}
	if err := rows.Err(); err != nil {
		return &serverError{err: err}
	}
	return nil
}

// read runs one statement that locks nothing, outside a transaction.
func (s *Store) read(ctx context.Context, db *sql.DB, op string, token holdover.Token, scan func(*sql.Rows) error, q string, args ...any) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	if err := each(ctx, db, scan, q, args...); err != nil {
		return s.fail(op, token, timedOut(ctx, err))
	}
	return nil
}
