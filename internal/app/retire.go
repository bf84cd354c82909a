package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/killswitch"
	"holdover/rollout"
)

// RetireOptions say how a pod's Redis is retired, or that it is only asked.
type RetireOptions struct {
	By, Reason string
	// WithoutFlag: the flag need not want mysql-only.
	WithoutFlag bool
	// RedisDestroyed: Redis is gone for good, and MySQL's fence alone is raised.
	RedisDestroyed bool
	DryRun         bool
}

// RetiredPod is what a retirement did, or with DryRun would do.
type RetiredPod struct {
	Changed
	Pod     string         `json:"pod"`
	From    holdover.Fence `json:"from"`
	To      holdover.Fence `json:"to"`
	Already bool           `json:"already"`
	// Reasons against it; nothing was changed then.
	Reasons []dualwrite.Reason `json:"reasons"`
	// Claims that were marked in Redis and have been applied since it was closed.
	Claims int `json:"claims"`
}

// ErrHindered: what was asked for was checked, and something speaks against it.
var ErrHindered = errors.New("something speaks against it, and nothing was changed")

// destroyedNote is what the audit says of a Redis that was not closed.
const destroyedNote = " (redis is destroyed: mysql's fence alone was raised)"

// Retire takes a pod from mysql to mysql-only, after which nothing asks Redis.
// What speaks against it is looked at first, with a verification of its own. Run
// again after a failure it goes on where it stopped.
func Retire(ctx context.Context, s *Stores, desired rollout.Desired, o RetireOptions) (RetiredPod, error) {
	r := RetiredPod{Pod: s.Name, Changed: Changed{DryRun: o.DryRun, Acknowledged: []string{}, Missing: []string{}}, Reasons: []dualwrite.Reason{}}
	if o.RedisDestroyed {
		o.Reason += destroyedNote
	}
	if err := killswitch.CheckWho(o.By, o.Reason); err != nil {
		return r, err
	}
	look := s.Facade.Refresh // a step that stopped between its two writes is finished first
	if o.DryRun {
		look = s.Facade.Look
	}
	if err := look(ctx); err != nil {
		return r, err
	}
	from, err := s.Facade.Agreed()
	if err != nil {
		return r, err
	}
	r.From, r.To, r.Already = from, from, from.Stage == holdover.StageMySQLOnly
	if !r.Already {
		if r.Reasons, err = againstRetiring(ctx, s, desired, from, o); err != nil {
			return r, err
		}
		if len(r.Reasons) > 0 {
			return r, fmt.Errorf("pod %s: %w: %s", s.Name, ErrHindered, dualwrite.Texts(r.Reasons))
		}
	}
	if o.DryRun {
		r.Would = "retire Redis: close it, so that it votes on nothing, and go from mysql to mysql-only"
		switch {
		case r.Already:
			r.Would = "change no stage, it is in mysql-only already; claims that are still marked in Redis would be applied"
		case o.RedisDestroyed:
			r.Would = "go from mysql to mysql-only by MySQL's fence alone"
		}
		return r, nil
	}
	switch {
	case r.Already:
	case o.RedisDestroyed:
		r.To, err = s.Facade.RetireDestroyed(ctx, from, o.By, o.Reason)
	default:
		r.To, err = s.Facade.Step(ctx, from, holdover.StageMySQLOnly, o.By, o.Reason)
	}
	if err != nil {
		return r, fmt.Errorf("run the same command again to go on: %w", err)
	}
	r.Now = "MySQL decides alone, and nothing asks Redis. The kill switch is refused from now on"
	r.Next = fmt.Sprintf("stop Redis when no instance is missing above; the way back is `holdover rollout return --pod %s --confirm %s --reason TEXT`, which rebuilds it", s.Name, s.Name)
	if o.RedisDestroyed {
		r.Next = "make sure that no Redis with this pod's old data ever answers at its address. " + r.Next
		return r, nil
	}
	r.acknowledged(ctx, s, r.To.Epoch)
	r.Claims, err = s.Facade.FinishClaims(ctx)
	if err != nil && r.Already && holdover.NoAnswer(err) { // retired long ago: it may be gone
		r.Now += fmt.Sprintf(". Redis does not answer any more (%v)", err)
		err = nil
	}
	return r, err
}

