package dualwrite_test

import (
	"errors"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// nobodyDrains leaves to refusals what the drain would do.
func nobodyDrains(c *dualwrite.Config) { c.DrainEvery = time.Hour }

// TestNobodyIsRefusedForAnEndThatMySQLLacks: in mysql a hold ends in Redis, and
// MySQL does not take it, as when it is read-only for a moment. Its buyer was told,
// and the units are free: the next buyer, at an instance that knows nothing of it,
// gets them, also when the first instance is gone.
func TestNobodyIsRefusedForAnEndThatMySQLLacks(t *testing.T) {
	for name, end := range map[string]struct {
		units, free int64 // of the hold, and what its end gives back
		end         func(t *testing.T, f *dualwrite.Facade, shop int64, token holdover.Token)
	}{
		"released": {1, 1, func(t *testing.T, f *dualwrite.Facade, shop int64, token holdover.Token) {
			if res, err := f.Release(t.Context(), shop, token); err != nil || res.Hold.State != holdover.StateReleased {
				t.Fatal(res, err)
			}
		}},
		"a part claimed": {2, 1, func(t *testing.T, f *dualwrite.Facade, shop int64, token holdover.Token) {
			if res, err := f.Claim(t.Context(), shop, token, line(1, 1)); err != nil || !res.Pending {
				t.Fatal(res, err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStores(t)
			faults := &faults{}
			gone := newFacade(t, s, wrap(faults), nobodyDrains)
			reach(t, gone, holdover.StageMySQL)
			next := newFacade(t, s, nobodyDrains)
			if err := next.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			shop, token := newShop(), holdover.NewToken()
			s.load(t, shop, map[[2]int64]int64{{1, 1}: end.units, {2, 1}: 1})
			if _, err := gone.Reserve(t.Context(), request(shop, token, line(1, end.units))); err != nil {
				t.Fatal(err)
			}
			faults.next(mysqlOps("Apply"), refused)
			end.end(t, gone, shop, token)
			if free := s.free(t, shop, 1, 1); free != 0 {
				t.Fatalf("mysql has followed: %d free", free)
			}
			if _, err := next.Reserve(t.Context(), request(shop, holdover.NewToken(), line(2, 9))); !errors.Is(err, holdover.ErrOutOfStock) {
				t.Fatalf("another item: %v", err)
			}
			if n := len(owed(t, s)); n != 1 {
				t.Fatalf("%d ends are owed, want 1: a refusal for another item is no reason to look at it", n)
			}
			res, err := next.Reserve(t.Context(), request(shop, holdover.NewToken(), line(1, end.free)))
			if err != nil {
				t.Fatalf("a buyer was refused although %d units are free: %v", end.free, err)
			}
			if res.Decision.Store != holdover.StoreMySQL {
				t.Errorf("decided by %s", res.Decision.Store)
			}
			if left := owed(t, s); len(left) != 0 {
				t.Errorf("still owed: %v", left)
			}
			if _, err := next.Reserve(t.Context(), request(shop, holdover.NewToken(), line(1, 1))); !errors.Is(err, holdover.ErrOutOfStock) {
				t.Errorf("one unit more than there is: %v", err)
			}
		})
	}
}

// TestDrainFollowsWhatOthersOwe: the instance that owed an end is gone, and nobody
// is refused: the drain of another one makes up for it, after a kill too.
func TestDrainFollowsWhatOthersOwe(t *testing.T) {
	s := newStores(t)
	faults := &faults{}
	gone := newFacade(t, s, wrap(faults), nobodyDrains)
	fence := reach(t, gone, holdover.StageMySQL)
	shop, token := newShop(), holdover.NewToken()
	s.load(t, shop, map[[2]int64]int64{{1, 1}: 1})
	if _, err := gone.Reserve(t.Context(), request(shop, token, line(1, 1))); err != nil {
		t.Fatal(err)
	}
	faults.next(mysqlOps("Apply"), refused)
	if _, err := gone.Release(t.Context(), shop, token); err != nil {
		t.Fatal(err)
	}
	fence.Epoch, fence.Stage, fence.Latched = fence.Epoch+2, holdover.StageShadow, true
	if _, err := s.mysql.TripFence(t.Context(), fence); err != nil {
		t.Fatal(err)
	}
	if err := s.redis.Trip(t.Context(), fence, nil); err != nil {
		t.Fatal(err)
	}
	next := newFacade(t, s)
	if err := next.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "mysql follows", func() bool { return s.free(t, shop, 1, 1) == 1 && len(owed(t, s)) == 0 })
}

// TestRetirementFollowsOwedEnds: what MySQL lacks when Redis is retired is made up for.
func TestRetirementFollowsOwedEnds(t *testing.T) {
	s := newStores(t)
	faults := &faults{}
	f := newFacade(t, s, wrap(faults), nobodyDrains)
	fence := reach(t, f, holdover.StageMySQL)
	shop, token := newShop(), holdover.NewToken()
	s.load(t, shop, map[[2]int64]int64{{1, 1}: 1})
	if _, err := f.Reserve(t.Context(), request(shop, token, line(1, 1))); err != nil {
		t.Fatal(err)
	}
	faults.next(mysqlOps("Apply"), refused)
	if _, err := f.Release(t.Context(), shop, token); err != nil {
		t.Fatal(err)
	}
	if err := move(t, f, fence, holdover.StageMySQLOnly); err != nil {
		t.Fatal(err)
	}
	if _, err := f.FinishClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	if free := s.free(t, shop, 1, 1); free != 1 {
		t.Errorf("%d free in mysql-only, want 1: its buyer was told", free)
	}
}

func owed(t *testing.T, s *stores) []string {
	t.Helper()
	tokens, err := s.raw.ZRange(t.Context(), "owed", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}
