package dualwrite

import (
	"context"
	"errors"
	"time"

	"holdover"
)

// mirrorGrant carries a grant of Redis's into MySQL through the token's lane:
// the real pool reserve, with its own answer and its own time.
func (f *Facade) mirrorGrant(v *view, o record, g holdover.Grant) {
	v.noteAge(&o, g.Hold)
	lost := func(outcome holdover.Outcome, err error) { f.mirrorLost(v, o, outcome, err) }
	o.a.noted.Store(true)
	f.lanes.add(job{token: g.Hold.Token, epoch: v.Epoch, what: "mirror a grant to mysql", waits: v.Stage == holdover.StageShadow,
		shed: func() { lost(holdover.OutcomeShed, nil) },
		run: func(ctx context.Context) error {
			fact := g.Hold
			fact.State = holdover.StateHeld
			h, err := timed(&o.MySQL, func() (holdover.Hold, error) { return f.applyToMySQL(ctx, fact) })
			o.MySQL.Latency -= holdover.PatienceOf(ctx).Waited()
			switch {
			case isRefusal(err): // a debt: MySQL has no unit left for it
				f.keep(v, g.Hold.Token, unmirroredSince{debt: true})
				f.noteDebt(ctx, g.Hold)
				f.lookAfterRefusal(ctx, &o)
				f.settle(v, o)
				return nil
			case err != nil:
				return err
			case h.State != holdover.StateHeld:
				o.MySQL.Outcome, o.MySQL.Err = holdover.OutcomeShed, "the hold had ended before it was mirrored: "+h.State.String()
				f.cameLate(ctx, g.Hold.Token, holdover.StateHeld)
			}
			o.MySQL.State = h.State
			o.noteMove(f.view.Load().Epoch)
			f.observe(o)
			return nil
		},
		failed: func(err error) { lost(outcomeOf(err), err) },
	})
}

// mirrorEnd carries an end that Redis decided into MySQL.
func (f *Facade) mirrorEnd(v *view, o record, h holdover.Hold) {
	lost := func(outcome holdover.Outcome, err error) { f.mirrorLost(v, o, outcome, err) }
	o.a.noted.Store(true)
	f.lanes.add(job{token: h.Token, epoch: v.Epoch, what: "mirror an end to mysql", waits: v.Stage == holdover.StageShadow,
		shed: func() { lost(holdover.OutcomeShed, nil) },
		run: func(ctx context.Context) error {
			known, err := timed(&o.MySQL, func() (holdover.Hold, error) { return f.applyToMySQL(ctx, h) })
			o.MySQL.Latency -= holdover.PatienceOf(ctx).Waited()
			if err != nil {
				return err
			}
			o.MySQL.State = known.State
			if known.State == holdover.StateClaimed {
				o.MySQL.Outcome = holdover.OutcomeRefused
				f.log.Error("redis ended a hold that mysql knows as claimed", "token", h.Token, "redis", h.State)
			}
			if overtaken(h, known) {
				f.cameLate(ctx, h.Token, h.State)
			}
			if !h.Again || !known.Again {
				o.noteExpiry(h, known)
				o.noteMove(f.view.Load().Epoch)
				if f.noteMissed(ctx, &o, h, known) {
					f.observe(o)
				}
			}
			return nil
		},
		failed: func(err error) { lost(outcomeOf(err), err) },
	})
}

// remember keeps a token that the other store may not have: unmirrored.
func (f *Facade) remember(v *view, token holdover.Token) {
	f.keep(v, token, unmirroredSince{})
}

// rememberUnsure keeps a token that Redis may or may not have granted.
func (f *Facade) rememberUnsure(v *view, token holdover.Token) {
	f.keep(v, token, unmirroredSince{unsure: true, grant: true})
}

func (f *Facade) keep(v *view, token holdover.Token, e unmirroredSince) {
	if v.Stage.Dual() && !f.unmirrored.add(token, e) {
		f.stats.forgotten.Add(1)
	}
}

// drainLoop carries MySQL's journal into Redis and the unmirrored tokens into
// MySQL, until ctx ends.
func (f *Facade) drainLoop(ctx context.Context) {
	every(ctx, f.cfg.DrainEvery, func() {
		if f.view.Load() == nil {
			return
		}
		if err := f.DrainOnce(ctx); err != nil && ctx.Err() == nil && !silent(err) {
			f.log.Warn("drain stopped early", "err", err)
		}
	})
}

