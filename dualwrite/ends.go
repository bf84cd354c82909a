package dualwrite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
)

// Claim makes the deduction permanent; see holdover.Reserver.
func (f *Facade) Claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	if err := checkNames(shop, token); err != nil {
		return holdover.Result{Decision: f.decision(f.view.Load(), holdover.StoreNone, "the request is not valid")}, err
	}
	res, err := f.claimHold(ctx, shop, token, 0, lines...)
	return f.late.AfterClaim(ctx, shop, token, lines, res, err)
}

// claimHold claims a hold that has not ended.
func (f *Facade) claimHold(ctx context.Context, shop int64, token holdover.Token, marks holdover.Marks, lines ...holdover.Line) (holdover.Result, error) {
	a := newAttempt(token)
	a.marks = marks
	return f.call(ctx, a, func(ctx context.Context, v *view) (holdover.Result, error) {
		return f.claim(ctx, v, a, shop, lines)
	})
}

// claim is one turn of a claim (rule 12): mark in Redis, ledger and end record
// in MySQL, then clear Redis off the buyer's path. Once marked, it is certain.
// The mark gives back what is not part of the claim; from then on Hold.Claimed
// says what is, in both stores, the journal and the facts.
func (f *Facade) claim(ctx context.Context, v *view, a *attempt, shop int64, part []holdover.Line) (holdover.Result, error) {
	if v.Stage == holdover.StageMySQLOnly {
		h, err := f.mysql.Claim(ctx, v.Epoch, shop, a.token, part, false)
		return f.ended(v, holdover.StoreMySQL, h, shop, holdover.StateClaimed, err, "mysql decides alone")
	}
	o := f.observation(v, a, holdover.OpClaim, holdover.Request{Shop: shop, Token: a.token})
	by := holdover.StoreRedis
	marked, err := timed(&o.Redis, func() (h holdover.Hold, err error) {
		h, by, err = f.mark(ctx, v, a, shop, part)
		return h, err
	})
	switch {
	case err == nil:
	case v.Stage == holdover.StageMySQL && (errors.Is(err, holdover.ErrUnknownHold) || f.redisGone(err)):
		return f.claimWithoutRedis(ctx, v, a, shop, part, o, err)
	default:
		if v.Stage.Dual() && holdover.NoAnswer(err) {
			f.observe(o)
		}
		return f.ended(v, holdover.StoreRedis, marked, shop, holdover.StateClaimed, f.redisErr(err), "redis decides whether an end may begin")
	}
	o.Lines, o.Redis.State = marked.Part(), marked.State
	o.repeated(marked.Again)
	if marked.Claimed != nil {
		o.Marks |= holdover.MarkPart
	}
	v.noteAge(&o, marked)
	if marked.State.Ended() {
		marked.Again = true
		return f.ended(v, by, marked, shop, holdover.StateClaimed, nil, by.String()+" knows it as "+marked.State.String())
	}

	fact := marked
	fact.State = holdover.StateClaimed
	h, err := timed(&o.MySQL, func() (holdover.Hold, error) { return f.applyToMySQL(ctx, fact) })
	o.MySQL.State = h.State
	switch {
	case err != nil && !silent(err): // the ledger answers, and can't take it
		f.observeDual(v, o)
		f.log.Error("a marked claim can't be written to the ledger: it stays marked, and is applied once that is mended", "token", a.token, "err", err)
		return f.ended(v, holdover.StoreMySQL, marked, shop, holdover.StateClaimed, err, "marked in redis; the ledger can't take it")
	case err != nil: // the mark keeps it: the sweep of any instance applies it when the ledger is back
		f.observeDual(v, o)
		f.stats.pending.Add(1)
		if len(marked.Claimed) > 0 && v.Stage != holdover.StageRedis { // the rest of it is free in Redis
			f.oweEnd(ctx, v, a.token)
		}
		res := f.result(v, holdover.StoreRedis, marked, false, "marked in redis; the ledger did not answer, it is applied when it does")
		res.Pending = true
		f.log.Warn("claim is pending", "token", a.token, "err", err)
		return res, nil
	case h.State != holdover.StateClaimed: // MySQL has an end record: roll the mark back
		o.MySQL.Outcome = holdover.OutcomeRefused
		o.noteExpiry(marked, h)
		f.observeDual(v, o)
		f.clearInRedis(v, h)
		return f.ended(v, holdover.StoreMySQL, h, shop, holdover.StateClaimed, nil, "mysql knows how it ended")
	}
	if v.Stage.Dual() && h.Missing {
		f.clearAndLook(v, o, marked, h)
	} else {
		f.observeDual(v, o)
		f.clearInRedis(v, h)
	}
	if len(h.Lines) == 0 {
		h.Lines, h.Claimed = marked.Lines, marked.Claimed
	}
	if !holdover.SameLines(h.Part(), marked.Part()) { // claimed by MySQL alone, while Redis was away
		return f.ended(v, holdover.StoreMySQL, h, shop, holdover.StateClaimed,
			fmt.Errorf("pod %s, hold %s: another part of it was claimed: %w", f.cfg.Pod, a.token, holdover.ErrTokenReused), "mysql knows it as claimed in other lines")
	}
	return f.ended(v, v.Stage.Truth(), h, shop, holdover.StateClaimed, nil, "marked in redis, written to the ledger")
}

