package mysqlpool

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"holdover"
)

// stockHere is what a transaction has under its locks.
type stockHere struct {
	units    map[key][]unit
	headroom map[key]int64 // with the items' own locks only
	filled   map[key]uint64
	locked   []lockedRows // what positions counts as out until the transaction ends
	now      time.Time    // the server's
}

// lockedRows are rows of a location, as positions has them.
type lockedRows struct {
	amount
	count uint64 // positions.counted when the COMMIT was sent
}

// missing lists the lines of w that get fewer units than they want.
func (s *stockHere) missing(w *wanted) (short []amount) {
	for _, a := range amounts(w.shop, w.lines, 1) {
		if int64(len(s.units[a.key]))+s.headroom[a.key] < a.n {
			short = append(short, a)
		}
	}
	return short
}

// take gives a line its units: from the ledger's headroom first, then rows.
func (s *stockHere) take(a amount) (units []unit, direct int64) {
	direct = min(a.n, s.headroom[a.key])
	s.headroom[a.key] -= direct
	rest := a.n - direct
	units = s.units[a.key][:rest]
	s.units[a.key] = s.units[a.key][rest:]
	return units, direct
}

// lookAndLock answers the calls that can be answered without units (another
// epoch, a token that has rows), and locks what the others want.
func (t *tx) lookAndLock(ctx context.Context, calls []*wanted, decisive, look bool) (*stockHere, []*wanted, error) {
	there := &stockHere{units: map[key][]unit{}, headroom: map[key]int64{}, filled: map[key]uint64{}}
	b := new(statement)
	var scans []func(*sql.Rows) error
	var f fenceScan
	taken := map[holdover.Token]bool{}
	if slices.ContainsFunc(calls, func(w *wanted) bool { return w.epoch != 0 }) {
		b.next().add(stmtFenceShare)
		scans = append(scans, f.scan)
	}
	if look { // one of the tokens has rows: which?
		scans = append(scans, b.taken(calls, taken))
	}
	var all []amount
	for _, w := range calls {
		w.err = nil
		all = append(all, amounts(w.shop, w.lines, 1)...)
	}
	wants := sum(all...)
	if decisive {
		t.s.stats.decisive.Add(1)
		if len(scans) > 0 {
			if err := t.ask(ctx, b, scans...); err != nil {
				return there, nil, err
			}
		}
	} else {
		for i := range wants { // more than the cap is never there
			wants[i].n = min(wants[i].n, t.s.cfg.PoolCap)
		}
		if err := t.grab(ctx, b, scans, wants, there, true); err != nil {
			return there, nil, err
		}
	}
	var rest []*wanted
	for _, w := range calls {
		if w.err = t.s.refuse(f, w.epoch); w.err != nil {
			continue
		}
		if taken[w.token] {
			w.err = errTaken
			continue
		}
		taken[w.token] = true // a second call with the token comes after this one
		rest = append(rest, w)
	}
	if decisive && len(rest) > 0 {
		var err error
		if rest, err = t.lockItems(ctx, rest, there); err != nil {
			return there, nil, err
		}
	}
	return there, rest, nil
}

// grabInto adds the statements that lock units, and returns what reads their
// answers. Without places locked rows are waited for.
func (b *statement) grabInto(wants []amount, places []place, there *stockHere) (scans []func(*sql.Rows) error) {
	var listed []unit
	scanned, from := wants, []int64(nil)
	if places != nil {
		scanned, from = make([]amount, 0, len(wants)), make([]int64, 0, len(wants))
		for i, w := range wants {
			if !places[i].listed {
				scanned, from = append(scanned, w), append(from, places[i].from)
				continue
			}
			for n := range w.n {
				listed = append(listed, unit{w.key, places[i].from + n})
			}
		}
	}
	for chunk := range slices.Chunk(listed, maxList) {
		b.grabListed(chunk)
		scans = append(scans, func(rows *sql.Rows) error {
			var n int
			if err := rows.Scan(&n, &there.now); err != nil {
				return err
			}
			if n < 1 || n > len(chunk) {
				return fmt.Errorf("unit %d of a list of %d", n, len(chunk))
			}
			u := chunk[n-1]
			there.units[u.key] = append(there.units[u.key], u)
			return nil
		})
	}
	for start := 0; start < len(scanned); start += maxKeys {
		end := min(start+maxKeys, len(scanned))
		chunk := scanned[start:end]
		if from == nil {
			b.grab(chunk, nil)
		} else {
			b.grab(chunk, from[start:end])
		}
		scans = append(scans, func(rows *sql.Rows) error {
			var place int
			var u unit
			if err := rows.Scan(&place, &u.number, &there.now); err != nil {
				return err
			}
			if place < 0 || place >= len(chunk) {
				return fmt.Errorf("a unit of branch %d of %d", place, len(chunk))
			}
			u.key = chunk[place].key
			there.units[u.key] = append(there.units[u.key], u)
			return nil
		})
	}
	return scans
}

