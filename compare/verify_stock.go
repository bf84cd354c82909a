package compare

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"holdover"
)

type itemKey struct{ shop, item int64 }

type rowKey struct{ shop, item, group int64 }

// itemLook is one reading of an item: its counter, what the ledger and the
// live holds say it should be, and whether all stood still meanwhile.
type itemLook struct {
	counter, available, held int64
	hasCounter, hasLedger    bool
	holds                    uint64 // which ones make up held
	same                     bool   // counter and ledger were the same before and after the holds
	still                    bool
}

// confirmed says whether nothing moved while l was read. The same readings around
// the holds are not enough where they are off: one buyer may have left before the
// holds were read and another one come after. The reading before must be the same,
// hold by hold.
func (l itemLook) confirmed(before itemLook) bool {
	l.still, before.still = false, false
	return l.same && (l.kind() == "" || l == before)
}

func (l itemLook) off() int64 { return l.counter - (l.available - l.held) }

func (l itemLook) kind() DifferenceKind {
	switch {
	case !l.hasLedger && l.held == 0:
		return "" // the last hold of an unknown item has ended
	case !l.hasLedger:
		return DiffLedgerMissing
	case !l.hasCounter:
		return DiffCounterMissing
	case l.off() != 0:
		return DiffCounter
	default:
		return ""
	}
}

// itemLooks is an item that was never seen both still and right.
type itemLooks struct {
	key   itemKey
	looks []itemLook
}

// verdict makes a difference of an item only when nothing moved at two looks
// at least, and all of those agree. Looks in motion prove nothing, even when
// they agree: steady sales put each of them off by the same.
func (i *itemLooks) verdict() (d Difference, differs bool) {
	last := i.looks[len(i.looks)-1]
	still := slices.DeleteFunc(slices.Clone(i.looks), func(l itemLook) bool { return !l.still })
	if len(still) >= 2 && !slices.ContainsFunc(still, func(l itemLook) bool {
		return l.kind() == "" || l.kind() != still[0].kind() || l.off() != still[0].off()
	}) {
		return i.difference(still[0]), true
	}
	d = i.difference(last)
	d.Kind = DiffCounter
	offs := make([]int64, len(i.looks))
	for n, l := range i.looks {
		offs[n] = l.off()
	}
	d.Text = fmt.Sprintf("in motion: off by %d at the looks so far", offs)
	return d, false
}

func (i *itemLooks) difference(l itemLook) Difference {
	d := Difference{Kind: l.kind(), Shop: i.key.shop, Item: i.key.item, Units: l.off(), Redis: fmt.Sprint(l.counter), MySQL: fmt.Sprint(l.available)}
	switch d.Kind {
	case DiffCounterMissing:
		d.Redis, d.Units = "not loaded", l.available
		d.Text = "in the ledger, and redis has no counter for it"
	case DiffLedgerMissing:
		d.MySQL, d.Units = "no row", l.held
		d.Text = "redis holds units of it, and mysql has no stock row for it"
	default:
		d.Text = fmt.Sprintf("the counter is %d, and should be %d: %d available less %d in live holds", l.counter, l.available-l.held, l.available, l.held)
	}
	return d
}

// rowLooks is a stock row whose sums were wrong at every look.
type rowLooks struct {
	seen       string
	stable     bool
	difference Difference
}

// lookStock takes one look at the items and rows in question. An item that
// moved or is off is read again at once, a few times, until two readings are the
// same; each reading counts as part of this look, and the last one stands for it.
func (v *verifier) lookStock(ctx context.Context, first bool) error {
	keys := slices.Collect(maps.Keys(v.items))
	for r := range v.rows {
		keys = append(keys, itemKey{r.shop, r.item})
	}
	pending := keys
	looks := map[itemKey]itemLook{}
	rows := map[itemKey][]holdover.Stock{}
	for try := 0; try <= v.cfg.Tries; try++ {
		all := first && try == 0
		if !all && len(pending) == 0 {
			break
		}
		read, stocks, err := v.readItems(ctx, pending, all)
		if err != nil {
			return err
		}
		pending = pending[:0:0]
		for key, l := range read {
			l.still = l.confirmed(looks[key])
			looks[key], rows[key] = l, stocks[key]
			if !l.still {
				pending = append(pending, key)
			}
		}
	}
	if first {
		v.out.Items = len(looks)
		for _, r := range rows {
			v.out.Rows += len(r)
		}
	}
	v.lookRows(rows, first)
	for key, l := range looks {
		old := v.items[key]
		switch {
		case l.kind() == "" && l.still:
			delete(v.items, key)
		case old != nil:
			old.looks = append(old.looks, l)
		case first && len(v.items) < v.cfg.MaxRechecks:
			v.items[key] = &itemLooks{key: key, looks: []itemLook{l}}
		case first:
			v.out.UnsettledCount++
		}
	}
	return nil
}

