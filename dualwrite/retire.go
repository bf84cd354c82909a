package dualwrite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
)

// Retiring Redis is an ordinary step: Redis is closed first, by compare-and-set
// to mysql-only, in which it votes on nothing; then MySQL follows (rule 5). Here
// is what is not ordinary: a Redis that can't be closed, and the way back.

// RetireDestroyed takes the pod from mysql to mysql-only when its Redis is gone
// for good: MySQL's fence alone is raised. Somebody has to know that no Redis
// with this pod's data will ever answer again: it would still vote. A Redis that
// shows a fence is refused.
func (f *Facade) RetireDestroyed(ctx context.Context, from holdover.Fence, by, reason string) (holdover.Fence, error) {
	if from.Stage != holdover.StageMySQL || from.Latched {
		return from, &holdover.InvalidError{Field: "stage", Value: from.String(), Problem: "is not mysql: only from there redis is retired"}
	}
	redis, _ := f.readFences(ctx, nil)
	if redis.err == nil {
		return from, fmt.Errorf("pod %s: redis is not destroyed: it answers with its fence, %s: retire it the ordinary way, which closes it", f.cfg.Pod, redis.fence)
	}
	return f.raiseAlone(ctx, holdover.Fence{Pod: f.cfg.Pod, Epoch: from.Epoch + 1, Stage: holdover.StageMySQLOnly, By: by, Reason: reason})
}

// FinishClaims applies every claim that is marked in a Redis that was closed, and
// returns how many; and takes to MySQL what Redis gave up for an adjustment. No new mark can come, and no instance looks for them any
// more: one that was answered "pending" while MySQL was silent would be lost.
// Where Redis is gone with its marks they are lost with it.
func (f *Facade) FinishClaims(ctx context.Context) (applied int, err error) {
	if err := f.closeLate(ctx); err != nil {
		return 0, err
	}
	if err := f.finishLowerings(ctx); err != nil {
		return 0, fmt.Errorf("pod %s: run the command again before redis is stopped: %w", f.cfg.Pod, err)
	}
	for range mostBatches { // ends that mysql lacks: nobody looks for them any more
		if !f.makeUp(ctx, 0, nil) {
			break
		}
	}
	for {
		before := f.stats.rolledForward.Load()
		found, err := f.rollForward(ctx, 0)
		applied += int(f.stats.rolledForward.Load() - before)
		switch {
		case err != nil:
			return applied, fmt.Errorf("pod %s: claims that are marked in redis are not all in the ledger yet: run the command again before redis is stopped: %w", f.cfg.Pod, err)
		case found == 0:
			return applied, nil
		case f.stats.rolledForward.Load() == before:
			return applied, fmt.Errorf("pod %s: %s marked in redis can't be applied: see the log, mend the ledger, and run the command again before redis is stopped", f.cfg.Pod, count(found, "claim"))
		}
	}
}

// closeLate closes a Redis that was taken for destroyed and answers all the same.
func (f *Facade) closeLate(ctx context.Context) error {
	m, err := f.mysql.Fence(ctx)
	if err != nil || m.Stage != holdover.StageMySQLOnly {
		return err
	}
	r, err := f.redis.Fence(ctx)
	switch {
	case errors.Is(err, holdover.ErrNoFence):
		return nil
	case err != nil:
		return err
	case r.Epoch >= m.Epoch:
		return nil
	}
	f.log.Warn("redis was retired as destroyed, and answers with an open fence: it is closed now", "redis", r.String(), "agreed", m.String())
	return f.redis.CompareAndSetFence(ctx, r.Epoch, m)
}

// Return takes the pod from mysql-only to mysql, with a Redis that counts as
// away until Rebuild has filled it. Redis must answer. It can be run again after
// a failure: a pod that is in mysql already stays there.
//
// First Redis's fence is removed, so that no kill can flip to what has stood
// there since the retirement. Then MySQL is raised, alone: MySQL decided before
// and decides afterwards, and Redis, without a fence, decides nothing, so rule
// 3's order (Redis first) protects nothing here. Each fact from this epoch on is
// journaled, because every step in Redis fails.
func (f *Facade) Return(ctx context.Context, by, reason string) (holdover.Fence, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.CallTimeout)
	defer cancel()
	m, err := f.mysql.Fence(ctx)
	switch {
	case err != nil:
		return m, err
	case m.Stage == holdover.StageMySQL:
		return m, f.Refresh(ctx)
	case m.Stage != holdover.StageMySQLOnly:
		return m, &holdover.InvalidError{Field: "stage", Value: m.String(), Problem: "is not mysql-only: there is nothing to return from"}
	}
	if err := f.redis.DropFence(ctx, m.Epoch); err != nil {
		return m, fmt.Errorf("pod %s: nothing was changed: redis has to answer before the pod returns to it: %w", f.cfg.Pod, err)
	}
	return f.raiseAlone(ctx, holdover.Fence{Pod: f.cfg.Pod, Epoch: m.Epoch + 1, Stage: holdover.StageMySQL, By: by, Reason: reason})
}

// raiseAlone writes MySQL's fence and not Redis's.
func (f *Facade) raiseAlone(ctx context.Context, fence holdover.Fence) (holdover.Fence, error) {
	fence.At = time.Now()
	there, err := f.mysql.RaiseFence(ctx, fence)
	if errors.Is(err, holdover.ErrUnknownOutcome) { // asking once more finds it done, or does it
		there, err = f.mysql.RaiseFence(ctx, fence)
	}
	switch {
	case err != nil:
		return holdover.Fence{}, err
	case there.Epoch != fence.Epoch || there.Stage != fence.Stage:
		return there, &holdover.StaleError{Store: holdover.StoreMySQL, Asked: fence.Epoch - 1, Fence: there}
	}
	return there, f.Refresh(ctx)
}
