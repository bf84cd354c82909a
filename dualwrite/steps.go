package dualwrite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
)

// Init writes the pod's first fence, stage redis at epoch 1, when both stores
// answer and neither has one.
func (f *Facade) Init(ctx context.Context, by, reason string) (holdover.Fence, error) {
	redis, mysql := f.readFences(ctx, nil)
	for _, read := range []struct {
		store holdover.Store
		fenceRead
	}{{holdover.StoreRedis, redis}, {holdover.StoreMySQL, mysql}} {
		if !read.known() {
			return holdover.Fence{}, fmt.Errorf("pod %s: no first fence is written while %s does not answer: %w", f.cfg.Pod, read.store, read.err)
		}
		if read.err == nil {
			return read.fence, f.Refresh(ctx)
		}
	}
	return f.write(ctx, 0, holdover.Fence{Pod: f.cfg.Pod, Epoch: 1, Stage: holdover.StageRedis, By: by, Reason: reason})
}

// Step moves the pod from the agreed fence to a neighbouring stage (rule 3). It
// does not ask readiness. A *StaleError: somebody else moved first.
func (f *Facade) Step(ctx context.Context, from holdover.Fence, to holdover.Stage, by, reason string) (holdover.Fence, error) {
	switch {
	case from.Latched:
		return from, fmt.Errorf("pod %s: the kill switch is latched (by %s: %s): restore it first", f.cfg.Pod, from.By, from.Reason)
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

// Reason is one thing that speaks against a step, with its number and what to
// do about it.
type Reason struct {
	Code   string // stable, for alerts
	Text   string
	Number float64
	Do     string
}

// Readiness says whether a step may be taken now.
type Readiness struct {
	To      holdover.Stage
	Reasons []Reason // empty: yes
}

// OK reports whether nothing speaks against the step.
func (r Readiness) OK() bool { return len(r.Reasons) == 0 }

func (r *Readiness) no(code string, number float64, do, format string, args ...any) {
	r.Reasons = append(r.Reasons, Reason{Code: code, Number: number, Do: do, Text: fmt.Sprintf(format, args...)})
}

// needsVerification: every step between shadow and mysql, either way, gives
// power to a store that must know every live hold. Between redis and shadow
// only Redis decides.
func needsVerification(from, to holdover.Stage) bool {
	return to == holdover.StageJoint || to == holdover.StageMySQL || from == holdover.StageJoint
}

// Ready answers whether the pod may go to the neighbouring stage now (rule 18).
// Between shadow and mysql it ends with a complete verification, and looks at
// everything once more after it: it may take seconds.
func (f *Facade) Ready(ctx context.Context, to holdover.Stage) (Readiness, error) {
	r, err := f.Hindrances(ctx, to)
	v := f.view.Load()
	if err != nil || !r.OK() || v == nil || !needsVerification(v.Stage, to) {
		return r, err
	}
	if f.cfg.Verify == nil {
		r.no("no-verification", 0, "configure Verify", "nothing verifies the two stores")
		return r, nil
	}
	clean, why, err := f.cfg.Verify(ctx)
	if err != nil {
		return r, fmt.Errorf("pod %s: verification before %s: %w", f.cfg.Pod, to, err)
	}
	if !clean {
		r.no("not-verified", 1, "see `holdover status` and the report; holds older than dual writing end by their time to live", "the verification found differences: %s", why)
		return r, nil
	}
	return f.Hindrances(ctx, to)
}

// Hindrances lists what speaks against a step before any verification is made:
// cheap enough for a status. It works with what this instance has agreed on.
func (f *Facade) Hindrances(ctx context.Context, to holdover.Stage) (Readiness, error) {
	r := Readiness{To: to}
	v := f.view.Load()
	if v == nil {
		r.no("no-agreement", 0, "start the pod's stores", "this instance has read no fence yet")
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.CallTimeout)
	defer cancel()
	redis, mysql := f.readFences(ctx, nil)
	switch {
	case errors.Is(redis.err, holdover.ErrNoFence):
		r.no("redis-lost-its-data", 0, "rebuild Redis from MySQL", "redis has no fence: it lost its data")
	case redis.err != nil:
		r.no("redis-away", 0, "bring the pod's Redis back", "redis does not answer: %v", redis.err)
	case mysql.err != nil:
		r.no("mysql-away", 0, "bring the pod's MySQL back, or run `holdover migrate up`", "mysql does not answer: %v", mysql.err)
	case redis.fence.Epoch != mysql.fence.Epoch:
		r.no("fences-differ", float64(redis.fence.Epoch), "wait: every instance raises the store that is behind; a Redis that stays behind came back with older data, and has to be rebuilt", "redis is at epoch %d, mysql at %d", redis.fence.Epoch, mysql.fence.Epoch)
	case redis.fence.Epoch != v.Epoch:
		r.no("stale-instance", float64(v.Epoch), "wait: this instance is reading the new agreement", "this instance works with epoch %d, the fences say %d", v.Epoch, redis.fence.Epoch)
	}
	if v.Latched {
		r.no("latched", 0, "holdover restore --pod "+f.cfg.Pod, "the kill switch is latched by %s: %s", v.By, v.Reason)
	}
	if !r.OK() {
		return r, nil
	}
	if to == holdover.StageMySQLOnly || v.Stage == holdover.StageMySQLOnly {
		r.no("not-built", 0, "stay in mysql: retiring Redis comes with its own checks in a later version", "entering and leaving mysql-only is not offered yet")
		return r, nil
	}
	instances, err := f.redis.Instances(ctx, f.cfg.InstanceMaxAge)
	if err != nil {
		return r, err
	}
	for _, i := range instances {
		if i.Epoch != v.Epoch {
			r.no("not-acknowledged", float64(i.Epoch), "wait, or stop that instance", "instance %s (%s) works with epoch %d, the pod is at %d", i.Name, i.ID, i.Epoch, v.Epoch)
		}
		if i.Busy > 0 && v.Stage.Dual() {
			r.no("mirror-lag", float64(i.Busy), "wait; if it stays, see that instance's lanes in `holdover status`", "instance %s has %d pieces of late mirror work, unmirrored tokens or debts", i.Name, i.Busy)
		}
	}
	rows, oldest, err := f.mysql.JournalSize(ctx)
	if err != nil {
		return r, err
	}
	if rows > 0 {
		r.no("unmirrored", float64(rows), "wait for the drain", "%d facts are not in redis yet, the oldest for %s", rows, oldest.Round(time.Millisecond))
	}
	return r, nil
}
