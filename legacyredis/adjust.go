package legacyredis

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"holdover"
)

// LowerFor gives up units of the item's counter, under the epoch, for an
// adjustment that MySQL decides after that: what has left the counter, nobody
// sells any more. Where Redis sells (sells), no more than are free: as many as
// there are with a.Clamp, else all or none. Otherwise all, and the counter may
// go below zero. Idempotent by token: what was given up is remembered until
// SettleAdjustment. Errors: ErrNotLoaded, ErrTokenReused, *StaleError, ErrNoFence.
func (s *Store) LowerFor(ctx context.Context, e holdover.Epoch, a holdover.Adjustment, units int64, sells bool) (holdover.Lowered, error) {
	if err := a.Validate(); err != nil {
		return holdover.Lowered{}, err
	}
	if units <= 0 || units > maxNumber {
		return holdover.Lowered{}, &holdover.InvalidError{Field: "units", Value: strconv.FormatInt(units, 10), Problem: "must be from 1 to 2^53"}
	}
	take := "all"
	switch {
	case sells && a.Clamp:
		take = "free"
	case sells:
		take = "exact"
	}
	body, err := json.Marshal(a)
	if err != nil {
		return holdover.Lowered{}, fmt.Errorf("adjustment %s: %w", a.Token, err)
	}
	const op = "give up units"
	answer, err := s.run(ctx, step{op: op, script: s.scripts.adjustLower, token: a.Token, shop: a.Shop, asked: e, writes: true},
		epochText(e), a.Token.String(), a.Shop, a.Item, units, take, a.Content(), string(body))
	if err != nil {
		return holdover.Lowered{}, err
	}
	l := holdover.Lowered{Adjustment: a, Units: answer.number(), Free: answer.number()}
	if !sells {
		l.Free = math.MaxInt64 // Redis has no say
	}
	return l, s.readable(op, a.Token, &answer, nil)
}

// SettleAdjustment follows MySQL's decision: afterwards the item's counter has
// changed by a.Changed for this token, whatever was given up before. It has no
// epoch and is idempotent by token, for Config.EndRetention. A counter that is
// not loaded stays so, which is no error: it is loaded from the ledger, which
// has the change; loaded is false then.
func (s *Store) SettleAdjustment(ctx context.Context, a holdover.Adjusted) (loaded bool, err error) {
	const op = "settle an adjustment"
	answer, err := s.run(ctx, step{op: op, script: s.scripts.adjustSettle, token: a.Token, shop: a.Shop, writes: true},
		a.Token.String(), a.Shop, a.Item, a.Changed, a.Content())
	if err != nil {
		return false, err
	}
	_ = answer.number() // whether it was this call
	loaded = answer.number() == 1
	return loaded, s.readable(op, a.Token, &answer, nil)
}

// UndoLowered takes back what was given up for an adjustment that MySQL can't
// make: as if it had never been asked for. One that is settled stays.
func (s *Store) UndoLowered(ctx context.Context, a holdover.Adjustment) error {
	_, err := s.run(ctx, step{op: "take units back", script: s.scripts.adjustUndo, token: a.Token, shop: a.Shop, writes: true},
		a.Token.String(), a.Shop, a.Item, a.Content())
	return err
}

// LoweredAdjustments lists up to limit adjustments that units were given up for at
// least age ago and that are not settled, oldest first; page by page, as Due.
func (s *Store) LoweredAdjustments(ctx context.Context, age time.Duration, limit int) (all []holdover.Lowered, err error) {
	if limit <= 0 {
		return nil, &holdover.InvalidError{Field: "limit", Value: strconv.Itoa(limit), Problem: "must be positive"}
	}
	for read := 0; len(all) < limit; {
		want := min(limit-len(all), maxList)
		page, n, err := s.loweredPage(ctx, age, read, want)
		if err != nil {
			return nil, err
		}
		all, read = append(all, page...), read+n
		if n < want {
			break
		}
	}
	return all, nil
}

// loweredPage also says how many entries it read: one without its record is none.
func (s *Store) loweredPage(ctx context.Context, age time.Duration, skip, limit int) (found []holdover.Lowered, read int, err error) {
	const op = "list given up units"
	answer, err := s.run(ctx, step{op: op, script: s.scripts.adjustList}, age.Milliseconds(), skip, limit)
	if err != nil {
		return nil, 0, err
	}
	read = int(answer.number())
	list := answer.list()
	for len(list.values) > 0 && answer.err == nil && list.err == nil {
		one := list.list()
		var l holdover.Lowered
		if err := json.Unmarshal([]byte(one.text()), &l.Adjustment); err != nil {
			one.fail(err.Error())
		}
		l.Units, l.Free = one.number(), one.number()
		if one.err != nil {
			list.fail(one.err.Error())
		}
		found = append(found, l)
	}
	for _, err := range []error{answer.err, list.err} {
		if err != nil {
			return nil, 0, s.failure(op, holdover.Token{}, false, err)
		}
	}
	return found, read, nil
}
