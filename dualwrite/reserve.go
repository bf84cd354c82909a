package dualwrite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
)

// Reserve takes all lines or nothing; see holdover.Reserver.
func (f *Facade) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	r, err := r.Normalize(f.cfg.Limits)
	if err != nil {
		return holdover.Result{Decision: f.decision(f.view.Load(), holdover.StoreNone, "the request is not valid")}, err
	}
	res, err := f.reserveNormal(ctx, r, 0)
	return f.late.AfterEnded(ctx, r.Shop, r.Token, res, err)
}

// reserveNormal answers a normalized request.
func (f *Facade) reserveNormal(ctx context.Context, r holdover.Request, marks holdover.Marks) (holdover.Result, error) {
	a := newAttempt(r.Token)
	a.marks = marks
	res, err := f.call(ctx, a, func(ctx context.Context, v *view) (holdover.Result, error) {
		return f.reserve(ctx, v, a, r)
	})
	if err != nil {
		f.giveBack(ctx, a)
	}
	return res, err
}

// reserve is the data path: one turn in one agreed stage. Rule numbers are the
// handover protocol's. A stale epoch is returned as it is: call goes on in the
// new stage with the same attempt, and what the attempt took stays noted in a.
func (f *Facade) reserve(ctx context.Context, v *view, a *attempt, r holdover.Request) (holdover.Result, error) {
	switch v.Stage {
	case holdover.StageRedis:
		g, err := f.placeInRedis(ctx, v, a, &r)
		return f.granted(v, holdover.StoreRedis, g, err, "redis decides alone")

	case holdover.StageShadow: // rule 6: R votes; answer; the fact follows in the lane
		o := f.observation(v, a, holdover.OpReserve, r)
		g, err := timed(&o.Redis, func() (holdover.Grant, error) { return f.placeInRedis(ctx, v, a, &r) })
		f.asked(&o, r.Lines)
		o.repeated(g.Replayed)
		switch {
		case err == nil:
			f.mirrorGrant(v, o, g)
		case isRefusal(err):
			f.probeMySQL(v, o, err)
		case holdover.NoAnswer(err): // a caller's mistake is nothing to compare
			f.observe(o)
			f.rememberUnsure(v, r.Token) // it may have been granted: looked up later
		}
		return f.granted(v, holdover.StoreRedis, g, err, "redis decides, mysql follows")

	case holdover.StageJoint: // rule 6: both must grant, Redis first
		o := f.observation(v, a, holdover.OpReserve, r)
		g, err := f.placeInBoth(ctx, v, a, &r, &o)
		o.Lines = r.Lines
		o.repeated(g.Replayed)
		if o.MySQL.Outcome == holdover.OutcomeNone {
			if isRefusal(err) {
				f.probeMySQL(v, o, err)
			} else if holdover.NoAnswer(err) {
				f.observe(o)
			}
			return f.granted(v, holdover.StoreRedis, g, err, "redis is asked first")
		}
		switch {
		case isRefusal(err):
			f.lookThenSettle(v, o)
		case !errors.Is(err, holdover.ErrStale):
			f.settle(v, o)
		}
		if err != nil {
			return f.granted(v, holdover.StoreMySQL, g, err, "redis granted, mysql must grant too")
		}
		return f.granted(v, holdover.StoreRedis, g, nil, "redis and mysql both granted")

	case holdover.StageMySQL: // rule 7: M grants; the copy goes into R; then the answer
		o := f.observation(v, a, holdover.OpReserve, r)
		away := f.redisIsAway()
		g, err := timed(&o.MySQL, func() (holdover.Grant, error) { return f.placeInMySQL(ctx, v, a, &r, away) })
		f.asked(&o, r.Lines)
		o.repeated(g.Replayed)
		if err != nil {
			if isRefusal(err) {
				f.probeRedis(v, o, r)
			} else if silent(err) {
				f.observe(o)
			}
			return f.granted(v, holdover.StoreMySQL, g, err, "mysql decides")
		}
		if away {
			o.Redis.Outcome = holdover.OutcomeError
			o.Redis.Err = "redis was known to be away"
			f.observe(o)
			return f.granted(v, holdover.StoreMySQL, g, nil, "mysql granted and journaled it: redis is away")
		}
		err = f.copyToRedis(ctx, v, a, g.Hold, &o)
		switch {
		case err == nil:
			f.settle(v, o)
			return f.granted(v, holdover.StoreMySQL, g, nil, "mysql granted, copied to redis")
		case errors.Is(err, holdover.ErrStale):
			return holdover.Result{}, err // rule 8
		case !f.redisGone(err): // Redis knows how this token ended, or it stands for other lines
			f.observe(o)
			return f.granted(v, holdover.StoreRedis, g, err, "redis has an end record for the token")
		}
		f.observe(o)
		f.noteSilence(err)
		_, err = waitMySQL(ctx, f, v, "journal a grant", r.Token, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, f.mysql.JournalGrant(ctx, v.Epoch, r.Token)
		})
		if err != nil {
			return f.granted(v, holdover.StoreMySQL, g, err, "redis did not answer, and mysql did not journal it")
		}
		f.stats.journaled.Add(1)
		return f.granted(v, holdover.StoreMySQL, g, nil, "mysql granted and journaled it: redis did not answer")

	case holdover.StageMySQLOnly:
		g, err := f.placeInMySQL(ctx, v, a, &r, false)
		return f.granted(v, holdover.StoreMySQL, g, err, "mysql decides alone")

	default:
		return holdover.Result{Decision: f.decision(v, holdover.StoreNone, "unknown stage")},
			fmt.Errorf("pod %s: %w: the agreed stage is %s, which this build does not know", f.cfg.Pod, holdover.ErrNotReady, v.Stage)
	}
}

