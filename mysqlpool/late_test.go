package mysqlpool

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"holdover"
)

// lapse makes a hold whose expiry has passed.
func (f *fixture) lapse(t *testing.T, lines ...holdover.Line) holdover.Token {
	t.Helper()
	h := f.reserveOne(t, lines...)
	f.exec(t, "UPDATE reserved_quantities SET expires_at = UTC_TIMESTAMP(3) - INTERVAL 1 SECOND WHERE token = ?", h.Token[:])
	return h.Token
}

func reaped(t *testing.T, p *Pool) {
	t.Helper()
	if _, err := p.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The deduction is entered under the late token, once, and the expired hold
// keeps its end record.
func TestLateClaimIsEnteredUnderItsToken(t *testing.T) {
	f := newFixture(t)
	p := NewPool(f.Store, PoolConfig{})
	f.load(t, 1, 1, 3)
	token := f.lapse(t, line(1, 1, 2))
	reaped(t, p)
	for range 2 {
		if _, err := p.Claim(t.Context(), shop, token); err != nil {
			t.Fatal(err)
		}
	}
	late := token.Late()
	if n := f.number(t, "SELECT COALESCE(SUM(-delta), 0) FROM ledger_entries WHERE token = ?", late[:]); n != 2 {
		t.Errorf("%d units are entered under the late token, want 2", n)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM ledger_entries WHERE token = ?", token[:]); n != 0 {
		t.Errorf("%d entries are under the expired token", n)
	}
	if h, err := f.Lookup(t.Context(), token); err != nil || h.State != holdover.StateExpired {
		t.Errorf("the store says %s of the expired hold (%v)", h.State, err)
	}
	if st := f.stock(t, 1, 1); st.Available != 1 {
		t.Errorf("the ledger: %+v", st)
	}
	f.conserved(t)
}

func TestLateClaimsCanBeSwitchedOff(t *testing.T) {
	f := newFixture(t)
	on, off := NewPool(f.Store, PoolConfig{}), NewPool(f.Store, PoolConfig{Limits: holdover.Limits{NoLateClaims: true}})
	f.load(t, 1, 1, 4)
	before, after := f.lapse(t, line(1, 1, 1)), f.lapse(t, line(1, 1, 1))
	reaped(t, on)
	if _, err := on.Claim(t.Context(), shop, before); err != nil {
		t.Fatal(err)
	}
	var late *holdover.LateClaimError
	if _, err := off.Claim(t.Context(), shop, after); !errors.Is(err, holdover.ErrEnded) || errors.As(err, &late) {
		t.Errorf("claim of an expired hold: %v", err)
	}
	// What was claimed late while it was on stays claimed.
	if res, err := off.Claim(t.Context(), shop, before); err != nil || !res.Replayed || res.Hold.Late != before.Late() {
		t.Errorf("repeat of a late claim: %+v, %v", res, err)
	}
	if st := f.stock(t, 1, 1); st.Available != 3 {
		t.Errorf("the ledger: %+v", st)
	}
	f.conserved(t)
}

// A process that dies between the two steps leaves a hold that does not live
// long, and a repeat finishes it.
func TestLateClaimThatDiesHalfWay(t *testing.T) {
	f := newFixture(t)
	p, crashing := NewPool(f.Store, PoolConfig{}), NewPool(f.Store, PoolConfig{})
	f.load(t, 1, 1, 1)
	token := f.lapse(t, line(1, 1, 1))
	reaped(t, p)
	crash := errors.New("the process died")
	crashing.late.Claim = func(context.Context, int64, holdover.Token, ...holdover.Line) (holdover.Result, error) {
		return holdover.Result{}, crash
	}
	if _, err := crashing.Claim(t.Context(), shop, token); !errors.Is(err, crash) {
		t.Fatalf("the claim that dies: %v", err)
	}
	h, err := f.Lookup(t.Context(), token.Late())
	if err != nil || h.State != holdover.StateHeld || h.ExpiresAt.Sub(h.GrantedAt) > 2*time.Minute {
		t.Errorf("what it leaves: %+v, %v", h, err)
	}
	if res, err := p.Lookup(t.Context(), shop, token); err != nil || res.Hold.State != holdover.StateExpired {
		t.Errorf("look-up: %+v, %v", res.Hold, err)
	}
	if res, err := p.Claim(t.Context(), shop, token); err != nil || res.Hold.State != holdover.StateClaimed {
		t.Errorf("the repeat: %+v, %v", res.Hold, err)
	}
	if st := f.stock(t, 1, 1); st.Available != 0 || st.Held != 0 {
		t.Errorf("the ledger: %+v", st)
	}
	f.conserved(t)
}

// Claims, the reaper and buyers at once: whether in time or late, each claim
// that is told deducts once.
func TestLateClaimsAgainstTheReaper(t *testing.T) {
	f := newFixture(t)
	p, other := NewPool(f.Store, PoolConfig{}), NewPool(f.open(t), PoolConfig{})
	const holds = 20
	f.load(t, 1, 1, holds)
	var tokens [holds]holdover.Token
	for i := range tokens {
		tokens[i] = f.lapse(t, line(1, 1, 1))
	}
	var mu sync.Mutex
	told := map[holdover.Token]bool{}
	var all sync.WaitGroup
	all.Go(func() { reaped(t, other) })
	for i, token := range tokens {
		for _, pool := range []*Pool{p, other} {
			all.Go(func() {
				_, err := pool.Claim(t.Context(), shop, token)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					told[token] = true
				case !errors.Is(err, holdover.ErrOutOfStock) && !errors.Is(err, holdover.ErrTryAgain):
					t.Errorf("claim: %v", err)
				}
			})
		}
		if i%4 == 0 {
			all.Go(func() { _, _ = p.Reserve(t.Context(), request(line(1, 1, 1))) })
		}
	}
	all.Wait()
	if st := f.stock(t, 1, 1); st.Available != holds-int64(len(told)) {
		t.Errorf("%d claims were told, the ledger: %+v", len(told), st)
	}
	for _, token := range tokens {
		res, err := p.Lookup(t.Context(), shop, token)
		if claimed := err == nil && res.Hold.State == holdover.StateClaimed; claimed != told[token] {
			t.Errorf("hold %s: told claimed %t, looked up %s (%v)", token, told[token], res.Hold.State, err)
		}
	}
	f.conserved(t)
}
