package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/dualwrite"
	"holdover/killswitch"
	"holdover/mysqlpool"
)

// RepairOptions say who repairs what.
type RepairOptions struct {
	By, Reason string
	DryRun     bool // plan, and change nothing
	Counters   bool // set counters also where Redis decides
	// FromMySQL gives up what a Redis that decides has lost: it is brought to what
	// MySQL has copied.
	FromMySQL bool

	Progress   func(done, total int, left time.Duration) // of each verification
	Rebuilding func(holds, items int)                    // of a rebuild
}

// RepairedPod is what a repair found and did, or with DryRun would do.
type RepairedPod struct {
	Pod    string         `json:"pod"`
	Stage  holdover.Stage `json:"stage"`
	DryRun bool           `json:"dry_run"`
	Rule   string         `json:"rule"` // what is repaired toward what in this stage
	// Rebuild says that Redis lacks the agreed fence and has to be filled anew, or
	// was; Rebuilt is what that wrote.
	Rebuild string             `json:"rebuild,omitempty"`
	Rebuilt *dualwrite.Rebuilt `json:"rebuilt"`

	Found   *compare.Verification `json:"found"` // before the repair; null: Redis is to be rebuilt first
	Repairs []compare.Repaired    `json:"repairs"`
	After   *compare.Verification `json:"after"`           // null: nothing was changed
	Clean   bool                  `json:"clean"`           // nothing differs now
	Error   string                `json:"error,omitempty"` // why it ended early; what is listed was done
}

// repairRules say which store is brought to where the other one is.
var repairRules = map[holdover.Stage]string{
	holdover.StageRedis:  "in redis only counters are repaired: MySQL's holds are left alone, and come anew in shadow",
	holdover.StageShadow: "Redis decides: MySQL is brought to where Redis is",
	holdover.StageJoint:  "Redis decides about ends: MySQL is brought to where Redis is",
	holdover.StageMySQL:  "MySQL decides: Redis is brought to where MySQL is",
}

// maxRepairs bounds the holds, items and rows each that one repair looks at.
const maxRepairs = 100_000

// Repair verifies a pod, repairs by token what stands still and differs, and
// verifies again, while buyers go on. A Redis that lost its data, or has older
// data, while MySQL decides is rebuilt first; where Redis decides it is ErrRedisLost,
// and nothing is changed, unless what it had is given up (FromMySQL). Each change is
// recorded before it is made. Two at once: the second gets ErrTryAgain. A pod that moves to another
// epoch meanwhile ends it with ErrStale. What was done is in the answer, also beside
// an error.
func Repair(ctx context.Context, c Config, s *Stores, o RepairOptions) (RepairedPod, error) {
	r := RepairedPod{Pod: s.Name, DryRun: o.DryRun, Repairs: []compare.Repaired{}}
	if err := killswitch.CheckWho(o.By, o.Reason); err != nil {
		return r, err
	}
	alone, err := s.MySQL.Alone(ctx, "repair", func(ctx context.Context) error { return r.run(ctx, c, s, o) })
	if err == nil && !alone {
		err = fmt.Errorf("pod %s: another repair is under way: wait until it has ended: %w", s.Name, holdover.ErrTryAgain)
	}
	if err != nil {
		r.Error = Hinted(err).Error()
	}
	return r, err
}

// changed says whether the repair wrote anything, as far as is known.
func (r *RepairedPod) changed() bool { return r.Rebuilt != nil || !r.DryRun && len(r.Repairs) > 0 }

