package mysqlpool

import (
	"sync"
	"testing"
	"time"

	"holdover"
)

// TestLockedItemHarmsNobody: the application keeps the locks of one item, in a
// ClaimTx that does not come to its end. Whoever needs that item waits; claims,
// releases, extensions and reserves of another one on the same instance go on,
// also when both are asked for at once and the locked item's pool is dry.
func TestLockedItemHarmsNobody(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, func(c *Config) { c.LockWait, c.OpTimeout = time.Second, 10*time.Second })
	p := NewPool(s, PoolConfig{})
	f.load(t, 1, 1, 1000)
	f.load(t, 2, 1, 1000)
	hold := func(item int64, n int) (holds []holdover.Hold) {
		for range n {
			holds = append(holds, f.reserveOne(t, line(item, 1, 1)))
		}
		return holds
	}
	locked, free := hold(1, 30), hold(2, 60)
	app := begin(t, f.db)
	if _, err := p.ClaimTx(t.Context(), app, shop, locked[0].Token); err != nil {
		t.Fatal(err)
	}
	taken := f.number(t, "SELECT COUNT(*) FROM reservation_units WHERE item_id = 1")
	f.exec(t, "DELETE FROM reservation_units WHERE item_id = 1")
	var blocked, others sync.WaitGroup
	for i := range 10 {
		blocked.Go(func() { _, _ = p.Claim(t.Context(), shop, locked[1+i].Token) })
		blocked.Go(func() { _, _ = p.Release(t.Context(), shop, locked[11+i].Token) })
		blocked.Go(func() { _, _ = p.Reserve(t.Context(), request(line(1, 1, 1))) })
	}
	for i := range 20 {
		for name, call := range map[string]func() error{
			"claim":   func() error { _, err := p.Claim(t.Context(), shop, free[i].Token); return err },
			"release": func() error { _, err := p.Release(t.Context(), shop, free[20+i].Token); return err },
			"extend":  func() error { _, err := p.Extend(t.Context(), shop, free[40+i].Token, 2*time.Hour); return err },
			"reserve": func() error { _, err := p.Reserve(t.Context(), request(line(2, 1, 1))); return err },
		} {
			others.Go(func() {
				if err := call(); err != nil {
					t.Errorf("%s of the other item: %v", name, err)
				}
			})
		}
	}
	others.Wait() // while the application still has its locks
	if err := app.Rollback(); err != nil {
		t.Fatal(err)
	}
	blocked.Wait()
	f.exec(t, "UPDATE pool_state SET issued = issued - ? WHERE item_id = 1", taken) // those that this test has deleted
	f.conserved(t)
}

// TestExtensionsNeverMoveBack: of two extensions that have read the same expiry
// the shorter one does not undo the longer one.
func TestExtensionsNeverMoveBack(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 1000)
	other := f.open(t)
	for range 30 {
		h := f.reserveOne(t, line(1, 1, 1))
		var told time.Time
		var both sync.WaitGroup
		both.Go(func() {
			g, err := f.Extend(t.Context(), 0, shop, h.Token, 10*time.Hour, 48*time.Hour, false)
			if err != nil {
				t.Error(err)
			}
			told = g.ExpiresAt
		})
		both.Go(func() {
			if _, err := other.Extend(t.Context(), 0, shop, h.Token, 2*time.Hour, 48*time.Hour, false); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if now, err := f.Lookup(t.Context(), h.Token); err != nil || now.ExpiresAt.Before(told) {
			t.Fatalf("told until %s, expires at %s, %v", told, now.ExpiresAt, err)
		}
	}
}

// TestCapHolds: two instances that sell, roll back and refill never make more
// rows than the cap.
func TestCapHolds(t *testing.T) {
	const limit = 16
	change := func(c *Config) { c.PoolCap, c.RefillBatch = limit, limit }
	f := newFixture(t, change)
	f.load(t, 1, 1, 100_000)
	stores := []*Store{f.Store, f.open(t, change)}
	stop := make(chan struct{})
	var watch, callers sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if n := f.number(t, "SELECT COUNT(*) FROM reservation_units"); n > limit {
				t.Errorf("%d rows, the cap is %d", n, limit)
				return
			}
		}
	})
	for i := range 24 {
		callers.Go(func() {
			for j := range 30 {
				r := request(line(1, 1, int64(1+(i+j)%5)))
				if _, err := stores[i%2].Vote(t.Context(), alone, r, false); err != nil {
					t.Error(err)
					return
				}
				if j%3 == 0 {
					if _, err := stores[i%2].End(t.Context(), 0, shop, r.Token, holdover.StateReleased, false); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	watch.Wait()
	f.conserved(t)
}
