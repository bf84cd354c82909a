package bench

import (
	"bytes"
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
	*combiner           // reserves
	claims    *combiner // share an UPDATE
}

func openConditionalBatched(ctx context.Context, s *servers, set setting) (way, error) {
	r, err := openRows(ctx, s, set, nil)
	w := &conditionalBatched{rows: r}
	if err == nil {
		background := context.WithoutCancel(ctx)
		w.combiner = newCombiner(batchedRowTransactions, func(batch []*call) { w.serve(background, batch) })
		w.claims = newCombiner(batchedRowTransactions, func(batch []*call) { w.claimAll(background, batch) })
	}
	return w, err
}

// batchedRowTransactions is how many of its transactions of a kind are under
// way: one commits while the next is collected. More wait for each other's
// rows. It needs twice as many connections.
const batchedRowTransactions = 2

func (w *conditionalBatched) reserve(_ context.Context, c *call) (bool, error) { return w.do(c) }

func (w *conditionalBatched) close() error {
	if w.combiner != nil {
		w.combiner.close()
		w.claims.close()
	}
	return w.rows.close()
}

// claim ends a hold: the stock has lost its units already.
func (w *conditionalBatched) claim(_ context.Context, c *call) error {
	_, err := w.claims.do(c)
	return err
}

// claimAll ends the batch's holds in the order of their keys.
func (w *conditionalBatched) claimAll(ctx context.Context, batch []*call) {
	slices.SortFunc(batch, func(a, b *call) int { return bytes.Compare(a.token[:], b.token[:]) })
	var b strings.Builder
	b.WriteString("UPDATE bench_holds FORCE INDEX (PRIMARY) SET claimed = 1 WHERE claimed = 0 AND token IN (?")
	b.WriteString(strings.Repeat(", ?", len(batch)-1) + ")")
	args := make([]any, len(batch))
	for i, c := range batch {
		args[i] = c.token[:]
	}
	_, err := w.db.ExecContext(ctx, b.String(), args...)
	for _, c := range batch {
		c.reply <- reply{err == nil, err}
	}
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
