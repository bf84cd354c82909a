package dualwrite_test

import (
	"sync/atomic"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// Redis is replaced; one instance does not reach it meanwhile. The new one is
// verified, clean. Then that instance reaches it: it has nothing to say that the
// verification does not know.
func TestLateInstanceTakesNothingBack(t *testing.T) {
	id := &atomic.Value{}
	id.Store("A")
	faulty := new(faults)
	r := newRig(t, holdover.StageMySQL, 3, still)
	verified := func() {
		t.Helper()
		fence, err := r.f.Agreed()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.mysql.RecordVerified(t.Context(), holdover.Verified{Pod: pod, Epoch: fence.Epoch, RedisID: id.Load().(string), Clean: true, By: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	verified()
	late := r.another(t, still, wrap(faulty), func(c *dualwrite.Config) {
		c.Redis, c.ReadinessEvery = otherRedis{c.Redis, id}, 5*time.Millisecond
	})
	saw := func(what string, met func(dualwrite.Assessment) bool) {
		t.Helper()
		eventually(t, what, func() bool { a, ok := late.Readiness(); return ok && met(a) })
	}
	saw("it has seen A", func(a dualwrite.Assessment) bool { return a.RedisErr == nil && a.RedisID == "A" && a.Back.OK() })
	faulty.inject(redisOps(), dropped)
	saw("it does not reach redis", func(a dualwrite.Assessment) bool { return a.RedisErr != nil })
	id.Store("B")
	verified()
	faulty.heal()
	saw("it reaches B", func(a dualwrite.Assessment) bool { return a.RedisErr == nil && a.RedisID == "B" })
	at := time.Now()
	saw("it has looked once more", func(a dualwrite.Assessment) bool { return a.At.After(at) })
	if a := late.Assess(t.Context()); !a.Back.OK() {
		t.Errorf("B was verified, clean, and it says: %v", dualwrite.Texts(a.Back.Reasons))
	}
}
