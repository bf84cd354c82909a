package dualwrite_test

import (
	"testing"
	"time"

	"holdover"
)

// TestNobodyIsRefusedForWhatAnotherHasExpired: a hold has run out. Between the
// vote that is short of its unit and the look for holds that are due, another
// instance expires it: nothing is due then, and the unit is there all the same.
func TestNobodyIsRefusedForWhatAnotherHasExpired(t *testing.T) {
	for _, c := range []struct {
		stage holdover.Stage
		short func(call) bool
	}{
		{holdover.StageRedis, redisOps("Vote")},
		{holdover.StageShadow, redisOps("Vote")},
		{holdover.StageJoint, redisOps("Vote")},
		{holdover.StageMySQL, mysqlOps("Vote")},
		{holdover.StageMySQLOnly, mysqlOps("Vote")},
	} {
		t.Run(c.stage.String(), func(t *testing.T) {
			s, faults := newStores(t), &faults{}
			here := newFacade(t, s, wrap(faults), nobodyDrains)
			reach(t, here, c.stage)
			other := newFacade(t, s, nobodyDrains)
			if err := other.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			shop, hold := newShop(), holdover.NewToken()
			s.load(t, shop, map[[2]int64]int64{{1, 1}: 1})
			lapsing := request(shop, hold, line(1, 1))
			lapsing.TTL = 100 * time.Millisecond
			if _, err := other.Reserve(t.Context(), lapsing); err != nil {
				t.Fatal(err)
			}
			settle(t, s, other)
			time.Sleep(3 * lapsing.TTL) // by the stores' clocks, which nothing else can move

			faults.next(c.short, after(func() {
				if err := other.SweepOnce(t.Context()); err != nil {
					t.Error(err)
				}
			}))
			if _, err := here.Reserve(t.Context(), request(shop, holdover.NewToken(), line(1, 1))); err != nil {
				t.Errorf("refused although the hold had run out: %v", err)
			}
			if res, err := other.Lookup(t.Context(), shop, hold); err != nil || res.Hold.State != holdover.StateExpired {
				t.Errorf("the hold is %s (%v), want expired by the other instance", res.Hold.State, err)
			}
		})
	}
}
