package mysqlpool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"holdover"
)

// Adjustments. They lock pool_state, then the ledger, then rows of the pool, as
// everybody does; holdover_adjustments comes after ledger_entries.
const (
	stmtAdjustPool = `SELECT issued FROM pool_state FORCE INDEX (PRIMARY)
WHERE shop_id = ? AND item_id = ? AND group_id = ? FOR UPDATE /*app='holdover',op='adjust',step='pool'*/`
	stmtAdjustPooled = `SELECT COUNT(*) FROM reservation_units FORCE INDEX (PRIMARY)
WHERE shop_id = ? AND item_id = ? AND group_id = ? /*app='holdover',op='adjust',step='pooled'*/`
	// From the end: buyers take rows from the beginning. Rows in transactions that
	// may roll back are waited for; whoever has them asks for no lock of ours.
	stmtAdjustUnits = `SELECT unit FROM reservation_units FORCE INDEX (PRIMARY)
WHERE shop_id = ? AND item_id = ? AND group_id = ? ORDER BY unit DESC LIMIT ? FOR UPDATE /*app='holdover',op='adjust',step='units'*/`
	// By whole keys and in the written order, so that no plan locks other rows.
	adjustDeleteHead  = `DELETE u FROM (`
	adjustDeleteFirst = `SELECT ? AS unit`
	adjustDeleteNext  = ` UNION ALL SELECT ?`
	adjustDeleteTail  = `) d STRAIGHT_JOIN reservation_units u FORCE INDEX (PRIMARY)
ON u.shop_id = ? AND u.item_id = ? AND u.group_id = ? AND u.unit = d.unit /*app='holdover',op='adjust',step='shrink'*/`
	stmtAdjustIssued = `UPDATE pool_state FORCE INDEX (PRIMARY) SET issued = issued - ?
WHERE shop_id = ? AND item_id = ? AND group_id = ? /*app='holdover',op='adjust',step='issued'*/`
	stmtAdjustEntry = `INSERT INTO ledger_entries (token, entry, shop_id, item_id, group_id, delta, kind, at)
VALUES (?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(3)) /*app='holdover',op='adjust',step='entry'*/`

	stmtAdjustRecord = `INSERT INTO holdover_adjustments
(token, shop_id, item_id, group_id, units, absolute, clamp, refused, changed, available, free, owed, changed_by, reason, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(3)) /*app='holdover',op='adjust',step='record'*/`
	adjustColumns = `SELECT token, shop_id, item_id, group_id, units, absolute, clamp, refused, changed, available, free, owed, changed_by, reason, at
FROM holdover_adjustments `
	stmtAdjustFound = adjustColumns + `WHERE token = ? /*app='holdover',op='adjust',step='look_up'*/`
	stmtAdjustOwed  = adjustColumns + `WHERE owed = 1 ORDER BY at LIMIT ? /*app='holdover',op='adjust',step='owed'*/`
	stmtAdjustDone  = `UPDATE holdover_adjustments FORCE INDEX (PRIMARY) SET owed = 0 WHERE token = ? /*app='holdover',op='adjust',step='settled'*/`

	importEntriesTail = ` /*app='holdover',op='import',step='entries'*/`
)

const (
	kindAdjust = "adjust"
	kindImport = "import"

	// adjustEntry is the number of an adjustment's entry: no claim has so many
	// lines, so that a token which somebody used for both fails neither.
	adjustEntry = 1 << 31

	// maxShrink bounds the rows of the pool that one transaction removes.
	maxShrink = 1000
)

