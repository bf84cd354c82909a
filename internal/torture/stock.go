package torture

import (
	"context"
	"fmt"
	"math/rand/v2"

	"holdover"
	"holdover/internal/app"
	"holdover/mysqlpool"
)

// shopFront is the shop of one schedule: nobody bought there before.
type shopFront struct {
	shop   int64
	groups int64
	items  []int64
	stock  []holdover.Stock
}

// newShop draws a shop: in a short history three items with few units, else more
// of them, most with so few units that the last one is wanted all the time. Some
// shops have two locations. Redis is blind to those, so that it may sell at one
// more than MySQL has there: such a hold is a debt that nothing can mirror, and
// its claim takes what others hold. That is as designed, so that less can be
// asked of such a shop.
func newShop(shop int64, s Schedule) shopFront {
	rng := rand.New(rand.NewPCG(s.Seed, 0x73746f636b))
	f := shopFront{shop: shop, groups: 1}
	count := 8
	if rng.IntN(5) == 0 && !s.Linear {
		f.groups = 2
	}
	switch {
	case s.Linear:
		count = 3
	case s.Stock == scarceStock:
		f.groups, count = 1, 6
	}
	for item := int64(1); item <= int64(count); item++ {
		f.items = append(f.items, item)
		for group := int64(1); group <= f.groups; group++ {
			units := 1 + rng.Int64N(3)
			switch {
			case s.Stock == plentyStock:
				units = 10_000
			case s.Stock == scarceStock:
				units = 1 + units/3
			case s.Linear:
				units += 2 + rng.Int64N(10)
			case item == int64(count):
				units = 1000 // one that never runs out
			case item%3 == 0:
				units += rng.Int64N(15)
			}
			f.stock = append(f.stock, holdover.Stock{Shop: shop, Item: item, Group: group, Available: units})
		}
	}
	return f
}

// open brings the shop's stock into both stores.
func (w *world) open(ctx context.Context, f shopFront) error {
	rows := make([]mysqlpool.StockRow, len(f.stock))
	for i, st := range f.stock {
		rows[i] = mysqlpool.StockRow{Shop: st.Shop, Item: st.Item, Group: st.Group, Available: st.Available}
	}
	if _, err := app.ImportStock(ctx, w.direct, rows); err != nil {
		return fmt.Errorf("bring in the stock of shop %d: %w", f.shop, err)
	}
	return nil
}
