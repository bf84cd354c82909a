package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
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
	case errors.Is(redisErr, holdover.ErrNoFence):
		return holdover.Fence{}, mysqlErr
	default:
		return holdover.Fence{}, redisErr
	}
}

func (p drivenPod) Init(ctx context.Context, by, reason string) (holdover.Fence, error) {
	return p.Facade.Init(ctx, by, reason)
}

// Ready asks the facade, in one instance only: a verification by each would be
// load for nothing. The stores would let only one step be taken all the same.
func (p drivenPod) Ready(ctx context.Context, to holdover.Stage) (rollout.Readiness, error) {
	instances, err := p.Redis.Instances(ctx, p.cfg.instanceMaxAge())
	if err != nil {
		return rollout.Readiness{}, err
	}
	for _, i := range instances {
		if i.ID < p.instanceID {
			return rollout.Readiness{Reasons: []rollout.Reason{{Code: "another-drives", Text: "instance " + i.Name + " drives this pod's steps, and knows what it waits for"}}}, nil
		}
	}
	r, err := p.Facade.Ready(ctx, to)
	return rollout.Readiness{OK: r.OK(), Reasons: driverReasons(r.Reasons)}, err
}

func (p drivenPod) Step(ctx context.Context, from holdover.Fence, to holdover.Stage, by, reason string) (holdover.Fence, error) {
	return p.Facade.Step(ctx, from, to, by, reason)
}

func driverReasons(reasons []dualwrite.Reason) []rollout.Reason {
	var out []rollout.Reason
	for _, r := range reasons {
		out = append(out, rollout.Reason{Code: r.Code, Text: r.Text, Number: r.Number, Do: r.Do})
	}
	return out
}

// operator answers the API's operator routes for one pod.
type operator struct {
	app *App
	pod *Pod
}

func (o operator) Status(ctx context.Context) (httpapi.PodStatus, error) {
	driver, _ := o.app.Driver.PodStatus(o.pod.Name)
	s, err := Status(ctx, o.pod.Stores, o.pod.Facade, o.app.desired(o.pod.Name))
	if err != nil {
		return s, err
	}
	stats := o.pod.Facade.Stats()
	s.Lanes.Depth, s.Debts = int64(stats.LaneJobs), int64(stats.Debts)
	if len(driver.Waiting) > 0 {
		s.Readiness.Forward = httpapi.Verdict{Reasons: apiReasons(driver.Waiting)}
		s.Next = waitingFor(driver.Waiting[0].Text, driver.Waiting[0].Do)
	}
	return s, nil
}

func (o operator) Kill(ctx context.Context, by, reason string, dryRun bool) (any, error) {
	return Kill(ctx, o.pod.Stores, by, reason, dryRun)
}

func (o operator) Restore(ctx context.Context, by, reason string, dryRun bool) (any, error) {
	return Restore(ctx, o.pod.Stores, by, reason, dryRun)
}

func (o operator) Report(context.Context) (any, error) { return o.pod.Comparator.Report(), nil }

func (o operator) Verify(ctx context.Context) (any, error) {
	return o.pod.Verify(ctx)
}

// Status reads where a pod is from its two stores, whatever answers, and says
// what happens next. It changes nothing.
func Status(ctx context.Context, s *Stores, facade *dualwrite.Facade, desired rollout.Desired) (httpapi.PodStatus, error) {
	out := httpapi.PodStatus{Pod: s.Name}
	redis, redisErr, mysql, mysqlErr := facade.Fences(ctx)
	if redisErr == nil {
		out.Redis = &redis
		out.Agreed = &redis
	} else {
		out.RedisProblem = redisErr.Error()
	}
	if mysqlErr == nil {
		out.MySQL = &mysql
		if out.Agreed == nil || mysql.Epoch > redis.Epoch {
			out.Agreed = &mysql
		}
	} else {
		out.MySQLProblem = mysqlErr.Error()
	}
	out.Desired = httpapi.Desired{Stage: desired.Stage.String(), Reason: desired.Reason}
	if !desired.Known {
		out.Desired.Reason = "the flag says nothing: " + desired.Err
	}
	if redisErr == nil {
		instances, err := s.Redis.Instances(ctx, time.Minute)
		if err != nil {
			out.RedisProblem = err.Error()
		}
		for _, i := range instances {
			out.Instances = append(out.Instances, httpapi.InstanceStatus{Name: i.Name, ID: i.ID, Epoch: i.Epoch, AgeMS: i.Age.Milliseconds(), Busy: i.Busy})
		}
	}
	if mysqlErr == nil {
		rows, oldest, err := s.MySQL.JournalSize(ctx)
		if err != nil {
			out.MySQLProblem = err.Error()
		}
		out.Journal = httpapi.JournalStatus{Rows: rows, OldestMS: oldest.Milliseconds()}
	}
	if out.Agreed == nil {
		out.Next = "No fence in either store that answers: start an instance with both stores up; it writes the first one when the flag says a stage."
		no := httpapi.Verdict{Reasons: []httpapi.Reason{{Code: "no-agreement", Text: "no store shows a fence", Do: "bring the stores up"}}}
		out.Readiness = httpapi.Readiness{Forward: no, Back: no, Kill: no}
		return out, nil
	}
	stage := out.Agreed.Stage
	out.Readiness.Forward = ask(ctx, facade, stage, stage.Toward(holdover.StageMySQLOnly))
	out.Readiness.Back = ask(ctx, facade, stage, stage.Toward(holdover.StageRedis))
	out.Readiness.Kill = killVerdict(out)
	out.Next = next(out, desired)
	return out, nil
}

