package dualwrite_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// In mysql-only nothing asks Redis, whatever an instance or its background does.
func TestRetiredRedisIsLeftAlone(t *testing.T) {
	r := newRig(t, holdover.StageMySQLOnly, 5, func(c *dualwrite.Config) {
		c.SweepEvery, c.DrainEvery, c.ReadinessEvery = time.Millisecond, time.Millisecond, time.Millisecond
	})
	eventually(t, "the background has looked", func() bool { _, ok := r.f.Readiness(); return ok })
	eventually(t, "what began before has ended", func() bool { return r.f.Stats().LaneJobs == 0 })
	before := len(r.made(redisOps()))
	r.inject(redisOps(), dropped)
	for range 3 {
		token := r.hold(t)
		wantOK(t, "claim", claimOn(r.f, r.shop, token))
	}
	token := r.hold(t)
	wantOK(t, "release", releaseOn(r.f, r.shop, token))
	if err := errors.Join(r.f.Refresh(t.Context()), r.f.SweepOnce(t.Context()), r.f.DrainOnce(t.Context())); err != nil {
		t.Error(err)
	}
	if a := r.f.Assess(t.Context()); a.Back.OK() || a.Back.Reasons[0].Code != "redis-retired" || !strings.Contains(a.Back.Reasons[0].Do, "holdover rollout return") {
		t.Errorf("%+v", a.Back)
	}
	if made := r.made(redisOps())[before:]; len(made) > 0 {
		t.Errorf("redis was asked: %v", made)
	}
	// A new instance, which knows nothing yet, starts without Redis too.
	late := r.another(t, wrap(r.faults))
	wantOK(t, "reserve on a new instance", reserveOn(late, r.one()))
	fence, _ := r.f.Agreed()
	if _, err := r.f.Step(t.Context(), fence, holdover.StageMySQL, "test", "no step"); !errors.Is(err, holdover.ErrInvalid) {
		t.Errorf("a step out of mysql-only: %v", err)
	}
}

// A claim that was answered "pending" while MySQL was silent is marked in Redis
// only: the retirement applies it before Redis may go.
func TestRetirementFinishesMarkedClaims(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 3, still)
	token := r.hold(t)
	r.inject(mysqlOps("Apply"), dropped)
	if got := claimOn(r.f, r.shop, token); got.err != nil || !got.res.Pending {
		t.Fatalf("told %v", got)
	}
	reach(t, r.f, holdover.StageMySQLOnly)
	if _, err := r.f.FinishClaims(t.Context()); err == nil || !strings.Contains(err.Error(), "run the command again before redis is stopped") {
		t.Errorf("mysql is silent: %v", err)
	}
	r.heal()
	if n, err := r.f.FinishClaims(t.Context()); err != nil || n != 1 {
		t.Errorf("%d claims applied, %v", n, err)
	}
	if got := r.mysqlState(t, token); got != "claimed" || r.sold(t, r.shop, 1) != 1 {
		t.Errorf("it is %s, %d sold", got, r.sold(t, r.shop, 1))
	}
}

