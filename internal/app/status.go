package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/httpapi"
	"holdover/rollout"
)

// statusTime bounds a status: with a store that hangs it still answers, and
// names the store.
const statusTime = 1200 * time.Millisecond

// shownInstances is how long a silent instance is still listed.
const shownInstances = time.Minute

// Status reads where a pod is from its two stores, whatever answers, and says
// what happens next. It changes nothing.
func Status(ctx context.Context, s *Stores, facade *dualwrite.Facade, desired rollout.Desired) httpapi.PodStatus {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	out := httpapi.PodStatus{Pod: s.Name, Instances: []httpapi.InstanceStatus{}}
	out.Desired = httpapi.Desired{Stage: desired.Stage.String(), Reason: desired.Reason}
	if !desired.Known {
		out.Desired = httpapi.Desired{Stage: holdover.StageUnknown.String(), Reason: desired.Err}
	}
	redis, redisErr, mysql, mysqlErr := facade.Fences(ctx)
	if redisErr == nil {
		out.Redis, out.Agreed = &redis, &redis
	}
	if mysqlErr == nil {
		out.MySQL = &mysql
		if out.Agreed == nil || mysql.Epoch > redis.Epoch {
			out.Agreed = &mysql
		}
	}
	redisAnswers := redisErr == nil || errors.Is(redisErr, holdover.ErrNoFence)
	mysqlAnswers := mysqlErr == nil || errors.Is(mysqlErr, holdover.ErrNoFence)
	if !redisAnswers || (redisErr != nil && mysqlErr == nil) {
		out.RedisProblem = redisErr.Error()
	}
	if !mysqlAnswers || (mysqlErr != nil && redisErr == nil) {
		out.MySQLProblem = Hinted(mysqlErr).Error()
	}

	// The rest is read at once: each part from a store that has just answered.
	var reading sync.WaitGroup
	if redisAnswers {
		reading.Go(func() {
			instances, err := s.Redis.Instances(ctx, shownInstances)
			if err != nil {
				out.RedisProblem = err.Error()
			}
			for _, i := range instances {
				out.Instances = append(out.Instances, httpapi.InstanceStatus{Name: i.Name, ID: i.ID, Epoch: i.Epoch, AgeMS: i.Age.Milliseconds(), Busy: i.Busy})
			}
		})
	}
	if mysqlAnswers {
		reading.Go(func() {
			rows, oldest, err := s.MySQL.JournalSize(ctx)
			if err != nil {
				out.MySQLProblem = err.Error()
			}
			out.Journal = httpapi.JournalStatus{Rows: rows, OldestMS: oldest.Milliseconds()}
		})
	}
	if out.Agreed != nil && redisErr == nil && mysqlErr == nil {
		reading.Go(func() { out.Readiness.Forward, out.Readiness.Back = hindrances(ctx, facade, out.Agreed.Stage) })
	}
	reading.Wait()

	if out.Agreed == nil {
		out.Next, out.Readiness = withoutFence(out, desired)
		return out
	}
	if redisErr != nil || mysqlErr != nil {
		no := storeAway(out, redisErr, mysqlErr)
		out.Readiness.Forward, out.Readiness.Back = no, no
	}
	out.Readiness.Kill = killVerdict(out, redisErr)
	out.Next = next(out, desired)
	return out
}

// hindrances are what speaks against a step in each direction. A facade that
// has not read the agreement yet does so first.
func hindrances(ctx context.Context, facade *dualwrite.Facade, stage holdover.Stage) (forward, back httpapi.Verdict) {
	if _, err := facade.Agreed(); err != nil {
		if err := facade.Look(ctx); err != nil {
			no := httpapi.Verdict{Reasons: []httpapi.Reason{{Code: "unreadable", Text: err.Error(), Do: "ask again"}}}
			return no, no
		}
	}
	ask := func(to holdover.Stage) httpapi.Verdict {
		if stage == to {
			return httpapi.Verdict{Reasons: []httpapi.Reason{{Code: "at-the-end", Text: "there is no stage beyond " + stage.String()}}}
		}
		r, err := facade.Hindrances(ctx, to)
		if err != nil {
			return httpapi.Verdict{Reasons: []httpapi.Reason{{Code: "unreadable", Text: err.Error(), Do: "ask again"}}}
		}
		return httpapi.Verdict{OK: r.OK(), Reasons: apiReasons(driverReasons(r.Reasons))}
	}
	var asking sync.WaitGroup
	asking.Go(func() { forward = ask(stage.Toward(holdover.StageMySQLOnly)) })
	asking.Go(func() { back = ask(stage.Toward(holdover.StageRedis)) })
	asking.Wait()
	return forward, back
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
	return next, httpapi.Readiness{Forward: no, Back: no, Kill: no}
}

