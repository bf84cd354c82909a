package dualwrite_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
)

// figures are the case's item, counted in SQL and in Redis.
type figures struct {
	ledger, sold, oversold    int64 // MySQL's ledger and its entries
	issued, pool, liveInMySQL int64
	overIssued                int64 // locations with more units issued than they own
	counter, liveInRedis      int64
}

func (w *world) figures(t *testing.T) (n figures) {
	t.Helper()
	const inMySQL = `SELECT
		(SELECT SUM(available) FROM inventory_ledger WHERE shop_id=@shop),
		(SELECT COALESCE(-SUM(delta), 0) FROM ledger_entries WHERE kind='claim' AND shop_id=@shop),
		(SELECT COUNT(*) FROM ledger_entries WHERE kind='oversold' AND shop_id=@shop),
		(SELECT COALESCE(SUM(issued), 0) FROM pool_state WHERE shop_id=@shop),
		(SELECT COUNT(*) FROM reservation_units WHERE shop_id=@shop),
		(SELECT COALESCE(SUM(quantity), 0) FROM reserved_quantities WHERE state='held' AND shop_id=@shop),
		(SELECT COUNT(*) FROM pool_state p JOIN inventory_ledger l USING (shop_id, item_id, group_id) WHERE shop_id=@shop AND issued > available)`
	row := w.db.QueryRowContext(t.Context(), strings.ReplaceAll(inMySQL, "@shop", text(w.shop)))
	if err := row.Scan(&n.ledger, &n.sold, &n.oversold, &n.issued, &n.pool, &n.liveInMySQL, &n.overIssued); err != nil {
		t.Fatal(err)
	}
	n.counter = w.counter(t, w.shop, 1)
	tokens := w.tokens()
	holds, err := w.raw.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, token := range tokens {
			p.HMGet(t.Context(), "hold:"+token.String(), "state", "lines", "claimed")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, hold := range holds {
		n.liveInRedis += liveUnits(t, hold.(*redis.SliceCmd).Val())
	}
	return n
}

// liveUnits are the units that a record of Redis keeps: state, lines, part.
func liveUnits(t *testing.T, record []any) (n int64) {
	t.Helper()
	state, _ := record[0].(string)
	lines, _ := record[1].(string)
	if part, _ := record[2].(string); state == "claiming" && part != "" {
		lines = part
	}
	if state != "held" && state != "claiming" {
		return 0
	}
	for line := range strings.SplitSeq(lines, ",") {
		n += number(t, line[strings.LastIndex(line, ":")+1:])
	}
	return n
}

// stands fails unless the item stands as one of want. Where it is exact both
// stores must say so, else the one that decides.
func (w *world) stands(t *testing.T, when string, exact bool, want ...units) {
	t.Helper()
	fence, err := w.b.Agreed()
	if err != nil {
		t.Fatal(err)
	}
	var n figures
	var wrong []string
	for again := range 3 { // what one pass ends, the next one may have to carry over
		if again > 0 {
			w.settle(t, false)
		}
		n = w.figures(t)
		for _, u := range want {
			wrong = w.differs(fence.Stage, n, exact, u)
			if len(wrong) == 0 {
				return
			}
		}
	}
	w.problem("%s, in %s: %s; counted %+v, allowed %+v", when, fence.Stage, strings.Join(wrong, "; "), n, want)
}

// differs says what is not as in u.
func (w *world) differs(now holdover.Stage, n figures, exact bool, u units) (wrong []string) {
	must := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	stock := w.op.load[0] + w.op.load[1] + u.stock
	must(n.ledger == stock-u.sold, "%d units in the ledger, want %d", n.ledger, stock-u.sold)
	must(n.sold == u.sold, "%d units sold, want %d", n.sold, u.sold)
	must(n.oversold == 0, "%d claims owe units that nobody had", n.oversold)
	must(n.issued-n.pool == n.liveInMySQL, "mysql lost units: %d issued, %d in the pool, %d held", n.issued, n.pool, n.liveInMySQL)
	if now != holdover.StageRedis { // there MySQL keeps what shadow brought it, and the ledger goes on
		must(n.overIssued == 0, "mysql has more units issued than the ledger owns")
	}
	if now != holdover.StageMySQLOnly {
		must(n.counter == n.ledger-n.liveInRedis, "redis lost units: counter %d, %d held, %d in the ledger", n.counter, n.liveInRedis, n.ledger)
		must(n.counter >= 0, "redis has sold too much: counter %d", n.counter)
	}
	// MySQL builds up in shadow, and is left alone in redis: what it has of holds
	// then says nothing.
	both := exact && w.stage.Dual() && now.Dual() && (!w.blind() || u.held == 0)
	if now.Truth() == holdover.StoreRedis || both {
		must(n.liveInRedis == u.held, "%d units held in redis, want %d", n.liveInRedis, u.held)
	}
	if now.Truth() == holdover.StoreMySQL || both {
		must(n.liveInMySQL == u.held, "%d units held in mysql, want %d", n.liveInMySQL, u.held)
		must(n.liveInMySQL <= n.ledger, "oversold: %d held, %d in the ledger", n.liveInMySQL, n.ledger)
	}
	return wrong
}

// ending checks how tokens are in the end: over, once, and in both stores alike.
func (w *world) ending(t *testing.T, done bool) {
	t.Helper()
	fence, err := w.b.Agreed()
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range w.tokens() {
		r, m := w.redisState(t, token), w.mysqlState(t, token)
		if w.stage.Dual() && fence.Stage.Dual() && !w.blind() && r != m {
			w.problem("in the end hold %s is %s in redis and %s in mysql", token, r, m)
		}
	}
	if !done || !w.op.ends || w.op.after.stock != 0 {
		return
	}
	want, token := "released", w.token
	if w.op.after.sold > 0 {
		want = "claimed"
	}
	if w.op.late {
		token = token.Late()
	}
	state := w.redisState(t, token)
	if fence.Stage.Truth() == holdover.StoreMySQL {
		state = w.mysqlState(t, token)
	}
	if state != want {
		w.problem("a buyer was told %s, and his hold is %s", want, state)
	}
}

// verdict is what a buyer's answer stands for.
type verdict int

const (
	nothing verdict = iota // he was told nothing, or that it is not certain
	done
	refusal
)

// judge reads an answer. certain says that he may not be left without one.
func (w *world) judge(who string, got told, certain bool) verdict {
	switch {
	case w.op.mute:
		if got.err != nil && certain {
			w.problem("%s: %v", who, got.err)
		}
		return nothing
	case w.op.no != nil && errors.Is(got.err, w.op.no):
		return refusal
	case w.op.no == nil && w.op.yes(got):
		return done
	case w.op.mayRefuse && !certain && errors.Is(got.err, holdover.ErrOutOfStock):
		return nothing
	case !certain && got.err != nil && (holdover.NoAnswer(got.err) || errors.Is(got.err, holdover.ErrTryAgain)):
		return nothing
	}
	w.problem("%s was told %s", who, got)
	return nothing
}

// keeps checks that an extension stands wherever an expiry can begin.
func (w *world) keepsExtension(t *testing.T, when string, until time.Time) {
	t.Helper()
	fence, err := w.b.Agreed()
	if err != nil {
		t.Fatal(err)
	}
	inRedis, inMySQL := w.expiries(t, w.token)
	if fence.Stage != holdover.StageMySQLOnly && inRedis.Before(until) {
		w.problem("%s: it lives until %s in redis, %s was acknowledged", when, inRedis, until)
	}
	if fence.Stage.Truth() == holdover.StoreMySQL && inMySQL.Before(until) {
		w.problem("%s: it lives until %s in mysql, %s was acknowledged", when, inMySQL, until)
	}
}

// script writes calls as the table does.
func script(calls []taped) string {
	var b strings.Builder
	for i, c := range calls {
		if c.lane && (i == 0 || !calls[i-1].lane) {
			b.WriteString(" |")
		}
		b.WriteString(" " + c.String())
	}
	return strings.TrimSpace(b.String())
}

func stageAt(stage holdover.Stage) int { return slices.Index(holdover.Stages(), stage) }
