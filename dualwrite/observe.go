package dualwrite

import (
	"context"
	"errors"
	"time"

	"holdover"
)

// record is one dual operation on its way to the comparator.
type record struct {
	holdover.Observation
	a       *attempt
	touched uint64 // of its items, when the first answer had come; see touches
}

// observation starts the record of one dual operation.
func (f *Facade) observation(v *view, a *attempt, op holdover.Op, r holdover.Request) record {
	if a.first == 0 {
		a.first = v.Epoch
	}
	a.op = op
	o := record{a: a, Observation: holdover.Observation{
		Pod: f.cfg.Pod, Instance: f.cfg.Instance, Epoch: v.Epoch, Stage: v.Stage, Op: op,
		Shop: r.Shop, Token: r.Token, Lines: r.Lines, At: a.began, Marks: a.marks,
	}}
	if o.Token == (holdover.Token{}) {
		o.Token = a.token
	}
	for _, c := range r.Choices {
		o.Marks |= holdover.MarkChoice
		if c.Split {
			o.Marks |= holdover.MarkSplit
		}
	}
	o.noteMove(v.Epoch)
	return o
}

// asked notes what a reserve asked for last, when its first answer has come.
func (f *Facade) asked(o *record, lines []holdover.Line) {
	o.Lines = lines
	o.touched = f.touched.sum(o.Shop, lines)
}

// repeated marks an operation that found what it wanted done.
func (o *record) repeated(again bool) {
	if again {
		o.Marks |= holdover.MarkReplayed
	}
}

// timed runs one store's part and records its time and outcome.
func timed[T any](answer *holdover.Answer, ask func() (T, error)) (T, error) {
	began := time.Now()
	got, err := ask()
	answer.Latency = time.Since(began)
	answer.Outcome = outcomeOf(err)
	if err != nil {
		answer.Err = err.Error()
		var short *holdover.OutOfStockError
		if errors.As(err, &short) {
			for _, s := range short.Short {
				answer.Remaining = append(answer.Remaining, s.Left)
			}
		}
	}
	if g, ok := any(got).(holdover.Grant); ok && err == nil {
		answer.State, answer.Remaining = g.Hold.State, g.Remaining
	}
	return got, err
}

// observe hands over a finished observation. The comparator can't harm the call.
func (f *Facade) observe(o record) {
	o.a.noted.Store(true)
	f.touched.add(o.Shop, o.Lines)
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
	f.cfg.Observe(o.Observation)
}

// observeDual observes an operation that begins in Redis in every stage, when
// the stage compares at all.
func (f *Facade) observeDual(v *view, o record) {
	if v.Stage.Dual() {
		o.noteMove(f.view.Load().Epoch)
		f.observe(o)
	}
}

// notBypassed counts a call that ends in a dual stage and was handed to nobody
// for comparing, though it was no caller's mistake and no repeat of what was
// done: it belongs into the denominator of coverage.
func (f *Facade) notBypassed(stage holdover.Stage, a *attempt, repeated bool, err error) {
	if stage.Dual() && a.op != 0 && !a.noted.Load() && !repeated && !callersMistake(err) {
		f.stats.bypassed.Add(1)
	}
}

// callersMistake: the answer is about the call, not about the stores.
func callersMistake(err error) bool {
	return errors.Is(err, holdover.ErrInvalid) || errors.Is(err, holdover.ErrTokenReused) || errors.Is(err, holdover.ErrUnknownHold) ||
		errors.Is(err, holdover.ErrEnded) || errors.Is(err, holdover.ErrAlreadyClaimed) || errors.Is(err, holdover.ErrClaimPending)
}

// probeMySQL asks, by a read that locks nothing and off the buyer's path, what
// MySQL would have said to a request that Redis refused.
func (f *Facade) probeMySQL(v *view, o record, refusal error) {
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
func (f *Facade) probeRedis(v *view, o record, r holdover.Request) {
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
func (f *Facade) probe(v *view, o record, ask func(ctx context.Context) (enough bool, left []int64, err error)) {
	answer := func() *holdover.Answer { // the side that was not asked for a vote
		if o.MySQL.Outcome == holdover.OutcomeNone {
			return &o.MySQL
		}
		return &o.Redis
	}()
	answer.Probe = true
	o.a.noted.Store(true)
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
				f.lookAfterRefusal(ctx, &o)
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
