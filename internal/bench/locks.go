package bench

import (
	"fmt"
	"slices"
	"time"
)

// The contention that locks goes through: callers by items.
var (
	lockClients = []int{1, 16, 64, 256}
	lockItems   = []int{1, 10, 100}
)

// lockConns bounds the connections of the single-row ways here: one figure for
// all, so that the points are comparable.
const lockConns = 64

// locks: the four single-row ways and the pool over a range of contention, what
// each sells of a stock that runs out, and the faults of single-row locking.
func (r *run) locks() error {
	clients := slices.DeleteFunc(slices.Clone(lockClients), func(n int) bool { return r.cfg.Clients > 0 && n > r.cfg.Clients })
	most := slices.Max(clients)
	r.report.Clients = most
	if r.cfg.Duration == 0 {
		r.cfg.Rounds = 1 // many points instead
		r.report.Rounds = 1
	}
	slot := r.slot(len(lockItems)*len(clients)*5*r.cfg.Rounds, 15*time.Second)
	r.report.Stock = ampleStock
	r.report.PoolCap = r.cap()
	for _, items := range lockItems {
		rates := Curve{Name: fmt.Sprintf("reserves over %d items by callers", items), X: "callers", Y: "reserves/s", LogX: true, LogY: true}
		conflicts := Curve{Name: fmt.Sprintf("version compare-and-set: conflicts over %d items", items), X: "callers", Y: "% of tries", LogX: true, Series: []Series{{Name: wayVersion}}}
		for _, n := range clients {
			all, err := r.contention(n, items, slot)
			if err != nil {
				return err
			}
			rates.plotRates(float64(n), all)
			rate := all[wayVersion].conflictRate()
			conflicts.Series[0].Points = append(conflicts.Series[0].Points, Point{X: float64(n), Y: 100 * rate})
			if items == 1 && n == most {
				r.report.ConflictRate, r.report.ConflictBand = &rate, Band(rate)
				r.singleRow(fastest(all, wayLast, wayLock, wayVersion), all[wayHoldover])
			}
			r.compare(all, fmt.Sprintf("%d callers, %d items", n, items))
		}
		r.report.Curves = append(r.report.Curves, rates, conflicts)
	}
	if err := r.soldAgainstStock(min(64, most)); err != nil {
		return err
	}
	r.note("the single-row ways have a connection for each caller, and %d at most", lockConns)
	return r.faults(min(64, most), slot)
}

// contention gives the ways their turns at one point of the range.
func (r *run) contention(clients, items int, slot time.Duration) (map[string]*standing, error) {
	m := match{
		name: fmt.Sprintf("clients=%d,items=%d", clients, items), stock: ample(items), cap: r.cap(),
		load: load{clients: clients, warm: warmUp(slot), measure: slot, pick: oneUnit(items)},
	}
	return r.turns(m, r.lockWays(clients))
}

func (r *run) lockWays(clients int) []contender {
	conns := min(clients, lockConns)
	return []contender{
		{name: wayHoldover, open: openHoldover},
		{name: wayLast, open: openConditionalLast, conns: conns},
		{name: wayVersion, open: openVersionCAS, conns: conns},
		{name: wayLock, open: openSelectForUpdate, conns: conns},
		{name: wayCheck, open: openCheckThenWrite, conns: conns, wrong: true},
	}
}

func (c *Curve) plotRates(x float64, all map[string]*standing) {
	for _, name := range wayOrder {
		s := all[name]
		if s == nil {
			continue
		}
		i := slices.IndexFunc(c.Series, func(one Series) bool { return one.Name == name })
		if i < 0 {
			c.Series = append(c.Series, Series{Name: name})
			i = len(c.Series) - 1
		}
		c.Series[i].Points = append(c.Series[i].Points, Point{X: x, Y: s.ops()})
	}
}

// conflictRate is S61's: conflicts by attempts.
func (s *standing) conflictRate() float64 {
	attempts := s.sum(func(s *sample) int64 { return s.attempts })
	return float64(s.sum(func(s *sample) int64 { return s.conflicts })) / float64(max(attempts, 1))
}

// Band says which way of locking fits a conflict rate (conflicts by attempts,
// from 0 to 1).
func Band(rate float64) string {
	switch {
	case rate < 0.05:
		return "optimistic"
	case rate < 0.20:
		return "optimistic with bounded retry and backoff"
	case rate <= 0.50:
		return "pessimistic, or smooth the peak"
	default:
		return "remove the hot spot"
	}
}

// soldAgainstStock sells a stock of a hundred to many.
func (r *run) soldAgainstStock(clients int) error {
	const stock = 100
	m := match{name: fmt.Sprintf("stock=%d", stock), stock: []int64{stock}, cap: r.cap(), load: load{clients: clients, refused: 2, pick: oneUnit(1)}}
	all, err := r.turns(m, r.lockWays(clients))
	if err != nil {
		return err
	}
	for _, name := range wayOrder {
		s := all[name]
		if s == nil {
			continue
		}
		sold, failed := s.median(func(s *sample) float64 { return float64(s.granted) }), s.sum(func(s *sample) int64 { return s.failed })
		switch {
		case s.wrong:
			r.report.Shown = append(r.report.Shown, Shown{
				Fault: "check, then write", Observed: fmt.Sprintf("%.0f units sold of a stock of %d, to %d callers", sold, stock, clients), OK: sold > stock,
			})
		case sold != stock && failed == 0:
			r.broken("%s sold %.0f units of a stock of %d", name, sold, stock)
		}
	}
	return nil
}
