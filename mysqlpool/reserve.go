package mysqlpool

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"holdover"
)

// wanted is a hold that somebody asks for: a vote, or a fact that is carried.
type wanted struct {
	op      string
	epoch   holdover.Epoch
	attempt holdover.Attempt
	token   holdover.Token
	shop    int64
	lines   []holdover.Line // normalized
	fact    bool            // firm, with the times of the store that granted it
	journal bool

	ttl              time.Duration // of a vote
	expires, granted time.Time     // of a fact

	short []holdover.Line // what the pool could not give, the last time it was asked
}

// hold is what is written once the units are there; now is the server's clock.
func (w *wanted) hold(now time.Time) holdover.Hold {
	h := holdover.Hold{
		Token: w.token, Shop: w.shop, Lines: w.lines, State: holdover.StateHeld,
		GrantedAt: rounded(now), ExpiresAt: rounded(now.Add(w.ttl)), Attempt: w.attempt,
		Firm: w.fact || w.journal, // a journaled grant is carried into Redis: no give-back may undo it here only
	}
	if w.fact {
		h.ExpiresAt = rounded(w.expires)
		if !w.granted.IsZero() {
			h.GrantedAt = rounded(w.granted)
		}
	}
	return h
}

// Vote takes units under t.Epoch; with journal it records in the same
// transaction that Redis does not know. Refusals: *OutOfStockError (only when
// the ledger says so), ErrTokenReused, *EndedError, ErrAlreadyClaimed,
// ErrNotLoaded, ErrTryAgain (an item is overbooked: a replay is not confirmed).
func (s *Store) Vote(ctx context.Context, t holdover.Ticket, r holdover.Request, journal bool) (holdover.Grant, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.reserve(ctx, &wanted{
		op: "vote", epoch: t.Epoch, attempt: t.Attempt, token: r.Token, shop: r.Shop, lines: r.Lines, ttl: r.TTL, journal: journal,
	})
}

// poolRounds is how often the pool is asked, with a refill in between, before
// the item's lock is taken.
const poolRounds = 3

// reserve is the data path. The pool answers first, skipping what others have
// locked. A short answer is not "sold out": the ledger is asked, in one
// snapshot, and refuses only when it has too little; else the pool is refilled
// and asked again, and in the end the item's own lock decides.
func (s *Store) reserve(ctx context.Context, w *wanted) (holdover.Grant, error) {
	if err := s.valid(w); err != nil {
		return holdover.Grant{}, err
	}
	keys := keysOf(w.lines)
	s.demand.note(w.shop, keys)
	oversized := slices.ContainsFunc(w.lines, func(l holdover.Line) bool { return l.Quantity > s.cfg.PoolCap })
	for round := 0; ; round++ {
		var h holdover.Hold
		var err error
		if oversized || round >= poolRounds {
			h, err = s.reserveUnderLock(ctx, w, keys)
		} else {
			h, err = s.reserveFromPool(ctx, w, keys)
		}
		switch {
		case err == nil:
			s.stats.grants.Add(1)
			return holdover.Grant{Hold: h}, nil
		case errors.Is(err, errTaken):
			g, err := s.replay(ctx, w)
			if errors.Is(err, errChanged) {
				continue // given back in the meantime: the token is free again
			}
			return g, err
		case errors.Is(err, errNoPool):
			if err := s.ensurePools(ctx, w.op, w.shop, keys); err != nil {
				return holdover.Grant{}, err
			}
			continue
		case errors.Is(err, errShort):
			if err := s.refillShort(ctx, w); err != nil {
				return holdover.Grant{}, err
			}
			continue
		}
		if is(err, holdover.ErrOutOfStock, holdover.ErrNotLoaded) {
			// The token may stand for a hold all the same: another call with it took the
			// last units, or it has other lines. Look after the refusal: what was granted
			// before it is seen.
			known, lookErr := s.look(ctx, w.token)
			if lookErr != nil {
				return holdover.Grant{}, lookErr
			}
			if known.State != holdover.StateNone {
				g, err := s.replay(ctx, w)
				if errors.Is(err, errChanged) {
					continue
				}
				return g, err
			}
			if errors.Is(err, holdover.ErrOutOfStock) {
				s.stats.refusals.Add(1)
			}
		}
		return holdover.Grant{}, err
	}
}

