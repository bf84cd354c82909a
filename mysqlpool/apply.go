package mysqlpool

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"holdover"
)

// Apply carries a fact: never refused for its epoch, idempotent by token, and
// never reviving a token with an end record. It returns the hold as it is
// afterwards: a fact that lost against an end record is seen by the State. A
// held fact that finds no unit gives an *OutOfStockError (a debt).
func (s *Store) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	switch h.State {
	case holdover.StateHeld, holdover.StateClaiming:
		ctx, cancel := s.deadline(ctx)
		defer cancel()
		g, err := s.reserve(ctx, &wanted{
			op: "apply held", token: h.Token, shop: h.Shop, lines: h.Lines, attempt: h.Attempt,
			fact: true, expires: h.ExpiresAt, granted: h.GrantedAt,
		})
		g.Hold.Again = g.Replayed
		return g.Hold, err
	case holdover.StateClaimed:
		return s.applyClaimed(ctx, h)
	case holdover.StateReleased, holdover.StateExpired:
		after, _, err := s.end(ctx, ending{op: "apply " + h.State.String(), token: h.Token, how: h.State, fact: true})
		return after, err
	default:
		return holdover.Hold{}, &holdover.InvalidError{Field: "state", Value: h.State.String(), Problem: "is not a fact"}
	}
}

// applyClaimed ends a held hold, or takes and consumes units for one that was
// never here, so that the pool never holds more than the ledger.
func (s *Store) applyClaimed(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	e := ending{op: "apply claimed", token: h.Token, how: holdover.StateClaimed, fact: true, part: h.Claimed}
	for range maxReread {
		c, err := s.endShared(ctx, e)
		if is(err, errAlone) {
			if c.State.Ended() {
				c.Hold.Again = true
				return c.Hold, nil
			}
			w := wanted{token: h.Token, shop: h.Shop, lines: h.Lines}
			if err := s.valid(&w); err != nil {
				return holdover.Hold{}, err
			}
			missing := c.State == holdover.StateNone
			c.Hold = h
			c.Firm, c.Missing = true, missing
			err = s.consume(ctx, e, c.Hold, false)
		}
		if is(err, errChanged, errTaken) {
			continue
		}
		if err != nil {
			return holdover.Hold{}, err
		}
		return c.Hold, nil
	}
	return holdover.Hold{}, s.fail(e.op, h.Token, errChanged)
}

// location is a row of pool_state and one of the ledger, locked, with what this
// transaction makes of them.
type location struct {
	available, issued int64
	loaded, pool      bool // the rows are there
	changed           bool
}

// consume deducts a claim whose units are not simply there: from the line's
// location first, then from the item's others in group order, an entry each.
// At each it takes headroom, then rows of the pool. What no location has free
// comes out of the stock that other holds stand for, since the goods are gone;
// what no location has at all is oversold: recorded, logged and counted, and
// the ledger is never taken below zero.
func (s *Store) consume(ctx context.Context, e ending, h holdover.Hold, held bool) error {
	if !held {
		if err := s.consumeFree(ctx, e, h); !is(err, errShort, errNoPool) {
			return err
		}
	}
	keys, err := s.locations(ctx, h)
	if err != nil {
		return err
	}
	var entries []entry
	for made := false; ; made = true {
		err = s.transact(ctx, s.main, e.op, e.token, func(ctx context.Context, t *tx) error {
			if err := t.checkFence(ctx, e.epoch); err != nil {
				return err
			}
			entries, err = t.consume(ctx, e, h, held, keys)
			if err != nil {
				return err
			}
			if e.journal {
				return t.journal(ctx, h.Token)
			}
			return nil
		})
		if !is(err, errNoPool) || made {
			break
		}
		if err := s.ensurePools(ctx, e.op, keys); err != nil {
			return err
		}
	}
	if checkFailed(err) {
		return errChanged
	}
	if err != nil {
		return err
	}
	for _, en := range entries {
		if en.kind == kindOversold {
			s.stats.oversold.Add(-en.delta)
			s.log.Error("a claim owes units that no location has: they were sold twice, correct the stock by hand",
				"token", h.Token, "shop", en.shop, "item", en.item, "group", en.group, "units", -en.delta)
		}
	}
	return nil
}

// consumeFree is the usual case of consume: each line's own location has its
// units free. It holds the items' locks for a few statements only, whatever the
// size of the cart; errShort says that it is not the usual case.
func (s *Store) consumeFree(ctx context.Context, e ending, h holdover.Hold) error {
	part := sum(amounts(h.Shop, h.Part(), 1)...)
	return s.transact(ctx, s.main, e.op, e.token, func(ctx context.Context, t *tx) error {
		if err := t.checkFence(ctx, e.epoch); err != nil {
			return err
		}
		locked, err := t.lockStock(ctx, keysOfAmounts(part))
		if err != nil {
			return err
		}
		for _, a := range part {
			pool, ok := locked.pools[a.key]
			if !ok {
				return errNoPool
			}
			if locked.available[a.key]-pool.issued < a.n {
				return errShort
			}
		}
		if err := t.deduct(ctx, part); err != nil {
			return err
		}
		claimed := claimedNow(h, locked.now)
		if err := t.insertHold(ctx, claimed); err != nil {
			return err
		}
		if err := t.claimedPart(ctx, claimed); err != nil {
			return err
		}
		if err := t.writeEntries(ctx, h.Token, claimEntries(h.Shop, h.Part())); err != nil {
			return err
		}
		if e.journal {
			return t.journal(ctx, h.Token)
		}
		return nil
	})
}

