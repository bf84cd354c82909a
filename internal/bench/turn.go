package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"holdover"
)

// setting is what a way is opened with.
type setting struct {
	conns int     // connections to MySQL, for ways that can choose
	stock []int64 // units of items 1..len(stock)
	cap   int64   // unit rows of an item
	held  *holdTime

	preload int64 // holds of the first item that are live beforehand; holdover only

	proxy, redisProxy string // addresses to use instead of the servers' own
}

// load is what callers do in a turn: a closed loop, in which each asks again as
// soon as it has its answer, or with a rate an open one, in which calls begin at
// times fixed beforehand and latency is counted from there.
type load struct {
	clients int
	rate    float64       // calls a second of an open loop; zero: closed
	warm    time.Duration // not measured
	measure time.Duration // zero: until every caller has stopped by itself
	calls   int           // a caller stops after so many; zero: none does
	refused int           // a caller stops after so many refusals
	claim   bool          // every grant is claimed, and the pair is what is measured
	pick    func(rng *rand.Rand, c *call)
}

// sample is one way's turn.
type sample struct {
	seconds float64 // measured
	ops     int64   // granted in the measured time
	latency histogram
	holdS   float64 // connections taken in the measured time

	granted, refused, failed      int64 // in the whole turn, as callers were told
	attempts, conflicts, timeouts int64
	failure                       error // one of the failures, for the message
	conns, redisConns             int64
	counted                       counted // by the server, in the whole turn
	falseSoldOut, oversold, lost  int64
	ledgerOff                     int64
}

func (s *sample) opsPerS() float64 { return float64(s.ops) / s.seconds }

// worker is one caller. What it counts is its own until the turn is over.
type worker struct {
	call
	rng     *rand.Rand
	latency histogram
	ops     int64
	told    told
	refused int64
	failed  int64
	failure error
}

// maxRefusals bounds what a caller remembers; it stops there in any case.
const maxRefusals = 2000

// session is a way that is open, with what callers were told since then.
type session struct {
	run    *run
	way    way
	set    setting
	began  time.Time
	told   told
	before counted
	watch  func() (mysql, redis int64, err error)
	whole  sample // sums over the session's phases
}

// opener opens a way for one turn, with its stock filled in from nothing.
type opener func(ctx context.Context, s *servers, set setting) (way, error)

// turn opens the way on empty stores, runs the load, and counts in the stores.
func (r *run) turn(open opener, set setting, l load) (one sample, err error) {
	whole, err := r.session(open, set, func(s *session) error {
		one, err = s.drive(l)
		return err
	})
	one.takeCounts(whole)
	return one, err
}

// session opens the way on empty stores, has phases use it, closes it, and
// counts in the stores. The sample has the counts of all phases.
func (r *run) session(open opener, set setting, phases func(*session) error) (_ sample, err error) {
	ctx := r.ctx
	if err := r.servers.empty(ctx); err != nil {
		return sample{}, err
	}
	redisBefore, err := r.servers.redisConnections(ctx)
	if err != nil {
		return sample{}, err
	}
	set.held = new(holdTime)
	w, err := open(ctx, r.servers, set)
	if err != nil {
		return sample{}, err
	}
	s := &session{run: r, way: w, set: set, began: time.Now(), told: newTold(len(set.stock))}
	running := true
	defer func() {
		if running {
			err = errors.Join(err, w.close())
		}
	}()
	if s.before, err = r.servers.counters(ctx); err != nil {
		return sample{}, err
	}
	s.watch = r.servers.watch(ctx, redisBefore)
	err = phases(s)
	var watchErr error
	s.whole.conns, s.whole.redisConns, watchErr = s.watch()
	if err = cmpErr(err, watchErr); err != nil {
		return s.whole, err
	}
	after, err := r.servers.counters(ctx)
	if err != nil {
		return s.whole, err
	}
	s.whole.counted = counted{after.deadlocks - s.before.deadlocks, after.waits - s.before.waits}
	if c, ok := w.(interface {
		ownCounts() (retries, conflicts int64)
	}); ok {
		retries, conflicts := c.ownCounts()
		s.whole.attempts += retries
		s.whole.conflicts += conflicts
	}
	running = false // nothing may run while it is counted
	if err := w.close(); err != nil {
		return s.whole, err
	}
	return s.whole, s.judge()
}

