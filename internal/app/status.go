package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/httpapi"
	"holdover/killswitch"
	"holdover/mysqlpool"
	"holdover/rollout"
)

// Status says from one look at a pod's two stores, whatever answers, where it
// is, whether it can move, and what happens next. It changes nothing.
func Status(ctx context.Context, s *Stores, desired rollout.Desired) httpapi.PodStatus {
	out := status(ctx, s, s.Facade, desired)
	if out.MySQLProblem == "" {
		out.Warnings = append(s.foreignStock(ctx), out.Warnings...)
	}
	return out
}

func status(ctx context.Context, stores *Stores, facade *dualwrite.Facade, desired rollout.Desired) httpapi.PodStatus {
	a := facade.Assess(ctx)
	tellDrill(stores.Name, &a)
	if to := a.Agreed.Stage + 1; stores.rules.needsSignoff(a.Agreed.Stage, to) && a.MySQLErr == nil && to <= holdover.StageMySQLOnly {
		why, err := stores.unsigned(ctx, a.Agreed, to)
		if err != nil {
			why = &dualwrite.Reason{Code: codeNoSignoff, Text: "who has signed can't be read: " + Hinted(err).Error(), Do: "bring MySQL back"}
		}
		if why != nil {
			why.Text += stores.voidGo(ctx, a)
			a.Forward.Reasons = append(a.Forward.Reasons, *why)
		}
	}
	out := httpapi.PodStatus{
		Pod: stores.Name, Instances: []httpapi.InstanceStatus{}, Waiting: []httpapi.Reason{}, Warnings: apiReasons(a.Warnings),
		Journal:      httpapi.JournalStatus{Rows: a.Journal, OldestMS: a.JournalOldest.Milliseconds()},
		RedisRetired: errors.Is(a.RedisErr, dualwrite.ErrRedisRetired),
		Desired:      httpapi.Desired{Stage: desired.Stage.String(), Reason: desired.Reason},
		Readiness:    httpapi.Readiness{At: a.At, Forward: verdict(a.Forward), Back: verdict(a.Back)},
	}
	if !desired.Known {
		out.Desired = httpapi.Desired{Stage: holdover.StageUnknown.String(), Reason: desired.Err}
	}
	if a.Agreed.Epoch > 0 {
		out.Agreed = &a.Agreed
	}
	if a.RedisErr == nil {
		out.Redis = &a.Redis
	} else if !out.RedisRetired && !(errors.Is(a.RedisErr, holdover.ErrNoFence) && out.Agreed == nil) { // "none" is a problem only where the other has one
		out.RedisProblem = a.RedisErr.Error()
	}
	if a.MySQLErr == nil {
		out.MySQL = &a.MySQL
	} else if !(errors.Is(a.MySQLErr, holdover.ErrNoFence) && out.Agreed == nil) {
		out.MySQLProblem = Hinted(a.MySQLErr).Error()
	}
	if !a.Last.At.IsZero() {
		out.Verified.Last = &a.Last
	}
	if !a.Clean.At.IsZero() {
		out.Verified.Clean = &a.Clean
	}
	if !a.LastDrill.At.IsZero() {
		out.Drilled.Last = &a.LastDrill
	}
	if !a.PassedDrill.At.IsZero() {
		out.Drilled.Passed = &a.PassedDrill
	}
	for _, i := range a.Instances {
		out.Instances = append(out.Instances, httpapi.InstanceStatus{Name: i.Name, ID: i.ID, Epoch: i.Epoch, AgeMS: i.Age.Milliseconds(), Busy: i.Busy})
	}
	if out.Agreed == nil {
		out.Next, out.Readiness = withoutFence(out, desired)
		return out
	}
	out.Readiness.Kill = killVerdict(out, a)
	out.Next = trouble(a) + next(out, a, desired)
	return out
}