func ask(ctx context.Context, facade *dualwrite.Facade, from, to holdover.Stage) httpapi.Verdict {
	if from == to {
		return httpapi.Verdict{Reasons: []httpapi.Reason{{Code: "at-the-end", Text: "there is no stage beyond " + from.String()}}}
	}
	r, err := facade.Hindrances(ctx, to)
	if err != nil {
		return httpapi.Verdict{Reasons: []httpapi.Reason{{Code: "unreadable", Text: err.Error(), Do: "ask again"}}}
	}
	return httpapi.Verdict{OK: r.OK(), Reasons: apiReasons(driverReasons(r.Reasons))}
}

func apiReasons(reasons []rollout.Reason) []httpapi.Reason {
	out := []httpapi.Reason{}
	for _, r := range reasons {
		out = append(out, httpapi.Reason{Code: r.Code, Text: r.Text, Number: int64(r.Number), Do: r.Do})
	}
	return out
}

// killVerdict: the kill needs Redis and a stage that has one. What it could not
// carry when MySQL is silent is said beforehand.
func killVerdict(s httpapi.PodStatus) httpapi.Verdict {
	switch {
	case s.RedisProblem != "":
		return httpapi.Verdict{Reasons: []httpapi.Reason{{Code: "redis-away", Text: "can't flip to a Redis that does not answer: " + s.RedisProblem, Do: "bring Redis back; buyers are served by MySQL meanwhile if the stage is mysql"}}}
	case s.Agreed.Stage == holdover.StageMySQLOnly:
		return httpapi.Verdict{Reasons: []httpapi.Reason{{Code: "mysql-only", Text: "Redis is retired and does not know the holds", Do: "rebuild Redis first"}}}
	case s.MySQLProblem != "" && s.Agreed.Stage == holdover.StageMySQL:
		return httpapi.Verdict{OK: true, Reasons: []httpapi.Reason{{Code: "mysql-away", Text: "allowed, but MySQL's journal of unmirrored holds can't be carried while it does not answer: " + s.MySQLProblem, Do: "kill all the same if buyers are failing; the drain carries them when MySQL is back"}}}
	default:
		return httpapi.Verdict{OK: true}
	}
}

// next is one sentence: what happens next, and what to do.
func next(s httpapi.PodStatus, desired rollout.Desired) string {
	stage := s.Agreed.Stage
	switch {
	case s.Agreed.Latched:
		return fmt.Sprintf("Latched in %s by %s (%s): nothing moves until `holdover restore --pod %s`.", stage, s.Agreed.By, s.Agreed.Reason, s.Pod)
	case !desired.Known:
		return fmt.Sprintf("Stays in %s: the flag says nothing.", stage)
	case desired.Stage == stage:
		return fmt.Sprintf("Stays in %s, as the flag says.", stage)
	}
	to, verdict := stage.Toward(desired.Stage), s.Readiness.Forward
	if desired.Stage < stage {
		verdict = s.Readiness.Back
	}
	if verdict.OK {
		return fmt.Sprintf("Goes from %s to %s when its dwell time is over and a verification is clean; the flag wants %s.", stage, to, desired.Stage)
	}
	return fmt.Sprintf("Goes from %s to %s; %s", stage, to, waitingFor(verdict.Reasons[0].Text, verdict.Reasons[0].Do))
}

