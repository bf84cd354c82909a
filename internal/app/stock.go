package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"holdover"
	"holdover/mysqlpool"
)

// Imported says what an import did.
type Imported struct {
	Pod      string `json:"pod"`
	Rows     int    `json:"rows"`     // in the file, of this pod's shops
	Added    int    `json:"added"`    // new in the ledger
	Counters int    `json:"counters"` // new in Redis
}

// Import is a checked import into one pod. Nothing is written before Apply.
type Import struct {
	stores   *Stores
	rows     []mysqlpool.StockRow
	counters map[int64]map[int64]int64 // by shop and item: missing in Redis, and what they will be
}

// ImportStock checks and applies in one.
func ImportStock(ctx context.Context, s *Stores, rows []mysqlpool.StockRow) (Imported, error) {
	plan, err := PlanImport(ctx, s, rows)
	if err != nil {
		return Imported{Pod: s.Name, Rows: len(rows)}, err
	}
	return plan.Apply(ctx)
}

// planChunk is how many items one question to a store names.
const planChunk = 100

// planTries is how often counters that do not add up are read again: buyers may
// be at work between the reads of holds and counters.
const planTries = 3

// maxOpen bounds the adjustments between the two stores that are looked at.
const maxOpen = 1000

// PlanImport looks at what rows would change: the ledger gets those that it
// does not have, Redis the counters that it does not have: the ledger's sum over
// locations less the units in its live holds. It refuses a row whose ledger value
// differs, a counter that is there and would not add up, and a missing counter
// that an adjustment still has to reach. A reserved shop takes nothing. The errors
// of refusals match holdover.ErrInvalid.
func PlanImport(ctx context.Context, s *Stores, rows []mysqlpool.StockRow) (*Import, error) {
	plan := &Import{stores: s, rows: rows, counters: map[int64]map[int64]int64{}}
	byShop := map[int64]map[int64][]mysqlpool.StockRow{} // shop, item
	for _, row := range rows {
		if byShop[row.Shop] == nil {
			byShop[row.Shop] = map[int64][]mysqlpool.StockRow{}
		}
		byShop[row.Shop][row.Item] = append(byShop[row.Shop][row.Item], row)
	}
	for try := 1; ; try++ {
		held, err := heldInRedis(ctx, s)
		if err != nil {
			return nil, err
		}
		var errs, moving []error
		for _, shop := range slices.Sorted(maps.Keys(byShop)) {
			if err := s.notReserved(shop); err != nil {
				errs = append(errs, err)
				continue
			}
			for items := range slices.Chunk(slices.Sorted(maps.Keys(byShop[shop])), planChunk) {
				refused, off, err := plan.check(ctx, shop, items, byShop[shop], held)
				if err != nil {
					return nil, err
				}
				errs, moving = append(errs, refused...), append(moving, off...)
			}
		}
		switch {
		case len(errs) == 0 && len(moving) == 0:
			return plan, nil
		case len(errs) == 0 && try < planTries:
			continue
		}
		errs = append(errs, moving...)
		if more := len(errs) - maxStockErrors; more > 0 {
			errs = append(errs[:maxStockErrors:maxStockErrors], &holdover.InvalidError{Field: "stock file", Problem: fmt.Sprintf("has %d more lines that are refused", more)})
		}
		return nil, fmt.Errorf("pod %s: nothing was imported:\n%w", s.Name, errors.Join(errs...))
	}
}

