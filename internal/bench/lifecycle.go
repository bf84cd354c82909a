package bench

import "time"

// lifecycle: one hot item, and every grant is claimed at once. What is counted
// and timed is the pair.
func (r *run) lifecycle() error {
	clients := r.clients(256)
	contenders := []contender{
		{name: wayHoldover, open: openHoldover},
		{name: wayLegacy, open: openLegacy, choose: true},
		{name: wayPipelined, open: openConditionalPipelined, choose: true},
		{name: wayBatchedRow, open: openConditionalBatched, conns: 2 * batchedRowTransactions},
	}
	slot := r.slot(len(contenders)*r.cfg.Rounds, 20*time.Second)
	m := match{stock: ample(1), cap: r.cap(), load: load{clients: clients, warm: warmUp(slot), measure: slot, claim: true, pick: oneUnit(1)}}
	r.report.Stock = m.stock[0]
	all, err := r.turns(m, contenders)
	if err != nil {
		return err
	}
	h, old := all[wayHoldover], all[wayLegacy]
	p99 := func(s *sample) float64 { return s.latency.quantileUs(0.99) }
	r.report.VsLegacy = value(ratio(h, old, (*sample).opsPerS))
	r.report.P99VsLegacy = value(ratio(h, old, p99))
	r.report.VsConditional = value(ratio(h, all[wayPipelined], (*sample).opsPerS))
	r.report.VsBatchedRow = value(ratio(h, all[wayBatchedRow], (*sample).opsPerS))
	r.compare(all, "reserve and claim of one hot item")
	r.note("latencies are of a pair, in a closed loop of %d callers", clients)
	r.note("with one stock row the units are gone with the reserve, and a claim only marks the hold: a ledger that must stand unchanged until the payment is not what that way has")
	r.target("vs_legacy", *r.report.VsLegacy, ">=", 8, 15)
	r.target("p99_vs_legacy", *r.report.P99VsLegacy, "<=", 0.1, 0)
	return nil
}
