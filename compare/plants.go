package compare

import (
	"context"

	"holdover"
)

// Verified counts a verification of reserved shops alone, where a counter was
// changed on purpose: it must have found a foreign write.
func (p *Plant) Verified(v Verification) {
	got := KindNone
	if len(v.ForeignWrites) > 0 {
		got = KindForeignWrite
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.countPlant(expectation{want: KindForeignWrite, of: p}, got)
}

// Except leaves the holds and the stock of reserved shops out of what Verify
// reads: counters are changed there on purpose.
func Except(reserved func(shop int64) bool, r RedisState, m MySQLState) (RedisState, MySQLState) {
	if reserved == nil {
		return r, m
	}
	return exceptRedis{r, reserved}, exceptMySQL{m, reserved}
}

type exceptRedis struct {
	RedisState
	reserved func(int64) bool
}

// LiveHolds may return an empty page before the end: the cursor says where that is.
func (e exceptRedis) LiveHolds(ctx context.Context, cursor uint64, count int) ([]holdover.Hold, uint64, error) {
	holds, next, err := e.RedisState.LiveHolds(ctx, cursor, count)
	return without(holds, func(h holdover.Hold) bool { return e.reserved(h.Shop) }), next, err
}

type exceptMySQL struct {
	MySQLState
	reserved func(int64) bool
}

func (e exceptMySQL) LiveHolds(ctx context.Context, after holdover.Token, limit int) ([]holdover.Hold, error) {
	for {
		page, err := e.MySQLState.LiveHolds(ctx, after, limit)
		if err != nil || len(page) == 0 {
			return nil, err
		}
		after = page[len(page)-1].Token // an empty page would be the end
		if kept := without(page, func(h holdover.Hold) bool { return e.reserved(h.Shop) }); len(kept) > 0 {
			return kept, nil
		}
	}
}

func (e exceptMySQL) Stocks(ctx context.Context, after holdover.Stock, limit int) ([]holdover.Stock, error) {
	for {
		page, err := e.MySQLState.Stocks(ctx, after, limit)
		if err != nil || len(page) == 0 {
			return nil, err
		}
		after = page[len(page)-1]
		if kept := without(page, func(s holdover.Stock) bool { return e.reserved(s.Shop) }); len(kept) > 0 {
			return kept, nil
		}
	}
}

func without[T any](all []T, drop func(T) bool) (kept []T) {
	for _, one := range all {
		if !drop(one) {
			kept = append(kept, one)
		}
	}
	return kept
}
