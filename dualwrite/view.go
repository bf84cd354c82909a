package dualwrite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"holdover"
)

// view is the agreement that this instance works with.
type view struct {
	holdover.Fence
	// dualSince is when dual writing last began, by Redis's clock; zero when
	// not known.
	dualSince time.Time
	// moved is closed when a newer view replaces this one.
	moved chan struct{}
	// journalEmpty: in joint, MySQL's journal was seen empty behind this fence,
	// and stays so.
	journalEmpty atomic.Bool
}

// Agreed returns the fence this instance works with; ErrNotReady before the
// first one was read.
func (f *Facade) Agreed() (holdover.Fence, error) {
	if v := f.view.Load(); v != nil {
		return v.Fence, nil
	}
	return holdover.Fence{}, fmt.Errorf("pod %s: %w: no fence has been read from either store yet", f.cfg.Pod, holdover.ErrNotReady)
}

// fenceRead is one store's answer about its fence.
type fenceRead struct {
	fence holdover.Fence
	err   error
}

// known: the store answered, with a fence or with "none" (epoch zero).
func (r fenceRead) known() bool { return r.err == nil || errors.Is(r.err, holdover.ErrNoFence) }

// readFences asks both stores at once, in mysql-only just MySQL. A store that has
// not answered within RefreshTimeout counts as silent; seen, when given, hears of
// each answer as it comes.
func (f *Facade) readFences(ctx context.Context, seen func(fenceRead)) (redis, mysql fenceRead) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RefreshTimeout)
	defer cancel()
	ask := func(store Fenced) <-chan fenceRead {
		answer := make(chan fenceRead, 1)
		f.calls.run(func() { fence, err := store.Fence(ctx); answer <- fenceRead{fence, err} })
		return answer
	}
	var fromRedis <-chan fenceRead
	if redis = (fenceRead{err: ErrRedisRetired}); !f.retired() {
		fromRedis = ask(f.redis)
	}
	fromMySQL := ask(f.mysql)
	silent := func(store holdover.Store) fenceRead {
		return fenceRead{err: &holdover.StoreError{Store: store, Pod: f.cfg.Pod, Op: "read the fence", Err: ctx.Err()}}
	}
	for fromRedis != nil || fromMySQL != nil {
		var read fenceRead
		select {
		case read = <-fromRedis:
			redis, fromRedis = read, nil
		case read = <-fromMySQL:
			mysql, fromMySQL = read, nil
		case <-ctx.Done():
			if fromRedis != nil {
				redis = silent(holdover.StoreRedis)
			}
			if fromMySQL != nil {
				mysql = silent(holdover.StoreMySQL)
			}
			return redis, mysql
		}
		if seen != nil {
			seen(read)
		}
	}
	return redis, mysql
}

// Refresh reads both fences, takes the larger epoch (rule 2), and raises the
// store that is behind. It is an error when neither store shows a fence and
// none is known; a single silent store is not.
func (f *Facade) Refresh(ctx context.Context) error {
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	return f.refresh(ctx)
}

// Look reads both fences and takes the larger epoch, and writes nothing: for a
// process that only shows status.
func (f *Facade) Look(ctx context.Context) error {
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	best, redis, mysql := f.larger(ctx)
	if best.Epoch == 0 {
		return f.noFence(redis, mysql)
	}
	f.adopt(ctx, best)
	return nil
}

// larger reads both fences and picks the agreed one; what is known already
// counts too. One store that shows a newer agreement is enough to adopt it: a
// kill must not wait for the other store's silence.
func (f *Facade) larger(ctx context.Context) (best holdover.Fence, redis, mysql fenceRead) {
	known := f.view.Load() != nil
	redis, mysql = f.readFences(ctx, func(read fenceRead) {
		if known && read.err == nil {
			f.adopt(ctx, read.fence)
		}
	})
	best = redis.fence
	if mysql.fence.Epoch > best.Epoch {
		best = mysql.fence
	}
	if v := f.view.Load(); v != nil && v.Epoch >= best.Epoch {
		best = v.Fence
	}
	return best, redis, mysql
}

