package dualwrite

import (
	"context"
	"errors"
	"time"

	"holdover"
)

// Survey is what one look at both stores found. Readiness is judged from it,
// and status shows it, so that they never tell two stories.
type Survey struct {
	At     time.Time
	Agreed holdover.Fence // the larger one; epoch zero: no store shows any

	// Redis and MySQL are each store's fence, or why there is none: ErrNoFence
	// is an answer, other errors are silence. ErrRedisRetired: it was not asked.
	Redis, MySQL       holdover.Fence
	RedisErr, MySQLErr error
	// RedisBehind: Redis stays at an older epoch although a step writes it first,
	// or although it had followed the kill.
	RedisBehind bool
	// Rebuildable: MySQL knows all that Redis has to know, so that Rebuild can fill it.
	Rebuildable bool
	RedisID     string // of the server process

	Instances []holdover.Instance // heard of within InstancesShown, silent ones included
	Marked    int                 // claims whose mark has stood for longer than ClaimAge; at most SweepBatch

	Lowered int // adjustments for which Redis gave up units, and MySQL has not decided; at most SweepBatch

	Journal       int64         // facts that Redis does not have
	JournalOldest time.Duration // age of the oldest

	Last, Clean holdover.Verified // the newest verification, and the newest clean one
	// LastDrill is the newest rehearsed kill, PassedDrill the newest that passed.
	LastDrill, PassedDrill holdover.Drill
	// LastKill is when the pod was last latched, as far as MySQL's history goes.
	LastKill time.Time
	// DualSince and DualEpoch are when dual writing began, by MySQL's clock and
	// history; zero outside dual writing.
	DualSince time.Time
	DualEpoch holdover.Epoch
}

// InstancesShown is how long a silent instance is still listed.
const InstancesShown = time.Minute

// historyDepth is how many of MySQL's fences a survey goes back.
const historyDepth = 1000

// ErrRedisRetired: in mysql-only nothing asks Redis, and it may be gone.
var ErrRedisRetired = errors.New("redis is retired")

// redisLook and mysqlLook are the parts of a survey: each comes whole or not at all.
type redisLook struct {
	fence     holdover.Fence
	err       error
	id        string
	instances []holdover.Instance
	marked    int
	lowered   int
}

type mysqlLook struct {
	fence       holdover.Fence
	err         error
	journal     int64
	oldest      time.Duration
	last, clean holdover.Verified
	drill       holdover.Drill
	passed      holdover.Drill
	history     []holdover.Fence
	followed    holdover.Epoch
}

// Survey looks at both stores at once and changes nothing. It takes at most
// RefreshTimeout: a store that has not told everything by then is silent.
func (f *Facade) Survey(ctx context.Context) Survey {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RefreshTimeout)
	defer cancel()
	retired := f.retired()
	fromRedis, fromMySQL := make(chan redisLook, 1), make(chan mysqlLook, 1)
	if retired {
		fromRedis <- redisLook{err: ErrRedisRetired}
	} else {
		f.look(f.looks.redis, func() { fromRedis <- f.lookAtRedis(ctx) })
	}
	f.look(f.looks.mysql, func() { fromMySQL <- f.lookAtMySQL(ctx) })

	silent := func(store holdover.Store) error {
		return &holdover.StoreError{Store: store, Pod: f.cfg.Pod, Op: "look at readiness", Err: ctx.Err()}
	}
	var r redisLook
	select {
	case r = <-fromRedis:
	case <-ctx.Done():
		r.err = silent(holdover.StoreRedis)
	}
	var m mysqlLook
	select {
	case m = <-fromMySQL:
	case <-ctx.Done():
		m.err = silent(holdover.StoreMySQL)
	}
	s := Survey{
		At: time.Now(), Redis: r.fence, RedisErr: r.err, RedisID: r.id, Instances: r.instances, Marked: r.marked, Lowered: r.lowered,
		MySQL: m.fence, MySQLErr: m.err, Journal: m.journal, JournalOldest: m.oldest, Last: m.last, Clean: m.clean,
		LastDrill: m.drill, PassedDrill: m.passed,
	}
	if r.err == nil {
		s.Agreed = r.fence
	}
	if m.err == nil && m.fence.Epoch > s.Agreed.Epoch {
		s.Agreed = m.fence
	}
	s.readHistory(m.history)
	s.Rebuildable = m.err == nil && knowsAll(m.fence, m.followed, m.history)
	if r.err == nil && m.err == nil && r.fence.Epoch < m.fence.Epoch && (!m.fence.Latched || m.followed >= m.fence.Epoch) {
		// A step between the two readings looks the same: Redis is asked again.
		again, err := f.redis.Fence(ctx)
		s.RedisBehind = err == nil && again.Epoch < m.fence.Epoch
	}
	if s.Agreed.Stage == holdover.StageMySQLOnly { // what stands in a Redis that may be gone says nothing
		s.Redis, s.RedisErr, s.RedisBehind = holdover.Fence{}, ErrRedisRetired, false
	}
	return s
}