func (r *RepairedPod) run(ctx context.Context, c Config, s *Stores, o RepairOptions) error {
	v := s.Facade.Survey(ctx)
	switch {
	case v.MySQLErr != nil:
		return v.MySQLErr
	case v.Agreed.Stage == holdover.StageMySQLOnly:
		return fmt.Errorf("pod %s: %w; `holdover rollout return --pod %s` rebuilds Redis and takes the pod back to mysql", s.Name, ErrNothingToVerify, s.Name)
	case v.RedisErr != nil && !errors.Is(v.RedisErr, holdover.ErrNoFence):
		return v.RedisErr
	}
	fence, why := v.Agreed, lostRedis(v)
	r.Stage, r.Rule = fence.Stage, repairRules[fence.Stage]
	if why != "" && !v.Rebuildable && !o.FromMySQL {
		return s.refuseLost(v, why)
	}
	if why != "" {
		r.Rebuild = "Redis " + why + ": it is filled from MySQL, which serves buyers meanwhile"
		if !v.Rebuildable {
			r.Rebuild = "Redis " + why + ": it is filled from MySQL, and nobody can reserve meanwhile; lost are " + costOfCopy(fence.Stage)
		}
		if o.DryRun {
			return nil
		}
		if err := r.rebuild(ctx, s, fence, why, o); err != nil {
			return err
		}
	}
	found, err := r.verify(ctx, c, s, o)
	if err == nil || found.Items > 0 {
		r.Found, r.Clean = &found, found.Clean
	}
	if err != nil {
		return err
	}
	if found.Count == 0 {
		return nil
	}
	cfg, fence, err := verifyConfig(ctx, c, s, VerifyOptions{})
	if err != nil {
		return err
	}
	r.Stage, r.Rule = fence.Stage, repairRules[fence.Stage] // it may have moved meanwhile
	r.Repairs, err = compare.Repair(ctx, s.Redis, s.MySQL, found, compare.RepairConfig{
		Verify: cfg, Fence: fence, DryRun: o.DryRun, Counters: o.Counters,
		Audit: func(ctx context.Context, done compare.Repaired) (func(context.Context, string) error, error) {
			return audit(ctx, s, mysqlpool.Repair{
				Epoch: fence.Epoch, By: o.By, Reason: o.Reason, Store: done.Store, Action: done.Action,
				Subject: done.Subject(), Before: done.Before, After: done.After,
			})
		},
	})
	if r.Repairs == nil {
		r.Repairs = []compare.Repaired{}
	}
	if err != nil || o.DryRun {
		return err
	}
	after, err := r.verify(ctx, c, s, o)
	if err != nil {
		return fmt.Errorf("what is listed was repaired, and not verified: %w", err)
	}
	r.After, r.Clean = &after, after.Clean
	return nil
}

func (r *RepairedPod) verify(ctx context.Context, c Config, s *Stores, o RepairOptions) (compare.Verification, error) {
	return verifyFor(ctx, c, s, VerifyOptions{By: o.By, Progress: o.Progress}, maxRepairs, o.FromMySQL)
}

// rebuildAction is the recorded action of a rebuild: a report tells it from a repair.
const rebuildAction = "rebuild from mysql"

func (r *RepairedPod) rebuild(ctx context.Context, s *Stores, fence holdover.Fence, why string, o RepairOptions) error {
	ended, err := audit(ctx, s, mysqlpool.Repair{
		Epoch: fence.Epoch, By: o.By, Reason: o.Reason, Store: holdover.StoreRedis, Action: rebuildAction,
		Subject: "pod " + s.Name, Before: "redis " + why, After: fence.String(),
	})
	if err != nil {
		return err
	}
	fill := s.Facade.Rebuild
	if o.FromMySQL {
		fill = s.Facade.RebuildFromCopy
	}
	done, err := fill(ctx, o.Rebuilding)
	outcome := fmt.Sprintf("%s: %d holds, %d end records, %d counters in %s", compare.RepairDone, done.Holds, done.Ended, done.Items, done.Took.Round(time.Millisecond))
	if err != nil {
		outcome = compare.RepairFailed + ": " + err.Error()
	} else {
		r.Rebuilt = &done
	}
	return errors.Join(err, ended(ctx, outcome))
}

// audit records a repair before it is made, and returns how to record its end:
// also when who asked for it has left by then.
func audit(ctx context.Context, s *Stores, r mysqlpool.Repair) (func(context.Context, string) error, error) {
	seq, err := s.MySQL.BeginRepair(ctx, r)
	return func(ctx context.Context, outcome string) error {
		return s.MySQL.EndRepair(context.WithoutCancel(ctx), seq, outcome)
	}, err
}
