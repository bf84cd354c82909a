package dualwrite_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// deafMySQL tells facts of one state as written, and does not write them.
type deafMySQL struct {
	dualwrite.MySQL
	state holdover.State
	deaf  *atomic.Bool
}

func (d deafMySQL) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	if h.State == d.state && d.deaf.Load() {
		h.Firm = true
		return h, nil
	}
	return d.MySQL.Apply(ctx, h)
}

// missing is a rig in shadow whose MySQL does not write facts of one state.
func missing(t *testing.T, state holdover.State) (*rig, *recorder, *atomic.Bool) {
	deaf := new(atomic.Bool)
	r, rec := observed(t, holdover.StageShadow, 5, func(c *dualwrite.Config) {
		c.MySQL, c.ReaperGrace, c.LaneLag = deafMySQL{c.MySQL, state, deaf}, 2500*time.Millisecond, time.Second
	})
	began := time.Now()
	eventually(t, "dual writing began more than a second ago", func() bool { return time.Since(began) > 1200*time.Millisecond })
	return r, rec, deaf
}

// A fact that MySQL lost without a word shows when the hold ends, which would
// heal it: nobody would ever know.
func TestLostGrantShowsAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(r *rig, token holdover.Token) outcome{
		"release": func(r *rig, token holdover.Token) outcome { return releaseOn(r.f, r.shop, token) },
		"claim":   func(r *rig, token holdover.Token) outcome { return claimOn(r.f, r.shop, token) },
	} {
		t.Run(name, func(t *testing.T) {
			r, rec, deaf := missing(t, holdover.StateHeld)
			kept, lost := r.one(), r.one()
			wantOK(t, "reserve", reserveOn(r.f, kept))
			rec.last(t, kept.Token, 1)
			deaf.Store(true)
			wantOK(t, "reserve", reserveOn(r.f, lost))
			wantEvidence(t, rec.last(t, lost.Token, 1), granted, granted)
			deaf.Store(false)
			wantOK(t, name, end(r, kept.Token))
			wantOK(t, name, end(r, lost.Token))
			wantEvidence(t, rec.last(t, kept.Token, 2), granted, granted)
			o := rec.last(t, lost.Token, 2)
			wantEvidence(t, o, granted, denied)
			if o.MySQL.Err == "" {
				t.Error("it does not say what MySQL missed")
			}
		})
	}
}

// A hold that ends at once after its grant may have overtaken it: that is looked
// at again when the grant must have come.
func TestEndThatOvertakesItsGrantIsNoDifference(t *testing.T) {
	r, rec := observed(t, holdover.StageShadow, 5, func(c *dualwrite.Config) { c.LaneLag = 2 * time.Second })
	seen := new(recorder)
	other := r.another(t, func(c *dualwrite.Config) { c.Observe, c.LaneLag = seen.observe, 2*time.Second })
	g := newGate(t)
	r.next(mysqlOps("Apply"), g.hang)
	q := r.one()
	wantOK(t, "reserve", reserveOn(r.f, q))
	g.wait(t)
	wantOK(t, "release elsewhere", releaseOn(other, r.shop, q.Token))
	eventually(t, "MySQL has its end", func() bool { return r.mysqlState(t, q.Token) == "released" })
	g.open()
	wantEvidence(t, rec.last(t, q.Token, 1), granted, holdover.OutcomeShed)
	wantEvidence(t, seen.last(t, q.Token, 1), granted, granted)
}

// Redis ended it and MySQL never heard: MySQL's own reaper finds it after its time.
func TestLostEndShowsAtItsExpiry(t *testing.T) {
	r, rec, deaf := missing(t, holdover.StateReleased)
	q := r.one()
	q.TTL = 200 * time.Millisecond
	wantOK(t, "reserve", reserveOn(r.f, q))
	rec.last(t, q.Token, 1)
	deaf.Store(true)
	wantOK(t, "release", releaseOn(r.f, r.shop, q.Token))
	wantEvidence(t, rec.last(t, q.Token, 2), granted, granted)
	deaf.Store(false)
	eventually(t, "MySQL's reaper finds it", func() bool {
		if err := r.f.SweepOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(rec.of(q.Token)) >= 3
	})
	o := rec.last(t, q.Token, 3)
	if wantEvidence(t, o, granted, denied); o.Op != holdover.OpExpire {
		t.Errorf("seen at its %s", o.Op)
	}
}
