package dualwrite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"holdover"
)

// Config holds a facade's stores, limits and deadlines. A zero field means the
// default in its comment.
type Config struct {
	Pod        string // required
	Instance   string // required; this process, for observations
	InstanceID string // of this process among the pod's instances; empty: it is none of them
	Redis      Redis  // required
	MySQL      MySQL  // required

	Limits          holdover.Limits
	CallTimeout     time.Duration // longest stay of one call; 2 s
	MirrorTimeout   time.Duration // longest wait for Redis while MySQL decides; 50 ms
	GiveBackTimeout time.Duration // for undoing a grant in Redis before answering no; 250 ms
	UnsureFor       time.Duration // how long a vote without an answer may still run; what it took is given back then; CallTimeout
	RefreshTimeout  time.Duration // for reading both fences; 500 ms
	MaxMoves        int           // how many new epochs one call follows; 6

	Lanes         int           // ordered mirror lanes; 64, at most 256
	LaneDepth     int           // work waiting in one lane; 64
	LaneTimeout   time.Duration // one piece of mirror work; 2 s
	LaneLag       time.Duration // mirror work older than this holds up a step forward; 2 s
	MirrorLinger  time.Duration // how long a fact may wait in shadow for others, to share a transaction of MySQL's; none
	UnmirroredMax int           // tokens and give-backs remembered in memory, each; 100,000

	SweepEvery   time.Duration // expired holds, marked claims; 1 s
	SweepBatch   int           // holds per sweep and list; 200
	ReaperGrace  time.Duration // how long past expiry the other store's holds wait; 5 s
	ClaimAge     time.Duration // how old a claiming mark is rolled forward; 2 s
	DrainEvery   time.Duration // journal and unmirrored tokens; 200 ms
	DrainBatch   int           // rows per drain; 500
	AwayFor      time.Duration // after no answer from Redis, MySQL journals at once for this long; 500 ms
	RebuildPause time.Duration // before a rebuild reads MySQL: calls that knew the old Redis end meanwhile; CallTimeout
	RebuildEnded time.Duration // ended holds whose expiry is not longer ago get an end record in a rebuilt Redis; 72 h
	RecheckEvery time.Duration // between looks at a difference that may be lag; 100 ms
	RecheckTries int           // looks before its items, which never stand still, are read hold by hold; 60
	ReadingEvery time.Duration // between two readings of live holds, which Redis serves nobody else beside; 1 s
	RecheckMax   int           // differences waiting; 1,024

	InstanceMaxAge time.Duration // a heartbeat older than this is a dead instance; 3 s
	ReadinessEvery time.Duration // between two assessments of readiness by Run; 500 ms, negative: none
	VerifiedMaxAge time.Duration // a clean verification older than this is a reason against a step; 1 h
	DrillMaxAge    time.Duration // a step forward needs a drill that passed and is younger than this; none

	// Observe is given every dual operation. It must not block; a panic in it
	// is contained.
	Observe func(holdover.Observation)
	// Acknowledge is called after this instance works with a new fence.
	Acknowledge func(holdover.Fence)
	// Verify compares both stores completely (rule 18) and says why they are
	// not clean. Without it no step to joint or mysql is ready.
	Verify func(ctx context.Context) (clean bool, why string, err error)
	// ForeignSeen is when a verification last saw a counter that somebody else
	// had changed; zero: never. Without it only the beginning of dual writing counts.
	ForeignSeen func() time.Time
	// Logger; discards when nil.
	Logger *slog.Logger
}

