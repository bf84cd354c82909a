package compare

import (
	"context"
	"slices"
	"testing"

	"holdover"
)

// shopsRedis and shopsMySQL have holds and stock of shops 1, 2 and 3, two of each
// on a page.
type shopsRedis struct{ RedisState }

func (shopsRedis) LiveHolds(_ context.Context, cursor uint64, _ int) ([]holdover.Hold, uint64, error) {
	next := cursor + 1
	if next == 3 {
		next = 0
	}
	shop := int64(cursor) + 1
	return []holdover.Hold{{Shop: shop}, {Shop: shop}}, next, nil
}

type shopsMySQL struct{ MySQLState }

func (shopsMySQL) LiveHolds(_ context.Context, after holdover.Token, _ int) (page []holdover.Hold, err error) {
	if shop := int64(after[0])/2 + 1; shop <= 3 {
		page = []holdover.Hold{{Shop: shop, Token: holdover.Token{after[0] + 1}}, {Shop: shop, Token: holdover.Token{after[0] + 2}}}
	}
	return page, nil
}

func (shopsMySQL) Stocks(_ context.Context, after holdover.Stock, _ int) (page []holdover.Stock, err error) {
	if shop := after.Shop + 1; shop <= 3 {
		page = []holdover.Stock{{Shop: shop, Item: 1}, {Shop: shop, Item: 2}}
	}
	return page, nil
}

// A verification reads nothing of a reserved shop, and everything of the others,
// wherever the reserved one is among them.
func TestExceptLeavesReservedShopsOut(t *testing.T) {
	for reserved := int64(1); reserved <= 3; reserved++ {
		redis, mysql := Except(func(shop int64) bool { return shop == reserved }, shopsRedis{}, shopsMySQL{})
		var inRedis, inMySQL, stocks []int64
		for cursor, first := uint64(0), true; first || cursor != 0; first = false {
			page, next, err := redis.LiveHolds(t.Context(), cursor, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range page {
				inRedis = append(inRedis, h.Shop)
			}
			cursor = next
		}
		var after holdover.Token
		for {
			page, err := mysql.LiveHolds(t.Context(), after, 2)
			if err != nil || len(page) == 0 {
				break
			}
			for _, h := range page {
				inMySQL = append(inMySQL, h.Shop)
			}
			after = page[len(page)-1].Token
		}
		var last holdover.Stock
		for {
			page, err := mysql.Stocks(t.Context(), last, 2)
			if err != nil || len(page) == 0 {
				break
			}
			for _, s := range page {
				stocks = append(stocks, s.Shop)
			}
			last = page[len(page)-1]
		}
		var want []int64
		for shop := int64(1); shop <= 3; shop++ {
			if shop != reserved {
				want = append(want, shop, shop)
			}
		}
		if !slices.Equal(inRedis, want) || !slices.Equal(inMySQL, want) || !slices.Equal(stocks, want) {
			t.Errorf("without shop %d: redis %v, mysql %v, stock %v, want %v", reserved, inRedis, inMySQL, stocks, want)
		}
	}
}
