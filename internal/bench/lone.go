package bench

import "time"

// lone: one caller, nobody else. Latency is of a closed loop with that caller.
// Turns are short and many, so that all ways see the same machine.
func (r *run) lone() error {
	r.report.Clients = 1
	rounds := r.cfg.Rounds
	defer func() { r.cfg.Rounds = rounds }()
	if r.cfg.Duration == 0 {
		r.cfg.Rounds = max(rounds, 7)
		r.report.Rounds = r.cfg.Rounds
	}
	contenders := []contender{
		{name: wayHoldover, open: openHoldover},
		{name: wayFloor, open: openFloor, conns: 1},
		{name: wayFirst, open: openConditionalFirst, conns: 1},
		{name: wayPipelined, open: openConditionalPipelined, conns: 1},
		{name: wayUsual, open: openUsual, conns: 1},
		{name: wayInterpolate, open: openInterpolated, conns: 1},
		{name: wayProcedure, open: openProcedure, conns: 1},
		{name: wayRedis, open: openRedis, conns: 1},
	}
	slot := r.slot(len(contenders)*r.cfg.Rounds, 20*time.Second)
	m := match{stock: ample(1), cap: r.cap(), load: load{clients: 1, warm: warmUp(slot), measure: slot, pick: oneUnit(1)}}
	r.report.Stock = m.stock[0]
	all, err := r.turns(m, contenders)
	if err != nil {
		return err
	}
	p50 := func(s *sample) float64 { return s.latency.quantileUs(0.5) }
	h := all[wayHoldover]
	r.report.P50VsFloor = value(ratio(h, all[wayFloor], p50))
	for _, name := range []string{wayFirst, wayPipelined, wayUsual, wayInterpolate, wayProcedure, wayRedis} {
		if by := ratio(h, all[name], p50); by > 1 {
			r.loses("a lone caller: %s answers in %.2f ms, holdover in %.2f ms (p50)", name, all[name].median(p50)/1000, h.median(p50)/1000)
		}
	}
	r.note("closed loop, one caller on one connection")
	r.target("p50_vs_floor", *r.report.P50VsFloor, "<=", 1.8, 1.5)
	return nil
}