// readItems reads counters and ledger before and after the live holds: a claim
// moves the ledger, a reserve or release the counter.
func (v *verifier) readItems(ctx context.Context, keys []itemKey, all bool) (map[itemKey]itemLook, map[itemKey][]holdover.Stock, error) {
	before, err := v.stocks(ctx, keys, all)
	if err != nil {
		return nil, nil, err
	}
	if all {
		keys = slices.Collect(maps.Keys(before))
		rows := 0
		for _, item := range before {
			rows += len(item)
		}
		v.expectRows(rows)
	}
	countersBefore, err := v.counters(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	held, err := v.heldUnits(ctx)
	if err != nil {
		return nil, nil, err
	}
	if all {
		for key := range held {
			if _, ok := before[key]; !ok {
				keys = append(keys, key)
			}
		}
	}
	after, err := v.stocks(ctx, keys, all)
	if err != nil {
		return nil, nil, err
	}
	countersAfter, err := v.counters(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	looks := map[itemKey]itemLook{}
	for _, key := range keys {
		c1, had := countersBefore[key]
		c2, has := countersAfter[key]
		a1, a2 := available(before[key]), available(after[key])
		looks[key] = itemLook{
			counter: c2, available: a2, held: held[key].units, holds: held[key].which, hasCounter: has, hasLedger: len(after[key]) > 0,
			same: had == has && c1 == c2 && a1 == a2 && !v.lag.moves(key, !has),
		}
	}
	return looks, after, nil
}

// lookRows checks the sums of rows. One row is read in one statement, so that
// a right sum at any look clears it.
func (v *verifier) lookRows(read map[itemKey][]holdover.Stock, first bool) {
	seen := map[rowKey]bool{}
	for _, rows := range read {
		for _, s := range rows {
			key := rowKey{s.Shop, s.Item, s.Group}
			old := v.rows[key]
			apart, short := s.Issued-s.Pooled-s.Held, max(0, s.Issued-s.Available)
			switch {
			case apart == 0 && short == 0:
				continue
			case old == nil && !first:
				continue // came up after the first look: the next verification sees it
			case old == nil && len(v.rows) >= v.cfg.MaxRechecks:
				v.out.UnsettledCount++
				continue
			case old == nil:
				old = &rowLooks{}
				v.rows[key] = old
			}
			seen[key] = true
			old.look(s, apart, short)
		}
	}
	maps.DeleteFunc(v.rows, func(key rowKey, _ *rowLooks) bool { return !seen[key] })
}

func (r *rowLooks) look(s holdover.Stock, apart, short int64) {
	now := fmt.Sprint(apart, short)
	r.stable = r.seen == now
	r.seen = now
	units := apart
	if units == 0 {
		units = short
	}
	r.difference = Difference{
		Kind: DiffConservation, Shop: s.Shop, Item: s.Item, Group: s.Group, Units: units, MySQL: fmt.Sprint(s.Available),
		Text: fmt.Sprintf("available %d, issued %d, pooled %d, held %d: issued must be pooled + held, and at most available",
			s.Available, s.Issued, s.Pooled, s.Held),
	}
}

func available(rows []holdover.Stock) (sum int64) {
	for _, s := range rows {
		sum += s.Available
	}
	return sum
}

// stocks reads the rows of keys, or of all items.
func (v *verifier) stocks(ctx context.Context, keys []itemKey, all bool) (map[itemKey][]holdover.Stock, error) {
	rows := map[itemKey][]holdover.Stock{}
	read := func(after holdover.Stock, only *itemKey) error {
		for {
			var page []holdover.Stock
			err := v.page(ctx, "list the stock of mysql", func(ctx context.Context) (_ int, err error) {
				page, err = v.mysql.Stocks(ctx, after, v.cfg.PageSize)
				return len(page), err
			})
			if err != nil {
				return err
			}
			for _, s := range page {
				key := itemKey{s.Shop, s.Item}
				if only != nil && key != *only {
					return nil
				}
				rows[key] = append(rows[key], s)
			}
			if len(page) == 0 {
				return nil
			}
			last := page[len(page)-1]
			if last.Shop == after.Shop && last.Item == after.Item && last.Group == after.Group {
				return fmt.Errorf("list the stock of mysql: %w", errStuck)
			}
			after = last
		}
	}
	if all {
		return rows, read(holdover.Stock{}, nil)
	}
	summed := map[itemKey]bool{} // rows whose sums were wrong: only Stocks counts their holds
	for r := range v.rows {
		summed[itemKey{r.shop, r.item}] = true
	}
	byShop := map[int64][]int64{}
	for _, key := range unique(keys) {
		if !summed[key] {
			byShop[key.shop] = append(byShop[key.shop], key.item)
			continue
		}
		// Group ids are positive, so that this is just before the item's first row.
		if err := read(holdover.Stock{Shop: key.shop, Item: key.item}, &key); err != nil {
			return nil, err
		}
	}
	for shop, items := range byShop {
		for page := range slices.Chunk(items, v.cfg.PageSize) {
			var stocks []holdover.Stock
			err := v.page(ctx, fmt.Sprintf("read the stock of %d items of shop %d in mysql", len(page), shop), func(ctx context.Context) (_ int, err error) {
				stocks, err = v.mysql.StocksOf(ctx, shop, page)
				return len(stocks), err
			})
			if err != nil {
				return nil, err
			}
			for _, s := range stocks {
				key := itemKey{s.Shop, s.Item}
				rows[key] = append(rows[key], s)
			}
		}
	}
	return rows, nil
}

// counters reads the counters of keys; an item without one is left out.
func (v *verifier) counters(ctx context.Context, keys []itemKey) (map[itemKey]int64, error) {
	values := map[itemKey]int64{}
	byShop := map[int64][]int64{}
	for _, k := range unique(keys) {
		byShop[k.shop] = append(byShop[k.shop], k.item)
	}
	for shop, items := range byShop {
		for page := range slices.Chunk(items, v.cfg.PageSize) {
			err := v.readCounters(ctx, shop, page, values)
			if errors.Is(err, holdover.ErrNotLoaded) { // one is missing: ask one by one which
				for i := range page {
					if err = v.readCounters(ctx, shop, page[i:i+1], values); errors.Is(err, holdover.ErrNotLoaded) {
						err = nil
					}
					if err != nil {
						break
					}
				}
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return values, nil
}

func (v *verifier) readCounters(ctx context.Context, shop int64, items []int64, into map[itemKey]int64) error {
	return v.page(ctx, fmt.Sprintf("read %d counters of shop %d", len(items), shop), func(ctx context.Context) (int, error) {
		values, err := v.redis.Counters(ctx, shop, items)
		if err != nil {
			return 0, err
		}
		if len(values) != len(items) {
			return 0, fmt.Errorf("asked for %d counters, got %d", len(items), len(values))
		}
		for i, item := range items {
			into[itemKey{shop, item}] = values[i]
		}
		return len(items), nil
	})
}

// heldSum is what the live holds of an item keep out of its counter, and the sum
// of hashes of those holds, whatever their order.
type heldSum struct {
	units int64
	which uint64
}

// heldUnits sums up Redis's live holds by item. A hold that is claiming keeps
// what its claim takes. What the ledger was already written for it does not count:
// also when Redis does not know of it, which is that hold's difference, or is lag,
// and not its counter's. What is left of it then goes back to the counter when
// Redis gets to know.
func (v *verifier) heldUnits(ctx context.Context) (map[itemKey]heldSum, error) {
	live, err := v.redisHolds(ctx)
	if err != nil {
		return nil, err
	}
	held := map[itemKey]heldSum{}
	for token, h := range live {
		m, journaled := v.lag.facts[token]
		if _, differs := v.holds[token]; !journaled && (differs || h.State == holdover.StateClaiming) {
			if m, err = v.lookup(ctx, "mysql", v.mysql.Lookup, token); err != nil {
				return nil, err
			}
		}
		units := map[int64]int64{}
		for _, l := range h.Part() {
			units[l.Item] += l.Quantity
		}
		if m.State == holdover.StateClaimed {
			if len(m.Lines) == 0 {
				continue
			}
			for _, l := range m.Part() {
				units[l.Item] -= l.Quantity
			}
		}
		for item, n := range units {
			if n == 0 {
				continue
			}
			key := itemKey{h.Shop, item}
			sum := held[key]
			sum.units += n
			sum.which += maphash.Comparable(v.seed, holdPart{token, item, n})
			held[key] = sum
		}
	}
	return held, nil
}

type holdPart struct {
	token       holdover.Token
	item, units int64
}

func unique(keys []itemKey) []itemKey {
	keys = slices.Clone(keys)
	slices.SortFunc(keys, func(a, b itemKey) int {
		return cmp.Or(cmp.Compare(a.shop, b.shop), cmp.Compare(a.item, b.item))
	})
	return slices.Compact(keys)
}
