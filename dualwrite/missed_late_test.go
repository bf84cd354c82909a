package dualwrite_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// Nothing is lost in these tests: MySQL got a fact late, after another instance or a
// repeat had ended the hold there. So nothing may be told as lost without a cause.

// finder looks for what MySQL missed, and leaves the making up to the test.
func finder(seen *recorder) func(*dualwrite.Config) {
	return func(c *dualwrite.Config) {
		c.Observe, c.InstanceMaxAge, c.CallTimeout, c.DrainEvery = seen.observe, time.Second, 2*time.Second, time.Hour
	}
}

func drain(t *testing.T, f *dualwrite.Facade) {
	t.Helper()
	if err := f.DrainOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// endings are the ways in which a buyer ends a hold.
var endings = map[string]func(*dualwrite.Facade, int64, holdover.Token) outcome{
	"release": releaseOn,
	"claim":   func(f *dualwrite.Facade, shop int64, token holdover.Token) outcome { return claimOn(f, shop, token) },
}

// MySQL is away for a moment while a buyer releases; he asks again when it is back and
// before the drain has made up for it.
func TestReleaseMadeUpAfterItsRepeatIsNotLost(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		for _, who := range []string{"same instance", "another instance", "another instance makes up"} {
			if who == "another instance makes up" && stage == holdover.StageShadow {
				continue // there the debt is known to the instance alone that has it
			}
			t.Run(stage.String()+"/"+who, func(t *testing.T) {
				t.Parallel()
				rec, seen := new(recorder), new(recorder)
				r, _ := observed(t, stage, 5, finder(rec))
				other := r.another(t, finder(seen))
				q := r.one()
				wantOK(t, "reserve", reserveOn(r.f, q))
				rec.last(t, q.Token, 1)
				r.next(func(c call) bool { return mysqlOps("Apply")(c) && c.token == q.Token }, dropped)
				wantOK(t, "release", releaseOn(r.f, r.shop, q.Token))
				rec.last(t, q.Token, 2)
				if who == "same instance" {
					wantOK(t, "release again", releaseOn(r.f, r.shop, q.Token))
				} else {
					wantOK(t, "release again", releaseOn(other, r.shop, q.Token))
				}
				eventually(t, "MySQL has its end", func() bool { return r.mysqlState(t, q.Token) == "released" })
				if who == "another instance makes up" {
					drain(t, other)
				} else {
					drain(t, r.f)
				}
				if who == "same instance" {
					wantEvidence(t, rec.last(t, q.Token, 3), granted, granted)
				} else {
					wantEvidence(t, seen.last(t, q.Token, 1), granted, granted)
				}
			})
		}
	}
}

// made makes the call.
func made(ctx context.Context, _ call, do func(context.Context) error) error { return do(ctx) }

// In joint a reserve hangs in MySQL's vote, and the buyer goes on elsewhere. The vote
// then finds that the hold has ended, or gets no answer.
func TestEndBeforeTheVoteOfItsGrantIsNotLost(t *testing.T) {
	for what, end := range endings {
		for name, vote := range map[string]fault{"late": made, "no answer": dropped, "refused": refused} {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				rec, seen := new(recorder), new(recorder)
				r, _ := observed(t, holdover.StageJoint, 5, finder(rec))
				other := r.another(t, finder(seen))
				q := r.one()
				g := newGate(t)
				r.next(func(c call) bool { return mysqlOps("Vote")(c) && c.token == q.Token }, func(ctx context.Context, c call, do func(context.Context) error) error {
					return g.hang(ctx, c, func(ctx context.Context) error { return vote(ctx, c, do) })
				})
				done := make(chan outcome, 1)
				go func() { done <- reserveOn(r.f, q) }()
				g.wait(t)
				wantOK(t, what+" elsewhere", end(other, r.shop, q.Token))
				g.open()
				if got := <-done; got.err == nil {
					t.Errorf("reserve: told %v", got)
				}
				drain(t, r.f)
				wantEvidence(t, seen.last(t, q.Token, 1), granted, granted)
				for _, o := range rec.of(q.Token) {
					if o.Op != holdover.OpReserve {
						t.Errorf("%s is observed at the first instance", o.Op)
					}
				}
				if left, want := r.counter(t, r.shop, 1), r.free(t, r.shop, 1, 1); left != want {
					t.Errorf("redis has %d, mysql %d", left, want)
				}
			})
		}
	}
}

// In shadow MySQL does not take a grant, and the hold ends elsewhere before it is made
// up for.
func TestGrantMadeUpAfterItsEndIsNotLost(t *testing.T) {
	for what, end := range endings {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			rec, seen := new(recorder), new(recorder)
			r, _ := observed(t, holdover.StageShadow, 5, finder(rec))
			other := r.another(t, finder(seen))
			q := r.one()
			r.next(func(c call) bool { return mysqlOps("Apply")(c) && c.token == q.Token }, refused)
			wantOK(t, "reserve", reserveOn(r.f, q))
			wantEvidence(t, rec.last(t, q.Token, 1), granted, holdover.OutcomeError, holdover.EvidenceMirrorLost)
			wantOK(t, what+" elsewhere", end(other, r.shop, q.Token))
			eventually(t, "MySQL has its end", func() bool { return strings.HasPrefix(r.mysqlState(t, q.Token), what) })
			drain(t, r.f)
			wantEvidence(t, seen.last(t, q.Token, 1), granted, granted)
		})
	}
}

// In shadow MySQL stalls for all, for longer than LaneLag: an end gets through before
// its grant, which comes a moment later.
func TestEndBeforeAStalledGrantIsNotLost(t *testing.T) {
	rec, seen := new(recorder), new(recorder)
	r, _ := observed(t, holdover.StageShadow, 5, finder(rec))
	other := r.another(t, finder(seen), func(c *dualwrite.Config) { c.LaneLag = 50 * time.Millisecond })
	g := newGate(t)
	q := r.one()
	r.next(mysqlOps("Apply"), g.hang)
	wantOK(t, "reserve", reserveOn(r.f, q))
	g.wait(t)
	stalled := time.Now()
	eventually(t, "the stall is longer than LaneLag", func() bool { return time.Since(stalled) > 100*time.Millisecond })
	wantOK(t, "release elsewhere", releaseOn(other, r.shop, q.Token))
	eventually(t, "MySQL has its end", func() bool { return r.mysqlState(t, q.Token) == "released" })
	g.open()
	wantEvidence(t, rec.last(t, q.Token, 1), granted, holdover.OutcomeShed)
	wantEvidence(t, seen.last(t, q.Token, 1), granted, granted)
}