// granted builds the answer of a vote, refusals and failures included.
func (f *Facade) granted(v *view, by holdover.Store, g holdover.Grant, err error, reason string) (holdover.Result, error) {
	switch {
	case err == nil:
		f.stats.granted.Add(1)
		return f.result(v, by, g.Hold, g.Replayed, reason), nil
	case errors.Is(err, holdover.ErrOutOfStock):
		f.stats.refused.Add(1)
		reason += "; " + by.String() + " has too few units"
	case silent(err):
		f.stats.noAnswer.Add(1)
		reason += "; " + by.String() + " gave no answer"
	}
	return holdover.Result{Hold: g.Hold, Decision: f.decision(v, by, reason)}, err
}

// voteRedis asks Redis; on a refusal it looks again, expires what is due for these
// items and asks once more, so that nobody is refused for a hold that has run out:
// also when nothing was due and the units are there, because somebody else has
// expired it just now. The refusal stands without a second vote only when the look
// found it right at one moment, under the same epoch. When the agreement has moved
// meanwhile nothing can be expired under the old one: the second vote is refused as
// stale, and the call goes on in the new stage.
func (f *Facade) voteRedis(ctx context.Context, v *view, a *attempt, r holdover.Request) (holdover.Grant, error) {
	first := !a.askedRedis
	a.askedRedis = true
	g, err := f.redis.Vote(ctx, a.ticket(v), r)
	if errors.Is(err, holdover.ErrOutOfStock) {
		due, lookErr := f.redis.Look(ctx, a.ticket(v).Epoch, r, f.cfg.SweepBatch)
		if errors.Is(lookErr, holdover.ErrOutOfStock) {
			err = lookErr
		} else { // a look that failed says nothing
			f.expireAll(ctx, v, due)
			g, err = f.redis.Vote(ctx, a.ticket(v), r)
		}
	}
	a.unsureRedis = a.unsureRedis || err != nil && !saidNo(err)
	if first && saidNo(err) {
		a.askedRedis = false // it took nothing: there is nothing to give back
	}
	return g, f.redisErr(err)
}

// saidNo: the store answered, and gave nothing. A stale epoch is left out: it
// may stand for a step that was left behind when the agreement moved.
func saidNo(err error) bool {
	return err != nil && !holdover.NoAnswer(err) && !errors.Is(err, holdover.ErrStale)
}

// voteMySQL asks MySQL, and once more after expiring what is due, as voteRedis, and
// after making up for the ends that it lacks. When there was none of them a look
// without a lock says whether somebody else has done it: a second vote on what is
// sold out would hold up the others.
func (f *Facade) voteMySQL(ctx context.Context, v *view, a *attempt, r holdover.Request, journal bool) (holdover.Grant, error) {
	first := !a.askedMySQL
	a.askedMySQL = true
	ticket := a.ticket(v) // not in the step: it may outlive this turn
	ask := func() (holdover.Grant, error) {
		return waitMySQL(ctx, f, v, "vote", r.Token, func(ctx context.Context) (holdover.Grant, error) {
			return f.mysql.Vote(ctx, ticket, r, journal)
		})
	}
	g, err := ask()
	var short *holdover.OutOfStockError
	if errors.As(err, &short) {
		ended, waitErr := waitMySQL(ctx, f, v, "free what has ended", r.Token, func(ctx context.Context) (bool, error) {
			followed := f.followOwed(ctx, r.Shop, itemsOf(r.Lines))
			// The refusal stands when this fails; the sweep tries again.
			due, err := f.mysql.Due(ctx, 0, r.Shop, itemsOf(r.Lines), f.cfg.SweepBatch)
			if err == nil && f.expireAll(ctx, v, due) || followed {
				return true, nil
			}
			stocks, err := f.mysql.Probe(ctx, r.Shop, short.Items())
			return err == nil && short.IsOutdated(stocks), nil
		})
		switch {
		case errors.Is(waitErr, holdover.ErrStale):
			return holdover.Grant{}, waitErr
		case ended, f.view.Load() != v:
			g, err = ask()
		}
	}
	a.unsureMySQL = a.unsureMySQL || err != nil && !saidNo(err)
	if first && saidNo(err) {
		a.askedMySQL = false
	}
	return g, err
}

