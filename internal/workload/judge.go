package workload

import (
	"maps"
	"slices"
	"time"

	"holdover"
)

// Judge compares the book with one reading of the stores. It reads nothing
// else and changes nothing; Audit is the usual way to call it.
func Judge(a *Account, r Reading, cfg AuditConfig) (Verdict, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return Verdict{}, err
	}
	v := judgeBook(a, c)
	judgeStores(&v, a, r, c)
	conclude(&v)
	return v, nil
}

func conclude(v *Verdict) {
	v.OK = v.faults() == 0 && v.Tokens > 0 && v.Unjudged == 0
}

// judgeBook finds what the book alone shows: refusals that were false, and
// promises beyond the stock.
func judgeBook(a *Account, c AuditConfig) Verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := Verdict{
		Tokens: a.counts.Tokens, Refusals: a.counts.Refused, Unjudged: a.counts.Unkept,
		UnexpectedTold: a.counts.Errors,
	}
	for _, text := range a.samples {
		v.detail(c.MaxDetails, "%s", text)
	}
	stock := initialStock(c.Stock)
	judge := newSoldOutJudge(a, stock, c)
	for _, f := range a.refusals {
		switch verdict, why := judge.judge(f); verdict {
		case refusalFalse:
			v.FalseSoldOut++
			v.detail(c.MaxDetails, "%s", why)
		case refusalMutual:
			v.MutualRefusals++
		}
	}
	judgePromises(&v, a, stock, c)
	return v
}

func initialStock(rows []holdover.Stock) map[stockKey]int64 {
	stock := make(map[stockKey]int64, len(rows))
	for _, s := range rows {
		stock[stockKey{s.Shop, s.Item, s.Group}] += s.Available
	}
	return stock
}

// judgePromises adds up, item by item, what buyers surely had at each moment:
// from the answer that granted it until the start of the call that could end
// it, or the earliest moment at which it could expire. It doubts in the
// product's favour, and says how far the worst moment is beyond the stock.
func judgePromises(v *Verdict, a *Account, stock map[stockKey]int64, c AuditConfig) {
	initial := map[itemKey]int64{}
	for k, n := range stock {
		initial[k.ofItem()] += n
	}
	promised := map[itemKey]int64{}
	for _, rec := range a.order {
		if rec.promise == promiseGranted {
			for _, l := range rec.lines {
				promised[a.keys[l.key].ofItem()] += int64(l.quantity)
			}
		}
	}
	lines := map[itemKey]*timeline{}
	for it, n := range promised {
		if n > initial[it] {
			lines[it] = &timeline{initial: initial[it]}
		}
	}
	for _, rec := range a.order {
		if rec.promise != promiseGranted {
			continue
		}
		for _, l := range rec.lines {
			if t := lines[a.keys[l.key].ofItem()]; t != nil {
				part := rec.claimedOf(l)
				for _, s := range sureSpans(rec) {
					t.add(s[0], s[1], part)
					if rest := int64(l.quantity) - part; rest > 0 && s[0] < rec.claimAsked {
						t.add(s[0], min(s[1], rec.claimAsked), rest)
					}
				}
			}
		}
	}
	for _, it := range slices.SortedFunc(maps.Keys(lines), compareItems) {
		t := lines[it]
		t.close()
		// A hold whose end was asked for at a moment does not count in it.
		var most, at int64
		for _, s := range t.starts {
			if over := s.sum - sumBefore(t.ends, s.at+1) - t.initial; over > most {
				most, at = over, s.at
			}
		}
		if most > 0 {
			v.Oversold += most
			v.detail(c.MaxDetails, "item %d of shop %d: %d units promised beyond a stock of %d, %s after the book was opened",
				it.item, it.shop, most, t.initial, since(at))
		}
	}
}

func compareItems(a, b itemKey) int {
	return sortStock(holdover.Stock{Shop: a.shop, Item: a.item}, holdover.Stock{Shop: b.shop, Item: b.item})
}

// claimedOf is how much of a line its claim took, as far as was told: all of it
// when there was none.
func (rec *record) claimedOf(l cartLine) int64 {
	if rec.part == nil {
		return int64(l.quantity)
	}
	for _, p := range rec.part {
		if p.key == l.key {
			return int64(p.quantity)
		}
	}
	return 0
}

// sureSpans is when a granted hold surely had its units; those that the claim of
// a part gave back only until it was asked for.
func sureSpans(rec *record) [][2]int64 {
	expiry := rec.first + rec.ttl - clockGrain
	until := expiry
	if rec.releaseAsked != 0 {
		until = min(until, rec.releaseAsked)
	}
	if rec.partAsked && rec.part == nil && rec.ending != endClaimed && rec.ending != endPending {
		until = min(until, rec.claimAsked) // nobody was told what became of the rest
	}
	if rec.ending == endDenied || rec.ending == endExpired {
		until = min(until, rec.ended)
	}
	var spans [][2]int64
	if rec.ending == endClaimed || rec.ending == endPending {
		if rec.ended <= until {
			return [][2]int64{{rec.granted, forever}}
		}
		spans = append(spans, [2]int64{rec.ended, forever})
	}
	if rec.granted < until {
		spans = append(spans, [2]int64{rec.granted, until})
	}
	return spans
}

