package dualwrite

import (
	"context"
	"fmt"
	"time"

	"holdover"
)

// missed is a fact that MySQL seems never to have heard of.
type missed struct {
	fact    holdover.State // held: the grant; released: the end
	granted time.Time      // when Redis granted the hold
}

func (m missed) String() string {
	if m.fact == holdover.StateHeld {
		return "mysql did not have the hold: its grant never came there"
	}
	return "mysql still had the hold: its end in redis never came there"
}

// noteMissed looks whether MySQL had followed the hold until it heard of its end:
// an end heals what was lost before, so that this is the last moment at which it
// shows. Either MySQL never had the hold, or Redis had ended it before and MySQL
// still had it. It reports whether o is ready to be told; else it will be: what
// MySQL lacks may only be overtaken, or is being made up for, and then it is noted
// that it came late.
func (f *Facade) noteMissed(ctx context.Context, o *record, redis, mysql holdover.Hold) (ready bool) {
	m := missed{granted: redis.GrantedAt}
	switch {
	case o.MySQL.Outcome != holdover.OutcomeGranted:
		return true
	case mysql.Missing && (o.Stage == holdover.StageShadow || o.Op != holdover.OpExpire):
		// Where MySQL votes too, a hold that Redis alone has and that nobody ends
		// may be one that nobody was told of.
		m.fact = holdover.StateHeld
	case redis.State == holdover.StateReleased && redis.Again && !mysql.Again && !mysql.Missing:
		// An expiry that MySQL lacks is what its own reaper is for.
		m.fact = holdover.StateReleased
	default:
		return true
	}
	if o.Stage == holdover.StageShadow && m.fact == holdover.StateHeld && len(o.Evidence) > 0 {
		f.judgeMissed(ctx, o, m)
		return true
	}
	wait := max(f.cfg.LaneLag, f.cfg.InstanceMaxAge)
	if o.Stage == holdover.StageJoint && m.fact == holdover.StateHeld {
		wait = max(wait, f.cfg.CallTimeout+f.cfg.GiveBackTimeout) // its vote in MySQL is on a buyer's path
	}
	select {
	case f.rechecks <- recheck{o: *o, next: time.Now().Add(wait + seenLate), missed: m}:
		return false
	default:
		o.Marks |= holdover.MarkUndecided
		notCompared(o, holdover.OutcomeShed, "too many differences are waiting for their re-check")
		return true
	}
}

// seenLate is how long it may take until late mirror work shows in a heartbeat.
const seenLate = time.Second

// oneTick is the resolution of Redis's clock: a grant and a fence of one
// millisecond may have come in either order.
const oneTick = time.Millisecond

// judgeMissed tells what MySQL missed, unless it knows it after all: as a grant
// that it could not take, which was told then, or as a fact that came too late.
func (f *Facade) judgeMissed(ctx context.Context, o *record, m missed) {
	cause := f.whyLost(ctx, m.granted) // before the notes: work that is no longer late has left one
	known, err := f.mysql.CameLate(ctx, o.Token, m.fact)
	if err == nil && !known && m.fact == holdover.StateHeld {
		known, err = f.mysql.Owes(ctx, o.Token)
	}
	switch {
	case err != nil:
		o.Marks |= holdover.MarkUndecided
		notCompared(o, holdover.OutcomeError, "re-check failed: "+err.Error())
		return
	case known:
		return
	}
	f.noteLostBefore(o)
	if len(o.Evidence) == 0 && m.fact == holdover.StateHeld {
		// By Redis's own record: its clock is the one that the grant's time is of.
		if since := f.dualSince(ctx, nil, f.view.Load().Fence); !since.IsZero() && !m.granted.After(since) {
			p := o.evidence(holdover.EvidencePreShadow)
			p.GrantedAt, p.DualSince = m.granted, since.Add(oneTick)
		}
	}
	if len(o.Evidence) == 0 && cause != "" {
		o.evidence(holdover.EvidenceMirrorLost).Cause = cause
	}
	o.MySQL.Outcome, o.MySQL.Err = holdover.OutcomeRefused, m.String()
}

// whyLost says what may have kept a fact of a hold that was granted then from
// MySQL; empty: nothing that is known.
func (f *Facade) whyLost(ctx context.Context, granted time.Time) string {
	if f.lagging(ctx) {
		return "an instance has mirror work that is late or was lost"
	}
	all, err := f.redis.Instances(ctx, longDead)
	if err != nil {
		return ""
	}
	for _, i := range all {
		if i.Age > f.cfg.InstanceMaxAge && i.Seen.After(granted) {
			return fmt.Sprintf("instance %s was heard of last at %s and did not end in an orderly way: what it had on its way is lost", shortName(i), i.Seen.UTC().Format(time.RFC3339))
		}
	}
	return ""
}

// longDead is how far back an instance that died is looked for: longer than Redis
// remembers it.
const longDead = 48 * time.Hour

