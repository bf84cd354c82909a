package dualwrite

import (
	"context"
	"errors"
	"slices"
	"time"

	"holdover"
)

// observation starts the record of one dual operation.
func (f *Facade) observation(v *view, a *attempt, op holdover.Op, r holdover.Request) holdover.Observation {
	o := holdover.Observation{
		Pod: f.cfg.Pod, Instance: f.cfg.Instance, Epoch: v.Epoch, Stage: v.Stage, Op: op,
		Shop: r.Shop, Token: r.Token, Lines: r.Lines, At: a.began,
	}
	if a.moves > 0 {
		o.Evidence = append(o.Evidence, holdover.EvidenceEpochMoved)
	}
	return o
}

// timed runs one store's part and records its time and outcome.
func timed[T any](answer *holdover.Answer, ask func() (T, error)) (T, error) {
	began := time.Now()
	got, err := ask()
	answer.Latency = time.Since(began)
	answer.Outcome = outcomeOf(err)
	if err != nil {
		answer.Err = err.Error()
	}
	var short *holdover.OutOfStockError
	if errors.As(err, &short) {
		for _, s := range short.Short {
			answer.Remaining = append(answer.Remaining, s.Left)
		}
	}
	if g, ok := any(got).(holdover.Grant); ok && err == nil {
		answer.State, answer.Remaining = g.Hold.State, g.Remaining
	}
	return got, err
}

// observe hands over a finished observation. The comparator can't harm the call.
func (f *Facade) observe(o holdover.Observation) {
	f.stats.observed.Add(1)
	if f.cfg.Observe == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			f.stats.observePanics.Add(1)
			f.log.Error("the comparator panicked", "token", o.Token, "panic", p)
		}
	}()
	f.cfg.Observe(o)
}

// observeDual observes an operation that begins in Redis in every stage, when
// the stage compares at all.
func (f *Facade) observeDual(v *view, o holdover.Observation) {
	if v.Stage.Dual() {
		f.noteMove(v, &o)
		f.observe(o)
	}
}

// noteAge records that Redis granted the hold before dual writing began.
func (v *view) noteAge(o *holdover.Observation, h holdover.Hold) {
	if !v.dualSince.IsZero() && !h.GrantedAt.IsZero() && h.GrantedAt.Before(v.dualSince) {
		o.Evidence = append(o.Evidence, holdover.EvidencePreShadow)
	}
}

// noteMove records that the agreement moved while the operation ran.
func (f *Facade) noteMove(v *view, o *holdover.Observation) {
	if now := f.view.Load(); now.Epoch != v.Epoch && !slices.Contains(o.Evidence, holdover.EvidenceEpochMoved) {
		o.Evidence = append(o.Evidence, holdover.EvidenceEpochMoved)
	}
}

// probeMySQL asks, by a read that locks nothing and off the buyer's path, what
// MySQL would have said to a request that Redis refused.
func (f *Facade) probeMySQL(v *view, o holdover.Observation, refusal error) {
	o.Reason = refusal.Error()
	f.probe(v, o, func(ctx context.Context) (bool, []int64, error) {
		stocks, err := f.mysql.Probe(ctx, o.Shop, itemsOf(o.Lines))
		enough, left := true, make([]int64, len(o.Lines))
		for i, line := range o.Lines {
			left[i], _ = freeOf(stocks, line)
			enough = enough && left[i] >= line.Quantity
		}
		return enough, left, err
	})
}

// probeRedis asks what Redis would have said to a request that MySQL refused.
func (f *Facade) probeRedis(v *view, o holdover.Observation, r holdover.Request) {
	f.probe(v, o, func(ctx context.Context) (bool, []int64, error) {
		items := itemsOf(r.Lines)
		counters, err := f.redis.Counters(ctx, r.Shop, items)
		if err != nil {
			return false, nil, err
		}
		want := make(map[int64]int64)
		for _, line := range r.Lines {
			want[line.Item] += line.Quantity
		}
		enough := true
		for i, item := range items {
			enough = enough && counters[i] >= want[item]
		}
		return enough, counters, nil
	})
}

// probe runs ask in the token's lane and records its answer in the observation.
func (f *Facade) probe(v *view, o holdover.Observation, ask func(ctx context.Context) (enough bool, left []int64, err error)) {
	answer := func() *holdover.Answer { // the side that was not asked for a vote
		if o.MySQL.Outcome == holdover.OutcomeNone {
			return &o.MySQL
		}
		return &o.Redis
	}()
	answer.Probe = true
	f.lanes.add(job{token: o.Token, epoch: v.Epoch, what: "probe a refusal",
		shed: func() { answer.Outcome = holdover.OutcomeShed; f.observe(o) },
		run: func(ctx context.Context) error {
			began := time.Now()
			enough, left, err := ask(ctx)
			answer.Latency = time.Since(began)
			if err != nil {
				return err
			}
			answer.Outcome, answer.Remaining = holdover.OutcomeRefused, left
			if enough {
				answer.Outcome = holdover.OutcomeGranted
			}
			if v.Stage == holdover.StageMySQL && enough {
				f.otherLocations(ctx, &o)
			}
			f.settle(v, o)
			return nil
		},
		failed: func(err error) {
			answer.Outcome, answer.Err = holdover.OutcomeError, err.Error()
			f.observe(o)
		},
	})
}

