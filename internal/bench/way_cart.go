package bench

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"

	"holdover"
)

// The ways for carts: several lines, all or nothing.

// perLine takes a cart with a statement for each line, each a round trip, in
// one transaction; the holds and the commit follow in one packet. Lines come
// sorted, so that no two carts wait for each other.
type perLine struct {
	rows
	sorted    bool
	pipelined bool
}

func openPerLine(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	return perLine{rows: r, sorted: true}, err
}

// openPerLineUnsorted takes the lines as they come: carts deadlock.
func openPerLineUnsorted(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	return perLine{rows: r}, err
}

// openPerLinePipelined sends all of it in one packet, the holds first: its
// locks are held for the statements and the commit alone.
func openPerLinePipelined(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	return perLine{rows: r, sorted: true, pipelined: true}, err
}

func (w perLine) reserve(ctx context.Context, c *call) (bool, error) {
	if w.sorted {
		sortLines(c.lines)
	}
	return c.tried(func() error {
		if w.pipelined {
			return w.onePacket(ctx, c)
		}
		first := c.lines[0]
		return begun(ctx, w.db, func(conn *sql.Conn, r sql.Result) error {
			for i := range c.lines {
				if i > 0 {
					l := c.lines[i]
					var err error
					if r, err = conn.ExecContext(ctx, updateStock, l.Quantity, l.Item, l.Quantity); err != nil {
						return err
					}
				}
				if n, err := r.RowsAffected(); err != nil || n == 0 {
					return cmpErr(err, errShort)
				}
			}
			var b strings.Builder
			b.WriteString(insertHoldHead)
			args := insertHolds(&b, nil, c)
			_, err := conn.ExecContext(ctx, b.String()+"; "+commitTx, args...)
			return err
		}, beginTx+updateStock, first.Quantity, first.Item, first.Quantity)
	})
}

func (w perLine) onePacket(ctx context.Context, c *call) error {
	var b strings.Builder
	b.WriteString(beginTx + insertHoldHead)
	args := insertHolds(&b, nil, c)
	for _, l := range c.lines {
		b.WriteString("; " + takeStock)
		args = append(args, l.Quantity, l.Item)
	}
	b.WriteString("; " + commitTx)
	return shortIfChecked(begun(ctx, w.db, nil, b.String(), args...))
}

func sortLines(lines []holdover.Line) {
	slices.SortFunc(lines, func(a, b holdover.Line) int { return cmp.Compare(a.Item, b.Item) })
}

// oneStatement takes the whole cart with one conditional UPDATE over its rows,
// the holds first, in one packet.
type oneStatement struct{ rows }

func openOneStatement(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	return oneStatement{r}, err
}

func (w oneStatement) reserve(ctx context.Context, c *call) (bool, error) {
	wanted := make(map[int64]int64, len(c.lines))
	for _, l := range c.lines {
		wanted[l.Item] += l.Quantity
	}
	var b strings.Builder
	b.WriteString(beginTx + insertHoldHead)
	args := insertHolds(&b, nil, c)
	b.WriteString("; ")
	args = takeSums(&b, args, wanted)
	b.WriteString("; " + commitTx)
	return c.tried(func() error { return shortIfChecked(begun(ctx, w.db, nil, b.String(), args...)) })
}

// perLineUnits takes unit rows with two statements for each line.
type perLineUnits struct{ units }

func openPerLineUnits(ctx context.Context, s *servers, set setting) (way, error) {
	u, err := openUnits(ctx, s, set, nil)
	return perLineUnits{u}, err
}

func (w perLineUnits) reserve(ctx context.Context, c *call) (bool, error) {
	sortLines(c.lines)
	return w.taken(ctx, c, func() error {
		return begun(ctx, w.db, func(conn *sql.Conn, _ sql.Result) error {
			for _, l := range c.lines {
				var unit int64
				if err := conn.QueryRowContext(ctx, grabUnit, l.Item).Scan(&unit); err != nil {
					return noRows(err)
				}
				if _, err := conn.ExecContext(ctx, deleteUnit, l.Item, unit); err != nil {
					return err
				}
			}
			var b strings.Builder
			b.WriteString(insertHoldHead)
			args := insertHolds(&b, nil, c)
			_, err := conn.ExecContext(ctx, b.String()+"; "+commitTx, args...)
			return err
		}, "START TRANSACTION")
	})
}

// union takes unit rows of all lines with one statement, a transaction for
// each cart, two packets.
type union struct{ units }

func openUnion(ctx context.Context, s *servers, set setting) (way, error) {
	u, err := openUnits(ctx, s, set, nil)
	return union{u}, err
}

const (
	unionHead   = `SELECT item_id, unit FROM (`
	unionBranch = `(SELECT item_id, unit FROM bench_units WHERE item_id = ? ORDER BY unit LIMIT ? FOR UPDATE SKIP LOCKED)`
	unionTail   = `) u`

	// Looked up by whole keys: a list in the WHERE clause becomes a scan on a
	// small table, and a scan waits for other buyers' rows.
	unionDelete     = `DELETE u FROM (`
	unionDeleteUnit = `SELECT ? AS item_id, ? AS unit`
	unionDeleteTail = `) d STRAIGHT_JOIN bench_units u FORCE INDEX (PRIMARY) ON u.item_id = d.item_id AND u.unit = d.unit; `
)

func (w union) reserve(ctx context.Context, c *call) (bool, error) {
	sortLines(c.lines)
	var grab strings.Builder
	var wanted int64
	args := make([]any, 0, 2*len(c.lines))
	grab.WriteString(beginTx + unionHead)
	for i, l := range c.lines {
		if i > 0 {
			grab.WriteString(" UNION ALL ")
		}
		grab.WriteString(unionBranch)
		args = append(args, l.Item, l.Quantity)
		wanted += l.Quantity
	}
	grab.WriteString(unionTail)
	return w.taken(ctx, c, func() error {
		conn, err := w.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		remove, taken, err := w.grabbed(ctx, conn, grab.String(), args)
		if err == nil && int64(len(taken)) < 2*wanted {
			err = errShort
		}
		if err == nil {
			var b strings.Builder
			b.WriteString(insertHoldHead)
			holds := insertHolds(&b, nil, c)
			_, err = conn.ExecContext(ctx, remove+unionDeleteTail+b.String()+"; "+commitTx, append(taken, holds...)...)
		}
		if err != nil {
			_, _ = conn.ExecContext(ctx, rollbackTx) // a connection that can't is broken, and dropped
		}
		return err
	})
}

// grabbed runs the union and begins the DELETE of what it locked.
func (w union) grabbed(ctx context.Context, conn *sql.Conn, grab string, args []any) (remove string, taken []any, err error) {
	found, err := conn.QueryContext(ctx, grab, args...)
	if err != nil {
		return "", nil, err
	}
	defer found.Close()
	var b strings.Builder
	b.WriteString(unionDelete)
	for found.Next() {
		var item, unit int64
		if err := found.Scan(&item, &unit); err != nil {
			return "", nil, err
		}
		if len(taken) > 0 {
			b.WriteString(" UNION ALL ")
		}
		b.WriteString(unionDeleteUnit)
		taken = append(taken, item, unit)
	}
	return b.String(), taken, found.Err()
}
