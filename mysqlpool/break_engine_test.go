package mysqlpool

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
)

// Two instances sell one hot item by numbers, in carts of 1 to 40 and of 600, give
// back, lower and raise the stock, beside a REPEATABLE READ neighbour that keeps
// units locked for a while. In the end exactly all is sold, and the sums hold.
func TestBreakTwoInstancesByNumbers(t *testing.T) {
	f := newFixture(t)
	other := f.open(t)
	const units = 20_000
	f.load(t, 1, 1, units)
	stores := []*Store{f.Store, other}
	ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
	defer stop()

	var changed, sold atomic.Int64
	var wg, side sync.WaitGroup
	quit := make(chan struct{})
	side.Go(func() { // the neighbour
		db := plain(t, f.dsn, map[string]string{"transaction_isolation": "'REPEATABLE-READ'"})
		for {
			select {
			case <-quit:
				return
			default:
			}
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return
			}
			rows, err := tx.QueryContext(ctx, "SELECT unit FROM reservation_units WHERE shop_id=? AND item_id=1 ORDER BY shop_id,item_id,group_id,unit LIMIT 30 FOR UPDATE", shop)
			if err == nil {
				for rows.Next() {
				}
				_ = rows.Close()
			} else {
				t.Log("neighbour:", err)
			}
			time.Sleep(20 * time.Millisecond)
			_ = tx.Rollback()
			time.Sleep(30 * time.Millisecond)
		}
	})
	side.Go(func() {
		for {
			select {
			case <-quit:
				return
			case <-time.After(40 * time.Millisecond):
			}
			a := adjustment(1, rand.Int64N(400)-200)
			if a.Delta == 0 {
				continue
			}
			done, err := stores[rand.IntN(2)].Adjust(ctx, 0, clamped(a), holdover.AdjustTerms{})
			if err != nil && !errors.Is(err, holdover.ErrAdjustRefused) {
				t.Error("adjust:", err)
				return
			}
			changed.Add(done.Changed)
		}
	})
	for b := range 24 {
		wg.Go(func() {
			s := stores[b%2]
			for ctx.Err() == nil {
				q := 1 + rand.Int64N(40)
				if rand.IntN(100) == 0 {
					q = 600
				}
				r := holdover.Request{Shop: shop, Token: holdover.NewToken(), TTL: time.Hour, Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: q}}}
				_, err := s.Vote(ctx, holdover.Ticket{Attempt: 3}, r, false)
				switch {
				case errors.Is(err, holdover.ErrOutOfStock):
					if q == 1 {
						return
					}
					r.Lines[0].Quantity, r.Token = 1, holdover.NewToken()
					if _, err = s.Vote(ctx, holdover.Ticket{Attempt: 3}, r, false); errors.Is(err, holdover.ErrOutOfStock) {
						return
					}
					q = 1
				}
				if err != nil {
					if !errors.Is(err, holdover.ErrOutOfStock) {
						t.Error("vote:", err)
					}
					return
				}
				sold.Add(q)
				switch rand.IntN(4) {
				case 0:
					if did, err := s.GiveBack(ctx, r.Token, 3); err != nil || !did {
						t.Error("give back:", did, err)
					} else {
						sold.Add(-q)
					}
				case 1:
					if _, err := s.End(ctx, 0, shop, r.Token, holdover.StateReleased, false); err != nil {
						t.Error("end:", err)
					} else {
						sold.Add(-q)
					}
				}
			}
		})
	}
	wg.Wait()
	close(quit)
	side.Wait()
	t.Logf("sold %d, changed %d", sold.Load(), changed.Load())
	// What is left is sold one by one, to the last.
	var available, live int64
	if err := f.db.QueryRow("SELECT available FROM inventory_ledger WHERE item_id=1").Scan(&available); err != nil {
		t.Fatal(err)
	}
	if err := f.db.QueryRow("SELECT COALESCE(SUM(quantity),0) FROM reserved_quantities WHERE state='held'").Scan(&live); err != nil {
		t.Fatal(err)
	}
	if available != units+changed.Load() || live != sold.Load() || live > available {
		t.Errorf("available %d, want %d; live %d, told %d", available, units+changed.Load(), live, sold.Load())
	}
	for n := available - live; n > 0; n-- {
		r := holdover.Request{Shop: shop, Token: holdover.NewToken(), TTL: time.Hour, Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}}
		if _, err := stores[n%2].Vote(t.Context(), holdover.Ticket{Attempt: 3}, r, false); err != nil {
			t.Fatalf("with %d of %d left: %v", n, available-live, err)
		}
	}
	c, err := f.Conserve(t.Context(), ConserveConfig{})
	if err != nil || !c.OK() {
		t.Errorf("%v %v %v", c.Summary(), c.Violations, err)
	}
}
