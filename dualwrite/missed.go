package dualwrite

import (
	"context"
	"time"

	"holdover"
)

// noteMissed looks whether MySQL had followed the hold until it heard of its end:
// an end heals what was lost before, so that this is the last moment at which it
// shows. Either MySQL never had the hold, or Redis had ended it long ago and MySQL
// still had it when its own reaper came. It reports whether o is ready to be told;
// else it will be: a hold that ended soon after its grant may only have overtaken it.
func (f *Facade) noteMissed(ctx context.Context, o *record, redis, mysql holdover.Hold) (ready bool) {
	if o.Stage != holdover.StageShadow || o.MySQL.Outcome != holdover.OutcomeGranted {
		return true
	}
	text := ""
	switch {
	case mysql.Missing:
		text = "mysql did not have the hold: its grant never came there"
	case o.Op == holdover.OpExpire && redis.State == holdover.StateReleased && redis.Again && !mysql.Again && time.Since(mysql.ExpiresAt) >= f.cfg.LaneLag+seenLate:
		// An expiry that MySQL lacks is what its own reaper is for. A release came
		// before the expiry: by now its mirror work would be known to be late.
		text = "mysql still had the hold: its end in redis never came there"
	default:
		return true
	}
	if mysql.Missing && time.Since(redis.GrantedAt) < f.cfg.LaneLag && len(o.Evidence) == 0 {
		select {
		case f.rechecks <- recheck{o: *o, next: time.Now().Add(f.cfg.LaneLag + seenLate), missed: text, granted: redis.GrantedAt}:
			return false
		default:
			o.Marks |= holdover.MarkUndecided
			notCompared(o, holdover.OutcomeShed, "too many differences are waiting for their re-check")
			return true
		}
	}
	f.judgeMissed(ctx, o, text, redis.GrantedAt)
	return true
}

// beginning is how long after the time in the fence Redis may still grant under the
// agreement before it: the time is taken first, and the fence written then.
const beginning = time.Second

// seenLate is how long it may take until late mirror work shows in a heartbeat.
const seenLate = time.Second

// judgeMissed tells what MySQL missed, unless it knows the hold after all: as one
// that it could not take, which was told then, or whose grant came after its end.
func (f *Facade) judgeMissed(ctx context.Context, o *record, text string, granted time.Time) {
	owes, err := f.mysql.Owes(ctx, o.Token)
	switch {
	case err != nil:
		o.Marks |= holdover.MarkUndecided
		notCompared(o, holdover.OutcomeError, "re-check failed: "+err.Error())
		return
	case owes:
		return
	}
	f.noteLostBefore(o)
	if since := f.view.Load().dualSince; len(o.Evidence) == 0 && !since.IsZero() && granted.Before(since.Add(beginning)) {
		p := o.evidence(holdover.EvidencePreShadow)
		p.GrantedAt, p.DualSince = granted, since.Add(beginning)
	}
	if len(o.Evidence) == 0 && f.lagging(ctx) {
		o.evidence(holdover.EvidenceMirrorLost).Cause = "an instance has mirror work that is late or was lost"
	}
	o.MySQL.Outcome, o.MySQL.Err = holdover.OutcomeRefused, text
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
