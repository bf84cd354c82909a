package legacyredis

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"holdover"
)

const batchOfItems = 500

// Counters reads the stock counters of a shop's items, in their order; they may
// be below zero. ErrNotLoaded names a missing one. More than 500 items are read
// in several steps.
func (s *Store) Counters(ctx context.Context, shop int64, items []int64) ([]int64, error) {
	values := make([]int64, 0, len(items))
	for part := range slices.Chunk(items, batchOfItems) {
		args := []any{shop}
		for _, item := range part {
			args = append(args, item)
		}
		answer, err := s.run(ctx, step{op: "read counters", script: s.scripts.counters, shop: shop}, args...)
		if err != nil {
			return nil, err
		}
		values = append(values, answer.numbers()...)
		if answer.err != nil {
			return nil, s.failure("read counters", holdover.Token{}, false, answer.err)
		}
	}
	return values, nil
}

// Load sets the counters of a shop from item to sellable units and says how
// many it set. A counter that is there stays, unless overwrite is set; only
// then may a value be below zero. All values are checked before the first is
// written; more than 500 items go in several steps.
func (s *Store) Load(ctx context.Context, shop int64, counters map[int64]int64, overwrite bool) (loaded int, err error) {
	if shop <= 0 {
		return 0, &holdover.InvalidError{Field: "shop_id", Value: strconv.FormatInt(shop, 10), Problem: "must be a positive number"}
	}
	items := slices.Sorted(maps.Keys(counters))
	for _, item := range items {
		units := counters[item]
		switch {
		case item <= 0:
			return 0, &holdover.InvalidError{Field: "item_id", Value: strconv.FormatInt(item, 10), Problem: "must be a positive number"}
		case units < 0 && !overwrite:
			return 0, &holdover.InvalidError{Field: "units of item " + strconv.FormatInt(item, 10), Value: strconv.FormatInt(units, 10), Problem: "must not be negative"}
		case units > maxNumber || units < -maxNumber:
			return 0, &holdover.InvalidError{Field: "units of item " + strconv.FormatInt(item, 10), Value: strconv.FormatInt(units, 10), Problem: "must be within 2^53"}
		}
	}
	for part := range slices.Chunk(items, batchOfItems) {
		args := []any{shop, flag(overwrite)}
		for _, item := range part {
			args = append(args, item, counters[item])
		}
		answer, err := s.run(ctx, step{op: "load counters", script: s.scripts.load, shop: shop, writes: true}, args...)
		if err != nil {
			return loaded, err
		}
		loaded += int(answer.number())
		if err := s.readable("load counters", holdover.Token{}, &answer, nil); err != nil {
			return loaded, err
		}
	}
	return loaded, nil
}

// claimingCursor marks a cursor into the second index. Redis's own cursors are
// bucket numbers of a table and never get this large.
const claimingCursor = 1 << 63

// LiveHolds returns a page of the holds that are held or claiming, for
// verification. It starts with cursor zero and ends when next is zero. A hold
// that is live throughout comes at least once, maybe twice; one that begins or
// ends meanwhile may come or not. A page has about count holds, and may be empty.
func (s *Store) LiveHolds(ctx context.Context, cursor uint64, count int) (holds []holdover.Hold, next uint64, err error) {
	const op = "list live holds"
	if count <= 0 {
		return nil, 0, &holdover.InvalidError{Field: "count", Value: strconv.Itoa(count), Problem: "must be positive"}
	}
	// Held first: a hold only ever moves from held to claiming, so that none
	// slips past both scans.
	index := "holds"
	if cursor&claimingCursor != 0 {
		index = "claiming"
	}
	answer, err := s.run(ctx, step{op: op, script: s.scripts.live}, index,
		strconv.FormatUint(cursor&^uint64(claimingCursor), 10), min(count, maxList))
	if err != nil {
		return nil, 0, err
	}
	next, err = strconv.ParseUint(answer.text(), 10, 64)
	if err == nil {
		holds, err = answer.holds()
	}
	if err != nil {
		return nil, 0, s.failure(op, holdover.Token{}, false, err)
	}
	switch {
	case index == "claiming" && next != 0:
		next |= claimingCursor
	case index == "holds" && next == 0:
		next = claimingCursor
	}
	return holds, next, nil
}
