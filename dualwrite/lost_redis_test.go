package dualwrite_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/killswitch"
	"holdover/legacyredis"
)

// A claim was told "pending". The retirement closed Redis and died before it
// applied the claim; the operator goes back with `rollout return`.
func TestReturnAppliesPendingClaims(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 3, still, atOnce)
	token := r.hold(t)
	r.inject(mysqlOps("Apply"), dropped)
	if got := claimOn(r.f, r.shop, token); got.err != nil || !got.res.Pending {
		t.Fatalf("told %v", got)
	}
	reach(t, r.f, holdover.StageMySQLOnly) // and died
	r.heal()
	if _, err := r.f.Return(t.Context(), "test", "back"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.f.Rebuild(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.calm(t)
	if err := r.f.SweepOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.states(t, token, "claimed", "claimed")
}

// The same where Redis has only lost its fence, or has older data, with the mark.
func TestRebuildAppliesPendingClaims(t *testing.T) {
	r := newRig(t, holdover.StageJoint, 3, still, atOnce)
	token := r.hold(t)
	r.inject(mysqlOps("Apply"), dropped)
	if got := claimOn(r.f, r.shop, token); got.err != nil || !got.res.Pending {
		t.Fatalf("told %v", got)
	}
	older := r.dump(t)
	reach(t, r.f, holdover.StageMySQL)
	r.restore(t, older)
	r.heal()
	if _, err := r.f.Rebuild(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.calm(t)
	if err := r.f.SweepOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.states(t, token, "claimed", "claimed")
}

// After a kill Redis comes back with data from before it. Unlatched that is named
// and Redis is not used; latched it is raised as if the kill had died half way.
func TestOlderRedisIsNotRaisedAfterAKill(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 3, still)
	older := r.dump(t)
	var told []holdover.Token
	told = append(told, r.hold(t), r.hold(t))
	trip(t, newSwitch(t, r.stores))
	if err := r.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	told = append(told, r.hold(t))
	r.calm(t)
	wantErr(t, "a fourth of three units", reserveOn(r.f, r.one()), holdover.ErrOutOfStock)

	r.restore(t, older)
	if err := r.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := reserveOn(r.f, r.one()); got.err == nil {
			told = append(told, got.res.Hold.Token)
		} else {
			t.Log(got.err)
		}
	}
	if len(told) > 3 {
		t.Errorf("%d buyers were told yes for 3 units", len(told))
	}
	a := r.f.Assess(t.Context())
	t.Log(a.Redis, a.RedisBehind, a.Forward.Codes())
}

// losesItsData is a Redis that is flushed before the kill's step reaches it.
type losesItsData struct {
	*legacyredis.Store
	raw    *redis.Client
	refuse bool // as a Redis without a fence should
}

func (l losesItsData) Trip(ctx context.Context, f holdover.Fence, facts []holdover.Hold) error {
	if err := l.raw.FlushDB(ctx).Err(); err != nil {
		return err
	}
	if l.refuse {
		return fmt.Errorf("trip: %w", holdover.ErrNoFence)
	}
	return l.Store.Trip(ctx, f, facts)
}

func (r *rig) killLost(t *testing.T, refuse bool) error {
	t.Helper()
	sw, err := killswitch.New(killswitch.Config{Pod: pod, MySQL: r.mysql, Redis: losesItsData{r.redis, r.raw, refuse}, MySQLTimeout: 20 * time.Second, RedisTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer sw.Close(context.Background())
	_, err = sw.Trip(t.Context(), "test", "now")
	return err
}

// A kill must not paint over a Redis that has just lost everything.
func TestKillOfARedisThatLosesItsData(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 3, still, atOnce)
	r.hold(t)
	if err := r.killLost(t, false); err == nil {
		t.Error("the kill is done, on an empty Redis")
	}
	if fence, err := r.redis.Fence(t.Context()); err == nil {
		t.Errorf("an empty Redis has the fence %s", fence)
	}
}

// Redis loses its data between the kill's two writes. MySQL, which decided until
// then and is the only one that did, knows everything, and nothing leads on.
func TestRebuildAfterAKillOfALostRedis(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 3, still, atOnce)
	r.hold(t)
	t.Log("kill:", r.killLost(t, true))
	if err := r.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, why := range r.f.Assess(t.Context()).Back.Reasons {
		t.Log("status says:", why.Code, "->", why.Do)
	}
	sw := newSwitch(t, r.stores)
	_, again := sw.Trip(t.Context(), "test", "again")
	_, restore := sw.Restore(t.Context(), "test", "restore")
	_, rebuild := r.f.Rebuild(t.Context(), nil)
	_, initErr := r.f.Init(t.Context(), "test", "anew")
	if again != nil && restore != nil && rebuild != nil {
		t.Errorf("no command leads on:\nkill: %v\nrestore: %v\nrebuild: %v\ninit: %v", again, restore, rebuild, initErr)
	}
	fence, _ := r.f.Agreed()
	if got := reserveOn(r.f, r.one()); got.err != nil {
		t.Errorf("in %s buyers are refused: %v", fence, got.err)
	}
}

// What status says is to be done about a Redis that lost its data has to be possible.
func TestAdviceForALostRedis(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageRedis, holdover.StageShadow, holdover.StageJoint} {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 3, still, atOnce)
			if err := r.raw.FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			a := r.f.Assess(t.Context())
			for _, why := range a.Forward.Reasons {
				if why.Code == "redis-lost-its-data" && strings.Contains(why.Do, "--repair") {
					if _, err := r.f.Rebuild(t.Context(), nil); err != nil {
						t.Errorf("told %q, and it answers: %v (invalid %t)", why.Do, err, errors.Is(err, holdover.ErrInvalid))
					}
				}
			}
		})
	}
}