// mark begins the claim in Redis. While Redis decides, a hold that only MySQL
// knows is honoured as a vote for units (rule 16), and an end that only MySQL
// knows stands: this call may have made it there before the agreement moved. It
// returns the store that knows the hold so.
func (f *Facade) mark(ctx context.Context, v *view, a *attempt, shop int64, part []holdover.Line) (h holdover.Hold, by holdover.Store, err error) {
	markCtx := ctx
	if v.Stage == holdover.StageMySQL {
		if f.redisIsAway() {
			return h, holdover.StoreRedis, &holdover.StoreError{Store: holdover.StoreRedis, Pod: f.cfg.Pod, Op: "mark", Token: a.token, Err: errors.New("it gave no answer a moment ago")}
		}
		short, cancel := context.WithTimeout(ctx, f.cfg.MirrorTimeout)
		defer cancel()
		markCtx = short
	}
	h, err = f.redis.Mark(markCtx, v.Epoch, shop, a.token, part)
	if v.Stage == holdover.StageMySQL {
		f.noteSilence(err)
	}
	if !errors.Is(err, holdover.ErrUnknownHold) || v.Stage == holdover.StageRedis || v.Stage == holdover.StageMySQL {
		return h, holdover.StoreRedis, err
	}
	known, lookErr := f.mysql.Lookup(ctx, a.token)
	switch {
	case lookErr != nil: // it may well be there: "no such hold" would be wrong
		return h, holdover.StoreMySQL, lookErr
	case known.Shop != shop:
		return h, holdover.StoreRedis, err
	case known.State == holdover.StateClaimed:
		asked, err := known.PartOf(part)
		if err == nil && !holdover.SameLines(known.Part(), (holdover.Hold{Lines: known.Lines, Claimed: asked}).Part()) {
			err = fmt.Errorf("pod %s, hold %s: another part of it was claimed: %w", f.cfg.Pod, a.token, holdover.ErrTokenReused)
		}
		return known, holdover.StoreMySQL, err
	case known.State != holdover.StateHeld:
		return known, holdover.StoreMySQL, nil
	}
	_, voteErr := f.redis.Vote(ctx, a.ticket(v), holdover.Request{Shop: known.Shop, Token: a.token, Lines: known.Lines, TTL: max(time.Until(known.ExpiresAt), time.Second)})
	switch {
	case isRefusal(voteErr):
		return h, holdover.StoreRedis, err
	case voteErr != nil:
		return holdover.Hold{}, holdover.StoreRedis, voteErr
	}
	f.stats.adopted.Add(1)
	h, err = f.redis.Mark(ctx, v.Epoch, shop, a.token, part)
	return h, holdover.StoreRedis, err
}