// missed are the locations where a look from a hint on found too few although
// there are probably more.
func (s *Store) missed(wants []amount, places []place, units map[key][]unit) (missed []amount) {
	for i, w := range wants {
		n := int64(len(units[w.key]))
		if n >= w.n || places[i].from == 0 {
			continue
		}
		if places[i].listed {
			s.positions.notAlone(w.key)
		}
		if s.positions.more(w.key, n) {
			missed = append(missed, w)
		}
	}
	return missed
}

// taken reads which of the calls' tokens have rows.
func (b *statement) taken(calls []*wanted, taken map[holdover.Token]bool) func(*sql.Rows) error {
	b.next().add(takenHead)
	for i, w := range calls {
		b.sep(i, ", ").add("?", w.token[:])
	}
	b.add(takenTail)
	return func(rows *sql.Rows) error {
		var raw []byte
		if err := rows.Scan(&raw); err != nil {
			return err
		}
		token, err := tokenOf(raw)
		taken[token] = true
		return err
	}
}

// lockItems locks the items' rows of pool_state and the ledger, and then the
// units that the headroom does not cover.
func (t *tx) lockItems(ctx context.Context, calls []*wanted, there *stockHere) (rest []*wanted, err error) {
	var all []amount
	for _, w := range calls {
		all = append(all, amounts(w.shop, w.lines, 1)...)
	}
	wants := sum(all...)
	locked, err := t.lockStock(ctx, keysOfAmounts(wants))
	if err != nil {
		return nil, err
	}
	there.now = locked.now
	for _, w := range calls {
		for _, k := range keysOf(w.shop, w.lines) {
			if _, ok := locked.available[k]; !ok {
				w.err = t.s.notLoaded(k)
			} else if _, ok := locked.pools[k]; !ok && w.err == nil {
				w.err = errNoPool
			}
		}
		if w.err == nil {
			rest = append(rest, w)
		}
	}
	var units []amount
	for _, a := range wants {
		pool, ok := locked.pools[a.key]
		if !ok {
			continue
		}
		there.headroom[a.key] = max(0, locked.available[a.key]-pool.issued)
		if more := a.n - there.headroom[a.key]; more > 0 {
			units = append(units, amount{a.key, more})
		}
	}
	if len(units) == 0 || len(rest) == 0 {
		return rest, nil
	}
	return rest, t.grab(ctx, new(statement), nil, units, there, false)
}

// grab locks up to n units of each location, in key order. b and scans are what
// goes before it in the same packet.
func (t *tx) grab(ctx context.Context, b *statement, scans []func(*sql.Rows) error, wants []amount, there *stockHere, skipLocked bool) error {
	var places []place
	if skipLocked {
		places = t.s.positions.places(wants)
		for _, w := range wants {
			if there.filled != nil {
				there.filled[w.key] = t.s.positions.filled(w.key)
			}
		}
	}
	if err := t.ask(ctx, b, append(scans, b.grabInto(wants, places, there)...)...); err != nil {
		return err
	}
	if !skipLocked {
		return nil
	}
	if missed := t.s.missed(wants, places, there.units); len(missed) > 0 {
		// Other instances leave gaps, and rows are passed over that somebody let go:
		// all are looked through before anything is called short. What is locked
		// already is found again.
		for _, w := range missed {
			delete(there.units, w.key)
		}
		again, began := new(statement), time.Now()
		if err := t.ask(ctx, again, again.grabInto(missed, make([]place, len(missed)), there)...); err != nil {
			return err
		}
		for _, w := range missed {
			if n := int64(len(there.units[w.key])); n < w.n {
				t.s.positions.searched(w.key, time.Since(began))
			}
		}
	}
	for _, w := range wants {
		units, last := there.units[w.key], int64(0)
		for _, u := range units {
			last = max(last, u.number)
		}
		t.s.positions.grabbed(w, int64(len(units)), last)
		there.locked = append(there.locked, lockedRows{amount: amount{w.key, int64(len(units))}})
	}
	return nil
}
