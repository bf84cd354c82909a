package compare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"holdover"
)

// counters sets those that are still off. How far one is off does not depend on
// what buyers do: each reserve, release and claim moves the counter, the holds and
// the ledger together. So it must be as far off as it was found, unless holds of the
// item were repaired since; at two readings in a row that are the same, hold by
// hold; and it is moved only if it has not moved since.
func (r *repairer) counters(ctx context.Context, found map[itemKey]Difference) error {
	keys := slices.Collect(maps.Keys(found))
	last := map[itemKey]itemLook{}
	for try := 0; len(keys) > 0 && try <= r.v.cfg.Tries; try++ {
		if err := r.v.readLag(ctx); err != nil {
			return err
		}
		looks, _, err := r.v.readItems(ctx, unique(keys), false)
		if err != nil {
			return err
		}
		var moving []itemKey
		for _, key := range unique(keys) {
			l := looks[key]
			still := l.confirmed(last[key])
			last[key] = l
			if !still {
				moving = append(moving, key)
				continue
			}
			again, err := r.counter(ctx, key, found[key], l)
			if err != nil {
				return err
			}
			if again {
				moving = append(moving, key)
			}
		}
		keys = moving
	}
	for _, key := range keys {
		d := (&itemLooks{key: key}).difference(last[key])
		d.Kind = found[key].Kind
		r.left(d, "it never stood still while it was looked at: run it again")
	}
	return nil
}

// counter repairs one, read while it stood still; again says that it moved.
func (r *repairer) counter(ctx context.Context, key itemKey, found Difference, l itemLook) (again bool, err error) {
	d := (&itemLooks{key: key}).difference(l)
	p := plan{store: holdover.StoreRedis}
	missing := l.kind() == DiffCounterMissing
	asFound := l.kind() == found.Kind && (missing || l.off() == found.Units)
	switch {
	case l.kind() == "":
		return false, nil // what was repaired before has mended it
	case l.kind() == DiffLedgerMissing:
		p.left = leftAlone[DiffLedgerMissing]
	case !asFound && !r.mended[key]:
		p.left = fmt.Sprintf("it was off by %d when it was found: run it again", found.Units)
	case r.truth == holdover.StoreRedis && !r.cfg.Counters:
		p.left = "redis decides, and somebody else may have sold or brought these units: find out who writes there, then repair with --counters"
	case missing:
		coming, err := r.coming(ctx, key)
		if err != nil {
			return false, err
		}
		units := l.available - l.held + coming
		p.action, p.after = "make the counter", strconv.FormatInt(units, 10)
		p.do = r.shift(key, true, 0, units)
	default:
		p.action, p.after = fmt.Sprintf("move the counter by %+d", -l.off()), strconv.FormatInt(l.counter-l.off(), 10)
		p.do = r.shift(key, false, l.counter, -l.off())
	}
	n := len(r.done)
	if err := r.carryOut(ctx, d, p); err != nil {
		return false, err
	}
	if r.done[n].Why == errMoved.Error() {
		r.done = r.done[:n]
		return true, nil
	}
	return false, nil
}

// coming is what the journal's claims of an item will still take out of its counter:
// those that Redis has no record of, and that the ledger has already.
func (r *repairer) coming(ctx context.Context, key itemKey) (units int64, err error) {
	for token, h := range r.v.lag.facts {
		var n int64
		for _, l := range h.Part() {
			if l.Item == key.item {
				n += l.Quantity
			}
		}
		if h.State != holdover.StateClaimed || h.Shop != key.shop || n == 0 {
			continue
		}
		known, err := r.redis.Lookup(ctx, token)
		if err != nil {
			return 0, err
		}
		if known.State == holdover.StateNone {
			units += n
		}
	}
	return units, nil
}

func (r *repairer) shift(key itemKey, missing bool, from, units int64) func(context.Context) error {
	return func(ctx context.Context) error {
		done, err := r.redis.ShiftCounter(ctx, r.cfg.Fence.Epoch, key.shop, key.item, missing, from, units)
		return errors.Join(err, unless(done || err != nil, errMoved))
	}
}