func (s *Store) valid(w *wanted) error {
	switch {
	case w.token == holdover.Token{} || w.shop <= 0:
		return &holdover.InvalidError{Field: "hold", Value: w.token.String(), Problem: "needs a token and a shop"}
	case len(w.lines) == 0 || len(w.lines) > s.cfg.MaxLines:
		return &holdover.InvalidError{Field: "lines", Problem: "must be there, and no more than max_lines"}
	}
	for i, l := range w.lines {
		if l.Item <= 0 || l.Group <= 0 || l.Quantity <= 0 {
			return &holdover.InvalidError{Field: "lines", Problem: "need positive item, group and quantity"}
		}
		if i > 0 {
			p := w.lines[i-1]
			if p.Item > l.Item || p.Item == l.Item && p.Group >= l.Group {
				return &holdover.InvalidError{Field: "lines", Problem: "must be normalized: by item and group, each once"}
			}
		}
	}
	return nil
}

// reserveFromPool takes rows that nobody has locked. It never waits for
// another buyer, and takes no lock that a refill needs.
func (s *Store) reserveFromPool(ctx context.Context, w *wanted, keys []key) (h holdover.Hold, err error) {
	wants := make([]want, len(w.lines))
	for i, l := range w.lines {
		wants[i] = want{keyOf(l), l.Quantity}
	}
	err = s.transact(ctx, s.main, w.op, w.token, func(ctx context.Context, t *tx) error {
		if err := t.checkFence(ctx, w.epoch); err != nil {
			return err
		}
		units, now, err := t.grab(ctx, w.shop, wants, true)
		if err != nil {
			return err
		}
		if w.short = missing(w.lines, units); len(w.short) > 0 {
			s.stats.short.Add(1)
			if err := t.refusal(ctx, w, keys); err != nil {
				return err
			}
			return errShort
		}
		h = w.hold(now)
		return t.take(ctx, w, h, units)
	})
	return h, err
}

// reserveUnderLock decides with the items' own locks: headroom goes straight
// from the ledger into the hold, and rows of the pool that others have locked
// are waited for, because they may roll back. Holders of unit locks never wait
// for pool_state, so there is no cycle. What is short here is sold out.
func (s *Store) reserveUnderLock(ctx context.Context, w *wanted, keys []key) (h holdover.Hold, err error) {
	s.stats.decisive.Add(1)
	err = s.transact(ctx, s.main, w.op, w.token, func(ctx context.Context, t *tx) error {
		if err := t.checkFence(ctx, w.epoch); err != nil {
			return err
		}
		pools, now, err := t.lockPools(ctx, w.shop, keys)
		if err != nil {
			return err
		}
		available, err := t.lockLedger(ctx, w.shop, keys)
		if err != nil {
			return err
		}
		var wants []want
		var direct []holdover.Line
		for _, l := range w.lines {
			k := keyOf(l)
			if _, ok := available[k]; !ok {
				return s.notLoaded(w.shop, k)
			}
			pool, ok := pools[k]
			if !ok {
				return errNoPool
			}
			fromLedger := min(l.Quantity, max(0, available[k]-pool.issued))
			if fromLedger > 0 {
				direct = append(direct, holdover.Line{Item: l.Item, Group: l.Group, Quantity: fromLedger})
			}
			if rest := l.Quantity - fromLedger; rest > 0 {
				wants = append(wants, want{k, rest})
			}
		}
		units, _, err := t.grab(ctx, w.shop, wants, false)
		if err != nil {
			return err
		}
		if short := shortage(w.lines, wants, units); len(short) > 0 {
			return &holdover.OutOfStockError{Store: holdover.StoreMySQL, Shop: w.shop, Short: short}
		}
		if err := t.moveIssued(ctx, w.shop, direct, 1); err != nil {
			return err
		}
		h = w.hold(now.Time)
		return t.take(ctx, w, h, units)
	})
	return h, err
}

// missing lists the lines that got fewer units than they want.
func missing(lines []holdover.Line, units []unit) (short []holdover.Line) {
	got := count(units)
	for _, l := range lines {
		if got[keyOf(l)] < l.Quantity {
			short = append(short, l)
		}
	}
	return short
}

func count(units []unit) map[key]int64 {
	got := make(map[key]int64)
	for _, u := range units {
		got[u.key]++
	}
	return got
}

