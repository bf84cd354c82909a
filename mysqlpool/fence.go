package mysqlpool

import (
	"context"
	"database/sql"
	"fmt"
	"time"
	"unicode/utf8"

	"holdover"
)

// fenceScan reads the fence's one row, if it is there.
type fenceScan struct {
	fence holdover.Fence
	found bool
}

func (f *fenceScan) scan(rows *sql.Rows) error {
	var stage string
	if err := rows.Scan(&f.fence.Pod, &f.fence.Epoch, &stage, &f.fence.Latched, &f.fence.By, &f.fence.Reason, &f.fence.At); err != nil {
		return err
	}
	var err error
	f.fence.Stage, err = holdover.ParseStage(stage)
	f.found = err == nil
	return err
}

// Fence reads the fence; ErrNoFence when there is none.
func (s *Store) Fence(ctx context.Context) (holdover.Fence, error) {
	var f fenceScan
	if err := s.read(ctx, s.control, "read the fence", holdover.Token{}, f.scan, stmtFence); err != nil {
		return holdover.Fence{}, err
	}
	if !f.found {
		return holdover.Fence{}, s.noFence()
	}
	return f.fence, nil
}

func (s *Store) noFence() error {
	return fmt.Errorf("mysql of pod %s: %w: set the first one, or raise it from redis", s.cfg.Pod, holdover.ErrNoFence)
}

// checkFence is the first statement of every deciding transaction: it refuses
// another epoch, and keeps the fence where it is until the commit. Epoch zero
// stands alone and has no fence.
func (t *tx) checkFence(ctx context.Context, e holdover.Epoch) error {
	if e == 0 {
		return nil
	}
	var f fenceScan
	if err := t.query(ctx, f.scan, stmtFenceShare); err != nil {
		return err
	}
	return t.s.refuse(f, e)
}

// refuse is what the fence says to a caller with epoch e: nil when it may go on.
func (s *Store) refuse(f fenceScan, e holdover.Epoch) error {
	switch {
	case e == 0:
		return nil
	case !f.found:
		return s.noFence()
	case f.fence.Epoch != e:
		return &holdover.StaleError{Store: holdover.StoreMySQL, Asked: e, Fence: f.fence}
	}
	return nil
}

