package dualwrite_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// verified plants the outcome of a verification, as one that ended now.
func (s *stores) verified(t *testing.T, change func(*holdover.Verified)) {
	t.Helper()
	id, err := s.redis.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fence, err := s.mysql.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := holdover.Verified{Pod: pod, Epoch: fence.Epoch, RedisID: id, Clean: true, Summary: "planted", By: "test"}
	if change != nil {
		change(&v)
	}
	if err := s.mysql.RecordVerified(t.Context(), v); err != nil {
		t.Fatal(err)
	}
}

// says fails unless a readiness is a no with this code first among those that
// were not there before, and tells its number and what to do.
func says(t *testing.T, r dualwrite.Readiness, code string, number float64, texts ...string) {
	t.Helper()
	i := slices.IndexFunc(r.Reasons, func(why dualwrite.Reason) bool { return why.Code == code })
	if i < 0 {
		t.Errorf("readiness to %s says %+v, want %s", r.To, r.Reasons, code)
		return
	}
	why := r.Reasons[i]
	if why.Number < number || why.Do == "" {
		t.Errorf("%s has number %g, want at least %g, and says to do %q", code, why.Number, number, why.Do)
	}
	for _, text := range texts {
		if !strings.Contains(why.Text+why.Do, text) {
			t.Errorf("%s says nothing of %q: %+v", code, text, why)
		}
	}
}

// TestReadinessReasons: each reason comes with its cause and goes with it, in
// both directions; nothing else speaks then.
func TestReadinessReasons(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 50, still, func(c *dualwrite.Config) {
		c.InstanceID, c.InstanceMaxAge, c.VerifiedMaxAge, c.RefreshTimeout = "me", time.Minute, time.Hour, 10*time.Second
	})
	both := func() []dualwrite.Readiness {
		a := r.f.Assess(t.Context())
		return []dualwrite.Readiness{a.Forward, a.Back}
	}
	clear := func(after string) {
		t.Helper()
		for _, now := range both() {
			if !now.OK() {
				t.Errorf("after %s: readiness to %s says %+v", after, now.To, now.Reasons)
			}
		}
	}
	no := func(code string, number float64, texts ...string) {
		t.Helper()
		for _, now := range both() {
			says(t, now, code, number, texts...)
		}
	}
	no("never-verified", 0, "no verification has been clean yet", "holdover verify --pod "+pod)
	r.verified(t, nil)
	clear("a clean verification")

	r.verified(t, func(v *holdover.Verified) { v.Clean, v.Differences, v.Summary = false, 3, "3 differences" })
	no("not-verified", 3, "3 differences")
	r.verified(t, nil)
	clear("the next clean one")

	r.verified(t, func(v *holdover.Verified) { v.RedisID = "another process" })
	no("redis-restarted", 0, "restarted or replaced")
	r.verified(t, nil)
	clear("a verification of this redis")

	if _, err := r.db.ExecContext(t.Context(), "UPDATE holdover_verifications SET at = at - INTERVAL 2 HOUR"); err != nil {
		t.Fatal(err)
	}
	no("verified-too-old", 7000, "more than 1h0m0s")
	r.verified(t, nil)
	clear("a new one")

	r.inject(redisOps("Copy"), dropped)
	r.hold(t)
	r.heal()
	no("unmirrored", 1, "1 fact not in redis yet")
	r.calm(t)
	clear("the drain")

	r.inject(mysqlOps("Apply"), dropped)
	token := r.hold(t)
	if got := claimOn(r.f, r.shop, token); got.err != nil || !got.res.Pending {
		t.Fatalf("told %v", got)
	}
	eventually(t, "the mark is old enough", func() bool { return slices.Contains(both()[0].Codes(), "claims-pending") })
	no("claims-pending", 1, "1 claim pending")
	r.heal()
	if err := r.f.SweepOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	clear("the sweep")

	fence, _ := r.f.Agreed()
	beat := func(id string, epoch holdover.Epoch, busy int64) {
		t.Helper()
		if err := r.redis.Heartbeat(t.Context(), holdover.Instance{Name: "checkout-2", ID: id, Epoch: epoch, Busy: busy}); err != nil {
			t.Fatal(err)
		}
	}
	beat("0123456789ab", fence.Epoch-1, 4)
	no("not-acknowledged", 1, "checkout-2 (01234567) works with epoch")
	no("mirror-lag", 4, "checkout-2 (01234567) has 4 pieces")
	beat("0123456789ab", fence.Epoch, 0)
	clear("the acknowledgement")
	beat("me", fence.Epoch, 9)
	clear("a heartbeat of its own, which is older than what it knows itself")
	beat("ba9876543210", fence.Epoch, 0)
	warned := func(code string) bool {
		return slices.ContainsFunc(r.f.Assess(t.Context()).Warnings, func(w dualwrite.Reason) bool { return w.Code == code })
	}
	if !warned("same-name") || !warned("never-drilled") {
		t.Errorf("two live processes of one name, and no drill ever: %+v", r.f.Assess(t.Context()).Warnings)
	}

	r.inject(redisOps("Fence"), dropped)
	no("redis-away", 0, "redis does not answer")
	r.heal()
	r.inject(mysqlOps("JournalSize"), dropped)
	no("mysql-away", 0, "mysql does not answer")
	r.heal()
	clear("both are back")

	// Redis with older data, and then without any.
	newer := holdover.Fence{Pod: pod, Epoch: fence.Epoch + 1, Stage: holdover.StageMySQL, By: "test", Reason: "redis is older now"}
	if _, err := r.mysql.RaiseFence(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	no("redis-has-older-data", float64(fence.Epoch), "--repair")
	if err := r.redis.CompareAndSetFence(t.Context(), fence.Epoch, newer); err != nil {
		t.Fatal(err)
	}
	no("stale-instance", float64(fence.Epoch))
	if err := r.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	beat("0123456789ab", newer.Epoch, 0)
	beat("ba9876543210", newer.Epoch, 0)
	beat("me", newer.Epoch, 0)
	clear("everybody has followed")
	tripped := trip(t, newSwitch(t, r.stores))
	no("latched", 0, "holdover restore --pod "+pod)
	if warned("never-drilled") || !warned("last-drill") {
		t.Errorf("after a kill: %+v", r.f.Assess(t.Context()).Warnings)
	}
	if tripped.To.Stage != holdover.StageShadow {
		t.Fatalf("tripped to %v", tripped.To)
	}
	if err := r.raw.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	no("redis-lost-its-data", 0, "its own data") // it decided
}

