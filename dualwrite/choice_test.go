package dualwrite_test

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"holdover"
	"holdover/dualwrite"
)

// newPlaces is a rig with units of item 1 at locations 1 and 2.
func newPlaces(t *testing.T, stage holdover.Stage, first, second int64, change ...func(*dualwrite.Config)) *rig {
	t.Helper()
	r := newRig(t, stage, first, change...)
	r.load2(t, second)
	return r
}

// load2 brings units of item 1 to location 2, and into the counter.
func (r *rig) load2(t *testing.T, units int64) {
	t.Helper()
	if _, err := r.db.ExecContext(t.Context(), "INSERT INTO inventory_ledger (shop_id, item_id, group_id, available) VALUES (?, 1, 2, ?)", r.shop, units); err != nil {
		t.Fatal(err)
	}
	if err := r.raw.IncrBy(t.Context(), "inventory:"+text(r.shop)+":1", units).Err(); err != nil {
		t.Fatal(err)
	}
}

// either asks for units at location 1 or, that failing, at 2.
func (r *rig) either(units int64) holdover.Request {
	q := request(r.shop, holdover.NewToken())
	q.Choices = []holdover.Choice{{Item: 1, Groups: []int64{1, 2}, Quantity: units}}
	return q
}

func at2(units int64) holdover.Line { return holdover.Line{Item: 1, Group: 2, Quantity: units} }

func wantLines(t *testing.T, what string, got outcome, want ...holdover.Line) {
	t.Helper()
	if got.err != nil || !slices.Equal(got.res.Hold.Lines, want) {
		t.Errorf("%s: told %v, lines %v; want %v", what, got, got.res.Hold.Lines, want)
	}
}

// bothHave fails unless the two stores have the hold, in these lines.
func (r *rig) bothHave(t *testing.T, token holdover.Token, want ...holdover.Line) {
	t.Helper()
	inRedis, err := r.redis.Lookup(t.Context(), token)
	if err != nil || inRedis.State != holdover.StateHeld || !slices.Equal(inRedis.Lines, want) {
		t.Errorf("redis has %v %s, %v; want %v", inRedis.Lines, inRedis.State, err, want)
	}
	inMySQL, err := r.mysql.Lookup(t.Context(), token)
	if err != nil || inMySQL.State != holdover.StateHeld || !slices.Equal(inMySQL.Lines, want) {
		t.Errorf("mysql has %v %s, %v; want %v", inMySQL.Lines, inMySQL.State, err, want)
	}
}

// faster takes the unit of location 1 with another instance, once.
func (r *rig) faster(t *testing.T) func() {
	f := r.another(t)
	return func() { wantOK(t, "the one who was faster", reserveOn(f, r.one())) }
}

// A plan that is lost between its reading and the vote: Redis gives its grant
// back, and both grant at the other location.
func TestJointMovesItsGrantToAnotherLocation(t *testing.T) {
	r := newPlaces(t, holdover.StageJoint, 1, 5)
	r.next(mysqlOps("Probe"), after(r.faster(t)))
	q := r.either(1)
	wantLines(t, "reserve", reserveOn(r.f, q), at2(1))
	if n := len(r.made(redisOps("GiveBack"))); n != 1 {
		t.Errorf("redis gave back %d times, want once", n)
	}
	r.calm(t)
	r.bothHave(t, q.Token, at2(1))
	r.conserved(t, r.shop, 1, 6, 2, 0)
}

// Redis does not answer the give-back: nothing is promised, the drain repeats
// it, and so may the buyer.
func TestJointOwesAGiveBackAtTheLostLocation(t *testing.T) {
	for name, how := range map[string]fault{"dropped": dropped, "reply lost": replyLost} {
		t.Run(name, func(t *testing.T) {
			r := newPlaces(t, holdover.StageJoint, 1, 5, still)
			r.next(mysqlOps("Probe"), after(r.faster(t)))
			r.inject(redisOps("GiveBack"), how)
			q := r.either(1)
			got := reserveOn(r.f, q)
			if !holdover.NoAnswer(got.err) {
				t.Fatalf("told %v, want no answer", got)
			}
			r.heal()
			r.calm(t)
			r.conserved(t, r.shop, 1, 6, 1, 0)
			wantLines(t, "reserve again", reserveOn(r.f, q), at2(1))
			r.calm(t)
			r.bothHave(t, q.Token, at2(1))
			r.conserved(t, r.shop, 1, 6, 2, 0)
		})
	}
}