func (c *Config) setDefaults() error {
	switch {
	case c.Pod == "":
		return errors.New("dualwrite: Config.Pod is empty: name the pod")
	case c.Instance == "":
		return fmt.Errorf("dualwrite: pod %s: Config.Instance is empty: name this process", c.Pod)
	case c.Redis == nil || c.MySQL == nil:
		return fmt.Errorf("dualwrite: pod %s: both stores are needed in Config", c.Pod)
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.CallTimeout, 2 * time.Second}, {&c.MirrorTimeout, 50 * time.Millisecond},
		{&c.GiveBackTimeout, 250 * time.Millisecond}, {&c.RefreshTimeout, 500 * time.Millisecond},
		{&c.LaneTimeout, 2 * time.Second}, {&c.LaneLag, 2 * time.Second}, {&c.MirrorLinger, 0}, {&c.SweepEvery, time.Second},
		{&c.ReaperGrace, 5 * time.Second}, {&c.ClaimAge, 2 * time.Second},
		{&c.DrainEvery, 200 * time.Millisecond}, {&c.AwayFor, 500 * time.Millisecond},
		{&c.RebuildPause, 0}, {&c.RebuildEnded, 72 * time.Hour},
		{&c.RecheckEvery, 100 * time.Millisecond}, {&c.ReadingEvery, time.Second}, {&c.InstanceMaxAge, 3 * time.Second},
		{&c.ReadinessEvery, 500 * time.Millisecond}, {&c.VerifiedMaxAge, time.Hour},
	} {
		if *d.field < 0 && d.field != &c.ReadinessEvery {
			return fmt.Errorf("dualwrite: pod %s: a duration in Config is negative (%s)", c.Pod, *d.field)
		}
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.UnsureFor == 0 {
		c.UnsureFor = c.CallTimeout
	}
	for _, n := range []struct {
		field *int
		value int
	}{
		{&c.MaxMoves, 6}, {&c.Lanes, 64}, {&c.LaneDepth, 64}, {&c.UnmirroredMax, 100_000},
		{&c.SweepBatch, 200}, {&c.DrainBatch, 500}, {&c.RecheckTries, 60}, {&c.RecheckMax, 1024},
	} {
		if *n.field < 0 {
			return fmt.Errorf("dualwrite: pod %s: a count in Config is negative (%d)", c.Pod, *n.field)
		}
		if *n.field == 0 {
			*n.field = n.value
		}
	}
	if c.RebuildPause == 0 {
		c.RebuildPause = c.CallTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Facade is one pod's reservations in one process.
type Facade struct {
	cfg   Config
	redis Redis
	mysql MySQL
	log   *slog.Logger

	view       atomic.Pointer[view]
	refreshing sync.Mutex
	redisAway  atomic.Int64  // unix nanoseconds until which Redis counts as away
	followed   atomic.Uint64 // epoch at which redis was noted in mysql to have been seen
	mysqlAt    atomic.Uint64 // epoch that MySQL's fence showed last; below the view's it is owed the fence

	looks    looks
	assessed atomic.Pointer[Assessment]
	history  atomic.Pointer[fenceHistory]

	lanes      *lanes
	unmirrored *unmirrored
	undos      undos
	rechecks   chan recheck
	calls      calls // store calls that outlive their caller (rule 8)
	late       holdover.LateClaims
	stats      counters
	touched    touches // for overlapping
}

var _ holdover.Reserver = (*Facade)(nil)

// New makes a facade. It serves nobody until Refresh has found an agreed
// stage; Run does that too.
func New(cfg Config) (*Facade, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	f := &Facade{cfg: cfg, redis: containRedis(cfg.Pod, cfg.Redis), mysql: containMySQL(cfg.Pod, cfg.MySQL), log: cfg.Logger.With("pod", cfg.Pod, "instance", cfg.Instance)}
	f.looks = newLooks()
	f.unmirrored = newUnmirrored(cfg.UnmirroredMax)
	f.undos = undos{max: cfg.UnmirroredMax, owed: make(map[undo]time.Time)}
	f.rechecks = make(chan recheck, cfg.RecheckMax)
	f.late = f.lateClaims()
	f.lanes = newLanes(cfg.Lanes, cfg.LaneDepth, cfg.LaneTimeout, f.laneFailed)
	f.lanes.linger = cfg.MirrorLinger
	return f, nil
}

// Run does the background work until ctx ends: the lanes, the drain of the
// journal and of unmirrored tokens, the sweep of expired holds and marked
// claims, adjustments that were left open, re-checks of differences, and the
// assessment of readiness. It returns when all of it has stopped;
// what the lanes still hold then is run first, within LaneTimeout. Call it
// once; the facade can be used until Run returns.
func (f *Facade) Run(ctx context.Context) {
	var background sync.WaitGroup
	for _, loop := range []func(context.Context){f.drainLoop, f.sweepLoop, f.recheckLoop, f.adjustLoop, f.readinessLoop} {
		background.Go(func() { loop(ctx) })
	}
	f.lanes.run(ctx)
	background.Wait()
	f.calls.wait()
}

// calls are the goroutines of store calls whose callers may not wait for them.
// Each ends by its own deadline. A sync.WaitGroup would not do: callers may
// still come while Run waits.
type calls struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to zero; nil while nobody waits
}

func (c *calls) run(call func()) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	go func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.n--; c.n == 0 && c.idle != nil {
				close(c.idle)
				c.idle = nil
			}
		}()
		call()
	}()
}

