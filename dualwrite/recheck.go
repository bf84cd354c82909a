package dualwrite

import (
	"context"
	"slices"
	"time"

	"holdover"
)

// agreeLooks is how often in a row the stores must agree about an item before a
// difference was lag: where buyers come and go, a lasting one looks like agreement
// now and then.
const agreeLooks = 3

// recheck is a difference that may be nothing but lag: one store has the units
// of an end or a grant already, the other not yet.
type recheck struct {
	o     record
	tries int
	next  time.Time
	seen  []holdover.ItemSides         // at the last look
	since time.Time                    // since when it looks the same
	equal map[int64]holdover.ItemSides // items, as they were seen equal in both stores, agreeLooks times in a row
	agree map[int64]int                // looks in a row at which they were

	missed  string    // of an end: what MySQL seems to have missed, see noteMissed
	granted time.Time // then: when Redis granted the hold
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
	case f.rechecks <- recheck{o: o, next: time.Now().Add(f.cfg.RecheckEvery), equal: make(map[int64]holdover.ItemSides), agree: make(map[int64]int)}:
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

// recheckLoop looks again at differences until both stores agree about each
// item at one moment, or the tries are used up.
func (f *Facade) recheckLoop(ctx context.Context) {
	var waiting []recheck
	take := func(r recheck) { waiting = append(waiting, r) }
	every(ctx, max(f.cfg.RecheckEvery/4, time.Millisecond), func() {
		for len(waiting) < f.cfg.RecheckMax {
			select {
			case r := <-f.rechecks:
				take(r)
				continue
			default:
			}
			break
		}
		now, still := time.Now(), waiting[:0]
		for _, r := range waiting {
			if now.Before(r.next) || !f.lookAgain(ctx, &r) {
				still = append(still, r)
			}
		}
		clear(waiting[len(still):])
		waiting = still
	})
	for { // what is left is told as it stands
		select {
		case r := <-f.rechecks:
			take(r)
			continue
		default:
		}
		break
	}
	for _, r := range waiting {
		r.o.Marks |= holdover.MarkUndecided
		notCompared(&r.o, holdover.OutcomeShed, "stopped before the re-check was over")
		f.observe(r.o)
	}
}

// lookAgain reports whether r is done, and observes it then. Three ways out: both
// stores agreed about each item at one moment, so it was lag; they stood still for
// LaneLag with no late mirror work anywhere, and differ, so it is a difference;
// or the tries are used up before either, so nothing can be said.
func (f *Facade) lookAgain(ctx context.Context, r *recheck) bool {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.LaneTimeout)
	defer cancel()
	if r.missed != "" {
		f.judgeMissed(ctx, &r.o, r.missed, r.granted)
		f.observe(r.o)
		return true
	}
	r.tries++
	r.next = time.Now().Add(f.cfg.RecheckEvery)
	items := itemsOf(r.o.Lines)
	seen, err := f.bothSides(ctx, r.o.Shop, items)
	if err == nil {
		for _, s := range seen {
			if s.Redis != agreed(s) {
				r.agree[s.Item] = 0
			} else if r.agree[s.Item]++; r.agree[s.Item] >= agreeLooks {
				r.equal[s.Item] = s
			}
		}
		if !slices.EqualFunc(seen, r.seen, func(a, b holdover.ItemSides) bool { return a.Redis == b.Redis && agreed(a) == agreed(b) }) {
			r.since = time.Now()
		}
		r.seen = seen
		r.o.proof().Sides = seen // what is not explained can be investigated too
	}
	switch {
	case len(r.equal) == len(items):
		e := holdover.EvidenceLastUnits
		for _, s := range r.equal {
			if s.Owed > 0 { // they agree because of an earlier grant that MySQL could not place
				e = holdover.EvidenceOtherLocations
			}
		}
		p := r.o.evidence(e)
		p.Overlapping = f.overlapping(ctx, &r.o)
		for i, item := range items {
			p.Sides[i] = r.equal[item]
		}
	case err == nil && time.Since(r.since) >= f.cfg.LaneLag && !f.lagging(ctx):
	case r.tries < f.cfg.RecheckTries:
		return false
	case err != nil:
		r.o.Marks |= holdover.MarkUndecided
		notCompared(&r.o, holdover.OutcomeError, "re-check failed: "+err.Error())
	default:
		r.o.Marks |= holdover.MarkUndecided
		notCompared(&r.o, holdover.OutcomeShed, "the stores never stood still during the re-check")
	}
	f.observe(r.o)
	return true
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
// at all of its locations, less what Redis gave and MySQL could not place.
func agreed(s holdover.ItemSides) int64 {
	_, all := freeOf(s.MySQL, holdover.Line{Item: s.Item})
	return all - s.Owed
}