// A return that dies anywhere is run again and goes on; until it has ended no
// kill can flip to what has stood in Redis since the retirement.
func TestReturnStoppedAnywhere(t *testing.T) {
	for _, stop := range []killPoint{{"DropFence", holdover.StoreRedis, false}, {"DropFence", holdover.StoreRedis, true}, {"RaiseFence", holdover.StoreMySQL, false}, {"RaiseFence", holdover.StoreMySQL, true}} {
		t.Run(stop.String(), func(t *testing.T) {
			r := newRig(t, holdover.StageMySQL, 5, still, func(c *dualwrite.Config) { c.RebuildPause = time.Nanosecond })
			sold := r.hold(t)
			reach(t, r.f, holdover.StageMySQLOnly)
			wantOK(t, "claim", claimOn(r.f, r.shop, sold)) // Redis still has it held
			died := dropped
			if stop.after {
				died = replyLost
			}
			r.inject(stop.match(), died)
			if _, err := r.f.Return(t.Context(), "test", "back"); err == nil {
				t.Fatal("it did not die")
			}
			if _, err := newSwitch(t, r.stores).Trip(t.Context(), "test", "too early"); err == nil {
				t.Error("a kill flipped to a retired redis")
			}
			r.heal()
			if err := r.f.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantOK(t, "reserve meanwhile", reserveOn(r.f, r.one()))
			fence, err := r.f.Return(t.Context(), "test", "back")
			if err != nil || fence.Stage != holdover.StageMySQL {
				t.Fatalf("%v, %v", fence, err)
			}
			wantOK(t, "reserve before the rebuild", reserveOn(r.f, r.one()))
			if _, err := newSwitch(t, r.stores).Trip(t.Context(), "test", "still too early"); err == nil {
				t.Error("a kill flipped to a redis without its data")
			}
			if _, err := r.f.Rebuild(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			r.calm(t)
			r.states(t, sold, "claimed", "claimed")
			r.conserved(t, r.shop, 1, 5, 2, 1)
		})
	}
}

// An instance that has not read yet that its pod returns from mysql-only has
// not asked Redis: it can't say that Redis knows all. Found by torture.
func TestReturnUnnoticedIsNotReady(t *testing.T) {
	r := newRig(t, holdover.StageMySQLOnly, 5, still)
	r.hold(t)
	late := r.another(t, wrap(r.faults))
	if _, err := r.f.Return(t.Context(), "test", "back"); err != nil {
		t.Fatal(err)
	}
	a := late.Assess(t.Context())
	if a.Agreed.Stage != holdover.StageMySQL || a.Back.OK() || !slices.Contains(a.Back.Codes(), "stale-instance") {
		t.Errorf("in %s, back %+v", a.Agreed.Stage, a.Back)
	}
	if err := late.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := late.Assess(t.Context()); a.Back.OK() || !slices.Contains(a.Back.Codes(), "redis-lost-its-data") {
		t.Errorf("with the new agreement: back %+v", a.Back)
	}
}

// A Redis that still answers with its fence is not destroyed.
func TestRetireDestroyed(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 5, still)
	fence, _ := r.f.Agreed()
	if _, err := r.f.RetireDestroyed(t.Context(), fence, "test", "gone"); err == nil || !strings.Contains(err.Error(), "not destroyed") {
		t.Errorf("error is %v", err)
	}
	r.inject(redisOps(), dropped)
	now, err := r.f.RetireDestroyed(t.Context(), fence, "test", "gone")
	if err != nil || now.Stage != holdover.StageMySQLOnly || now.Epoch != fence.Epoch+1 {
		t.Fatalf("%v, %v", now, err)
	}
	wantOK(t, "reserve", reserveOn(r.f, r.one()))
	if there, err := r.mysql.Fence(t.Context()); err != nil || there.Reason != "gone" {
		t.Errorf("mysql has %v, %v", there, err)
	}
}

// An instance that was paused (SIGSTOP) for longer than anybody waits for it
// comes back with what it knew: both stores refuse that, it refreshes before it
// decides, and what its background had begun does no harm.
func TestPausedInstanceComesBack(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 3, still)
	paused := r.one()
	g := newGate(t)
	r.next(redisOps("Copy"), g.hang) // stopped between MySQL's grant and Redis's copy
	told := async(func() outcome { return reserveOn(r.f, paused) })
	g.wait(t)
	old, _ := r.f.Agreed()

	other := r.another(t, still)
	sw := newSwitch(t, r.stores)
	trip(t, sw)
	if err := other.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the stopped one's grant is not in Redis: all three are free there
		wantOK(t, "reserve after the kill", reserveOn(other, r.one()))
	}
	ticket := holdover.Ticket{Epoch: old.Epoch, Attempt: 7}
	if _, err := r.redis.Vote(t.Context(), ticket, r.one()); !errors.Is(err, holdover.ErrStale) {
		t.Errorf("redis let an old epoch vote: %v", err)
	}
	if _, err := r.mysql.Vote(t.Context(), ticket, r.one(), false); !errors.Is(err, holdover.ErrStale) {
		t.Errorf("mysql let an old epoch vote: %v", err)
	}

	g.open() // it goes on
	got := await(t, told, "the paused call")
	wantErr(t, "the paused call", got, holdover.ErrOutOfStock)
	if now, _ := r.f.Agreed(); now.Epoch <= old.Epoch {
		t.Errorf("it still works with %v", now)
	}
	if err := errors.Join(r.f.SweepOnce(t.Context()), r.f.DrainOnce(t.Context())); err != nil {
		t.Fatal(err)
	}
	r.calm(t, other)
	eventually(t, "no debt is left", func() bool { return r.f.Stats().Debts+other.Stats().Debts == 0 })
	r.states(t, paused.Token, "none", "none")
	r.conserved(t, r.shop, 1, 3, 3, 0)
}
