package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/killswitch"
)

// Changed is what Kill and Restore say beside the switch's own account.
type Changed struct {
	DryRun bool   `json:"dry_run,omitempty"`
	Would  string `json:"would,omitempty"` // with DryRun
	// Now is what is true after it, Next what to do, each in a sentence.
	Now  string `json:"now,omitempty"`
	Next string `json:"next,omitempty"`

	Acknowledged []string      `json:"acknowledged"` // instances that work with it
	Missing      []string      `json:"missing"`      // those that do not yet: the stores refuse their old epoch
	AckTook      time.Duration `json:"ack_took_ns"`
}

// Killed is what a kill did, or with DryRun would do.
type Killed struct {
	Changed
	killswitch.Tripped
	// Readiness is what it said of the way back just before: "yes", "no" with its
	// reasons, or "not known in time" when a store was too slow.
	Readiness string `json:"readiness"`
}

// RestoredPod is what a restore did, or with DryRun would do.
type RestoredPod struct {
	Changed
	killswitch.Restored
}

// ackWait bounds how long a kill or restore waits for the instances. The flip
// has happened by then: this only tells whether everybody has seen it.
const ackWait = 2 * time.Second

// readinessWait bounds how long a kill, once it is done, looks for what to say of
// readiness. A dry run has the time of a status.
const readinessWait, readinessWaitDry = 300 * time.Millisecond, 1200 * time.Millisecond

// Kill trips the pod's switch and waits until every live instance has seen it.
// Nothing comes before the trip: what is only said, like readiness, is found out
// when it is done.
func Kill(ctx context.Context, s *Stores, by, reason string, dryRun bool) (Killed, error) {
	return kill(ctx, s, nil, by, reason, dryRun)
}

// kill takes what is known of readiness before it, if anything is.
func kill(ctx context.Context, s *Stores, before *dualwrite.Assessment, by, reason string, dryRun bool) (Killed, error) {
	k := Killed{Changed: Changed{DryRun: dryRun, Acknowledged: []string{}, Missing: []string{}}}
	if err := killswitch.CheckWho(by, reason); err != nil {
		return k, err
	}
	if dryRun {
		looking, cancel := context.WithTimeout(ctx, readinessWaitDry)
		defer cancel()
		k.Readiness = readinessText(s.Facade.Assess(looking))
		fence, silent, err := agreedNow(ctx, s)
		if fence.Stage == holdover.StageMySQLOnly {
			err = nil // it need not answer
		}
		if err != nil {
			return k, fmt.Errorf("pod %s: a kill now would fail: %w", s.Name, err)
		}
		k.Would, k.Tripped = wouldKill(fence), killswitch.Tripped{Pod: s.Name, From: fence, To: fence}
		if silent != nil && fence.Stage != holdover.StageMySQLOnly {
			k.Would += fmt.Sprintf("; MySQL does not answer, so it would be owed the fence, and its journal could not be carried (%v)", silent)
		}
		return k, nil
	}
	tripped, err := s.Switch.Trip(ctx, by, reason)
	k.Tripped = tripped
	if err != nil {
		return k, err
	}
	k.acknowledged(ctx, s, tripped.To.Epoch)
	if before == nil {
		looking, cancel := context.WithTimeout(ctx, readinessWait)
		defer cancel()
		found := s.Facade.AssessBefore(looking, tripped.From, tripped.Carried+tripped.NotCarried)
		before = &found
	}
	k.Readiness = readinessText(*before)
	k.Now = "Redis decides alone, as before the kill"
	if tripped.To.Stage == holdover.StageShadow {
		k.Now = "Redis decides every reserve; MySQL follows each grant, claim and release, so that going forward again stays possible"
	}
	k.Now += ". The flag is ignored: no instance and no flag change can move the pod"
	k.Next = fmt.Sprintf("look at `holdover status --pod %s`; when the cause is gone: holdover restore --pod %s --reason TEXT", s.Name, s.Name)
	if tripped.Owed != "" {
		k.Next = "bring MySQL back, which ends the fault; claims are answered \"pending\" until then. Then " + k.Next
	}
	return k, nil
}

func readinessText(before dualwrite.Assessment) string {
	switch {
	case before.Agreed.Stage == holdover.StageRedis: // nothing to go back to: the kill only latches
		return "yes: redis decides already"
	case before.Back.OK():
		return "yes"
	case errors.Is(before.RedisErr, context.DeadlineExceeded), errors.Is(before.MySQLErr, context.DeadlineExceeded):
		return "not known in time: a store was slow to answer, which stops nothing"
	default:
		return "no: " + dualwrite.Texts(before.Back.Reasons)
	}
}

