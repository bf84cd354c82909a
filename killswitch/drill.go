package killswitch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdover"
)

// DrillPrefix begins the reason of each fence that a drill writes: a latch with
// it is a rehearsal's, and a kill takes it over.
const DrillPrefix = "drill: "

// MaxDrillReason is the longest reason of a drill, in bytes.
const MaxDrillReason = MaxReason - len(DrillPrefix)

func isDrill(reason string) bool { return strings.HasPrefix(reason, DrillPrefix) }

// IsDrill reports whether a drill wrote the fence.
func IsDrill(f holdover.Fence) bool { return isDrill(f.Reason) }

// LongestDrill is longer than any drill keeps its latch: its waits and attempts are
// bounded by a fraction of it. A drill's latch that is older was left behind by a
// command that was killed, or could not take it off; nobody will but who restores.
const LongestDrill = time.Minute

// drillGoneAfter is how long a silent instance is still listed: one that was alive
// that long before a drill has to acknowledge, or to have said goodbye.
const drillGoneAfter = time.Minute

// Drilled is what a drill did and measured.
type Drilled struct {
	Tripped  Tripped
	Acks     []Ack
	Missing  []holdover.Instance // alive when it began or a minute before, and not at the latch's epoch in time
	KillTook time.Duration       // from the trip's beginning to the last acknowledgement, or how long was waited

	Restored        Restored
	RestoreMissing  []holdover.Instance
	RestoreTook     time.Duration
	Interrupted     bool            // ctx ended before all had acknowledged
	TakenOver       *holdover.Fence // somebody else's, which the drill has left alone
	AcknowledgeFail string          // why it is not known who has acknowledged
}

// Drill trips the pod, waits up to wait for every live instance, and restores at
// once, whatever came in between, ctx's end included: only its own latch, told by
// epoch, name and reason. A kill by somebody else meanwhile stays. Whether a kill
// would lose something now is for the caller to ask first.
//
// The error is nil when the pod is as free as before, or is somebody else's
// (TakenOver); who has not acknowledged is no error here. Errors: those of Trip
// and Restore; ErrRefused: the pod is latched, or nobody is alive.
func (s *Switch) Drill(ctx context.Context, by, reason string, wait time.Duration) (d Drilled, err error) {
	reason = DrillPrefix + reason
	if err := CheckWho(by, reason); err != nil {
		return d, err
	}
	alive, err := s.listed(ctx, s.cfg.InstanceMaxAge+drillGoneAfter)
	switch {
	case err != nil:
		return d, fmt.Errorf("pod %s: nothing was changed: who is alive can't be read: %w", s.cfg.Pod, err)
	case !slices.ContainsFunc(alive, func(i holdover.Instance) bool { return i.Age <= s.cfg.InstanceMaxAge }):
		return d, fmt.Errorf("pod %s: %w: no instance is alive, whose acknowledgement a drill could wait for", s.cfg.Pod, ErrRefused)
	}
	// From here on ctx's end cuts nothing short but the waiting.
	firm := context.WithoutCancel(ctx)
	began := time.Now()
	d.Tripped, err = s.trip(firm, by, reason)
	latch := d.Tripped.To
	switch {
	case err != nil:
		// What may be left of it is taken off too.
		latch, undone := s.leftover(firm, by, reason, err)
		if latch.Epoch == 0 {
			return d, undone
		}
		d.Tripped.To = latch
		if d.Restored, undone = s.restoreOwn(firm, latch); undone == nil {
			return d, fmt.Errorf("%w; what it left behind was taken off again", err)
		}
		return d, errors.Join(err, undone)
	case d.Tripped.Already:
		return d, fmt.Errorf("pod %s: %w: %s", s.cfg.Pod, ErrRefused, d.Tripped.Message)
	}
	var failed error
	d.Acks, d.Missing, failed = s.drillAcks(ctx, alive, latch.Epoch, wait)
	d.KillTook = time.Since(began)
	if failed != nil {
		d.AcknowledgeFail = failed.Error()
	}

	restoring := time.Now()
	d.Restored, err = s.restoreOwn(firm, latch)
	if stale := (*holdover.StaleError)(nil); errors.As(err, &stale) {
		d.TakenOver = &stale.Fence
		return d, nil
	}
	if err == nil {
		_, d.RestoreMissing, failed = s.drillAcks(ctx, alive, d.Restored.To.Epoch, wait)
		d.RestoreTook = time.Since(restoring)
		if failed != nil && d.AcknowledgeFail == "" {
			d.AcknowledgeFail = "of the restore: " + failed.Error()
		}
		if now, err := s.redisFence(firm); err == nil && now.Epoch > d.Restored.To.Epoch && now.Latched {
			d.TakenOver = &now // a kill, while the restore was waited for
		}
	}
	d.Interrupted = ctx.Err() != nil
	return d, err
}

