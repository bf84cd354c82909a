package dualwrite_test

import (
	"context"
	"errors"
	"testing"

	"holdover"
)

// TestKillDuringRebuild: a kill before, between and after the steps is refused,
// or finds a complete Redis.
func TestKillDuringRebuild(t *testing.T) {
	l := newLost(t, losses[0].lose)
	sw := newSwitch(t, l.stores)
	for _, step := range rebuildSteps {
		if step.name == "adjusted" {
			continue
		}
		var killed error
		l.faults.next(step.match, after(func() { _, killed = sw.Trip(t.Context(), "test", "drill") }))
		l.again(t)
		if step.name != "end" {
			if !errors.Is(killed, holdover.ErrNoFence) {
				t.Fatalf("after %s: a kill into half a Redis: %v", step.name, killed)
			}
			l.whole(t)
			l.lose(t, losses[0].lose)
		} else if killed != nil {
			t.Fatalf("a kill into a complete Redis: %v", killed)
		}
	}
	l.decides(t)
}

// TestKillRacesRebuild: one that had read Redis's older fence raises MySQL while
// the rebuild runs. Redis refuses it, and gets the fence with MySQL's journal as
// soon as it is complete.
func TestKillRacesRebuild(t *testing.T) {
	for _, step := range rebuildSteps {
		if step.name == "adjusted" {
			continue
		}
		t.Run(step.name, func(t *testing.T) {
			l := newLost(t, losses[1].lose)
			agreed, err := l.f.Agreed()
			if err != nil {
				t.Fatal(err)
			}
			kill := holdover.Fence{Pod: pod, Epoch: agreed.Epoch + 2, Stage: holdover.StageShadow, Latched: true, By: "test", Reason: "drill"}
			var tripped error
			l.faults.next(step.match, after(func() {
				l.two(t) // told, and journaled: the kill has to bring it
				facts, err := l.mysql.TripFence(t.Context(), kill)
				if err != nil {
					t.Error(err)
				}
				holds := make([]holdover.Hold, len(facts))
				for i, fact := range facts {
					holds[i] = fact.Hold
				}
				tripped = l.redis.Trip(t.Context(), kill, holds)
			}))
			if _, err := l.f.Rebuild(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if step.name != "end" && !errors.Is(tripped, holdover.ErrNoFence) {
				t.Fatalf("a kill into half a Redis: %v", tripped)
			}
			if err := l.f.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			there, err := l.redis.Fence(t.Context())
			if err != nil || there.Epoch != kill.Epoch || there.Stage != holdover.StageShadow {
				t.Fatalf("redis has %s, %v", there, err)
			}
			l.decides(t)
		})
	}
}

// decides checks, after a kill, that Redis sells exactly what is there.
func (l *lost) decides(t *testing.T) {
	t.Helper()
	if err := l.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := l.units - l.live - l.sold
	wantErr(t, "more than there is", reserveOn(l.f, request(l.shop, holdover.NewToken(), line(1, left+1))), holdover.ErrOutOfStock)
	wantOK(t, "all that is left", reserveOn(l.f, request(l.shop, holdover.NewToken(), line(1, left))))
	l.live += left
	l.whole(t)
}

// TestRebuildAfterTrippedMySQL: a rebuild died after a kill had raised MySQL
// alone: the next one goes on, since Redis still says who decided.
func TestRebuildAfterTrippedMySQL(t *testing.T) {
	l := newLost(t, losses[1].lose)
	agreed, err := l.f.Agreed()
	if err != nil {
		t.Fatal(err)
	}
	kill := holdover.Fence{Pod: pod, Epoch: agreed.Epoch + 2, Stage: holdover.StageShadow, Latched: true, By: "test", Reason: "drill"}
	l.faults.next(redisOps("FillHolds"), func(ctx context.Context, c call, _ func(context.Context) error) error {
		if _, err := l.mysql.TripFence(ctx, kill); err != nil {
			t.Error(err)
		}
		return noAnswer(c)
	})
	if _, err := l.f.Rebuild(t.Context(), nil); err == nil {
		t.Fatal("the crash went unnoticed")
	}
	if err := l.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "in shadow without a Redis", reserveOn(l.f, l.one()), holdover.ErrUnavailable)
	l.again(t)
	if err := l.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.decides(t)
}
