package mysqlpool

import (
	"bytes"
	"cmp"
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

	// The answer, written by the batch that the call was part of.
	answer holdover.Hold
	err    error
	short  []amount // what the pool could not give, the last time it was asked
	seen   []uint64 // how often it had been filled then
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
	for {
		h, err := s.grant(ctx, w)
		switch {
		case err == nil:
			s.stats.grants.Add(1)
			return holdover.Grant{Hold: h}, nil
		case errors.Is(err, errNoPool):
			if err := s.ensurePools(ctx, w.op, keysOf(w.shop, w.lines)); err != nil {
				return holdover.Grant{}, err
			}
			continue
		case errors.Is(err, holdover.ErrNotLoaded): // the token may stand for other lines
			known, lookErr := s.look(ctx, w.token)
			if lookErr != nil || known.State == holdover.StateNone {
				return holdover.Grant{}, cmp.Or(lookErr, err)
			}
		case !errors.Is(err, errTaken):
			if errors.Is(err, holdover.ErrOutOfStock) {
				s.stats.refusals.Add(1)
			}
			return holdover.Grant{}, err
		}
		g, err := s.replay(ctx, w)
		if errors.Is(err, errChanged) {
			continue // given back in the meantime: the token is free again
		}
		return g, err
	}
}

// grant takes the units, together with other calls of this process.
func (s *Store) grant(ctx context.Context, w *wanted) (holdover.Hold, error) {
	oversized := slices.ContainsFunc(w.lines, func(l holdover.Line) bool { return l.Quantity > s.cfg.PoolCap })
	if oversized { // straight from the ledger; and not in everybody's way
		s.reserveTogether(ctx, []*wanted{w}, true, func(*wanted) {})
	} else if err := s.reserves.do(ctx, keyOf(w.shop, w.lines[0]), w); err != nil {
		return holdover.Hold{}, s.notDone(ctx, w.op, w.token, err)
	}
	return w.answer, w.err
}

// reserveShared is the run of the reserve batcher: a try, and where the pool was
// short a refill and another one. Who comes short again, or needs a pool whose
// lock somebody keeps, goes on without the slot.
func (s *Store) reserveShared(ctx context.Context, calls []*wanted, done func(*wanted)) func(context.Context, func(*wanted)) {
	short, blocked := s.reserveTogether(ctx, calls, false, done)
	var keys []key
	for _, w := range short {
		for _, a := range w.short {
			keys = append(keys, a.key)
		}
	}
	if len(short) > 0 && !s.contended.any(keys) {
		switch err := s.refillShort(ctx, short, false); {
		case err == nil:
			var more []*wanted
			short, more = s.reserveTogether(ctx, short, false, done)
			blocked = append(blocked, more...)
		case number(err) == errLockWait:
			s.contended.mark(keys)
		}
	}
	if len(short)+len(blocked) == 0 {
		return nil
	}
	return func(ctx context.Context, done func(*wanted)) {
		apart(groupsOf(short, func(w *wanted) key { return w.short[0].key }, blocked), func(group []*wanted) {
			s.reserveShort(ctx, group, done)
		})
	}
}

// reserveShort goes on where the pool had too few units, for calls of one item.
func (s *Store) reserveShort(ctx context.Context, calls []*wanted, done func(*wanted)) {
	for range poolRounds {
		if err := s.refillShort(ctx, calls, true); err != nil {
			for _, w := range calls {
				w.err = forCall(err, w.op, w.token)
				done(w)
			}
			return
		}
		short, blocked := s.reserveTogether(ctx, calls, false, done)
		for _, w := range blocked {
			s.reserveTogether(ctx, []*wanted{w}, true, done)
		}
		if calls = short; len(calls) == 0 {
			return
		}
	}
	_, blocked := s.reserveTogether(ctx, calls, true, done)
	for _, w := range blocked {
		s.reserveTogether(ctx, []*wanted{w}, true, done)
	}
}

// reserveTogether tries to take the units of all calls in one transaction, and
// returns those for which the pool has too few although the ledger has enough,
// and those that have to be made alone, because one of them waits for a lock.
// When the server refuses the transaction, halves are tried, down to the call at
// fault: it harms nobody else.
func (s *Store) reserveTogether(ctx context.Context, calls []*wanted, decisive bool, done func(*wanted)) (short, blocked []*wanted) {
	var err error
	// A token that has rows already shows in the INSERT. Looking for all of them
	// before costs every batch what a rare one pays by being made again.
	for look := false; ; look = true {
		err = s.transactWith(ctx, s.main, calls[0].op, calls[0].token, len(calls) == 1, func(ctx context.Context, t *tx) (err error) {
			short, err = t.reserveAll(ctx, calls, decisive, look)
			return err
		})
		if number(err) != errDuplicateKey || len(calls) == 1 || look {
			break
		}
	}
	switch {
	case err == nil:
		for _, w := range calls {
			if !slices.Contains(short, w) {
				done(w)
			}
		}
		return short, nil
	case len(calls) > 1 && number(err) == errLockWait:
		s.stats.split.Add(1)
		return nil, calls
	case len(calls) > 1 && divisible(err):
		s.stats.split.Add(1)
		half := len(calls) / 2
		short, blocked = s.reserveTogether(ctx, calls[:half], decisive, done)
		short2, blocked2 := s.reserveTogether(ctx, calls[half:], decisive, done)
		return append(short, short2...), append(blocked, blocked2...)
	}
	for _, w := range calls {
		w.err = forCall(err, w.op, w.token)
		done(w)
	}
	return nil, nil
}

