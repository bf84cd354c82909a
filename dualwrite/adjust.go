package dualwrite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
)

// Adjustments change both stores, and no two systems can do that at once. MySQL
// decides each one, in one transaction by its token: how the ledger changes, or
// that it is refused. What may be done before that, and what follows, keeps two
// things true at every moment, in every stage and across any change of it:
//
//   - Redis never has more to sell than the ledger will have. Units that are to
//     go leave Redis's counter first, under the epoch, in every stage that has a
//     Redis: in those where Redis sells, and also in mysql, because a kill may
//     make it sell at any moment. Where Redis sells it gives up only what is
//     free there; in mysql it gives up all of it without a look, and MySQL says
//     what is free. A Redis that does not answer stops a lowering, nothing else.
//   - Units that are added are in the ledger before they are in Redis.
//
// So a crash between the two, either way, leaves Redis with too little for a
// while, which sells less and never more:
//
//   - after the ledger was raised, holdover_adjustments says that Redis is owed
//     the change (owed); any instance carries it over.
//   - after Redis gave units up, its list "adjusting" says so, with the whole
//     adjustment; any instance takes it to MySQL, which makes it, clamps it or
//     refuses it, and then Redis gets back what was not taken.
//
// The window is one call, or, after a crash or a silent store, until SweepEvery
// after the store is back (ClaimAge for what Redis gave up). Settling has no
// epoch, as facts have none, and sets the effect of the token in Redis as a
// whole: whatever was given up, and however often it is repeated, afterwards the
// counter has changed by what the ledger has changed by.
//
// A rebuild of Redis from MySQL takes counters from the ledger: it has to mark
// the adjustments of these items as settled.

// maxLeftovers bounds the holds of an item that one lowering looks at. Those
// beyond it count as held, and the lowering is refused or clamped for them.
const maxLeftovers = 10_000

// whenever is a grace that lists holds as due whatever their expiry is.
const whenever = -100 * 365 * 24 * time.Hour

// RedisAdjustments is Redis's part.
type RedisAdjustments interface {
	// LowerFor gives up units under the epoch, before MySQL decides. Where Redis
	// sells, no more than are free: all or none, or with a.Clamp as many as there
	// are. Idempotent by token. Errors: ErrNotLoaded, ErrTokenReused.
	LowerFor(ctx context.Context, e holdover.Epoch, a holdover.Adjustment, units int64, sells bool) (holdover.Lowered, error)
	// SettleAdjustment makes the counter's change for the token a.Changed, once.
	// loaded is false for an item without a counter, which is left alone.
	SettleAdjustment(ctx context.Context, a holdover.Adjusted) (loaded bool, err error)
	// UndoLowered takes back what was given up and is not settled.
	UndoLowered(ctx context.Context, a holdover.Adjustment) error
	// LoweredAdjustments lists what was given up at least age ago and is not settled.
	LoweredAdjustments(ctx context.Context, age time.Duration, limit int) ([]holdover.Lowered, error)
}

// MySQLAdjustments is MySQL's part.
type MySQLAdjustments interface {
	// Adjust decides a, once for its token; a refusal is an *AdjustRefusedError
	// beside what was decided. Errors: ErrNotLoaded, ErrInvalid, ErrTokenReused,
	// ErrTryAgain.
	Adjust(ctx context.Context, e holdover.Epoch, a holdover.Adjustment, terms holdover.AdjustTerms) (holdover.Adjusted, error)
	// AdjustmentOf looks up how the token of a was decided; ErrTokenReused when
	// that was another change.
	AdjustmentOf(ctx context.Context, a holdover.Adjustment) (done holdover.Adjusted, found bool, err error)
	// OwedAdjustments lists decided adjustments that Redis has not followed.
	OwedAdjustments(ctx context.Context, limit int) ([]holdover.Adjusted, error)
	// AdjustmentSettled records that Redis has.
	AdjustmentSettled(ctx context.Context, token holdover.Token) error
}

// Adjust changes the stock of one item at one location, in both stores, once
// for its token. A repeated call gets the same answer, a refusal
// (*holdover.AdjustRefusedError) included. Adjusted.Owed says that Redis has not
// followed yet. With ErrUnknownOutcome it may have begun, and is then carried on
// by any instance: repeat it with the same token. Errors besides: ErrInvalid,
// ErrNotLoaded, ErrTokenReused, ErrUnavailable, ErrNotReady, ErrTryAgain.
func (f *Facade) Adjust(ctx context.Context, a holdover.Adjustment) (done holdover.Adjusted, err error) {
	if err := a.Validate(); err != nil {
		return holdover.Adjusted{}, err
	}
	_, err = f.call(ctx, newAttempt(a.Token), func(ctx context.Context, v *view) (_ holdover.Result, err error) {
		done, err = f.adjust(ctx, v, a)
		return holdover.Result{}, err
	})
	return done, err
}

