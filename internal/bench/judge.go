package bench

import (
	"fmt"
	"strings"
)

// record writes a contender's figures into the report, and what it broke.
func (r *run) record(s *standing) {
	c := Competitor{
		Name: s.name, Case: s.match.name, Honest: !s.wrong, OpsPerS: s.ops(),
		P50us:     s.median(func(s *sample) float64 { return s.latency.quantileUs(0.5) }),
		P99us:     s.median(func(s *sample) float64 { return s.latency.quantileUs(0.99) }),
		P999us:    s.median(func(s *sample) float64 { return s.latency.quantileUs(0.999) }),
		ConnHoldS: s.median(func(s *sample) float64 { return s.holdS }),
		HoldUs:    s.median(func(s *sample) float64 { return 1e6 * s.holdS / max(float64(s.ops), 1) }),
	}
	var ledgerOff int64
	var failure error
	for _, one := range s.samples {
		c.Connections, c.RedisConns = max(c.Connections, one.conns), max(c.RedisConns, one.redisConns)
		c.Granted += one.granted
		c.Refused += one.refused
		c.Failed += one.failed
		c.Attempts += one.attempts
		c.Conflicts += one.conflicts
		c.Timeouts += one.timeouts
		c.Deadlocks += one.counted.deadlocks
		c.LockWaits += one.counted.waits
		c.FalseSoldOut += one.falseSoldOut
		c.Oversold += one.oversold
		c.LostHolds += one.lost
		ledgerOff += one.ledgerOff
		if failure == nil {
			failure = one.failure
		}
	}
	c.Calls = c.Granted + c.Refused + c.Failed
	r.report.Competitors = append(r.report.Competitors, c)
	who := strings.TrimSpace(c.Name + " " + c.Case)
	if failure != nil {
		r.note("%s: %d of %d calls failed, one of them by: %v", who, c.Failed, c.Calls, failure)
	}
	if s.wrong {
		return
	}
	if c.Oversold > 0 {
		r.broken("%s granted %d units that the stock still has", who, c.Oversold)
	}
	if c.FalseSoldOut > 0 {
		r.broken("%s refused %d calls while stock remained", who, c.FalseSoldOut)
	}
	if c.LostHolds > 0 {
		r.broken("%s told %d callers of holds that are not there", who, c.LostHolds)
	}
	if ledgerOff > 0 {
		r.broken("%s: the ledger's deductions are %d units off the claims that callers were told of", who, ledgerOff)
	}
}

func (r *run) broken(format string, args ...any) {
	r.report.Broken = append(r.report.Broken, fmt.Sprintf(format, args...))
}

func (r *run) loses(format string, args ...any) {
	r.report.Loses = append(r.report.Loses, fmt.Sprintf(format, args...))
}

// finish sums up holdover's own figures.
func (r *run) finish() {
	var connections, falseSoldOut, oversold, deadlocks int64
	found := false
	for _, c := range r.report.Competitors {
		if c.Name != wayHoldover {
			continue
		}
		found = true
		connections = max(connections, c.Connections)
		falseSoldOut += c.FalseSoldOut
		oversold += c.Oversold
		deadlocks += c.Deadlocks
	}
	if found {
		r.report.Connections, r.report.FalseSoldOut, r.report.Oversold, r.report.Deadlocks = &connections, &falseSoldOut, &oversold, &deadlocks
	}
	r.report.OK = len(r.report.Broken) == 0
}

// target notes a figure and what it should be.
func (r *run) target(name string, value float64, rule string, target, aim float64) {
	t := Target{Name: name, Value: value, Rule: rule, Target: target, Aim: aim}
	switch rule {
	case ">=":
		t.OK = value >= target
	case "<=":
		t.OK = value <= target
	default:
		t.OK = value == target
	}
	r.report.Targets = append(r.report.Targets, t)
}

// fastest of the named ways; nil when none took part.
func fastest(all map[string]*standing, names ...string) *standing {
	var best *standing
	for _, name := range names {
		if s := all[name]; s != nil && (best == nil || s.ops() > best.ops()) {
			best = s
		}
	}
	return best
}

// compare notes every honest way that is at least as fast as holdover, by
// throughput, or quicker, by the median latency.
func (r *run) compare(all map[string]*standing, what string) {
	h := all[wayHoldover]
	for _, name := range wayOrder {
		s := all[name]
		if s == nil || s.wrong || name == wayHoldover || name == wayFloor {
			continue
		}
		if by := ratio(h, s, (*sample).opsPerS); by > 0 && by < 1 {
			r.loses("%s: %s has %.2f times holdover's rate (%.0f/s against %.0f/s)", what, name, 1/by, s.ops(), h.ops())
		}
	}
}

func value(v float64) *float64 { return &v }
