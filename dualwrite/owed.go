package dualwrite

import (
	"context"

	"holdover"
)

// An end begins in Redis. Where MySQL decides about grants it must follow before
// anybody is refused for the units that came back: buyers were told that they are
// free. When MySQL does not take it, Redis keeps a note that every instance finds,
// also when the one that made it is gone: the drain follows up, and so does whoever
// is about to be refused.

// RedisOwed is the list of ends that MySQL lacks.
type RedisOwed interface {
	// OweEnd notes that MySQL has not followed with what became of a token.
	OweEnd(ctx context.Context, token holdover.Token) error
	// OwedEnds lists up to limit of these as Redis knows them now, oldest first.
	// items, when not empty, narrows it to holds with one of these items of the shop.
	OwedEnds(ctx context.Context, shop int64, items []int64, limit int) ([]holdover.Hold, error)
	// EndFollowed takes a token off the list.
	EndFollowed(ctx context.Context, token holdover.Token) error
}

// oweEnd leaves an end to the drain: in this instance's memory, and in Redis for
// the others.
func (f *Facade) oweEnd(ctx context.Context, v *view, token holdover.Token) {
	f.remember(v, token)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.MirrorTimeout)
	defer cancel()
	if err := f.redis.OweEnd(ctx, token); err != nil {
		f.noteSilence(err) // the others learn of it when this instance's drain has made it up
	}
}

// followOwed makes up for ends that MySQL lacks, and reports whether there was
// one. With items, only those of these items.
func (f *Facade) followOwed(ctx context.Context, shop int64, items []int64) (followed bool) {
	if f.redisIsAway() || f.retired() {
		return false
	}
	return f.makeUp(ctx, shop, items)
}

// makeUp is followOwed, of a Redis that was closed too.
func (f *Facade) makeUp(ctx context.Context, shop int64, items []int64) (followed bool) {
	owed, err := f.listOwed(ctx, shop, items)
	if err != nil {
		f.noteSilence(err)
		return false
	}
	for _, h := range owed {
		e := f.unmirrored.get(h.Token)
		switch {
		case h.State == holdover.StateClaiming: // a part was given back with its mark
			err = f.finishMarked(ctx, h)
		case h.State.Ended():
			var known holdover.Hold
			known, err = f.applyToMySQL(ctx, h)
			if late := lateFacts(false, h, known); err == nil && len(late) > 0 {
				err = f.mysql.NoteLate(ctx, h.Token, late...)
			}
		}
		if f.stops(err, "follow an end of redis in mysql", h.Token) {
			return followed
		}
		if err != nil {
			continue
		}
		followed = true
		if !e.grant {
			f.unmirrored.remove(h.Token, e.version)
		}
		if err := f.redis.EndFollowed(ctx, h.Token); f.stops(err, "note that mysql has followed", h.Token) {
			return followed
		}
	}
	return followed
}

// listOwed waits for Redis no longer than a copy would: MySQL decides.
func (f *Facade) listOwed(ctx context.Context, shop int64, items []int64) ([]holdover.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.MirrorTimeout)
	defer cancel()
	return f.redis.OwedEnds(ctx, shop, items, f.cfg.SweepBatch)
}

func (c *containedRedis) OweEnd(ctx context.Context, token holdover.Token) error {
	return containedErr(c.store, c.pod, "note an end that mysql lacks", token, func() error { return c.redis.OweEnd(ctx, token) })
}

func (c *containedRedis) OwedEnds(ctx context.Context, shop int64, items []int64, limit int) ([]holdover.Hold, error) {
	return contained(c.store, c.pod, "list ends that mysql lacks", holdover.Token{}, func() ([]holdover.Hold, error) { return c.redis.OwedEnds(ctx, shop, items, limit) })
}

func (c *containedRedis) EndFollowed(ctx context.Context, token holdover.Token) error {
	return containedErr(c.store, c.pod, "note that mysql has followed", token, func() error { return c.redis.EndFollowed(ctx, token) })
}