func (s *Switch) listed(ctx context.Context, maxAge time.Duration) ([]holdover.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RedisTimeout)
	defer cancel()
	return s.cfg.Redis.Instances(ctx, maxAge)
}

// drillAcks waits as a kill does, and counts those too that fell silent since the
// drill began: a kill need not wait for them, but a rehearsal is about them.
func (s *Switch) drillAcks(ctx context.Context, alive []holdover.Instance, epoch holdover.Epoch, wait time.Duration) (acks []Ack, missing []holdover.Instance, err error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	acks, missing, _, err = s.WaitAcknowledged(waiting, epoch)
	if len(missing) > 0 {
		err = nil // they say it
	}
	known, lerr := s.listed(context.WithoutCancel(ctx), s.cfg.InstanceMaxAge+drillGoneAfter)
	if lerr != nil {
		return acks, missing, errors.Join(err, fmt.Errorf("pod %s: who fell silent can't be read: %w", s.cfg.Pod, lerr))
	}
	for _, i := range known {
		same := func(j holdover.Instance) bool { return j.ID == i.ID }
		if i.Epoch < epoch && slices.ContainsFunc(alive, same) && !slices.ContainsFunc(missing, same) {
			missing = append(missing, i)
		}
	}
	return acks, missing, err
}

// drillRestoreTime bounds all attempts of a drill to take its latch off, and
// drillRestorePause is between two.
const drillRestoreTime, drillRestorePause = 10 * time.Second, 200 * time.Millisecond

// restoreOwn takes off this latch and no other: a *holdover.StaleError has the
// fence that is there instead. A store that does not answer is asked again.
func (s *Switch) restoreOwn(ctx context.Context, latch holdover.Fence) (r Restored, err error) {
	ctx, cancel := context.WithTimeout(ctx, drillRestoreTime)
	defer cancel()
	for {
		r, err = s.restore(ctx, latch.By, latch.Reason, &latch)
		if err == nil || !holdover.NoAnswer(err) || !pause(ctx, drillRestorePause) {
			break
		}
	}
	if err != nil && !errors.Is(err, holdover.ErrStale) {
		err = fmt.Errorf("pod %s STAYS LATCHED in %s by this drill: `holdover restore --pod %s --reason TEXT` takes it off: %w", s.cfg.Pod, latch.Stage, s.cfg.Pod, err)
	}
	return r, err
}

// leftover finds what a trip that failed has left behind: its latch, finished if
// it got half way, or nothing (epoch zero), with the error that the drill ends with.
func (s *Switch) leftover(ctx context.Context, by, reason string, failed error) (holdover.Fence, error) {
	if !holdover.NoAnswer(failed) && !errors.Is(failed, holdover.ErrStale) {
		return holdover.Fence{}, failed // refused before it wrote
	}
	ctx, cancel := context.WithTimeout(ctx, drillRestoreTime)
	defer cancel()
	ours := func(f holdover.Fence) bool { return f.Latched && f.By == by && f.Reason == reason }
	for {
		r, rerr := s.redisFence(ctx)
		m, merr := ask(s, ctx, s.cfg.MySQL.Fence)
		switch {
		case rerr == nil && ours(r) && (merr != nil || m.Epoch <= r.Epoch):
			return r, nil
		case rerr == nil && merr == nil && m.Epoch > r.Epoch && ours(m): // half way: finished, so that it can be taken off
			if t, err := s.trip(ctx, by, reason); err == nil && !t.Already {
				return t.To, nil
			}
		case rerr == nil && merr == nil:
			return holdover.Fence{}, failed
		}
		if !pause(ctx, drillRestorePause) {
			return holdover.Fence{}, fmt.Errorf("pod %s: whether the drill's latch is on is NOT KNOWN: look at `holdover status --pod %s`; if it is, `holdover kill --pod %s --reason TEXT` finishes a half one, and `holdover restore --pod %s --reason TEXT` takes it off: %w",
				s.cfg.Pod, s.cfg.Pod, s.cfg.Pod, s.cfg.Pod, failed)
		}
	}
}

// pause reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