func (f *Facade) noFence(redis, mysql fenceRead) error {
	return fmt.Errorf("pod %s: %w: no fence in redis (%v), none in mysql (%v)", f.cfg.Pod, holdover.ErrNotReady, redis.err, mysql.err)
}

func (f *Facade) refresh(ctx context.Context) error {
	best, redis, mysql := f.larger(ctx)
	if best.Epoch == 0 {
		return f.noFence(redis, mysql)
	}
	if redis.known() || errors.Is(redis.err, ErrRedisRetired) {
		f.redisAway.Store(0)
	} else {
		f.markRedisAway()
	}
	if redis.err == nil && mysql.err == nil && redis.fence.Epoch == mysql.fence.Epoch {
		f.noteFollowed(ctx, redis.fence.Epoch)
	}
	f.mysqlAt.Store(uint64(mysql.fence.Epoch)) // zero while it is silent: it is raised before it is used
	f.adopt(ctx, best)
	switch {
	case best.Stage == holdover.StageMySQLOnly:
		// Redis may be gone, and what it says is of no interest.
	case errors.Is(redis.err, holdover.ErrNoFence):
		// Rule 19: it lost its view. Raising it would hide that; it stays unused
		// until it is rebuilt.
		f.markRedisAway()
	case redis.err == nil && redis.fence.Epoch < best.Epoch && !best.Latched:
		// Every change but a kill writes Redis first: this is not a step between
		// its two writes but a Redis with older data (rule 19), unless the step
		// came between the two readings.
		if again, err := f.redis.Fence(ctx); err != nil || again.Epoch < best.Epoch {
			f.markRedisAway()
			f.log.Error("redis has lost its view: it is at an older epoch than mysql, and is not used until it is rebuilt", "redis", again.Epoch, "agreed", best.Epoch)
		}
	case redis.err == nil && redis.fence.Epoch < best.Epoch:
		// A kill died between its two writes, and is finished here; unless Redis had
		// followed it already, and came back with older data.
		followed, err := f.mysql.Followed(ctx)
		switch {
		case err == nil && followed >= best.Epoch:
			// The kill may have ended between the two readings: Redis is asked again.
			if again, err := f.redis.Fence(ctx); err != nil || again.Epoch < best.Epoch {
				f.markRedisAway()
				f.log.Error("redis has lost its view: it had followed the kill and is at an older epoch, and is not used", "redis", again.Epoch, "followed", followed, "agreed", best.Epoch)
			}
		case err == nil:
			err = f.raiseRedis(ctx, best)
		}
		if err != nil {
			f.log.Warn("redis is behind and could not be raised", "epoch", best.Epoch, "err", err)
		}
	}
	if mysql.known() {
		if err := f.raiseMySQL(ctx); err != nil {
			f.log.Warn("mysql is behind and could not be raised", "epoch", best.Epoch, "err", err)
		}
	}
	return nil
}

// noteFollowed records once in MySQL that Redis was seen at epoch.
func (f *Facade) noteFollowed(ctx context.Context, epoch holdover.Epoch) {
	if f.followed.Load() >= uint64(epoch) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RefreshTimeout)
	defer cancel()
	if err := f.mysql.NoteFollowed(ctx, epoch); err != nil {
		f.log.Warn("that redis followed could not be noted in mysql", "epoch", epoch, "err", err)
		return
	}
	f.followed.Store(uint64(epoch))
}

// adopt makes fence this instance's view if it is newer.
func (f *Facade) adopt(ctx context.Context, fence holdover.Fence) {
	if v := f.view.Load(); v != nil && v.Epoch >= fence.Epoch {
		return
	}
	next := &view{Fence: fence, dualSince: f.dualSince(ctx, f.view.Load(), fence), moved: make(chan struct{})}
	for {
		old := f.view.Load()
		if old != nil && old.Epoch >= fence.Epoch {
			return
		}
		if f.view.CompareAndSwap(old, next) {
			if old != nil {
				close(old.moved)
			}
			break
		}
	}
	f.log.Info("agreement", "epoch", fence.Epoch, "stage", fence.Stage, "latched", fence.Latched, "by", fence.By, "reason", fence.Reason)
	if f.cfg.Acknowledge != nil {
		f.cfg.Acknowledge(fence)
	}
}

