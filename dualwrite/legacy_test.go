package dualwrite_test

import (
	"context"
	"errors"
	"testing"

	"holdover"
	"holdover/legacyredis"
)

var errCrash = errors.New("the process died")

// TestLegacyClaimCrashes reproduces both failures of the old system's claim
// (S11), each by a crash between its two stores.
func TestLegacyClaimCrashes(t *testing.T) {
	start := func(t *testing.T, units int64) (*stores, *legacyredis.Path, int64) {
		s := newStores(t)
		path, err := legacyredis.NewPath(s.redis, s.mysql, legacyredis.PathConfig{})
		if err != nil {
			t.Fatal(err)
		}
		shop := newShop()
		s.load(t, shop, map[[2]int64]int64{{1, 1}: units})
		return s, path, shop
	}
	crash := func(t *testing.T, path *legacyredis.Path, order legacyredis.LegacyOrder, shop int64) holdover.Token {
		t.Helper()
		q := request(shop, holdover.NewToken(), line(1, 1))
		if _, err := path.Reserve(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if err := path.LegacyClaim(t.Context(), order, shop, q.Token, func() error { return errCrash }); !errors.Is(err, errCrash) {
			t.Fatalf("%s: %v", order, err)
		}
		return q.Token
	}
	resync := func(t *testing.T, s *stores, shop int64) int64 {
		t.Helper()
		counter, err := s.redis.Resync(t.Context(), shop, 1, s.ledger(t, shop, 1))
		if err != nil {
			t.Fatal(err)
		}
		return counter
	}
	t.Run("redis first oversells", func(t *testing.T) {
		s, path, shop := start(t, 1)
		paid := crash(t, path, legacyredis.RedisFirst, shop)
		if counter := resync(t, s, shop); counter != 1 {
			t.Errorf("the counter is %d; the sold unit should have come back to life", counter)
		}
		second := request(shop, holdover.NewToken(), line(1, 1))
		if _, err := path.Reserve(t.Context(), second); err != nil {
			t.Errorf("the second buyer of one unit was told %v; the old system sells it again", err)
		}
		if res, err := path.Claim(t.Context(), shop, second.Token); err != nil {
			t.Errorf("%+v, %v", res, err)
		}
		if s.redisState(t, paid) == "claiming" || s.sold(t, shop, 1) != 1 {
			t.Errorf("%d sold, the first buyer's hold is %s", s.sold(t, shop, 1), s.redisState(t, paid))
		}
	})
	t.Run("ledger first undersells", func(t *testing.T) {
		s, path, shop := start(t, 2)
		crash(t, path, legacyredis.LedgerFirst, shop)
		if counter, ledger := resync(t, s, shop), s.ledger(t, shop, 1); counter != 0 || ledger != 1 {
			t.Errorf("the counter is %d and the ledger has %d; the unit should be taken twice", counter, ledger)
		}
		if _, err := path.Reserve(t.Context(), request(shop, holdover.NewToken(), line(1, 1))); !errors.Is(err, holdover.ErrOutOfStock) {
			t.Errorf("a buyer was told %v with a unit in the ledger; the old system refuses", err)
		}
	})
}

// TestFacadeClaimCrashes kills the instance at every step of a claim, in every
// stage: another instance finishes it, and then neither store has a unit too
// many or too few.
func TestFacadeClaimCrashes(t *testing.T) {
	clear := killPoint{step: "Apply", store: holdover.StoreRedis}
	for _, stage := range holdover.Stages() {
		points := stepsOf(holdover.OpClaim, stage)
		if stage != holdover.StageMySQLOnly {
			points = append(points, clear, killPoint{clear.step, clear.store, true})
		}
		for i, point := range points {
			t.Run(stage.String()+"/"+point.String(), func(t *testing.T) {
				r := newRig(t, stage, 2)
				token := r.hold(t)
				// From this point on the process does nothing any more.
				r.next(point.match(), func(ctx context.Context, c call, do func(context.Context) error) error {
					if point.after {
						_ = do(ctx)
					}
					r.inject(func(call) bool { return true }, dropped)
					return noAnswer(c)
				})
				_ = claimOn(r.f, r.shop, token) // whom it might have told is gone too
				eventually(t, "it is dead", func() bool { return len(r.made(point.match())) > 0 && r.f.Stats().LaneJobs == 0 })

				survivor := r.another(t)
				eventually(t, "no claim is half done", func() bool {
					if err := survivor.SweepOnce(t.Context()); err != nil {
						t.Fatal(err)
					}
					if stage == holdover.StageMySQLOnly {
						return true
					}
					return r.redisState(t, token) != "claiming"
				})
				sold := r.sold(t, r.shop, 1)
				if i > 0 && sold != 1 { // only a claim that had not begun is not finished
					t.Errorf("%d units sold", sold)
				}
				if stage != holdover.StageMySQLOnly {
					if counter := r.counter(t, r.shop, 1); counter != 1 {
						t.Errorf("the counter is %d, want 1", counter)
					}
					if fresh, err := r.redis.Resync(t.Context(), r.shop, 1, r.ledger(t, r.shop, 1)); err != nil || fresh != 1 {
						t.Errorf("counted anew it is %d, %v: a unit came back to life, or is taken twice", fresh, err)
					}
				}
				// One unit is left, no more and no less.
				wantOK(t, "the buyer of the other unit", reserveOn(survivor, r.one()))
				wantErr(t, "a third buyer of two units", reserveOn(survivor, r.one()), holdover.ErrOutOfStock)
				wantOK(t, "the claim, repeated", claimOn(survivor, r.shop, token))
				if n := r.count(t, "SELECT COUNT(*) FROM ledger_entries WHERE token=?", token[:]); n != 1 {
					t.Errorf("%d entries in the ledger, want 1", n)
				}
			})
		}
	}
}