// cameLate lets whoever ended the hold in MySQL know that the fact has come now.
// Without it a difference is told that was none, which is the safe side.
func (f *Facade) cameLate(ctx context.Context, token holdover.Token, fact holdover.State) {
	if err := f.mysql.NoteLate(ctx, token, fact); err != nil {
		f.log.Warn("that a fact came late could not be noted: it may be told as one that mysql never got", "token", token, "fact", fact, "err", err)
	}
}

// lateFacts is what MySQL got only now of a hold that somebody else had ended there
// meanwhile, as known says: by what Redis knows, and with grant also the grant.
func lateFacts(grant bool, redis, known holdover.Hold) (late []holdover.State) {
	if known.State == holdover.StateHeld || !known.Again && known.State == redis.State {
		return nil
	}
	if grant {
		late = append(late, holdover.StateHeld)
	}
	if redis.State == holdover.StateReleased {
		late = append(late, holdover.StateReleased)
	}
	return late
}

// overtaken reports whether an end came to MySQL after somebody else had made it
// there: whoever that was may take it for one that MySQL never heard of.
func overtaken(redis, mysql holdover.Hold) bool {
	return redis.State == holdover.StateReleased && !redis.Again && mysql.State == redis.State && mysql.Again
}

// clearAndLook is clearInRedis and then noteMissed for a claim, off the buyer's path.
func (f *Facade) clearAndLook(v *view, o record, redis, mysql holdover.Hold) {
	o.a.noted.Store(true)
	tell := func() {
		o.noteMove(f.view.Load().Epoch)
		f.observe(o)
	}
	f.lanes.add(job{token: o.Token, epoch: v.Epoch, what: "clear in redis",
		shed: func() { notCompared(&o, holdover.OutcomeShed, laneFull); tell() },
		run: func(ctx context.Context) error {
			err := f.carryEnd(ctx, mysql)
			if f.noteMissed(ctx, &o, redis, mysql) {
				tell()
			}
			return err
		},
	})
}

// observeEnd observes an end that Redis began and MySQL has followed at once, and
// looks what MySQL had missed before.
func (f *Facade) observeEnd(ctx context.Context, v *view, o record, redis, mysql holdover.Hold) {
	if overtaken(redis, mysql) {
		f.lanes.add(job{token: o.Token, epoch: v.Epoch, what: "note that an end came late", run: func(ctx context.Context) error {
			f.cameLate(ctx, o.Token, redis.State)
			return nil
		}})
	}
	o.a.noted.Store(true)
	if f.noteMissed(ctx, &o, redis, mysql) {
		f.observeDual(v, o)
	}
}

// followClaim is asked when a hold is due in a store and Redis knows it as claimed:
// Redis says so only after the ledger has it. If MySQL holds it still, the claim was
// lost there: it is made up for, and told.
func (f *Facade) followClaim(ctx context.Context, v *view, token holdover.Token) error {
	held, err := f.mysql.Lookup(ctx, token)
	if err != nil || held.State != holdover.StateHeld {
		return err
	}
	claimed, err := f.redis.Lookup(ctx, token)
	if err != nil || claimed.State != holdover.StateClaimed {
		return err
	}
	if len(claimed.Lines) == 0 {
		claimed.Shop, claimed.Lines = held.Shop, held.Lines
	}
	o := f.observation(v, newAttempt(token), holdover.OpExpire, holdover.Request{Shop: claimed.Shop, Token: token, Lines: claimed.Part()})
	o.Redis = holdover.Answer{Outcome: holdover.OutcomeGranted, State: claimed.State}
	known, err := timed(&o.MySQL, func() (holdover.Hold, error) { return f.applyToMySQL(ctx, claimed) })
	if err != nil || known.Again {
		return err
	}
	f.noteLostBefore(&o)
	o.MySQL.Outcome, o.MySQL.State, o.MySQL.Err = holdover.OutcomeRefused, held.State, "mysql still had the hold: its claim never came there, and has been made up for"
	f.observeDual(v, o)
	return nil
}

// observeLostInRedis tells that Redis still had, long past its time, a hold that
// MySQL had ended otherwise, in the stage where MySQL decides.
func (f *Facade) observeLostInRedis(ctx context.Context, v *view, redis, mysql holdover.Hold) {
	if mysql.State == holdover.StateExpired { // an expiry that Redis lacks is what its own reaper is for
		return
	}
	o := f.observation(v, newAttempt(mysql.Token), holdover.OpExpire, holdover.Request{Shop: redis.Shop, Token: redis.Token, Lines: redis.Lines})
	o.MySQL = holdover.Answer{Outcome: holdover.OutcomeGranted, State: mysql.State}
	o.Redis = holdover.Answer{Outcome: holdover.OutcomeRefused, State: redis.State, Err: "redis still had the hold: its end in mysql never came there"}
	f.noteLostBefore(&o)
	if rows, _, err := f.mysql.JournalSize(ctx); len(o.Evidence) == 0 && err == nil && rows > 0 {
		o.evidence(holdover.EvidenceMirrorLost).Cause = fmt.Sprintf("mysql's journal has %s that redis has not got", count(int(rows), "fact"))
	}
	f.observeDual(v, o)
}
