package bench

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"holdover"
)

// drainRefusals is after how many refusals a caller stops: the callers keep
// asking after the last unit has gone, so that a wrong refusal is proved by the
// grants that come after it.
const drainRefusals = 5

// drain: stock for exactly so many, more callers than units at the end, and
// pools of several sizes. The figures are counts.
func (r *run) drain() error {
	clients := r.clients(200)
	stock := cmp.Or(r.cfg.Stock, 1000)
	r.report.Stock = stock
	caps := []int64{10, 100, 1000}
	if r.cfg.Cap > 0 {
		caps = []int64{r.cfg.Cap}
	}
	granted := stock
	for _, cap := range caps {
		r.report.PoolCap = cap
		m := match{
			name: fmt.Sprintf("cap=%d", cap), stock: []int64{stock}, cap: cap,
			load: load{clients: clients, refused: drainRefusals, pick: oneUnit(1)},
		}
		all, err := r.turns(m, []contender{{name: wayHoldover, open: openHoldover}})
		if err != nil {
			return err
		}
		for _, one := range all[wayHoldover].samples {
			if one.granted != stock {
				r.broken("holdover %s granted %d of %d units", m.name, one.granted, stock)
				granted = one.granted
			}
		}
	}
	r.report.Granted = &granted
	if err := r.oneLargeLine(1000); err != nil {
		return err
	}
	if err := r.drainOthers(clients, stock); err != nil {
		return err
	}
	r.target("granted", float64(granted), "=", float64(stock), 0)
	return nil
}

// drainOthers has the others sell the same stock, once: the cap is theirs
// to choose.
func (r *run) drainOthers(clients int, stock int64) error {
	m := match{name: "once", stock: []int64{stock}, cap: min(stock, 1000), load: load{clients: clients, refused: drainRefusals, pick: oneUnit(1)}}
	return r.once(func() error {
		all, err := r.turns(m, []contender{
			{name: wayRedis, open: openRedis, conns: 64},
			{name: wayPipelined, open: openConditionalPipelined, conns: 8},
			{name: wayBatchedRow, open: openConditionalBatched, conns: 2 * batchedRowTransactions},
			{name: wayProcedure, open: openProcedure, conns: 8},
		})
		for _, s := range all {
			if n := s.samples[0].granted; n != stock && s.samples[0].failed == 0 {
				r.broken("%s granted %d of %d units", s.name, n, stock)
			}
		}
		return err
	})
}

// once runs f with one round.
func (r *run) once(f func() error) error {
	rounds := r.cfg.Rounds
	defer func() { r.cfg.Rounds = rounds }()
	r.cfg.Rounds = 1
	return f()
}

// oneLargeLine asks for more units at once than the pool may hold.
func (r *run) oneLargeLine(cap int64) error {
	units := cap + cap/2
	m := match{name: fmt.Sprintf("one line of %d, cap=%d", units, cap), stock: []int64{units}, cap: cap, load: load{clients: 1, calls: 1, pick: func(_ *rand.Rand, c *call) {
		c.lines = append(c.lines[:0], holdover.Line{Item: 1, Group: 1, Quantity: units})
	}}}
	return r.once(func() error {
		all, err := r.turns(m, []contender{{name: wayHoldover, open: openHoldover}})
		if err == nil && all[wayHoldover].samples[0].granted != 1 {
			r.broken("holdover did not grant one line of %d units with a pool cap of %d and the stock for it", units, cap)
		}
		return err
	})
}
