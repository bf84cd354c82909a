package plant

import (
	"context"

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

func (p *Planter) items() (items []int64) {
	for which := int64(itemPlenty); which < itemsOfWorker; which++ {
		items = append(items, p.item(which))
	}
	return items
}

// stock brings the shop's stock into both stores, once, and puts back counters
// that a planter left changed when it died.
func (p *Planter) stock(ctx context.Context) error {
	if !p.stocked {
		var rows []mysqlpool.StockRow
		counters := map[int64]int64{}
		for which := int64(itemPlenty); which < itemsOfWorker; which++ {
			for i, units := range stockOf[which] {
				rows = append(rows, mysqlpool.StockRow{Shop: p.cfg.Shop, Item: p.item(which), Group: int64(i) + 1, Available: units})
			}
			counters[p.item(which)] = stockOf[which][0] + stockOf[which][1]
		}
		if _, err := p.cfg.MySQL.ImportStock(ctx, rows); err != nil {
			return err
		}
		if _, err := p.cfg.Redis.Load(ctx, p.cfg.Shop, counters, false); err != nil {
			return err
		}
		p.stocked = true
	}
	items := p.items()
	counters, err := p.cfg.Redis.Counters(ctx, p.cfg.Shop, items)
	if err != nil {
		return err
	}
	stocks, err := p.cfg.MySQL.StocksOf(ctx, p.cfg.Shop, items)
	if err != nil {
		return err
	}
	off := map[int64]int64{}
	for i, item := range items {
		var free, held int64
		for _, s := range stocks {
			if s.Item == item {
				free, held = free+s.Free(), held+s.Held
			}
		}
		if held == 0 && free != counters[i] { // with a hold under way the two may differ for a while
			off[item] = free
		}
	}
	return p.load(ctx, off)
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
