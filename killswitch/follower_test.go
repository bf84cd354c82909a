package killswitch_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"holdover/killswitch"
)

type watcherFunc func(ctx context.Context, onChange func()) error

func (f watcherFunc) FollowFence(ctx context.Context, onChange func()) error { return f(ctx, onChange) }

// follow runs a follower until the test ends and fails if it does not stop.
func follow(t *testing.T, cfg killswitch.FollowerConfig) *killswitch.Follower {
	t.Helper()
	cfg.Pod = "p"
	f, err := killswitch.NewFollower(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("the follower does not stop")
		}
	})
	return f
}

const never = time.Hour

func receive(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("no %s", what)
	}
}

func TestFollowerRefreshesAtStartOnChangesNudgesAndTheClock(t *testing.T) {
	refreshed := make(chan struct{}, 100)
	refresh := func(context.Context) error { refreshed <- struct{}{}; return nil }

	changed := make(chan struct{})
	f := follow(t, killswitch.FollowerConfig{Refresh: refresh, PollEvery: never, Watch: watcherFunc(func(ctx context.Context, onChange func()) error {
		for {
			select {
			case <-changed:
				onChange()
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})})
	receive(t, refreshed, "refresh at the start")
	changed <- struct{}{}
	receive(t, refreshed, "refresh after a change")
	f.Nudge()
	receive(t, refreshed, "refresh after a nudge")

	polled := make(chan struct{}, 100)
	follow(t, killswitch.FollowerConfig{Refresh: func(context.Context) error {
		select {
		case polled <- struct{}{}:
		default:
		}
		return errors.New("redis is away")
	}, PollEvery: time.Millisecond})
	for range 5 { // failures do not end it
		receive(t, polled, "refresh by the clock")
	}
}

func TestFollowerNeverRefreshesTwiceAtOnceAndCoalesces(t *testing.T) {
	var running, total atomic.Int64
	entered, release := make(chan struct{}), make(chan struct{})
	f := follow(t, killswitch.FollowerConfig{PollEvery: never, Refresh: func(ctx context.Context) error {
		if running.Add(1) != 1 {
			t.Error("two refreshes at once")
		}
		defer running.Add(-1)
		total.Add(1)
		entered <- struct{}{}
		<-release
		return nil
	}})
	receive(t, entered, "first refresh")
	for range 1000 {
		f.Nudge() // while the first one runs: all of them share the second
	}
	release <- struct{}{}
	receive(t, entered, "second refresh")
	release <- struct{}{}
	f.Nudge()
	receive(t, entered, "third refresh")
	release <- struct{}{}
	if n := total.Load(); n != 3 {
		t.Errorf("%d refreshes, want 3", n)
	}
}

func TestFollowerStartsABrokenWatchAgain(t *testing.T) {
	watches := make(chan struct{}, 100)
	follow(t, killswitch.FollowerConfig{PollEvery: never, WatchRetry: time.Millisecond, Refresh: func(context.Context) error { return nil },
		Watch: watcherFunc(func(context.Context, func()) error {
			select {
			case watches <- struct{}{}:
			default:
			}
			return errors.New("connection reset")
		})})
	for range 3 {
		receive(t, watches, "watch")
	}
}

func TestFollowerGivesARefreshADeadline(t *testing.T) {
	ended := make(chan struct{}, 100)
	follow(t, killswitch.FollowerConfig{PollEvery: time.Millisecond, RefreshTimeout: time.Millisecond, Refresh: func(ctx context.Context) error {
		<-ctx.Done()
		select {
		case ended <- struct{}{}:
		default:
		}
		return ctx.Err()
	}})
	receive(t, ended, "end of a hanging refresh")
	receive(t, ended, "next one")
}
