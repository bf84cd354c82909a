package mysqlpool

import (
	"context"
	"database/sql"

	"holdover"
)

const (
	stmtFollowed     = `SELECT epoch FROM holdover_followed WHERE id = 1 /*app='holdover',op='followed',step='read'*/`
	stmtNoteFollowed = `INSERT INTO holdover_followed (id, epoch) VALUES (1, ?) ON DUPLICATE KEY UPDATE epoch = GREATEST(epoch, ?) /*app='holdover',op='followed',step='note'*/`
)

// Followed is the largest epoch at which the pod's Redis was seen; zero: none.
func (s *Store) Followed(ctx context.Context) (epoch holdover.Epoch, err error) {
	scan := func(rows *sql.Rows) error { return rows.Scan(&epoch) }
	err = s.read(ctx, s.control, "read what redis followed", holdover.Token{}, scan, stmtFollowed)
	return epoch, err
}

// NoteFollowed records that the pod's Redis was seen at epoch.
func (s *Store) NoteFollowed(ctx context.Context, epoch holdover.Epoch) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.transact(ctx, s.control, "note what redis followed", holdover.Token{}, func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, stmtNoteFollowed, uint64(epoch), uint64(epoch))
		return err
	})
}
