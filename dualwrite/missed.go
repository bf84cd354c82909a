package dualwrite

import (
	"context"
	"time"

	"holdover"
)

// noteMissed looks whether MySQL had followed the hold until it heard of its end:
// an end heals what was lost before, so that this is the last moment at which it
// shows. Either MySQL never had the hold, or Redis had ended it long ago and MySQL
// still had it when its own reaper came.
func (f *Facade) noteMissed(ctx context.Context, o *record, redis, mysql holdover.Hold) {
	if o.Stage != holdover.StageShadow || o.MySQL.Outcome != holdover.OutcomeGranted {
		return
	}
	text := ""
	switch {
	case mysql.Missing:
		text = "mysql did not have the hold: its grant never came there"
	case o.Op == holdover.OpExpire && redis.Again && !mysql.Again && time.Since(mysql.ExpiresAt) >= f.cfg.ReaperGrace:
		text = "mysql still had the hold: its end in redis never came there"
	default:
		return
	}
	if owes, err := f.mysql.Owes(ctx, o.Token); err == nil && owes {
		return // MySQL said that it could not take it, which was told then
	}
	f.noteLostBefore(o)
	switch {
	case len(o.Evidence) > 0:
	case mysql.Missing && time.Since(redis.GrantedAt) < f.cfg.LaneLag:
		o.Marks |= holdover.MarkUndecided
		notCompared(o, holdover.OutcomeShed, "the hold ended so soon that its grant may have been on its way to mysql")
		return
	case f.lagging(ctx):
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
			f.noteMissed(ctx, &o, redis, mysql)
			tell()
			return err
		},
	})
}
