package connhold

import (
	"context"
	"database/sql/driver"
	"errors"
)

// database/sql chooses its way by the interfaces that a connection has. The
// drivers' connections have any of ten, but for most of them a method that does
// what database/sql does without it can't be told from a missing one: conn has
// those always. Two are different. A connection with ExecerContext has its
// arguments checked before it can say driver.ErrSkip, and without the
// statement's own checker; the same goes for QueryerContext. So these are there
// only when the driver has them: four shapes, not a thousand.

// The deprecated forms of both, which database/sql takes when there is no other.
type (
	oldExecer interface {
		Exec(query string, args []driver.Value) (driver.Result, error)
	}
	oldQueryer interface {
		Query(query string, args []driver.Value) (driver.Rows, error)
	}
)

func shaped(c *conn) driver.Conn {
	_, execs := c.inner.(driver.ExecerContext)
	_, execsOld := c.inner.(oldExecer)
	_, queries := c.inner.(driver.QueryerContext)
	_, queriesOld := c.inner.(oldQueryer)
	switch execs, queries = execs || execsOld, queries || queriesOld; {
	case execs && queries:
		return struct {
			*conn
			execer
			queryer
		}{c, execer{c}, queryer{c}}
	case execs:
		return struct {
			*conn
			execer
		}{c, execer{c}}
	case queries:
		return struct {
			*conn
			queryer
		}{c, queryer{c}}
	}
	return c
}

type execer struct{ to *conn }

// ExecContext forwards, to the deprecated form if need be.
func (e execer) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	e.to.use(ctx)
	if inner, ok := e.to.inner.(driver.ExecerContext); ok {
		return inner.ExecContext(ctx, query, args)
	}
	values, err := plain(ctx, args)
	if err != nil {
		return nil, err
	}
	return e.Exec(query, values)
}

// Exec forwards; database/sql never calls it.
func (e execer) Exec(query string, args []driver.Value) (driver.Result, error) {
	e.to.use(context.Background())
	if inner, ok := e.to.inner.(oldExecer); ok {
		return inner.Exec(query, args)
	}
	return nil, driver.ErrSkip
}

type queryer struct{ to *conn }

// QueryContext forwards, to the deprecated form if need be.
func (q queryer) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	q.to.use(ctx)
	if inner, ok := q.to.inner.(driver.QueryerContext); ok {
		return inner.QueryContext(ctx, query, args)
	}
	values, err := plain(ctx, args)
	if err != nil {
		return nil, err
	}
	return q.Query(query, values)
}

// Query forwards; database/sql never calls it.
func (q queryer) Query(query string, args []driver.Value) (driver.Rows, error) {
	q.to.use(context.Background())
	if inner, ok := q.to.inner.(oldQueryer); ok {
		return inner.Query(query, args)
	}
	return nil, driver.ErrSkip
}

// plain is what database/sql does for a driver that knows neither names nor
// contexts.
func plain(ctx context.Context, named []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(named))
	for i, arg := range named {
		if arg.Name != "" {
			return nil, errors.New("connhold: the driver does not support named parameters")
		}
		values[i] = arg.Value
	}
	return values, ctx.Err()
}
