package dualwrite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
)

// An extension is the promise that no expiry comes before a time. An expiry is
// an end, and begins in Redis (rule 13); so does an extension, and then the
// promise holds wherever an expiry can begin from that moment on:
//
//   - redis, shadow, joint: an expiry begins in Redis's script, which looks at
//     Redis's expiry, and that was moved before the answer. MySQL's own expiry
//     ends nothing here: its reaper asks Redis first, and takes over what Redis
//     says.
//   - mysql: both stores have moved it before the answer, so that neither Redis's
//     script nor, with Redis away, MySQL's own step ends it. If Redis gave no
//     answer, or does not know the hold, MySQL moves it in a transaction that
//     reads the fence and writes the journal (rule 14). It refuses a hold whose
//     time has passed: Redis may have ended that one already, and nobody can ask.
//     For another, no expiry can have begun: in mysql one begins only for a hold
//     that is due in MySQL.
//   - a flip: the stage after it finds the later expiry where it looks. Forward to
//     mysql: rule 18 waits until the lanes and what is unmirrored are empty, and
//     what was lost with an instance MySQL's reaper takes over from Redis. The kill
//     carries the journal into Redis in the script that raises the fence, and once
//     MySQL's fence is raised no row of the older epoch can follow; an instance that
//     dies between the two stores has told nobody. Back to joint: a row may be
//     written after readiness looked at the journal, so that an expiry there looks
//     at the journal first, behind MySQL's fence. See carriedOver.
//   - Facts, the copy and the kill move an expiry forward only.
//
// Outside, as for grants: clocks of the two stores that differ by more than a
// call takes, and two faults at once (MySQL silent, then an instance or Redis lost).

// extension is what a caller asked for.
type extension struct {
	shop      int64
	ttl, life time.Duration
}

// Extend makes the hold live longer; see holdover.Reserver.
func (f *Facade) Extend(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
	life, err := f.cfg.Limits.CheckExtension(ttl)
	if err == nil {
		err = checkNames(shop, token)
	}
	if err != nil {
		return holdover.Result{Decision: f.decision(f.view.Load(), holdover.StoreNone, "the request is not valid")}, err
	}
	a := newAttempt(token)
	res, err := f.call(ctx, a, func(ctx context.Context, v *view) (holdover.Result, error) {
		return f.extend(ctx, v, a, extension{shop, ttl, life})
	})
	if err != nil { // a grant that could not be confirmed may have been taken anew
		f.giveBack(ctx, a)
	}
	return f.late.AfterEnded(ctx, shop, token, res, err)
}

// extend is one turn of an extension: Redis, then MySQL.
func (f *Facade) extend(ctx context.Context, v *view, a *attempt, x extension) (holdover.Result, error) {
	if v.Stage == holdover.StageMySQLOnly {
		h, err := f.mysql.Extend(ctx, v.Epoch, x.shop, a.token, x.ttl, x.life, false)
		return f.extended(v, holdover.StoreMySQL, h, err, "mysql decides alone")
	}
	o := f.observation(v, a, holdover.OpExtend, holdover.Request{Shop: x.shop, Token: a.token})
	h, err := timed(&o.Redis, func() (holdover.Hold, error) { return f.extendInRedis(ctx, v, a, x) })
	o.Lines, o.Redis.State = h.Lines, h.State
	switch {
	case err == nil:
	case v.Stage == holdover.StageMySQL && (errors.Is(err, holdover.ErrUnknownHold) || f.redisGone(err)):
		return f.extendWithoutRedis(ctx, v, a, x, o, err)
	default:
		if v.Stage.Dual() && holdover.NoAnswer(err) {
			f.observe(o)
			f.rememberUnsure(v, a.token) // Redis may have moved it: looked up later
		}
		return f.extended(v, holdover.StoreRedis, h, f.redisErr(err), "redis decides whether a hold can be extended")
	}
	o.repeated(h.Again)
	v.noteAge(&o, h)
	switch v.Stage {
	case holdover.StageRedis:
		h, err = f.confirm(ctx, v, a, h)
		return f.extended(v, holdover.StoreRedis, h, err, "redis decides alone")
	case holdover.StageShadow:
		if h, err = f.confirm(ctx, v, a, h); err == nil {
			f.mirrorExtension(v, o, h)
		}
		return f.extended(v, holdover.StoreRedis, h, err, "redis decides, mysql follows")
	}

	fact := h
	fact.State = holdover.StateHeld
	known, err := timed(&o.MySQL, func() (holdover.Hold, error) { return f.applyToMySQL(ctx, fact) })
	o.extended(h, known, err)
	f.observeDual(v, o)
	switch {
	case err == nil && known.State == holdover.StateHeld:
		h, err = f.confirm(ctx, v, a, h)
		return f.extended(v, v.Stage.Truth(), h, err, "extended in redis, then in mysql")
	case err == nil: // a claim or an end came between the two
		f.clearInRedis(v, known)
		return f.extended(v, holdover.StoreMySQL, known, holdover.EndError(a.token, known.State), "mysql knows how it ended")
	case isRefusal(err) && (v.Stage == holdover.StageMySQL || !h.Firm): // no buyer can have been told of it
		return f.extended(v, holdover.StoreMySQL, holdover.Hold{}, f.unknownHold(x.shop, a.token), "mysql does not know the hold")
	case v.Stage == holdover.StageMySQL || !h.Firm:
		return f.extended(v, holdover.StoreMySQL, h, err, "extended in redis; mysql must know it too, and could not be told")
	default: // Redis decides, and has it: MySQL is told later
		f.keep(v, a.token, unmirroredSince{debt: isRefusal(err)})
		return f.extended(v, holdover.StoreRedis, h, nil, "extended in redis, mysql follows: it did not take it yet")
	}
}

