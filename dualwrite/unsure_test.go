package dualwrite_test

import (
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// TestVoteThatRunsAfterItsGiveBack: MySQL gives no answer to a vote, as with a full
// queue or a lock that is waited for; the buyer is told so, and the give-back finds
// nothing. Then the vote runs. Nobody was told of what it takes: it is given back,
// long before its time to live ends.
func TestVoteThatRunsAfterItsGiveBack(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			s := newStores(t)
			faults := &faults{}
			f := newFacade(t, s, wrap(faults), func(c *dualwrite.Config) { c.UnsureFor = time.Second })
			reach(t, f, stage)
			shop, token := newShop(), holdover.NewToken()
			s.load(t, shop, map[[2]int64]int64{{1, 1}: 1})
			faults.next(mysqlOps("Vote"), faults.later)
			if _, err := f.Reserve(t.Context(), request(shop, token, line(1, 1))); err == nil {
				t.Fatal("it was granted without MySQL's answer")
			}
			eventually(t, "the first give-back was made", func() bool { return len(faults.made(mysqlOps("GiveBack"))) == 1 })
			faults.runLate()
			if h, err := s.mysql.Lookup(t.Context(), token); err != nil || h.State != holdover.StateHeld {
				t.Fatalf("the late vote left %s, %v", h.State, err)
			}
			eventually(t, "its unit is free again", func() bool { return s.free(t, shop, 1, 1) == 1 && f.Stats().GiveBacks == 0 })
		})
	}
}

// TestReleaseThatNobodyAnswered: in mysql Redis ends a hold and its answer is lost;
// MySQL gives no answer either. The buyer is told that it is not known, and never
// comes back. MySQL follows all the same.
func TestReleaseThatNobodyAnswered(t *testing.T) {
	s := newStores(t)
	faults := &faults{}
	f := newFacade(t, s, wrap(faults))
	reach(t, f, holdover.StageMySQL)
	shop, token := newShop(), holdover.NewToken()
	s.load(t, shop, map[[2]int64]int64{{1, 1}: 1})
	if _, err := f.Reserve(t.Context(), request(shop, token, line(1, 1))); err != nil {
		t.Fatal(err)
	}
	faults.next(redisOps("End"), replyLost)
	faults.next(mysqlOps("End"), dropped)
	if _, err := f.Release(t.Context(), shop, token); err == nil {
		t.Fatal("a release without an answer was told as done")
	}
	eventually(t, "mysql follows", func() bool { return s.free(t, shop, 1, 1) == 1 })
	settle(t, s, f)
	if n := s.counter(t, shop, 1); n != 1 {
		t.Errorf("the counter is %d, want 1", n)
	}
}
