package mutants

import (
	"context"
	"errors"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// A store without a check of the epoch is one that takes every step as if it had
// its own: the step is made again with that.

// anyEpoch repeats a refused step with the epoch that the store has.
func anyEpoch[T any](e holdover.Epoch, step func(holdover.Epoch) (T, error)) (T, error) {
	got, err := step(e)
	var stale *holdover.StaleError
	for tries := 0; errors.As(err, &stale) && tries < 3; tries++ {
		got, err = step(stale.Fence.Epoch)
	}
	return got, err
}

type anyEpochRedis struct{ dualwrite.Redis }

func (a anyEpochRedis) Vote(ctx context.Context, t holdover.Ticket, r holdover.Request) (holdover.Grant, error) {
	return anyEpoch(t.Epoch, func(e holdover.Epoch) (holdover.Grant, error) {
		t.Epoch = e
		return a.Redis.Vote(ctx, t, r)
	})
}

func (a anyEpochRedis) Copy(ctx context.Context, e holdover.Epoch, h holdover.Hold) (holdover.Copied, error) {
	return anyEpoch(e, func(e holdover.Epoch) (holdover.Copied, error) { return a.Redis.Copy(ctx, e, h) })
}

func (a anyEpochRedis) Mark(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, part []holdover.Line) (holdover.Hold, error) {
	return anyEpoch(e, func(e holdover.Epoch) (holdover.Hold, error) { return a.Redis.Mark(ctx, e, shop, token, part) })
}

func (a anyEpochRedis) Extend(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, ttl, life time.Duration) (holdover.Hold, error) {
	return anyEpoch(e, func(e holdover.Epoch) (holdover.Hold, error) { return a.Redis.Extend(ctx, e, shop, token, ttl, life) })
}

func (a anyEpochRedis) End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State) (holdover.Hold, error) {
	return anyEpoch(e, func(e holdover.Epoch) (holdover.Hold, error) { return a.Redis.End(ctx, e, shop, token, how) })
}

type anyEpochMySQL struct{ dualwrite.MySQL }

func (a anyEpochMySQL) Vote(ctx context.Context, t holdover.Ticket, r holdover.Request, journal bool) (holdover.Grant, error) {
	return anyEpoch(t.Epoch, func(e holdover.Epoch) (holdover.Grant, error) {
		t.Epoch = e
		return a.MySQL.Vote(ctx, t, r, journal)
	})
}

func (a anyEpochMySQL) JournalGrant(ctx context.Context, e holdover.Epoch, token holdover.Token) error {
	_, err := anyEpoch(e, func(e holdover.Epoch) (struct{}, error) { return struct{}{}, a.MySQL.JournalGrant(ctx, e, token) })
	return err
}

func (a anyEpochMySQL) Claim(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, part []holdover.Line, journal bool) (holdover.Hold, error) {
	return anyEpoch(e, func(e holdover.Epoch) (holdover.Hold, error) {
		return a.MySQL.Claim(ctx, e, shop, token, part, journal)
	})
}

func (a anyEpochMySQL) Extend(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, ttl, life time.Duration, journal bool) (holdover.Hold, error) {
	return anyEpoch(e, func(e holdover.Epoch) (holdover.Hold, error) {
		return a.MySQL.Extend(ctx, e, shop, token, ttl, life, journal)
	})
}

func (a anyEpochMySQL) End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State, journal bool) (holdover.Hold, error) {
	return anyEpoch(e, func(e holdover.Epoch) (holdover.Hold, error) { return a.MySQL.End(ctx, e, shop, token, how, journal) })
}
