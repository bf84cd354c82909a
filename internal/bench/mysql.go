package bench

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// stageItems are few enough to be popular and many enough not to be one hot row.
const stageItems = 100

// openCallers bound the calls under way in an open loop.
const openCallers = 256

// moderate is the share of a store's saturation at which latencies are measured.
const moderate = 0.1

// mysqlMost is how much longer than the pool's a reserve's p99 may be.
const mysqlMost = 1.15

// turnsPerRound makes the pairs of turns many and short: a p99 is the disk's
// word on a few commits, which changes from second to second. Two turns that
// follow each other meet the same disk, and many pairs make a median with an
// interval.
const turnsPerRound = 5

// mysql: what stage mysql costs a buyer over the pool alone, in an open loop:
// the copy into Redis before the answer, the epochs, and the facade.
func (r *run) mysql() error {
	clients := r.clients(openCallers)
	pool, stage := contender{name: wayHoldover, open: openHoldover}, contender{name: wayStageMySQL, open: openStageMySQL}
	rate, err := r.moderateRate(pool)
	if err != nil {
		return err
	}
	pairs := turnsPerRound * r.cfg.Rounds
	slot := r.slot(2*pairs, 36*time.Second)
	p := func(q float64) func(*sample) float64 {
		return func(s *sample) float64 { return s.latency.quantileUs(q) }
	}
	m := match{stock: ample(stageItems), cap: r.cap(), load: load{clients: clients, rate: rate, warm: warmUp(slot), measure: slot, pick: oneUnit(stageItems)}}
	r.report.Stock = m.stock[0]
	for _, claim := range []bool{false, true} {
		m.name, m.load.claim, m.turns = "reserve", claim, pairs
		if claim {
			m.name, m.turns = "reserve and claim", r.cfg.Rounds
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
		by := each(all[stage.name], all[pool.name], p(0.99))
		low, high, sure := aroundMedian(by)
		r.report.MySQLP99Low, r.report.MySQLP99High = value(low), value(high)
		r.note("reserve alone, p99 by the pool's in %d pairs of turns: median %.3g, which lies between %.3g and %.3g (%.0f %% sure); by pair %.2f", len(by), p99, low, high, 100*sure, by)
		if low <= mysqlMost && high > mysqlMost {
			r.note("the target of mysql_p99_ratio, %.3g, lies in that interval: this run can't tell whether it is met; more --rounds narrow it", mysqlMost)
		}
		r.target("mysql_p99_ratio", p99, "<=", mysqlMost, 0)
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
func each(a, b *standing, f func(*sample) float64) (ratios []float64) {
	for i := range min(len(a.samples), len(b.samples)) {
		ratios = append(ratios, f(a.samples[i])/max(f(b.samples[i]), 1e-9))
	}
	return ratios
}

// aroundMedian is an interval of two of the values in which the median of what
// they are drawn from lies, with how sure that is: at least 95 %, or as much as
// so few values can say. It assumes nothing of how they are spread: each is above
// the median as likely as below.
func aroundMedian(values []float64) (low, high, sure float64) {
	n := len(values)
	if n == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	term := math.Pow(0.5, float64(n)) // chance that exactly k of them are below it
	outside := 2 * term               // chance that the median is not between the k-th from either end
	k := 0
	for {
		term *= float64(n-k) / float64(k+1)
		if next := outside + 2*term; next <= 0.05 && 2*(k+2) <= n {
			outside, k = next, k+1
			continue
		}
		return sorted[k], sorted[n-1-k], max(0, 1-outside)
	}
}
