package dualwrite

import (
	"context"
	"fmt"
	"time"

	"holdover"
)

// Init writes the pod's first fence, stage redis at epoch 1, when both stores
// answer and neither has one.
func (f *Facade) Init(ctx context.Context, by, reason string) (holdover.Fence, error) {
	redis, mysql := f.readFences(ctx, nil)
	for _, read := range []fenceRead{redis, mysql} {
		if read.err == nil {
			return read.fence, f.Refresh(ctx)
		}
	}
	switch {
	case !redis.known():
		return holdover.Fence{}, fmt.Errorf("pod %s: no first fence is written while redis does not answer: %w", f.cfg.Pod, redis.err)
	case !mysql.known():
		return holdover.Fence{}, fmt.Errorf("pod %s: no first fence is written while mysql does not answer: %w", f.cfg.Pod, mysql.err)
	}
	return f.write(ctx, 0, holdover.Fence{Pod: f.cfg.Pod, Epoch: 1, Stage: holdover.StageRedis, By: by, Reason: reason})
}

// Step moves the pod from the agreed fence to a neighbouring stage (rule 3), but
// not from mysql-only: see Return. It does not ask readiness. A *StaleError: somebody else moved first.
func (f *Facade) Step(ctx context.Context, from holdover.Fence, to holdover.Stage, by, reason string) (holdover.Fence, error) {
	switch {
	case from.Latched:
		return from, fmt.Errorf("pod %s: the kill switch is latched (by %s: %s): restore it first", f.cfg.Pod, from.By, from.Reason)
	case from.Stage == holdover.StageMySQLOnly:
		return from, &holdover.InvalidError{Field: "stage", Value: to.String(), Problem: "is not a step away from mysql-only: redis knows no hold, use Return and Rebuild"}
	case from.Stage == to || from.Stage.Toward(to) != to:
		return from, &holdover.InvalidError{Field: "stage", Value: to.String(), Problem: "is not next to " + from.Stage.String() + ": stages are passed one at a time"}
	}
	return f.write(ctx, from.Epoch, holdover.Fence{Pod: f.cfg.Pod, Epoch: from.Epoch + 1, Stage: to, By: by, Reason: reason})
}

// write changes the agreement: Redis first by compare-and-set, then MySQL, only
// upwards; it gives up if Redis moved.
func (f *Facade) write(ctx context.Context, from holdover.Epoch, fence holdover.Fence) (holdover.Fence, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.CallTimeout)
	defer cancel()
	fence.At = time.Now() // each store writes its own clock's; this is for the view until then
	if err := f.redis.CompareAndSetFence(ctx, from, fence); err != nil {
		return holdover.Fence{}, err
	}
	// From here on it is agreed: whoever sees Redis newer raises MySQL before use.
	_, err := f.mysql.RaiseFence(ctx, fence)
	if refreshErr := f.Refresh(ctx); err == nil {
		err = refreshErr
	}
	if err != nil {
		return fence, fmt.Errorf("pod %s is agreed on %s, and mysql is owed that fence: every instance raises it before it uses mysql: %w", f.cfg.Pod, fence.Stage, err)
	}
	return fence, nil
}