// dualSince says when both stores were first written without a break. Only a
// process that did not see it begin asks Redis's history: a flip waits for
// nothing.
func (f *Facade) dualSince(ctx context.Context, old *view, fence holdover.Fence) time.Time {
	switch {
	case !fence.Stage.Dual():
		return time.Time{}
	case old != nil && old.Stage.Dual() && (fence.Epoch == old.Epoch+1 || fence.Latched):
		return old.dualSince
	case old != nil && fence.Epoch == old.Epoch+1:
		return fence.At
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RefreshTimeout)
	defer cancel()
	history, err := f.redis.History(ctx, 100)
	if err != nil {
		return time.Time{}
	}
	var since time.Time
	for _, past := range history {
		if past.Epoch > fence.Epoch {
			continue
		}
		if !past.Stage.Dual() {
			break
		}
		since = past.At
	}
	return since
}

// newer answers a stale epoch: somebody moved the agreement, or the store that
// refused is behind it.
func (f *Facade) newer(ctx context.Context, v *view, stale error) (*view, error) {
	var refusal *holdover.StaleError
	if errors.As(stale, &refusal) && refusal.Fence.Epoch > v.Epoch {
		f.adopt(ctx, refusal.Fence) // the store that refused has said what is agreed
		return f.view.Load(), nil
	}
	f.refreshing.Lock()
	defer f.refreshing.Unlock()
	if now := f.view.Load(); now.Epoch > v.Epoch && !behind(stale, now.Epoch) {
		return now, nil // another call has read it already
	}
	if err := f.refresh(ctx); err != nil {
		return nil, err
	}
	return f.view.Load(), nil
}

// behind reports whether stale came from a store whose fence is below epoch.
func behind(stale error, epoch holdover.Epoch) bool {
	var s *holdover.StaleError
	return errors.As(stale, &s) && s.Fence.Epoch < epoch
}

// raiseRedis carries MySQL's journal into Redis together with the fence: a kill
// that died between its two writes must not leave Redis voting without the
// facts that only MySQL has. MySQL's fence is at this epoch already, so no row
// of an older epoch can still be added.
func (f *Facade) raiseRedis(ctx context.Context, fence holdover.Fence) error {
	if err := f.raiseMySQL(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RefreshTimeout)
	defer cancel()
	rows, err := f.mysql.Journal(ctx, f.cfg.UnmirroredMax+1)
	if err != nil {
		return err
	}
	if len(rows) > f.cfg.UnmirroredMax {
		return fmt.Errorf("pod %s: mysql's journal has more than %d facts: redis is not raised with a part of them; set UnmirroredMax higher", f.cfg.Pod, f.cfg.UnmirroredMax)
	}
	facts := make([]holdover.Hold, len(rows))
	for i, row := range rows {
		facts[i] = row.Hold
	}
	err = f.redis.Trip(ctx, fence, facts)
	if errors.Is(err, holdover.ErrStale) {
		return nil // somebody else raised it, or beyond
	}
	return err
}

// raiseMySQL brings MySQL's fence up to the view before MySQL is used.
func (f *Facade) raiseMySQL(ctx context.Context) error {
	v := f.view.Load()
	if f.mysqlAt.Load() >= uint64(v.Epoch) {
		return nil
	}
	there, err := f.mysql.RaiseFence(ctx, v.Fence)
	if err != nil {
		return err
	}
	f.mysqlAt.Store(uint64(there.Epoch))
	f.adopt(ctx, there)
	return nil
}

func (f *Facade) markRedisAway() {
	f.redisAway.Store(time.Now().Add(f.cfg.AwayFor).UnixNano())
}

// redisIsAway: Redis gave no answer a moment ago, so MySQL journals at once
// instead of making each buyer wait for the same silence.
func (f *Facade) redisIsAway() bool {
	until := f.redisAway.Load()
	return until != 0 && time.Now().UnixNano() < until
}