// voidGo tells of a go that counted in this stage and does not any more.
func (s *Stores) voidGo(ctx context.Context, a dualwrite.Assessment) string {
	signed, err := s.MySQL.SignOffs(ctx, time.Now().Add(-s.rules.SignoffMaxAge))
	if err != nil || len(signed) == 0 {
		return "" // the reason stands without it
	}
	last := signed[len(signed)-1]
	if last.Decision != mysqlpool.DecisionGo || last.Stage != a.Agreed.Stage || last.Epoch >= a.Agreed.Epoch {
		return ""
	}
	moved := "the pod has moved since"
	if drill := a.LastDrill; drill.Epoch > last.Epoch && drill.Epoch <= a.Agreed.Epoch {
		moved = fmt.Sprintf("the drill of %s at %s has moved the pod", drill.By, drill.At.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("; the go of %s is about %s at epoch %d and void: %s", last.As, last.Stage, last.Epoch, moved)
}

func verdict(r dualwrite.Readiness) httpapi.Verdict {
	return httpapi.Verdict{OK: r.OK(), Reasons: apiReasons(r.Reasons)}
}

// withoutFence: no store that answers has one. Either the pod was never begun,
// or the stores that know are away.
func withoutFence(s httpapi.PodStatus, desired rollout.Desired) (next string, r httpapi.Readiness) {
	why := httpapi.Reason{Code: "no-agreement", Text: "no store shows a fence", Do: "bring the stores up"}
	switch {
	case s.RedisProblem != "" || s.MySQLProblem != "":
		next = "No stage can be read: bring the stores that do not answer back; buyers are refused with 503 unless their instance knew the stage before."
	case !desired.Known:
		why.Text, why.Do = "the pod was never begun: neither store has a fence", "give it a flag file and start an instance"
		next = "Not begun: neither store has a fence, and the flag says nothing (" + desired.Err + "). An instance begins the pod in redis as soon as the flag names a stage."
	default:
		why.Text, why.Do = "the pod was never begun: neither store has a fence", "start an instance: holdover serve"
		next = "Not begun: neither store has a fence. Start an instance (holdover serve): it begins the pod in redis, and goes to " + desired.Stage.String() + " from there."
	}
	no := httpapi.Verdict{Reasons: []httpapi.Reason{why}}
	return next, httpapi.Readiness{At: s.Readiness.At, Forward: no, Back: no, Kill: no}
}

func apiReasons(reasons []dualwrite.Reason) []httpapi.Reason {
	out := []httpapi.Reason{}
	for _, r := range reasons {
		out = append(out, httpapi.Reason{Code: r.Code, Text: r.Text, Number: int64(r.Number), Do: r.Do})
	}
	return out
}

// killVerdict: the kill needs a Redis that has the pod's data. It may be used
// when readiness says no; what it could not carry is said beforehand.
func killVerdict(s httpapi.PodStatus, a dualwrite.Assessment) httpapi.Verdict {
	no := func(code, text, do string) httpapi.Verdict {
		return httpapi.Verdict{Reasons: []httpapi.Reason{{Code: code, Text: text, Do: do}}}
	}
	rebuild := "bring Redis back"
	for _, why := range a.Back.Reasons { // the same advice there
		if why.Code == "redis-lost-its-data" || why.Code == "redis-has-older-data" {
			rebuild = why.Do
		}
	}
	switch {
	case s.Agreed.Stage == holdover.StageMySQLOnly:
		return no("mysql-only", "Redis is retired and does not know the holds", fmt.Sprintf("holdover rollout return --pod %s --confirm %s --reason TEXT", s.Pod, s.Pod))
	case errors.Is(a.RedisErr, holdover.ErrNoFence):
		return no("redis-lost-its-data", "can't flip to a Redis that lost its data", rebuild)
	case a.RedisErr != nil:
		return no("redis-away", "can't flip to a Redis that does not answer: "+s.RedisProblem, "bring Redis back; meanwhile MySQL serves buyers if the stage is mysql")
	case a.RedisBehind:
		return no("redis-has-older-data", "can't flip to a Redis that came back with older data", rebuild)
	case a.MySQLErr != nil && s.Agreed.Stage == holdover.StageMySQL:
		return httpapi.Verdict{OK: true, Reasons: []httpapi.Reason{{Code: "mysql-away", Text: "allowed, but MySQL's journal of unmirrored holds can't be carried while MySQL does not answer", Do: "kill all the same if buyers are failing; the drain carries them when MySQL is back"}}}
	default:
		return httpapi.Verdict{OK: true, Reasons: []httpapi.Reason{}}
	}
}

// trouble is said before what happens next: a store that is away, and what that
// means for buyers, or a fence that is owed.
func trouble(a dualwrite.Assessment) string {
	stage := a.Agreed.Stage
	switch {
	case a.MySQLErr != nil && !errors.Is(a.MySQLErr, holdover.ErrNoFence):
		means := "claims stay pending until it is back"
		switch stage {
		case holdover.StageJoint:
			means = "in joint nobody can reserve meanwhile: bring it back, or kill"
		case holdover.StageMySQL:
			means = "buyers are refused meanwhile: bring it back, or kill"
		case holdover.StageMySQLOnly:
			means = "buyers are refused meanwhile: bring it back"
		}
		return "MySQL does not answer: " + means + ". "
	case a.RedisErr == nil && a.MySQLErr == nil && a.Redis.Epoch > a.MySQL.Epoch, errors.Is(a.MySQLErr, holdover.ErrNoFence):
		return fmt.Sprintf("MySQL is owed the fence of epoch %d: an instance raises it before it uses MySQL. ", a.Agreed.Epoch)
	case errors.Is(a.RedisErr, dualwrite.ErrRedisRetired):
		return ""
	case errors.Is(a.RedisErr, holdover.ErrNoFence), a.RedisBehind:
		if stage == holdover.StageMySQL {
			return "Redis has lost data: MySQL serves buyers, and Redis has to be rebuilt from it. "
		}
		what := "Redis has lost its data"
		if a.RedisBehind {
			what = "Redis has older data"
		}
		if a.Rebuildable { // MySQL decided until a kill that Redis never followed
			return what + ", and it decides in " + stage.String() + ": nobody can reserve. "
		}
		return what + ", and it decides in " + stage.String() + ": nobody can reserve. " + ownDataOr(a.Agreed.Pod, stage) + ". "
	case a.RedisErr != nil:
		if stage == holdover.StageMySQL {
			return "Redis does not answer: MySQL serves buyers and keeps what Redis lacks; bring it back. "
		}
		return "Redis does not answer, and it decides in " + stage.String() + ": nobody can reserve; bring it back. "
	case a.Redis.Epoch < a.MySQL.Epoch:
		return fmt.Sprintf("Redis is owed the fence of epoch %d: an instance raises it, with MySQL's journal. ", a.Agreed.Epoch)
	default:
		return ""
	}
}

// next is one sentence or two: what happens next, and what to do.
func next(s httpapi.PodStatus, a dualwrite.Assessment, desired rollout.Desired) string {
	stage := s.Agreed.Stage
	switch {
	case s.Agreed.Latched && killswitch.IsDrill(*s.Agreed):
		why := drillLatch(s.Pod, a.Agreed, a.At)
		return fmt.Sprintf("Latched in %s: %s -> %s.", stage, why.Text, why.Do)
	case s.Agreed.Latched:
		return fmt.Sprintf("Latched in %s by %s (%s): the flag is ignored until `holdover restore --pod %s --reason TEXT`.", stage, s.Agreed.By, s.Agreed.Reason, s.Pod)
	case !desired.Known:
		return fmt.Sprintf("In %s; the flag says nothing now (%s): a running instance goes on with the last good one, a new one stays.", stage, desired.Err)
	case desired.Stage == stage:
		return fmt.Sprintf("Stays in %s, as the flag says.", stage)
	}
	to, readiness := stage.Toward(desired.Stage), a.Forward
	if desired.Stage < stage {
		readiness = a.Back
	}
	switch {
	case stage == holdover.StageMySQLOnly:
		return fmt.Sprintf("Stays in %s: the flag wants %s, and the way back is `holdover rollout return --pod %s --confirm %s --reason TEXT`.", stage, desired.Stage, s.Pod, s.Pod)
	case to == holdover.StageMySQLOnly:
		return fmt.Sprintf("Stays in %s: the flag wants %s, which is entered by `holdover rollout retire --pod %s --confirm %s --reason TEXT`.", stage, desired.Stage, s.Pod, s.Pod)
	}
	for _, why := range readiness.Reasons { // a verification is made before the step, whatever is known of earlier ones
		if !dualwrite.MendedByVerifying(why.Code) {
			return fmt.Sprintf("Goes from %s to %s. %s", stage, to, waitingFor(why.Text, why.Do))
		}
	}
	if max(stage, to) > holdover.StageShadow {
		return fmt.Sprintf("Goes from %s to %s when its dwell time is over and a verification is clean; the flag wants %s.", stage, to, desired.Stage)
	}
	return fmt.Sprintf("Goes from %s to %s when its dwell time is over; the flag wants %s.", stage, to, desired.Stage)
}

func waitingFor(text, do string) string {
	text = strings.TrimRight(text, ". ")
	if do == "" {
		return "Waits: " + text + "."
	}
	return "Waits: " + text + " -> " + do + "."
}
