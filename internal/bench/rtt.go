package bench

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// rtts are the round trips that rtt injects.
var rtts = []time.Duration{0, time.Millisecond, 3 * time.Millisecond}

// rtt: one hot item over a longer way to both servers. Every case goes through
// the delaying proxy, the one without a delay too.
func (r *run) rtt() error {
	clients := r.clients(256)
	conns := min(64, clients)
	contenders := []contender{
		{name: wayHoldover, open: openHoldover},
		{name: wayLast, open: openConditionalLast, conns: conns},
		{name: wayPipelined, open: openConditionalPipelined, conns: conns},
		{name: wayBatchedRow, open: openConditionalBatched, conns: 2 * batchedRowTransactions},
		{name: wayUsual, open: openUsual, conns: conns},
		{name: wayProcedure, open: openProcedure, conns: conns},
		{name: wayRedis, open: openRedis, conns: conns},
	}
	if r.cfg.Duration == 0 {
		r.cfg.Rounds = min(r.cfg.Rounds, 2)
		r.report.Rounds = r.cfg.Rounds
	}
	slot := r.slot(len(rtts)*len(contenders)*r.cfg.Rounds, 16*time.Second)
	m := match{stock: ample(1), cap: r.cap(), load: load{clients: clients, warm: warmUp(slot), measure: slot, pick: oneUnit(1)}}
	r.report.Stock = m.stock[0]
	curve := Curve{Name: "reserves of one hot item by round trip", X: "ms added", Y: "reserves/s", LogY: true, Series: make([]Series, len(contenders))}
	var said []string
	upTo := -1.0
	for _, added := range rtts {
		ms := added.Seconds() * 1000
		all, err := r.atDistance(added, m, contenders)
		if err != nil {
			return err
		}
		for i, c := range contenders {
			curve.Series[i].Name = c.name
			curve.Series[i].Points = append(curve.Series[i].Points, Point{X: ms, Y: all[c.name].ops()})
		}
		r.compare(all, fmt.Sprintf("one hot item, %g ms added", ms))
		row, packet, h := all[wayLast].ops(), all[wayPipelined].ops(), all[wayHoldover].ops()
		said = append(said, fmt.Sprintf("with %g ms, %.0f/s statement by statement and %.0f/s in one packet, holdover %.0f/s", ms, row, packet, h))
		if row >= h/2 {
			upTo = ms
		}
		if added == 0 {
			r.singleRow(fastest(all, wayLast, wayPipelined), all[wayHoldover])
		}
	}
	r.report.SingleRow.UpToMs = upTo
	r.report.SingleRow.InWords = "One row stops being enough at a peak, on the hottest item, of: " + strings.Join(said, "; ") + "."
	r.report.Curves = append(r.report.Curves, curve)
	r.note("the proxy runs on this machine and costs some of its time: compare within the table only")
	r.note("%d connections for the ways with a transaction for each call", conns)
	return nil
}

// atDistance gives everybody turns with the delay between them and the servers.
func (r *run) atDistance(added time.Duration, m match, contenders []contender) (all map[string]*standing, err error) {
	toMySQL, err := startDelay(r.servers.mysql.Addr, added)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, toMySQL.close()) }()
	toRedis, err := startDelay(r.servers.addr, added)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, toRedis.close()) }()
	m.name = fmt.Sprintf("rtt=%gms", added.Seconds()*1000)
	m.proxy, m.redisProxy = toMySQL.addr(), toRedis.addr()
	return r.turns(m, contenders)
}