// Holds from before dual writing are counted down, until a clean verification
// shows that none is left.
func TestCountdownOfOlderHolds(t *testing.T) {
	var foreign time.Time
	r := newRig(t, holdover.StageRedis, 5, still, func(c *dualwrite.Config) {
		c.Limits.MaxTTL, c.RefreshTimeout = time.Hour, 10*time.Second
		c.ForeignSeen = func() time.Time { return foreign }
	})
	r.verified(t, nil) // from before dual writing: it says nothing
	reach(t, r.f, holdover.StageShadow)
	const code = "holds-older-than-dual-writing"
	a := r.f.Assess(t.Context())
	says(t, a.Forward, code, 3000, "dual writing began", "may live for another")
	says(t, a.Forward, "never-verified", 0, "since dual writing began")
	if slices.Contains(a.Back.Codes(), code) {
		t.Errorf("redis decides before and after the step back: %+v", a.Back)
	}
	first := a.Forward.Reasons[slices.IndexFunc(a.Forward.Reasons, func(w dualwrite.Reason) bool { return w.Code == code })].Number
	eventually(t, "the countdown goes on", func() bool {
		now := r.f.Assess(t.Context()).Forward.Reasons
		return now[slices.IndexFunc(now, func(w dualwrite.Reason) bool { return w.Code == code })].Number < first
	})
	r.verified(t, nil)
	if a := r.f.Assess(t.Context()); !a.Forward.OK() {
		t.Errorf("after a clean verification: %+v", a.Forward)
	}
	foreign = time.Now().Add(30 * time.Minute)
	says(t, r.f.Assess(t.Context()).Forward, code, 5000, "a foreign write was last seen")
	foreign = time.Time{}

	// A step that finds differences says how long they may last.
	reach(t, r.f, holdover.StageRedis)
	reach(t, r.f, holdover.StageShadow)
	unclean := r.another(t, still, func(c *dualwrite.Config) {
		c.RefreshTimeout = 10 * time.Second
		c.Verify = func(context.Context) (bool, string, error) { return false, "1 hold older than dual writing", nil }
	})
	ready, err := unclean.Ready(t.Context(), holdover.StageJoint)
	if err != nil {
		t.Fatal(err)
	}
	says(t, ready, "not-verified", 1, "1 hold older")
	says(t, ready, code, 80_000)
}

// A step makes its own verification, however clean and new the last one is, and
// a Redis that was replaced meanwhile spoils it.
func TestAStepVerifiesAnew(t *testing.T) {
	verifications := 0
	r := newRig(t, holdover.StageShadow, 5, still, func(c *dualwrite.Config) {
		c.RefreshTimeout = 10 * time.Second
		c.Verify = func(context.Context) (bool, string, error) { verifications++; return true, "", nil }
	})
	r.verified(t, nil)
	if ready, err := r.f.Ready(t.Context(), holdover.StageJoint); err != nil || !ready.OK() || verifications != 1 {
		t.Errorf("%+v, %v, after %d verifications", ready, err, verifications)
	}
	replaced := r.another(t, still, func(c *dualwrite.Config) {
		c.RefreshTimeout = 10 * time.Second
		c.Redis = &replacedRedis{Redis: c.Redis}
	})
	ready, err := replaced.Ready(t.Context(), holdover.StageJoint)
	if err != nil {
		t.Fatal(err)
	}
	says(t, ready, "redis-restarted", 1, "during the verification")
}

// replacedRedis is another server at each look.
type replacedRedis struct {
	dualwrite.Redis
	looks int
}

func (r *replacedRedis) Identity(context.Context) (string, error) {
	r.looks++
	return strings.Repeat("x", r.looks), nil
}

// The background names a store that hangs within a second, and takes it back
// when the store answers.
func TestReadinessInTheBackground(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 5, still, func(c *dualwrite.Config) {
		c.ReadinessEvery, c.RefreshTimeout = 10*time.Millisecond, 400*time.Millisecond
	})
	r.verified(t, nil)
	last := func() dualwrite.Assessment { a, _ := r.f.Readiness(); return a }
	eventually(t, "it says yes", func() bool { return last().Forward.OK() && last().Back.OK() && !last().At.IsZero() })
	g := newGate(t)
	r.inject(redisOps("Fence"), g.hang)
	eventually(t, "it names redis", func() bool { return slices.Contains(last().Back.Codes(), "redis-away") })
	r.heal()
	g.open()
	eventually(t, "it says yes again", func() bool { return last().Back.OK() })
}