// reserveAll is one transaction: look and lock, decide, write. Without decisive
// it takes rows that nobody has locked, waits for nobody, and takes no lock
// that a refill needs. With it, it decides by the items' own locks: headroom
// goes straight from the ledger into the hold, and rows of the pool that others
// have locked are waited for, because they may roll back. Holders of unit locks
// never wait for pool_state, so there is no cycle. What is short there is sold
// out.
func (t *tx) reserveAll(ctx context.Context, calls []*wanted, decisive, look bool) (short []*wanted, err error) {
	there, calls, err := t.lookAndLock(ctx, calls, decisive, look)
	sold := map[key]int64{}
	defer func() {
		for _, a := range there.locked {
			t.s.positions.back(a.amount, sold[a.key], a.count)
		}
	}()
	if err != nil {
		return nil, err
	}
	var granted []*wanted
	var units []unit
	var direct, taken []amount
	for _, w := range calls {
		if w.short = there.missing(w); len(w.short) > 0 {
			w.seen = w.seen[:0]
			for _, a := range w.short {
				w.seen = append(w.seen, there.filled[a.key])
			}
			short = append(short, w)
			continue
		}
		for _, a := range amounts(w.shop, w.lines, 1) {
			got, fromLedger := there.take(a)
			units = append(units, got...)
			direct = append(direct, amount{a.key, fromLedger})
			taken = append(taken, a)
		}
		granted = append(granted, w)
	}
	taken = sum(taken...)
	if len(short) > 0 {
		t.s.stats.short.Add(int64(len(short)))
		if short, err = t.refuse(ctx, short, there, taken, decisive); err != nil {
			return nil, err
		}
	}
	if len(granted) == 0 {
		return short, nil
	}
	slices.SortFunc(granted, func(a, b *wanted) int { return bytes.Compare(a.token[:], b.token[:]) }) // one order of locks
	b := new(statement).deleteUnits(units)
	for _, w := range granted {
		w.answer = w.hold(there.now)
		b.insertHold(w.answer)
	}
	b.endRows(insertHoldTail)
	for chunk := range slices.Chunk(sum(direct...), maxKeys) { // their rows are locked
		b.moveIssued(chunk, 1).expect(len(chunk))
	}
	for _, w := range granted {
		if w.journal {
			b.journal(w.token)
		}
	}
	for i, l := range there.locked {
		there.locked[i].count = t.s.positions.counted(l.key)
	}
	if _, err := t.send(ctx, b.commit()); err != nil {
		if number(err) == errDuplicateKey && len(calls) == 1 {
			return nil, errTaken
		}
		return nil, err
	}
	for _, u := range units {
		sold[u.key]++
	}
	for _, a := range taken {
		if t.s.positions.took(a.key, a.n) {
			t.s.demand.note(a.key)
		}
	}
	return short, nil
}

// refuse gives the ledger's word to the calls that came short, and returns
// those that could still be met, by headroom or by units that others have in
// open transactions at this moment. given is what this transaction is about to
// give to other calls; without any it ends here. With the items' own locks the
// word is final; else it is one snapshot, which waits for nobody: a sold-out
// item is refused as fast as it was sold. A token that has rows is no refusal:
// another call with it may have taken the last units, so that is looked at after
// the word, and what was granted before it is seen.
func (t *tx) refuse(ctx context.Context, short []*wanted, there *stockHere, given []amount, decisive bool) (later []*wanted, err error) {
	if !decisive { // where the ledger had more a moment ago, a refill tells
		short = slices.DeleteFunc(slices.Clone(short), func(w *wanted) bool {
			if !t.s.positions.hasStock(w.short) {
				return false
			}
			later = append(later, w)
			return true
		})
		if len(short) == 0 {
			return later, nil
		}
	}
	b := new(statement)
	var levels map[key]holdover.Stock
	var scans []func(*sql.Rows) error
	if !decisive {
		var keys []key
		for _, w := range short {
			keys = append(keys, keysOf(w.shop, w.lines)...)
		}
		levels, scans = b.levels(t.s, sorted(keys))
	}
	taken := map[holdover.Token]bool{}
	scans = append(scans, b.taken(short, taken))
	if len(given) == 0 {
		b.next().add(stmtCommit)
		t.done = true
	}
	if err := t.ask(ctx, b, scans...); err != nil {
		if t.done {
			discard(t.conn)
		}
		return nil, err
	}
	minus := make(map[key]int64, len(given))
	for _, a := range given {
		minus[a.key] = a.n
	}
	for _, w := range short {
		var lines []holdover.Shortage
		for _, a := range amounts(w.shop, w.lines, 1) {
			free := int64(len(there.units[a.key])) + there.headroom[a.key]
			if !decisive {
				st, ok := levels[a.key]
				if !ok {
					w.err = t.s.notLoaded(a.key)
					break
				}
				free = max(0, st.Free()-minus[a.key])
			}
			if free < a.n {
				lines = append(lines, holdover.Shortage{Item: a.item, Group: a.group, Want: a.n, Left: free})
			}
		}
		switch {
		case taken[w.token]:
			w.err = errTaken
		case w.err != nil:
		case len(lines) > 0:
			w.err = &holdover.OutOfStockError{Store: holdover.StoreMySQL, Shop: w.shop, Short: lines}
		default:
			later = append(later, w)
		}
	}
	return later, nil
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
