package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdover"
	"holdover/compare/report"
	"holdover/dualwrite"
	"holdover/internal/httpapi"
	"holdover/killswitch"
	"holdover/rollout"
)

// drivenPod is a pod as the driver of its stage sees it.
type drivenPod struct{ *Pod }

func (p drivenPod) Name() string { return p.Stores.Name }

// Agreed reads both fences and gives the larger; a silent store is not "none".
func (p drivenPod) Agreed(ctx context.Context) (holdover.Fence, error) {
	redis, redisErr, mysql, mysqlErr := p.Facade.Fences(ctx)
	switch {
	case redisErr == nil && (mysqlErr != nil || redis.Epoch >= mysql.Epoch):
		return redis, nil
	case mysqlErr == nil:
		return mysql, nil
	case errors.Is(redisErr, holdover.ErrNoFence) && errors.Is(mysqlErr, holdover.ErrNoFence):
		return holdover.Fence{}, fmt.Errorf("pod %s: %w in either store", p.Stores.Name, holdover.ErrNoFence)
	case errors.Is(redisErr, holdover.ErrNoFence), errors.Is(redisErr, dualwrite.ErrRedisRetired):
		return holdover.Fence{}, mysqlErr
	default:
		return holdover.Fence{}, redisErr
	}
}

func (p drivenPod) Init(ctx context.Context, by, reason string) (holdover.Fence, error) {
	return p.Facade.Init(ctx, by, reason)
}

// anotherDrives is the code of a pod that leaves the steps to another instance.
const anotherDrives = "another-drives"

// Ready asks the facade, in one instance only: a verification by each would be
// load for nothing. The stores would let only one step be taken all the same.
func (p drivenPod) Ready(ctx context.Context, to holdover.Stage) (rollout.Readiness, error) {
	instances, err := p.Redis.Instances(ctx, p.cfg.InstanceMaxAge())
	if err != nil {
		return rollout.Readiness{}, err
	}
	for _, i := range instances {
		if i.ID < p.instanceID {
			return rollout.Readiness{Reasons: []rollout.Reason{{Code: anotherDrives, Text: "instance " + i.Name + " drives this pod's steps, and knows what it waits for"}}}, nil
		}
	}
	fence, agreedErr := p.Facade.Agreed()
	if agreedErr == nil {
		// Before readiness: that verifies, for nothing while nobody has signed.
		why, err := p.unsigned(ctx, fence, to)
		switch {
		case err != nil:
			return rollout.Readiness{}, fmt.Errorf("read who has signed: %w", err)
		case why != nil:
			return rollout.Readiness{Reasons: driverReasons([]dualwrite.Reason{*why})}, nil
		}
	}
	r, err := p.Facade.Ready(ctx, to)
	if err == nil && r.OK() && agreedErr == nil && fence.Stage == holdover.StageRedis && to == holdover.StageShadow {
		// Last, so that it is done once and not in every round that waits: a cold
		// pool would lag behind from the first buyer on.
		if err := p.MySQL.WarmUp(ctx); err != nil {
			return rollout.Readiness{}, fmt.Errorf("warm the pool before shadow: %w", err)
		}
	}
	return rollout.Readiness{OK: r.OK(), Reasons: driverReasons(r.Reasons)}, err
}

func (p drivenPod) Step(ctx context.Context, from holdover.Fence, to holdover.Stage, by, reason string) (holdover.Fence, error) {
	return p.Facade.Step(ctx, from, to, by, reason)
}

func driverReasons(reasons []dualwrite.Reason) []rollout.Reason {
	var out []rollout.Reason
	for _, r := range reasons {
		out = append(out, rollout.Reason(r))
	}
	return out
}

// operator answers the API's operator routes for one pod.
type operator struct {
	app *App
	pod *Pod
}

// Status is the stores' word, and what only this process knows: its lanes, and
// what its driver waits for.
func (o operator) Status(ctx context.Context) (httpapi.PodStatus, error) {
	s := status(ctx, o.pod.Stores, o.pod.Facade, o.app.desired(o.pod.Name))
	stats := o.pod.Facade.Stats()
	s.Lanes, s.Debts = httpapi.LaneStatus{Depth: int64(stats.LaneJobs), Late: int64(stats.LaneLate), Unmirrored: int64(stats.Unmirrored), Shed: stats.LaneShed, Failed: stats.LaneFailed}, int64(stats.Debts)
	s.Warnings = append(s.Warnings, o.pod.notPlanted()...)
	driver, ok := o.app.Driver.PodStatus(o.pod.Name)
	if !ok || s.Agreed == nil || len(driver.Waiting) == 0 || driver.Agreed.Epoch != s.Agreed.Epoch {
		return s, nil
	}
	for _, why := range driver.Waiting {
		s.Waiting = append(s.Waiting, httpapi.Reason{Code: why.Code, Text: why.Text, Number: int64(why.Number), Do: why.Do})
	}
	switch why := driver.Waiting[0]; why.Code {
	case rollout.CodeLatched, rollout.CodeMySQLOnly: // said already
	case anotherDrives:
		s.Next += " " + strings.ToUpper(why.Text[:1]) + why.Text[1:] + "."
	default:
		s.Next = fmt.Sprintf("Is in %s. %s", s.Agreed.Stage, waitingFor(why.Text, why.Do))
		if driver.Next != s.Agreed.Stage {
			s.Next = fmt.Sprintf("Goes from %s to %s. %s", s.Agreed.Stage, driver.Next, waitingFor(why.Text, why.Do))
		}
	}
	return s, nil
}

