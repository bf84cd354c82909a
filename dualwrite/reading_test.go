package dualwrite_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// busy lets buyers take and leave units of item 1 at several instances until stop.
func busy(t *testing.T, shop int64, buyers int, claims bool, on ...*dualwrite.Facade) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range buyers {
		f := on[n%len(on)]
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				for f.Stats().LaneJobs > 4 && ctx.Err() == nil { // a slow machine follows too
					time.Sleep(time.Millisecond)
				}
				q := request(shop, holdover.NewToken(), line(1, 1))
				reserveOn(f, q)
				time.Sleep(time.Duration(1+n) * time.Millisecond) // the buyer thinks: the hold must be there for a while
				if claims && i%50 == 0 {
					claimOn(f, shop, q.Token)
				} else {
					releaseOn(f, shop, q.Token)
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

func fewLooks(c *dualwrite.Config) {
	c.RecheckTries, c.ReadingEvery, c.LaneLag = 10, 50*time.Millisecond, time.Second
}

// MySQL has a unit too many of an item that buyers take and leave all the time. The
// two stores are read one after the other: sooner or later both reads give the same
// number. The lasting difference is told all the same, each time.
func TestLastingDifferenceOfAHotItem(t *testing.T) {
	r, rec := observed(t, holdover.StageShadow, 40, fewLooks, func(c *dualwrite.Config) { c.MySQL = generousMySQL{c.MySQL, 1} })
	defer busy(t, r.shop, 3, true, r.f)()
	var asked []holdover.Token
	for range 10 {
		q := request(r.shop, holdover.NewToken(), line(1, 41)) // of 40; mysql says that it has 41
		asked = append(asked, q.Token)
		wantErr(t, "redis has 40", reserveOn(r.f, q), holdover.ErrOutOfStock)
	}
	differed := 0
	for _, token := range asked {
		o := rec.last(t, token, 1)
		if len(o.Evidence) > 0 || o.Marks.Has(holdover.MarkUndecided) {
			t.Errorf("a lasting difference is explained by %v, undecided %t: %s", o.Evidence, o.Marks.Has(holdover.MarkUndecided), o.MySQL.Err)
		}
		if o.Redis.Outcome != o.MySQL.Outcome {
			differed++
			if s := o.Proof.Sides; len(s) != 1 || s[0].Lasting != 1 {
				t.Errorf("proof %+v", s)
			}
		}
	}
	t.Logf("%d of %d differed", differed, len(asked))
	if differed == 0 {
		t.Error("the refusals met no moment at which MySQL would have granted: nothing was tested")
	}
}

// A hold that MySQL lost is a lasting difference of a hot item too.
func TestLostHoldOfAHotItem(t *testing.T) {
	r, rec := observed(t, holdover.StageShadow, 40, fewLooks, func(c *dualwrite.Config) { c.ReaperGrace = time.Hour })
	lost := r.one()
	wantOK(t, "reserve", reserveOn(r.f, lost))
	rec.last(t, lost.Token, 1)
	if _, err := r.mysql.Apply(t.Context(), holdover.Hold{Token: lost.Token, State: holdover.StateReleased}); err != nil {
		t.Fatal(err)
	}
	defer busy(t, r.shop, 2, false, r.f)()
	seen := 0
	for range 200 {
		q := request(r.shop, holdover.NewToken(), line(1, 40))
		wantErr(t, "redis has 39", reserveOn(r.f, q), holdover.ErrOutOfStock)
		o := rec.last(t, q.Token, 1)
		if o.Redis.Outcome == o.MySQL.Outcome {
			continue
		}
		if len(o.Evidence) > 0 || o.Marks.Has(holdover.MarkUndecided) || o.Proof.Sides[0].Lasting != 1 {
			t.Fatalf("evidence %v, marks %b, proof %+v", o.Evidence, o.Marks, o.Proof)
		}
		if seen++; seen == 3 {
			return
		}
	}
	t.Errorf("%d differences were seen in 200 refusals", seen)
}

// A healthy item is never told as one that differs, however hot it is: buyers at two
// instances, claims and a store that is slow to follow.
func TestHotItemIsNoLastingDifference(t *testing.T) {
	r, rec := observed(t, holdover.StageShadow, 4000, fewLooks)
	seen := new(recorder)
	other := r.another(t, fewLooks, func(c *dualwrite.Config) {
		c.Observe, c.RecheckEvery = seen.observe, 5*time.Millisecond
	})
	stop := busy(t, r.shop, 4, true, r.f, other)
	var asked []holdover.Token
	for len(asked) < 200 {
		left := r.counter(t, r.shop, 1)
		q := request(r.shop, holdover.NewToken(), line(1, left+1))
		if out := reserveOn(r.f, q); out.err == nil {
			wantOK(t, "release", releaseOn(r.f, r.shop, q.Token))
		} else {
			asked = append(asked, q.Token)
		}
	}
	raced, undecided := 0, 0
	for _, token := range asked {
		o := rec.last(t, token, 1)
		switch {
		case o.Marks.Has(holdover.MarkUndecided):
			undecided++
		case o.Redis.Outcome == o.MySQL.Outcome:
		case len(o.Evidence) == 0:
			t.Errorf("a healthy item is told as different: redis %s, mysql %s %s, proof %+v", o.Redis.Outcome, o.MySQL.Outcome, o.MySQL.Err, o.Proof)
		default:
			raced++
		}
	}
	stop()
	t.Logf("%d refusals, %d of them differed for a moment, %d undecided", len(asked), raced, undecided)
	if raced == 0 {
		t.Error("no race was met: nothing was tested")
	}
}
