package killswitch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"holdover"
)

// Watcher tells of fence changes.
type Watcher interface {
	// FollowFence calls onChange after each change it hears of, until ctx ends
	// or it can't go on. It may miss changes.
	FollowFence(ctx context.Context, onChange func()) error
}

// FollowerConfig configures a Follower. Zero durations mean the default.
type FollowerConfig struct {
	Pod string // required; for the log
	// Watch is heard beside the polling; nil: only polling and nudges.
	Watch Watcher
	// Refresh reads the fences and takes them over. An error that matches
	// holdover.ErrNoFence: there is none yet. Required.
	Refresh func(ctx context.Context) error
	// PollEvery is how often Refresh runs when nobody says anything; 200 ms.
	PollEvery time.Duration
	// RefreshTimeout bounds one Refresh; 1 s.
	RefreshTimeout time.Duration
	// WatchRetry is the pause before a watch that ended is started again; 200 ms.
	WatchRetry time.Duration
	// Logger hears when refreshing or watching starts to fail and when it works again.
	Logger *slog.Logger
}

// Follower keeps one instance at the pod's fence: it refreshes on what it
// hears, on every nudge and on a clock. There is never more than one refresh
// at a time, and one more waiting: changes that come meanwhile share it.
type Follower struct {
	cfg  FollowerConfig
	log  *slog.Logger
	wake chan struct{}
}

// NewFollower checks the configuration; Run does the work.
func NewFollower(cfg FollowerConfig) (*Follower, error) {
	if cfg.Pod == "" || cfg.Refresh == nil {
		return nil, errors.New("killswitch: a follower needs the pod and Refresh")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"PollEvery", &cfg.PollEvery, 200 * time.Millisecond},
		{"RefreshTimeout", &cfg.RefreshTimeout, time.Second},
		{"WatchRetry", &cfg.WatchRetry, 200 * time.Millisecond},
	} {
		if *d.value < 0 {
			return nil, fmt.Errorf("killswitch: %s is negative: %s", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Follower{cfg: cfg, log: log.With("pod", cfg.Pod), wake: make(chan struct{}, 1)}, nil
}

// Nudge asks for a refresh soon, as when a store answered with another epoch.
// It never blocks.
func (f *Follower) Nudge() {
	select {
	case f.wake <- struct{}{}:
	default: // a refresh that has not begun yet will see it
	}
}

// Run refreshes at once and then on every change until ctx ends; it returns nil
// when everything it started has stopped.
func (f *Follower) Run(ctx context.Context) error {
	var watch sync.WaitGroup
	defer watch.Wait()
	if f.cfg.Watch != nil {
		watch.Go(func() { f.watch(ctx) })
	}
	tick := time.NewTicker(f.cfg.PollEvery)
	defer tick.Stop()
	var failing, warned bool
	for {
		rctx, cancel := context.WithTimeout(ctx, f.cfg.RefreshTimeout)
		err := f.cfg.Refresh(rctx)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		none := errors.Is(err, holdover.ErrNoFence)
		switch {
		case none && !failing:
			f.log.Info("no store has a fence yet: the first one is written as soon as the flag names a stage")
		case err != nil && !none && !warned:
			f.log.Warn("the fence can't be refreshed: the last one known stays in use, and the stores refuse it if it is old", "err", err)
		case err == nil && warned:
			f.log.Info("the fence is refreshed again")
		}
		failing, warned = err != nil, err != nil && !none
		select {
		case <-f.wake:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watch keeps a watch going; polling covers the gaps.
func (f *Follower) watch(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var failing bool
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		err := f.cfg.Watch.FollowFence(ctx, f.Nudge)
		if ctx.Err() != nil {
			return
		}
		if !failing {
			f.log.Warn("the fence's channel is not heard: polling goes on", "err", err, "poll_every", f.cfg.PollEvery)
		}
		failing = true
		f.Nudge() // something may have been missed
		pause.Reset(f.cfg.WatchRetry)
	}
}