// claimWithoutRedis is a claim in mysql when Redis is away or does not know the
// hold: the ledger, the end record and the journal row in one transaction that
// reads the fence.
func (f *Facade) claimWithoutRedis(ctx context.Context, v *view, a *attempt, shop int64, part []holdover.Line, o record, why error) (holdover.Result, error) {
	h, err := timed(&o.MySQL, func() (holdover.Hold, error) {
		return waitMySQL(ctx, f, v, "claim", a.token, func(ctx context.Context) (holdover.Hold, error) {
			return f.mysql.Claim(ctx, v.Epoch, shop, a.token, part, true)
		})
	})
	o.MySQL.State, o.Lines = h.State, h.Part()
	if err == nil || silent(err) {
		o.Redis.Outcome = holdover.OutcomeError
		f.observe(o)
	}
	reason := "mysql claimed and journaled it: redis is away"
	switch {
	case errors.Is(err, holdover.ErrUnknownHold):
		reason = "neither store knows the hold"
	case err != nil:
		reason = "mysql decides: redis could not"
	case errors.Is(why, holdover.ErrUnknownHold):
		reason = "mysql claimed and journaled it: redis does not know the hold"
	}
	return f.ended(v, holdover.StoreMySQL, h, shop, holdover.StateClaimed, maybeBegun(why, err), reason)
}

// Release gives the units back; see holdover.Reserver.
func (f *Facade) Release(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	if err := checkNames(shop, token); err != nil {
		return holdover.Result{Decision: f.decision(f.view.Load(), holdover.StoreNone, "the request is not valid")}, err
	}
	a := newAttempt(token)
	res, err := f.call(ctx, a, func(ctx context.Context, v *view) (holdover.Result, error) {
		h, by, reason, err := f.end(ctx, v, a, shop, holdover.StateReleased)
		return f.ended(v, by, h, shop, holdover.StateReleased, err, reason)
	})
	return f.late.AfterEnded(ctx, shop, token, res, err)
}