// CompareAndSetFence writes f if the epoch here is still from (zero: no fence
// yet), else returns a *StaleError with the fence that is there.
func (s *Store) CompareAndSetFence(ctx context.Context, from holdover.Epoch, f holdover.Fence) error {
	if f.Epoch <= from || f.Stage == holdover.StageUnknown {
		return &holdover.InvalidError{Field: "fence", Value: f.String(), Problem: fmt.Sprintf("can't follow epoch %d: want a larger epoch and a stage", from)}
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.transact(ctx, s.control, "set the fence", holdover.Token{}, func(ctx context.Context, t *tx) error {
		there, err := t.lockFence(ctx)
		if err != nil {
			return err
		}
		if there.fence.Epoch != from { // zero when there is none
			return &holdover.StaleError{Store: holdover.StoreMySQL, Asked: from, Fence: there.fence}
		}
		return t.setFence(ctx, there.found, f)
	})
}

// RaiseFence writes f if its epoch is larger than the one here, and returns the
// fence that is there afterwards.
func (s *Store) RaiseFence(ctx context.Context, f holdover.Fence) (holdover.Fence, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	var after holdover.Fence
	err := s.transact(ctx, s.control, "raise the fence", holdover.Token{}, func(ctx context.Context, t *tx) (err error) {
		after, err = t.raiseFence(ctx, f)
		return err
	})
	return after, err
}

// TripFence is MySQL's half of a kill, in one transaction with a short lock
// wait and on connections of its own: it raises the fence, if f's epoch is
// larger, and returns the whole journal with each hold as it is now. While it
// holds the fence no deciding step is under way, so no fact is missed. More
// facts than JournalMax are an error, and the fence stays as it was.
func (s *Store) TripFence(ctx context.Context, f holdover.Fence) (facts []holdover.Journaled, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	err = s.transact(ctx, s.control, "trip the fence", holdover.Token{}, func(ctx context.Context, t *tx) error {
		if _, err := t.raiseFence(ctx, f); err != nil {
			return err
		}
		var j journalScan
		if err := t.query(ctx, j.scan, stmtJournalRead, s.window(), s.cfg.JournalMax+1); err != nil {
			return err
		}
		if len(j.rows) > s.cfg.JournalMax {
			return fmt.Errorf("mysql of pod %s: the journal has more than %d facts, which a kill can't carry: drain it first, or raise journal_max: %w", s.cfg.Pod, s.cfg.JournalMax, holdover.ErrOverloaded)
		}
		facts = j.rows
		return nil
	})
	if err != nil {
		return nil, err
	}
	return facts, nil
}

// FenceHistory lists the fences that were ever written here, newest first.
func (s *Store) FenceHistory(ctx context.Context, limit int) ([]holdover.Fence, error) {
	var all []holdover.Fence
	scan := func(rows *sql.Rows) error {
		var f fenceScan
		err := f.scan(rows)
		all = append(all, f.fence)
		return err
	}
	err := s.read(ctx, s.control, "read the audit", holdover.Token{}, scan, stmtHistory, limit)
	return all, err
}

func (t *tx) lockFence(ctx context.Context) (fenceScan, error) {
	var f fenceScan
	err := t.query(ctx, f.scan, stmtFenceUpdate)
	return f, err
}

func (t *tx) raiseFence(ctx context.Context, f holdover.Fence) (holdover.Fence, error) {
	there, err := t.lockFence(ctx)
	if err != nil {
		return holdover.Fence{}, err
	}
	if there.found && there.fence.Epoch >= f.Epoch {
		return there.fence, nil
	}
	if f.Epoch == 0 || f.Stage == holdover.StageUnknown {
		return holdover.Fence{}, &holdover.InvalidError{Field: "fence", Value: f.String(), Problem: "needs an epoch and a stage"}
	}
	if err := t.setFence(ctx, there.found, f); err != nil {
		return holdover.Fence{}, err
	}
	after, err := t.lockFence(ctx)
	return after.fence, err
}

func (t *tx) setFence(ctx context.Context, found bool, f holdover.Fence) error {
	if f.Pod == "" {
		f.Pod = t.s.cfg.Pod
	}
	stmt := stmtFenceInsert
	if found {
		stmt = stmtFenceSet
	}
	_, err := t.exec(ctx, stmt, f.Pod, uint64(f.Epoch), f.Stage.String(), f.Latched, clip(f.By, 255), clip(f.Reason, 1000))
	if number(err) == errDuplicateKey {
		return &serverError{again: true, err: fmt.Errorf("another instance wrote the first fence: %w", err)}
	}
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, stmtAudit)
	return err
}

// clip keeps at most n characters of a text that people write.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-3]) + "..."
}

// journalScan puts the journal's rows and their holds together.
type journalScan struct {
	rows  []holdover.Journaled
	holds records
}

func (j *journalScan) scan(rows *sql.Rows) error {
	var (
		token                             []byte
		version                           uint64
		since                             time.Time
		line, shop, item, group, quantity sql.NullInt64
		state                             sql.NullString
		expires, granted                  sql.NullTime
		attempt                           sql.Null[uint64]
		firm                              sql.NullBool
		claimed                           sql.NullInt64
	)
	if err := rows.Scan(&token, &version, &since, &line, &shop, &item, &group, &quantity, &state, &expires, &granted, &attempt, &firm, &claimed); err != nil {
		return err
	}
	if !line.Valid { // given back since: nothing is known of it
		t, err := tokenOf(token)
		j.rows = append(j.rows, holdover.Journaled{Hold: holdover.Hold{Token: t}, Version: version, Since: since})
		return err
	}
	before := len(j.holds)
	if err := j.holds.add(holdRow{
		token: token, line: line.Int64, shop: shop.Int64, item: item.Int64, group: group.Int64, quantity: quantity.Int64,
		state: state.String, expires: expires.Time, granted: granted.Time, attempt: attempt.V, firm: firm.Bool, claimed: claimed,
	}); err != nil {
		return err
	}
	h := j.holds[len(j.holds)-1].Hold
	if len(j.holds) > before {
		j.rows = append(j.rows, holdover.Journaled{Hold: h, Version: version, Since: since})
	} else {
		j.rows[len(j.rows)-1].Hold = h // one line more
	}
	return nil
}
