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
	a := newAttempt(r.Token)
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
		g, err := f.voteRedis(ctx, v, a, r)
		return f.granted(v, holdover.StoreRedis, g, err, "redis decides alone")

	case holdover.StageShadow: // rule 6: R votes; answer; the fact follows in the lane
		o := f.observation(v, a, holdover.OpReserve, r)
		g, err := timed(&o.Redis, func() (holdover.Grant, error) { return f.voteRedis(ctx, v, a, r) })
		switch {
		case err == nil:
			f.mirrorGrant(v, o, g)
		case isRefusal(err):
			f.probeMySQL(v, o, err)
		case !errors.Is(err, holdover.ErrStale):
			f.observe(o)
			f.remember(v, r.Token) // it may have been granted: looked up later
		}
		return f.granted(v, holdover.StoreRedis, g, err, "redis decides, mysql follows")

	case holdover.StageJoint: // rule 6: both must grant, Redis first
		o := f.observation(v, a, holdover.OpReserve, r)
		g, err := timed(&o.Redis, func() (holdover.Grant, error) { return f.voteRedis(ctx, v, a, r) })
		if err != nil {
			if isRefusal(err) {
				f.probeMySQL(v, o, err)
			} else if !errors.Is(err, holdover.ErrStale) {
				f.observe(o)
			}
			return f.granted(v, holdover.StoreRedis, g, err, "redis is asked first")
		}
		m, err := timed(&o.MySQL, func() (holdover.Grant, error) { return f.voteMySQL(ctx, v, a, r, false) })
		if !errors.Is(err, holdover.ErrStale) {
			f.settle(v, o)
		}
		if err != nil {
			return f.granted(v, holdover.StoreMySQL, m, err, "redis granted, mysql must grant too")
		}
		g.Replayed = g.Replayed && m.Replayed
		return f.granted(v, holdover.StoreRedis, g, nil, "redis and mysql both granted")

	case holdover.StageMySQL: // rule 7: M grants; the copy goes into R; then the answer
		o := f.observation(v, a, holdover.OpReserve, r)
		away := f.redisIsAway()
		g, err := timed(&o.MySQL, func() (holdover.Grant, error) { return f.voteMySQL(ctx, v, a, r, away) })
		if err != nil {
			if isRefusal(err) {
				f.probeRedis(v, o, r)
			} else if !errors.Is(err, holdover.ErrStale) {
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
		f.markRedisAway()
		if err := f.mysql.JournalGrant(ctx, v.Epoch, r.Token); err != nil {
			return f.granted(v, holdover.StoreMySQL, g, err, "redis did not answer, and mysql did not journal it")
		}
		f.stats.journaled.Add(1)
		return f.granted(v, holdover.StoreMySQL, g, nil, "mysql granted and journaled it: redis did not answer")

	case holdover.StageMySQLOnly:
		g, err := f.voteMySQL(ctx, v, a, r, false)
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
	case holdover.NoAnswer(err):
		f.stats.noAnswer.Add(1)
		reason += "; " + by.String() + " gave no answer"
	}
	return holdover.Result{Hold: g.Hold, Decision: f.decision(v, by, reason)}, err
}

// voteRedis asks Redis; on a refusal it expires what is due for these items and
// asks once more, so that nobody is refused for a hold that has run out.
func (f *Facade) voteRedis(ctx context.Context, v *view, a *attempt, r holdover.Request) (holdover.Grant, error) {
	a.askedRedis = true
	g, err := f.redis.Vote(ctx, a.ticket(v), r)
	if errors.Is(err, holdover.ErrOutOfStock) && f.expireDue(ctx, v, f.redis, r) {
		g, err = f.redis.Vote(ctx, a.ticket(v), r)
	}
	return g, f.redisErr(err)
}

// voteMySQL asks MySQL. A call that waits for MySQL when the agreement moves
// goes on at once in the new stage (rule 8); what MySQL did becomes known later
// by token.
func (f *Facade) voteMySQL(ctx context.Context, v *view, a *attempt, r holdover.Request, journal bool) (holdover.Grant, error) {
	if err := f.raiseMySQL(ctx); err != nil {
		return holdover.Grant{}, err
	}
	a.askedMySQL = true
	type vote struct {
		g   holdover.Grant
		err error
	}
	ticket := a.ticket(v)
	ask := func() vote {
		answer := make(chan vote, 1)
		// Its own deadline, not the caller's: nobody waits for it after a move.
		f.calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.CallTimeout)
			defer cancel()
			g, err := f.mysql.Vote(ctx, ticket, r, journal)
			answer <- vote{g, err}
		})
		select {
		case got := <-answer:
			return got
		case <-v.moved:
			return vote{err: &holdover.StaleError{Store: holdover.StoreMySQL, Asked: v.Epoch, Fence: f.view.Load().Fence}}
		case <-ctx.Done():
			return vote{err: &holdover.StoreError{Store: holdover.StoreMySQL, Pod: f.cfg.Pod, Op: "vote", Token: r.Token, Unknown: true, Err: ctx.Err()}}
		}
	}
	got := ask()
	if errors.Is(got.err, holdover.ErrOutOfStock) && f.expireDue(ctx, v, f.mysql, r) {
		got = ask()
	}
	return got.g, got.err
}

// copyToRedis writes MySQL's grant into Redis (rules 7 and 10). A copy refused
// because Redis is behind is not a flip (rule 2): Redis is raised, and it is
// tried once more.
func (f *Facade) copyToRedis(ctx context.Context, v *view, a *attempt, h holdover.Hold, o *holdover.Observation) error {
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

// giveBack undoes what a refused or failed attempt may have taken (rule 9).
// Redis at once, since its units are what the next buyer asks for; MySQL in the
// token's lane, after whatever is queued there.
func (f *Facade) giveBack(ctx context.Context, a *attempt) {
	if a.askedRedis {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.GiveBackTimeout)
		defer cancel()
		if _, err := f.redis.GiveBack(ctx, a.token, a.id); err != nil {
			f.lanes.add(job{token: a.token, what: "give back in redis", run: func(ctx context.Context) error {
				_, err := f.redis.GiveBack(ctx, a.token, a.id)
				return err
			}})
		}
	}
	if a.askedMySQL {
		f.lanes.add(job{token: a.token, what: "give back in mysql", run: func(ctx context.Context) error {
			_, err := f.mysql.GiveBack(ctx, a.token, a.id)
			return err
		}})
	}
}

// isRefusal: the store answered, and its answer was that it has too few units.
func isRefusal(err error) bool { return errors.Is(err, holdover.ErrOutOfStock) }

// redisGone: no answer from Redis, or an answer that shows it lost its data.
func (f *Facade) redisGone(err error) bool {
	return holdover.NoAnswer(err) || errors.Is(err, holdover.ErrNoFence) || errors.Is(err, holdover.ErrNotLoaded)
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
	default:
		return holdover.OutcomeError
	}
}