// agreedNow reads the larger fence for a dry run. Redis must answer; MySQL's
// silence is returned beside it.
func agreedNow(ctx context.Context, s *Stores) (fence holdover.Fence, silent, err error) {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	type read struct {
		fence holdover.Fence
		err   error
	}
	fromMySQL := make(chan read, 1)
	go func() { // ends at ctx's deadline
		f, err := s.MySQL.Fence(ctx)
		fromMySQL <- read{f, err}
	}()
	fence, err = s.Redis.Fence(ctx)
	m := <-fromMySQL
	if m.err == nil && (m.fence.Stage == holdover.StageMySQLOnly || err == nil && m.fence.Epoch > fence.Epoch) {
		fence = m.fence
	}
	return fence, m.err, err
}

func wouldKill(f holdover.Fence) string {
	switch {
	case f.Latched && killswitch.IsDrill(f):
		return fmt.Sprintf("take over the latch of a drill, in %s, by %s: the drill leaves the pod alone then", f.Stage, f.By)
	case f.Latched:
		return fmt.Sprintf("change nothing: it is latched in %s already, by %s: %s", f.Stage, f.By, f.Reason)
	case f.Stage == holdover.StageMySQLOnly:
		return fmt.Sprintf("be refused: in mysql-only Redis does not know the holds; `holdover rollout return --pod %s --confirm %s --reason TEXT` rebuilds it", f.Pod, f.Pod)
	case f.Stage == holdover.StageRedis || f.Stage == holdover.StageShadow:
		return fmt.Sprintf("latch the pod in %s, where Redis decides already", f.Stage)
	default:
		return fmt.Sprintf("flip the pod from %s to shadow, where Redis decides, carry MySQL's journal over, and latch it; dual writes go on", f.Stage)
	}
}

// Restore takes the latch off: the flag is followed again.
func Restore(ctx context.Context, s *Stores, by, reason string, dryRun bool) (RestoredPod, error) {
	r := RestoredPod{Changed: Changed{DryRun: dryRun, Acknowledged: []string{}, Missing: []string{}}}
	if err := killswitch.CheckWho(by, reason); err != nil {
		return r, err
	}
	if dryRun {
		fence, silent, err := agreedNow(ctx, s)
		if err == nil {
			err = silent // a restore needs both
		}
		if err != nil {
			return r, fmt.Errorf("pod %s: a restore now would fail: %w", s.Name, err)
		}
		r.Would = "change nothing: it is not latched"
		if fence.Latched {
			r.Would = fmt.Sprintf("take the latch off in %s; the flag is followed again from there", fence.Stage)
		}
		r.Restored = killswitch.Restored{Pod: s.Name, From: fence, To: fence}
		return r, nil
	}
	restored, err := s.Switch.Restore(ctx, by, reason)
	r.Restored = restored
	if err != nil {
		return r, err
	}
	r.acknowledged(ctx, s, restored.To.Epoch)
	r.Now = fmt.Sprintf("the pod is in %s and follows its flag again, one stage at a time, each when it is ready for it", restored.To.Stage)
	r.Next = fmt.Sprintf("look at `holdover status --pod %s` for the next step and what it waits for", s.Name)
	return r, nil
}

func (c *Changed) acknowledged(ctx context.Context, s *Stores, epoch holdover.Epoch) {
	ctx, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	acks, late, took, err := s.Switch.WaitAcknowledged(ctx, epoch)
	c.AckTook = took
	c.Acknowledged, c.Missing = acknowledged(c.Acknowledged, acks), behind(c.Missing, late)
	if err != nil && len(late) == 0 {
		c.Missing = append(c.Missing, err.Error())
	}
}

// ShortName tells two processes of one name apart.
func ShortName(name, id string) string {
	return fmt.Sprintf("%s (%.8s)", name, id)
}

// acknowledged and behind name who works with an epoch, and who does not yet.
func acknowledged(to []string, acks []killswitch.Ack) []string {
	for _, a := range acks {
		to = append(to, ShortName(a.Instance.Name, a.Instance.ID))
	}
	return to
}

func behind(to []string, instances []holdover.Instance) []string {
	for _, i := range instances {
		to = append(to, fmt.Sprintf("%s is at epoch %d", ShortName(i.Name, i.ID), i.Epoch))
	}
	return to
}
