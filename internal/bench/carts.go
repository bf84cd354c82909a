package bench

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"holdover"
	"holdover/internal/workload"
)

// madeUp is how many carts are generated when the user gives none.
const madeUp = 4000

// carts: real carts, or ones made like them, one unit of each of their items,
// all or nothing, with the lines in another order each time.
func (r *run) carts() error {
	clients := r.clients(64)
	baskets, items := r.baskets()
	contenders := []contender{
		{name: wayHoldover, open: openHoldover},
		{name: wayRedis, open: openRedis, choose: true},
		{name: wayPerLine, open: openPerLine, choose: true},
		{name: wayPerPacket, open: openPerLinePipelined, choose: true},
		{name: wayPerUnits, open: openPerLineUnits, choose: true},
		{name: wayUnsorted, open: openPerLineUnsorted, conns: min(16, clients)},
		{name: wayOne, open: openOneStatement, choose: true},
		{name: wayUnion, open: openUnion, choose: true},
		{name: wayBatchedRow, open: openConditionalBatched, conns: 2 * batchedRowTransactions},
	}
	slot := r.slot(len(contenders)*r.cfg.Rounds, 16*time.Second)
	m := match{stock: ample(items), cap: r.cap(), load: load{clients: clients, warm: warmUp(slot), measure: slot, pick: shuffled(baskets)}}
	r.report.Stock = m.stock[0]
	all, err := r.turns(m, contenders)
	if err != nil {
		return err
	}
	h := all[wayHoldover]
	perLine := fastest(all, wayPerLine, wayPerPacket, wayPerUnits)
	r.report.VsPerLine = value(ratio(h, perLine, (*sample).opsPerS))
	r.report.VsUnion = value(ratio(h, all[wayUnion], (*sample).opsPerS))
	r.report.VsRedis = value(ratio(h, all[wayRedis], (*sample).opsPerS))
	r.report.VsBatchedRow = value(ratio(h, all[wayBatchedRow], (*sample).opsPerS))
	r.compare(all, fmt.Sprintf("carts of %.1f lines", averageLines(baskets)))
	r.note("%d carts over %d items, %.1f lines on average; vs_per_line is against %s, the fastest with a statement for each line", len(baskets), items, averageLines(baskets), perLine.name)
	deadlocks := h.sum(func(s *sample) int64 { return s.counted.deadlocks })
	if deadlocks > 0 {
		r.broken("holdover's carts lost %d deadlocks", deadlocks)
	}
	unsorted := all[wayUnsorted].sum(func(s *sample) int64 { return s.counted.deadlocks })
	r.report.Shown = append(r.report.Shown, Shown{
		Fault:    "lines locked in the order in which they come",
		Observed: fmt.Sprintf("%d deadlocks; sorted: %d", unsorted, all[wayPerLine].sum(func(s *sample) int64 { return s.counted.deadlocks })),
		OK:       unsorted > 0,
	})
	r.bars(all, "carts")
	r.target("deadlocks", float64(deadlocks), "=", 0, 0)
	r.target("vs_per_line", *r.report.VsPerLine, ">=", 5, 0)
	return nil
}

func (s *standing) sum(f func(*sample) int64) (n int64) {
	for _, one := range s.samples {
		n += f(one)
	}
	return n
}

// baskets are the user's or made up, with their items numbered from 1.
func (r *run) baskets() (carts [][]int64, items int) {
	given := r.cfg.Baskets
	if given == nil {
		g := workload.NewGenerator(workload.GeneratorConfig{Seed: 1})
		for n := range uint64(madeUp) {
			given = append(given, g.Basket(n))
		}
	}
	numbers := map[int64]int64{}
	for _, b := range given {
		for _, item := range b.Items {
			numbers[item] = 0
		}
	}
	for i, item := range slices.Sorted(maps.Keys(numbers)) {
		numbers[item] = int64(i + 1)
	}
	for _, b := range given {
		cart := make([]int64, len(b.Items))
		for i, item := range b.Items {
			cart[i] = numbers[item]
		}
		carts = append(carts, cart)
	}
	return carts, len(numbers)
}

func averageLines(carts [][]int64) float64 {
	n := 0
	for _, c := range carts {
		n += len(c)
	}
	return float64(n) / float64(len(carts))
}

// shuffled picks any cart and puts its lines into any order.
func shuffled(carts [][]int64) func(*rand.Rand, *call) {
	return func(rng *rand.Rand, c *call) {
		c.lines = c.lines[:0]
		for _, item := range carts[rng.IntN(len(carts))] {
			c.lines = append(c.lines, holdover.Line{Item: item, Group: 1, Quantity: 1})
		}
		rng.Shuffle(len(c.lines), func(i, j int) { c.lines[i], c.lines[j] = c.lines[j], c.lines[i] })
	}
}
