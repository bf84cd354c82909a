package dualwrite_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"holdover"
)

// expired makes a hold of one unit that has expired in both stores.
func (r *rig) expired(t *testing.T, stage holdover.Stage) holdover.Token {
	t.Helper()
	q := r.one()
	q.TTL = 100 * time.Millisecond
	wantOK(t, "reserve", reserveOn(r.f, q))
	eventually(t, "it has expired", func() bool {
		if err := r.f.SweepOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if stage.Truth() == holdover.StoreMySQL {
			return r.mysqlState(t, q.Token) == "expired"
		}
		return r.redisState(t, q.Token) == "expired"
	})
	r.calm(t)
	return q.Token
}

// wantLate fails unless the claim was late.
func wantLate(t *testing.T, what string, got outcome, token holdover.Token) {
	t.Helper()
	h := got.res.Hold
	if got.err != nil || got.res.Pending || h.State != holdover.StateClaimed || h.Token != token || h.Late != token.Late() {
		t.Errorf("%s: told %v, late as %s", what, got, h.Late)
	}
}

// Each step of a late claim loses its request, or its answer: whatever the buyer
// is told then, his repeat finishes it, and one unit is deducted.
func TestLateClaimOutlivesLostSteps(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		r := newRig(t, stage, 2)
		for _, match := range []struct {
			name string
			of   func(call) bool
		}{
			{"redis lookup", redisOps("Lookup")}, {"redis vote", redisOps("Vote")}, {"redis copy", redisOps("Copy")}, {"redis mark", redisOps("Mark")},
			{"redis apply", redisOps("Apply")},
			{"mysql lookup", mysqlOps("Lookup")}, {"mysql vote", mysqlOps("Vote")}, {"mysql apply", mysqlOps("Apply")}, {"mysql claim", mysqlOps("Claim")},
		} {
			for name, how := range map[string]fault{"dropped": dropped, "reply lost": replyLost} {
				t.Run(stage.String()+"/"+match.name+" "+name, func(t *testing.T) {
					r.shop = newShop()
					r.load(t, r.shop, map[[2]int64]int64{{1, 1}: 2})
					token := r.expired(t, stage)
					// Only steps of the late token's: the first is its own reserve.
					late := token.Late()
					r.next(func(c call) bool { return match.of(c) && (c.token == late || c.token == token) }, how)
					got := claimOn(r.f, r.shop, token)
					if got.err != nil && !holdover.NoAnswer(got.err) {
						t.Errorf("the claim with a fault: told %v", got)
					}
					r.heal()
					eventually(t, "redis is used again", func() bool { return !r.f.Stats().RedisAway })
					r.calm(t)
					if err := r.f.SweepOnce(t.Context()); err != nil {
						t.Fatal(err)
					}
					wantLate(t, "the repeat", claimOn(r.f, r.shop, token), token)
					r.calm(t)
					r.states(t, token, "expired", "expired")
					r.states(t, late, "claimed", "claimed")
					r.conserved(t, r.shop, 1, 2, 0, 1)
				})
			}
		}
	}
}

// The kill comes between the two steps of a late claim: it goes on in shadow.
func TestLateClaimGoesOnAfterAKill(t *testing.T) {
	for _, step := range []func(call) bool{redisOps("Copy"), redisOps("Mark")} {
		s := newStores(t)
		sw := newSwitch(t, s)
		f := new(faults)
		facade := newFacade(t, s, wrap(f))
		home(t, sw, holdover.StageMySQL, facade)
		r := &rig{stores: s, faults: f, f: facade, shop: newShop()}
		r.load(t, r.shop, map[[2]int64]int64{{1, 1}: 2})
		token := r.expired(t, holdover.StageMySQL)
		f.next(func(c call) bool { return step(c) && c.token == token.Late() }, before(func() { trip(t, sw) }))
		got := claimOn(facade, r.shop, token)
		wantLate(t, "claim", got, token)
		if got.res.Decision.Stage != holdover.StageShadow {
			t.Errorf("decided in %s", got.res.Decision.Stage)
		}
		r.calm(t)
		r.states(t, token.Late(), "claimed", "claimed")
		r.conserved(t, r.shop, 1, 2, 0, 1)
		wantLate(t, "the repeat", claimOn(facade, r.shop, token), token)
		r.conserved(t, r.shop, 1, 2, 0, 1)
	}
}

// A late claim while the ledger does not answer is pending, like any claim, and
// certain.
func TestLateClaimMayBePending(t *testing.T) {
	r := newRig(t, holdover.StageShadow, 1)
	token := r.expired(t, holdover.StageShadow)
	r.inject(mysqlOps("Apply"), dropped)
	got := claimOn(r.f, r.shop, token)
	if got.err != nil || !got.res.Pending || got.res.Hold.State != holdover.StateClaiming || got.res.Hold.Token != token || got.res.Hold.Late != token.Late() {
		t.Errorf("told %v, pending %t", got, got.res.Pending)
	}
	wantErr(t, "a buyer of the last unit", reserveOn(r.f, r.one()), holdover.ErrOutOfStock)
	wantErr(t, "release", releaseOn(r.f, r.shop, token), holdover.ErrAlreadyClaimed)
	r.heal()
	eventually(t, "any instance applies it", func() bool {
		if err := r.f.SweepOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.redisState(t, token.Late()) == "claimed"
	})
	wantLate(t, "the repeat", claimOn(r.f, r.shop, token), token)
	r.calm(t)
	r.conserved(t, r.shop, 1, 1, 0, 1)
}

// TestLateClaimBeforeMySQLHasFollowed: in mysql the hold has expired in Redis, and
// MySQL has it as held still. The claim is late all the same: it takes the unit
// again, or says that another buyer has it.
func TestLateClaimBeforeMySQLHasFollowed(t *testing.T) {
	for _, sold := range []bool{false, true} {
		t.Run(fmt.Sprint("sold to another ", sold), func(t *testing.T) {
			s, faults := newStores(t), &faults{}
			f := newFacade(t, s, wrap(faults), nobodyDrains)
			reach(t, f, holdover.StageMySQL)
			shop, token := newShop(), holdover.NewToken()
			s.load(t, shop, map[[2]int64]int64{{1, 1}: 1})
			q := request(shop, token, line(1, 1))
			q.TTL = 100 * time.Millisecond
			if _, err := f.Reserve(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			faults.inject(mysqlOps("Apply"), refused)
			eventually(t, "redis has ended it, and mysql was away", func() bool {
				_ = f.SweepOnce(t.Context())
				h, err := s.redis.Lookup(t.Context(), token)
				return err == nil && h.State == holdover.StateExpired
			})
			if h, err := s.mysql.Lookup(t.Context(), token); err != nil || h.State != holdover.StateHeld {
				t.Fatalf("mysql has it as %s (%v), want held", h.State, err)
			}
			faults.heal()
			if sold {
				if _, err := f.Reserve(t.Context(), request(shop, holdover.NewToken(), line(1, 1))); err != nil {
					t.Fatal(err)
				}
			}
			got := claimOn(f, shop, token)
			var late *holdover.LateClaimError
			switch {
			case sold && !errors.As(got.err, &late):
				t.Errorf("told %v, want that the unit is another's", got)
			case !sold:
				wantLate(t, "the claim", got, token)
			}
		})
	}
}
