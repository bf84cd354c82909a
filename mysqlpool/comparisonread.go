package mysqlpool

import (
	"bytes"
	"compress/zlib"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"holdover"
)

// A page of heads in the order of their beginning, then the rows of these by
// whole ids: memory is bounded by a page, however long the period is. A rollup
// is complete or not there, so that the three reads need no snapshot. The
// position is told in a form that both dialects read as one range of the key.
const (
	stmtRollupPage = `SELECT id, run, seq, lost, pod, instance, from_at, to_at, payload FROM holdover_rollups FORCE INDEX (holdover_rollups_from)
WHERE from_at >= ? AND from_at < ? AND (from_at > ? OR id > ?)
ORDER BY from_at, id LIMIT ? /*app='holdover',op='rollup',step='page'*/`
	rollupCellsOf = `SELECT rollup, stage, op, eligible, compared, differed, unexplained, payload FROM holdover_rollup_cells FORCE INDEX (PRIMARY)
WHERE rollup IN (`
	rollupCellsOfTail = `) ORDER BY rollup, stage, op /*app='holdover',op='rollup',step='cells_of'*/`
	divergencesOf     = `SELECT rollup, place, kind, at, shop_id, token, payload FROM holdover_divergences FORCE INDEX (PRIMARY)
WHERE rollup IN (`
	divergencesOfTail = `) ORDER BY rollup, n /*app='holdover',op='rollup',step='divergences_of'*/`
)

// rollupPage is how many rollups are read at a time.
const rollupPage = 100

// Comparisons calls yield for each rollup whose period began in [since, until),
// the earliest first, and stops at its first error. Rollups that arrive
// meanwhile may be missed.
func (s *Store) Comparisons(ctx context.Context, since, until time.Time, yield func(holdover.Comparison) error) error {
	if !storable(since) || !storable(until) {
		return &holdover.InvalidError{Field: "period", Value: fmt.Sprintf("%s to %s", since, until), Problem: "must be between the years 1970 and 9999"}
	}
	from, after := since, int64(0)
	for {
		page, ids, err := s.rollupPage(ctx, from, until, after)
		if err != nil {
			return err
		}
		for _, c := range page {
			if err := yield(*c); err != nil {
				return err
			}
		}
		if len(page) < rollupPage {
			return nil
		}
		from, after = page[len(page)-1].From, ids[len(ids)-1]
	}
}

func (s *Store) rollupPage(ctx context.Context, from, until time.Time, after int64) (page []*holdover.Comparison, ids []int64, err error) {
	const op = "read rollups"
	byID := map[int64]*holdover.Comparison{}
	err = s.read(ctx, s.control, op, holdover.Token{}, func(r *sql.Rows) error {
		var id int64
		var run, payload []byte
		c := new(holdover.Comparison)
		if err := r.Scan(&id, &run, &c.Seq, &c.Lost, &c.Pod, &c.Instance, &c.From, &c.To, &payload); err != nil {
			return err
		}
		c.Run, byID[id] = string(run), c
		page, ids = append(page, c), append(ids, id)
		c.Head, err = unpack(payload)
		return err
	}, stmtRollupPage, from, until, from, after, rollupPage)
	if err != nil || len(ids) == 0 {
		return nil, nil, err
	}
	list := func(head, tail string) string { return new(statement).add(head).in(ids).add(tail).String() }
	err = s.read(ctx, s.control, op, holdover.Token{}, func(r *sql.Rows) (err error) {
		var id int64
		var stage, opName string
		var payload []byte
		var cell holdover.ComparisonCell
		if err := r.Scan(&id, &stage, &opName, &cell.Eligible, &cell.Compared, &cell.Differed, &cell.Unexplained, &payload); err != nil {
			return err
		}
		if cell.Stage, err = holdover.ParseStage(stage); err != nil {
			return err
		}
		if cell.Op, err = opNamed(opName); err != nil {
			return err
		}
		if cell.Payload, err = unpack(payload); err != nil {
			return err
		}
		byID[id].Cells = append(byID[id].Cells, cell)
		return nil
	}, list(rollupCellsOf, rollupCellsOfTail))
	if err != nil {
		return nil, nil, err
	}
	err = s.read(ctx, s.control, op, holdover.Token{}, func(r *sql.Rows) (err error) {
		var id int64
		var token, payload []byte
		var d holdover.DivergenceRow
		if err := r.Scan(&id, &d.Place, &d.Kind, &d.At, &d.Shop, &token, &payload); err != nil {
			return err
		}
		if d.Token, err = tokenOf(token); err != nil {
			return err
		}
		if d.Payload, err = unpack(payload); err != nil {
			return err
		}
		byID[id].Divergences = append(byID[id].Divergences, d)
		return nil
	}, list(divergencesOf, divergencesOfTail))
	return page, ids, err
}

func opNamed(name string) (holdover.Op, error) {
	for op := holdover.OpReserve; op <= holdover.OpExtend; op++ {
		if op.String() == name {
			return op, nil
		}
	}
	return 0, fmt.Errorf("a rollup has the operation %q, which this version does not know", clip(name, 32))
}

// maxUnpacked bounds a payload in bytes: 6 MiB may have been packed from more.
const maxUnpacked = 64 << 20

// pack compresses as the server's COMPRESS() does, so that its UNCOMPRESS()
// shows a payload to whoever asks in SQL: four bytes of length, then zlib.
func pack(payload []byte) []byte {
	if len(payload) == 0 {
		return []byte{}
	}
	var out bytes.Buffer
	_ = binary.Write(&out, binary.LittleEndian, uint32(len(payload))) // a buffer takes everything
	z := zlib.NewWriter(&out)
	_, _ = z.Write(payload)
	_ = z.Close()
	return out.Bytes()
}

func unpack(packed []byte) ([]byte, error) {
	if len(packed) == 0 {
		return nil, nil
	}
	if len(packed) < 4 {
		return nil, errors.New("a payload is cut off")
	}
	size := binary.LittleEndian.Uint32(packed)
	if size > maxUnpacked {
		return nil, fmt.Errorf("a payload claims to have %d bytes; at most %d are read", size, maxUnpacked)
	}
	z, err := zlib.NewReader(bytes.NewReader(packed[4:]))
	if err != nil {
		return nil, fmt.Errorf("a payload can't be read: %w", err)
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(z, payload); err != nil {
		return nil, fmt.Errorf("a payload can't be read: %w", err)
	}
	return payload, nil
}
