package dualwrite_test

import (
	"context"
	"strings"
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

// What Redis ended and MySQL never heard of shows when MySQL hears of the end again:
// when its own reaper comes, or when the buyer asks once more. In all stages.
func TestLostEndShowsWhenItIsMadeUpFor(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		for name, again := range map[string]func(t *testing.T, r *rig, token holdover.Token){
			"reaper": func(t *testing.T, r *rig, token holdover.Token) {
				eventually(t, "MySQL's reaper finds it", func() bool {
					if err := r.f.SweepOnce(t.Context()); err != nil {
						t.Fatal(err)
					}
					return r.mysqlState(t, token) == "released"
				})
			},
			"repeat": func(t *testing.T, r *rig, token holdover.Token) {
				wantOK(t, "release again", releaseOn(r.f, r.shop, token))
			},
		} {
			t.Run(stage.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				deaf := new(atomic.Bool)
				r, rec := observed(t, stage, 5, func(c *dualwrite.Config) {
					c.MySQL, c.ReaperGrace = deafMySQL{c.MySQL, holdover.StateReleased, deaf}, 300*time.Millisecond
					c.InstanceMaxAge = time.Second
				})
				q := r.one()
				q.TTL = time.Second
				wantOK(t, "reserve", reserveOn(r.f, q))
				rec.last(t, q.Token, 1)
				deaf.Store(true)
				wantOK(t, "release", releaseOn(r.f, r.shop, q.Token))
				wantEvidence(t, rec.last(t, q.Token, 2), granted, granted)
				deaf.Store(false)
				again(t, r, q.Token)
				o := rec.last(t, q.Token, 3)
				if wantEvidence(t, o, granted, denied); o.MySQL.Err == "" {
					t.Error("it does not say what MySQL missed")
				}
			})
		}
	}
}

// Redis knows a hold as claimed only when the ledger has it. One that MySQL holds
// still is told, once, and made up for.
func TestLostClaimShowsAtItsExpiry(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			deaf := new(atomic.Bool)
			r, rec := observed(t, stage, 5, func(c *dualwrite.Config) {
				c.MySQL, c.ReaperGrace = deafMySQL{c.MySQL, holdover.StateClaimed, deaf}, 100*time.Millisecond
			})
			q := r.one()
			q.TTL = time.Second
			wantOK(t, "reserve", reserveOn(r.f, q))
			rec.last(t, q.Token, 1)
			deaf.Store(true)
			wantOK(t, "claim", claimOn(r.f, r.shop, q.Token))
			wantEvidence(t, rec.last(t, q.Token, 2), granted, granted)
			eventually(t, "redis knows", func() bool { return r.redisState(t, q.Token) == "claimed" })
			deaf.Store(false)
			sweep := func() {
				if err := r.f.SweepOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the claim is made up for", func() bool { sweep(); return r.mysqlState(t, q.Token) == "claimed" })
			sweep()
			o := rec.last(t, q.Token, 3)
			wantEvidence(t, o, granted, denied)
			if n := len(rec.of(q.Token)); n != 3 || o.MySQL.State != holdover.StateHeld {
				t.Errorf("%d observations, the last with mysql %s", n, o.MySQL.State)
			}
			if left := r.ledger(t, r.shop, 1); left != 4 {
				t.Errorf("%d in the ledger, want 4", left)
			}
		})
	}
}

// An end that is on its way when somebody else makes it in MySQL is no difference,
// whoever looks: it notes that it came.
func TestEndThatIsOvertakenIsNoDifference(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			t.Parallel()
			r, rec := observed(t, stage, 5)
			seen := new(recorder)
			other := r.another(t, func(c *dualwrite.Config) { c.Observe, c.LaneLag = seen.observe, 50*time.Millisecond })
			q := r.one()
			wantOK(t, "reserve", reserveOn(r.f, q))
			rec.last(t, q.Token, 1)
			g := newGate(t)
			r.next(func(c call) bool { return mysqlOps("Apply")(c) && c.token == q.Token }, g.hang)
			done := make(chan outcome, 1)
			go func() { done <- releaseOn(r.f, r.shop, q.Token) }()
			g.wait(t)
			wantOK(t, "release elsewhere", releaseOn(other, r.shop, q.Token))
			eventually(t, "MySQL has its end", func() bool { return r.mysqlState(t, q.Token) == "released" })
			g.open()
			wantOK(t, "release", <-done)
			wantEvidence(t, rec.last(t, q.Token, 2), granted, granted)
			wantEvidence(t, seen.last(t, q.Token, 1), granted, granted)
		})
	}
}

// What an instance had on its way when it died is lost, and that is what it is told as.
func TestDeadInstanceExplainsALostEnd(t *testing.T) {
	deaf := new(atomic.Bool)
	r, rec := observed(t, holdover.StageJoint, 5, func(c *dualwrite.Config) {
		c.MySQL, c.InstanceMaxAge = deafMySQL{c.MySQL, holdover.StateReleased, deaf}, time.Second
	})
	q := r.one()
	wantOK(t, "reserve", reserveOn(r.f, q))
	eventually(t, "another instance lives after the grant", func() bool {
		return r.redis.Heartbeat(t.Context(), holdover.Instance{Name: "checkout", ID: "0123456789"}) == nil
	})
	deaf.Store(true)
	wantOK(t, "release", releaseOn(r.f, r.shop, q.Token))
	deaf.Store(false)
	wantOK(t, "release again", releaseOn(r.f, r.shop, q.Token))
	o := rec.last(t, q.Token, 3)
	wantEvidence(t, o, granted, denied, holdover.EvidenceMirrorLost)
	if !strings.Contains(o.Proof.Cause, "checkout") {
		t.Errorf("cause %q", o.Proof.Cause)
	}
}

// In mysql a hold that Redis has still, long after MySQL ended it otherwise, is told.
func TestLostEndInRedisIsTold(t *testing.T) {
	r, rec := observed(t, holdover.StageMySQL, 5, func(c *dualwrite.Config) { c.ReaperGrace = 100 * time.Millisecond })
	q := r.one()
	q.TTL = time.Second
	wantOK(t, "reserve", reserveOn(r.f, q))
	rec.last(t, q.Token, 1)
	fence, err := r.f.Agreed()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.mysql.End(t.Context(), fence.Epoch, r.shop, q.Token, holdover.StateReleased, false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "redis follows", func() bool {
		if err := r.f.SweepOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.redisState(t, q.Token) == "released"
	})
	wantEvidence(t, rec.last(t, q.Token, 2), denied, granted)
}
