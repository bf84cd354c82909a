package bench

import (
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
	stock := r.cfg.Stock
	if stock == 0 {
		stock = 1000
	}
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
		contenders := []contender{{name: wayHoldover, open: openHoldover}}
		if cap == caps[len(caps)-1] { // the others have no cap, or need none
			contenders = append(contenders,
				contender{name: wayRedis, open: openRedis, conns: 64}, contender{name: wayPipelined, open: openConditionalPipelined, conns: 16},
				contender{name: wayBatchedRow, open: openConditionalBatched, conns: 2}, contender{name: wayProcedure, open: openProcedure, conns: 16})
		}
		all, err := r.turns(m, contenders)
		if err != nil {
			return err
		}
		for _, s := range all {
			for _, one := range s.samples {
				if one.granted != stock {
					r.broken("%s %s granted %d of %d units", s.name, m.name, one.granted, stock)
				}
				if s.name == wayHoldover && one.granted != stock && granted == stock {
					granted = one.granted
				}
			}
		}
		r.compare(all, "stock that runs out, "+m.name)
	}
	r.report.Granted = &granted
	if err := r.oneLargeLine(1000); err != nil {
		return err
	}
	r.target("granted", float64(granted), "=", float64(stock), 0)
	return nil
}

// oneLargeLine asks for more units at once than the pool may hold.
func (r *run) oneLargeLine(cap int64) error {
	units := cap + cap/2
	m := match{name: fmt.Sprintf("one line of %d, cap=%d", units, cap), stock: []int64{units}, cap: cap, load: load{clients: 1, calls: 1, pick: func(_ *rand.Rand, c *call) {
		c.lines = append(c.lines[:0], holdover.Line{Item: 1, Group: 1, Quantity: units})
	}}}
	rounds := r.cfg.Rounds
	r.cfg.Rounds = 1
	defer func() { r.cfg.Rounds = rounds }()
	all, err := r.turns(m, []contender{{name: wayHoldover, open: openHoldover}})
	if err == nil && all[wayHoldover].samples[0].granted != 1 {
		r.broken("holdover did not grant one line of %d units with a pool cap of %d and the stock for it", units, cap)
	}
	return err
}
