package mysqlpool

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover"
	"holdover/mysqlpool/connhold"
)

// tx is one transaction on one connection. BEGIN, COMMIT and ROLLBACK are sent
// as statements, not through sql.Tx: BEGIN goes with the first statement and
// COMMIT with the last ones, in one packet each, and what was sent when an
// answer got lost has to be known here.
type tx struct {
	s    *Store
	conn *sql.Conn
	open bool // BEGIN was sent
	done bool // COMMIT was sent
}

// transact runs step in one transaction, and again when it lost a deadlock, a
// lock wait or its connection: never more often than MaxRetries, with a
// jittered pause that holds no connection. Any error rolls back, and nothing
// goes on in a transaction after one. Errors of the server come back as
// *holdover.StoreError; what step itself returns comes back as it is.
func (s *Store) transact(ctx context.Context, db *sql.DB, op string, token holdover.Token, step func(context.Context, *tx) error) error {
	return s.transactWith(ctx, db, op, token, true, step)
}

// transactWith is transact; without patience a lock wait that ran out is not
// waited for again: others share the transaction.
func (s *Store) transactWith(ctx context.Context, db *sql.DB, op string, token holdover.Token, patient bool, step func(context.Context, *tx) error) error {
	pause := s.cfg.RetryBackoff
	for try := 0; ; try++ {
		err := s.attempt(ctx, db, op, step)
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
		if !retryable(err) || !patient && number(err) == errLockWait || try >= s.cfg.MaxRetries || !sleep(ctx, rand.N(pause+1)) {
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

func (s *Store) attempt(ctx context.Context, db *sql.DB, op string, step func(context.Context, *tx) error) error {
	ctx = connhold.WithTag(ctx, op)
	conn, err := db.Conn(ctx)
	if err != nil {
		return &serverError{err: err}
	}
	defer conn.Close()
	t := &tx{s: s, conn: conn}
	defer func() { // also when step panics: the pool must never get an open transaction back
		if t.open && !t.done {
			t.rollback(ctx)
		}
	}()
	if err := step(ctx, t); err != nil {
		if readOnly(err) {
			discard(conn)
			t.done = true
		}
		return err
	}
	if !t.open || t.done {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return &serverError{err: err} // COMMIT not sent: certainly rolled back
	}
	_, err = t.send(ctx, new(statement).commit())
	return err
}

// commit makes the packet end its transaction.
func (b *statement) commit() *statement {
	b.commits = true
	return b.next().add(stmtCommit)
}

// begin puts BEGIN before the first statement of the transaction.
func (t *tx) begin(q string) string {
	if t.open {
		return q
	}
	t.open = true
	return stmtBegin + ";\n" + q
}

// send carries out statements that write, in one round trip, and returns the
// rows that each has changed. The first one that fails ends the packet: those
// after it are not carried out, COMMIT least of all.
func (t *tx) send(ctx context.Context, b *statement) (changed []int64, err error) {
	first := !t.open
	q := t.begin(b.String())
	t.done = b.commits
	args := make([]driver.NamedValue, len(b.args))
	err = t.conn.Raw(func(conn any) error {
		execer, ok := conn.(driver.ExecerContext)
		if !ok {
			return fmt.Errorf("the connection is a %T, which can't run several statements at once", conn)
		}
		checker, ok := conn.(driver.NamedValueChecker)
		if !ok {
			return fmt.Errorf("the connection is a %T, which can't check parameters", conn)
		}
		for i, arg := range b.args {
			args[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
			if err := checker.CheckNamedValue(&args[i]); err != nil {
				return err
			}
		}
		res, err := execer.ExecContext(ctx, q, args)
		if err != nil {
			return err
		}
		all, ok := res.(mysql.Result)
		if !ok {
			return fmt.Errorf("the driver's result is a %T, which does not tell the statements apart", res)
		}
		changed = all.AllRowsAffected()
		return nil
	})
	if err == nil {
		if first {
			changed = changed[1:]
		}
		return changed, nil
	}
	if !b.commits {
		return nil, &serverError{err: err}
	}
	// Without a write, or with the server's word that it rolled back or got no
	// further than a statement before, the outcome is known.
	known := errors.Is(err, driver.ErrBadConn) || refusedBeforeCommit(number(err))
	switch {
	case !known, readOnly(err):
		discard(t.conn)
	default:
		t.rollback(ctx)
	}
	return nil, &serverError{err: err, unknown: !known}
}

// ask reads the result sets of statements that go in one round trip, each with
// its own scan.
func (t *tx) ask(ctx context.Context, b *statement, scans ...func(*sql.Rows) error) error {
	return eachSet(ctx, t.conn, scans, t.begin(b.String()), b.args...)
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
	b := &statement{args: args}
	b.WriteString(q)
	changed, err := t.send(ctx, b)
	if err != nil {
		return 0, err
	}
	return changed[0], nil
}

// query calls scan for each row.
func (t *tx) query(ctx context.Context, scan func(*sql.Rows) error, q string, args ...any) error {
	return each(ctx, t.conn, scan, t.begin(q), args...)
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func each(ctx context.Context, db querier, scan func(*sql.Rows) error, q string, args ...any) error {
	return eachSet(ctx, db, []func(*sql.Rows) error{scan}, q, args...)
}

func eachSet(ctx context.Context, db querier, scans []func(*sql.Rows) error, q string, args ...any) error {
	rows, err := db.QueryContext(ctx, q, args...)
	if err != nil {
		return &serverError{err: err}
	}
	defer rows.Close()
	for i, scan := range scans {
		if i > 0 && !rows.NextResultSet() {
			if err := rows.Err(); err != nil {
				return &serverError{err: err}
			}
			return &serverError{err: fmt.Errorf("the server answered %d of %d statements", i, len(scans))}
		}
		for rows.Next() {
			if err := scan(rows); err != nil {
				return &serverError{err: err}
			}
		}
		if err := rows.Err(); err != nil {
			return &serverError{err: err}
		}
	}
	return nil
}

// read runs one statement that locks nothing, outside a transaction.
func (s *Store) read(ctx context.Context, db *sql.DB, op string, token holdover.Token, scan func(*sql.Rows) error, q string, args ...any) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	ctx = connhold.WithTag(ctx, op)
	if err := each(ctx, db, scan, q, args...); err != nil {
		return s.fail(op, token, timedOut(ctx, err))
	}
	return nil
}