// maxLooks is how many looks at one store may be under way: a store whose driver
// heeds no deadline must not collect more, and counts as silent meanwhile.
const maxLooks = 16

type looks struct{ redis, mysql chan struct{} }

func newLooks() looks {
	return looks{make(chan struct{}, maxLooks), make(chan struct{}, maxLooks)}
}

func (f *Facade) look(underWay chan struct{}, do func()) {
	select {
	case underWay <- struct{}{}:
		f.calls.run(func() {
			defer func() { <-underWay }()
			do()
		})
	default:
	}
}

// retired reports whether this instance works in mysql-only.
func (f *Facade) retired() bool {
	v := f.view.Load()
	return v != nil && v.Stage == holdover.StageMySQLOnly
}

func (f *Facade) lookAtRedis(ctx context.Context) (l redisLook) {
	var noFence error
	l.fence, l.err = f.redis.Fence(ctx)
	if errors.Is(l.err, holdover.ErrNoFence) { // it answers: who lives is known all the same
		noFence, l.err = l.err, nil
	}
	if l.err == nil {
		l.id, l.err = f.redis.Identity(ctx)
	}
	if l.err == nil {
		l.instances, l.err = f.redis.Instances(ctx, InstancesShown)
	}
	if l.err == nil && noFence == nil {
		var marked []holdover.Hold
		marked, l.err = f.redis.Marked(ctx, f.cfg.ClaimAge, f.cfg.SweepBatch)
		l.marked = len(marked)
	}
	if l.err == nil && noFence == nil {
		var lowered []holdover.Lowered
		lowered, l.err = f.redis.LoweredAdjustments(ctx, 0, f.cfg.SweepBatch)
		l.lowered = len(lowered)
	}
	if l.err == nil {
		l.err = noFence
	}
	return l
}

func (f *Facade) lookAtMySQL(ctx context.Context) (l mysqlLook) {
	var noFence error
	l.fence, l.err = f.mysql.Fence(ctx)
	if errors.Is(l.err, holdover.ErrNoFence) {
		noFence, l.err = l.err, nil
	}
	if l.err == nil {
		l.journal, l.oldest, l.err = f.mysql.JournalSize(ctx)
	}
	if l.err == nil {
		l.last, l.clean, l.err = f.mysql.LastVerified(ctx)
	}
	if l.err == nil {
		l.drill, l.passed, l.err = f.mysql.LastDrill(ctx)
	}
	if l.err == nil && noFence == nil {
		l.history, l.err = f.historyAt(ctx, l.fence.Epoch)
	}
	if l.err == nil && noFence == nil && l.fence.Latched {
		l.followed, l.err = f.mysql.Followed(ctx)
	}
	if l.err == nil {
		l.err = noFence
	}
	return l
}

// fenceHistory is MySQL's history of fences as it was at an epoch: it changes
// with the epoch only.
type fenceHistory struct {
	epoch  holdover.Epoch
	fences []holdover.Fence // newest first
}

func (f *Facade) historyAt(ctx context.Context, epoch holdover.Epoch) ([]holdover.Fence, error) {
	if known := f.history.Load(); known != nil && known.epoch == epoch {
		return known.fences, nil
	}
	fences, err := f.mysql.FenceHistory(ctx, historyDepth)
	if err != nil {
		return nil, err
	}
	f.history.Store(&fenceHistory{epoch, fences})
	return fences, nil
}

// readHistory finds in the fences, newest first, the last kill and where the
// dual writing of now began.
func (s *Survey) readHistory(fences []holdover.Fence) {
	dual := true
	for _, past := range fences {
		if past.Latched && s.LastKill.IsZero() {
			s.LastKill = past.At
		}
		if dual = dual && past.Stage.Dual(); dual {
			s.DualSince, s.DualEpoch = past.At, past.Epoch
		}
	}
}
