package connhold

import (
	"context"
	"database/sql/driver"
	"io"
	"time"
)

// Recorder is told of every hold when it ends: how long a connection was out
// of its pool, and the tag that its taker's context had, or "". It is called
// on the way of giving back, with the connection's lock held: it must be quick,
// safe for concurrent use, and must not use the same *sql.DB.
type Recorder interface {
	Held(tag string, d time.Duration)
}

type tagKey struct{}

// WithTag names the business process that the connections taken under this
// context are taken for, like "reserve". Tags are of low cardinality: never a
// token, a shop or an item. The innermost tag counts.
func WithTag(ctx context.Context, tag string) context.Context {
	return context.WithValue(ctx, tagKey{}, tag)
}

// Tag returns the context's tag, or "".
func Tag(ctx context.Context) string {
	tag, _ := ctx.Value(tagKey{}).(string)
	return tag
}

// Wrap returns a connector whose connections report their holds to r. It is
// c itself when r is nil. The result is an io.Closer when c is one.
func Wrap(c driver.Connector, r Recorder) driver.Connector {
	if r == nil {
		return c
	}
	wrapped := connector{c, r}
	if closer, ok := c.(io.Closer); ok {
		return struct {
			connector
			io.Closer
		}{wrapped, closer}
	}
	return wrapped
}

type connector struct {
	driver.Connector
	recorder Recorder
}

// Connect opens one connection. With a tag in ctx it is taken from here on: a
// caller of the pool asked for it. Without one it may be the pool's own opener
// that asks, which database/sql doesn't tell apart: then its first use decides.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	held := &conn{inner: inner, recorder: c.recorder, state: fresh}
	if tag := Tag(ctx); tag != "" {
		held.take(tag)
	}
	return shaped(held), nil
}
