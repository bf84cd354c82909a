package plant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"holdover"
	"holdover/compare"
	"holdover/mysqlpool"
)

// The items of the reserved shop, each at location 1. A worker has its own ten.
const (
	itemPlenty  = 1 + iota // units enough for everything
	itemOther              // all of its units are at location 2
	itemLast               // one unit
	itemNone               // none
	itemOne                // one
	itemForeign            // its counter is changed behind holdover's back
	itemsOfWorker
)

// units of an item at location 1, and at location 2.
var stockOf = [itemsOfWorker][2]int64{
	itemPlenty: {1000, 0}, itemOther: {0, 1000}, itemLast: {1, 0}, itemNone: {0, 0}, itemOne: {1, 0}, itemForeign: {10, 0},
}

func (p *Planter) item(which int64) int64 { return int64(p.cfg.Worker)*10 + which }

// itemsOf are a worker's items.
func itemsOf(worker int) (items []int64) {
	for which := int64(itemPlenty); which < itemsOfWorker; which++ {
		items = append(items, int64(worker)*10+which)
	}
	return items
}

// Items are those of the reserved shop that a pod's planter uses.
func Items() []int64 { return itemsOf(0) }

// Units is how many a pod's planter needs of an item at a location: of all that it
// does not use, none.
func Units(item, group int64) int64 { return unitsOf(item, group) }

func unitsOf(which, group int64) int64 {
	if which < itemPlenty || which >= itemsOfWorker || group < 1 || group > 2 {
		return 0
	}
	return stockOf[which][group-1]
}

// ErrForeignStock: somebody else's units stand where plants have theirs.
var ErrForeignStock = errors.New("stock that is not the plants'")

// Foreign says which rows of the reserved shop's ledger keep a pod's plants from
// being made, and what to do: an error for each item, which matches ErrForeignStock.
func Foreign(pod string, shop int64, stocks []holdover.Stock) (all []error) {
	for _, item := range Items() {
		if err := foreign(pod, shop, item, item, stocks); err != nil {
			all = append(all, err)
		}
	}
	return all
}

// foreign looks at the rows of one item, which plants use as which.
func foreign(pod string, shop, item, which int64, stocks []holdover.Stock) error {
	var found, do []string
	for _, s := range stocks {
		if want := unitsOf(which, s.Group); s.Item == item && s.Available != want {
			found = append(found, fmt.Sprintf("%d units at location %d instead of %d", s.Available, s.Group, want))
			do = append(do, fmt.Sprintf("holdover stock adjust --pod %s --shop %d --item %d --group %d --set %d --reason TEXT", pod, shop, item, s.Group, want))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("item %d of the reserved shop %d has %w: %s; if no buyer uses that shop: %s; else set reserved_shop to another one",
		item, shop, ErrForeignStock, strings.Join(found, ", "), strings.Join(do, " && "))
}

// stock brings the shop's stock into both stores, where it is not yet, and puts
// back counters that a planter left changed when it died. What somebody else has
// brought in is left alone; an error says so when it is the item that is needed.
func (p *Planter) stock(ctx context.Context, needed int64) error {
	items := itemsOf(p.cfg.Worker)
	stocks, err := p.ledger(ctx, items)
	if err != nil {
		return err
	}
	var missing []mysqlpool.StockRow
	taken := map[int64]bool{}
	var problem error
	for i, item := range items {
		which := int64(i) + itemPlenty
		if err := foreign(p.cfg.Pod, p.cfg.Shop, item, which, stocks); err != nil {
			taken[item] = true
			if which == needed {
				problem = err
			}
			continue
		}
		for group := int64(1); group <= 2; group++ {
			if !slices.ContainsFunc(stocks, func(s holdover.Stock) bool { return s.Item == item && s.Group == group }) {
				missing = append(missing, mysqlpool.StockRow{Shop: p.cfg.Shop, Item: item, Group: group, Available: unitsOf(which, group)})
			}
		}
	}
	if len(missing) > 0 {
		if _, err := p.cfg.MySQL.ImportStock(ctx, missing); err != nil {
			return err
		}
		if stocks, err = p.ledger(ctx, items); err != nil {
			return err
		}
	}
	free, held := map[int64]int64{}, map[int64]int64{}
	for _, s := range stocks {
		free[s.Item] += s.Free()
		held[s.Item] += s.Held
	}
	counters, err := p.cfg.Redis.Counters(ctx, p.cfg.Shop, items)
	if errors.Is(err, holdover.ErrNotLoaded) {
		if _, err := p.cfg.Redis.Load(ctx, p.cfg.Shop, free, false); err != nil {
			return err
		}
		counters, err = p.cfg.Redis.Counters(ctx, p.cfg.Shop, items)
	}
	if err != nil {
		return err
	}
	off := map[int64]int64{}
	for i, item := range items {
		if !taken[item] && held[item] == 0 && free[item] != counters[i] { // with a hold under way the two may differ for a while
			off[item] = free[item]
		}
	}
	return errors.Join(problem, p.load(ctx, off))
}

// ledger reads the items' rows; those that are not there are left out.
func (p *Planter) ledger(ctx context.Context, items []int64) ([]holdover.Stock, error) {
	stocks, err := p.cfg.MySQL.StocksOf(ctx, p.cfg.Shop, items)
	if errors.Is(err, holdover.ErrNotLoaded) {
		err = nil
	}
	return stocks, err
}

// load sets counters behind the facade's back.
func (p *Planter) load(ctx context.Context, counters map[int64]int64) error {
	if len(counters) == 0 {
		return nil
	}
	_, err := p.cfg.Redis.Load(ctx, p.cfg.Shop, counters, true)
	return err
}

// shopRedis and shopMySQL are the reserved items alone, for a verification while
// nobody has holds on them.
type shopRedis struct{ Redis }

func (shopRedis) LiveHolds(context.Context, uint64, int) ([]holdover.Hold, uint64, error) {
	return nil, 0, nil
}

type shopMySQL struct {
	MySQL
	shop  int64
	items []int64
}

func (shopMySQL) LiveHolds(context.Context, holdover.Token, int) ([]holdover.Hold, error) {
	return nil, nil
}

func (s shopMySQL) Stocks(ctx context.Context, after holdover.Stock, _ int) ([]holdover.Stock, error) {
	if after.Shop != 0 {
		return nil, nil
	}
	return s.StocksOf(ctx, s.shop, s.items)
}

var (
	_ compare.RedisState = shopRedis{}
	_ compare.MySQLState = shopMySQL{}
)
