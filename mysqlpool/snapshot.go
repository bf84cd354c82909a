package mysqlpool

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"holdover"
	"holdover/mysqlpool/connhold"
)

// A snapshot is read to fill Redis anew. Its transaction locks nothing, but keeps
// purge back while it is open: it lasts as long as its pages take.
const (
	stmtSnapshotLevel = `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ /*app='holdover',op='snapshot',step='level'*/`
	stmtSnapshotBegin = `START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY /*app='holdover',op='snapshot',step='begin'*/`

	// By the index's own order (state, expires_at, token), whole holds a page.
	stmtSnapshotHolds = pageHead + `SELECT token, expires_at FROM reserved_quantities FORCE INDEX (reserved_quantities_due)
WHERE state = ? AND line = 0 AND expires_at >= ? AND (expires_at > ? OR token > ?)
ORDER BY expires_at, token LIMIT ?) p JOIN reserved_quantities r ON r.token = p.token
ORDER BY p.expires_at, p.token, r.line /*app='holdover',op='snapshot',step='holds'*/`
	stmtSnapshotNow     = `SELECT UTC_TIMESTAMP(3) /*app='holdover',op='snapshot',step='now'*/`
	stmtSnapshotJournal = `SELECT j.token, j.version, j.since, r.line, r.shop_id, r.item_id, r.group_id, r.quantity, r.state, r.expires_at, r.granted_at, r.attempt,
(r.firm OR r.granted_at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND), r.claimed
FROM (SELECT token, version, since FROM holdover_unmirrored WHERE token > ? ORDER BY token LIMIT ?) j
LEFT JOIN reserved_quantities r ON r.token = j.token
ORDER BY j.token, r.line /*app='holdover',op='snapshot',step='journal'*/`

	clearJournalHead  = `DELETE j FROM (`
	clearJournalFirst = `SELECT ? AS token, ? AS version`
	clearJournalNext  = ` UNION ALL SELECT ?, ?`
	clearJournalTail  = `) d STRAIGHT_JOIN holdover_unmirrored j FORCE INDEX (PRIMARY)
ON j.token = d.token AND j.version = d.version /*app='holdover',op='journal',step='clear_many'*/`
)

const (
	snapshotPage     = 500
	clearJournalRows = 100 // of one transaction
)

// errSnapshotLost is said beside the error of a page that could not be read.
var errSnapshotLost = errors.New("the snapshot is lost: take a new one")