// storesJudge goes through one reading.
type storesJudge struct {
	v       *Verdict
	a       *Account
	r       Reading
	c       AuditConfig
	entries map[holdover.Token][]Entry
}

// judgeStores compares what buyers were told with what the stores have.
func judgeStores(v *Verdict, a *Account, r Reading, c AuditConfig) {
	a.mu.Lock()
	defer a.mu.Unlock()
	j := &storesJudge{v: v, a: a, r: r, c: c, entries: map[holdover.Token][]Entry{}}
	// A claim of an expired hold is in the ledger under the token that follows.
	late := map[holdover.Token]*record{}
	for _, rec := range a.order {
		if rec.claimAsked != 0 {
			late[rec.token.Late()] = rec
		}
		if rec.late != (holdover.Token{}) {
			late[rec.late] = rec
		}
	}
	for _, e := range r.Entries {
		rec := a.records[e.Token]
		if rec == nil {
			rec = late[e.Token]
		}
		if rec != nil {
			v.Deductions++
			j.entries[rec.token] = append(j.entries[rec.token], e)
		} else {
			v.Foreign++
		}
	}
	shops := map[int64]bool{}
	for _, s := range c.Stock {
		shops[s.Shop] = true
	}
	for _, rec := range a.order {
		if shops[rec.shop] {
			j.token(rec)
		}
	}
	j.ledger()
	if r.HasRedis && (c.Stage == holdover.StageRedis || c.Stage.Dual()) {
		j.counters()
	}
}

// token judges one token by its end.
func (j *storesJudge) token(rec *record) {
	inMySQL, inRedis := j.r.MySQL[rec.token].State, j.r.Redis[rec.token].State
	if inMySQL == holdover.StateExpired || inRedis == holdover.StateExpired {
		j.v.Expired++
	}
	if rec.late != (holdover.Token{}) {
		inMySQL, inRedis = j.r.MySQL[rec.late].State, j.r.Redis[rec.late].State
	}
	deducted := j.entries[rec.token]
	switch rec.ending {
	case endClaimed, endPending:
		if rec.ending == endPending && len(deducted) == 0 && inRedis == holdover.StateClaiming {
			j.v.StillPending++
			return
		}
		j.deductedOnce(rec, deducted)
		if inMySQL == holdover.StateReleased || inMySQL == holdover.StateExpired {
			j.wrong("hold %s: told claimed, and MySQL says %s", rec.token, inMySQL)
		}
	case endReleased, endExpired:
		if len(deducted) > 0 {
			j.wrong("hold %s: told %s, and deducted from the ledger", rec.token, rec.ending)
		} else if how := j.decided(rec.token); how == holdover.StateClaimed || how.Live() {
			j.wrong("hold %s: told %s, and the deciding store says %s", rec.token, rec.ending, how)
		}
	case endDenied:
		j.lost("hold %s: granted, and later not known or ended by nobody", rec.token)
	default:
		j.open(rec, deducted)
	}
}

// open judges a token whose end the buyer does not know.
func (j *storesJudge) open(rec *record, deducted []Entry) {
	unknown := rec.promise == promiseAsked || rec.promise != promiseGranted && rec.loose
	how := j.decided(rec.token)
	if unknown {
		j.v.UnknownTokens++
		if how.Live() || how == holdover.StateClaimed {
			j.v.UnknownKept++
		}
	}
	switch {
	case len(deducted) > 0 && rec.claimAsked == 0:
		j.wrong("hold %s: deducted from the ledger, and nobody claimed it", rec.token)
	case len(deducted) > 0:
		j.deductedOnce(rec, deducted)
	case rec.promise != promiseGranted:
	case rec.expires <= j.r.Now.Add(j.c.ExpiryMargin).UnixMilli():
		// It may be gone by now.
	case rec.releaseAsked != 0 && how == holdover.StateReleased:
	case !how.Live() && how != holdover.StateClaimed:
		j.lost("hold %s: granted until %s, and the deciding store of stage %s says %s at %s",
			rec.token, time.UnixMilli(rec.expires).UTC().Format(time.RFC3339Nano), j.c.Stage, how, j.r.Now.UTC().Format(time.RFC3339Nano))
	}
}