// check looks at some items of a shop. Refused are those that no second look
// can change; off are counters that do not add up now.
func (p *Import) check(ctx context.Context, shop int64, items []int64, rows map[int64][]mysqlpool.StockRow, held map[[2]int64]int64) (refused, off []error, err error) {
	stocks, err := p.stores.MySQL.Probe(ctx, shop, items)
	if err != nil && !errors.Is(err, holdover.ErrNotLoaded) {
		return nil, nil, err
	}
	known := map[int64]map[int64]holdover.Stock{} // item, group
	for _, st := range stocks {
		if known[st.Item] == nil {
			known[st.Item] = map[int64]holdover.Stock{}
		}
		known[st.Item][st.Group] = st
	}
	counters, err := countersOf(ctx, p.stores, shop, items)
	if err != nil {
		return nil, nil, err
	}
	open := map[[2]int64]holdover.Token{}
	if len(counters) < len(items) {
		if open, err = openAdjustments(ctx, p.stores); err != nil { // after the ledger: what changes it later reaches the counter later
			return nil, nil, err
		}
	}
	no := func(item int64, format string, args ...any) error {
		return &holdover.InvalidError{Field: fmt.Sprintf("shop %d item %d:", shop, item), Problem: fmt.Sprintf(format, args...)}
	}
	for _, item := range items {
		var sum, heldInMySQL int64
		for _, st := range known[item] {
			sum, heldInMySQL = sum+st.Available, heldInMySQL+st.Held
		}
		fresh, conflict := false, false
		for _, row := range rows[item] {
			switch st, there := known[item][row.Group]; {
			case !there:
				fresh, sum = true, sum+row.Available
			case st.Available != row.Available:
				conflict = true
				refused = append(refused, no(item, "at group %d the ledger has %d units and the file says %d: import adds new rows only, it never changes one", row.Group, st.Available, row.Available))
			}
		}
		heldUnits := held[[2]int64{shop, item}]
		counter, loaded := counters[item]
		switch {
		case conflict:
		case sum > maxStock:
			refused = append(refused, no(item, "has %d units over its locations, more than 2^53", sum))
		case loaded && fresh && counter != sum-heldUnits:
			off = append(off, no(item, "redis has a counter of %d, the ledger would have %d with %d units held: they must add up before the item is imported", counter, sum, heldUnits))
		case !loaded && open[[2]int64{shop, item}] != holdover.Token{}:
			off = append(off, no(item, "redis has no counter, and adjustment %s is still owed to it: a counter made from the ledger now would be changed by it once more. Wait until `holdover serve` has settled it, or bring redis back first", open[[2]int64{shop, item}]))
		case !loaded && heldInMySQL > heldUnits:
			off = append(off, no(item, "redis has no counter, and %d units held where mysql has %d: it lost data, and is rebuilt from mysql, not from a file", heldUnits, heldInMySQL))
		case !loaded && sum < heldUnits:
			off = append(off, no(item, "the ledger would have %d units and %d are held in redis already", sum, heldUnits))
		case !loaded:
			if p.counters[shop] == nil {
				p.counters[shop] = map[int64]int64{}
			}
			p.counters[shop][item] = sum - heldUnits
		}
	}
	return refused, off, nil
}

// Apply writes what the plan says: first the ledger, then the counters. A
// failure in between is finished by importing the same file again.
func (p *Import) Apply(ctx context.Context) (Imported, error) {
	done := Imported{Pod: p.stores.Name, Rows: len(p.rows)}
	var err error
	if done.Added, err = p.stores.MySQL.ImportStock(ctx, p.rows); err != nil {
		return done, err
	}
	for shop, counters := range p.counters {
		loaded, err := p.stores.Redis.Load(ctx, shop, counters, false)
		done.Counters += loaded
		if err != nil {
			return done, fmt.Errorf("pod %s: the ledger is imported, not all counters are: import the same file again: %w", p.stores.Name, err)
		}
	}
	return done, nil
}

// countersOf reads the counters that are there.
func countersOf(ctx context.Context, s *Stores, shop int64, items []int64) (map[int64]int64, error) {
	values, err := s.Redis.Counters(ctx, shop, items)
	switch {
	case err == nil:
		found := make(map[int64]int64, len(items))
		for i, item := range items {
			found[item] = values[i]
		}
		return found, nil
	case !errors.Is(err, holdover.ErrNotLoaded):
		return nil, err
	case len(items) == 1:
		return nil, nil
	}
	// One is missing: each half is asked on its own.
	found := map[int64]int64{}
	for _, half := range [][]int64{items[:len(items)/2], items[len(items)/2:]} {
		some, err := countersOf(ctx, s, shop, half)
		if err != nil {
			return nil, err
		}
		maps.Copy(found, some)
	}
	return found, nil
}

// openAdjustments are those that one store has made and the other has not, one
// for each shop and item: what Redis is owed, and what it gave up and MySQL has
// not decided.
func openAdjustments(ctx context.Context, s *Stores) (map[[2]int64]holdover.Token, error) {
	owed, err := s.MySQL.OwedAdjustments(ctx, maxOpen)
	if err != nil {
		return nil, err
	}
	lowered, err := s.Redis.LoweredAdjustments(ctx, 0, maxOpen)
	if err != nil {
		return nil, err
	}
	if len(owed) == maxOpen || len(lowered) == maxOpen {
		return nil, fmt.Errorf("pod %s: more than %d adjustments are between the two stores, nothing was imported: wait until `holdover serve` has settled them", s.Name, maxOpen-1)
	}
	open := map[[2]int64]holdover.Token{}
	for _, a := range owed {
		open[[2]int64{a.Shop, a.Item}] = a.Token
	}
	for _, l := range lowered {
		open[[2]int64{l.Shop, l.Item}] = l.Token
	}
	return open, nil
}

// heldInRedis adds up the live holds by shop and item.
func heldInRedis(ctx context.Context, s *Stores) (map[[2]int64]int64, error) {
	held, seen := map[[2]int64]int64{}, map[holdover.Token]bool{}
	for cursor := uint64(0); ; {
		holds, next, err := s.Redis.LiveHolds(ctx, cursor, 500)
		if err != nil {
			return nil, err
		}
		for _, h := range holds {
			if seen[h.Token] { // a cursor may show one twice
				continue
			}
			seen[h.Token] = true
			for _, line := range h.Lines {
				held[[2]int64{h.Shop, line.Item}] += line.Quantity
			}
		}
		if cursor = next; cursor == 0 {
			return held, nil
		}
	}
}
