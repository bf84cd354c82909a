package bench

import (
	"fmt"
	"strings"
	"time"
)

// hot: everybody wants one item.
func (r *run) hot() error { return r.reserving(1, "one hot item") }

// reserving has every way reserve one unit of one of the items at a time.
func (r *run) reserving(items int, what string) error {
	clients := r.clients(256)
	contenders := r.everybody(clients)
	slot := r.slot(len(contenders)*r.cfg.Rounds, 15*time.Second)
	m := match{stock: ample(items), cap: r.cap(), load: load{clients: clients, warm: warmUp(slot), measure: slot, pick: oneUnit(items)}}
	if r.cfg.Stock > 0 {
		m.stock = level(items, r.cfg.Stock)
	}
	r.report.Stock = m.stock[0]
	all, err := r.turns(m, contenders)
	if err != nil {
		return err
	}
	h := all[wayHoldover]
	against := func(s *standing) *float64 { return value(ratio(h, s, (*sample).opsPerS)) }
	row := fastest(all, wayFirst, wayLast, wayPipelined)
	r.report.VsUsual, r.report.VsUncapped = against(all[wayUsual]), against(all[wayUncapped])
	r.report.VsConditional, r.report.VsBatchedRow = against(row), against(all[wayBatchedRow])
	r.report.VsRedis, r.report.VsRedisBare = against(all[wayRedis]), against(all[wayRedisBare])
	r.compare(all, what)
	if items == 1 {
		r.singleRow(row, h)
	}
	r.note("latencies are of a closed loop of %d callers: at saturation they are the number of callers by the rate", clients)
	var tried []string
	for _, name := range wayOrder {
		if s := all[name]; s != nil && s.choose {
			tried = append(tried, fmt.Sprintf("%s %d", name, s.conns))
		}
	}
	r.note("connections that were best for each, of %v: %s", r.trialConns(clients), strings.Join(tried, ", "))
	r.bars(all, what)
	if items == 1 {
		r.target("vs_usual", *r.report.VsUsual, ">=", 25, 0)
		r.target("vs_conditional", *r.report.VsConditional, ">=", 12, 0)
		r.target("vs_redis", *r.report.VsRedis, ">=", 0.6, 1)
		r.target("connections", float64(h.mostConns()), "<=", 8, 0)
	}
	return nil
}

func (s *standing) mostConns() (most int64) {
	for _, one := range s.samples {
		most = max(most, one.conns)
	}
	return most
}