// A repeat that overtakes makes the hold firm in Redis at a location where MySQL
// is short: nobody is told that it is sold out.
func TestJointCannotMoveAFirmGrant(t *testing.T) {
	r := newPlaces(t, holdover.StageJoint, 1, 5)
	q := r.either(1)
	take, other := r.faster(t), r.another(t)
	r.next(mysqlOps("Probe"), after(take))
	r.next(mysqlOps("Vote"), before(func() {
		got := reserveOn(other, q)
		if got.err != nil && !errors.Is(got.err, holdover.ErrTryAgain) {
			t.Errorf("the repeat: told %v", got)
		}
	}))
	wantErr(t, "reserve", reserveOn(r.f, q), holdover.ErrTryAgain)
	r.calm(t)
	if n := r.liveInMySQL(t, r.shop, 1); n != 1 {
		t.Errorf("%d units are held in mysql, want that of the one who was faster", n)
	}
}

// The agreement moves after MySQL has granted at the second location: Redis is
// asked for that one, not for the first choice.
func TestChoiceIsKeptWhenTheKillComesBetween(t *testing.T) {
	s := newStores(t)
	sw := newSwitch(t, s)
	f := new(faults)
	facade := newFacade(t, s, wrap(f))
	home(t, sw, holdover.StageMySQL, facade)
	r := &rig{stores: s, faults: f, f: facade, shop: newShop()}
	r.load(t, r.shop, map[[2]int64]int64{{1, 1}: 1})
	r.load2(t, 5)
	f.next(redisOps("Copy"), before(func() { trip(t, sw) }))
	q := r.either(2)
	got := reserveOn(facade, q)
	wantLines(t, "reserve", got, at2(2))
	if got.res.Decision.Stage != holdover.StageShadow || got.res.Decision.Store != holdover.StoreRedis {
		t.Errorf("decided by %+v, want redis in shadow", got.res.Decision)
	}
	r.calm(t)
	r.bothHave(t, q.Token, at2(2))
	wantLines(t, "the repeat", reserveOn(facade, q), at2(2))
	r.calm(t)
	r.conserved(t, r.shop, 1, 6, 2, 0)
}

// A hold that MySQL has put at the second location is the same reservation in
// every stage, also where Redis decides and would take the first.
func TestChoiceIsReplayedInEveryStage(t *testing.T) {
	r := newPlaces(t, holdover.StageMySQL, 1, 5)
	q := r.either(3)
	wantLines(t, "reserve", reserveOn(r.f, q), at2(3))
	for _, stage := range []holdover.Stage{holdover.StageMySQL, holdover.StageJoint, holdover.StageShadow, holdover.StageRedis} {
		reach(t, r.f, stage)
		for _, groups := range [][]int64{{1, 2}, {2, 1}} {
			q.Choices[0].Groups = groups
			got := reserveOn(r.f, q)
			wantLines(t, "the repeat in "+stage.String(), got, at2(3))
			if !got.res.Replayed {
				t.Errorf("in %s the repeat is not called one", stage)
			}
		}
		other := q
		other.Choices = []holdover.Choice{{Item: 1, Groups: []int64{1, 3}, Quantity: 3}}
		wantErr(t, "other locations in "+stage.String(), reserveOn(r.f, other), holdover.ErrTokenReused)
		if stage.Dual() {
			r.calm(t)
			r.conserved(t, r.shop, 1, 6, 3, 0)
		}
	}
}

// However many plans a call makes, it is one observation, of the lines that it
// ended with; where Redis decides, what blindness costs is of the kind location.
func TestChoicesAreObservedOnce(t *testing.T) {
	for _, c := range []struct {
		stage holdover.Stage
		want  holdover.Line
		mysql holdover.Outcome
	}{
		{holdover.StageShadow, holdover.Line{Item: 1, Group: 1, Quantity: 3}, holdover.OutcomeRefused},
		{holdover.StageJoint, at2(3), holdover.OutcomeGranted},
		{holdover.StageMySQL, at2(3), holdover.OutcomeGranted},
	} {
		t.Run(c.stage.String(), func(t *testing.T) {
			var seen atomic.Pointer[holdover.Observation]
			var count atomic.Int64
			r := newPlaces(t, c.stage, 1, 5, func(cfg *dualwrite.Config) {
				cfg.RecheckTries = 1
				cfg.Observe = func(o holdover.Observation) {
					if o.Op == holdover.OpReserve {
						seen.Store(&o)
						count.Add(1)
					}
				}
			})
			wantLines(t, "reserve", reserveOn(r.f, r.either(3)), c.want)
			eventually(t, "it is observed", func() bool { return count.Load() > 0 && r.f.Stats().LaneJobs == 0 })
			o := seen.Load()
			if count.Load() != 1 || !slices.Equal(o.Lines, []holdover.Line{c.want}) || o.Redis.Outcome != holdover.OutcomeGranted || o.MySQL.Outcome != c.mysql {
				t.Errorf("%d observations, the last: %+v", count.Load(), o)
			}
			if blind := slices.Contains(o.Evidence, holdover.EvidenceOtherLocations); blind != (c.stage == holdover.StageShadow) {
				t.Errorf("the evidence is %v", o.Evidence)
			}
		})
	}
}