// wait returns when no call is running.
func (c *calls) wait() {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	<-idle
}

// attempt is one try of one call, and what it may have taken.
type attempt struct {
	id                     holdover.Attempt
	token                  holdover.Token
	began                  time.Time
	askedRedis, askedMySQL bool // it may have taken units there
	unsureRedis            bool // a vote there had no answer, and may run yet
	unsureMySQL            bool
	epoch                  holdover.Epoch  // of its last vote
	lines                  []holdover.Line // what it asked for last; see place
	moves                  int
	first                  holdover.Epoch // at which the call began
	op                     holdover.Op    // zero: nothing that could be compared
	marks                  holdover.Marks
	noted                  atomic.Bool // handed over for comparing
}

func newAttempt(token holdover.Token) *attempt {
	return &attempt{id: holdover.Attempt(rand.Uint64() | 1), token: token, began: time.Now()}
}

func (a *attempt) ticket(v *view) holdover.Ticket {
	a.epoch = v.Epoch
	return holdover.Ticket{Epoch: v.Epoch, Attempt: a.id}
}

// call runs step in the agreed stage, and again in the new one whenever a store
// refuses its epoch. The stage is read once per turn and carried through.
func (f *Facade) call(ctx context.Context, a *attempt, step func(ctx context.Context, v *view) (holdover.Result, error)) (holdover.Result, error) {
	if err := ctx.Err(); err != nil {
		return holdover.Result{Decision: f.decision(f.view.Load(), holdover.StoreNone, "the caller had gone before the call began")}, err
	}
	v := f.view.Load()
	if v == nil {
		return holdover.Result{Decision: f.decision(nil, holdover.StoreNone, "no agreed stage yet")},
			fmt.Errorf("pod %s: %w: no fence has been read from either store yet", f.cfg.Pod, holdover.ErrNotReady)
	}
	// The caller's cancellation must not split a decision; its values stay.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.CallTimeout)
	defer cancel()
	a.first = v.Epoch
	res, last, err := f.turns(ctx, v, a, step)
	f.notBypassed(last.Stage, a, res.Replayed, err)
	return res, err
}

// turns ends with the view of the last one.
func (f *Facade) turns(ctx context.Context, v *view, a *attempt, step func(ctx context.Context, v *view) (holdover.Result, error)) (holdover.Result, *view, error) {
	for {
		res, err := step(ctx, v)
		if !errors.Is(err, holdover.ErrStale) {
			return res, v, err
		}
		f.stats.stale.Add(1)
		a.moves++
		if a.moves > f.cfg.MaxMoves {
			return holdover.Result{Decision: f.decision(v, holdover.StoreNone, "the agreement kept moving")}, v,
				fmt.Errorf("pod %s, hold %s: %w: the epoch moved %d times during one call: %w", f.cfg.Pod, a.token, holdover.ErrTryAgain, a.moves, err)
		}
		if a.moves > 1 { // the first follow-up is at once: that is the kill's case
			pause(ctx, time.Duration(rand.Int64N(int64(5*time.Millisecond)<<a.moves)))
		}
		moved, refreshErr := f.newer(ctx, v, err)
		if refreshErr != nil {
			return holdover.Result{Decision: f.decision(v, holdover.StoreNone, "the agreement moved and could not be read")}, v, refreshErr
		}
		v = moved
	}
}

func (f *Facade) decision(v *view, by holdover.Store, reason string) holdover.Decision {
	d := holdover.Decision{Pod: f.cfg.Pod, Store: by, Reason: reason}
	if v != nil {
		d.Stage, d.Epoch = v.Stage, v.Epoch
	}
	return d
}

// result builds the caller's answer.
func (f *Facade) result(v *view, by holdover.Store, h holdover.Hold, replayed bool, reason string) holdover.Result {
	return holdover.Result{Hold: h, Replayed: replayed, Decision: f.decision(v, by, reason)}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