// Adjust changes the ledger by a, decided once for its token: a repeated call
// gets the same answer, refusals included (Adjusted.Err), and ErrTokenReused
// with another change. Units are added by one update of the ledger. Taken away
// are first those that are not in the pool, then rows of the pool; what is held
// stays. Under the epoch (zero: alone). Errors: ErrNotLoaded when the ledger has
// no such row, ErrInvalid.
func (s *Store) Adjust(ctx context.Context, e holdover.Epoch, a holdover.Adjustment, terms holdover.AdjustTerms) (holdover.Adjusted, error) {
	if err := a.Validate(); err != nil {
		return holdover.Adjusted{}, err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	// More rows than one transaction removes go in several: each leaves them as
	// headroom that a refill may use again, so the rounds have a bound.
	rounds := 10 + 2*s.cfg.PoolCap/maxShrink
	for made := false; rounds > 0; rounds-- {
		d := decision{adj: a, terms: terms}
		err := s.transact(ctx, s.main, "adjust", a.Token, func(ctx context.Context, t *tx) error {
			d = decision{adj: a, terms: terms}
			if err := t.checkFence(ctx, e); err != nil {
				return err
			}
			return t.adjust(ctx, &d)
		})
		switch {
		case is(err, errTaken): // by the same token, elsewhere, at this moment
			continue
		case is(err, errNoPool) && !made:
			made = true
			err = s.transact(ctx, s.main, "adjust", a.Token, func(ctx context.Context, t *tx) error {
				_, err := t.exec(ctx, s.ledger.ensurePool, a.Shop, a.Item, a.Group)
				return err
			})
			if err != nil {
				return holdover.Adjusted{}, err
			}
		case is(err, errNoPool):
			return holdover.Adjusted{}, s.adjustNotLoaded(a)
		case err != nil:
			return holdover.Adjusted{}, err
		case d.done:
			return d.out, d.out.Err()
		}
	}
	return holdover.Adjusted{}, fmt.Errorf("mysql of pod %s: the pool of shop %d, item %d at group %d is refilled as fast as adjustment %s shrinks it: repeat it with the same token: %w",
		s.cfg.Pod, a.Shop, a.Item, a.Group, a.Token, holdover.ErrTryAgain)
}

// Adjust changes the ledger of a pool that stands alone; see Store.Adjust.
func (p *Pool) Adjust(ctx context.Context, a holdover.Adjustment) (holdover.Adjusted, error) {
	return p.store.Adjust(ctx, 0, a, holdover.AdjustTerms{})
}

func (s *Store) adjustNotLoaded(a holdover.Adjustment) error {
	return fmt.Errorf("mysql of pod %s: shop %d, item %d at group %d has no row in the ledger, adjustment %s changed nothing: import the row first: %w",
		s.cfg.Pod, a.Shop, a.Item, a.Group, a.Token, holdover.ErrNotLoaded)
}

// decision is what one transaction of an adjustment came to.
type decision struct {
	adj   holdover.Adjustment
	terms holdover.AdjustTerms
	out   holdover.Adjusted
	done  bool // else the pool was shrunk by a part, and it goes on
}

// adjust decides and writes, with the location's locks held.
func (t *tx) adjust(ctx context.Context, d *decision) error {
	a := d.adj
	issued, err := t.number(ctx, errNoPool, stmtAdjustPool, a.Shop, a.Item, a.Group)
	if err != nil {
		return err
	}
	// Behind the lock: of two calls with one token the second sees what the first wrote.
	var found adjustedScan
	if err := t.query(ctx, found.scan, stmtAdjustFound, a.Token[:]); err != nil {
		return err
	}
	if len(found) > 0 {
		d.out, d.done = found[0], true
		return sameAdjustment(&d.out, a)
	}
	available, err := t.number(ctx, errNoPool, t.s.ledger.available, a.Shop, a.Item, a.Group)
	if err != nil {
		return err
	}
	out := holdover.Adjusted{Adjustment: a, Owed: d.terms.Redis, Changed: a.Wanted(available)}
	switch {
	case out.Changed > 0 && available > holdover.MaxUnits-out.Changed:
		return &holdover.InvalidError{Field: "delta", Value: fmt.Sprint(out.Changed), Problem: fmt.Sprintf("takes the ledger from %d beyond 2^53 units", available)}
	case out.Changed < 0:
		more, err := t.lower(ctx, d, &out, available, issued)
		if err != nil || more {
			return err
		}
	}
	if out.Changed != 0 {
		if _, err := t.exec(ctx, t.s.ledger.change, out.Changed, a.Shop, a.Item, a.Group); err != nil {
			return err
		}
		if _, err := t.exec(ctx, stmtAdjustEntry, a.Token[:], adjustEntry, a.Shop, a.Item, a.Group, out.Changed, kindAdjust); err != nil {
			return taken(err)
		}
	}
	out.Available = available + out.Changed
	units, absolute := a.Delta, a.Set != nil
	if absolute {
		units = *a.Set
	}
	_, err = t.exec(ctx, stmtAdjustRecord, a.Token[:], a.Shop, a.Item, a.Group, units, absolute, a.Clamp,
		out.Refused, out.Changed, out.Available, out.Free, out.Owed, a.By, a.Reason)
	if err != nil {
		return taken(err)
	}
	var written adjustedScan
	if err := t.query(ctx, written.scan, stmtAdjustFound, a.Token[:]); err != nil {
		return err
	}
	d.out, d.done = written[0], true
	return nil
}

func taken(err error) error {
	if number(err) == errDuplicateKey {
		return errTaken
	}
	return err
}

// lower decides how many units go and removes their rows from the pool, those
// in headroom being free already. more: it removed a part of the rows, and has
// decided nothing.
func (t *tx) lower(ctx context.Context, d *decision, out *holdover.Adjusted, available, issued int64) (more bool, err error) {
	a, need, headroom := d.adj, -out.Changed, available-issued
	out.Free = headroom
	if need > headroom {
		pooled, err := t.number(ctx, nil, stmtAdjustPooled, a.Shop, a.Item, a.Group)
		if err != nil {
			return false, err
		}
		out.Free += pooled
	}
	takeable := func(free int64) int64 {
		if d.terms.Redis { // what Redis has not given up, it may sell
			free = min(free, d.terms.Lowered)
		}
		return min(need, max(free, 0))
	}
	settle := func(take int64) {
		out.Changed, out.Refused = -take, take == 0 && !a.Clamp
		if d.terms.Redis {
			out.Free = min(out.Free, d.terms.Free)
		}
		if out.Free = max(out.Free, 0); !out.Refused {
			out.Free = 0
		}
	}
	take := takeable(out.Free)
	if take < need && !a.Clamp || take == 0 {
		settle(0)
		return false, nil
	}
	rows := take - headroom
	if rows <= 0 {
		settle(take)
		return false, nil
	}
	units, err := t.lockUnitsFromEnd(ctx, a, min(rows, maxShrink))
	if err != nil {
		return false, err
	}
	got := int64(len(units))
	if got < min(rows, maxShrink) { // buyers took some while they were waited for
		out.Free = headroom + got
		if take = takeable(out.Free); take < need && !a.Clamp || take == 0 {
			settle(0)
			return false, nil
		}
		rows = max(take-headroom, 0)
	}
	remove := units[:min(rows, got)]
	if err := t.removeUnits(ctx, a, remove); err != nil {
		return false, err
	}
	if int64(len(remove)) < rows {
		return true, nil
	}
	settle(take)
	return false, nil
}

func (t *tx) lockUnitsFromEnd(ctx context.Context, a holdover.Adjustment, n int64) (units []int64, err error) {
	err = t.query(ctx, func(rows *sql.Rows) error {
		var unit int64
		err := rows.Scan(&unit)
		units = append(units, unit)
		return err
	}, stmtAdjustUnits, a.Shop, a.Item, a.Group, n)
	return units, err
}

// removeUnits turns rows of the pool into headroom of the ledger.
func (t *tx) removeUnits(ctx context.Context, a holdover.Adjustment, units []int64) error {
	for start := 0; start < len(units); start += maxUnits {
		chunk := units[start:min(start+maxUnits, len(units))]
		b := shrinkStatement(a, chunk)
		n, err := t.exec(ctx, b.String())
		if err != nil {
			return err
		}
		if n != int64(len(chunk)) {
			return t.s.fail("adjust", a.Token, fmt.Errorf("%d of %d locked rows of the pool were deleted: verify the stock", n, len(chunk)))
		}
	}
	if len(units) == 0 {
		return nil
	}
	_, err := t.exec(ctx, stmtAdjustIssued, len(units), a.Shop, a.Item, a.Group)
	return err
}

func shrinkStatement(a holdover.Adjustment, units []int64) *statement {
	b := new(statement)
	b.add(adjustDeleteHead)
	for i, unit := range units {
		row := adjustDeleteNext
		if i == 0 {
			row = adjustDeleteFirst
		}
		b.add(row, unit)
	}
	return b.add(adjustDeleteTail, a.Shop, a.Item, a.Group)
}

// number reads one number; none says what it means that there is no row.
func (t *tx) number(ctx context.Context, none error, q string, args ...any) (n int64, err error) {
	found := false
	err = t.query(ctx, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(&n)
	}, q, args...)
	if err == nil && !found {
		err = none
	}
	return n, err
}

