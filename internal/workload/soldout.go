package workload

import (
	"fmt"
	"math"
	"slices"

	"holdover"
)

// A refusal is false when enough units were free all the time between the
// question and the answer, even if every doubt is decided for the product:
// every other cart that may have had units at any moment of that time had
// them, together. What a cart may have had is a span on a timeline:
//
//	from   the start of its first reserve
//	to     claimed, or perhaps claimed: for ever
//	       told released or expired: the end of that answer
//	       not told: its expiry, and the time that reaping may take
//	       refused: the answer; with an unanswered call before it: as not told
//
// Redis decides by item, over all locations. MySQL decides by location; there
// a claim that Redis decided may have taken units of the item's other
// locations, at most as many as those were ever overdrawn by.

const forever = math.MaxInt64

// edge is a point of a timeline: at and the sum of all quantities up to it.
type edge struct{ at, sum int64 }

// timeline is the demand for one item, or for one location of it.
type timeline struct {
	initial      int64
	starts, ends []edge
	peak         []int64 // largest overdraft up to each start, location lines only
}

func (t *timeline) add(from, to, quantity int64) {
	t.starts = append(t.starts, edge{from, quantity})
	if to != forever {
		t.ends = append(t.ends, edge{to, quantity})
	}
}

// close sorts the events and turns quantities into running sums.
func (t *timeline) close() {
	for _, edges := range [][]edge{t.starts, t.ends} {
		slices.SortFunc(edges, func(a, b edge) int {
			switch {
			case a.at < b.at:
				return -1
			case a.at > b.at:
				return 1
			}
			return 0
		})
		for i := 1; i < len(edges); i++ {
			edges[i].sum += edges[i-1].sum
		}
	}
}

// measurePeaks fills in peak; after close.
func (t *timeline) measurePeaks() {
	t.peak = make([]int64, len(t.starts))
	var most int64
	for i, s := range t.starts {
		most = max(most, s.sum-sumBefore(t.ends, s.at)-t.initial)
		t.peak[i] = most
	}
}

// taken is the demand of all spans that touch the time from start to end.
func (t *timeline) taken(start, end int64) int64 {
	return sumBefore(t.starts, end+1) - sumBefore(t.ends, start)
}

// overdraft is the largest demand over the stock at any moment up to end.
func (t *timeline) overdraft(end int64) int64 {
	if n := before(t.starts, end+1); n > 0 {
		return t.peak[n-1]
	}
	return 0
}

// before counts the edges before at.
func before(edges []edge, at int64) int {
	n, _ := slices.BinarySearchFunc(edges, at, func(e edge, at int64) int {
		if e.at < at {
			return -1
		}
		return 1
	})
	return n
}

func sumBefore(edges []edge, at int64) int64 {
	if n := before(edges, at); n > 0 {
		return edges[n-1].sum
	}
	return 0
}

// demand is two timelines of one stock: refused carts apart, because a store
// that decides alone should not refuse one cart for another refused one.
type demand struct {
	kept, refused timeline
}

// soldOutJudge has the timelines of all stock that can have been short.
type soldOutJudge struct {
	account *Account
	cfg     AuditConfig
	items   map[itemKey]*demand
	places  map[stockKey]*demand
	groups  map[itemKey][]stockKey
}

type itemKey struct{ shop, item int64 }

func (k stockKey) ofItem() itemKey { return itemKey{k.shop, k.item} }

// span is the time in which a cart may have had its units, and whether it is
// a refused one.
func (j *soldOutJudge) span(rec *record) (from, to int64, refused bool) {
	from = rec.first
	expiry := max(rec.last+rec.ttl, rec.mayLive) + int64(j.cfg.ReapGrace)
	switch {
	case rec.running > 0:
		return from, forever, false
	case rec.promise != promiseGranted && rec.loose:
		return from, expiry, false
	case rec.promise != promiseGranted:
		return from, rec.last, rec.promise == promiseRefused
	}
	switch rec.ending {
	case endClaimed, endPending:
		return from, forever, false
	case endReleased, endExpired:
		if rec.torn {
			return from, forever, false
		}
		return from, max(rec.ended, rec.last), false
	}
	if rec.claimAsked != 0 {
		return from, forever, false
	}
	return from, expiry, false
}

