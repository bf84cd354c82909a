package dualwrite_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// otherRedis says which server answers.
type otherRedis struct {
	dualwrite.Redis
	id *atomic.Value
}

func (o otherRedis) Identity(context.Context) (string, error) { return o.id.Load().(string), nil }

// Clients are moved to another Redis and back again (a failover by address, undone
// before the next verification): what was copied meanwhile is in the other one. The
// first one is the one that was verified, and has none of it.
func TestNotReadyAfterAFailoverAndBack(t *testing.T) {
	id := &atomic.Value{}
	id.Store("A")
	r := newRig(t, holdover.StageMySQL, 3, still, func(c *dualwrite.Config) {
		c.Redis, c.ReadinessEvery = otherRedis{c.Redis, id}, 10*time.Millisecond
	})
	fence, err := r.f.Agreed()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.mysql.RecordVerified(t.Context(), holdover.Verified{Pod: pod, Epoch: fence.Epoch, RedisID: "A", Clean: true, By: "test"}); err != nil {
		t.Fatal(err)
	}
	back := func() dualwrite.Readiness { a, _ := r.f.Readiness(); return a.Back }
	eventually(t, "it is ready", func() bool { return back().OK() && back().To == holdover.StageJoint })
	before := r.dump(t)
	id.Store("B") // with the same data, and everything is copied into it from now on
	r.hold(t)
	eventually(t, "another redis is named", func() bool { return slices.Contains(back().Codes(), "redis-restarted") })
	eventually(t, "it is recorded", func() bool { return slices.Contains(back().Codes(), "not-verified") })
	r.restore(t, before) // A again, as it was left
	id.Store("A")
	eventually(t, "the first redis is seen again", func() bool { return !slices.Contains(back().Codes(), "redis-restarted") })
	if back().OK() {
		t.Error("readiness says yes again, and redis lacks what was copied into the other one")
	}
}
