package mysqlpool

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"holdover"
)

func choosing(choices ...holdover.Choice) holdover.Request {
	r := request()
	r.Choices = choices
	return r
}

func choice(item, n int64, groups ...int64) holdover.Choice {
	return holdover.Choice{Item: item, Groups: groups, Quantity: n}
}

// Somebody has every row of a location that is not listed: nobody notices.
func TestChoiceTouchesListedLocationsOnly(t *testing.T) {
	f := newFixture(t)
	pool := NewPool(f.Store, PoolConfig{})
	for group, n := range []int64{1, 3, 9} {
		f.load(t, 1, int64(group+1), n)
		f.reserveOne(t, line(1, int64(group+1), 1)) // so that the pools have rows
	}
	locker, err := f.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // rows, and no gaps
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locker.Rollback() }()
	for _, table := range []string{"pool_state", "inventory_ledger", "reservation_units", "reserved_quantities"} {
		if _, err := locker.ExecContext(t.Context(), "SELECT * FROM "+table+" WHERE shop_id = ? AND item_id = 1 AND group_id = 3 FOR UPDATE", shop); err != nil {
			t.Fatal(err)
		}
	}
	res, err := pool.Reserve(t.Context(), choosing(choice(1, 2, 1, 2)))
	if err != nil || !slices.Equal(res.Hold.Lines, []holdover.Line{line(1, 2, 2)}) {
		t.Errorf("lines %v, error %v", res.Hold.Lines, err)
	}
	_, err = pool.Reserve(t.Context(), choosing(choice(1, 1, 1, 2)))
	if !errors.Is(err, holdover.ErrOutOfStock) {
		t.Errorf("both listed locations are sold out: %v", err)
	}
	if n := f.Stats().LockWaits; n != 0 {
		t.Errorf("%d lock waits ran out", n)
	}
	if err := locker.Rollback(); err != nil {
		t.Fatal(err)
	}
	if st := f.stock(t, 1, 3); st.Held != 1 || st.Available != 9 {
		t.Errorf("the location that nobody listed: %+v", st)
	}
	f.conserved(t)
}

// A hundred buyers on two instances, each with an order of his own: exactly what
// the three locations have together is sold.
func TestHundredBuyersOverThreeLocations(t *testing.T) {
	f := newFixture(t)
	pools := []*Pool{NewPool(f.Store, PoolConfig{}), NewPool(f.open(t), PoolConfig{})}
	for group, n := range []int64{7, 2, 11} {
		f.load(t, 1, int64(group+1), n)
	}
	orders := [][]int64{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}}
	var granted, refused atomic.Int64
	var buyers sync.WaitGroup
	start := make(chan struct{})
	for i := range 100 {
		buyers.Go(func() {
			<-start
			r := choosing(choice(1, 1, orders[i%len(orders)]...))
			_, err := pools[i%2].Reserve(t.Context(), r)
			for tries := 0; errors.Is(err, holdover.ErrTryAgain) && tries < 10; tries++ {
				_, err = pools[i%2].Reserve(t.Context(), r)
			}
			switch {
			case err == nil:
				granted.Add(1)
			case errors.Is(err, holdover.ErrOutOfStock):
				refused.Add(1)
			default:
				t.Errorf("a buyer: %v", err)
			}
		})
	}
	close(start)
	buyers.Wait()
	if granted.Load() != 20 || refused.Load() != 80 {
		t.Errorf("%d granted, %d refused of 100 buyers of 20 units", granted.Load(), refused.Load())
	}
	for group := range int64(3) {
		if st := f.stock(t, 1, group+1); st.Free() != 0 {
			t.Errorf("group %d: %+v", group+1, st)
		}
	}
	f.conserved(t)
}

// Somebody has one of two units at a time, now at one location, now at the
// other: one is always free, so nobody may ever be told that it is sold out.
func TestChoiceIsNeverSoldOutByARace(t *testing.T) {
	f := newFixture(t)
	mover, buyer := NewPool(f.open(t), PoolConfig{}), NewPool(f.Store, PoolConfig{})
	f.load(t, 1, 1, 1)
	f.load(t, 1, 2, 1)
	ctx, stop := context.WithCancel(t.Context())
	moved := make(chan int)
	go func() {
		n := 0
		defer func() { moved <- n }()
		for ctx.Err() == nil {
			r := request(line(1, int64(1+n%2), 1))
			// The buyer may have it at this moment.
			if _, err := mover.Reserve(t.Context(), r); errors.Is(err, holdover.ErrOutOfStock) {
				n++
				continue
			} else if err != nil {
				t.Errorf("the mover: %v", err)
				return
			}
			if _, err := mover.Release(t.Context(), shop, r.Token); err != nil {
				t.Errorf("the mover: %v", err)
				return
			}
			n++
		}
	}()
	tryAgain := 0
	for range 150 {
		r := choosing(choice(1, 1, 1, 2))
		_, err := buyer.Reserve(t.Context(), r)
		switch {
		case errors.Is(err, holdover.ErrTryAgain):
			tryAgain++
			continue
		case err != nil:
			t.Errorf("one of two units is free all the time: %v", err)
		}
		if _, err := buyer.Release(t.Context(), shop, r.Token); err != nil && !t.Failed() {
			t.Errorf("release: %v", err)
		}
	}
	stop()
	if n := <-moved; n == 0 {
		t.Error("nothing moved")
	} else {
		t.Logf("%d moves, %d times try again", n, tryAgain)
	}
	f.conserved(t)
}