func apiReasons(reasons []rollout.Reason) []httpapi.Reason {
	out := []httpapi.Reason{}
	for _, r := range reasons {
		out = append(out, httpapi.Reason{Code: r.Code, Text: r.Text, Number: int64(r.Number), Do: r.Do})
	}
	return out
}

// storeAway is why no step of either direction can be taken now: a step writes
// both fences.
func storeAway(s httpapi.PodStatus, redisErr, mysqlErr error) httpapi.Verdict {
	v := httpapi.Verdict{Reasons: []httpapi.Reason{}}
	if redisErr != nil {
		why := httpapi.Reason{Code: "redis-away", Text: "redis does not answer: " + s.RedisProblem, Do: "bring the pod's Redis back"}
		if errors.Is(redisErr, holdover.ErrNoFence) {
			why = httpapi.Reason{Code: "redis-lost-its-data", Text: "redis has no fence and mysql has one: it lost its data", Do: "rebuild Redis from MySQL"}
		}
		v.Reasons = append(v.Reasons, why)
	}
	if mysqlErr != nil {
		why := httpapi.Reason{Code: "mysql-away", Text: "mysql does not answer: " + s.MySQLProblem, Do: "bring the pod's MySQL back"}
		if errors.Is(mysqlErr, holdover.ErrNoFence) {
			why = httpapi.Reason{Code: "fences-differ", Text: "mysql has no fence yet", Do: "wait: every instance raises the store that is behind"}
		}
		v.Reasons = append(v.Reasons, why)
	}
	return v
}

// killVerdict: the kill needs Redis and a stage that has one. What it could not
// carry when MySQL is silent is said beforehand.
func killVerdict(s httpapi.PodStatus, redisErr error) httpapi.Verdict {
	switch {
	case redisErr != nil:
		text, do := "can't flip to a Redis that does not answer: "+s.RedisProblem, "bring Redis back; meanwhile MySQL serves buyers if the stage is mysql"
		if errors.Is(redisErr, holdover.ErrNoFence) {
			text, do = "can't flip to a Redis that lost its data", "rebuild Redis from MySQL"
		}
		return httpapi.Verdict{Reasons: []httpapi.Reason{{Code: "redis-away", Text: text, Do: do}}}
	case s.Agreed.Stage == holdover.StageMySQLOnly:
		return httpapi.Verdict{Reasons: []httpapi.Reason{{Code: "mysql-only", Text: "Redis is retired and does not know the holds", Do: "rebuild Redis first"}}}
	case s.MySQLProblem != "" && s.Agreed.Stage == holdover.StageMySQL:
		return httpapi.Verdict{OK: true, Reasons: []httpapi.Reason{{Code: "mysql-away", Text: "allowed, but MySQL's journal of unmirrored holds can't be carried while MySQL does not answer", Do: "kill all the same if buyers are failing; the drain carries them when MySQL is back"}}}
	default:
		return httpapi.Verdict{OK: true, Reasons: []httpapi.Reason{}}
	}
}

// next is one sentence or two: what happens next, and what to do.
func next(s httpapi.PodStatus, desired rollout.Desired) string {
	stage := s.Agreed.Stage
	switch {
	case s.Agreed.Latched:
		return fmt.Sprintf("Latched in %s by %s (%s): the flag is ignored until `holdover restore --pod %s --reason TEXT`.", stage, s.Agreed.By, s.Agreed.Reason, s.Pod)
	case !desired.Known:
		return fmt.Sprintf("In %s; the flag says nothing now (%s): a running instance goes on with the last good one, a new one stays.", stage, desired.Err)
	case desired.Stage == stage:
		return fmt.Sprintf("Stays in %s, as the flag says.", stage)
	}
	to, verdict := stage.Toward(desired.Stage), s.Readiness.Forward
	if desired.Stage < stage {
		verdict = s.Readiness.Back
	}
	switch {
	case !verdict.OK:
		return fmt.Sprintf("Goes from %s to %s. %s", stage, to, waitingFor(verdict.Reasons[0].Text, verdict.Reasons[0].Do))
	case to > stage && to != holdover.StageShadow:
		return fmt.Sprintf("Goes from %s to %s when its dwell time is over and a verification is clean; the flag wants %s.", stage, to, desired.Stage)
	default:
		return fmt.Sprintf("Goes from %s to %s when its dwell time is over; the flag wants %s.", stage, to, desired.Stage)
	}
}
