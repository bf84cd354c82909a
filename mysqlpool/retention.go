package mysqlpool

import (
	"context"
	"database/sql"
	"time"

	"holdover"
)

// Retention removes what is past its time, in short transactions that wait for
// no row: what somebody else has locked is left for the next round. Buyers lock
// none of these rows but for the replay of a token that ended.
const (
	// A row of the journal protects its end record: counted by key for each hold,
	// where an anti-join would read the whole journal. Line 0 stands for the hold.
	stmtRetainHolds = `SELECT r.token FROM reserved_quantities r FORCE INDEX (reserved_quantities_due)
WHERE r.state = ? AND r.line = 0 AND r.expires_at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND
AND r.ended_at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND
AND (SELECT COUNT(*) FROM holdover_unmirrored j FORCE INDEX (PRIMARY) WHERE j.token = r.token) = 0
ORDER BY r.expires_at, r.token LIMIT ? FOR UPDATE SKIP LOCKED /*app='holdover',op='retain',step='holds'*/`

	retainTokensFirst = `SELECT ? AS token`
	retainTokensNext  = ` UNION ALL SELECT ?`
	retainHoldsHead   = `DELETE r FROM (`
	retainHoldsTail   = `) t STRAIGHT_JOIN reserved_quantities r FORCE INDEX (PRIMARY) ON r.token = t.token
WHERE r.state <> 'held' /*app='holdover',op='retain',step='delete_holds'*/`

	// Locations by pool_state: whatever writes an entry has made its row there.
	stmtRetainLocations = `SELECT l.shop_id, l.item_id, l.group_id,
EXISTS (SELECT 1 FROM ledger_entries e FORCE INDEX (ledger_entries_location)
  WHERE e.shop_id = l.shop_id AND e.item_id = l.item_id AND e.group_id = l.group_id AND e.at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND)
FROM (SELECT shop_id, item_id, group_id FROM pool_state FORCE INDEX (PRIMARY)
      WHERE shop_id > ? OR (shop_id = ? AND (item_id > ? OR (item_id = ? AND group_id > ?)))
      ORDER BY shop_id, item_id, group_id LIMIT ?) l
ORDER BY l.shop_id, l.item_id, l.group_id /*app='holdover',op='retain',step='locations'*/`
	stmtRetainEntries = `SELECT token, entry, delta, kind FROM ledger_entries FORCE INDEX (ledger_entries_location)
WHERE shop_id = ? AND item_id = ? AND group_id = ? AND at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND
ORDER BY at LIMIT ? FOR UPDATE SKIP LOCKED /*app='holdover',op='retain',step='entries'*/`
	// Once for the rows that the same transaction deletes: nothing is added twice.
	stmtRetainCarry = `INSERT INTO holdover_balances (shop_id, item_id, group_id, carried, entries, at) VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(3))
ON DUPLICATE KEY UPDATE carried = carried + ?, entries = entries + ?, at = UTC_TIMESTAMP(3) /*app='holdover',op='retain',step='carry'*/`
	retainEntriesHead  = `DELETE e FROM (`
	retainEntriesFirst = `SELECT ? AS token, ? AS entry`
	retainEntriesNext  = ` UNION ALL SELECT ?, ?`
	retainEntriesTail  = `) d STRAIGHT_JOIN ledger_entries e FORCE INDEX (PRIMARY)
ON e.token = d.token AND e.entry = d.entry /*app='holdover',op='retain',step='delete_entries'*/`

	stmtRetainAdjustments = `SELECT token FROM holdover_adjustments FORCE INDEX (holdover_adjustments_owed)
WHERE owed = 0 AND at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND
ORDER BY at LIMIT ? FOR UPDATE SKIP LOCKED /*app='holdover',op='retain',step='adjustments'*/`
	retainAdjustmentsHead = `DELETE a FROM (`
	retainAdjustmentsTail = `) t STRAIGHT_JOIN holdover_adjustments a FORCE INDEX (PRIMARY)
ON a.token = t.token /*app='holdover',op='retain',step='delete_adjustments'*/`
)

const (
	retainBatch     = 100 // holds, entries or adjustments of one transaction
	retainLocations = 500 // locations of one look
	retainPause     = 2 * time.Millisecond
)

// Retained counts what retention removed.
type Retained struct {
	Holds       int `json:"holds"`
	Entries     int `json:"entries"`
	Adjustments int `json:"adjustments"`
	Rollups     int `json:"rollups"`
}

// retainLoop removes what is past its retention, each PurgeEvery, until ctx ends.
func (s *Store) retainLoop(ctx context.Context) {
	ticker := time.NewTicker(s.cfg.PurgeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if _, err := s.Retain(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("not all that is past its retention was removed; the next round tries again", "err", err)
		}
	}
}