// shortage lists the lines whose wants were not met, with what is left of them.
func shortage(lines []holdover.Line, wants []want, units []unit) []holdover.Shortage {
	got := count(units)
	var short []holdover.Shortage
	for _, w := range wants {
		if got[w.key] < w.n {
			i := slices.IndexFunc(lines, func(l holdover.Line) bool { return keyOf(l) == w.key })
			q := lines[i].Quantity
			short = append(short, holdover.Shortage{Item: w.item, Group: w.group, Want: q, Left: q - w.n + got[w.key]})
		}
	}
	return short
}

// grab locks up to n units of each key, in key order.
func (t *tx) grab(ctx context.Context, shop int64, wants []want, skipLocked bool) (units []unit, now time.Time, err error) {
	for chunk := range slices.Chunk(wants, maxKeys) {
		b := grabStatement(shop, chunk, skipLocked)
		err = t.query(ctx, func(rows *sql.Rows) error {
			var u unit
			err := rows.Scan(&u.item, &u.group, &u.number, &now)
			units = append(units, u)
			return err
		}, b.String(), b.args...)
		if err != nil {
			return nil, now, err
		}
	}
	return units, now, nil
}

// take turns locked units into the hold.
func (t *tx) take(ctx context.Context, w *wanted, h holdover.Hold, units []unit) error {
	if err := t.deleteUnits(ctx, w.shop, units); err != nil {
		return err
	}
	if err := t.insertHold(ctx, h); err != nil {
		return err
	}
	if w.journal {
		return t.journal(ctx, w.token)
	}
	return nil
}

func (t *tx) deleteUnits(ctx context.Context, shop int64, units []unit) error {
	for chunk := range slices.Chunk(units, maxUnits) {
		b := deleteUnitsStatement(shop, chunk)
		if _, err := t.exec(ctx, b.String(), b.args...); err != nil {
			return err
		}
	}
	return nil
}

// refusal is the ledger's word, under the fence and in one snapshot: nil when
// every line could still be met, by headroom or by units that others have in
// open transactions at this moment. It waits for nobody, so a sold-out item is
// refused as fast as it was sold.
func (t *tx) refusal(ctx context.Context, w *wanted, keys []key) error {
	levels, err := t.s.levels(ctx, t.conn, w.shop, keys)
	if err != nil {
		return err
	}
	var short []holdover.Shortage
	for _, l := range w.lines {
		st, ok := levels[keyOf(l)]
		if !ok {
			return t.s.notLoaded(w.shop, keyOf(l))
		}
		if free := max(0, st.Free()); free < l.Quantity {
			short = append(short, holdover.Shortage{Item: l.Item, Group: l.Group, Want: l.Quantity, Left: free})
		}
	}
	if len(short) > 0 {
		return &holdover.OutOfStockError{Store: holdover.StoreMySQL, Shop: w.shop, Short: short}
	}
	return nil
}

// replay answers for a token that has rows: under the fence, in the vote's or
// the fact's own right. errChanged: it has none any more.
func (s *Store) replay(ctx context.Context, w *wanted) (g holdover.Grant, err error) {
	err = s.transact(ctx, s.main, w.op, w.token, func(ctx context.Context, t *tx) error {
		if err := t.checkFence(ctx, w.epoch); err != nil {
			return err
		}
		var levels map[key]holdover.Stock
		if !w.fact {
			var err error
			if levels, err = s.levels(ctx, t.conn, w.shop, keysOf(w.lines)); err != nil {
				return err
			}
		}
		h, err := t.look(ctx, stmtHoldUpdate, w.token)
		if err != nil {
			return err
		}
		g = holdover.Grant{Hold: h.Hold, Replayed: true}
		known := len(h.Lines) > 0 // not an end record of a hold that was never here
		switch {
		case h.State == holdover.StateNone:
			return errChanged
		case known && (h.Shop != w.shop || !holdover.SameLines(h.Lines, w.lines)):
			return reused(w.token)
		case h.State.Ended() && w.fact:
			return nil // the fact lost against an end record; the caller sees the state
		case h.State.Ended():
			return holdover.EndError(w.token, h.State)
		}
		for _, st := range levels {
			if st.Available < st.Issued {
				return s.overbooked(w.token, st)
			}
		}
		if !h.Firm && (w.fact || w.journal || w.attempt != h.Attempt) {
			if _, err := t.exec(ctx, stmtFirm, w.token[:]); err != nil {
				return err
			}
			g.Hold.Firm = true
		}
		if w.journal {
			return t.journal(ctx, w.token)
		}
		return nil
	})
	if err != nil {
		return holdover.Grant{}, err
	}
	s.stats.replays.Add(1)
	return g, nil
}
