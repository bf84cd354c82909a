package connhold

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// book writes down each hold.
type book struct {
	mu    sync.Mutex
	holds []string
}

func (b *book) Held(tag string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds = append(b.holds, fmt.Sprint(tag, " ", d))
}

// bubble is one pool on a driver that does nothing, in a bubble where time only
// passes when the test says so.
type bubble struct {
	*testing.T
	*world
	*book
	*sql.DB
}

func (b bubble) tag(tag string) context.Context { return WithTag(b.Context(), tag) }

func (b bubble) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b bubble) exec(ctx context.Context) error {
	_, err := b.ExecContext(ctx, "E")
	return err
}

func pass(seconds int) { time.Sleep(time.Duration(seconds) * time.Second) }

var holdCases = []struct {
	name string
	do   func(bubble)
	want []string
}{
	{"a transaction, then another on the same connection", func(b bubble) {
		for _, tag := range []string{"reserve", "claim"} {
			tx, err := b.BeginTx(b.tag(tag), nil)
			b.ok(err)
			pass(3)
			b.ok(tx.Commit())
			pass(100) // in the pool
		}
	}, []string{"reserve 3s", "claim 3s"}},

	{"rows left open", func(b bubble) {
		rows, err := b.QueryContext(b.tag("list"), "Q")
		b.ok(err)
		pass(2)
		b.ok(rows.Close())
		b.ok(rows.Err())
	}, []string{"list 2s"}},

	{"rows read to their end", func(b bubble) {
		rows, err := b.QueryContext(b.tag("list"), "Q")
		b.ok(err)
		for rows.Next() {
			pass(1)
		}
		b.ok(rows.Err())
		pass(5) // the last Next gave it back
		b.ok(rows.Close())
	}, []string{"list 2s"}},

	{"a connection that is taken belongs to its taker", func(b bubble) {
		c, err := b.Conn(b.tag("taker"))
		b.ok(err)
		pass(1)
		_, err = c.ExecContext(b.tag("another"), "E")
		b.ok(err)
		tx, err := c.BeginTx(b.tag("a third"), nil)
		b.ok(err)
		pass(1)
		b.ok(tx.Rollback()) // gives back to c only
		pass(1)
		b.ok(c.Close())
	}, []string{"taker 3s"}},

	{"a transaction whose context ends", func(b bubble) {
		ctx, cancel := context.WithTimeout(b.tag("slow"), 4*time.Second)
		defer cancel()
		_, err := b.BeginTx(ctx, nil)
		b.ok(err)
		pass(9)
	}, []string{"slow 4s"}},

	{"a prepared statement", func(b bubble) {
		s, err := b.PrepareContext(b.tag("prepare"), "P")
		b.ok(err)
		pass(1)
		rows, err := s.QueryContext(b.tag("run"))
		b.ok(err)
		pass(1)
		b.ok(rows.Close())
		b.ok(rows.Err())
		b.ok(s.Close())
	}, []string{"prepare 0s", "run 1s"}},

	{"dropped as bad", func(b bubble) {
		c, err := b.Conn(b.tag("unlucky"))
		b.ok(err)
		pass(2)
		b.fail("exec", driver.ErrBadConn)
		if _, err := c.ExecContext(b.Context(), "E"); !errors.Is(err, driver.ErrBadConn) {
			b.Fatalf("the planned failure came out as %v", err)
		}
		pass(2)
		_ = c.Close()
	}, []string{"unlucky 2s"}},

	{"found bad when given back", func(b bubble) {
		tx, err := b.BeginTx(b.tag("last"), nil)
		b.ok(err)
		pass(1)
		b.fail("valid", errPlanned)
		b.ok(tx.Commit())
	}, []string{"last 1s"}},

	{"found bad when taken: the next one counts", func(b bubble) {
		b.ok(b.exec(b.tag("first")))
		pass(7)
		b.fail("reset", driver.ErrBadConn)
		tx, err := b.BeginTx(b.tag("second"), nil)
		b.ok(err)
		pass(1)
		b.ok(tx.Commit())
	}, []string{"first 0s", "second 1s"}},

	{"a failed reset that is not fatal", func(b bubble) {
		b.ok(b.exec(b.tag("first")))
		b.fail("reset", errPlanned)
		tx, err := b.BeginTx(b.tag("second"), nil)
		b.ok(err)
		pass(1)
		b.ok(tx.Commit())
	}, []string{"first 0s", "second 1s"}},

	{"not kept by the pool", func(b bubble) {
		b.SetMaxIdleConns(-1)
		b.ok(b.exec(b.tag("a")))
		pass(3)
		b.ok(b.exec(b.tag("b")))
	}, []string{"a 0s", "b 0s"}},

	{"too old when taken", func(b bubble) {
		b.SetConnMaxLifetime(time.Second)
		b.ok(b.exec(b.tag("a")))
		pass(3)
		b.ok(b.exec(b.tag("b")))
	}, []string{"a 0s", "b 0s"}},

	{"handed from one to the next", func(b bubble) {
		b.SetMaxOpenConns(1)
		first, err := b.BeginTx(b.tag("first"), nil)
		b.ok(err)
		go func() {
			second, err := b.BeginTx(b.tag("second"), nil)
			if err == nil {
				pass(2)
				err = second.Commit()
			}
			if err != nil {
				b.Error(err)
			}
		}()
		pass(5) // the second waits, and holds nothing
		b.ok(first.Commit())
		pass(9)
	}, []string{"first 5s", "second 2s"}},

	{"opened for one that waits", func(b bubble) {
		b.SetMaxOpenConns(1)
		b.dial = time.Second
		c, err := b.Conn(b.tag("first"))
		b.ok(err)
		go func() {
			waiting, err := b.BeginTx(b.tag("waiting"), nil)
			if err == nil {
				pass(2)
				err = waiting.Commit()
			}
			if err != nil {
				b.Error(err)
			}
		}()
		pass(3)
		_ = c.Raw(func(any) error { return driver.ErrBadConn }) // the pool opens another
		pass(9)
	}, []string{"first 3s", "waiting 2s"}},

	{"opened for one that has gone", func(b bubble) {
		b.SetMaxOpenConns(1)
		c, err := b.Conn(b.tag("first"))
		b.ok(err)
		b.dial = 3 * time.Second
		go func() {
			ctx, cancel := context.WithTimeout(b.tag("impatient"), 2*time.Second)
			defer cancel()
			if err := b.exec(ctx); !errors.Is(err, context.DeadlineExceeded) {
				b.Errorf("the impatient got %v", err)
			}
		}()
		pass(1)
		_ = c.Raw(func(any) error { return driver.ErrBadConn })
		pass(20) // it lies in the pool, never taken
		tx, err := b.BeginTx(b.tag("later"), nil)
		b.ok(err)
		pass(1)
		b.ok(tx.Commit())
	}, []string{"first 1s", "later 1s"}},

	{"new, and without a tag", func(b bubble) {
		c, err := b.Conn(b.Context())
		b.ok(err)
		b.ok(c.PingContext(b.Context()))
		pass(1)
		b.ok(c.Close())
	}, []string{" 1s"}},

	{"new, and used through Raw alone", func(b bubble) {
		c, err := b.Conn(b.Context())
		b.ok(err)
		b.ok(c.Raw(func(c any) error {
			_, err := c.(interface{ Unwrap() driver.Conn }).Unwrap().(driver.ExecerContext).ExecContext(b.Context(), "E", nil)
			return err
		}))
		pass(1)
		b.ok(c.Close())
	}, []string{" 1s"}},

	{"a panic in Raw", func(b bubble) {
		c, err := b.Conn(b.tag("brittle"))
		b.ok(err)
		pass(1)
		func() {
			defer func() { _ = recover() }()
			_ = c.Raw(func(any) error { panic("planned") })
		}()
		pass(1)
	}, []string{"brittle 1s"}},

	{"the pool is closed while one is taken", func(b bubble) {
		c, err := b.Conn(b.tag("survivor"))
		b.ok(err)
		b.ok(b.DB.Close())
		pass(2)
		b.ok(c.Close())
	}, []string{"survivor 2s"}},
}

func TestHolds(t *testing.T) {
	for _, c := range holdCases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bubble{T: t, world: &world{shape: full}, book: new(book)}
				b.DB = sql.OpenDB(Wrap(b.world, b.book))
				c.do(b)
				if err := b.DB.Close(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if !slices.Equal(b.holds, c.want) {
					t.Errorf("holds %q, want %q", b.holds, c.want)
				}
			})
		})
	}
}

// A connection without any optional interface is measured all the same.
func TestHoldsOfAPlainDriver(t *testing.T) {
	for name, shape := range shapes {
		synctest.Test(t, func(t *testing.T) {
			notes := new(book)
			db := sql.OpenDB(Wrap(&world{shape: shape}, notes))
			for range 2 {
				tx, err := db.BeginTx(WithTag(t.Context(), "reserve"), nil)
				if err != nil {
					t.Fatal(err)
				}
				pass(1)
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
				pass(1)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if want := []string{"reserve 1s", "reserve 1s"}; !slices.Equal(notes.holds, want) {
				t.Errorf("%s: holds %q, want %q", name, notes.holds, want)
			}
		})
	}
}