func waitingFor(text, do string) string {
	if do == "" {
		return "Waits: " + text + "."
	}
	return "Waits: " + text + "; " + do + "."
}

// Killed is what a kill did, or with DryRun would do.
type Killed struct {
	DryRun bool   `json:"dry_run,omitempty"`
	Would  string `json:"would,omitempty"`
	killswitch.Tripped
	Acknowledged []string      `json:"acknowledged"`
	Missing      []string      `json:"missing"`
	AckTook      time.Duration `json:"ack_took_ns"`
}

// ackWait bounds how long a kill or restore waits for the instances. The flip
// has happened by then: this only tells whether everybody has seen it.
const ackWait = 2 * time.Second

// Kill trips the pod's switch and waits until every live instance has seen it.
func Kill(ctx context.Context, s *Stores, by, reason string, dryRun bool) (Killed, error) {
	if err := killswitch.CheckWho(by, reason); err != nil {
		return Killed{}, err
	}
	if dryRun {
		fence, err := s.Redis.Fence(ctx)
		if err != nil {
			return Killed{DryRun: true}, fmt.Errorf("pod %s: a kill now would fail: %w", s.Name, err)
		}
		return Killed{DryRun: true, Would: wouldKill(fence), Tripped: killswitch.Tripped{Pod: s.Name, From: fence, To: fence}}, nil
	}
	tripped, err := s.Switch.Trip(ctx, by, reason)
	k := Killed{Tripped: tripped}
	if err != nil {
		return k, err
	}
	k.Acknowledged, k.Missing, k.AckTook = acknowledged(ctx, s, tripped.To.Epoch)
	return k, nil
}

func wouldKill(f holdover.Fence) string {
	switch {
	case f.Latched:
		return fmt.Sprintf("nothing: it is latched in %s already, by %s: %s", f.Stage, f.By, f.Reason)
	case f.Stage == holdover.StageMySQLOnly:
		return "be refused: in mysql-only Redis does not know the holds"
	case f.Stage == holdover.StageRedis || f.Stage == holdover.StageShadow:
		return fmt.Sprintf("latch the pod in %s, where Redis decides already", f.Stage)
	default:
		return fmt.Sprintf("flip the pod from %s to shadow, where Redis decides, carry MySQL's journal over, and latch it; dual writes go on", f.Stage)
	}
}

// RestoredPod is what a restore did, or with DryRun would do.
type RestoredPod struct {
	DryRun bool   `json:"dry_run,omitempty"`
	Would  string `json:"would,omitempty"`
	killswitch.Restored
	Acknowledged []string      `json:"acknowledged"`
	Missing      []string      `json:"missing"`
	AckTook      time.Duration `json:"ack_took_ns"`
}

// Restore takes the latch off: the flag is followed again.
func Restore(ctx context.Context, s *Stores, by, reason string, dryRun bool) (RestoredPod, error) {
	if err := killswitch.CheckWho(by, reason); err != nil {
		return RestoredPod{}, err
	}
	if dryRun {
		fence, err := s.Redis.Fence(ctx)
		if err != nil {
			return RestoredPod{DryRun: true}, fmt.Errorf("pod %s: a restore now would fail: %w", s.Name, err)
		}
		would := "nothing: it is not latched"
		if fence.Latched {
			would = fmt.Sprintf("take the latch off in %s; the flag is followed again from there", fence.Stage)
		}
		return RestoredPod{DryRun: true, Would: would, Restored: killswitch.Restored{Pod: s.Name, From: fence, To: fence}}, nil
	}
	restored, err := s.Switch.Restore(ctx, by, reason)
	r := RestoredPod{Restored: restored}
	if err != nil {
		return r, err
	}
	r.Acknowledged, r.Missing, r.AckTook = acknowledged(ctx, s, restored.To.Epoch)
	return r, nil
}

func acknowledged(ctx context.Context, s *Stores, epoch holdover.Epoch) (acked, missing []string, took time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	acks, late, took, err := s.Switch.WaitAcknowledged(ctx, epoch)
	acked, missing = []string{}, []string{}
	for _, a := range acks {
		acked = append(acked, a.Instance.Name)
	}
	for _, i := range late {
		missing = append(missing, fmt.Sprintf("%s (%s) is at epoch %d", i.Name, i.ID, i.Epoch))
	}
	if err != nil && len(missing) == 0 {
		missing = append(missing, err.Error())
	}
	return acked, missing, took
}
