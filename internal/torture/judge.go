package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"holdover"
	"holdover/internal/workload"
)

// Found is what one schedule showed, in the words of the report. All but the
// last are faults.
type Found struct {
	Oversold        int64 // units told twice, or in a store beyond what is left
	LostHolds       int64 // holds or claims that buyers were told of, and that are gone
	FalseSoldOut    int64 // refusals although the units were there; stock that a store can't sell any more
	DoubleClaims    int64 // deducted twice, or ended in two ways
	ReadinessLied   int64
	Unmirrored      int64 // facts that one store does not have, with nothing in the way any more
	NotLinear       int64
	UnknownResolved int64
	Details         []string
}

// faulty reports whether anything is wrong.
func (f *Found) faulty() bool {
	return f.Oversold+f.LostHolds+f.FalseSoldOut+f.DoubleClaims+f.ReadinessLied+f.Unmirrored+f.NotLinear > 0
}

func (f *Found) say(format string, args ...any) {
	f.Details = append(f.Details, fmt.Sprintf(format, args...))
}

var uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// tokens are the holds that the details name.
func (f *Found) tokens() []holdover.Token {
	seen := map[holdover.Token]bool{}
	for _, d := range f.Details {
		for _, name := range uuid.FindAllString(d, -1) {
			if t, err := holdover.ParseToken(name); err == nil {
				seen[t] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b holdover.Token) int { return slices.Compare(a[:], b[:]) })
}

// auditConfig: in joint both stores must have the units, and faults leave
// tentative holds in one of them: a refusal there is a fault only when the units
// were never asked for by anybody.
func auditConfig(f shopFront, stage holdover.Stage) workload.AuditConfig {
	return workload.AuditConfig{Stock: f.stock, Stage: stage, JointLag: longTTL}
}

// judge compares what buyers were told with both stores. The pod is quiet.
func (w *world) judge(ctx context.Context, f shopFront, book *workload.Account, stage holdover.Stage) (Found, error) {
	var found Found
	do := func(ctx context.Context, args ...any) (any, error) { return w.redis.Do(ctx, args...).Result() }
	if stage == holdover.StageMySQLOnly {
		do = nil // there is no Redis to count in
	}
	cfg := auditConfig(f, stage)
	v, err := workload.Audit(ctx, book, w.db, do, cfg)
	if err != nil {
		return found, err
	}
	found.take(v)
	if err := w.settledSums(ctx, f, do, cfg, &found); err != nil {
		return found, err
	}
	return found, w.conserved(ctx, f, &found)
}

// settledSums counts the stock's sums as they are in the best of several
// readings: Redis's holds and its counters are not read in one step, and holds
// may expire in between.
func (w *world) settledSums(ctx context.Context, f shopFront, do workload.RedisDo, cfg workload.AuditConfig, found *Found) error {
	const readings = 6
	for n := 1; ; n++ {
		reading, err := workload.ReadStores(ctx, w.db, do, cfg)
		if err != nil {
			return err
		}
		var now Found
		now.sums(reading, f.stock, cfg.Stage)
		if !now.faulty() || n == readings {
			found.add(now)
			return nil
		}
		if !wait(ctx, 500*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// take reads the auditor's verdict.
func (f *Found) take(v workload.Verdict) {
	f.Oversold += v.Oversold
	f.LostHolds += v.LostHolds
	f.DoubleClaims += v.DoubleClaims + v.WrongEnds
	f.FalseSoldOut += v.FalseSoldOut
	f.Unmirrored += v.StillPending
	f.Details = append(f.Details, v.Details...)
	// An answer that nobody may get; most of them are counted as what they say.
	if v.UnexpectedTold > 0 && v.Oversold+v.LostHolds+v.DoubleClaims+v.WrongEnds == 0 {
		f.LostHolds += v.UnexpectedTold
	}
}

// sums checks both stores' stock: the ledger is what the shop began with less
// what was deducted, Redis's counter is the ledger less Redis's live holds. Too
// much there is units sold again; too little is units that nobody can buy.
func (f *Found) sums(r workload.Reading, stock []holdover.Stock, stage holdover.Stage) {
	ledger, items := map[holdover.Stock]int64{}, map[int64]int64{}
	shop := int64(0)
	for _, s := range stock {
		shop = s.Shop
		ledger[holdover.Stock{Shop: s.Shop, Item: s.Item, Group: s.Group}] += s.Available
	}
	for _, e := range r.Entries {
		if e.Delta < 0 {
			ledger[holdover.Stock{Shop: e.Shop, Item: e.Item, Group: e.Group}] += e.Delta
		}
	}
	for k, want := range ledger {
		got := r.Ledger[k]
		items[k.Item] += got
		if got != want {
			f.DoubleClaims++
			f.say("ledger of item %d at group %d: %d, and its entries say %d", k.Item, k.Group, got, want)
		}
	}
	if !r.HasRedis || stage != holdover.StageRedis && !stage.Dual() {
		return
	}
	for _, h := range r.Redis {
		if h.State.Live() && h.Shop == shop {
			for _, l := range h.Lines {
				items[l.Item] -= l.Quantity
			}
		}
	}
	for item, want := range items {
		switch got, ok := r.Counters[holdover.Stock{Shop: shop, Item: item}]; {
		case !ok, got < want:
			f.FalseSoldOut++
			f.say("Redis's counter of item %d: %d (there: %t), and ledger less live holds is %d", item, got, ok, want)
		case got > want:
			f.Oversold++
			f.say("Redis's counter of item %d: %d, and ledger less live holds is %d", item, got, want)
		}
	}
}

// The pool's own sums: what was issued is in the pool or in a live hold, and the
// ledger covers it.
const sqlPool = `
SELECT p.item_id, p.group_id, p.issued, l.available,
  (SELECT COUNT(*) FROM reservation_units u WHERE u.shop_id = p.shop_id AND u.item_id = p.item_id AND u.group_id = p.group_id),
  (SELECT COALESCE(SUM(r.quantity), 0) FROM reserved_quantities r
    WHERE r.shop_id = p.shop_id AND r.item_id = p.item_id AND r.group_id = p.group_id AND r.state = 'held')
FROM pool_state p JOIN inventory_ledger l USING (shop_id, item_id, group_id)
WHERE p.shop_id = ?`

func (w *world) conserved(ctx context.Context, f shopFront, found *Found) error {
	rows, err := w.db.QueryContext(ctx, sqlPool, f.shop)
	if err != nil {
		return fmt.Errorf("the pool's sums: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var item, group, issued, available, pooled, held int64
		if err := rows.Scan(&item, &group, &issued, &available, &pooled, &held); err != nil {
			return fmt.Errorf("the pool's sums: %w", err)
		}
		switch {
		case pooled+held > issued, issued > available && f.groups == 1:
			found.Oversold++
		case pooled+held < issued:
			found.FalseSoldOut++ // nobody can buy what is neither
		default:
			continue
		}
		found.say("pool of item %d at group %d: issued %d, %d in the pool and %d held, the ledger has %d", item, group, issued, pooled, held, available)
	}
	return rows.Err()
}

// mirrored compares the live holds of both stores, token by token, of a shop
// whose instances never lost what they had in memory. Not counted is what is no
// fact of a dual stage (a hold of MySQL's that no buyer was told of stays until
// its time to live ends), and what is a debt (MySQL has no unit for it).
func (w *world) mirrored(ctx context.Context, f shopFront, calls []call, stage holdover.Stage, found *Found) error {
	if !stage.Dual() || f.groups > 1 {
		return nil
	}
	do := func(ctx context.Context, args ...any) (any, error) { return w.redis.Do(ctx, args...).Result() }
	told := dualGrants(calls)
	differ := func() (map[holdover.Token]string, error) {
		r, err := workload.ReadStores(ctx, w.db, do, auditConfig(f, stage))
		if err != nil {
			return nil, err
		}
		out := map[holdover.Token]string{}
		free := freeIn(r, f)
		for t, h := range r.Redis {
			if h.Shop == f.shop && h.State.Live() && !r.MySQL[t].State.Live() && told[t] && fits(h.Lines, free) {
				out[t] = fmt.Sprintf("hold %s is %s in redis and %s in mysql", t, h.State, r.MySQL[t].State)
			}
		}
		for t, h := range r.MySQL {
			if h.Shop == f.shop && h.State.Live() && !r.Redis[t].State.Live() && told[t] {
				out[t] = fmt.Sprintf("hold %s is %s in mysql and %s in redis", t, h.State, r.Redis[t].State)
			}
		}
		return out, nil
	}
	first, err := differ()
	if err != nil || len(first) == 0 {
		return err
	}
	// Holds may be between the stores' reapers, and give-backs between tries.
	var last map[holdover.Token]string
	err = await(ctx, lagTime, "both stores have the same holds", func() (bool, error) {
		if last, err = differ(); err != nil {
			return false, err
		}
		maps.DeleteFunc(last, func(t holdover.Token, _ string) bool { return first[t] == "" })
		return len(last) == 0, nil
	})
	if len(last) > 0 && ctx.Err() == nil {
		for _, why := range last {
			found.Unmirrored++
			found.say("%s", why)
		}
		return nil
	}
	return err
}

// dualGrants are the tokens whose grant was told in a stage that writes both
// stores, and in no other: a hold of redis is older than dual writing.
func dualGrants(calls []call) map[holdover.Token]bool {
	told := map[holdover.Token]bool{}
	for _, c := range calls {
		if c.op != "reserve" || c.err != nil {
			continue
		}
		_, known := told[c.token]
		told[c.token] = c.res.Decision.Stage.Dual() && (!known || told[c.token])
	}
	return told
}

// freeIn is what MySQL could still give of each item of a shop with one location.
func freeIn(r workload.Reading, f shopFront) map[int64]int64 {
	free := map[int64]int64{}
	for k, n := range r.Ledger {
		if k.Shop == f.shop {
			free[k.Item] += n
		}
	}
	for _, h := range r.MySQL {
		if h.Shop == f.shop && h.State.Live() {
			for _, l := range h.Lines {
				free[l.Item] -= l.Quantity
			}
		}
	}
	return free
}

func fits(lines []holdover.Line, free map[int64]int64) bool {
	for _, l := range lines {
		if free[l.Item] < l.Quantity {
			return false
		}
	}
	return true
}

// inOrder looks for holds that MySQL only knows as ended, without their lines: it
// heard of the end and never of the grant. Where nothing failed, and nothing ran
// out (a debt that ended leaves the same trace), both are mirrored in their order.
func (w *world) inOrder(ctx context.Context, f shopFront, calls []call, stage holdover.Stage, found *Found) error {
	if !stage.Dual() {
		return nil
	}
	r, err := workload.ReadStores(ctx, w.db, nil, auditConfig(f, stage))
	if err != nil {
		return err
	}
	told, by := dualGrants(calls), map[holdover.Token]string{}
	for _, c := range calls { // lanes order what one instance does; expiries are anybody's
		if one, known := by[c.token]; known && one != c.instance {
			told[c.token] = false
		}
		by[c.token] = c.instance
	}
	for t, h := range r.MySQL {
		if told[t] && h.State == holdover.StateReleased && len(h.Lines) == 0 {
			found.Unmirrored++
			found.say("hold %s: mysql knows that it is %s, and never heard of its grant: its end overtook it", t, h.State)
		}
	}
	return nil
}

// resolve looks every token up that somebody got no clear answer for, and counts
// those whose fate can be told. The pod is quiet: none may be left open.
func (w *world) resolve(ctx context.Context, f shopFront, calls []call, at holdover.Reserver, found *Found) {
	unclearTokens := map[holdover.Token]bool{}
	for _, c := range calls {
		if !c.clear() {
			unclearTokens[c.token] = true
		}
	}
	for token := range unclearTokens {
		once, cancel := context.WithTimeout(ctx, callLimit)
		_, err := at.Lookup(once, f.shop, token)
		cancel()
		switch {
		case err == nil, errors.Is(err, holdover.ErrUnknownHold):
			found.UnknownResolved++
		default:
			found.LostHolds++
			found.say("hold %s: what became of it can't be told: %v", token, err)
		}
	}
}

// lagTime bounds how long one store may be behind the other on a quiet pod: the
// sweep and the reaper's grace, with room.
const lagTime = 10 * time.Second
