package mysqlpool

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"holdover"
)

// record is a hold as read, with what only the server's clock can say.
type record struct {
	holdover.Hold
	due bool      // its expiry has passed
	now time.Time // when it was read
}

// records puts rows of one line each together. Rows of one token follow each other.
type records []record

type holdRow struct {
	token                       []byte
	line                        int64
	shop, item, group, quantity int64
	state                       string
	expires, granted            time.Time
	attempt                     uint64
	firm, due                   bool
	claimed                     sql.NullInt64 // units of a claimed part
	now                         time.Time
}

func (rs *records) scan(rows *sql.Rows) error {
	var r holdRow
	if err := rows.Scan(&r.token, &r.line, &r.shop, &r.item, &r.group, &r.quantity, &r.state, &r.expires, &r.granted, &r.attempt, &r.firm, &r.due, &r.claimed, &r.now); err != nil {
		return err
	}
	return rs.add(r)
}

func (rs *records) add(r holdRow) error {
	token, err := tokenOf(r.token)
	if err != nil {
		return err
	}
	n := len(*rs)
	if n == 0 || (*rs)[n-1].Token != token {
		state, err := holdover.ParseState(r.state)
		if err != nil {
			return fmt.Errorf("reserved_quantities, token %s: %w", token, err)
		}
		*rs = append(*rs, record{due: r.due, now: r.now, Hold: holdover.Hold{
			Token: token, Shop: r.shop, State: state, ExpiresAt: r.expires, GrantedAt: r.granted,
			Attempt: holdover.Attempt(r.attempt), Firm: r.firm,
		}})
		n++
	}
	if r.item != 0 { // zero: the end record of a hold that was never here
		h := &(*rs)[n-1].Hold
		h.Lines = append(h.Lines, holdover.Line{Item: r.item, Group: r.group, Quantity: r.quantity})
		if r.claimed.Valid && r.claimed.Int64 > 0 {
			h.Claimed = append(h.Claimed, holdover.Line{Item: r.item, Group: r.group, Quantity: r.claimed.Int64})
		}
	}
	return nil
}

func (rs records) one(token holdover.Token) record {
	if len(rs) == 0 {
		return record{Hold: holdover.Hold{Token: token}}
	}
	return rs[0]
}

func tokenOf(b []byte) (t holdover.Token, err error) {
	if len(b) != len(t) {
		return t, fmt.Errorf("a token of %d bytes instead of %d", len(b), len(t))
	}
	copy(t[:], b)
	return t, nil
}

// Lookup returns what the store knows of the token, end records included; the
// state is StateNone for an unknown one.
func (s *Store) Lookup(ctx context.Context, token holdover.Token) (holdover.Hold, error) {
	r, err := s.look(ctx, token)
	return r.Hold, err
}

func (s *Store) look(ctx context.Context, token holdover.Token) (record, error) {
	var rs records
	err := s.read(ctx, s.main, "look up", token, rs.scan, stmtHold, s.window(), token[:])
	return rs.one(token), err
}

func (t *tx) look(ctx context.Context, stmt string, token holdover.Token) (record, error) {
	var rs records
	err := t.query(ctx, rs.scan, stmt, t.s.window(), token[:])
	return rs.one(token), err
}

func (s *Store) window() int64 { return s.cfg.GiveBackWindow.Microseconds() }

// Due lists up to limit held holds whose expiry is at least grace past, oldest
// first. items, when not empty, narrows it to holds with one of these items of
// the shop.
func (s *Store) Due(ctx context.Context, grace time.Duration, shop int64, items []int64, limit int) ([]holdover.Hold, error) {
	if len(items) == 0 {
		return s.dueAfter(ctx, grace, holdover.Hold{}, limit)
	}
	b := new(statement)
	b.add(dueItemsHead, s.window(), grace.Microseconds(), shop).in(items).add(dueItemsTail, limit)
	return s.page(ctx, "list due holds", b.String())
}

// dueAfter is one page of due holds, those after the given one: a hold that
// can't be ended never stands in the way of the next ones.
func (s *Store) dueAfter(ctx context.Context, grace time.Duration, after holdover.Hold, limit int) ([]holdover.Hold, error) {
	from := after.ExpiresAt
	if from.IsZero() {
		from = time.Unix(0, 0).UTC()
	}
	return s.page(ctx, "list due holds", stmtDue, s.window(), grace.Microseconds(), from, from, after.Token[:], limit)
}

// LiveHolds is one page of live holds, by token, for verification: up to limit
// of those after the given token (the zero token for the first page). A page
// of fewer is the last one.
func (s *Store) LiveHolds(ctx context.Context, after holdover.Token, limit int) ([]holdover.Hold, error) {
	return s.page(ctx, "list live holds", stmtLive, s.window(), after[:], limit)
}

func (s *Store) page(ctx context.Context, op, q string, args ...any) ([]holdover.Hold, error) {
	var rs records
	if err := s.read(ctx, s.main, op, holdover.Token{}, rs.scan, q, args...); err != nil {
		return nil, err
	}
	holds := make([]holdover.Hold, len(rs))
	for i, r := range rs {
		holds[i] = r.Hold
	}
	return holds, nil
}

// insertHold adds rows of one hold, one a line.
func (b *statement) insertHold(h holdover.Hold) *statement {
	row := insertHoldRow
	if h.State == holdover.StateClaimed {
		row = insertClaimRow
	}
	for i, l := range h.Lines {
		if b.rows == maxRows {
			b.endRows(insertHoldTail)
		}
		if b.rows == 0 {
			b.next().add(insertHoldHead)
		}
		b.sep(b.rows, ", ").add(row, h.Token[:], i, h.Shop, l.Item, l.Group, l.Quantity, h.ExpiresAt, h.GrantedAt, uint64(h.Attempt), h.Firm)
		b.rows++
	}
	return b
}

func (t *tx) insertHold(ctx context.Context, h holdover.Hold) error {
	b := new(statement).insertHold(h).endRows(insertHoldTail)
	if _, err := t.send(ctx, b); err != nil {
		if number(err) == errDuplicateKey {
			return errTaken
		}
		return err
	}
	return nil
}

func rounded(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