// AdjustmentOf returns how the token of a was decided, if it was; ErrTokenReused
// when that was another change.
func (s *Store) AdjustmentOf(ctx context.Context, a holdover.Adjustment) (out holdover.Adjusted, found bool, err error) {
	var rows adjustedScan
	if err := s.read(ctx, s.main, "look up an adjustment", a.Token, rows.scan, stmtAdjustFound, a.Token[:]); err != nil || len(rows) == 0 {
		return holdover.Adjusted{}, false, err
	}
	return rows[0], true, sameAdjustment(&rows[0], a)
}

// OwedAdjustments lists up to limit decided adjustments that Redis has not
// followed yet, oldest first.
func (s *Store) OwedAdjustments(ctx context.Context, limit int) ([]holdover.Adjusted, error) {
	var rows adjustedScan
	err := s.read(ctx, s.control, "list owed adjustments", holdover.Token{}, rows.scan, stmtAdjustOwed, limit)
	return rows, err
}

// AdjustmentSettled records that Redis has followed.
func (s *Store) AdjustmentSettled(ctx context.Context, token holdover.Token) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.transact(ctx, s.control, "settle an adjustment", token, func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, stmtAdjustDone, token[:])
		return err
	})
}

func sameAdjustment(there *holdover.Adjusted, a holdover.Adjustment) error {
	there.Replayed = true
	if there.Content() != a.Content() {
		return fmt.Errorf("adjustment %s was made as %s by %s (shop:item:group:change:clamp): %w", a.Token, there.Content(), there.By, holdover.ErrTokenReused)
	}
	return nil
}

// adjustedScan collects rows of holdover_adjustments.
type adjustedScan []holdover.Adjusted

func (rs *adjustedScan) scan(rows *sql.Rows) error {
	var (
		token    []byte
		units    int64
		absolute bool
		at       time.Time
		a        holdover.Adjusted
	)
	err := rows.Scan(&token, &a.Shop, &a.Item, &a.Group, &units, &absolute, &a.Clamp, &a.Refused, &a.Changed, &a.Available, &a.Free, &a.Owed, &a.By, &a.Reason, &at)
	if err != nil {
		return err
	}
	a.At = at
	if a.Delta = units; absolute {
		a.Delta, a.Set = 0, &units
	}
	var tokenErr error
	a.Token, tokenErr = tokenOf(token)
	*rs = append(*rs, a)
	return errors.Join(err, tokenErr)
}