// adjust is one turn in one agreed stage.
func (f *Facade) adjust(ctx context.Context, v *view, a holdover.Adjustment) (holdover.Adjusted, error) {
	if err := f.raiseMySQL(ctx); err != nil {
		return holdover.Adjusted{}, err
	}
	if v.Stage == holdover.StageMySQLOnly {
		return f.mysql.Adjust(ctx, v.Epoch, a, holdover.AdjustTerms{})
	}
	done, found, err := f.mysql.AdjustmentOf(ctx, a)
	if err != nil {
		return holdover.Adjusted{}, err
	}
	if !found {
		terms, err := f.lowerFirst(ctx, v, a)
		if err != nil {
			return holdover.Adjusted{}, f.redisErr(err)
		}
		if done, err = f.decideAdjustment(ctx, a, terms); err != nil {
			return holdover.Adjusted{}, err
		}
	}
	if done.Owed {
		if err := f.settleAdjustment(ctx, done); err != nil {
			f.log.Warn("an adjustment is in the ledger and not in redis yet; it follows", "token", a.Token, "changed", done.Changed, "err", err)
		} else {
			done.Owed = false
		}
	}
	return done, done.Err()
}

// lowerFirst lets Redis give up what is to be taken away.
func (f *Facade) lowerFirst(ctx context.Context, v *view, a holdover.Adjustment) (holdover.AdjustTerms, error) {
	terms := holdover.AdjustTerms{Redis: true}
	if a.Delta > 0 {
		return terms, nil
	}
	stocks, err := f.mysql.Probe(ctx, a.Shop, []int64{a.Item})
	if err != nil {
		return terms, err
	}
	for _, st := range stocks {
		if st.Group != a.Group {
			continue
		}
		units := -a.Wanted(st.Available)
		if units <= 0 {
			return terms, nil
		}
		if v.Stage == holdover.StageRedis && st.Free() < units {
			if err := f.endLeftovers(ctx, v, a.Shop, a.Item); err != nil {
				return terms, err
			}
		}
		l, err := f.redis.LowerFor(ctx, v.Epoch, a, units, v.Stage != holdover.StageMySQL)
		terms.Lowered, terms.Free = l.Units, l.Free
		return terms, err
	}
	return terms, fmt.Errorf("pod %s: shop %d, item %d at group %d has no row in the ledger, adjustment %s changed nothing: import the row first: %w",
		f.cfg.Pod, a.Shop, a.Item, a.Group, a.Token, holdover.ErrNotLoaded)
}

