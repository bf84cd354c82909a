package app

import (
	"context"
	"math/rand/v2"
	"time"

	"holdover"
)

// What an instance says of itself in the pod's Redis, and hears there. In
// mysql-only it does neither: Redis may be gone. Who lives is not known then,
// and status says so; MySQL's fence refuses an instance with an old epoch all
// the same.

// ackAgain is about how long after a sign of life that failed a new epoch is
// acknowledged again. Who has pressed a kill waits for it, and the next one on the
// clock may be far off; half of it is chance, so that the instances of a pod do
// not all ask a Redis at once that was too slow for them together.
const ackAgain = 50 * time.Millisecond

// heartbeats tell the pod's Redis that this instance lives and which epoch it
// works with: at once after a change, soon again when that failed, else on the
// clock. The first one in mysql-only, which acknowledges the retirement, is the
// last.
func (p *Pod) heartbeats(ctx context.Context) {
	ticker := time.NewTicker(p.cfg.Timing.Heartbeat)
	defer ticker.Stop()
	var acknowledged, heard holdover.Epoch // heard: Redis has taken it
	failing := false
	for {
		fence, err := p.Facade.Agreed()
		retired := fence.Stage == holdover.StageMySQLOnly
		var again <-chan time.Time
		if err == nil && !(retired && acknowledged == fence.Epoch) {
			err := p.Redis.Heartbeat(ctx, holdover.Instance{Name: p.cfg.Instance, ID: p.instanceID, Epoch: fence.Epoch, Busy: p.Facade.Busy(), Debts: p.Facade.Debts()})
			acknowledged = fence.Epoch
			switch {
			case err == nil:
				heard = fence.Epoch
			case heard < fence.Epoch && !retired:
				again = time.After(ackAgain/2 + rand.N(ackAgain))
			}
			if (err != nil) != failing && ctx.Err() == nil && !retired {
				failing = err != nil
				p.log.Warn("heartbeat", "failing", failing, "err", err)
			}
		}
		select {
		case <-ticker.C:
		case <-p.beat:
		case <-again:
		case <-ctx.Done():
			if p.retired() {
				return
			}
			gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if err := p.Redis.Forget(gone, p.instanceID); err != nil {
				p.log.Warn("this instance could not say goodbye; it ages out", "err", err)
			}
			return
		}
	}
}

// retired reports whether this instance works in mysql-only.
func (p *Pod) retired() bool {
	fence, err := p.Facade.Agreed()
	return err == nil && fence.Stage == holdover.StageMySQLOnly
}

// unlessRetired listens to the pod's Redis, but not in mysql-only. Polling
// covers what is missed, the return from there included.
type unlessRetired struct{ pod *Pod }

// FollowFence is legacyredis's while Redis is not retired, and else quiet.
func (u unlessRetired) FollowFence(ctx context.Context, onChange func()) error {
	for ctx.Err() == nil {
		if err := u.follow(ctx, onChange); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// follow returns nil when Redis was retired, or is no longer.
func (u unlessRetired) follow(ctx context.Context, onChange func()) error {
	listening, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	retired := u.pod.retired()
	if retired {
		ended = nil
	} else {
		go func() { ended <- u.pod.Redis.FollowFence(listening, onChange) }()
		defer func() { // it is gone before the next one begins
			if ended != nil {
				<-ended
			}
		}()
	}
	defer stop()
	look := time.NewTicker(u.pod.cfg.Timing.Heartbeat)
	defer look.Stop()
	for u.pod.retired() == retired {
		select {
		case err := <-ended:
			ended = nil
			return err
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
	return nil
}