// againstRetiring lists what speaks against the retirement. The verification is
// made only when nothing else does.
func againstRetiring(ctx context.Context, s *Stores, desired rollout.Desired, from holdover.Fence, o RetireOptions) ([]dualwrite.Reason, error) {
	var reasons []dualwrite.Reason
	no := func(code, do, format string, args ...any) {
		reasons = append(reasons, dualwrite.Reason{Code: code, Do: do, Text: fmt.Sprintf(format, args...)})
	}
	if from.Stage != holdover.StageMySQL {
		no("not-in-mysql", "go there first, by the flag", "the pod is in %s: only from mysql redis is retired", from.Stage)
		return reasons, nil
	}
	if !o.WithoutFlag && (!desired.Known || desired.Stage != holdover.StageMySQLOnly) {
		wants := "wants " + desired.Stage.String()
		if !desired.Known {
			wants = "says nothing (" + desired.Err + ")"
		}
		no("flag", "set the flag to mysql-only, or give --without-flag", "the flag %s: instances would be at odds with it", wants)
	}
	if why, err := s.unsigned(ctx, from, holdover.StageMySQLOnly); err != nil {
		no(codeNoSignoff, "bring the pod's MySQL back", "who has signed can't be read: %v", err)
	} else if why != nil {
		reasons = append(reasons, *why)
	}
	look := s.Facade.Survey(ctx)
	if look.MySQLErr == nil && look.LastKill.IsZero() {
		no("never-drilled", "use it once while Redis is still there: kill, look, restore, and come back to mysql", "the kill switch has never been used on this pod")
	}
	switch {
	case o.RedisDestroyed && look.RedisErr == nil:
		no("redis-answers", "leave out --redis-is-destroyed: then it is closed first", "redis is not destroyed: it answers with its fence, %s", look.Redis)
	case o.RedisDestroyed && look.MySQLErr != nil:
		no("mysql-away", "bring the pod's MySQL back", "mysql does not answer: %v", look.MySQLErr)
	case o.RedisDestroyed && from.Latched:
		no("latched", "holdover restore --pod "+s.Name+" --reason TEXT", "the kill switch is latched by %s: %s", from.By, from.Reason)
	}
	if len(reasons) > 0 || o.RedisDestroyed {
		return reasons, nil
	}
	ready, err := s.Facade.Ready(ctx, holdover.StageMySQLOnly)
	return append(reasons, ready.Reasons...), err
}

// ReturnedPod is what a return did, or with DryRun would do.
type ReturnedPod struct {
	Changed
	Pod     string             `json:"pod"`
	From    holdover.Fence     `json:"from"`
	To      holdover.Fence     `json:"to"`
	Rebuilt *dualwrite.Rebuilt `json:"rebuilt"` // null: Redis had everything already
	Clean   bool               `json:"clean"`   // the verification after it
	Summary string             `json:"verification"`
}

// returnTime bounds how long a return waits for the journal to be empty.
const returnTime = time.Minute

// Return takes a pod from mysql-only to mysql, rebuilds its Redis while MySQL
// serves buyers, and verifies. Run again after a failure it goes on where it
// stopped. The flag then leads on, and the kill switch works again.
func Return(ctx context.Context, s *Stores, by, reason string, dryRun bool, progress func(holds, items int)) (ReturnedPod, error) {
	r := ReturnedPod{Pod: s.Name, Changed: Changed{DryRun: dryRun, Acknowledged: []string{}, Missing: []string{}}}
	if err := killswitch.CheckWho(by, reason); err != nil {
		return r, err
	}
	look := s.Facade.Survey(ctx)
	r.From, r.To = look.Agreed, look.Agreed
	if err := look.MySQLErr; err != nil {
		return r, fmt.Errorf("pod %s: nothing was changed: %w", s.Name, err)
	}
	if stage := look.Agreed.Stage; stage != holdover.StageMySQLOnly && stage != holdover.StageMySQL {
		return r, fmt.Errorf("pod %s is in %s, where Redis is in use: %w", s.Name, stage, ErrHindered)
	}
	if err := s.Redis.Ping(ctx); err != nil {
		return r, fmt.Errorf("pod %s: nothing was changed: a Redis has to answer at the configured address first: %w", s.Name, err)
	}
	if dryRun {
		r.Would = "go from mysql-only to mysql with a Redis that counts as away, rebuild it from MySQL while buyers are served, and verify"
		if look.Agreed.Stage == holdover.StageMySQL {
			r.Would = "rebuild Redis from MySQL if it lacks the agreed fence, and verify"
		}
		return r, nil
	}
	to, err := s.Facade.Return(ctx, by, reason)
	if err != nil {
		return r, err
	}
	r.To = to
	rebuilt, err := s.Facade.Rebuild(ctx, progress)
	switch {
	case err == nil:
		r.Rebuilt = &rebuilt
	case errors.Is(err, holdover.ErrStale): // Redis has the agreed fence: another return was faster, or this one was done
	default:
		return r, fmt.Errorf("the pod is in mysql and MySQL serves buyers; run the same command again to go on: %w", err)
	}
	r.acknowledged(ctx, s, to.Epoch)
	if err := s.drained(ctx); err != nil {
		return r, fmt.Errorf("redis is rebuilt; what was journaled meanwhile is not carried over yet, and the instances go on with it: %w", err)
	}
	if r.Clean, r.Summary, err = s.verify(ctx); err != nil {
		return r, fmt.Errorf("redis is rebuilt, and was not verified: %w", err)
	}
	r.Now = "MySQL decides, and Redis is copied before each answer: the kill switch works again"
	r.Next = fmt.Sprintf("look at `holdover status --pod %s`; the flag leads on from here", s.Name)
	if !r.Clean {
		r.Next = fmt.Sprintf("`holdover verify --pod %s --repair --dry-run` lists what differs", s.Name)
	}
	return r, nil
}

// drained carries the journal over until it is empty.
func (s *Stores) drained(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, returnTime)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		if err := s.Facade.DrainOnce(ctx); err != nil {
			return err
		}
		rows, _, err := s.MySQL.JournalSize(ctx)
		if err != nil || rows == 0 {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%d facts are left after %s: %w", rows, returnTime, ctx.Err())
		}
	}
}