// Snapshot reads one consistent state, page by page: the fence, the ledger, the
// live holds, those that ended and whose expiry is less than ended ago, the
// journal, and the adjustments that Redis is owed. Each page's read has the
// store's deadline; an error of use ends it.
func (s *Store) Snapshot(ctx context.Context, ended time.Duration, use func(context.Context, holdover.SnapshotPage) error) (err error) {
	ctx = connhold.WithTag(ctx, "snapshot")
	asking, cancel := s.deadline(ctx)
	defer cancel()
	conn, err := s.main.Conn(asking)
	if err != nil {
		return s.fail("snapshot", holdover.Token{}, timedOut(asking, err))
	}
	defer conn.Close()
	for _, q := range []string{stmtSnapshotLevel, stmtSnapshotBegin} {
		if _, err := conn.ExecContext(asking, q); err != nil {
			discard(conn)
			return s.fail("snapshot", holdover.Token{}, timedOut(asking, err))
		}
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, rollback := conn.ExecContext(ctx, stmtRollback); rollback != nil {
			discard(conn)
		}
	}()
	n := &snapshot{s: s, conn: conn, use: use}
	for _, part := range []func(context.Context) error{
		n.fence, n.stocks, n.holds(holdover.StateHeld, 0), n.holds(holdover.StateClaimed, ended),
		n.holds(holdover.StateReleased, ended), n.holds(holdover.StateExpired, ended), n.journal, n.adjusted,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// snapshot reads on its one connection.
type snapshot struct {
	s    *Store
	conn *sql.Conn
	use  func(context.Context, holdover.SnapshotPage) error
}

func (n *snapshot) read(ctx context.Context, scan func(*sql.Rows) error, q string, args ...any) error {
	ctx, cancel := n.s.deadline(ctx)
	defer cancel()
	err := each(ctx, n.conn, scan, q, args...)
	if err == nil {
		return nil
	}
	return n.s.fail("snapshot", holdover.Token{}, errors.Join(timedOut(ctx, err), errSnapshotLost))
}

func (n *snapshot) fence(ctx context.Context) error {
	var f fenceScan
	if err := n.read(ctx, f.scan, stmtFence); err != nil {
		return err
	}
	if !f.found {
		return n.s.noFence()
	}
	return n.use(ctx, holdover.SnapshotPage{Fence: &f.fence})
}

func (n *snapshot) stocks(ctx context.Context) error {
	for after := (holdover.Stock{}); ; {
		var page []holdover.Stock
		err := n.read(ctx, func(rows *sql.Rows) error {
			var st holdover.Stock
			err := rows.Scan(&st.Shop, &st.Item, &st.Group, &st.Available)
			page = append(page, st)
			return err
		}, n.s.ledger.snapshot, after.Shop, after.Shop, after.Item, after.Item, after.Group, snapshotPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return nil
		}
		if err := n.use(ctx, holdover.SnapshotPage{Stocks: page}); err != nil {
			return err
		}
		after = page[len(page)-1]
	}
}

// holds reads those of one state; with a retention, those whose expiry is not
// longer ago.
func (n *snapshot) holds(state holdover.State, retention time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		from := time.Unix(0, 0).UTC()
		if retention > 0 {
			err := n.read(ctx, func(rows *sql.Rows) error { return rows.Scan(&from) }, stmtSnapshotNow)
			if err != nil {
				return err
			}
			from = from.Add(-retention)
		}
		for after := (holdover.Token{}); ; {
			var rs records
			if err := n.read(ctx, rs.scan, stmtSnapshotHolds, n.s.window(), state.String(), from, from, after[:], snapshotPage); err != nil {
				return err
			}
			if len(rs) == 0 {
				return nil
			}
			page := make([]holdover.Hold, len(rs))
			for i, r := range rs {
				page[i] = r.Hold
			}
			last := page[len(page)-1]
			from, after = last.ExpiresAt, last.Token
			if err := n.use(ctx, holdover.SnapshotPage{Holds: page}); err != nil {
				return err
			}
		}
	}
}

func (n *snapshot) journal(ctx context.Context) error {
	for after := (holdover.Token{}); ; {
		var j journalScan
		if err := n.read(ctx, j.scan, stmtSnapshotJournal, n.s.window(), after[:], snapshotPage); err != nil {
			return err
		}
		if len(j.rows) == 0 {
			return nil
		}
		if err := n.use(ctx, holdover.SnapshotPage{Journal: j.rows}); err != nil {
			return err
		}
		after = j.rows[len(j.rows)-1].Hold.Token
	}
}

func (n *snapshot) adjusted(ctx context.Context) error {
	var rows adjustedScan
	if err := n.read(ctx, rows.scan, stmtAdjustOwed, maxOwed); err != nil {
		return err
	}
	if len(rows) == maxOwed {
		return n.s.fail("snapshot", holdover.Token{}, errors.New("redis is owed more adjustments than a rebuild can mark as settled: wait until SettleAdjustments has caught up, or rebuild again"))
	}
	for page := range slices.Chunk(rows, snapshotPage) {
		if err := n.use(ctx, holdover.SnapshotPage{Adjusted: page}); err != nil {
			return err
		}
	}
	return nil
}

// maxOwed bounds the adjustments that one rebuild marks.
const maxOwed = 1_000_000

// ClearJournaled deletes the rows that are still at the versions given.
func (s *Store) ClearJournaled(ctx context.Context, rows []holdover.Journaled) error {
	for chunk := range slices.Chunk(rows, clearJournalRows) {
		b := new(statement).add(clearJournalHead)
		for i, row := range chunk {
			text := clearJournalNext
			if i == 0 {
				text = clearJournalFirst
			}
			b.add(text, row.Hold.Token[:], row.Version)
		}
		q := b.add(clearJournalTail).String()
		err := func() error {
			ctx, cancel := s.deadline(ctx)
			defer cancel()
			return s.transact(ctx, s.control, "clear the journal", holdover.Token{}, func(ctx context.Context, t *tx) error {
				_, err := t.exec(ctx, q)
				return err
			})
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

// JournalFact records that Redis does not have what became of a token: an end
// that Redis knew of, and lost. It carries no epoch, as facts do not.
func (s *Store) JournalFact(ctx context.Context, token holdover.Token) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	return s.transact(ctx, s.control, "journal a fact", token, func(ctx context.Context, t *tx) error {
		return t.journal(ctx, token)
	})
}
