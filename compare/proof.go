package compare

import (
	"time"

	"holdover"
)

// lack is why a piece of evidence explains nothing.
type lack uint8

const (
	lackNothing   lack = iota
	lackShape          // it can't be the cause of a difference of this shape
	lackProof          // it has no proof at all
	lackEpochs         // the proof has no epoch that moved
	lackTimes          // the proof has not both of its times
	lackOrder          // its times are not in the order that it claims
	lackCause          // it does not say what was lost
	lackSides          // both stores' state of an item of the call was not read
	lackElsewhere      // the units are not at other locations
	lackOwed           // earlier grants that MySQL could not place are not what the stores differ by
	lackHeadroom       // the ledger had no headroom
	lackFew            // more was left than operations in flight can explain
	lackOverlap        // nothing was in flight, and both stores did not agree later
	lackLasting        // the stores differ whatever buyers do
	numLacks
)

var lackTexts = [numLacks]string{
	"", "it can't be the cause of such a difference", "no proof was recorded with it",
	"its proof has no two epochs, the later one above", "its proof lacks one of the two times",
	"its proof's times are in the other order", "its proof does not say what was lost",
	"its proof lacks what both stores had of an item", "its proof has no line whose units are at other locations only",
	"by its proof the stores don't differ by earlier grants that MySQL could not place",
	"its proof shows no headroom in the ledger", "its proof has more units left than operations in flight can explain",
	"its proof has no operation in flight and no agreement afterwards",
	"by its proof the stores differ by their holds, whatever buyers do",
}

func (l lack) String() string { return nameOf(lackTexts[:], uint8(l), "lack") }

// explains returns the kind that evidence e makes of the difference in o; or
// KindNone, and why, when e can't be the cause of a difference of this shape or
// its proof is missing or says otherwise.
func explains(e holdover.Evidence, o *holdover.Observation, lastUnitWindow int64) (Kind, lack) {
	redisOnly := o.Redis.Outcome == holdover.OutcomeGranted && o.MySQL.Outcome == holdover.OutcomeRefused
	differs := o.Redis.Outcome != o.MySQL.Outcome
	reserve := o.Op == holdover.OpReserve
	kind, fits := KindNone, true
	switch e {
	case holdover.EvidenceEpochMoved:
		kind = KindStraddledFlip
	case holdover.EvidenceMirrorLost:
		kind = KindMirrorLost
	case holdover.EvidencePreShadow:
		// MySQL is the store that never heard of such a hold: it can't be the
		// one that says yes while Redis says no.
		kind, fits = KindPreShadow, redisOnly || !differs
	case holdover.EvidenceOtherLocations:
		// What Redis gave from a place where MySQL has none is missing in its
		// counter afterwards, and still there in MySQL.
		kind, fits = KindLocation, reserve && differs
	case holdover.EvidencePoolShort:
		kind, fits = KindPoolShort, reserve && redisOnly
	case holdover.EvidenceLastUnits:
		kind, fits = KindLastUnitRace, reserve && differs
	case holdover.EvidenceExpiryBetween:
		kind = KindExpirySkew
	default:
		fits = false
	}
	if !fits {
		return KindNone, lackShape
	}
	if o.Proof == nil {
		return KindNone, lackProof
	}
	if l := disproved(kind, o, lastUnitWindow); l != lackNothing {
		return KindNone, l
	}
	return kind, lackNothing
}

// disproved checks the proof that a kind needs.
func disproved(kind Kind, o *holdover.Observation, window int64) lack {
	p := o.Proof
	switch kind {
	case KindStraddledFlip:
		if p.EpochEnded <= p.EpochBegan {
			return lackEpochs
		}
	case KindMirrorLost:
		if p.Cause == "" {
			return lackCause
		}
	case KindPreShadow:
		switch {
		case p.GrantedAt.IsZero() || p.DualSince.IsZero():
			return lackTimes
		case !p.GrantedAt.Before(p.DualSince):
			return lackOrder
		}
	case KindExpirySkew:
		switch {
		case p.RedisExpires.IsZero() || p.MySQLExpires.IsZero() || p.AnsweredAt.IsZero():
			return lackTimes
		case p.AnsweredAt.Before(sooner(p.RedisExpires, p.MySQLExpires)):
			return lackOrder
		}
	case KindLocation:
		return disprovedLocation(o)
	case KindPoolShort:
		return disprovedPool(o)
	case KindLastUnitRace:
		return disprovedRace(o, window)
	}
	return lackNothing
}