// endLeftovers ends in MySQL the holds of an item that are over in Redis. In
// redis MySQL is left alone, so it keeps what an earlier shadow brought it, and
// would refuse to lower the stock below it. The ledger can't be lowered past
// them: it must never have less than its pool and holds. A hold that Redis does
// not know (any more) stays until its time has passed, and then ends there first.
func (f *Facade) endLeftovers(ctx context.Context, v *view, shop, item int64) error {
	held, err := f.mysql.Due(ctx, whenever, shop, []int64{item}, maxLeftovers)
	if err != nil {
		return err
	}
	for _, h := range held {
		now, err := f.redis.Lookup(ctx, h.Token)
		if err == nil && now.State == holdover.StateNone && time.Since(h.ExpiresAt) > f.cfg.ReaperGrace {
			now, err = f.redis.End(ctx, v.Epoch, 0, h.Token, holdover.StateExpired)
		}
		if err == nil && now.State.Ended() {
			_, err = f.applyToMySQL(ctx, now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decideAdjustment asks MySQL. A refusal is a decision, and no error here. What
// MySQL can't make at all is taken back in Redis; where it gave no answer, what
// Redis gave up waits for it.
func (f *Facade) decideAdjustment(ctx context.Context, a holdover.Adjustment, terms holdover.AdjustTerms) (holdover.Adjusted, error) {
	done, err := f.mysql.Adjust(ctx, 0, a, terms)
	switch {
	case err == nil, errors.Is(err, holdover.ErrAdjustRefused):
		return done, nil
	case terms.Lowered == 0:
		return done, err
	case silent(err), errors.Is(err, holdover.ErrTryAgain):
		return done, f.adjustmentOpen(a, err)
	}
	if undo := f.redis.UndoLowered(ctx, a); undo != nil {
		return done, f.adjustmentOpen(a, errors.Join(err, undo))
	}
	return done, err
}

func (f *Facade) adjustmentOpen(a holdover.Adjustment, err error) error {
	return &holdover.StoreError{Store: holdover.StoreMySQL, Pod: f.cfg.Pod, Op: "decide the adjustment", Token: a.Token, Unknown: true,
		Err: fmt.Errorf("redis has given the units up, and any instance goes on with it: %w", err)}
}

func (f *Facade) settleAdjustment(ctx context.Context, done holdover.Adjusted) error {
	loaded, err := f.redis.SettleAdjustment(ctx, done)
	if err != nil {
		return err
	}
	if !loaded {
		f.log.Info("an adjusted item has no counter in redis: load it, from the ledger as it is now", "token", done.Token, "shop", done.Shop, "item", done.Item)
	}
	return f.mysql.AdjustmentSettled(ctx, done.Token)
}

// adjustLoop finishes what calls left open, until ctx ends.
func (f *Facade) adjustLoop(ctx context.Context) {
	every(ctx, f.cfg.SweepEvery, func() {
		v := f.view.Load()
		if v == nil || v.Stage == holdover.StageMySQLOnly || f.redisIsAway() {
			return
		}
		if err := f.SettleAdjustments(ctx); err != nil && ctx.Err() == nil && !silent(err) {
			f.log.Warn("adjustments are not settled", "err", err)
		}
	})
}

// SettleAdjustments makes one pass: what MySQL decided is carried into Redis,
// and what Redis gave up is taken to MySQL. It stops when a store gives no
// answer; what is left stays where it is.
func (f *Facade) SettleAdjustments(ctx context.Context) error {
	if err := f.raiseMySQL(ctx); err != nil {
		return err
	}
	owed, err := f.mysql.OwedAdjustments(ctx, f.cfg.SweepBatch)
	if err != nil {
		return err
	}
	for _, done := range owed {
		if err := f.settleAdjustment(ctx, done); f.stops(err, "settle an adjustment", done.Token) {
			return err
		}
	}
	lowered, err := f.redis.LoweredAdjustments(ctx, f.cfg.ClaimAge, f.cfg.SweepBatch)
	if err != nil {
		return err
	}
	for _, l := range lowered {
		done, err := f.decideAdjustment(ctx, l.Adjustment, holdover.AdjustTerms{Redis: true, Lowered: l.Units, Free: l.Free})
		if err == nil {
			err = f.settleAdjustment(ctx, done)
		}
		if f.stops(err, "decide an adjustment", l.Token) {
			return err
		}
	}
	return nil
}

func (c *containedRedis) LowerFor(ctx context.Context, e holdover.Epoch, a holdover.Adjustment, units int64, sells bool) (holdover.Lowered, error) {
	return contained(c.store, c.pod, "give up units", a.Token, func() (holdover.Lowered, error) { return c.redis.LowerFor(ctx, e, a, units, sells) })
}

func (c *containedRedis) SettleAdjustment(ctx context.Context, a holdover.Adjusted) (bool, error) {
	return contained(c.store, c.pod, "settle an adjustment", a.Token, func() (bool, error) { return c.redis.SettleAdjustment(ctx, a) })
}

func (c *containedRedis) UndoLowered(ctx context.Context, a holdover.Adjustment) error {
	return containedErr(c.store, c.pod, "take units back", a.Token, func() error { return c.redis.UndoLowered(ctx, a) })
}

func (c *containedRedis) LoweredAdjustments(ctx context.Context, age time.Duration, limit int) ([]holdover.Lowered, error) {
	return contained(c.store, c.pod, "list given up units", holdover.Token{}, func() ([]holdover.Lowered, error) { return c.redis.LoweredAdjustments(ctx, age, limit) })
}

func (c *containedMySQL) Adjust(ctx context.Context, e holdover.Epoch, a holdover.Adjustment, terms holdover.AdjustTerms) (holdover.Adjusted, error) {
	return contained(c.store, c.pod, "adjust", a.Token, func() (holdover.Adjusted, error) { return c.mysql.Adjust(ctx, e, a, terms) })
}

func (c *containedMySQL) AdjustmentOf(ctx context.Context, a holdover.Adjustment) (done holdover.Adjusted, found bool, err error) {
	err = containedErr(c.store, c.pod, "look up an adjustment", a.Token, func() (err error) {
		done, found, err = c.mysql.AdjustmentOf(ctx, a)
		return err
	})
	return done, found, err
}

func (c *containedMySQL) OwedAdjustments(ctx context.Context, limit int) ([]holdover.Adjusted, error) {
	return contained(c.store, c.pod, "list owed adjustments", holdover.Token{}, func() ([]holdover.Adjusted, error) { return c.mysql.OwedAdjustments(ctx, limit) })
}

func (c *containedMySQL) AdjustmentSettled(ctx context.Context, token holdover.Token) error {
	return containedErr(c.store, c.pod, "settle an adjustment", token, func() error { return c.mysql.AdjustmentSettled(ctx, token) })
}
