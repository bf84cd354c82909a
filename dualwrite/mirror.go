package dualwrite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"holdover"
)

// mirrorGrant carries a grant of Redis's into MySQL through the token's lane:
// the real pool reserve, with its own answer and its own time.
func (f *Facade) mirrorGrant(v *view, o holdover.Observation, g holdover.Grant) {
	v.noteAge(&o, g.Hold)
	lost := func(outcome holdover.Outcome, err error) {
		o.MySQL.Outcome = outcome
		if err != nil {
			o.MySQL.Err = err.Error()
		}
		o.Evidence = append(o.Evidence, holdover.EvidenceMirrorLost)
		f.observe(o)
		f.remember(v, g.Hold.Token)
	}
	f.lanes.add(job{token: g.Hold.Token, epoch: v.Epoch, what: "mirror a grant to mysql",
		shed: func() { lost(holdover.OutcomeShed, nil) },
		run: func(ctx context.Context) error {
			fact := g.Hold
			fact.State = holdover.StateHeld
			h, err := timed(&o.MySQL, func() (holdover.Hold, error) { return f.applyToMySQL(ctx, fact) })
			switch {
			case isRefusal(err): // a debt: MySQL has no unit left for it
				f.keep(v, g.Hold.Token, unmirroredSince{debt: true})
				f.otherLocations(ctx, &o)
				f.settle(v, o)
				return nil
			case err != nil:
				return err
			case h.State != holdover.StateHeld:
				o.MySQL.Outcome, o.MySQL.Err = holdover.OutcomeShed, "the hold had ended before it was mirrored: "+h.State.String()
			}
			o.MySQL.State = h.State
			f.noteMove(v, &o)
			f.observe(o)
			return nil
		},
		failed: func(err error) { lost(outcomeOf(err), err) },
	})
}

// mirrorEnd carries an end that Redis decided into MySQL.
func (f *Facade) mirrorEnd(v *view, o holdover.Observation, h holdover.Hold) {
	f.lanes.add(job{token: h.Token, epoch: v.Epoch, what: "mirror an end to mysql",
		shed: func() {
			o.MySQL.Outcome = holdover.OutcomeShed
			o.Evidence = append(o.Evidence, holdover.EvidenceMirrorLost)
			f.observe(o)
			f.remember(v, h.Token)
		},
		run: func(ctx context.Context) error {
			known, err := timed(&o.MySQL, func() (holdover.Hold, error) { return f.applyToMySQL(ctx, h) })
			if err != nil {
				return err
			}
			o.MySQL.State = known.State
			if known.State == holdover.StateClaimed {
				o.MySQL.Outcome = holdover.OutcomeRefused
				f.log.Error("redis ended a hold that mysql knows as claimed", "token", h.Token, "redis", h.State)
			}
			if !h.Again || !known.Again {
				f.noteMove(v, &o)
				f.observe(o)
			}
			return nil
		},
		failed: func(err error) {
			o.MySQL.Outcome, o.MySQL.Err = outcomeOf(err), err.Error()
			o.Evidence = append(o.Evidence, holdover.EvidenceMirrorLost)
			f.observe(o)
			f.remember(v, h.Token)
		},
	})
}

// remember keeps a token that the other store may not have: unmirrored.
func (f *Facade) remember(v *view, token holdover.Token) {
	f.keep(v, token, unmirroredSince{})
}

// rememberUnsure keeps a token that Redis may or may not have granted.
func (f *Facade) rememberUnsure(v *view, token holdover.Token) {
	f.keep(v, token, unmirroredSince{unsure: true})
}

func (f *Facade) keep(v *view, token holdover.Token, e unmirroredSince) {
	if v.Stage.Dual() && !f.unmirrored.add(token, e) {
		f.stats.forgotten.Add(1)
	}
}

// unmirrored remembers, in memory and bounded, the tokens whose mirror work was
// dropped or failed while Redis decides. (In mysql it is MySQL's journal.)
type unmirrored struct {
	mu     sync.Mutex
	max    int
	tokens map[holdover.Token]unmirroredSince
}

type unmirroredSince struct {
	since time.Time
	next  time.Time // not tried before
	tries int
	debt  bool
	// unsure: nobody was told of a grant. While it is tentative in Redis its own
	// attempt may give it back, and it is no fact that MySQL could be told.
	unsure  bool
	version uint64 // counts what happened to the token since it is here
}

// debtPause is the longest pause between two tries of a debt: units come back
// when holds end, not when somebody asks more often.
const debtPause = 5 * time.Second

// again puts off the next try.
func (u *unmirrored) again(token holdover.Token, debt bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e, known := u.tokens[token]; known {
		e.debt = debt
		e.next = time.Now().Add(min(debtPause, 100*time.Millisecond<<min(e.tries, 10)))
		e.tries++
		u.tokens[token] = e
	}
}

func newUnmirrored(limit int) *unmirrored {
	return &unmirrored{max: limit, tokens: make(map[holdover.Token]unmirroredSince)}
}

func (u *unmirrored) add(token holdover.Token, e unmirroredSince) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	old, known := u.tokens[token]
	if !known && len(u.tokens) >= u.max {
		return false
	}
	if known {
		e.unsure = e.unsure && old.unsure // what a buyer was told since is certain
		e.since, e.next, e.tries, e.version = old.since, old.next, old.tries, old.version+1
	} else {
		e.since = time.Now()
	}
	u.tokens[token] = e
	return true
}

func (u *unmirrored) get(token holdover.Token) unmirroredSince {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.tokens[token]
}

// remove forgets a token, unless something newer happened to it meanwhile.
func (u *unmirrored) remove(token holdover.Token, version uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tokens[token].version == version {
		delete(u.tokens, token)
	}
}

func (u *unmirrored) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.tokens)
}

// oldest returns up to n tokens whose next try is due, oldest first.
func (u *unmirrored) oldest(n int) []holdover.Token {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]holdover.Token, 0, len(u.tokens))
	now := time.Now()
	for token, e := range u.tokens {
		if !now.Before(e.next) {
			all = append(all, token)
		}
	}
	slices.SortFunc(all, func(a, b holdover.Token) int { return u.tokens[a].since.Compare(u.tokens[b].since) })
	return all[:min(n, len(all))]
}

func (u *unmirrored) size() (tokens, debts int, oldest time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.tokens {
		if e.debt {
			debts++
		} else {
			tokens++
		}
		oldest = max(oldest, time.Since(e.since))
	}
	return tokens, debts, oldest
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
	for _, token := range f.unmirrored.oldest(f.cfg.DrainBatch) {
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
	if h.State == holdover.StateHeld && !h.Firm && e.unsure {
		f.unmirrored.again(token, false) // until its give-back window has passed
		return nil
	}
	switch h.State {
	case holdover.StateNone, holdover.StateClaimed, holdover.StateClaiming:
		// Nothing was granted, or the claim itself writes the ledger.
	case holdover.StateHeld, holdover.StateReleased, holdover.StateExpired:
		if _, err := f.applyToMySQL(ctx, h); err != nil {
			return err
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

// otherLocations records that MySQL has the units, but at other locations of
// the item: Redis's one counter can't tell.
func (f *Facade) otherLocations(ctx context.Context, o *holdover.Observation) {
	stocks, err := f.mysql.Probe(ctx, o.Shop, itemsOf(o.Lines))
	if err != nil {
		return
	}
	for _, line := range o.Lines {
		here, all := freeOf(stocks, line)
		if here < line.Quantity && all >= line.Quantity {
			o.Evidence = append(o.Evidence, holdover.EvidenceOtherLocations)
			return
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