// decided is the state of a token in the store that decides in this stage; in
// joint, of the one that has it less.
func (j *storesJudge) decided(token holdover.Token) holdover.State {
	inMySQL, inRedis := j.r.MySQL[token].State, j.r.Redis[token].State
	switch {
	case j.c.Stage.Truth() == holdover.StoreMySQL:
		return inMySQL
	case j.c.Stage == holdover.StageJoint && inRedis.Live() && inMySQL != holdover.StateClaimed:
		return inMySQL
	default:
		return inRedis
	}
}

// deductedOnce compares a claimed token's ledger entries with its lines, item
// by item: a claim may have taken units of the item's other locations.
func (j *storesJudge) deductedOnce(rec *record, deducted []Entry) {
	want := map[int64]int64{}
	for _, l := range rec.lines {
		want[j.a.keys[l.key].item] += rec.claimedOf(l)
	}
	var missing, extra int64
	for _, e := range deducted {
		units := -e.Delta
		if e.Kind == kindOversold {
			units = max(e.Delta, -e.Delta) // promised beyond the stock, counted by ledger
		}
		if e.Shop != rec.shop {
			extra += units
			continue
		}
		want[e.Item] -= units
	}
	for _, n := range want {
		missing += max(n, 0)
		extra += max(-n, 0)
	}
	if missing > 0 && !(rec.partAsked && rec.part == nil && rec.ending == endOpen) { // else it may have been a part
		j.lost("hold %s: told %s, and %d of its units were not deducted", rec.token, rec.ending, missing)
	}
	if extra > 0 {
		j.v.DoubleClaims++
		j.v.detail(j.c.MaxDetails, "hold %s: %d units deducted beyond its lines", rec.token, extra)
	}
}

// ledger checks every location: what it began with, less all that was deducted.
func (j *storesJudge) ledger() {
	want := map[holdover.Stock]int64{}
	for _, s := range j.c.Stock {
		want[holdover.Stock{Shop: s.Shop, Item: s.Item, Group: s.Group}] += s.Available
	}
	oversold := int64(0)
	for _, e := range j.r.Entries {
		if e.Kind == kindOversold {
			oversold += max(e.Delta, -e.Delta)
			continue
		}
		want[holdover.Stock{Shop: e.Shop, Item: e.Item, Group: e.Group}] += e.Delta
	}
	// The book may show the same units as promised beyond the stock.
	if oversold > j.v.Oversold {
		j.v.Oversold = oversold
		j.v.detail(j.c.MaxDetails, "the ledger has entries of kind %s for %d units", kindOversold, oversold)
	}
	for _, k := range slices.SortedFunc(maps.Keys(want), sortStock) {
		got, ok := j.r.Ledger[k]
		switch {
		case !ok:
			j.ledgerOff("ledger of item %d at group %d of shop %d is missing", k.Item, k.Group, k.Shop)
		case got < 0:
			j.ledgerOff("ledger of item %d at group %d of shop %d is below zero: %d", k.Item, k.Group, k.Shop, got)
		case got != want[k]:
			j.ledgerOff("ledger of item %d at group %d of shop %d has %d, and its entries say %d", k.Item, k.Group, k.Shop, got, want[k])
		}
	}
}

// counters checks every Redis counter: the ledger of all locations, less the
// units in Redis's live holds.
func (j *storesJudge) counters() {
	want := map[holdover.Stock]int64{}
	for _, s := range j.c.Stock {
		want[holdover.Stock{Shop: s.Shop, Item: s.Item}] += 0
	}
	for k, n := range j.r.Ledger {
		want[holdover.Stock{Shop: k.Shop, Item: k.Item}] += n
	}
	for _, h := range j.r.Redis {
		if h.State.Live() {
			for _, l := range h.Lines {
				want[holdover.Stock{Shop: h.Shop, Item: l.Item}] -= l.Quantity
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(want), sortStock) {
		got, ok := j.r.Counters[k]
		if ok && got == want[k] {
			continue
		}
		j.v.CountersOff++
		if ok {
			j.v.detail(j.c.MaxDetails, "counter of item %d of shop %d is %d, and ledger less live holds is %d", k.Item, k.Shop, got, want[k])
		} else {
			j.v.detail(j.c.MaxDetails, "counter of item %d of shop %d is missing", k.Item, k.Shop)
		}
	}
}

func (j *storesJudge) lost(format string, args ...any) {
	j.v.LostHolds++
	j.v.detail(j.c.MaxDetails, format, args...)
}

func (j *storesJudge) wrong(format string, args ...any) {
	j.v.WrongEnds++
	j.v.detail(j.c.MaxDetails, format, args...)
}

func (j *storesJudge) ledgerOff(format string, args ...any) {
	j.v.LedgerOff++
	j.v.detail(j.c.MaxDetails, format, args...)
}

func since(ns int64) time.Duration { return time.Duration(ns).Round(time.Millisecond) }