// judge compares what callers were told with what the stores have.
func (s *session) judge() error {
	stands, err := s.way.count(s.run.ctx)
	if err != nil {
		return err
	}
	s.whole.falseSoldOut, s.whole.oversold = falseSoldOut(s.told, stands), oversold(s.set.stock, s.told, stands)
	s.whole.lost = lostHolds(s.told, stands)
	if s.told.claims && s.whole.failed == 0 {
		s.whole.ledgerOff = wrongLedger(s.told, stands)
	}
	return nil
}

// takeCounts takes over the counts of a whole session, and keeps what was
// measured in a phase.
func (s *sample) takeCounts(whole sample) {
	seconds, ops, latency, holdS := s.seconds, s.ops, s.latency, s.holdS
	*s = whole
	s.seconds, s.ops, s.latency, s.holdS = seconds, ops, latency, holdS
}

// drive runs the load to its end, when every caller has its last answer.
func (s *session) drive(l load) (sample, error) {
	ctx := s.run.ctx
	s.run.seed++
	workers := make([]*worker, l.clients)
	for i := range workers {
		workers[i] = &worker{
			call: call{worker: i, reply: make(chan reply, 1)},
			rng:  rand.New(rand.NewPCG(s.run.seed, uint64(i))),
			told: newTold(len(s.set.stock)),
		}
	}
	started := time.Since(s.began) + l.warm
	t := &turnTimes{began: s.began, from: int64(started)}
	if l.rate > 0 {
		t.arrivals = make(chan time.Duration, l.clients)
	}
	t.to.Store(1 << 62)
	var running sync.WaitGroup
	done := make(chan struct{})
	for _, wk := range workers {
		running.Go(func() { wk.work(ctx, s.way, l, t) })
	}
	if l.rate > 0 {
		running.Go(func() { t.pace(ctx, newOpenLoop(s.run.seed, l.rate)) })
	}
	go func() { running.Wait(); close(done) }()
	waitFor(ctx, l.warm, done)
	heldBefore := s.held()
	if l.measure > 0 {
		waitFor(ctx, l.measure, done)
	} else {
		<-done
	}
	ended := time.Since(s.began)
	holdS := (s.held() - heldBefore).Seconds()
	t.to.Store(int64(ended))
	t.stop.Store(true)
	<-done
	one := s.gather(workers)
	one.seconds, one.holdS = max((ended-started).Seconds(), 1e-9), holdS
	return one, context.Cause(ctx)
}

// turnTimes tell the callers when they are measured and when to stop.
type turnTimes struct {
	began time.Time
	from  int64 // ns after began
	to    atomic.Int64
	stop  atomic.Bool

	arrivals chan time.Duration // of an open loop: when calls were meant to begin; else nil
}

// pace sends the arrivals of an open loop until the turn stops, and then ends
// the callers.
func (t *turnTimes) pace(ctx context.Context, loop *openLoop) {
	defer close(t.arrivals)
	from := time.Since(t.began)
	pace(ctx, t.began, func() (time.Duration, bool) { return from + loop.next(), !t.stop.Load() }, func(at time.Duration) bool {
		select {
		case t.arrivals <- at: // the callers take what is queued to the end
			return true
		case <-ctx.Done():
			return false
		}
	})
}

// begins is when the caller's next call begins.
func (t *turnTimes) begins() (at time.Duration, ok bool) {
	if t.arrivals == nil {
		return time.Since(t.began), true
	}
	at, ok = <-t.arrivals
	return at, ok
}

// held is how long connections were taken for the way's calls until now.
func (s *session) held() time.Duration {
	if own, ok := s.way.(interface{ held() time.Duration }); ok {
		return own.held()
	}
	return s.set.held.total()
}

