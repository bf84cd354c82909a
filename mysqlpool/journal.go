package mysqlpool

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"holdover"
)

// journal records that Redis does not have what this transaction does. It is
// the last lock of a transaction.
func (b *statement) journal(token holdover.Token) *statement {
	// Random, not counted: a drain that is late with an old version must not
	// delete a row that was deleted and written again since.
	version := rand.Uint64()
	return b.next().add(stmtJournal, token[:], version, version)
}

func (t *tx) journal(ctx context.Context, token holdover.Token) error {
	_, err := t.send(ctx, new(statement).journal(token))
	return err
}

// JournalGrant records that Redis does not have a held token, in a transaction
// that reads the fence. Errors: ErrUnknownHold, *EndedError, ErrAlreadyClaimed.
func (s *Store) JournalGrant(ctx context.Context, e holdover.Epoch, token holdover.Token) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.transact(ctx, s.main, "journal a grant", token, func(ctx context.Context, t *tx) error {
		if err := t.checkFence(ctx, e); err != nil {
			return err
		}
		h, err := t.look(ctx, stmtHoldUpdate, token)
		switch {
		case err != nil:
			return err
		case h.State == holdover.StateNone:
			return unknownHold(token)
		case h.State.Ended():
			return holdover.EndError(token, h.State)
		}
		// The row says that the buyer was told, and the drain carries it into Redis:
		// a give-back must not take it away here only.
		if !h.Firm {
			if _, err := t.exec(ctx, stmtFirm, token[:]); err != nil {
				return err
			}
		}
		return t.journal(ctx, token)
	})
}

// Journal lists up to limit unmirrored facts, oldest first. A row's hold is
// what the store knows now; StateNone when the grant was given back.
func (s *Store) Journal(ctx context.Context, limit int) ([]holdover.Journaled, error) {
	var j journalScan
	err := s.read(ctx, s.control, "read the journal", holdover.Token{}, j.scan, stmtJournalRead, s.window(), limit)
	return j.rows, err
}

// JournalSize counts the rows and gives the age of the oldest.
func (s *Store) JournalSize(ctx context.Context) (rows int64, oldest time.Duration, err error) {
	var micros int64
	scan := func(r *sql.Rows) error { return r.Scan(&rows, &micros) }
	err = s.read(ctx, s.control, "count the journal", holdover.Token{}, scan, stmtJournalSize)
	return rows, time.Duration(micros) * time.Microsecond, err
}

// ClearJournal deletes the row of token if it is still at version. Clearing
// what is gone is no error.
func (s *Store) ClearJournal(ctx context.Context, token holdover.Token, version uint64) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.transact(ctx, s.control, "clear the journal", token, func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, stmtJournalDone, token[:], version)
		return err
	})
}
