package connhold

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"
)

type state uint8

const (
	idle  state = iota // in the pool
	fresh              // opened, and nobody is known to have taken it yet
	taken
)

// conn is one connection and the hold that is under way on it. database/sql
// serializes all calls on a connection, so nothing here is locked.
//
// Which of its calls mean what (database/sql of Go 1.26):
//
//	taken       Connect for a caller that found no free connection, or
//	            ResetSession for a connection that was used before. Every other
//	            taking is of a connection that the pool's opener made: it is
//	            handed out without any call, so its first use stands for it,
//	            microseconds later.
//	given back  IsValid, always and only then; or Close alone, for a connection
//	            that an operation called bad. A pool that doesn't keep what was
//	            given back calls Close after IsValid: the hold is over by then.
//
// sql.Conn, Tx and open Rows keep what they took until their own end, and
// database/sql calls neither of both in between.
type conn struct {
	inner    driver.Conn
	recorder Recorder

	state state
	tag   string
	since time.Time
	drop  bool // a rollback after cancellation, on a driver that can't be reset
}

func (c *conn) take(tag string) { c.state, c.tag, c.since = taken, tag, time.Now() }

func (c *conn) use(ctx context.Context) {
	if c.state == fresh {
		c.take(Tag(ctx))
	}
}

func (c *conn) giveBack() {
	if c.state == taken {
		c.recorder.Held(c.tag, time.Since(c.since))
	}
	c.state = idle
}

// Unwrap returns the driver's own connection, for sql.Conn.Raw.
func (c *conn) Unwrap() driver.Conn {
	c.use(context.Background())
	return c.inner
}

// ResetSession begins a hold: the pool gives the connection to ctx's owner.
func (c *conn) ResetSession(ctx context.Context) error {
	c.take(Tag(ctx))
	resetter, ok := c.inner.(driver.SessionResetter)
	if !ok {
		return nil
	}
	err := resetter.ResetSession(ctx)
	if errors.Is(err, driver.ErrBadConn) {
		c.state = idle // nobody got it: the pool closes it and takes another
	}
	return err
}

// IsValid ends the hold: the pool asks whether to keep what it was given back.
func (c *conn) IsValid() bool {
	c.giveBack()
	if c.drop {
		return false
	}
	validator, ok := c.inner.(driver.Validator)
	return !ok || validator.IsValid()
}

// Close ends the hold of a connection that was dropped as bad.
func (c *conn) Close() error {
	c.giveBack()
	return c.inner.Close()
}

// Prepare forwards.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	c.use(context.Background())
	return c.inner.Prepare(query)
}

// PrepareContext forwards, or does what database/sql does without it.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.use(ctx)
	if preparer, ok := c.inner.(driver.ConnPrepareContext); ok {
		return preparer.PrepareContext(ctx, query)
	}
	stmt, err := c.inner.Prepare(query)
	if err == nil && ctx.Err() != nil {
		_ = stmt.Close() // the caller gave up: that is what it is told
		return nil, ctx.Err()
	}
	return stmt, err
}

// Begin forwards.
func (c *conn) Begin() (driver.Tx, error) { return c.BeginTx(context.Background(), driver.TxOptions{}) }

// BeginTx forwards, or does what database/sql does without it.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.use(ctx)
	tx, err := c.begin(ctx, opts)
	if err != nil || c.keptOnRollback() {
		return tx, err
	}
	return dropping{tx, ctx, c}, nil
}

func (c *conn) begin(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if beginner, ok := c.inner.(driver.ConnBeginTx); ok {
		return beginner.BeginTx(ctx, opts)
	}
	switch {
	case opts.Isolation != 0:
		return nil, errors.New("connhold: the driver does not support an isolation level other than its default")
	case opts.ReadOnly:
		return nil, errors.New("connhold: the driver does not support read-only transactions")
	}
	//lint:ignore SA1019 it is all that this driver has
	tx, err := c.inner.Begin()
	if err == nil && ctx.Err() != nil {
		_ = tx.Rollback()
		return nil, ctx.Err()
	}
	return tx, err
}

// keptOnRollback: database/sql closes a connection whose transaction was
// cancelled, unless the driver has both of these. The wrapper always has both,
// so it looks at the driver's own.
func (c *conn) keptOnRollback() bool {
	_, resets := c.inner.(driver.SessionResetter)
	_, validates := c.inner.(driver.Validator)
	return resets && validates
}

// dropping is a transaction of a driver without both.
type dropping struct {
	driver.Tx
	ctx  context.Context // the transaction's
	conn *conn
}

// Rollback marks the connection when the transaction was cancelled.
func (t dropping) Rollback() error {
	t.conn.drop = t.conn.drop || t.ctx.Err() != nil
	return t.Tx.Rollback()
}

// Ping forwards; without it an open connection is all that a ping asks for.
func (c *conn) Ping(ctx context.Context) error {
	c.use(ctx)
	if pinger, ok := c.inner.(driver.Pinger); ok {
		return pinger.Ping(ctx)
	}
	return nil
}

// CheckNamedValue forwards; without it database/sql goes on to its next check.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}
