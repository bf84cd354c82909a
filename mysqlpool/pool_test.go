package mysqlpool

import (
	"context"
	"testing"
	"time"

	"holdover"
	"holdover/internal/teststack"
)

// TestReapPassesBadRows: a hold that can't be ended does not stop the reaper,
// and is reported.
func TestReapPassesBadRows(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 100)
	f.load(t, 2, 1, 100)
	p := NewPool(f.Store, PoolConfig{ReapBatch: 3})
	bad := f.reserveOne(t, line(2, 1, 1))
	for range 7 {
		f.reserveOne(t, line(1, 1, 1), line(2, 1, 1))
	}
	f.exec(t, "UPDATE reserved_quantities SET expires_at = UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE")
	// More than was ever issued: ending it would take pool_state below zero, which the table refuses.
	f.exec(t, "UPDATE reserved_quantities SET quantity = 1000000, expires_at = UTC_TIMESTAMP(3) - INTERVAL 1 HOUR WHERE token=?", bad.Token[:])
	ended, err := p.Reap(t.Context())
	if ended != 7 || err == nil {
		t.Fatalf("%d ended, %v", ended, err)
	}
	if h, _ := f.Lookup(t.Context(), bad.Token); h.State != holdover.StateHeld {
		t.Fatalf("%+v", h)
	}
}

// TestPoolRun: refill, expiry and the end of it all.
func TestPoolRun(t *testing.T) {
	teststack.NoLeaks(t)
	f := newFixture(t, func(c *Config) { c.PoolCap, c.RefillBatch, c.RefillEvery = 50, 10, 5*time.Millisecond })
	f.load(t, 1, 1, 100)
	p := NewPool(f.Store, PoolConfig{ReapEvery: 10 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	r := request(line(1, 1, 2))
	r.TTL = 100 * time.Millisecond
	if _, err := p.Reserve(ctx, r); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Reserve(ctx, request(line(1, 1, 5))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pool is filled in the background", func() bool { return f.stock(t, 1, 1).Pooled >= 10 }) // 3 or fewer are left
	eventually(t, "the hold expires", func() bool {
		h, err := f.Lookup(ctx, r.Token)
		return err == nil && h.State == holdover.StateExpired
	})
	stop()
	<-done
	f.conserved(t)
}

func TestWarmUp(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.PoolCap, c.RefillBatch, c.WarmItems = 20, 20, 3 })
	for item := int64(1); item <= 4; item++ {
		f.load(t, item, 1, 30)
	}
	if err := f.WarmUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	for item, want := range map[int64]int64{1: 20, 2: 20, 3: 20, 4: 0} {
		if st := f.stock(t, item, 1); st.Pooled != want {
			t.Errorf("item %d: %+v", item, st)
		}
	}
	f.conserved(t)
}

// TestPurge: ended holds go after the retention, live and journaled ones stay.
func TestPurge(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.load(t, 1, 1, 100)
	var tokens []holdover.Token
	for range 4 {
		tokens = append(tokens, f.reserveOne(t, line(1, 1, 1)).Token)
	}
	if _, err := f.Claim(ctx, 0, 0, tokens[0], nil, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Claim(ctx, 0, 0, tokens[1], nil, true); err != nil { // journaled
		t.Fatal(err)
	}
	if _, err := f.End(ctx, 0, 0, tokens[2], holdover.StateReleased, false); err != nil {
		t.Fatal(err)
	}
	if n, err := f.PurgeEnded(ctx, 10); n != 0 || err != nil {
		t.Fatal("too early", n, err)
	}
	f.exec(t, "UPDATE reserved_quantities SET expires_at = expires_at - INTERVAL 31 DAY, ended_at = ended_at - INTERVAL 31 DAY")
	if n, err := f.PurgeEnded(ctx, 1); n != 1 || err != nil {
		t.Fatal("not bounded", n, err)
	}
	if n, err := f.PurgeEnded(ctx, 10); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for i, want := range []holdover.State{holdover.StateNone, holdover.StateClaimed, holdover.StateNone, holdover.StateHeld} {
		if h, err := f.Lookup(ctx, tokens[i]); err != nil || h.State != want {
			t.Errorf("%d: %+v, %v", i, h, err)
		}
	}
	if n := f.number(t, "SELECT COUNT(*) FROM ledger_entries WHERE kind = 'claim'"); n != 2 {
		t.Errorf("%d entries left", n)
	}
}

// TestLiveHolds: every live hold once, in pages that end.
func TestLiveHolds(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 100)
	f.load(t, 2, 1, 100)
	live := map[holdover.Token]bool{}
	for i := range 11 {
		h := f.reserveOne(t, line(1, 1, 1), line(2, 1, 1))
		if i%3 == 0 {
			if _, err := f.Claim(t.Context(), 0, 0, h.Token, nil, false); err != nil {
				t.Fatal(err)
			}
			continue
		}
		live[h.Token] = true
	}
	var after holdover.Token
	for {
		page, err := f.LiveHolds(t.Context(), after, 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range page {
			if !live[h.Token] || len(h.Lines) != 2 {
				t.Errorf("%+v", h)
			}
			delete(live, h.Token)
			after = h.Token
		}
		if len(page) < 3 {
			break
		}
	}
	if len(live) != 0 {
		t.Errorf("%d holds are missing", len(live))
	}
}