// end is one turn of a release or an expiry (rules 13 and 14): it begins in the
// store that decides about ends, and follows in the other. Shop zero is any. It
// returns the hold as it is afterwards.
func (f *Facade) end(ctx context.Context, v *view, a *attempt, shop int64, how holdover.State) (h holdover.Hold, by holdover.Store, reason string, err error) {
	if v.Stage == holdover.StageMySQLOnly {
		h, err = f.mysql.End(ctx, v.Epoch, shop, a.token, how, false)
		return h, holdover.StoreMySQL, "mysql decides alone", err
	}
	op := holdover.OpRelease
	if how == holdover.StateExpired {
		op = holdover.OpExpire
	}
	o := f.observation(v, a, op, holdover.Request{Token: a.token})
	h, err = timed(&o.Redis, func() (holdover.Hold, error) {
		if v.Stage != holdover.StageMySQL {
			return f.redis.End(ctx, v.Epoch, shop, a.token, how)
		}
		if f.redisIsAway() {
			return holdover.Hold{}, &holdover.StoreError{Store: holdover.StoreRedis, Pod: f.cfg.Pod, Op: "end", Token: a.token, Err: errors.New("it gave no answer a moment ago")}
		}
		ctx, cancel := context.WithTimeout(ctx, f.cfg.MirrorTimeout)
		defer cancel()
		return f.redis.End(ctx, v.Epoch, shop, a.token, how)
	})
	o.Shop, o.Lines, o.Redis.State = h.Shop, h.Lines, h.State
	unknown := errors.Is(err, holdover.ErrUnknownHold)
	switch { // perhaps only MySQL knows it (rule 16): then Redis gets the end record
	case unknown && v.Stage == holdover.StageShadow: // nobody waits for the shadow
		f.endLeftover(v, a.token, shop, how)
	case unknown && v.Stage == holdover.StageJoint:
		known, lookErr := f.mysql.Lookup(ctx, a.token)
		switch {
		case lookErr != nil || known.Shop != shop:
		case known.State.Live():
			h, err = f.redis.End(ctx, v.Epoch, 0, a.token, how)
		case known.State.Ended(): // there alone, while Redis was away: the journal carries it
			known.Again = true
			return known, holdover.StoreMySQL, "mysql knows it as " + known.State.String(), nil
		}
	}
	if err != nil {
		if v.Stage == holdover.StageMySQL && (unknown || f.redisGone(err)) {
			why := err
			f.noteSilence(why)
			h, err = timed(&o.MySQL, func() (holdover.Hold, error) {
				return waitMySQL(ctx, f, v, "end", a.token, func(ctx context.Context) (holdover.Hold, error) {
					return f.mysql.End(ctx, v.Epoch, shop, a.token, how, true)
				})
			})
			o.Shop, o.Lines, o.MySQL.State = h.Shop, h.Lines, h.State
			if err == nil || silent(err) {
				f.observe(o)
			}
			if silent(err) {
				f.remember(v, a.token) // Redis may have ended it all the same: looked up later
			}
			reason := "mysql ended and journaled it: redis is away"
			switch {
			case errors.Is(err, holdover.ErrUnknownHold):
				reason = "neither store knows the hold"
			case unknown:
				reason = "mysql ended and journaled it: redis does not know the hold"
			}
			return h, holdover.StoreMySQL, reason, maybeBegun(why, err)
		}
		if holdover.NoAnswer(err) {
			f.remember(v, a.token)             // Redis may have ended it: looked up later
			if how == holdover.StateReleased { // an expiry is tried again, and counts when it is over
				o.Shop = shop
				f.observeDual(v, o)
			}
		}
		return h, holdover.StoreRedis, "redis decides whether an end may begin", f.redisErr(err)
	}
	if !h.State.Ended() { // an expiry that came too early
		return h, holdover.StoreRedis, "redis: its time has not passed", nil
	}
	o.repeated(h.Again)
	v.noteAge(&o, h)
	switch v.Stage {
	case holdover.StageRedis:
		return h, holdover.StoreRedis, "redis decides alone", nil
	case holdover.StageShadow:
		f.mirrorEnd(v, o, h)
		return h, holdover.StoreRedis, "redis decides, mysql follows", nil
	}
	known, err := timed(&o.MySQL, func() (holdover.Hold, error) { return f.applyToMySQL(ctx, h) })
	o.MySQL.State = known.State
	if err == nil {
		o.noteExpiry(h, known)
	}
	switch {
	case err != nil:
		f.observeDual(v, o)
	case !h.Again || !known.Again:
		f.observeEnd(ctx, v, o, h, known)
	}
	switch {
	case err != nil: // the end is a fact in Redis already: it follows as unmirrored
		f.oweEnd(ctx, v, a.token)
		return h, holdover.StoreRedis, "ended in redis, mysql follows: it did not answer", nil
	case known.State == holdover.StateClaimed:
		f.clearInRedis(v, known)
		return known, holdover.StoreMySQL, "mysql knows it as claimed", nil
	}
	if len(h.Lines) == 0 {
		h.Shop, h.Lines, h.Again = known.Shop, known.Lines, known.Again
	}
	return h, v.Stage.Truth(), "ended in redis, then in mysql", nil
}

// endLeftover ends, off the buyer's path, a hold that only MySQL knows: Redis
// gets the end record first, so that it decides.
func (f *Facade) endLeftover(v *view, token holdover.Token, shop int64, how holdover.State) {
	f.lanes.add(job{token: token, epoch: v.Epoch, what: "end a hold that redis does not know", run: func(ctx context.Context) error {
		known, err := f.mysql.Lookup(ctx, token)
		if err != nil || !known.State.Live() || known.Shop != shop {
			return err
		}
		h, err := f.redis.End(ctx, v.Epoch, 0, token, how)
		if err != nil {
			return err
		}
		f.stats.bypassed.Add(1) // it ended, and its caller was told that there is no such hold
		_, err = f.applyToMySQL(ctx, h)
		return err
	}})
}