// recheck is a difference that may be nothing but lag: one store has the units
// of an end or a grant already, the other not yet.
type recheck struct {
	o     holdover.Observation
	tries int
	next  time.Time
	seen  []sides        // at the last look
	since time.Time      // since when it looks the same
	equal map[int64]bool // items seen equal in both stores
}

// settle observes equal answers at once, and so those that can't be compared;
// different ones after the re-check: lag is not divergence.
func (f *Facade) settle(v *view, o holdover.Observation) {
	f.noteMove(v, &o)
	answered := func(a holdover.Answer) bool {
		return a.Outcome == holdover.OutcomeGranted || a.Outcome == holdover.OutcomeRefused
	}
	if o.Redis.Outcome == o.MySQL.Outcome || !answered(o.Redis) || !answered(o.MySQL) || slices.Contains(o.Evidence, holdover.EvidenceOtherLocations) {
		f.observe(o)
		return
	}
	select {
	case f.rechecks <- recheck{o: o, next: time.Now().Add(f.cfg.RecheckEvery), equal: make(map[int64]bool)}:
	default:
		notCompared(&o, holdover.OutcomeShed, "too many differences are waiting for their re-check")
		f.observe(o)
	}
}

// notCompared takes the shadow's answer back: what it says is not known to be a
// difference.
func notCompared(o *holdover.Observation, outcome holdover.Outcome, why string) {
	shadow := &o.MySQL
	if o.Stage.Truth() == holdover.StoreMySQL {
		shadow = &o.Redis
	}
	shadow.Outcome, shadow.Err = outcome, why
}

// recheckLoop looks again at differences until both stores agree about each
// item at one moment, or the tries are used up.
func (f *Facade) recheckLoop(ctx context.Context) {
	var waiting []recheck
	take := func(r recheck) { waiting = append(waiting, r) }
	every(ctx, max(f.cfg.RecheckEvery/4, time.Millisecond), func() {
		for len(waiting) < f.cfg.RecheckMax {
			select {
			case r := <-f.rechecks:
				take(r)
				continue
			default:
			}
			break
		}
		now, still := time.Now(), waiting[:0]
		for _, r := range waiting {
			if now.Before(r.next) || !f.lookAgain(ctx, &r) {
				still = append(still, r)
			}
		}
		clear(waiting[len(still):])
		waiting = still
	})
	for { // what is left is told as it stands
		select {
		case r := <-f.rechecks:
			take(r)
			continue
		default:
		}
		break
	}
	for _, r := range waiting {
		notCompared(&r.o, holdover.OutcomeShed, "stopped before the re-check was over")
		f.observe(r.o)
	}
}

// lookAgain reports whether r is done, and observes it then. Three ways out: both
// stores agreed about each item at one moment, so it was lag; they stood still for
// LaneLag with no late mirror work anywhere, and differ, so it is a difference;
// or the tries are used up before either, so nothing can be said.
func (f *Facade) lookAgain(ctx context.Context, r *recheck) bool {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.LaneTimeout)
	defer cancel()
	r.tries++
	r.next = time.Now().Add(f.cfg.RecheckEvery)
	items := itemsOf(r.o.Lines)
	seen, err := f.bothSides(ctx, r.o.Shop, items)
	if err == nil {
		for i, item := range items {
			if seen[i].redis == seen[i].mysql {
				r.equal[item] = true
			}
		}
		if !slices.Equal(seen, r.seen) {
			r.seen, r.since = seen, time.Now()
		}
	}
	switch {
	case len(r.equal) == len(items):
		r.o.Evidence = append(r.o.Evidence, holdover.EvidenceLastUnits)
	case err == nil && time.Since(r.since) >= f.cfg.LaneLag && !f.lagging(ctx):
	case r.tries < f.cfg.RecheckTries:
		return false
	case err != nil:
		notCompared(&r.o, holdover.OutcomeError, "re-check failed: "+err.Error())
	default:
		notCompared(&r.o, holdover.OutcomeShed, "the stores never stood still during the re-check")
	}
	f.observe(r.o)
	return true
}

// lagging reports whether this or another live instance has mirror work that is
// late.
func (f *Facade) lagging(ctx context.Context) bool {
	if f.Busy() > 0 {
		return true
	}
	instances, err := f.redis.Instances(ctx, f.cfg.InstanceMaxAge)
	return err != nil || slices.ContainsFunc(instances, func(i holdover.Instance) bool { return i.Busy > 0 })
}

// sides are the units that each store still has of one item.
type sides struct{ redis, mysql int64 }

func (f *Facade) bothSides(ctx context.Context, shop int64, items []int64) ([]sides, error) {
	counters, err := f.redis.Counters(ctx, shop, items)
	if err != nil {
		return nil, err
	}
	stocks, err := f.mysql.Probe(ctx, shop, items)
	if err != nil {
		return nil, err
	}
	seen := make([]sides, len(items))
	for i, item := range items {
		_, all := freeOf(stocks, holdover.Line{Item: item})
		seen[i] = sides{redis: counters[i], mysql: all}
	}
	return seen, nil
}
