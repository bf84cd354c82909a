package dualwrite

import (
	"context"
	"slices"
	"strings"
	"time"

	"holdover"
)

// evidence records a fact that may explain a difference, and returns where its
// proof goes.
func (o *record) evidence(e holdover.Evidence) *holdover.Proof {
	if !slices.Contains(o.Evidence, e) {
		o.Evidence = append(o.Evidence, e)
	}
	return o.proof()
}

func (o *record) proof() *holdover.Proof {
	if o.Proof == nil {
		o.Proof = new(holdover.Proof)
	}
	return o.Proof
}

// noteMove records that the agreement moved since the call began.
func (o *record) noteMove(now holdover.Epoch) {
	if now > o.a.first {
		o.Marks |= holdover.MarkMoved
		p := o.evidence(holdover.EvidenceEpochMoved)
		p.EpochBegan, p.EpochEnded = o.a.first, now
	}
}

// noteAge records that Redis granted the hold before dual writing began.
func (v *view) noteAge(o *record, h holdover.Hold) {
	if !v.dualSince.IsZero() && !h.GrantedAt.IsZero() && h.GrantedAt.Before(v.dualSince) {
		p := o.evidence(holdover.EvidencePreShadow)
		p.GrantedAt, p.DualSince = h.GrantedAt, v.dualSince
	}
}

// noteExpiry records that the hold's time passed between the two answers: one
// store has it as expired, and the other has not. It reports whether it did.
func (o *record) noteExpiry(redis, mysql holdover.Hold) bool {
	now := time.Now()
	switch {
	case (redis.State == holdover.StateExpired) == (mysql.State == holdover.StateExpired),
		redis.ExpiresAt.IsZero(), mysql.ExpiresAt.IsZero(),
		now.Before(redis.ExpiresAt) && now.Before(mysql.ExpiresAt):
		return false
	}
	p := o.evidence(holdover.EvidenceExpiryBetween)
	p.RedisExpires, p.MySQLExpires, p.AnsweredAt = redis.ExpiresAt, mysql.ExpiresAt, now
	return true
}

// mirrorLost observes that the token's mirror work was dropped, or failed: the
// token is unmirrored until it is made up for.
func (f *Facade) mirrorLost(v *view, o record, outcome holdover.Outcome, err error) {
	cause := laneFull // an outage makes tens of thousands of them on the buyers' path: one text for all
	if err != nil {
		cause = clip(outcome.String()+": "+err.Error(), maxCause)
	}
	o.MySQL.Outcome, o.MySQL.Err = outcome, cause
	o.evidence(holdover.EvidenceMirrorLost).Cause = cause
	f.observe(o)
	f.keep(v, o.Token, unmirroredSince{lost: cause, grant: o.Op == holdover.OpReserve})
}

// maxCause bounds the text that is kept for each token whose mirror work was lost.
const maxCause = 200

func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

const laneFull = "shed: its lane was full or had stopped"

// noteLostBefore records that earlier mirror work of the token was lost and has
// not been made up for: MySQL can't agree about it.
func (f *Facade) noteLostBefore(o *record) {
	if cause := f.unmirrored.get(o.Token).lost; cause != "" {
		o.evidence(holdover.EvidenceMirrorLost).Cause = "before: " + cause
	}
}

// lookAfterRefusal reads both stores right after MySQL refused what Redis grants.
// MySQL may have the units at other locations of the item, which Redis's one
// counter can't tell. Or it has them where they were asked for: then other
// operations on these items ended between the two answers, or its pool was short
// of what its ledger had. Nothing is recorded when a store does not answer.
func (f *Facade) lookAfterRefusal(ctx context.Context, o *record) {
	f.noteLostBefore(o)
	sides, err := f.bothSides(ctx, o.Shop, itemsOf(o.Lines))
	if err != nil {
		return
	}
	elsewhere, headroom := located(o.Lines, sides)
	switch {
	case elsewhere:
		o.evidence(holdover.EvidenceOtherLocations).Sides = sides
	case headroom:
		overlapping := f.overlapping(ctx, o)
		if overlapping > 0 {
			o.evidence(holdover.EvidenceLastUnits)
		}
		p := o.evidence(holdover.EvidencePoolShort)
		p.Sides, p.Overlapping = sides, overlapping
	}
}

// noteDebt lets every instance know that MySQL has more than Redis by this hold's
// units. Without it a later difference stays unexplained, which is the safe side.
func (f *Facade) noteDebt(ctx context.Context, h holdover.Hold) {
	if err := f.mysql.Owe(ctx, h); err != nil {
		f.log.Warn("a debt could not be noted: later differences on its items may stay unexplained", "token", h.Token, "err", err)
	}
}

// located compares what MySQL has with the lines: elsewhere, that an item has
// enough in all and not where it was asked for; headroom, that all lines could
// be met where they were asked for.
func located(lines []holdover.Line, sides []holdover.ItemSides) (elsewhere, headroom bool) {
	headroom = true
	for _, line := range lines {
		i := slices.IndexFunc(sides, func(s holdover.ItemSides) bool { return s.Item == line.Item })
		if i < 0 {
			return false, false
		}
		here, all := freeOf(sides[i].MySQL, line)
		if here < line.Quantity {
			headroom = false
			elsewhere = elsewhere || all >= line.Quantity
		}
	}
	return elsewhere, headroom
}

// overlapping counts the operations on o's items that ended since its first
// answer: they were under way then, or came between. Of other instances only
// late mirror work is known.
func (f *Facade) overlapping(ctx context.Context, o *record) (n int64) {
	if now := f.touched.sum(o.Shop, o.Lines); now > o.touched {
		n = int64(now - o.touched)
	}
	instances, err := f.redis.Instances(ctx, f.cfg.InstanceMaxAge)
	if err != nil {
		return n
	}
	for _, i := range instances {
		if i.ID != f.cfg.InstanceID {
			n += i.Busy - i.Debts
		}
	}
	return n
}

// bothSides reads what both stores have of the items.
func (f *Facade) bothSides(ctx context.Context, shop int64, items []int64) ([]holdover.ItemSides, error) {
	counters, err := f.redis.Counters(ctx, shop, items)
	if err != nil {
		return nil, err
	}
	stocks, owed, err := f.mysql.Levels(ctx, shop, items)
	if err != nil {
		return nil, err
	}
	sides := make([]holdover.ItemSides, len(items))
	for i, item := range items {
		sides[i] = holdover.ItemSides{Item: item, Redis: counters[i], Owed: owed[item]}
		for _, s := range stocks {
			if s.Item == item {
				sides[i].MySQL = append(sides[i].MySQL, s)
			}
		}
	}
	return sides, nil
}