// waitFor waits for d, for the callers' end, or for ctx, whichever is first.
func waitFor(ctx context.Context, d time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	case <-ctx.Done():
	}
}

// gather adds up what the callers have counted, for the phase and for the
// session.
func (s *session) gather(workers []*worker) (one sample) {
	for _, wk := range workers {
		one.ops += wk.ops
		one.latency.merge(&wk.latency)
		one.granted += wk.told.calls
		one.refused += wk.refused
		one.failed += wk.failed
		one.attempts += wk.attempts
		one.conflicts += wk.conflicts
		one.timeouts += wk.timeouts
		if one.failure == nil {
			one.failure = wk.failure
		}
		s.told.merge(wk.told)
	}
	s.whole.granted += one.granted
	s.whole.refused += one.refused
	s.whole.failed += one.failed
	s.whole.attempts += one.attempts
	s.whole.conflicts += one.conflicts
	s.whole.timeouts += one.timeouts
	if s.whole.failure == nil {
		s.whole.failure = one.failure
	}
	return one
}

func (wk *worker) work(ctx context.Context, w way, l load, t *turnTimes) {
	calls := context.WithoutCancel(ctx) // the driver needs no goroutine to watch it; ReadTimeout bounds a call
	claims, _ := w.(claimer)
	wk.told.claims = l.claim
	for n := 0; (t.arrivals != nil || !t.stop.Load()) && ctx.Err() == nil && (l.calls == 0 || n < l.calls); n++ {
		wk.token = randomToken(wk.rng)
		l.pick(wk.rng, &wk.call)
		start, ok := t.begins()
		if !ok {
			return
		}
		granted, err := w.reserve(calls, &wk.call)
		if granted {
			wk.granted(int64(start))
			if l.claim {
				if err = claims.claim(calls, &wk.call); err == nil {
					for _, line := range wk.lines {
						wk.told.claimed[line.Item-1] += line.Quantity
					}
				}
			}
		}
		end := time.Since(t.began)
		switch {
		case err != nil:
			wk.failed++
			wk.failure = err
			// A way that fails at once must not spin.
			_ = pause(ctx, time.Millisecond)
			continue
		case !granted:
			wk.refuse(int64(end))
		case int64(end) >= t.from && int64(end) <= t.to.Load():
			wk.ops++ // by its end: a rate says what was done meanwhile
		}
		if int64(start) >= t.from && int64(start) <= t.to.Load() {
			wk.latency.add(end - start) // by its beginning: a long call is in it too, to its end
		}
		if l.refused > 0 && wk.refused >= int64(l.refused) || wk.refused >= maxRefusals {
			return
		}
	}
}

func (wk *worker) granted(start int64) {
	wk.told.calls++
	for _, line := range wk.lines {
		wk.told.units[line.Item-1] += line.Quantity
		wk.told.lastStart[line.Item-1] = start
	}
}

func (wk *worker) refuse(at int64) {
	wk.refused++
	r := refusal{item: several, at: at}
	if len(wk.lines) == 1 {
		r.item, r.quantity = int(wk.line().Item-1), wk.line().Quantity
	}
	wk.told.refusals = append(wk.told.refusals, r)
}

// randomToken is as random as a UUID: where it lands in an index is what it
// would be in a shop. crypto/rand would cost more than some of the calls.
func randomToken(rng *rand.Rand) (t holdover.Token) {
	a, b := rng.Uint64(), rng.Uint64()
	for i := range 8 {
		t[i], t[8+i] = byte(a>>(8*i)), byte(b>>(8*i))
	}
	t[6], t[8] = t[6]&0x0f|0x40, t[8]&0x3f|0x80
	return t
}

// oneUnit asks for one unit of any of the items, all equally wanted.
func oneUnit(items int) func(*rand.Rand, *call) {
	return func(rng *rand.Rand, c *call) {
		c.lines = append(c.lines[:0], holdover.Line{Item: 1 + rng.Int64N(int64(items)), Group: 1, Quantity: 1})
	}
}
