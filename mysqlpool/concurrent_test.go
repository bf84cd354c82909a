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

// TestBuyersOfFew: 100 buyers of 10 units, one each: exactly 10, and the ledger
// refuses the others.
func TestBuyersOfFew(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 10)
	var granted, refused atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, err := f.Vote(t.Context(), alone, request(line(1, 1, 1)), false)
			switch {
			case err == nil:
				granted.Add(1)
			case errors.Is(err, holdover.ErrOutOfStock):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if granted.Load() != 10 || refused.Load() != 90 {
		t.Errorf("%d granted, %d refused", granted.Load(), refused.Load())
	}
	f.conserved(t)
}

// TestNoFalseSoldOut: 16 buyers with one unit each of 20, beside transactions
// that lock the pool's rows and roll back all the time: nobody is ever refused.
func TestNoFalseSoldOut(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxOpenConns = 80 })
	f.load(t, 1, 1, 20)
	stop := make(chan struct{})
	var rollbacks sync.WaitGroup
	var rolled atomic.Int64
	for range 6 { // they lock rows and let go: a buyer that skips them sees an empty pool
		rollbacks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := f.transact(t.Context(), f.main, "test", holdover.Token{}, func(ctx context.Context, tx *tx) error {
					if _, err := tx.lockUnits(ctx, true, amount{key{shop, 1, 1}, 5}); err != nil {
						return err
					}
					rolled.Add(1)
					return errShort // rolls back
				})
				if !errors.Is(err, errShort) {
					t.Error(err)
					return
				}
			}
		})
	}
	var buyers sync.WaitGroup
	for range 16 {
		buyers.Go(func() {
			for range 8 {
				r := request(line(1, 1, 1))
				if _, err := f.Vote(t.Context(), alone, r, false); err != nil {
					t.Errorf("refused although at most 16 of 20 units are out: %v", err)
					return
				}
				if _, err := f.End(t.Context(), 0, 0, r.Token, holdover.StateReleased, false); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	buyers.Wait()
	close(stop)
	rollbacks.Wait()
	st := f.Stats()
	t.Logf("%d rollbacks, stats %+v", rolled.Load(), st)
	if st.Short == 0 {
		t.Error("no buyer ever saw a short pool: the test shows nothing")
	}
	f.conserved(t)
}

// TestDrained: with N units in stock and more buyers, exactly N are sold, with
// a pool of any size.
func TestDrained(t *testing.T) {
	for _, poolCap := range []int64{10, 1000} {
		f := newFixture(t, func(c *Config) { c.PoolCap, c.MaxOpenConns = poolCap, 40 })
		const stock = 300
		f.load(t, 1, 1, stock)
		var units, over atomic.Int64
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for {
					n := 1 + rand.Int64N(3)
					_, err := f.Vote(t.Context(), alone, request(line(1, 1, n)), false)
					var short *holdover.OutOfStockError
					switch {
					case err == nil:
						units.Add(n)
						continue
					case !errors.As(err, &short):
						t.Error(err)
						return
					case short.Short[0].Left >= n:
						t.Errorf("refused %d although %d are left", n, short.Short[0].Left)
					}
					if n == 1 {
						return
					}
				}
			})
			if got := f.number(t, "SELECT COUNT(*) FROM reservation_units"); got > poolCap {
				over.Store(got)
			}
		}
		wg.Wait()
		if units.Load() != stock {
			t.Errorf("cap %d: %d of %d units sold", poolCap, units.Load(), stock)
		}
		if over.Load() > 0 {
			t.Errorf("cap %d: %d rows in the pool", poolCap, over.Load())
		}
		f.conserved(t)
	}
}