func (o operator) Kill(ctx context.Context, by, reason string, dryRun bool) (any, error) {
	var before *dualwrite.Assessment
	if a, ok := o.pod.Facade.Readiness(); ok { // the background has looked a moment ago
		before = &a
	}
	k, err := kill(ctx, o.pod.Stores, before, by, reason, dryRun)
	return k, refused(err, "look at the pod's status")
}

func (o operator) Restore(ctx context.Context, by, reason string, dryRun bool) (any, error) {
	r, err := Restore(ctx, o.pod.Stores, by, reason, dryRun)
	return r, refused(err, "kill again to finish it, then restore")
}

// refused gives the switch's refusal the type that the API answers 409 to.
func refused(err error, do string) error {
	if !errors.Is(err, killswitch.ErrRefused) {
		return err
	}
	return &httpapi.RefusedError{Detail: err.Error(), Do: do}
}

func (o operator) Adjust(ctx context.Context, a holdover.Adjustment, dryRun bool) (any, error) {
	return adjust(ctx, o.pod.Stores, o.pod.Facade, a, dryRun)
}

func (o operator) Report(ctx context.Context, q httpapi.ReportRequest) (httpapi.ReportPage, error) {
	r, err := o.report(ctx, q.Since, q.Until)
	if err != nil {
		return httpapi.ReportPage{}, err
	}
	var page bytes.Buffer
	err = WriteReport(&page, r, q.Format)
	return httpapi.ReportPage{ContentType: reportTypes[q.Format], Body: page.Bytes()}, err
}

var reportTypes = map[string]string{
	FormatJSON: "application/json", FormatHTML: "text/html; charset=utf-8", FormatMarkdown: "text/markdown; charset=utf-8", FormatText: "text/plain; charset=utf-8",
}

// longestServed bounds the period of a report that serve makes.
const longestServed = 31 * 24 * time.Hour

func (o operator) report(ctx context.Context, since, until string) (report.Report, error) {
	from, to, err := ParsePeriod(since, until, time.Now())
	if err != nil {
		return report.Report{}, err
	}
	if to.Sub(from) > longestServed {
		return report.Report{}, &holdover.InvalidError{Field: "since", Value: since, Problem: "is more than 31 days before the end: use `holdover report`, which does not take this process's memory"}
	}
	if !o.app.reporting.TryLock() { // buyers are served from the same memory
		return report.Report{}, fmt.Errorf("pod %s: another report is being made: %w", o.pod.Name, holdover.ErrTryAgain)
	}
	defer o.app.reporting.Unlock()
	return Report(ctx, o.pod.cfg, []*Stores{o.pod.Stores}, ReportOptions{Since: from, Until: to, Live: until == ""})
}

func (o operator) Sign(ctx context.Context, q httpapi.SignRequest) (any, error) {
	r, err := o.report(ctx, q.Since, q.Until)
	if err != nil {
		return nil, err
	}
	d, err := Sign(ctx, o.pod.Stores, r, SignOptions{As: q.As, Decision: q.Decision, Note: q.Note, Digest: q.Digest, Override: q.Override})
	if errors.Is(err, ErrNotSigned) {
		return nil, &httpapi.RefusedError{Detail: err.Error(), Do: "read the report again"}
	}
	return d, err
}

func (o operator) Verify(ctx context.Context, r httpapi.VerifyRequest) (any, error) {
	if !r.Repair {
		v, err := o.pod.Verify(ctx)
		return v, unverifiable(err)
	}
	done, err := Repair(ctx, o.pod.cfg, o.pod.Stores, RepairOptions{By: r.By, Reason: r.Reason, DryRun: r.DryRun, Counters: r.Counters})
	switch {
	case done.After != nil:
		o.pod.verifiedNow(*done.After)
	case done.Found != nil:
		o.pod.verifiedNow(*done.Found)
	}
	if err != nil && done.changed() {
		return done, nil // a problem would not say what was done; done.Error says what went wrong
	}
	return done, unverifiable(err)
}

// unverifiable gives the API a refusal for a stage without two stores.
func unverifiable(err error) error {
	if errors.Is(err, ErrNothingToVerify) {
		return &httpapi.RefusedError{Detail: err.Error(), Do: "verify MySQL's own sums"}
	}
	return err
}
