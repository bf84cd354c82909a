package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdover"
)

// decide is one round of one pod with all its branching. It fills in the
// status and returns what was decided, in a word.
func (d *Driver) decide(ctx context.Context, p *drivenPod, now *PodStatus) string {
	desired := d.cfg.Desired(now.Pod)
	if age := time.Since(desired.At); desired.Known && !desired.At.IsZero() && age > d.cfg.MaxFlagAge {
		desired.Known, desired.Err = false, fmt.Sprintf("it was not evaluated for %s: the flag source hangs", age.Round(time.Second))
	}
	now.Desired = desired
	d.warn(desired, now)

	agreed, err := d.agreed(ctx, p)
	switch {
	case errors.Is(err, holdover.ErrNoFence):
		now.HasFence, now.Agreed, now.Next = false, holdover.Fence{}, holdover.StageUnknown
		return d.initialize(ctx, p, desired, now)
	case err != nil:
		now.Next = now.Agreed.Stage
		now.LastErr = err.Error()
		now.wait(Reason{Code: CodeFence, Text: "the agreed fence can't be read: " + err.Error(), Do: "bring the pod's stores back"})
		return "wait"
	}
	p.saw(agreed)
	now.HasFence, now.Agreed, now.Next = true, agreed, agreed.Stage

	switch {
	case agreed.Latched:
		now.wait(Reason{Code: CodeLatched, Text: fmt.Sprintf("latched in %s at epoch %d by %s: %s; the flag is ignored", agreed.Stage, agreed.Epoch, agreed.By, agreed.Reason),
			Do: "when the cause is gone: holdover restore"})
		return "wait"
	case !desired.Known:
		text := "the desired stage is unknown: " + desired.Err
		if !desired.GoodAt.IsZero() {
			text += fmt.Sprintf("; the last good one was %s (%s) at %s", desired.Stage, desired.Reason, desired.GoodAt.Format(time.RFC3339))
		}
		now.wait(Reason{Code: CodeFlagUnknown, Text: text, Do: "look at the flag source; the pod stays in " + agreed.Stage.String()})
		return "wait"
	case desired.Stage == agreed.Stage:
		return "there"
	}

	next := agreed.Stage.Toward(desired.Stage)
	now.Next = next
	switch {
	case next == holdover.StageMySQLOnly:
		now.wait(Reason{Code: CodeMySQLOnly, Text: "the flag wants mysql-only, after which the kill switch has no Redis to flip to: the flag alone does not enter it",
			Do: fmt.Sprintf("holdover rollout retire --pod %s --confirm %s --reason TEXT", now.Pod, now.Pod)})
		return "wait"
	case agreed.Stage == holdover.StageMySQLOnly:
		now.wait(Reason{Code: CodeMySQLOnly, Text: fmt.Sprintf("the flag wants %s, and Redis knows no hold since it was retired: the flag alone does not leave mysql-only", desired.Stage),
			Do: fmt.Sprintf("holdover rollout return --pod %s --confirm %s --reason TEXT", now.Pod, now.Pod)})
		return "wait"
	}
	if left := d.cfg.Dwell - time.Since(p.since); left > 0 {
		now.wait(Reason{Code: CodeDwell, Text: fmt.Sprintf("stays in %s for at least %s", agreed.Stage, d.cfg.Dwell), Number: left.Seconds()})
		return "wait"
	}
	ready, err := d.ready(ctx, p, next)
	switch {
	case err != nil:
		now.LastErr = err.Error()
		now.wait(Reason{Code: CodeReadiness, Text: fmt.Sprintf("whether the pod is ready for %s can't be said: %v", next, err), Do: "bring the pod's stores back"})
		return "wait"
	case !ready.OK:
		now.Waiting = append(now.Waiting, ready.Reasons...)
		if len(ready.Reasons) == 0 {
			now.wait(Reason{Code: CodeReadiness, Text: fmt.Sprintf("the pod is not ready for %s and did not say why", next)})
		}
		return "wait"
	}
	return d.step(ctx, p, agreed, next, desired, now)
}

// initialize writes the first fence when the flag is known; without both there
// is nothing to act on.
func (d *Driver) initialize(ctx context.Context, p *drivenPod, desired Desired, now *PodStatus) string {
	if !desired.Known {
		now.wait(Reason{Code: CodeNotReady, Text: "the pod has no fence and the desired stage is unknown: " + desired.Err,
			Do: "bring the flag source up; the pod begins in redis as soon as the flag is known"})
		return "wait"
	}
	cctx, cancel := context.WithTimeout(ctx, d.cfg.StepTimeout)
	defer cancel()
	fence, err := p.pod.Init(cctx, d.cfg.By, "first start, flag wants "+desired.Stage.String())
	switch {
	case errors.Is(err, holdover.ErrStale):
		return "overtaken" // another instance did it; the next round sees it
	case err != nil:
		now.LastErr = err.Error()
		now.wait(Reason{Code: CodeNotReady, Text: "the first fence can't be written: " + err.Error(), Do: "both stores must be up and hold no other pod's fence"})
		return "wait"
	}
	p.saw(fence)
	now.HasFence, now.Agreed, now.Next = true, fence, fence.Stage
	p.log.Info("pod initialized", "agreed", fence.String())
	return "initialized"
}