// ended builds the answer of a claim or a release from how the hold stands now.
func (f *Facade) ended(v *view, by holdover.Store, h holdover.Hold, shop int64, want holdover.State, err error, reason string) (holdover.Result, error) {
	res := f.result(v, by, h, h.Again && err == nil && h.State == want, reason)
	switch {
	case err != nil:
		return res, err
	case h.Shop != 0 && h.Shop != shop, len(h.Lines) == 0:
		res.Hold, res.Replayed = holdover.Hold{}, false
		res.Decision.Reason = "no store knows the hold"
		return res, fmt.Errorf("pod %s, shop %d, hold %s: %w", f.cfg.Pod, shop, h.Token, holdover.ErrUnknownHold)
	case h.State == want:
		if want == holdover.StateClaimed {
			f.stats.claimed.Add(1)
		} else {
			f.stats.released.Add(1)
		}
		return res, nil
	default:
		return res, holdover.EndError(h.Token, h.State)
	}
}

// Lookup says what the deciding store knows; see holdover.Reserver.
//
// A hold that nobody was told of yet can still be given back, and telling it
// here is an answer like any other: it is confirmed first, as a repeated
// reserve is.
func (f *Facade) Lookup(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	if err := checkNames(shop, token); err != nil {
		return holdover.Result{Decision: f.decision(f.view.Load(), holdover.StoreNone, "the request is not valid")}, err
	}
	a := newAttempt(token)
	res, err := f.call(ctx, a, func(ctx context.Context, v *view) (holdover.Result, error) {
		h, err := f.lookup(ctx, v, token)
		res := f.result(v, v.Stage.Truth(), h, false, v.Stage.Truth().String()+" is the truth in "+v.Stage.String())
		if err == nil && (h.State == holdover.StateNone || h.Shop != shop || len(h.Lines) == 0) {
			res.Hold = holdover.Hold{}
			return res, fmt.Errorf("pod %s, shop %d, hold %s: %w", f.cfg.Pod, shop, token, holdover.ErrUnknownHold)
		}
		if err == nil && h.State == holdover.StateHeld && !h.Firm {
			return f.reserve(ctx, v, a, holdover.Request{Shop: shop, Token: token, Lines: h.Lines, TTL: max(h.ExpiresAt.Sub(h.GrantedAt), time.Second)})
		}
		return res, err
	})
	if err != nil { // the hold may have been given back between the two, and taken anew
		f.giveBack(ctx, a)
	}
	return f.late.AfterLookup(ctx, res, err)
}

// checkNames refuses what can't be the name of a hold.
func checkNames(shop int64, token holdover.Token) error {
	switch {
	case shop <= 0:
		return &holdover.InvalidError{Field: "shop_id", Value: fmt.Sprint(shop), Problem: "must be a positive number"}
	case token == holdover.Token{}:
		return &holdover.InvalidError{Field: "token", Problem: "is missing"}
	}
	return nil
}

func (f *Facade) lookup(ctx context.Context, v *view, token holdover.Token) (holdover.Hold, error) {
	if v.Stage.Truth() == holdover.StoreMySQL {
		return f.mysql.Lookup(ctx, token)
	}
	return f.redis.Lookup(ctx, token)
}

// clearInRedis carries MySQL's end of a hold into Redis, off the buyer's path.
// What is lost here stays marked, and the sweep finds it.
func (f *Facade) clearInRedis(v *view, h holdover.Hold) {
	f.lanes.add(job{token: h.Token, epoch: v.Epoch, what: "clear in redis", run: func(ctx context.Context) error {
		return f.carryEnd(ctx, h)
	}})
}

// carryEnd carries MySQL's end of a hold into Redis. A Redis that is being
// rebuilt takes nothing, and may have read the hold before it ended; the mark
// that would keep it is lost there: the journal keeps it.
func (f *Facade) carryEnd(ctx context.Context, h holdover.Hold) error {
	_, err := f.redis.Apply(ctx, h)
	if errors.Is(err, holdover.ErrNoFence) {
		err = f.mysql.JournalFact(ctx, h.Token)
	}
	return err
}