// waitMySQL runs a step that waits for MySQL, whose fence is raised first if it
// is owed. When the agreement moves, the call goes on at once in the new stage
// (rule 8), as if the step had found a stale epoch. The step then ends under a
// deadline of its own, and what it did becomes known later by token.
func waitMySQL[T any](ctx context.Context, f *Facade, v *view, op string, token holdover.Token, step func(context.Context) (T, error)) (got T, err error) {
	type answer struct {
		got T
		err error
	}
	answers := make(chan answer, 1)
	f.calls.run(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.CallTimeout)
		defer cancel()
		var a answer
		if a.err = f.raiseMySQL(ctx); a.err == nil {
			a.got, a.err = step(ctx)
		}
		answers <- a
	})
	select {
	case a := <-answers:
		return a.got, a.err
	case <-v.moved:
		return got, &holdover.StaleError{Store: holdover.StoreMySQL, Asked: v.Epoch, Fence: f.view.Load().Fence}
	case <-ctx.Done():
		return got, &holdover.StoreError{Store: holdover.StoreMySQL, Pod: f.cfg.Pod, Op: op, Token: token, Unknown: true, Err: ctx.Err()}
	}
}

// copyToRedis writes MySQL's grant into Redis (rules 7 and 10). A copy refused
// because Redis is behind is not a flip (rule 2): Redis is raised, and it is
// tried once more.
func (f *Facade) copyToRedis(ctx context.Context, v *view, a *attempt, h holdover.Hold, o *record) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.MirrorTimeout)
	defer cancel()
	began := time.Now()
	c, err := f.redis.Copy(ctx, v.Epoch, h)
	if behind(err, v.Epoch) {
		if _, raiseErr := f.newer(ctx, v, err); raiseErr == nil {
			c, err = f.redis.Copy(ctx, v.Epoch, h)
		}
		if behind(err, v.Epoch) { // still behind: as good as silent
			err = &holdover.StoreError{Store: holdover.StoreRedis, Pod: f.cfg.Pod, Op: "copy", Token: h.Token, Err: err}
		}
	}
	o.Redis.Latency = time.Since(began)
	switch {
	case err != nil:
		o.Redis.Outcome, o.Redis.Err = outcomeOf(err), err.Error()
	case c.WouldGrant || c.Replayed:
		o.Redis.Outcome, o.Redis.State, o.Redis.Remaining = holdover.OutcomeGranted, c.Hold.State, c.Remaining
	default:
		o.Redis.Outcome, o.Redis.State, o.Redis.Remaining = holdover.OutcomeRefused, c.Hold.State, c.Remaining
	}
	return err
}

// silent: the store did not do it, or nobody knows whether it did. MySQL's full
// queue counts: certainly nothing was written, and what Redis knows still stands.
func silent(err error) bool {
	return holdover.NoAnswer(err) || errors.Is(err, holdover.ErrOverloaded)
}

// maybeBegun adds to MySQL's silence that Redis gave no answer before: what the
// call began may stand there, and then any instance goes on with it. So nobody
// is told that nothing happened.
func maybeBegun(redis, mysql error) error {
	if silent(mysql) && errors.Is(redis, holdover.ErrUnknownOutcome) {
		return fmt.Errorf("%w; %w", redis, mysql)
	}
	return mysql
}

// isRefusal: the store answered, and its answer was that it has too few units.
func isRefusal(err error) bool { return errors.Is(err, holdover.ErrOutOfStock) }

// redisGone: Redis does not have the fact and can't take it now: no answer, or
// one that shows it lost its data or does not know an item.
func (f *Facade) redisGone(err error) bool {
	return holdover.NoAnswer(err) || errors.Is(err, holdover.ErrNoFence) || errors.Is(err, holdover.ErrNotLoaded)
}

// noteSilence makes the next calls journal at once. An item that Redis does not
// know is that item's trouble only.
func (f *Facade) noteSilence(err error) {
	if holdover.NoAnswer(err) || errors.Is(err, holdover.ErrNoFence) {
		f.markRedisAway()
	}
}

// redisErr names what a Redis without a fence means for a stage where it decides.
func (f *Facade) redisErr(err error) error {
	if errors.Is(err, holdover.ErrNoFence) {
		return &holdover.StoreError{Store: holdover.StoreRedis, Pod: f.cfg.Pod, Op: "vote",
			Err: fmt.Errorf("redis has lost its data: rebuild it from mysql before it decides again: %w", err)}
	}
	return err
}

func outcomeOf(err error) holdover.Outcome {
	switch {
	case err == nil:
		return holdover.OutcomeGranted
	case errors.Is(err, holdover.ErrUnknownOutcome):
		return holdover.OutcomeUnknown
	case isRefusal(err), errors.Is(err, holdover.ErrEnded), errors.Is(err, holdover.ErrAlreadyClaimed):
		return holdover.OutcomeRefused
	case errors.Is(err, holdover.ErrOverloaded):
		return holdover.OutcomeShed
	default:
		return holdover.OutcomeError
	}
}