// DrainOnce makes one pass over the journal and the unmirrored tokens. It stops
// when a store gives no answer; what is left stays where it is.
func (f *Facade) DrainOnce(ctx context.Context) error {
	v := f.view.Load()
	if v == nil {
		return holdover.ErrNotReady
	}
	switch v.Stage {
	case holdover.StageRedis:
		f.unmirrored.clear() // MySQL is left alone, and builds up anew in shadow
	case holdover.StageMySQLOnly: // nothing is carried over; what MySQL took for nobody is given back
		f.unmirrored.clear()
		f.undos.forget(holdover.StoreRedis) // it may be gone, and is built up anew
		return f.drainUndos(ctx)
	}
	if !f.redisIsAway() {
		if err := f.drainJournal(ctx); err != nil {
			return err
		}
	}
	if err := f.drainUndos(ctx); err != nil {
		return err
	}
	f.followOwed(ctx, 0, nil)
	for _, token := range f.unmirrored.due(f.cfg.DrainBatch) {
		err := f.reconcile(ctx, token)
		if isRefusal(err) {
			f.unmirrored.again(token, true)
		} else if f.stops(err, "reconcile", token) {
			return err
		} else if err != nil {
			f.unmirrored.again(token, false)
		}
	}
	return nil
}

// stops reports whether a background pass ends with err: a store that gives no
// answer ends it, one bad token does not hold up the others.
func (f *Facade) stops(err error, what string, token holdover.Token) bool {
	if err == nil {
		return false
	}
	if silent(err) || errors.Is(err, holdover.ErrNoFence) || errors.Is(err, context.Canceled) {
		return true
	}
	f.stats.sweepErrors.Add(1)
	f.log.Error("one hold can't be carried over; the others go on", "what", what, "token", token, "err", err)
	return false
}

// drainJournal applies facts in their order and deletes only the version of the
// row that it applied (rule 17).
func (f *Facade) drainJournal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.LaneTimeout)
	defer cancel()
	rows, err := f.mysql.Journal(ctx, f.cfg.DrainBatch)
	if err != nil {
		return err
	}
	for _, row := range rows {
		err := f.carryJournaled(ctx, row.Hold)
		if f.stops(err, "drain the journal", row.Hold.Token) {
			return err
		}
		if err != nil {
			continue
		}
		if err := f.mysql.ClearJournal(ctx, row.Hold.Token, row.Version); err != nil {
			return err
		}
		f.stats.drained.Add(1)
	}
	return nil
}

// carryJournaled carries one fact into Redis. A grant is made firm in MySQL
// first: its call may have ended without an answer, and a give-back that comes
// after Redis has it would leave it in Redis alone.
func (f *Facade) carryJournaled(ctx context.Context, h holdover.Hold) error {
	if h.State == holdover.StateHeld && !h.Firm {
		firm, err := f.mysql.Apply(ctx, h)
		switch {
		case isRefusal(err): // given back since, and the units are somebody else's by now
			return nil
		case err != nil:
			return err
		}
		h = firm
	}
	if h.State == holdover.StateNone { // given back
		return nil
	}
	_, err := f.redis.Apply(ctx, h)
	if holdover.NoAnswer(err) {
		f.markRedisAway()
	}
	return err
}

// reconcile brings MySQL to where Redis is with one token. Redis decides ends
// in every dual stage, so what it knows is the fact.
func (f *Facade) reconcile(ctx context.Context, token holdover.Token) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.LaneTimeout)
	defer cancel()
	e := f.unmirrored.get(token)
	h, err := f.redis.Lookup(ctx, token)
	if err != nil {
		return err
	}
	if h.State == holdover.StateHeld && e.kept {
		if err := f.mysql.NoteLate(ctx, token, holdover.StateHeld); err != nil {
			return err
		}
		f.unmirrored.remove(token, e.version)
		return nil
	}
	if h.State == holdover.StateHeld && !h.Firm && e.unsure {
		f.unmirrored.again(token, false) // until its give-back window has passed
		return nil
	}
	known := h
	switch h.State {
	case holdover.StateNone, holdover.StateClaimed, holdover.StateClaiming:
		// Nothing was granted, or the claim itself writes the ledger.
		known.Again = h.State != holdover.StateNone
	case holdover.StateHeld, holdover.StateReleased, holdover.StateExpired:
		if known, err = f.applyToMySQL(ctx, h); err != nil {
			if isRefusal(err) && !e.debt {
				f.noteDebt(ctx, h)
			}
			return err
		}
	}
	if late := lateFacts(e.grant, h, known); len(late) > 0 {
		if err := f.mysql.NoteLate(ctx, token, late...); err != nil {
			return err // it stays, so that it is noted the next time
		}
	}
	f.unmirrored.remove(token, e.version)
	f.stats.reconciled.Add(1)
	return nil
}

// every runs step at once and then each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, step func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		step()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// freeOf counts what the pool could still give for the line: at its location,
// and at all locations of its item.
func freeOf(stocks []holdover.Stock, line holdover.Line) (here, all int64) {
	for _, s := range stocks {
		if s.Item != line.Item {
			continue
		}
		all += s.Free()
		if s.Group == line.Group {
			here = s.Free()
		}
	}
	return here, all
}

func itemsOf(lines []holdover.Line) []int64 {
	var items []int64
	for _, line := range lines {
		if n := len(items); n == 0 || items[n-1] != line.Item {
			items = append(items, line.Item)
		}
	}
	return items
}