// claimedNow is the hold as its claim leaves it, with the times that are not
// known set to now.
func claimedNow(h holdover.Hold, now time.Time) holdover.Hold {
	h.State, h.Firm = holdover.StateClaimed, true
	if h.GrantedAt.IsZero() {
		h.GrantedAt = now
	}
	if h.ExpiresAt.IsZero() {
		h.ExpiresAt = now
	}
	h.GrantedAt, h.ExpiresAt = rounded(h.GrantedAt), rounded(h.ExpiresAt)
	return h
}

// locations lists the ledger's rows for the items of a hold, and the hold's own.
func (s *Store) locations(ctx context.Context, h holdover.Hold) ([]key, error) {
	items := map[int64]bool{}
	keys := keysOf(h.Shop, h.Lines)
	for chunk := range slices.Chunk(h.Lines, maxKeys) {
		b := new(statement)
		b.add(s.ledger.locationsHead, h.Shop)
		for i, l := range chunk {
			b.sep(i, ", ").add("?", l.Item)
		}
		b.add(s.ledger.locationsTail)
		err := s.read(ctx, s.main, "list locations", h.Token, func(rows *sql.Rows) error {
			k := key{shop: h.Shop}
			err := rows.Scan(&k.item, &k.group)
			keys = append(keys, k)
			items[k.item] = true
			return err
		}, b.String())
		if err != nil {
			return nil, err
		}
	}
	for _, l := range h.Lines {
		if !items[l.Item] {
			return nil, s.notLoaded(keyOf(h.Shop, l))
		}
	}
	return sorted(keys), nil
}

func (t *tx) consume(ctx context.Context, e ending, h holdover.Hold, held bool, keys []key) ([]entry, error) {
	locked, err := t.lockStock(ctx, keys)
	if err != nil {
		return nil, err
	}
	at := make(map[key]*location, len(keys))
	for _, k := range keys {
		n, loaded := locked.available[k]
		p, pool := locked.pools[k]
		if loaded && !pool {
			return nil, errNoPool
		}
		at[k] = &location{available: n, issued: p.issued, loaded: loaded, pool: pool}
	}
	if held {
		for _, l := range h.Lines {
			own := at[keyOf(h.Shop, l)]
			own.issued -= l.Quantity // its units are headroom again, and then consumed
			own.changed = true
		}
	}
	var entries []entry
	for _, l := range h.Part() {
		more, err := t.consumeLine(ctx, h.Shop, l, keys, at)
		if err != nil {
			return nil, err
		}
		entries = append(entries, more...)
	}
	for _, k := range keys {
		l := at[k]
		if !l.changed {
			continue
		}
		if l.pool {
			if _, err := t.exec(ctx, stmtSetIssued, l.issued, k.shop, k.item, k.group); err != nil {
				return nil, err
			}
		}
		if l.loaded {
			if _, err := t.exec(ctx, t.s.ledger.setAvailable, l.available, k.shop, k.item, k.group); err != nil {
				return nil, err
			}
		}
	}
	if held {
		err = t.endRows(ctx, h, e)
	} else {
		if err = t.insertHold(ctx, claimedNow(h, locked.now)); err == nil {
			err = t.claimedPart(ctx, h)
		}
	}
	if err != nil {
		return nil, err
	}
	return entries, t.writeEntries(ctx, h.Token, entries)
}

// consumeLine takes a line's units where they are and says from where.
func (t *tx) consumeLine(ctx context.Context, shop int64, l holdover.Line, keys []key, at map[key]*location) ([]entry, error) {
	own := keyOf(shop, l)
	order := []key{own}
	for _, k := range keys {
		if k.item == l.Item && k != own {
			order = append(order, k)
		}
	}
	need := l.Quantity
	taken := map[key]int64{}
	pay := func(k key, n int64) {
		at[k].available -= n
		at[k].changed = true
		taken[k] += n
		need -= n
	}
	for _, k := range order { // what nobody holds
		loc := at[k]
		pay(k, min(need, max(0, loc.available-loc.issued)))
		rest := min(need, loc.available)
		if rest == 0 {
			continue
		}
		// Everybody else who waits for these rows needs the pool_state lock that we have.
		there := &stockHere{units: map[key][]unit{}}
		if err := t.grab(ctx, new(statement), nil, []amount{{k, rest}}, there, false); err != nil {
			return nil, err
		}
		units := there.units[k]
		if len(units) > 0 {
			if _, err := t.send(ctx, new(statement).deleteUnits(units)); err != nil {
				return nil, err
			}
		}
		loc.issued -= int64(len(units))
		pay(k, int64(len(units)))
	}
	for _, k := range order { // what other holds stand for: they are overbooked now, and verification says so
		pay(k, min(need, at[k].available))
	}
	var entries []entry
	for _, k := range order {
		if taken[k] > 0 {
			entries = append(entries, entry{k, -taken[k], kindClaim})
		}
	}
	if need > 0 {
		entries = append(entries, entry{own, -need, kindOversold})
	}
	return entries, nil
}
