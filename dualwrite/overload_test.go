package dualwrite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"holdover"
)

// overloaded: the pool's queue is full, and nothing was sent.
func overloaded(_ context.Context, c call, _ func(context.Context) error) error {
	return fmt.Errorf("%w: mysql of pod %s: %s of hold %s: 10000 calls are waiting already: %w", errInjected, pod, c.op, c.token, holdover.ErrOverloaded)
}

// The mark stands, so the claim is certain, and the sweep of any instance rolls
// it forward: pending, as for every silence of MySQL.
func TestOverloadedClaimIsPending(t *testing.T) {
	for _, stage := range dualStages() {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 3)
			token := r.hold(t)
			r.inject(mysqlOps("Apply"), overloaded)
			got := claimOn(r.f, r.shop, token)
			if got.err != nil || !got.res.Pending {
				t.Errorf("told %s, pending %t", got, got.res.Pending)
			}
			eventually(t, "a sweep finds the mark and stops", func() bool {
				return errors.Is(r.f.SweepOnce(t.Context()), holdover.ErrOverloaded)
			})
			r.heal()
			eventually(t, "it is rolled forward", func() bool {
				_ = r.f.SweepOnce(t.Context())
				return r.ledger(t, r.shop, 1) == 2
			})
			if n := r.f.Stats().SweepErrors; n != 0 {
				t.Errorf("%d holds count as broken", n)
			}
		})
	}
}

// Redis gave no answer and MySQL's queue is full: what was begun in Redis may
// stand there, and nobody is told that nothing happened.
func TestOverloadedAfterSilenceIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		redis, mysql string
		ask          func(*rig, holdover.Token) outcome
		state        string
	}{
		"claim":   {"Mark", "Claim", func(r *rig, token holdover.Token) outcome { return claimOn(r.f, r.shop, token) }, "claimed"},
		"release": {"End", "End", func(r *rig, token holdover.Token) outcome { return releaseOn(r.f, r.shop, token) }, "released"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, holdover.StageMySQL, 3)
			token := r.hold(t)
			r.next(redisOps(c.redis), replyLost)
			r.next(mysqlOps(c.mysql), overloaded)
			if got := c.ask(r, token); !errors.Is(got.err, holdover.ErrUnknownOutcome) || !errors.Is(got.err, holdover.ErrOverloaded) {
				t.Errorf("told %s", got)
			}
			eventually(t, "a repeat finds it done", func() bool { return c.ask(r, token).err == nil })
			if state := r.redisState(t, token); state != c.state {
				eventually(t, "redis follows", func() bool { return r.f.DrainOnce(t.Context()) == nil && r.redisState(t, token) == c.state })
			}
		})
	}
	t.Run("redis was not asked", func(t *testing.T) {
		r := newRig(t, holdover.StageMySQL, 3)
		token := r.hold(t)
		r.inject(redisOps("Mark"), refused)
		r.next(mysqlOps("Claim"), overloaded)
		if got := claimOn(r.f, r.shop, token); errors.Is(got.err, holdover.ErrUnknownOutcome) || !errors.Is(got.err, holdover.ErrOverloaded) {
			t.Errorf("certainly nothing happened, and told %s", got)
		}
	})
}

// A full queue ends a background pass; what was to be done stays, and is no
// broken hold.
func TestOverloadedBackgroundWorkStays(t *testing.T) {
	drain := func(t *testing.T, r *rig, left func() bool) {
		t.Helper()
		if err := r.f.DrainOnce(t.Context()); !errors.Is(err, holdover.ErrOverloaded) || !left() {
			t.Errorf("the drain ended with %v, and left it: %t", err, left())
		}
		r.heal()
		eventually(t, "it is done", func() bool { return r.f.DrainOnce(t.Context()) == nil && !left() })
		if n := r.f.Stats().SweepErrors; n != 0 {
			t.Errorf("%d holds count as broken", n)
		}
	}
	t.Run("mirrored grant", func(t *testing.T) {
		r := newRig(t, holdover.StageShadow, 3, still)
		r.inject(mysqlOps("Apply"), overloaded)
		wantOK(t, "reserve", reserveOn(r.f, r.one()))
		left := func() bool { return r.f.Stats().Unmirrored == 1 }
		eventually(t, "it is unmirrored", left)
		drain(t, r, left)
		if n := r.free(t, r.shop, 1, 1); n != 2 {
			t.Errorf("mysql has %d free units, want 2", n)
		}
	})
	t.Run("give-back", func(t *testing.T) {
		r := newRig(t, holdover.StageMySQL, 3, still)
		r.next(redisOps("Copy"), dropped)
		r.next(mysqlOps("JournalGrant"), dropped)
		r.inject(mysqlOps("GiveBack"), overloaded)
		if got := reserveOn(r.f, r.one()); got.err == nil {
			t.Fatal(got)
		}
		left := func() bool { return r.f.Stats().GiveBacks == 1 }
		eventually(t, "it is owed", left)
		drain(t, r, left)
		if n := r.free(t, r.shop, 1, 1); n != 3 {
			t.Errorf("mysql has %d free units, want 3", n)
		}
	})
	t.Run("adjustment", func(t *testing.T) {
		r := newRig(t, holdover.StageRedis, 10)
		r.inject(mysqlOps("Adjust"), overloaded)
		if _, err := r.f.Adjust(t.Context(), r.change(-4)); !errors.Is(err, holdover.ErrUnknownOutcome) {
			t.Errorf("redis has given it up, and told %v", err)
		}
		r.both(t, "given up", 6, 10)
		eventually(t, "a pass finds it and stops", func() bool {
			return errors.Is(r.f.SettleAdjustments(t.Context()), holdover.ErrOverloaded)
		})
		r.heal()
		eventually(t, "it is decided", func() bool { return r.f.SettleAdjustments(t.Context()) == nil && r.ledger(t, r.shop, 1) == 6 })
		r.both(t, "decided", 6, 6)
	})
}
