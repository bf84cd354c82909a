package dualwrite

import (
	"context"
	"fmt"
	"time"

	"holdover"
)

// An item that buyers take and leave all the time never stands still, and its
// counters say nothing about what lasts: what is on its way makes them differ, and
// now and then makes up for a difference. Holds have names. A hold that one store
// has and the other has not is on its way when it is gone at the next reading, and
// lost when it is still there. And what a store has in all, free and held, is moved
// by no reserve and no release, only by claims, which are seen on their way too.

// reading is what both stores had of some items, each read at one moment.
type reading struct {
	at    time.Time
	items []itemReading
}

type itemReading struct {
	sides holdover.ItemSides
	base  int64                    // by how much MySQL has more in all: free and held
	apart map[holdover.Token]int64 // units that a hold has in Redis above those that it has in MySQL
	owed  map[holdover.Token]bool  // those that MySQL could not place
}

// readings makes readings, no more often than ReadingEvery; those that wait for the
// same items share one. It belongs to the re-check's goroutine.
type readings struct {
	f    *Facade
	at   time.Time
	of   string // shop and items
	last *reading
	err  error
}

// of the record's items; not ok when it is not this one's turn yet.
func (r *readings) read(ctx context.Context, shop int64, items []int64) (got *reading, ok bool, err error) {
	of := fmt.Sprint(shop, items)
	switch {
	case time.Since(r.at) >= r.f.cfg.ReadingEvery:
		r.last, r.err = r.f.readHolds(ctx, shop, items)
		r.at, r.of = time.Now(), of
	case r.of != of:
		return nil, false, nil
	}
	return r.last, true, r.err
}

// readingTries is how often Redis and MySQL are read until no claim came between.
const readingTries = 5

// readHolds reads Redis, MySQL, and Redis again: when Redis has the same in all and
// no claim is on its way, MySQL was read at a moment at which this was true. Nil
// when claims never pause.
func (f *Facade) readHolds(ctx context.Context, shop int64, items []int64) (*reading, error) {
	before, err := f.redis.Standing(ctx, shop, items)
	for range readingTries {
		if err != nil {
			return nil, err
		}
		mysql, err := f.mysql.Standing(ctx, shop, items)
		if err != nil {
			return nil, err
		}
		after, err := f.redis.Standing(ctx, shop, items)
		if err != nil {
			return nil, err
		}
		if r := apart(items, before, mysql, after); r != nil {
			return r, nil
		}
		before = after
	}
	return nil, nil
}

// apart compares one reading of each store; nil when a claim may have come between.
func apart(items []int64, redis, mysql, after holdover.Standing) *reading {
	if len(redis.Claiming)+len(after.Claiming) > 0 || len(redis.Counters) != len(items) || len(after.Counters) != len(items) {
		return nil
	}
	r := &reading{at: time.Now(), items: make([]itemReading, len(items))}
	for i, item := range items {
		one := itemReading{apart: make(map[holdover.Token]int64), owed: make(map[holdover.Token]bool)}
		one.sides = holdover.ItemSides{Item: item, Redis: redis.Counters[i]}
		inRedis, inMySQL, later := byToken(redis.Held, item), byToken(mysql.Held, item), byToken(after.Held, item)
		base := redis.Counters[i] + total(inRedis)
		if base != after.Counters[i]+total(later) {
			return nil
		}
		one.base = total(inMySQL) - base
		for _, s := range mysql.Stocks {
			if s.Item == item {
				one.sides.MySQL = append(one.sides.MySQL, s)
				one.base += s.Free() // the ledger less what it says is held
			}
		}
		for token, units := range inRedis {
			one.apart[token] = units
		}
		for token, units := range inMySQL {
			if one.apart[token] -= units; one.apart[token] == 0 {
				delete(one.apart, token)
			}
		}
		for _, h := range mysql.Owed {
			if h.Item == item {
				one.owed[h.Token] = true
			}
		}
		r.items[i] = one
	}
	return r
}

func byToken(holds []holdover.StandingHold, item int64) map[holdover.Token]int64 {
	units := make(map[holdover.Token]int64)
	for _, h := range holds {
		if h.Item == item {
			units[h.Token] += h.Units
		}
	}
	return units
}

func total(units map[holdover.Token]int64) (n int64) {
	for _, u := range units {
		n += u
	}
	return n
}

// judge tells what lasts from what was on its way: what is the same at both
// readings lasts. Not ok when what both stores have in all has moved between them.
func judge(first, second *reading) (sides []holdover.ItemSides, ok bool) {
	for i, now := range second.items {
		before := first.items[i]
		if now.base != before.base {
			return nil, false
		}
		s := now.sides
		s.Lasting = now.base
		for token, units := range now.apart {
			switch {
			case before.apart[token] != units:
				s.Passing += units
			case now.owed[token]:
				s.Owed += units
			default:
				s.Lasting += units
			}
		}
		sides = append(sides, s)
	}
	return sides, true
}

// readingPatience is how long an item may take until two of its readings say what
// lasts: each pair waits for what is on its way, and the readings of all take turns.
const readingPatience = 30 * time.Second

// readingLate is how often a lasting difference is read anew because mirror work is
// late somewhere: a token may be stuck for hours.
const readingLate = 3

// readAgain is lookAgain of what never stood still: two readings, between which
// everything that was on its way must have arrived.
func (f *Facade) readAgain(ctx context.Context, r *recheck, readings *readings) (done bool) {
	got, ok, err := readings.read(ctx, r.o.Shop, itemsOf(r.o.Lines))
	if r.until.IsZero() {
		r.until = time.Now().Add(readingPatience)
	}
	switch {
	case !ok && time.Now().Before(r.until):
		return false
	case !ok:
		f.undecided(&r.o, holdover.OutcomeShed, "the stores never stood still during the re-check, and too many others wait to be read hold by hold")
		return true
	case err != nil:
		f.undecided(&r.o, holdover.OutcomeShed, "the stores never stood still during the re-check, and could not be read hold by hold: "+err.Error())
		return true
	case got != nil && r.first != nil && got.at.Sub(r.first.at) < f.cfg.LaneLag+seenLate: // somebody else's, just before
		r.next = r.first.at.Add(f.cfg.LaneLag + seenLate)
		return false
	case got != nil && r.first != nil:
		if sides, ok := judge(r.first, got); ok {
			if f.decide(ctx, &r.o, sides) {
				return true
			}
			r.late++
		}
	}
	if r.late == readingLate || time.Now().After(r.until) {
		f.undecided(&r.o, holdover.OutcomeShed, "the stores never stood still during the re-check, and something was always late or moved what they have in all")
		return true
	}
	if r.next = time.Now().Add(f.cfg.ReadingEvery); got != nil {
		r.first, r.next = got, got.at.Add(f.cfg.LaneLag+seenLate)
	}
	return false
}

// decide observes o by what two readings say, unless late mirror work may be the
// difference.
func (f *Facade) decide(ctx context.Context, o *record, sides []holdover.ItemSides) bool {
	text := ""
	for _, s := range sides {
		if s.Lasting != 0 {
			text += fmt.Sprintf("; by its holds mysql has %+d of item %d against redis, whatever buyers do", s.Lasting, s.Item)
		}
	}
	if text != "" && f.lagging(ctx) {
		return false
	}
	o.proof().Sides = sides
	if text == "" {
		f.wasLag(ctx, o)
		return true
	}
	o.MySQL.Err = text[2:]
	f.observe(*o)
	return true
}
