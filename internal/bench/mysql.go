package bench

import (
	"fmt"
	"time"
)

// stageItems are few enough to be popular and many enough not to be one hot row.
const stageItems = 100

// openCallers bound the calls under way in an open loop.
const openCallers = 256

// moderate is the share of a store's saturation at which latencies are measured.
const moderate = 0.1

// mysql: what stage mysql costs a buyer over the pool alone, in an open loop:
// the copy into Redis before the answer, the epochs, and the facade.
func (r *run) mysql() error {
	clients := r.clients(openCallers)
	pool, stage := contender{name: wayHoldover, open: openHoldover}, contender{name: wayStageMySQL, open: openStageMySQL}
	rate, err := r.moderateRate(pool)
	if err != nil {
		return err
	}
	slot := r.slot(4*r.cfg.Rounds, 36*time.Second)
	p := func(q float64) func(*sample) float64 {
		return func(s *sample) float64 { return s.latency.quantileUs(q) }
	}
	m := match{stock: ample(stageItems), cap: r.cap(), load: load{clients: clients, rate: rate, warm: warmUp(slot), measure: slot, pick: oneUnit(stageItems)}}
	r.report.Stock = m.stock[0]
	for _, claim := range []bool{false, true} {
		m.name, m.load.claim = "reserve", claim
		if claim {
			m.name = "reserve and claim"
		}
		all, err := r.turns(m, []contender{pool, stage})
		if err != nil {
			return err
		}
		p50, p99 := ratio(all[stage.name], all[pool.name], p(0.5)), ratio(all[stage.name], all[pool.name], p(0.99))
		if claim {
			r.note("reserve and claim, the pair: p50 %.3g and p99 %.3g times the pool's", p50, p99)
			continue
		}
		r.report.MySQLP50, r.report.MySQLP99 = value(p50), value(p99)
		r.note("reserve alone, by round: p99 %s times the pool's", each(all[stage.name], all[pool.name], p(0.99)))
		r.target("mysql_p99_ratio", p99, "<=", 1.15, 0)
	}
	r.note("open loop at %.0f calls/s, latency from the intended start; both in this process, without HTTP", rate)
	return nil
}

// moderateRate is a share of the slowest contender's saturation, measured now,
// or what the user says.
func (r *run) moderateRate(contenders ...contender) (float64, error) {
	if r.cfg.Rate > 0 {
		r.report.RatePerS = value(r.cfg.Rate)
		return r.cfg.Rate, nil
	}
	l := load{clients: 64, warm: 300 * time.Millisecond, measure: time.Second, pick: oneUnit(stageItems)}
	if r.cfg.Duration > 0 {
		l.measure = min(l.measure, r.cfg.Duration/4)
	}
	least := 0.0
	for _, c := range contenders {
		conns := c.conns
		if conns == 0 {
			conns = r.cfg.Connections
		}
		one, err := r.turn(c.open, setting{conns: conns, stock: ample(stageItems), cap: r.cap()}, l)
		if err != nil {
			return 0, fmt.Errorf("saturation of %s: %w", c.name, err)
		}
		r.say("  saturation of %s: %.0f calls/s with 64 callers", c.name, one.opsPerS())
		r.note("saturation of %s: %.0f reserves/s with 64 callers in a closed loop", c.name, one.opsPerS())
		if least == 0 || one.opsPerS() < least {
			least = one.opsPerS()
		}
	}
	rate := max(moderate*least, 1)
	r.report.RatePerS = value(rate)
	return rate, nil
}

// each lists the ratio of every round.
func each(a, b *standing, f func(*sample) float64) string {
	var text []byte
	for i := range min(len(a.samples), len(b.samples)) {
		text = fmt.Appendf(text, "%.2f ", f(a.samples[i])/max(f(b.samples[i]), 1e-9))
	}
	return string(text[:max(len(text)-1, 0)])
}
