package mysqlpool

import (
	"context"
	"database/sql"

	"holdover"
)

const (
	stmtLateNote   = `INSERT IGNORE INTO holdover_latecomers (token, fact, at) VALUES (?, ?, UTC_TIMESTAMP(3)) /*app='holdover',op='latecomer',step='note'*/`
	stmtLateForget = `DELETE FROM holdover_latecomers WHERE at < UTC_TIMESTAMP(3) - INTERVAL 1 DAY ORDER BY at LIMIT 1000 /*app='holdover',op='latecomer',step='forget'*/`
	stmtLate       = `SELECT 1 FROM holdover_latecomers WHERE token = ? AND fact = ? /*app='holdover',op='latecomer',step='read'*/`
)

// NoteLate notes that facts came here after their hold had ended, for whoever ended
// it and missed them then. Notes of more than a day go with the next one.
func (s *Store) NoteLate(ctx context.Context, token holdover.Token, facts ...holdover.State) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.transact(ctx, s.main, "note a late fact", token, func(ctx context.Context, t *tx) error {
		for _, fact := range facts {
			if _, err := t.exec(ctx, stmtLateNote, token[:], fact.String()); err != nil {
				return err
			}
		}
		_, err := t.exec(ctx, stmtLateForget)
		return err
	})
}

// CameLate reports whether the fact came here after the hold had ended.
func (s *Store) CameLate(ctx context.Context, token holdover.Token, fact holdover.State) (late bool, err error) {
	err = s.read(ctx, s.main, "read a late fact", token, func(*sql.Rows) error { late = true; return nil }, stmtLate, token[:], fact.String())
	return late, err
}
