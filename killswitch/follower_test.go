package killswitch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
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

// TestFollowerBeforeTheFirstFence: a pod that was never begun is no fault; a store
// that goes away afterwards is, and is told once.
func TestFollowerBeforeTheFirstFence(t *testing.T) {
	answers := []error{fmt.Errorf("none: %w", holdover.ErrNoFence), fmt.Errorf("none: %w", holdover.ErrNoFence), errors.New("away"), errors.New("away"), nil}
	asked, over := 0, make(chan struct{})
	var log bytes.Buffer // read after the follower has ended
	t.Cleanup(func() {
		text := log.String()
		if strings.Count(text, "level=INFO msg=\"no store has a fence yet") != 1 || strings.Count(text, "level=WARN") != 1 || strings.Count(text, "is refreshed again") != 1 ||
			strings.Index(text, "no store has a fence yet") > strings.Index(text, "level=WARN") {
			t.Errorf("logged:\n%s", text)
		}
	})
	follow(t, killswitch.FollowerConfig{PollEvery: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil)), Refresh: func(context.Context) error {
		asked++
		if asked == len(answers)+1 {
			close(over)
		}
		return answers[min(asked, len(answers))-1]
	}})
	receive(t, over, "sixth refresh")
}
