package dualwrite

import (
	"context"
	"slices"
	"time"

	"holdover"
)

// recheck is a difference that may be nothing but lag: one store has the units
// of an end or a grant already, the other not yet.
type recheck struct {
	o     record
	tries int
	next  time.Time
	seen  []holdover.ItemSides // at the last look
	since time.Time            // since when it looks the same

	missed missed    // of an end: what MySQL seems to have missed; its fact is zero else
	first  *reading  // once it never stood still: the first of two, see reading.go
	late   int       // readings that differed while mirror work was late
	until  time.Time // when the readings are given up
}

// settle observes equal answers at once, and so those that can't be compared;
// different ones after the re-check: lag is not divergence.
func (f *Facade) settle(v *view, o record) {
	o.a.noted.Store(true)
	o.noteMove(f.view.Load().Epoch)
	answered := func(a holdover.Answer) bool {
		return a.Outcome == holdover.OutcomeGranted || a.Outcome == holdover.OutcomeRefused
	}
	explained := slices.Contains(o.Evidence, holdover.EvidenceOtherLocations) || slices.Contains(o.Evidence, holdover.EvidencePoolShort)
	if o.Redis.Outcome == o.MySQL.Outcome || !answered(o.Redis) || !answered(o.MySQL) || explained {
		f.observe(o)
		return
	}
	select {
	case f.rechecks <- recheck{o: o, next: time.Now().Add(f.cfg.RecheckEvery)}:
	default:
		o.Marks |= holdover.MarkUndecided
		notCompared(&o, holdover.OutcomeShed, "too many differences are waiting for their re-check")
		f.observe(o)
	}
}

// lookThenSettle is settle for MySQL's refusal of what Redis granted, in joint:
// the look is off the buyer's path.
func (f *Facade) lookThenSettle(v *view, o record) {
	o.a.noted.Store(true)
	f.lanes.add(job{token: o.Token, epoch: v.Epoch, what: "look at the stock after a refusal",
		shed:   func() { f.settle(v, o) },
		failed: func(error) { f.settle(v, o) },
		run: func(ctx context.Context) error {
			f.lookAfterRefusal(ctx, &o)
			f.settle(v, o)
			return nil
		},
	})
}

// notCompared takes the shadow's answer back: what it says is not known to be a
// difference.
func notCompared(o *record, outcome holdover.Outcome, why string) {
	shadow := &o.MySQL
	if o.Stage.Truth() == holdover.StoreMySQL {
		shadow = &o.Redis
	}
	shadow.Outcome, shadow.Err = outcome, why
}

// recheckLoop looks again at differences until it is known what they were, or the
// tries are used up.
func (f *Facade) recheckLoop(ctx context.Context) {
	var waiting []recheck
	fill := func(most int) {
		for len(waiting) < most {
			f.stats.rechecking.Add(1) // before it leaves the queue: nobody sees it in neither
			select {
			case r := <-f.rechecks:
				waiting = append(waiting, r)
			default:
				f.stats.rechecking.Add(-1)
				return
			}
		}
	}
	readings := &readings{f: f}
	every(ctx, max(f.cfg.RecheckEvery/4, time.Millisecond), func() {
		fill(f.cfg.RecheckMax)
		now, still := time.Now(), waiting[:0]
		for _, r := range waiting {
			if now.Before(r.next) || !f.lookAgain(ctx, &r, readings) {
				still = append(still, r)
			}
		}
		f.stats.rechecking.Add(int64(len(still) - len(waiting)))
		clear(waiting[len(still):])
		waiting = still
	})
	fill(2 * f.cfg.RecheckMax) // what is left is told as it stands
	for _, r := range waiting {
		f.undecided(&r.o, holdover.OutcomeShed, "stopped before the re-check was over")
	}
}

// undecided observes a difference of which nobody can say what it was.
func (f *Facade) undecided(o *record, outcome holdover.Outcome, why string) {
	o.Marks |= holdover.MarkUndecided
	notCompared(o, outcome, why)
	f.observe(*o)
}

// lookAgain reports whether r is done, and observes it then. The stores stood
// still for LaneLag: what they have then is what they differ by, which is nothing
// when it was lag; a difference counts only with no late mirror work anywhere. Or
// buyers come and go and they never stand still: a lasting difference looks like
// agreement now and then, and agreement like a difference, so they are compared
// hold by hold.
func (f *Facade) lookAgain(ctx context.Context, r *recheck, readings *readings) bool {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.LaneTimeout)
	defer cancel()
	if r.missed.fact != holdover.StateNone {
		f.judgeMissed(ctx, &r.o, r.missed)
		f.observe(r.o)
		return true
	}
	r.next = time.Now().Add(f.cfg.RecheckEvery)
	if r.tries >= f.cfg.RecheckTries {
		return f.readAgain(ctx, r, readings)
	}
	r.tries++
	seen, err := f.bothSides(ctx, r.o.Shop, itemsOf(r.o.Lines))
	if err == nil {
		if !slices.EqualFunc(seen, r.seen, func(a, b holdover.ItemSides) bool { return a.Redis == b.Redis && agreed(a) == agreed(b) }) {
			r.since = time.Now()
		}
		r.seen = seen
		r.o.proof().Sides = seen // what is not explained can be investigated too
	}
	switch {
	case err == nil && time.Since(r.since) >= f.cfg.LaneLag && !slices.ContainsFunc(seen, func(s holdover.ItemSides) bool { return s.Redis != agreed(s) }):
		f.wasLag(ctx, &r.o)
	case err == nil && time.Since(r.since) >= f.cfg.LaneLag && !f.lagging(ctx):
		f.observe(r.o)
	case err != nil && r.tries >= f.cfg.RecheckTries:
		f.undecided(&r.o, holdover.OutcomeError, "re-check failed: "+err.Error())
	default:
		return false
	}
	return true
}

// wasLag observes a difference between stores that agree, by o's proof.
func (f *Facade) wasLag(ctx context.Context, o *record) {
	e := holdover.EvidenceLastUnits
	if slices.ContainsFunc(o.Proof.Sides, func(s holdover.ItemSides) bool { return s.Owed > 0 }) {
		e = holdover.EvidenceOtherLocations // they agree because of an earlier grant that MySQL could not place
	}
	o.evidence(e).Overlapping = f.overlapping(ctx, o)
	f.observe(*o)
}

// lagging reports whether this or another live instance has mirror work that is
// late. A debt is none: it stays as it is until units come back.
func (f *Facade) lagging(ctx context.Context) bool {
	if f.Busy() > f.Debts() {
		return true
	}
	instances, err := f.redis.Instances(ctx, f.cfg.InstanceMaxAge)
	return err != nil || slices.ContainsFunc(instances, func(i holdover.Instance) bool {
		return i.ID != f.cfg.InstanceID && i.Busy > i.Debts
	})
}

// agreed is what Redis has of the item if the stores agree: what is free in MySQL
// at all of its locations, less what Redis gave and MySQL could not place, and less
// what is on its way between them.
func agreed(s holdover.ItemSides) int64 {
	_, all := freeOf(s.MySQL, holdover.Line{Item: s.Item})
	return all - s.Owed - s.Passing
}
