package app

import (
	"context"
	"errors"
	"fmt"

	"holdover"
	"holdover/compare"
	"holdover/dualwrite"
)

// ErrRedisLost: the pod's Redis lost data, or came back with older data, so that
// what it agrees with says nothing. It is never called clean, and where Redis
// decides nothing is repaired until it has its own data again.
var ErrRedisLost = errors.New("redis has older data, or none")

// lostRedis says what Redis lacks by one look at both stores; "": nothing, or
// a store did not answer.
func lostRedis(v dualwrite.Survey) string {
	switch {
	case v.Agreed.Epoch == 0, v.MySQLErr != nil:
		return ""
	case errors.Is(v.RedisErr, holdover.ErrNoFence):
		return "has no fence, so it lost its data"
	case v.RedisBehind:
		return fmt.Sprintf("is at epoch %d and MySQL at %d, so it has older data", v.Redis.Epoch, v.MySQL.Epoch)
	}
	return ""
}

// forgotHolds says that Redis, which decides and is another process than the one
// that was clean last, does not know holds that MySQL has copied from it: it came
// back without what it took last, and with the agreed fence all the same.
func forgotHolds(v dualwrite.Survey, found compare.Verification) string {
	if stage := v.Agreed.Stage; stage != holdover.StageShadow && stage != holdover.StageJoint || v.Clean.RedisID == "" || v.Clean.RedisID == v.RedisID {
		return ""
	}
	n := 0
	for _, d := range found.Differences {
		if d.Kind == compare.DiffOnlyInMySQL {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("was restarted or replaced since the last clean verification, and does not know %d or more holds that MySQL has, so it has older data", n)
}

// stillItself looks whether the Redis that was just compared is one to compare with.
func (s *Stores) stillItself(ctx context.Context, found compare.Verification, fromMySQL bool) error {
	v := s.Facade.Survey(ctx)
	switch {
	case holdover.NoAnswer(v.RedisErr):
		return v.RedisErr
	case holdover.NoAnswer(v.MySQLErr):
		return v.MySQLErr
	}
	why := lostRedis(v)
	if why == "" && !fromMySQL {
		why = forgotHolds(v, found)
	}
	if why == "" {
		return nil
	}
	return s.refuseLost(v, why)
}

// refuseLost says what is wrong with Redis, and what to do.
func (s *Stores) refuseLost(v dualwrite.Survey, why string) error {
	if v.Rebuildable {
		return fmt.Errorf("pod %s: %w: it %s: MySQL decides and serves buyers, and `holdover verify --pod %s --repair --reason TEXT` fills it from there", s.Name, ErrRedisLost, why, s.Name)
	}
	return fmt.Errorf("pod %s: %w: it %s. In %s Redis decides, and nothing else knows all its holds: nothing is repaired. %s", s.Name, ErrRedisLost, why, v.Agreed.Stage, ownDataOr(s.Name, v.Agreed.Stage))
}

// ownDataOr is what to do about a Redis that decides and lost data, and what the
// way out costs when that data is gone.
func ownDataOr(pod string, stage holdover.Stage) string {
	return fmt.Sprintf("Bring back its own data (AOF, RDB or a replica). Only if that is lost for good: `holdover verify --pod %s --repair --from-mysql --reason TEXT` fills it from MySQL, which costs %s", pod, costOfCopy(stage))
}

func costOfCopy(stage holdover.Stage) string {
	if stage == holdover.StageRedis {
		return "every hold that buyers have now: in redis MySQL has no copy of them"
	}
	return "the holds that MySQL had not copied yet: their buyers are told that they hold nothing"
}
