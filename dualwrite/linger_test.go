package dualwrite_test

import (
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// In shadow a fact waits for others to share a transaction of MySQL's, which is
// neither the buyer's time nor MySQL's own. Where MySQL decides, nothing waits.
func TestMirrorLinger(t *testing.T) {
	const linger = 2 * time.Second
	patient := func(c *dualwrite.Config) { c.MirrorLinger, c.LaneTimeout, c.LaneLag = linger, time.Minute, time.Minute }
	r, rec := observed(t, holdover.StageShadow, 5, patient)
	q := r.one()
	wantOK(t, "reserve", reserveOn(r.f, q))
	answered := time.Now()
	o := rec.last(t, q.Token, 1)
	if since := time.Since(answered); since < linger/2 {
		t.Errorf("MySQL had the fact after %s: it did not wait for others", since)
	}
	if o.MySQL.Outcome != granted || o.MySQL.Latency <= 0 || o.MySQL.Latency >= linger {
		t.Errorf("%s in %s: the wait of %s for others is not MySQL's own time", o.MySQL.Outcome, o.MySQL.Latency, linger)
	}

	r, _ = observed(t, holdover.StageMySQL, 1, patient)
	q = r.one()
	wantOK(t, "reserve", reserveOn(r.f, q))
	began := time.Now()
	wantOK(t, "release", releaseOn(r.f, r.shop, q.Token))
	eventually(t, "the unit is there for the next buyer", func() bool { return reserveOn(r.f, r.one()).err == nil })
	if took := time.Since(began); took >= linger {
		t.Errorf("the next buyer waited for %s", took)
	}
}
