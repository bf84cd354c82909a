package bench

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// conditionalBatched combines the calls of the process that wait: one
// transaction inserts all their holds and takes the sum of their units from
// each item's row, in item order, in one packet with the COMMIT. It is the
// simple way at its best.
type conditionalBatched struct {
	rows
	*combiner
}

func openConditionalBatched(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	w := &conditionalBatched{rows: r}
	if err == nil {
		w.combiner = newCombiner(set.conns, func(batch []*call) { w.serve(context.WithoutCancel(ctx), batch) })
	}
	return w, err
}

func (w *conditionalBatched) reserve(_ context.Context, c *call) (bool, error) { return w.do(c) }

func (w *conditionalBatched) close() error {
	if w.combiner != nil {
		w.combiner.close()
	}
	return w.rows.close()
}

// serve answers every call of the batch. One that fails as a whole is split in
// halves, so that in the end each has its own answer.
func (w *conditionalBatched) serve(ctx context.Context, batch []*call) {
	granted, err := batch[0].tried(func() error { return w.take(ctx, batch) })
	if granted || len(batch) == 1 || err != nil {
		for i, c := range batch {
			if i > 0 {
				c.attempts++
			}
			c.reply <- reply{granted, err}
		}
		return
	}
	half := len(batch) / 2
	w.serve(ctx, batch[:half])
	w.serve(ctx, batch[half:])
}

func (w *conditionalBatched) take(ctx context.Context, batch []*call) error {
	wanted := make(map[int64]int64, len(batch))
	var b strings.Builder
	args := make([]any, 0, 7*len(batch))
	b.WriteString(beginTx + insertHoldHead)
	for _, c := range batch {
		args = insertHolds(&b, args, c)
		for _, l := range c.lines {
			wanted[l.Item] += l.Quantity
		}
	}
	b.WriteString("; ")
	args = takeSums(&b, args, wanted)
	b.WriteString("; " + commitTx)
	return shortIfChecked(begun(ctx, w.db, nil, b.String(), args...))
}

// insertHolds writes a row for each of the call's lines.
func insertHolds(b *strings.Builder, args []any, c *call) []any {
	for i, l := range c.lines {
		if len(args) > 0 {
			b.WriteString(", ")
		}
		b.WriteString(insertHoldRow)
		args = append(args, c.token[:], i, l.Item, l.Quantity)
	}
	return args
}

// takeSums writes one UPDATE that takes each item's sum, in item order: the
// lock order of every transaction.
func takeSums(b *strings.Builder, args []any, wanted map[int64]int64) []any {
	items := slices.Sorted(maps.Keys(wanted))
	b.WriteString("UPDATE bench_stock SET available = available - CASE item_id")
	for _, item := range items {
		b.WriteString(" WHEN ? THEN ?")
		args = append(args, item, wanted[item])
	}
	b.WriteString(" END WHERE item_id IN (")
	for i, item := range items {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("?")
		args = append(args, item)
	}
	b.WriteString(") ORDER BY item_id")
	return args
}

// shortIfChecked: a violated check constraint is a stock that is short.
func shortIfChecked(err error) error {
	if n := number(err); n == errCheck || n == errCheckAlso {
		return errShort
	}
	return err
}
