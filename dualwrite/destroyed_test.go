package dualwrite_test

import (
	"testing"
	"time"

	"holdover"
	"holdover/killswitch"
)

// Redis was only partitioned when somebody said that it is destroyed. It answers
// again; the instances of the pod, and a retirement that is run again, close it;
// else a kill while MySQL is silent flips to it.
func TestRedisThatWasNotDestroyedIsClosed(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 3, still)
	fence, _ := r.f.Agreed()
	r.inject(redisOps(), dropped)
	if _, err := r.f.RetireDestroyed(t.Context(), fence, "test", "gone"); err != nil {
		t.Fatal(err)
	}
	var told int
	for range 3 {
		if got := reserveOn(r.f, r.one()); got.err == nil {
			told++
		}
	}
	r.heal() // it was not destroyed
	if err := r.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.f.FinishClaims(t.Context()); err != nil { // `retire` run again does this
		t.Fatal(err)
	}
	sw, err := killswitch.New(killswitch.Config{Pod: pod, Redis: r.redis, MySQL: r.mysql, MySQLTimeout: time.Nanosecond, RedisTimeout: 20 * time.Second}) // MySQL is silent
	if err != nil {
		t.Fatal(err)
	}
	defer sw.Close(t.Context())
	tripped, err := sw.Trip(t.Context(), "test", "mysql is silent")
	if err != nil {
		return
	}
	t.Logf("the kill flips to it: %s", tripped.Message)
	other := r.another(t, still)
	for range 3 {
		if got := reserveOn(other, r.one()); got.err == nil {
			told++
		}
	}
	if told > 3 {
		t.Errorf("%d buyers were told yes for 3 units", told)
	}
}
