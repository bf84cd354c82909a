package legacyredis

import (
	"context"
	"fmt"
	"strconv"

	"holdover"
)

// LegacyOrder is the order in which the old system's claim touched its two
// stores.
type LegacyOrder uint8

// The two orders. Both are wrong; see LegacyClaim.
const (
	RedisFirst  LegacyOrder = iota + 1 // clear the hold, then deduct the ledger
	LedgerFirst                        // deduct the ledger, then clear the hold
)

func (o LegacyOrder) String() string {
	switch o {
	case RedisFirst:
		return "redis-first"
	case LedgerFirst:
		return "ledger-first"
	default:
		return "unknown"
	}
}

// LegacyClaim claims as the old system did: without a mark, in two stores one
// after the other. between runs after the first store; when it returns an error
// the claim stops there, as in a crash, and LegacyClaim returns that error. It
// exists to show what the migration repairs. Path.Claim is what to use.
//
// Why both orders are wrong. Redis's counter is the ledger less the units in
// Redis's holds, and nothing else remembers a claim that is half done:
//
//   - RedisFirst: the hold is gone and the ledger still has the unit. The next
//     Resync computes ledger - holds and the sold unit comes back to life: a
//     second buyer gets it. Oversell.
//   - LedgerFirst: the ledger has lost the unit and the hold still stands. The
//     next Resync subtracts it a second time: a unit that is there can't be
//     sold until the hold expires. Undersell. Without a Resync it is worse: the
//     expiry gives the unit back to the counter although it was sold. Oversell.
//
// No third order exists for two stores without a common transaction. The repair
// is a record that is written before the first change and outlives it (the mark
// "claiming"), and a second change that can be repeated (the ledger's entry by
// token): Path.Claim has both.
func (p *Path) LegacyClaim(ctx context.Context, order LegacyOrder, shop int64, token holdover.Token, between func() error) error {
	h, err := p.store.Lookup(ctx, token)
	if err != nil {
		return err
	}
	switch {
	case h.State == holdover.StateNone || h.Shop != shop:
		return fmt.Errorf("hold %s in shop %d: %w", token, shop, holdover.ErrUnknownHold)
	case h.State == holdover.StateClaiming:
		return fmt.Errorf("hold %s: %w", token, holdover.ErrClaimPending)
	case h.State.Ended():
		return holdover.EndError(token, h.State)
	}
	clearHold := func() error {
		_, err := p.store.run(ctx, step{op: "clear as the old system", script: p.store.scripts.legacyClear, token: token, writes: true}, token.String(), shop)
		return err
	}
	deduct := func() error {
		ctx, cancel := context.WithTimeout(ctx, p.cfg.LedgerTimeout)
		defer cancel()
		claimed := h
		claimed.State = holdover.StateClaimed
		_, err := p.ledger.Apply(ctx, claimed)
		return err
	}
	first, second := clearHold, deduct
	switch order {
	case RedisFirst:
	case LedgerFirst:
		first, second = deduct, clearHold
	default:
		return &holdover.InvalidError{Field: "order", Value: order.String(), Problem: "must be redis-first or ledger-first"}
	}
	if err := first(); err != nil {
		return err
	}
	if err := between(); err != nil {
		return err
	}
	return second()
}

// Resync rebuilds one counter as the old system did: the ledger's units less
// those in Redis's live holds of the item, all shops' holds being read in one
// step. It returns the new counter. It is right only while no claim is half
// done, which is what LegacyClaim shows.
func (s *Store) Resync(ctx context.Context, shop, item, ledgerAvailable int64) (counter int64, err error) {
	if shop <= 0 || item <= 0 {
		return 0, &holdover.InvalidError{Field: "shop_id and item_id", Value: strconv.FormatInt(shop, 10) + " and " + strconv.FormatInt(item, 10), Problem: "must be positive numbers"}
	}
	if ledgerAvailable > maxNumber || ledgerAvailable < -maxNumber {
		return 0, &holdover.InvalidError{Field: "ledger units", Value: strconv.FormatInt(ledgerAvailable, 10), Problem: "must be within 2^53"}
	}
	const op = "resync a counter"
	answer, err := s.run(ctx, step{op: op, script: s.scripts.resync, shop: shop, writes: true, timeout: s.cfg.TripTimeout}, shop, item, ledgerAvailable)
	if err != nil {
		return 0, err
	}
	counter = answer.number()
	return counter, s.readable(op, holdover.Token{}, &answer, nil)
}
