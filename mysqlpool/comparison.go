package mysqlpool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover"
)

// What instances compared, one rollup for each run and period. Nobody on a
// buyer's path reads or writes these tables.
const (
	stmtRollupLast = `SELECT COALESCE(MAX(seq), 0) FROM holdover_rollups FORCE INDEX (holdover_rollups_run) WHERE run = ? /*app='holdover',op='rollup',step='last'*/`
	stmtRollup     = `INSERT INTO holdover_rollups (run, seq, lost, pod, instance, from_at, to_at, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) /*app='holdover',op='rollup',step='head'*/`
	// The id is the head's: LAST_INSERT_ID() is not changed by tables without one.
	rollupCellsHead = `INSERT INTO holdover_rollup_cells (rollup, stage, op, minute, eligible, compared, differed, unexplained, payload) VALUES `
	rollupCellsRow  = `(LAST_INSERT_ID(), ?, ?, ?, ?, ?, ?, ?, ?)`
	rollupCellsTail = ` /*app='holdover',op='rollup',step='cells'*/`
	divergencesHead = `INSERT INTO holdover_divergences (rollup, n, place, kind, at, shop_id, token, payload) VALUES `
	divergencesRow  = `(LAST_INSERT_ID(), ?, ?, ?, ?, ?, ?, ?)`
	divergencesTail = ` /*app='holdover',op='rollup',step='divergences'*/`
)

// Bounds of one rollup.
const (
	maxRollupCells  = 1000
	maxRollupRows   = 10_000  // divergences
	maxRollupPacket = 6 << 20 // compressed bytes, sent in hexadecimal; MariaDB's max_allowed_packet is 16 MiB
	divergenceBatch = 200     // of one INSERT
)

// AppendComparison keeps what one run compared in one period: once by run and
// seq; again says that it was there already. It is one transaction.
//
// The rollups of a run come in order: one that is not the next is refused with a
// *holdover.SequenceError unless c.Lost accounts for those between. What can
// never be kept is a *holdover.InvalidError.
func (s *Store) AppendComparison(ctx context.Context, c holdover.Comparison) (again bool, err error) {
	if err := s.checkComparison(c); err != nil {
		return false, err
	}
	statements, err := comparisonStatements(c)
	if err != nil {
		return false, err
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	err = s.transact(ctx, s.control, "keep a rollup", holdover.Token{}, func(ctx context.Context, t *tx) error {
		again = false
		var last uint64
		if err := t.query(ctx, func(r *sql.Rows) error { return r.Scan(&last) }, stmtRollupLast, []byte(c.Run)); err != nil {
			return err
		}
		switch {
		case c.Seq <= last:
			again = true
			return nil
		case c.Seq-last-1 > c.Lost:
			return &holdover.SequenceError{Run: c.Run, Last: last, Seq: c.Seq}
		}
		for i, b := range statements {
			_, err := t.exec(ctx, b.String(), b.args...)
			if i == 0 && number(err) == errDuplicateKey {
				return &serverError{again: true, err: fmt.Errorf("the rollup was kept by somebody else meanwhile: %w", err)}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if badData(err) {
		return false, &holdover.InvalidError{Field: "rollup", Value: rollupName(c), Problem: "can't be kept by MySQL: " + err.Error()}
	}
	return again, err
}

func rollupName(c holdover.Comparison) string { return fmt.Sprintf("%s-%d", c.Run, c.Seq) }

// checkComparison refuses what MySQL would refuse, with a better text.
func (s *Store) checkComparison(c holdover.Comparison) error {
	bad := func(problem string, args ...any) error {
		return &holdover.InvalidError{Field: "rollup", Value: rollupName(c), Problem: fmt.Sprintf(problem, args...)}
	}
	switch {
	case c.Pod != s.cfg.Pod:
		return bad("is of pod %q, and this is the MySQL of pod %s", c.Pod, s.cfg.Pod)
	case c.Run == "" || len(c.Run) > 64:
		return bad("must name its run, in at most 64 bytes")
	case c.Seq == 0:
		return bad("has no number: the first of a run is 1")
	case c.Lost >= c.Seq:
		return bad("can't come after %d lost ones", c.Lost)
	case !storable(c.From) || !storable(c.To) || c.To.Before(c.From):
		return bad("has no possible period: %s to %s", c.From, c.To)
	case len(c.Cells) > maxRollupCells || len(c.Divergences) > maxRollupRows:
		return bad("has %d cells and %d divergences; at most %d and %d are kept", len(c.Cells), len(c.Divergences), maxRollupCells, maxRollupRows)
	}
	for _, d := range c.Divergences {
		if !storable(d.At) {
			return bad("has a divergence at %s", d.At)
		}
	}
	return nil
}

// storable: DATETIME begins with the year 1000 and ends with 9999.
func storable(t time.Time) bool { return t.Year() >= 1970 && t.Year() <= 9999 }

// comparisonStatements are the INSERTs of a rollup, its head first.
func comparisonStatements(c holdover.Comparison) ([]*statement, error) {
	size := 0
	packed := func(payload []byte) []byte {
		p := pack(payload)
		size += len(p)
		return p
	}
	all := []*statement{new(statement).add(stmtRollup, []byte(c.Run), c.Seq, c.Lost, c.Pod, clip(c.Instance, 255), c.From, c.To, packed(c.Head))}
	if len(c.Cells) > 0 {
		b := new(statement).add(rollupCellsHead)
		for i, cell := range c.Cells {
			b.sep(i, ", ").add(rollupCellsRow, cell.Stage.String(), cell.Op.String(), c.From.UTC().Truncate(time.Minute),
				cell.Eligible, cell.Compared, cell.Differed, cell.Unexplained, packed(cell.Payload))
		}
		all = append(all, b.add(rollupCellsTail))
	}
	for from := 0; from < len(c.Divergences); from += divergenceBatch {
		b := new(statement).add(divergencesHead)
		for i, d := range c.Divergences[from:min(from+divergenceBatch, len(c.Divergences))] {
			b.sep(i, ", ").add(divergencesRow, from+i, d.Place, d.Kind, d.At, d.Shop, d.Token[:], packed(d.Payload))
		}
		all = append(all, b.add(divergencesTail))
	}
	if size > maxRollupPacket {
		return nil, &holdover.InvalidError{Field: "rollup", Value: rollupName(c), Problem: fmt.Sprintf("has %d bytes after compression; at most %d are kept", size, maxRollupPacket)}
	}
	return all, nil
}

// badData: the server, or the driver, will refuse the same rows again.
func badData(err error) bool {
	switch number(err) {
	case 1048, // a NULL
		1062,       // a key twice in one rollup
		1264, 1265, // out of range, truncated
		1292, 1366, 1406, // a wrong value, a wrong character, too long
		errTooLarge, errCheck, errCheckMariaDB:
		return true
	}
	return errors.Is(err, mysql.ErrPktTooLarge)
}
