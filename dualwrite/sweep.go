package dualwrite

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"holdover"
)

// expireAll ends holds whose time has passed, and reports whether units came back.
func (f *Facade) expireAll(ctx context.Context, v *view, due []holdover.Hold) (ended bool) {
	for _, h := range due {
		_, over := f.expire(ctx, v, h)
		ended = over || ended
	}
	return ended
}

// expire runs the expiry step for one hold that is due in a store, and returns
// it as it is then, and whether it is over.
func (f *Facade) expire(ctx context.Context, v *view, due holdover.Hold) (h holdover.Hold, over bool) {
	if v.Stage == holdover.StageJoint && !f.carriedOver(ctx, v, due.Token) {
		return due, false
	}
	h, _, _, err := f.end(ctx, v, newAttempt(due.Token), 0, holdover.StateExpired)
	switch {
	case errors.Is(err, holdover.ErrStale):
		_, _ = f.newer(ctx, v, err) // the next round uses the new stage
		return h, false
	case err != nil:
		if errors.Is(err, holdover.ErrAlreadyClaimed) && v.Stage.Dual() {
			err = f.followClaim(ctx, v, due.Token)
		}
		if err != nil && !errors.Is(err, holdover.ErrClaimPending) {
			f.stats.sweepErrors.Add(1)
		}
		return h, false
	}
	if h.State == holdover.StateExpired && !h.Again {
		f.stats.expired.Add(1)
	}
	return h, h.State.Ended()
}

// carriedOver is asked in joint before a hold is expired: MySQL's journal may
// have got a row of an extension after the step back from mysql found it empty.
// Behind MySQL's fence none can follow. What the row says goes into Redis first;
// false says that the hold lives on until that is done.
func (f *Facade) carriedOver(ctx context.Context, v *view, token holdover.Token) bool {
	if v.journalEmpty.Load() {
		return true
	}
	if err := f.raiseMySQL(ctx); err != nil {
		return false
	}
	rows, err := f.mysql.Journal(ctx, f.cfg.DrainBatch)
	if err != nil || len(rows) >= f.cfg.DrainBatch {
		return false
	}
	for _, row := range rows {
		if row.Hold.Token == token && f.carryJournaled(ctx, row.Hold) != nil {
			return false
		}
	}
	if len(rows) == 0 {
		v.journalEmpty.Store(true)
	}
	return true
}

// sweepLoop expires what is due and rolls marked claims forward, until ctx
// ends. Instances start at different moments and every step is idempotent.
func (f *Facade) sweepLoop(ctx context.Context) {
	pause(ctx, time.Duration(rand.Int64N(int64(f.cfg.SweepEvery))))
	every(ctx, f.cfg.SweepEvery, func() {
		if v := f.view.Load(); v != nil {
			if err := f.SweepOnce(ctx); err != nil && ctx.Err() == nil && !silent(err) {
				f.log.Warn("sweep stopped early", "err", err)
			}
		}
	})
}

// SweepOnce makes one pass: only the truth's reaper looks for expired holds;
// the other store's acts after a grace period, and asks how the truth ended
// them (rule 13). Then marked claims are rolled forward (rule 12).
func (f *Facade) SweepOnce(ctx context.Context) error {
	v := f.view.Load()
	if v == nil {
		return holdover.ErrNotReady
	}
	var errs []error
	switch v.Stage {
	case holdover.StageRedis:
		errs = append(errs, f.sweepDue(ctx, v, f.redis, 0))
	case holdover.StageShadow, holdover.StageJoint:
		errs = append(errs, f.sweepDue(ctx, v, f.redis, 0), f.sweepDue(ctx, v, f.mysql, f.cfg.ReaperGrace))
	case holdover.StageMySQL:
		errs = append(errs, f.sweepDue(ctx, v, f.mysql, 0), f.sweepRedisAfterMySQL(ctx, v))
	case holdover.StageMySQLOnly:
		return f.sweepDue(ctx, v, f.mysql, 0)
	}
	if !f.redisIsAway() {
		_, err := f.rollForward(ctx, f.cfg.ClaimAge)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sweepDue goes on past holds that can't be ended: a batch full of them must
// not hold up the others.
func (f *Facade) sweepDue(ctx context.Context, v *view, store Steps, grace time.Duration) error {
	failed := 0 // they stay at the head of the list
	for limit := f.cfg.SweepBatch; ; limit *= 2 {
		due, err := store.Due(ctx, grace, 0, nil, limit)
		if err != nil {
			return err
		}
		for _, h := range due[min(len(due), failed):] {
			if ctx.Err() != nil || f.view.Load() != v {
				return nil
			}
			now, over := f.expire(ctx, v, h)
			if over {
				continue
			}
			failed++
			if store == Steps(f.mysql) && now.State == holdover.StateHeld && now.Firm && now.ExpiresAt.After(h.ExpiresAt) {
				// Redis was told of an extension that never came here.
				if _, err := f.applyToMySQL(ctx, now); f.stops(err, "extend in mysql as in redis", h.Token) {
					return err
				}
			}
		}
		if failed < limit || limit >= mostBatches*f.cfg.SweepBatch {
			return nil
		}
	}
}

// mostBatches is how many batches of what can't be ended a sweep looks past.
const mostBatches = 64

// sweepRedisAfterMySQL ends in Redis, as MySQL ended them, holds that are long
// past their time.
func (f *Facade) sweepRedisAfterMySQL(ctx context.Context, v *view) error {
	if f.redisIsAway() {
		return nil
	}
	due, err := f.redis.Due(ctx, f.cfg.ReaperGrace, 0, nil, f.cfg.SweepBatch)
	if err != nil {
		return err
	}
	for _, h := range due {
		known, err := f.mysql.Lookup(ctx, h.Token)
		switch {
		case err != nil:
			return err
		case known.State.Ended():
			ended, err := f.redis.Apply(ctx, known)
			if f.stops(err, "end in redis as in mysql", h.Token) {
				return err
			}
			if err == nil && !ended.Again {
				f.observeLostInRedis(ctx, v, h, known)
			}
		case known.State == holdover.StateNone:
			f.expire(ctx, v, h)
		}
	}
	return nil
}

// rollForward applies claims whose mark has stood for a while: the instance
// that set it is gone, or the ledger did not answer it. Never back, unless
// MySQL has an end record. It returns how many marks it found, and goes on past
// those that can't be applied, as sweepDue.
func (f *Facade) rollForward(ctx context.Context, age time.Duration) (found int, err error) {
	failed := 0
	for limit := f.cfg.SweepBatch; ; limit *= 2 {
		marked, err := f.redis.Marked(ctx, age, limit)
		if err != nil {
			return found, err
		}
		for _, h := range marked[min(len(marked), failed):] {
			found++
			err := f.finishMarked(ctx, h)
			if f.stops(err, "roll a marked claim forward", h.Token) {
				return found, err
			}
			if err != nil {
				failed++
			}
		}
		if failed < limit || limit >= mostBatches*f.cfg.SweepBatch {
			return found, nil
		}
	}
}

// finishMarked applies one claim that is marked.
func (f *Facade) finishMarked(ctx context.Context, h holdover.Hold) error {
	fact := h
	fact.State = holdover.StateClaimed
	known, err := f.applyToMySQL(ctx, fact)
	if err != nil {
		return err
	}
	if len(known.Lines) == 0 {
		known.Shop, known.Lines, known.Claimed = h.Shop, h.Lines, h.Claimed
	}
	if err := f.carryEnd(ctx, known); err != nil {
		return err
	}
	f.stats.rolledForward.Add(1)
	return nil
}