func newSoldOutJudge(a *Account, stock map[stockKey]int64, cfg AuditConfig) *soldOutJudge {
	j := &soldOutJudge{
		account: a, cfg: cfg,
		items: map[itemKey]*demand{}, places: map[stockKey]*demand{}, groups: map[itemKey][]stockKey{},
	}
	// Most stock is never short: only the rest gets a timeline.
	byPlace := make([]int64, len(a.keys))
	byItem := map[itemKey]int64{}
	for _, rec := range a.order {
		for _, l := range rec.lines {
			byPlace[l.key] += int64(l.quantity)
			byItem[a.keys[l.key].ofItem()] += int64(l.quantity)
		}
	}
	initial := map[itemKey]int64{}
	for k, n := range stock {
		initial[k.ofItem()] += n
	}
	short := make([]bool, len(a.keys)) // the item, or a location of it
	shortItem := map[itemKey]bool{}
	for id, k := range a.keys {
		if byPlace[id] > stock[k] || byItem[k.ofItem()] > initial[k.ofItem()] {
			shortItem[k.ofItem()] = true
		}
	}
	for id, k := range a.keys {
		it := k.ofItem()
		if short[id] = shortItem[it]; !short[id] {
			continue
		}
		j.places[k] = &demand{kept: timeline{initial: stock[k]}, refused: timeline{initial: stock[k]}}
		j.groups[it] = append(j.groups[it], k)
		if j.items[it] == nil {
			j.items[it] = &demand{kept: timeline{initial: initial[it]}, refused: timeline{initial: initial[it]}}
		}
	}
	for _, rec := range a.order {
		from, to, refused := j.span(rec)
		for _, l := range rec.lines {
			if !short[l.key] {
				continue
			}
			k := a.keys[l.key]
			place, item := &j.places[k].kept, &j.items[k.ofItem()].kept
			if refused {
				place, item = &j.places[k].refused, &j.items[k.ofItem()].refused
			}
			part := rec.claimedOf(l)
			place.add(from, to, part)
			item.add(from, to, part)
			if rest := int64(l.quantity) - part; rest > 0 { // back since the claim of a part
				place.add(from, min(to, rec.ended), rest)
				item.add(from, min(to, rec.ended), rest)
			}
		}
	}
	for _, d := range j.items {
		d.kept.close()
		d.refused.close()
	}
	for _, d := range j.places {
		d.kept.close()
		d.refused.close()
		d.kept.measurePeaks()
	}
	return j
}

// refusalVerdict is what became of one refusal.
type refusalVerdict uint8

const (
	refusalRight  refusalVerdict = iota
	refusalMutual                // right only because of other refused carts
	refusalFalse
)

// judge says whether f was right, and why not.
func (j *soldOutJudge) judge(f refusal) (refusalVerdict, string) {
	start := f.start
	if f.stage == holdover.StageJoint {
		// Both stores must have the units, and one may follow the other.
		start -= int64(j.cfg.JointLag)
	}
	_, _, ownRefused := j.span(f.rec)
	wanted := map[itemKey]int64{}
	for _, l := range f.rec.lines {
		wanted[j.account.keys[l.key].ofItem()] += int64(l.quantity)
	}
	excused := false // short, if refused carts count
	why := ""
	for _, l := range f.rec.lines {
		k := j.account.keys[l.key]
		item, ok := j.items[k.ofItem()]
		if !ok {
			continue // never short
		}
		if f.store != holdover.StoreMySQL {
			kept, all := free(item, start, f.end, wanted[k.ofItem()], ownRefused)
			want := wanted[k.ofItem()]
			if kept < want {
				return refusalRight, ""
			}
			excused = excused || all < want
			why = fmt.Sprintf("item %d: %d wanted, %d free", k.item, want, all)
		}
		if f.store != holdover.StoreRedis {
			kept, all := free(j.places[k], start, f.end, int64(l.quantity), ownRefused)
			for _, other := range j.groups[k.ofItem()] {
				if other != k {
					spilled := j.places[other].kept.overdraft(f.end)
					kept, all = kept-spilled, all-spilled
				}
			}
			want := int64(l.quantity)
			if kept < want {
				return refusalRight, ""
			}
			excused = excused || all < want
			why = fmt.Sprintf("item %d at group %d: %d wanted, %d free", k.item, k.group, want, all)
		}
	}
	if excused {
		return refusalMutual, why
	}
	if why == "" {
		why = "all its items had more than was ever asked for"
	}
	return refusalFalse, fmt.Sprintf("hold %s of shop %d was refused by %s in %s although all of it was there: %s",
		f.rec.token, f.rec.shop, f.store, f.stage, why)
}

// free is what was surely free all the time for a cart that itself counts with
// own units: without and with the refused carts.
func free(d *demand, start, end, own int64, ownRefused bool) (kept, all int64) {
	k, r := d.kept.taken(start, end), d.refused.taken(start, end)
	if ownRefused {
		r -= own
	} else {
		k -= own
	}
	return d.kept.initial - k, d.kept.initial - k - r
}
