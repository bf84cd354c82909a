package dualwrite_test

import (
	"errors"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// TestEndThatMySQLMadeBeforeTheAgreementMoved: Redis is silent for one instance
// in mysql, so a grant and its end are MySQL's and journaled; while MySQL answers
// the end the pod steps back to joint. There Redis doesn't know the token, and
// what MySQL did stands. Found by the model.
func TestEndThatMySQLMadeBeforeTheAgreementMoved(t *testing.T) {
	type ender func(*dualwrite.Facade, int64, holdover.Token) (holdover.Result, error)
	claim := func(f *dualwrite.Facade, shop int64, token holdover.Token) (holdover.Result, error) {
		return f.Claim(t.Context(), shop, token)
	}
	release := func(f *dualwrite.Facade, shop int64, token holdover.Token) (holdover.Result, error) {
		return f.Release(t.Context(), shop, token)
	}
	for _, c := range []struct {
		name       string
		step       string
		end, other ender
		told       holdover.State
		otherErr   error
		left       int64
	}{
		{"claim", "Claim", claim, release, holdover.StateClaimed, holdover.ErrAlreadyClaimed, 2},
		{"release", "End", release, claim, holdover.StateReleased, holdover.ErrEnded, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStores(t)
			undrained := func(c *dualwrite.Config) { c.DrainEvery = time.Hour }
			faults := &faults{}
			f := newFacade(t, s, wrap(faults), undrained)
			operator := newFacade(t, s, undrained)
			reach(t, f, holdover.StageMySQL)
			if err := operator.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			shop, token := newShop(), holdover.NewToken()
			s.load(t, shop, map[[2]int64]int64{{1, 1}: 3})

			faults.inject(redisOps("Copy", "Mark", "End", "Apply"), dropped)
			if _, err := f.Reserve(t.Context(), request(shop, token, line(1, 1))); err != nil {
				t.Fatalf("reserve: %v", err)
			}
			faults.next(mysqlOps(c.step), after(func() {
				from, _ := operator.Agreed()
				if _, err := operator.Step(t.Context(), from, holdover.StageJoint, "test", "back"); err != nil {
					t.Errorf("step: %v", err)
				}
				faults.heal()
				if err := f.Refresh(t.Context()); err != nil {
					t.Errorf("refresh: %v", err)
				}
			}))
			res, err := c.end(f, shop, token)
			if err != nil || res.Hold.State != c.told {
				t.Fatalf("%s: %s, error %v, %s", c.name, res.Hold.State, err, res.Decision.Reason)
			}
			if res, err := c.end(f, shop, token); err != nil || res.Hold.State != c.told || !res.Replayed {
				t.Errorf("repeated: %s, replayed %t, error %v", res.Hold.State, res.Replayed, err)
			}
			if res, err := c.other(f, shop, token); !errors.Is(err, c.otherErr) {
				t.Errorf("the other end: %s, error %v, want %v", res.Hold.State, err, c.otherErr)
			}
			if err := f.DrainOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			settle(t, s, f)
			if got := [3]int64{s.ledger(t, shop, 1), s.counter(t, shop, 1), s.free(t, shop, 1, 1)}; got != [3]int64{c.left, c.left, c.left} {
				t.Errorf("ledger, counter and free are %v, want %d each", got, c.left)
			}
		})
	}
}
