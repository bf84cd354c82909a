package connhold

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// world is a driver that does nothing and writes down what it is asked to do.
// Its connections come in shapes: which optional interfaces they have.
type world struct {
	shape   func(*world) driver.Conn
	dial    time.Duration
	mu      sync.Mutex
	calls   []string
	failing map[string]error // the next call of that name fails
}

func (w *world) call(name string, args ...any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprint(append([]any{name}, args...)...))
	err := w.failing[name]
	delete(w.failing, name)
	return err
}

func (w *world) fail(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failing == nil {
		w.failing = map[string]error{}
	}
	w.failing[name] = err
}

func (w *world) log() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func (w *world) Connect(context.Context) (driver.Conn, error) {
	time.Sleep(w.dial) // in a bubble of synctest
	return w.shape(w), w.call("connect")
}

func (w *world) Driver() driver.Driver { return nil }

// The parts that a connection's shape is made of.
type (
	core       struct{ w *world }
	pings      struct{ w *world }
	execs      struct{ w *world }
	queries    struct{ w *world }
	execsOld   struct{ w *world }
	queriesOld struct{ w *world }
	prepares   struct{ w *world }
	begins     struct{ w *world }
	resets     struct{ w *world }
	validates  struct{ w *world }
	checks     struct{ w *world }
)

func (p core) Prepare(q string) (driver.Stmt, error) { return stmt(p), p.w.call("prepare ", q) }
func (p core) Close() error                          { return p.w.call("close") }
func (p core) Begin() (driver.Tx, error)             { return tx(p), p.w.call("begin") }
func (p pings) Ping(context.Context) error           { return p.w.call("ping") }
func (p resets) ResetSession(context.Context) error  { return p.w.call("reset") }
func (p validates) IsValid() bool                    { return p.w.call("valid") == nil }

func (p execs) ExecContext(_ context.Context, q string, args []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, p.w.call("exec", q, args)
}

func (p queries) QueryContext(_ context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	return &rows{left: 2}, p.w.call("query", q, args)
}

func (p execsOld) Exec(q string, args []driver.Value) (driver.Result, error) {
	return driver.ResultNoRows, p.w.call("old exec ", q, args)
}

func (p queriesOld) Query(q string, args []driver.Value) (driver.Rows, error) {
	return &rows{left: 2}, p.w.call("old query ", q, args)
}

func (p prepares) PrepareContext(_ context.Context, q string) (driver.Stmt, error) {
	return stmt(p), p.w.call("prepare in context ", q)
}

func (p begins) BeginTx(_ context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return tx(p), p.w.call("begin in context ", opts.Isolation, opts.ReadOnly)
}

// odd is a type that only a connection's checker, or else a statement's
// converter, makes something of.
type odd struct{ n int64 }

func (p checks) CheckNamedValue(v *driver.NamedValue) error {
	if o, ok := v.Value.(odd); ok {
		v.Value = o.n + 1000
		return p.w.call("check")
	}
	return driver.ErrSkip
}

type stmt struct{ w *world }

func (s stmt) Close() error  { return s.w.call("close statement") }
func (s stmt) NumInput() int { return -1 }
func (s stmt) Exec(a []driver.Value) (driver.Result, error) {
	return driver.ResultNoRows, s.w.call("run", a)
}
func (s stmt) Query(a []driver.Value) (driver.Rows, error) { return &rows{left: 2}, s.w.call("run", a) }
func (s stmt) ColumnConverter(int) driver.ValueConverter   { return s }

func (s stmt) ConvertValue(v any) (driver.Value, error) {
	if o, ok := v.(odd); ok {
		return o.n, nil
	}
	return driver.DefaultParameterConverter.ConvertValue(v)
}

type tx struct{ w *world }

func (t tx) Commit() error   { return t.w.call("commit") }
func (t tx) Rollback() error { return t.w.call("rollback") }

type rows struct{ left int }

func (r *rows) Columns() []string { return []string{"n"} }
func (r *rows) Close() error      { return nil }
func (r *rows) Next(dest []driver.Value) error {
	if r.left == 0 {
		return io.EOF
	}
	r.left--
	dest[0] = int64(r.left)
	return nil
}

var errPlanned = errors.New("planned")

func full(w *world) driver.Conn {
	return struct {
		core
		pings
		execs
		queries
		prepares
		begins
		resets
		validates
		checks
	}{core{w}, pings{w}, execs{w}, queries{w}, prepares{w}, begins{w}, resets{w}, validates{w}, checks{w}}
}

// shapes are connections that real drivers have had, and each part alone.
var shapes = map[string]func(*world) driver.Conn{
	"full": full,
	"bare": func(w *world) driver.Conn { return core{w} },
	"ping": func(w *world) driver.Conn {
		return struct {
			core
			pings
		}{core{w}, pings{w}}
	},
	"exec": func(w *world) driver.Conn {
		return struct {
			core
			execs
		}{core{w}, execs{w}}
	},
	"query": func(w *world) driver.Conn {
		return struct {
			core
			queries
		}{core{w}, queries{w}}
	},
	"both of old": func(w *world) driver.Conn {
		return struct {
			core
			execsOld
			queriesOld
		}{core{w}, execsOld{w}, queriesOld{w}}
	},
	"prepare": func(w *world) driver.Conn {
		return struct {
			core
			prepares
		}{core{w}, prepares{w}}
	},
	"begin": func(w *world) driver.Conn {
		return struct {
			core
			begins
		}{core{w}, begins{w}}
	},
	"reset": func(w *world) driver.Conn {
		return struct {
			core
			resets
		}{core{w}, resets{w}}
	},
	"validate": func(w *world) driver.Conn {
		return struct {
			core
			validates
		}{core{w}, validates{w}}
	},
	"reset and validate": func(w *world) driver.Conn {
		return struct {
			core
			resets
			validates
		}{core{w}, resets{w}, validates{w}}
	},
	"check": func(w *world) driver.Conn {
		return struct {
			core
			checks
		}{core{w}, checks{w}}
	},
	"check and exec": func(w *world) driver.Conn {
		return struct {
			core
			execs
			checks
		}{core{w}, execs{w}, checks{w}}
	},
}
