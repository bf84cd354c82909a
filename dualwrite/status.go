package dualwrite

import (
	"context"
	"sync/atomic"
	"time"

	"holdover"
)

// counters are this instance's, since it started.
type counters struct {
	granted, refused, claimed, released, expired, pending, noAnswer atomic.Int64

	stale         atomic.Int64 // epochs refused, and followed
	journaled     atomic.Int64 // grants that Redis did not take in time
	drained       atomic.Int64 // journal rows carried into Redis
	reconciled    atomic.Int64 // unmirrored tokens carried into MySQL
	rolledForward atomic.Int64 // marked claims applied by the sweep
	adopted       atomic.Int64 // holds that only MySQL knew, honoured by a vote in Redis
	forgotten     atomic.Int64 // unmirrored tokens over the bound: only verification finds them
	laneFailed    atomic.Int64
	sweepErrors   atomic.Int64
	rechecking    atomic.Int64 // differences that the loop has in hand
	observed      atomic.Int64
	observePanics atomic.Int64
	bypassed      atomic.Int64 // dual operations that were never handed over for comparing
}

// Stats are one instance's counts since it started, and the sizes of its
// bounded queues now.
type Stats struct {
	Granted       int64 `json:"granted"`
	Refused       int64 `json:"refused"`
	Claimed       int64 `json:"claimed"`
	Released      int64 `json:"released"`
	Expired       int64 `json:"expired"`
	Pending       int64 `json:"pending"`
	NoAnswer      int64 `json:"no_answer"`
	Stale         int64 `json:"stale"`
	Journaled     int64 `json:"journaled"`
	Drained       int64 `json:"drained"`
	Reconciled    int64 `json:"reconciled"`
	RolledForward int64 `json:"rolled_forward"`
	Adopted       int64 `json:"adopted"`
	Forgotten     int64 `json:"forgotten"`
	LaneFailed    int64 `json:"lane_failed"`
	LaneShed      int64 `json:"lane_shed"`
	SweepErrors   int64 `json:"sweep_errors"`
	Observed      int64 `json:"observed"`
	ObservePanics int64 `json:"observe_panics"`
	Bypassed      int64 `json:"bypassed"` // dual operations that nobody was given to compare

	LaneJobs      int           `json:"lane_jobs"`
	LaneLate      int           `json:"lane_late"` // of an earlier epoch, or older than LaneLag
	Unmirrored    int           `json:"unmirrored"`
	Debts         int           `json:"debts"`
	GiveBacks     int           `json:"give_backs"` // that a store has not answered yet
	Rechecks      int           `json:"rechecks"`   // differences that are looked at again before they are told
	OldestUnknown time.Duration `json:"oldest_unmirrored_ns"`
	RedisAway     bool          `json:"redis_away"`
}

// Stats reads the counts.
func (f *Facade) Stats() Stats {
	c := &f.stats
	s := Stats{
		Granted: c.granted.Load(), Refused: c.refused.Load(), Claimed: c.claimed.Load(), Released: c.released.Load(),
		Expired: c.expired.Load(), Pending: c.pending.Load(), NoAnswer: c.noAnswer.Load(), Stale: c.stale.Load(),
		Journaled: c.journaled.Load(), Drained: c.drained.Load(), Reconciled: c.reconciled.Load(),
		RolledForward: c.rolledForward.Load(), Adopted: c.adopted.Load(), Forgotten: c.forgotten.Load(),
		LaneFailed: c.laneFailed.Load(), SweepErrors: c.sweepErrors.Load(), Observed: c.observed.Load(),
		ObservePanics: c.observePanics.Load(), Bypassed: c.bypassed.Load(), RedisAway: f.redisIsAway(),
	}
	var epoch holdover.Epoch
	if v := f.view.Load(); v != nil {
		epoch = v.Epoch
	}
	s.LaneJobs, s.LaneLate, s.LaneShed = f.lanes.size(epoch, f.cfg.LaneLag)
	s.Unmirrored, s.Debts, s.OldestUnknown = f.unmirrored.size()
	s.GiveBacks, s.Rechecks = f.undos.size(), len(f.rechecks)+int(c.rechecking.Load())
	return s
}

// Debts counts the holds that MySQL has no unit for: part of Busy, and no lag.
func (f *Facade) Debts() int64 { return int64(f.Stats().Debts) }

// Busy counts what this instance still has to carry over before a step forward:
// late mirror work, unmirrored tokens, debts and give-backs. It goes with the
// heartbeat.
func (f *Facade) Busy() int64 {
	s := f.Stats()
	return int64(s.LaneLate + s.Unmirrored + s.Debts + s.GiveBacks)
}

// Fences reads what each store's fence says now, for status.
func (f *Facade) Fences(ctx context.Context) (redis holdover.Fence, redisErr error, mysql holdover.Fence, mysqlErr error) {
	r, m := f.readFences(ctx, nil)
	return r.fence, r.err, m.fence, m.err
}