// TestOneRefills: 100 callers find the pool empty; the cap holds and nobody is refused.
func TestOneRefills(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.PoolCap, c.MaxOpenConns = 200, 100 })
	f.load(t, 1, 1, 10_000)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 100 {
		wg.Go(func() {
			<-start
			if _, err := f.Vote(t.Context(), alone, request(line(1, 1, 1)), false); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	if n := f.Stats().Refilled; n > 300 {
		t.Errorf("%d rows made for 100 units and a cap of 200", n)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM reservation_units"); n > 200 {
		t.Errorf("%d rows, over the cap", n)
	}
	f.conserved(t)
}

// TestLargeLine: more units than the cap come straight from the ledger.
func TestLargeLine(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 2000)
	f.load(t, 2, 1, 1)
	h := f.reserveOne(t, line(1, 1, 1500), line(2, 1, 1))
	if n := f.number(t, "SELECT COUNT(*) FROM reservation_units WHERE item_id=1"); n != 0 {
		t.Errorf("%d unit rows were made", n)
	}
	var short *holdover.OutOfStockError
	if _, err := f.Vote(t.Context(), alone, request(line(1, 1, 1500)), false); !errors.As(err, &short) || short.Short[0].Left != 500 {
		t.Fatalf("%v", err)
	}
	// The rest is partly in the pool, partly headroom.
	f.reserveOne(t, line(1, 1, 10))
	if _, err := f.End(t.Context(), 0, 0, h.Token, holdover.StateReleased, false); err != nil {
		t.Fatal(err)
	}
	f.reserveOne(t, line(1, 1, 1990))
	if st := f.stock(t, 1, 1); st.Free() != 0 || st.Held != 2000 {
		t.Errorf("%+v", st)
	}
	f.conserved(t)
}

// TestConservation: random operations of several clients at once, carts
// included; the invariant holds whenever one looks, and the stock adds up.
func TestConservation(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.PoolCap, c.RefillEvery = 20, 5*time.Millisecond })
	ctx := t.Context()
	const items, each = 4, 60
	for item := int64(1); item <= items; item++ {
		for group := int64(1); group <= 2; group++ {
			f.load(t, item, group, each)
		}
	}
	runCtx, stop := context.WithCancel(ctx)
	running := make(chan struct{})
	go func() { defer close(running); _ = f.Run(runCtx) }()
	var clients sync.WaitGroup
	var sold atomic.Int64
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for client := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, client))
		clients.Go(func() {
			var open []holdover.Request
			for range 50 {
				if len(open) == 0 || rnd.IntN(2) == 0 {
					r := request()
					for item := int64(1); item <= items; item++ {
						for group := int64(1); group <= 2; group++ {
							if rnd.IntN(3) == 0 {
								r.Lines = append(r.Lines, line(item, group, 1+rnd.Int64N(3)))
							}
						}
					}
					if len(r.Lines) == 0 {
						continue
					}
					_, err := f.Vote(ctx, holdover.Ticket{Attempt: mine}, r, false)
					switch {
					case err == nil:
						open = append(open, r)
					case !errors.Is(err, holdover.ErrOutOfStock):
						t.Error(err)
					}
					continue
				}
				i := rnd.IntN(len(open))
				r := open[i]
				open = append(open[:i:i], open[i+1:]...)
				var err error
				switch rnd.IntN(4) {
				case 0:
					_, err = f.Claim(ctx, 0, 0, r.Token, nil, false)
					for _, l := range r.Lines {
						sold.Add(l.Quantity)
					}
				case 1:
					_, err = f.GiveBack(ctx, r.Token, mine)
				case 2:
					_, err = f.Apply(ctx, fact(r, holdover.StateExpired))
				default:
					_, err = f.End(ctx, 0, 0, r.Token, holdover.StateReleased, false)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for runCtx.Err() == nil {
			f.conserved(t)
		}
	}()
	clients.Wait()
	stop()
	<-running
	<-watching
	f.conserved(t)
	left := f.number(t, "SELECT SUM(available) FROM inventory_ledger")
	deducted := -f.number(t, "SELECT COALESCE(SUM(delta),0) FROM ledger_entries WHERE kind = 'claim'")
	if total := int64(items * 2 * each); left+sold.Load() != total || deducted != sold.Load() {
		t.Errorf("%d left, %d sold, %d deducted of %d", left, sold.Load(), deducted, total)
	}
	t.Logf("%+v", f.Stats())
}

// TestOneTokenManyCalls: the same token at once takes once; two carts with one
// token: one wins, the other is told.
func TestOneTokenManyCalls(t *testing.T) {
	f := newFixture(t)
	for item := int64(1); item <= 5; item++ {
		f.load(t, item, 1, 10)
	}
	a := request(line(1, 1, 1), line(2, 1, 1))
	b := a
	b.Lines = []holdover.Line{line(3, 1, 1)}
	var fresh, replayed, reusedToken atomic.Int64
	var wg sync.WaitGroup
	for i := range 24 {
		r := a
		if i%2 == 1 {
			r = b
		}
		wg.Go(func() {
			g, err := f.Vote(t.Context(), alone, r, false)
			switch {
			case err == nil && g.Replayed:
				replayed.Add(1)
			case err == nil:
				fresh.Add(1)
			case errors.Is(err, holdover.ErrTokenReused):
				reusedToken.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if fresh.Load() != 1 || replayed.Load() != 11 || reusedToken.Load() != 12 {
		t.Errorf("%d fresh, %d replayed, %d refused", fresh.Load(), replayed.Load(), reusedToken.Load())
	}
	f.conserved(t)
}
