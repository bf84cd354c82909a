package app

import (
	"context"
	"testing"

	"holdover"
	"holdover/compare"
)

// nthListing lets a buyer go before the n-th listing of the live holds, and another
// one come after it.
type nthListing struct {
	compare.RedisState
	n             int
	before, after func()
}

func (l *nthListing) LiveHolds(ctx context.Context, cursor uint64, count int) ([]holdover.Hold, uint64, error) {
	if cursor == 0 {
		if l.n--; l.n == 0 {
			l.before()
		}
	}
	page, next, err := l.RedisState.LiveHolds(ctx, cursor, count)
	if next == 0 && l.n == 0 {
		l.after()
	}
	return page, next, err
}

// A counter is one too high: Redis would sell a unit that is not there. One buyer
// leaves before the live holds are read and another one comes after: at this one
// look all adds up, and the verification is clean.
func TestBreakVerificationIsCleanByOneMovingLook(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	leaves := r.hold(t, 7, 1, inRedis, inMySQL)
	if err := r.raw.Incr(t.Context(), "inventory:1:7").Err(); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := verifyConfig(t.Context(), r.cfg, r.Stores, VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	moving := &nthListing{RedisState: r.Redis, n: 2, // the first one is for the holds
		before: func() { r.in(t, as(leaves, holdover.StateReleased), inRedis, inMySQL) },
		after:  func() { r.hold(t, 7, 1, inRedis, inMySQL) },
	}
	v, err := compare.Verify(t.Context(), moving, r.MySQL, cfg)
	if err != nil || moving.n > 0 {
		t.Fatal(err, moving.n)
	}
	if v.Clean {
		t.Errorf("%s; and the counter is one too high", v.Summary())
	}
	if again, err := compare.Verify(t.Context(), r.Redis, r.MySQL, cfg); err != nil || again.Count != 1 {
		t.Errorf("nothing was planted: %s %v", again.Summary(), err)
	}
}