func (f *Facade) extendInRedis(ctx context.Context, v *view, a *attempt, x extension) (holdover.Hold, error) {
	if v.Stage != holdover.StageMySQL {
		return f.redis.Extend(ctx, v.Epoch, x.shop, a.token, x.ttl, x.life)
	}
	if f.redisIsAway() {
		return holdover.Hold{}, &holdover.StoreError{Store: holdover.StoreRedis, Pod: f.cfg.Pod, Op: "extend", Token: a.token, Err: errors.New("it gave no answer a moment ago")}
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.MirrorTimeout)
	defer cancel()
	return f.redis.Extend(ctx, v.Epoch, x.shop, a.token, x.ttl, x.life)
}

// confirm makes a hold firm that nobody may have been told of yet: its own
// attempt can still give it back, and an extension is an answer like any other.
// MySQL, where it must know the hold, has been told before: what it refuses is
// left to the attempt.
func (f *Facade) confirm(ctx context.Context, v *view, a *attempt, h holdover.Hold) (holdover.Hold, error) {
	if h.Firm {
		return h, nil
	}
	a.askedRedis = true // it may have been given back since, and be taken anew
	g, err := f.redis.Vote(ctx, a.ticket(v), holdover.Request{Shop: h.Shop, Token: a.token, Lines: h.Lines, TTL: max(h.ExpiresAt.Sub(h.GrantedAt), time.Second)})
	if isRefusal(err) {
		err = f.unknownHold(h.Shop, a.token)
	}
	g.Hold.Again = h.Again
	return g.Hold, f.redisErr(err)
}

// extendWithoutRedis is an extension in mysql when Redis is away or does not
// know the hold: the expiry and the journal row in one transaction that reads
// the fence.
func (f *Facade) extendWithoutRedis(ctx context.Context, v *view, a *attempt, x extension, o record, why error) (holdover.Result, error) {
	f.noteSilence(why)
	h, err := timed(&o.MySQL, func() (holdover.Hold, error) {
		return waitMySQL(ctx, f, v, "extend", a.token, func(ctx context.Context) (holdover.Hold, error) {
			return f.mysql.Extend(ctx, v.Epoch, x.shop, a.token, x.ttl, x.life, true)
		})
	})
	o.MySQL.State, o.Lines = h.State, h.Lines
	if err == nil || silent(err) {
		o.Redis.Outcome = holdover.OutcomeError
		f.observe(o)
	}
	reason := "mysql extended and journaled it: redis is away"
	switch {
	case errors.Is(err, holdover.ErrUnknownHold):
		reason = "neither store knows the hold"
	case err != nil:
		reason = "mysql decides: redis could not"
	case errors.Is(why, holdover.ErrUnknownHold):
		reason = "mysql extended and journaled it: redis does not know the hold"
	}
	return f.extended(v, holdover.StoreMySQL, h, maybeBegun(why, err), reason)
}

// mirrorExtension carries the later expiry into MySQL through the token's lane.
func (f *Facade) mirrorExtension(v *view, o record, h holdover.Hold) {
	lost := func(outcome holdover.Outcome, err error) { f.mirrorLost(v, o, outcome, err) }
	o.a.noted.Store(true)
	f.lanes.add(job{token: h.Token, epoch: v.Epoch, what: "mirror an extension to mysql",
		shed: func() { lost(holdover.OutcomeShed, nil) },
		run: func(ctx context.Context) error {
			fact := h
			fact.State = holdover.StateHeld
			known, err := timed(&o.MySQL, func() (holdover.Hold, error) { return f.applyToMySQL(ctx, fact) })
			switch {
			case isRefusal(err):
				f.keep(v, h.Token, unmirroredSince{debt: true})
				f.noteDebt(ctx, h)
			case err != nil:
				return err
			}
			o.extended(h, known, err)
			f.observeDual(v, o)
			return nil
		},
		failed: func(err error) { lost(outcomeOf(err), err) },
	})
}

// extended leaves out of the comparison what says nothing about extending:
// MySQL never had units for the hold (its grant was the difference), or it ended
// between the two stores. An expiry between the two is a difference.
func (o *record) extended(redis, mysql holdover.Hold, err error) {
	o.MySQL.State = mysql.State
	switch {
	case isRefusal(err):
		o.MySQL.Outcome, o.MySQL.Err = holdover.OutcomeShed, "mysql has no unit for the hold: "+err.Error()
	case err == nil && mysql.State != holdover.StateHeld:
		o.MySQL.Outcome, o.MySQL.Err = holdover.OutcomeShed, "the hold had ended before its extension was mirrored: "+mysql.State.String()
		if o.noteExpiry(redis, mysql) {
			o.MySQL.Outcome = holdover.OutcomeRefused
		}
	}
}

// extended builds the answer of an extension.
func (f *Facade) extended(v *view, by holdover.Store, h holdover.Hold, err error, reason string) (holdover.Result, error) {
	return f.result(v, by, h, err == nil && h.Again, reason), err
}

func (f *Facade) unknownHold(shop int64, token holdover.Token) error {
	return fmt.Errorf("pod %s, shop %d, hold %s: %w", f.cfg.Pod, shop, token, holdover.ErrUnknownHold)
}