// disprovedLocation: some line is short at its own location, and each such line
// would find its units at all locations of its item together.
func disprovedLocation(o *holdover.Observation) lack {
	if o.Redis.Outcome != holdover.OutcomeGranted {
		return disprovedOwed(o)
	}
	elsewhere := false
	for _, line := range o.Lines {
		s, ok := sideOfItem(o.Proof.Sides, line.Item)
		if !ok {
			return lackSides
		}
		here, all := freeAt(s.MySQL, line.Group)
		if here >= wanted(o.Lines, line.Item, line.Group, false) {
			continue
		}
		if all < wanted(o.Lines, line.Item, 0, true) {
			return lackElsewhere
		}
		elsewhere = true
	}
	if !elsewhere {
		return lackElsewhere
	}
	return lackNothing
}

// disprovedOwed: Redis refused, and MySQL has of each item just what Redis has and
// what earlier holds stand for that it could not place.
func disprovedOwed(o *holdover.Observation) lack {
	owed := false
	for _, line := range o.Lines {
		s, ok := sideOfItem(o.Proof.Sides, line.Item)
		if !ok {
			return lackSides
		}
		if _, all := freeAt(s.MySQL, line.Group); s.Redis != all-s.Owed-s.Passing {
			return lackOwed
		}
		owed = owed || s.Owed > 0
	}
	if !owed {
		return lackOwed
	}
	return lackNothing
}

// disprovedPool: the ledger has the units of each line at its location, where
// the pool gave up.
func disprovedPool(o *holdover.Observation) lack {
	if len(o.Lines) == 0 {
		return lackSides
	}
	for _, line := range o.Lines {
		s, ok := sideOfItem(o.Proof.Sides, line.Item)
		if !ok {
			return lackSides
		}
		if here, _ := freeAt(s.MySQL, line.Group); here < wanted(o.Lines, line.Item, line.Group, false) {
			return lackHeadroom
		}
	}
	return lackNothing
}

// disprovedRace: one line at least is near the end in both stores, by the proof
// and by what the answers said is left; and something was in flight, or both
// stores agreed about every item when they were looked at again.
func disprovedRace(o *holdover.Observation, window int64) lack {
	if len(o.Lines) == 0 {
		return lackSides
	}
	near, equal := false, true
	for i, line := range o.Lines {
		s, ok := sideOfItem(o.Proof.Sides, line.Item)
		if !ok {
			return lackSides
		}
		if s.Lasting != 0 {
			return lackLasting
		}
		_, all := freeAt(s.MySQL, 0)
		equal = equal && s.Redis == all-s.Passing
		most := addUnits(line.Quantity, window)
		said := func(a *holdover.Answer) bool { return i >= len(a.Remaining) || a.Remaining[i] <= most }
		near = near || s.Redis <= most && all <= most && said(&o.Redis) && said(&o.MySQL)
	}
	switch {
	case !near:
		return lackFew
	case o.Proof.Overlapping < 1 && !equal:
		return lackOverlap
	}
	return lackNothing
}

func sideOfItem(sides []holdover.ItemSides, item int64) (holdover.ItemSides, bool) {
	for _, s := range sides {
		if s.Item == item {
			return s, true
		}
	}
	return holdover.ItemSides{}, false
}

// freeAt is what MySQL has at one location, and at all of them.
func freeAt(stocks []holdover.Stock, group int64) (here, all int64) {
	for _, s := range stocks {
		all += s.Free()
		if s.Group == group {
			here += s.Free()
		}
	}
	return here, all
}

// wanted adds up the lines that ask for an item at one location, or at any.
func wanted(lines []holdover.Line, item, group int64, anywhere bool) (n int64) {
	for _, l := range lines {
		if l.Item == item && (anywhere || l.Group == group) {
			n = addUnits(n, l.Quantity)
		}
	}
	return n
}

func sooner(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