// Retain removes all ended holds past EndRetention that the journal does not
// name, all rollups past ComparisonRetention, and all entries and settled
// adjustments past EntryRetention. What the entries of a location came to is
// carried into its balance in the same transaction. It stops between two
// transactions when ctx ends.
func (s *Store) Retain(ctx context.Context) (done Retained, err error) {
	for n := retainBatch; n == retainBatch && err == nil; {
		n, err = s.PurgeEnded(ctx, retainBatch)
		done.Holds += n
	}
	if err == nil && s.cfg.ComparisonRetention >= 0 {
		done.Rollups, err = s.retainRollups(ctx)
	}
	if err != nil || s.cfg.EntryRetention < 0 {
		return done, err
	}
	if done.Entries, err = s.retainEntries(ctx); err != nil {
		return done, err
	}
	done.Adjustments, err = s.retainAdjustments(ctx)
	return done, err
}

// PurgeEnded deletes up to limit holds that ended longer ago than EndRetention
// and that the journal does not name.
func (s *Store) PurgeEnded(ctx context.Context, limit int) (purged int, err error) {
	old := s.cfg.EndRetention.Microseconds()
	for _, state := range []holdover.State{holdover.StateClaimed, holdover.StateReleased, holdover.StateExpired} {
		for purged < limit {
			batch := min(limit-purged, retainBatch)
			n, err := s.removeTokens(ctx, stmtRetainHolds, []any{state.String(), old, old, batch}, retainHoldsHead, retainHoldsTail)
			purged += n
			if err != nil {
				return purged, err
			}
			if n < batch {
				break
			}
		}
	}
	return purged, nil
}

func (s *Store) retainAdjustments(ctx context.Context) (removed int, err error) {
	for {
		n, err := s.removeTokens(ctx, stmtRetainAdjustments, []any{s.cfg.EntryRetention.Microseconds(), retainBatch}, retainAdjustmentsHead, retainAdjustmentsTail)
		removed += n
		if err != nil || n < retainBatch {
			return removed, err
		}
	}
}

// removeTokens is one transaction that locks the rows which list names and that
// nobody else has, and deletes them.
func (s *Store) removeTokens(ctx context.Context, list string, args []any, head, tail string) (removed int, err error) {
	err = s.retainStep(ctx, func(ctx context.Context, t *tx) error {
		removed = 0
		b := new(statement).add(head)
		err := t.query(ctx, func(rows *sql.Rows) error {
			var token []byte
			if err := rows.Scan(&token); err != nil {
				return err
			}
			row := retainTokensNext
			if removed == 0 {
				row = retainTokensFirst
			}
			b.add(row, token)
			removed++
			return nil
		}, list, args...)
		if err != nil || removed == 0 {
			return err
		}
		b.add(tail)
		_, err = t.exec(ctx, b.String())
		return err
	})
	if err != nil {
		removed = 0
	}
	return removed, err
}

// retainStep is one short transaction and the pause after it.
func (s *Store) retainStep(ctx context.Context, step func(context.Context, *tx) error) error {
	began := time.Now()
	opCtx, cancel := s.deadline(ctx)
	defer cancel()
	if err := s.transact(opCtx, s.main, "retain", holdover.Token{}, step); err != nil {
		return err
	}
	sleep(ctx, max(retainPause, time.Since(began))) // at most half of the time is spent here
	return nil
}

func (s *Store) retainEntries(ctx context.Context) (removed int, err error) {
	old := s.cfg.EntryRetention.Microseconds()
	for after := (holdover.Stock{}); ; {
		var due []holdover.Stock
		seen := 0
		scan := func(rows *sql.Rows) error {
			var is bool
			err := rows.Scan(&after.Shop, &after.Item, &after.Group, &is)
			if is {
				due = append(due, after)
			}
			seen++
			return err
		}
		err := s.read(ctx, s.main, "retain", holdover.Token{}, scan, stmtRetainLocations,
			old, after.Shop, after.Shop, after.Item, after.Item, after.Group, retainLocations)
		if err != nil {
			return removed, err
		}
		for _, at := range due {
			for n := retainBatch; n == retainBatch; {
				if n, err = s.carryEntries(ctx, at, old); err != nil {
					return removed, err
				}
				removed += n
			}
		}
		if seen < retainLocations {
			return removed, nil
		}
	}
}

// carryEntries moves the oldest entries of a location into its balance.
func (s *Store) carryEntries(ctx context.Context, at holdover.Stock, old int64) (carried int, err error) {
	err = s.retainStep(ctx, func(ctx context.Context, t *tx) error {
		carried = 0
		var sum int64
		b := new(statement).add(retainEntriesHead)
		err := t.query(ctx, func(rows *sql.Rows) error {
			var token []byte
			var entry, delta int64
			var kind string
			if err := rows.Scan(&token, &entry, &delta, &kind); err != nil {
				return err
			}
			if kind != kindOversold { // it did not change the ledger
				sum += delta
			}
			row := retainEntriesNext
			if carried == 0 {
				row = retainEntriesFirst
			}
			b.add(row, token, entry)
			carried++
			return nil
		}, stmtRetainEntries, at.Shop, at.Item, at.Group, old, retainBatch)
		if err != nil || carried == 0 {
			return err
		}
		b.add(retainEntriesTail)
		if _, err := t.exec(ctx, b.String()); err != nil {
			return err
		}
		_, err = t.exec(ctx, stmtRetainCarry, at.Shop, at.Item, at.Group, sum, carried, sum, carried)
		return err
	})
	if err != nil {
		carried = 0
	}
	return carried, err
}
