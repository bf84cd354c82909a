package bench

import (
	"context"
	"fmt"
	"math"
	"time"
)

// What grows in growth, and how far.
var (
	growthItems     = []int{1, 10, 100, 1000}
	growthInstances = []int{1, 2, 3, 4}
	growthHolds     = []int64{10, 1000, 100_000, 1_000_000}
)

// growth: the same reserves with more items, more instances, and more live
// holds. The time for a reserve is 1 / rate; its exponent is the slope of a
// straight line through the logarithms.
func (r *run) growth() error {
	clients := r.clients(256)
	if r.cfg.Duration == 0 {
		r.cfg.Rounds = min(r.cfg.Rounds, 2)
		r.report.Rounds = r.cfg.Rounds
	}
	slot := r.slot(16*r.cfg.Rounds+len(growthHolds), 14*time.Second)
	l := load{clients: clients, warm: warmUp(slot), measure: slot}
	r.report.Stock = ampleStock
	if err := r.growItems(l); err != nil {
		return err
	}
	if err := r.growInstances(l); err != nil {
		return err
	}
	return r.growHolds(l)
}

// growItems: the reserves are spread evenly over the items. Pools get smaller
// where there are many, so that filling them does not take longer than the turn.
func (r *run) growItems(l load) error {
	contenders := []contender{
		{name: wayHoldover, open: openHoldover},
		{name: wayPipelined, open: openConditionalPipelined, conns: min(64, l.clients)},
		{name: wayBatchedRow, open: openConditionalBatched, conns: 2 * batchedRowTransactions},
	}
	times := make([]Series, len(contenders))
	for _, n := range growthItems {
		l.pick = oneUnit(n)
		m := match{name: fmt.Sprintf("items=%d", n), stock: ample(n), cap: min(r.cap(), max(100, int64(100_000/n))), load: l}
		all, err := r.turns(m, contenders)
		if err != nil {
			return err
		}
		r.compare(all, fmt.Sprintf("%d items, equally wanted", n))
		for i, c := range contenders {
			times[i].add(c.name, float64(n), all[c.name])
		}
	}
	r.grown("items", times...)
	return nil
}

// growInstances: several Stores on one hot item, each with connections and
// batches of its own. Together they have as many connections as one, but three
// each at least.
func (r *run) growInstances(l load) error {
	var times Series
	for _, n := range growthInstances {
		l.pick = oneUnit(1)
		m := match{name: fmt.Sprintf("instances=%d", n), stock: ample(1), cap: r.cap(), load: l}
		all, err := r.turns(m, []contender{{
			name: wayHoldover, conns: max(3, r.cfg.Connections/n),
			open: func(ctx context.Context, s *servers, set setting) (way, error) { return openInstances(ctx, s, set, n) },
		}})
		if err != nil {
			return err
		}
		times.add(wayHoldover, float64(n), all[wayHoldover])
	}
	r.grown("instances", times)
	return nil
}

// growHolds: so many holds are live before the turn, all of the hot item.
func (r *run) growHolds(l load) error {
	var times Series
	for _, n := range growthHolds {
		if float64(n) > 1e6*min(1, l.measure.Seconds()*5) { // a run of a moment leaves out what takes long to load
			r.note("%d live holds were left out of a run this short", n)
			continue
		}
		l.pick = oneUnit(1)
		m := match{name: fmt.Sprintf("holds=%d", n), stock: ample(1), cap: r.cap(), load: l}
		err := r.once(func() error { // loading a million takes longer than measuring
			all, err := r.turns(m, []contender{{name: wayHoldover, open: func(ctx context.Context, s *servers, set setting) (way, error) {
				set.preload = n
				return openInstances(ctx, s, set, 1)
			}}})
			if err == nil {
				times.add(wayHoldover, float64(n), all[wayHoldover])
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	r.grown("live holds", times)
	return nil
}

// add notes the time for one reserve.
func (s *Series) add(name string, x float64, at *standing) {
	s.Name = name
	if rate := at.ops(); rate > 0 {
		s.Points = append(s.Points, Point{X: x, Y: 1e6 / rate})
	}
}

// grown adds a plot with the exponents of its lines.
func (r *run) grown(over string, times ...Series) {
	r.report.Curves = append(r.report.Curves, Curve{Name: "time for a reserve by " + over, X: over, Y: "µs for a reserve (1 / rate)", LogX: true, LogY: true, Series: times})
	for _, s := range times {
		if len(s.Points) > 1 {
			e := Exponent{Of: s.Name, Over: over}
			e.Exponent, e.R2 = fitLogLog(s.Points)
			r.report.Exponents = append(r.report.Exponents, e)
		}
	}
}

// fitLogLog is the least-squares line through the logarithms: its slope, and
// the share of the variance that it explains.
func fitLogLog(points []Point) (slope, r2 float64) {
	n := float64(len(points))
	var sx, sy, sxx, sxy, syy float64
	for _, p := range points {
		x, y := math.Log(p.X), math.Log(p.Y)
		sx += x
		sy += y
		sxx += x * x
		sxy += x * y
		syy += y * y
	}
	vx, vy, c := sxx-sx*sx/n, syy-sy*sy/n, sxy-sx*sy/n
	if vx <= 0 {
		return 0, 0
	}
	if vy <= 0 {
		return c / vx, 1
	}
	return c / vx, c * c / (vx * vy)
}