func (d *Driver) step(ctx context.Context, p *drivenPod, from holdover.Fence, to holdover.Stage, desired Desired, now *PodStatus) string {
	cctx, cancel := context.WithTimeout(ctx, d.cfg.StepTimeout)
	defer cancel()
	began := time.Now()
	fence, err := p.pod.Step(cctx, from, to, d.cfg.By, fmt.Sprintf("flag wants %s (variant %s, %s)", desired.Stage, quote(desired.Variant), quote(desired.Reason)))
	switch {
	case errors.Is(err, holdover.ErrStale):
		return "overtaken"
	case err != nil && fence.Epoch <= from.Epoch:
		now.LastErr = err.Error()
		now.wait(Reason{Code: CodeStep, Text: fmt.Sprintf("the step to %s failed: %v", to, err), Do: "it is tried again from what the fences say then"})
		return "wait"
	case err != nil: // agreed, and one store is owed the fence
		now.LastErr = err.Error()
	}
	record := StepRecord{From: from, To: fence, At: time.Now().UTC(), Took: time.Since(began)}
	p.saw(fence)
	now.Agreed, now.Next, now.LastStep = fence, fence.Stage.Toward(desired.Stage), &record
	p.log.Info("stage changed", "from", from.String(), "to", fence.String(), "desired", desired.Stage.String(), "took", record.Took, "owed", now.LastErr)
	if d.cfg.OnStep != nil {
		d.cfg.OnStep(record)
	}
	return "stepped"
}

func (d *Driver) agreed(ctx context.Context, p *drivenPod) (holdover.Fence, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.CallTimeout)
	defer cancel()
	return p.pod.Agreed(ctx)
}

func (d *Driver) ready(ctx context.Context, p *drivenPod, to holdover.Stage) (Readiness, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StepTimeout)
	defer cancel()
	return p.pod.Ready(ctx, to)
}

// warn notes what an operator should know and what stops nothing.
func (d *Driver) warn(desired Desired, now *PodStatus) {
	if desired.Changes >= d.cfg.FlapsAt {
		now.Warnings = append(now.Warnings, Reason{Code: CodeFlaps, Number: float64(desired.Changes),
			Text: fmt.Sprintf("the desired stage changed %d times lately: two flag sources may disagree", desired.Changes),
			Do:   "make the replicas of the flag source agree; until then the dwell keeps the pod from following every change"})
	}
	if desired.Stale {
		now.Warnings = append(now.Warnings, Reason{Code: CodeFlagStale, Text: "the flag source is stale: its last good content is followed", Do: "look at the flag source"})
	}
}

func (s *PodStatus) wait(r Reason) { s.Waiting = append(s.Waiting, r) }

// saw starts the dwell anew when the epoch is a new one.
func (p *drivenPod) saw(f holdover.Fence) {
	if p.since.IsZero() || f.Epoch != p.epoch {
		p.epoch, p.since = f.Epoch, time.Now()
	}
}

// say logs a decision once: again only when another epoch, another goal or
// another kind of reason makes it a new one. Numbers inside the texts change
// all the time and do not.
func (p *drivenPod) say(now PodStatus, decision string) {
	codes := make([]string, 0, len(now.Waiting)+len(now.Warnings))
	texts := make([]string, 0, cap(codes))
	for _, r := range append(append([]Reason{}, now.Waiting...), now.Warnings...) {
		codes = append(codes, r.Code)
		texts = append(texts, r.Text)
	}
	key := fmt.Sprint(decision, now.Agreed.Epoch, now.Agreed.Stage, now.Next, now.Desired.Stage, now.Desired.Known, codes)
	if key == p.said {
		return
	}
	p.said = key
	switch decision {
	case "stepped", "initialized":
		return // logged where it happened, with more
	case "wait":
		p.log.Info("pod waits", "agreed", now.Agreed.String(), "desired", now.Desired.Stage.String(), "next", now.Next.String(), "codes", strings.Join(codes, ","), "why", strings.Join(texts, "; "))
	case "overtaken":
		p.log.Info("another instance was faster: looking again", "agreed", now.Agreed.String(), "desired", now.Desired.Stage.String())
	default:
		p.log.Info("pod is where the flag wants it", "agreed", now.Agreed.String(), "warnings", strings.Join(texts, "; "))
	}
}
