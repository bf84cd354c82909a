package dualwrite_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/mysqlpool"
)

func (r *faultyRedis) LowerFor(ctx context.Context, e holdover.Epoch, a holdover.Adjustment, units int64, sells bool) (holdover.Lowered, error) {
	return through(r.faults, ctx, r.call("LowerFor", a.Token), func(ctx context.Context) (holdover.Lowered, error) { return r.Redis.LowerFor(ctx, e, a, units, sells) })
}

func (r *faultyRedis) SettleAdjustment(ctx context.Context, a holdover.Adjusted) (bool, error) {
	return through(r.faults, ctx, r.call("SettleAdjustment", a.Token), func(ctx context.Context) (bool, error) { return r.Redis.SettleAdjustment(ctx, a) })
}

func (r *faultyRedis) UndoLowered(ctx context.Context, a holdover.Adjustment) error {
	return r.run(ctx, r.call("UndoLowered", a.Token), func(ctx context.Context) error { return r.Redis.UndoLowered(ctx, a) })
}

func (m *faultyMySQL) Adjust(ctx context.Context, e holdover.Epoch, a holdover.Adjustment, terms holdover.AdjustTerms) (holdover.Adjusted, error) {
	return through(m.faults, ctx, m.call("Adjust", a.Token), func(ctx context.Context) (holdover.Adjusted, error) { return m.MySQL.Adjust(ctx, e, a, terms) })
}

func (m *faultyMySQL) AdjustmentSettled(ctx context.Context, token holdover.Token) error {
	return m.run(ctx, m.call("AdjustmentSettled", token), func(ctx context.Context) error { return m.MySQL.AdjustmentSettled(ctx, token) })
}

// change is an adjustment of item 1 at location 1.
func (r *rig) change(delta int64) holdover.Adjustment {
	return holdover.Adjustment{Token: holdover.NewToken(), Shop: r.shop, Item: 1, Group: 1, Delta: delta, Reason: "test", By: "ada"}
}

// both checks the counter and the ledger of item 1 over its locations.
func (r *rig) both(t *testing.T, what string, counter, ledger int64) {
	t.Helper()
	if c, l := r.counter(t, r.shop, 1), r.ledger(t, r.shop, 1); c != counter || l != ledger {
		t.Errorf("%s: counter %d and ledger %d, want %d and %d", what, c, l, counter, ledger)
	}
}

// open counts adjustments that one of the stores still waits for.
func (r *rig) open(t *testing.T) (owed, lowered int) {
	t.Helper()
	o, err := r.mysql.OwedAdjustments(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.redis.LoweredAdjustments(t.Context(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	return len(o), len(l)
}

func dualStages() []holdover.Stage {
	return []holdover.Stage{holdover.StageRedis, holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL}
}

// TestAdjust: in every stage both stores follow, once for a token; what is held
// stays, refused or clamped.
func TestAdjust(t *testing.T) {
	for _, stage := range dualStages() {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 10)
			for range 4 {
				r.hold(t)
			}
			counter, ledger := int64(6), int64(10)
			set := func(n int64) holdover.Adjustment {
				a := r.change(0)
				a.Set = &n
				return a
			}
			clamp := func(a holdover.Adjustment) holdover.Adjustment { a.Clamp = true; return a }
			for _, c := range []struct {
				name    string
				a       holdover.Adjustment
				changed int64
				refused bool
			}{
				{"restock", r.change(30_000), 30_000, false},
				{"lower", r.change(-29_000), -29_000, false},
				{"lower too far", r.change(-1007), 0, true},
				{"set lower", set(20), -990, false},
				{"set higher", set(30), 10, false},
				{"set to what it is", set(30), 0, false},
				{"clamped", clamp(r.change(-30)), -26, false},
				{"clamped to nothing", clamp(set(0)), 0, false},
				{"nothing free", r.change(-1), 0, true},
			} {
				counter, ledger = counter+c.changed, ledger+c.changed
				for again := range 2 {
					done, err := r.f.Adjust(t.Context(), c.a)
					if c.refused != errors.Is(err, holdover.ErrAdjustRefused) || !c.refused && err != nil {
						t.Fatalf("%s: %+v, %v", c.name, done, err)
					}
					if done.Changed != c.changed || done.Available != ledger || done.Owed || done.Replayed != (again == 1) {
						t.Errorf("%s: %+v", c.name, done)
					}
					r.both(t, c.name, counter, ledger)
				}
				if owed, lowered := r.open(t); owed+lowered != 0 {
					t.Errorf("%s: %d owed, %d given up", c.name, owed, lowered)
				}
			}
			if got := reserveOn(r.f, r.one()); !errors.Is(got.err, holdover.ErrOutOfStock) {
				t.Errorf("sold what was taken away: %s", got)
			}
			other := r.change(1)
			if _, err := r.f.Adjust(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			other.Delta = 2
			if _, err := r.f.Adjust(t.Context(), other); !errors.Is(err, holdover.ErrTokenReused) {
				t.Errorf("another change with its token: %v", err)
			}
			if got := reserveOn(r.f, r.one()); got.err != nil {
				t.Errorf("what was restocked: %s", got)
			}
			absent := r.change(-1)
			absent.Group = 9
			if _, err := r.f.Adjust(t.Context(), absent); !errors.Is(err, holdover.ErrNotLoaded) {
				t.Errorf("a location that is not there: %v", err)
			}
			r.both(t, "in the end", counter, ledger+1)
		})
	}
}

// TestAdjustOneLocation: Redis's counter is a sum. What is free at another
// location is not taken from here, and Redis gets back what it gave up.
func TestAdjustOneLocation(t *testing.T) {
	for _, stage := range dualStages() {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 5)
			r.load(t, r.shop, map[[2]int64]int64{{2, 1}: 4, {2, 2}: 6})
			a := r.change(-5)
			a.Item = 2
			var refused *holdover.AdjustRefusedError
			if _, err := r.f.Adjust(t.Context(), a); !errors.As(err, &refused) || refused.Free != 4 || refused.Available != 4 || refused.Wanted != 5 {
				t.Errorf("%v", err)
			}
			if n := r.counter(t, r.shop, 2); n != 10 {
				t.Errorf("the counter is %d after a refusal", n)
			}
			a.Token, a.Clamp = holdover.NewToken(), true
			if done, err := r.f.Adjust(t.Context(), a); err != nil || done.Changed != -4 {
				t.Errorf("%+v, %v", done, err)
			}
			if c, l := r.counter(t, r.shop, 2), r.ledger(t, r.shop, 2); c != 6 || l != 6 {
				t.Errorf("counter %d, ledger %d", c, l)
			}
			if owed, lowered := r.open(t); owed+lowered != 0 {
				t.Errorf("%d owed, %d given up", owed, lowered)
			}
		})
	}
}

// TestAdjustCrashes: the instance dies, or its store goes silent, between the
// two stores, in both directions. Redis never has more to sell than the ledger,
// and another instance ends it, once; the same token then tells how.
func TestAdjustCrashes(t *testing.T) {
	for _, stage := range dualStages() {
		for _, c := range []struct {
			name    string
			delta   int64
			at      func(call) bool
			fault   fault
			counter int64 // meanwhile, of 10
			ledger  int64
			unknown bool
			after   int64 // of 10, in both, when all is settled
		}{
			{"raised, and redis is not told", 7, redisOps("SettleAdjustment"), dropped, 10, 17, false, 17},
			{"raised, and redis's answer is lost", 7, redisOps("SettleAdjustment"), replyLost, 17, 17, false, 17},
			{"raised, told, and not noted", 7, mysqlOps("AdjustmentSettled"), dropped, 17, 17, false, 17},
			{"raised, and nobody was told", 7, mysqlOps("Adjust"), replyLost, 10, 17, true, 17},
			{"raise never arrived", 7, mysqlOps("Adjust"), dropped, 10, 10, true, 10},
			{"given up, and mysql is not told", -7, mysqlOps("Adjust"), dropped, 3, 10, true, 3},
			{"given up, and mysql refused connections", -7, mysqlOps("Adjust"), refused, 3, 10, true, 3},
			{"given up, and mysql's answer is lost", -7, mysqlOps("Adjust"), replyLost, 3, 3, true, 3},
			{"given up, and mysql panics", -7, mysqlOps("Adjust"), panics, 3, 10, true, 3},
			{"given up and decided, redis is not told", -7, redisOps("SettleAdjustment"), dropped, 3, 3, false, 3},
			{"redis's answer is lost", -7, redisOps("LowerFor"), replyLost, 3, 10, true, 3},
			{"redis was not told", -7, redisOps("LowerFor"), dropped, 10, 10, true, 10},
		} {
			t.Run(fmt.Sprintf("%s, %s", stage, c.name), func(t *testing.T) {
				r := newRig(t, stage, 10)
				a := r.change(c.delta)
				r.next(c.at, c.fault)
				done, err := r.f.Adjust(t.Context(), a)
				if c.unknown != errors.Is(err, holdover.ErrUnknownOutcome) || !c.unknown && (err != nil || !done.Owed) {
					t.Fatalf("%+v, %v", done, err)
				}
				r.both(t, "meanwhile", c.counter, c.ledger)
				if c.counter > c.ledger {
					t.Error("redis has more to sell than there is")
				}
				other := r.another(t)
				eventually(t, "another instance has settled it", func() bool {
					if err := other.SettleAdjustments(t.Context()); err != nil {
						t.Fatal(err)
					}
					owed, lowered := r.open(t)
					return owed+lowered == 0
				})
				r.both(t, "settled", c.after, c.after)
				if done, err = other.Adjust(t.Context(), a); err != nil || done.Owed || done.Changed != c.delta {
					t.Errorf("repeated: %+v, %v", done, err)
				}
				r.both(t, "repeated", 10+c.delta, 10+c.delta)
				if n := r.count(t, "SELECT COUNT(*) FROM ledger_entries WHERE token = ?", a.Token[:]); n != 1 {
					t.Errorf("%d entries", n)
				}
			})
		}
	}
}

// TestAdjustLateSteps: a step that gave no answer and runs when all is over
// changes nothing.
func TestAdjustLateSteps(t *testing.T) {
	for _, late := range []func(call) bool{redisOps("LowerFor"), mysqlOps("Adjust"), redisOps("SettleAdjustment"), mysqlOps("AdjustmentSettled")} {
		r := newRig(t, holdover.StageMySQL, 10)
		a := r.change(-4)
		r.next(late, r.later)
		_, first := r.f.Adjust(t.Context(), a)
		done, err := r.another(t).Adjust(t.Context(), a)
		if err != nil || done.Changed != -4 {
			t.Fatalf("%v, then %+v, %v", first, done, err)
		}
		r.both(t, "repeated", 6, 6)
		r.runLate()
		r.both(t, "late", 6, 6)
		if err := r.f.SettleAdjustments(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.both(t, "settled", 6, 6)
		if owed, lowered := r.open(t); owed+lowered != 0 {
			t.Errorf("%d owed, %d given up", owed, lowered)
		}
	}
}

// TestAdjustTakenBack: what MySQL can't make at all leaves Redis as it was, also
// when another instance finds that out.
func TestAdjustTakenBack(t *testing.T) {
	for _, stage := range dualStages() {
		r := newRig(t, stage, 10)
		gone := func() {
			if _, err := r.db.Exec("DELETE FROM inventory_ledger WHERE shop_id = ?", r.shop); err != nil {
				t.Error(err)
			}
		}
		back := func() {
			if _, err := r.db.Exec("INSERT INTO inventory_ledger VALUES (?, 1, 1, 10)", r.shop); err != nil {
				t.Error(err)
			}
		}
		a := r.change(-4)
		r.next(mysqlOps("Adjust"), before(gone))
		if _, err := r.f.Adjust(t.Context(), a); !errors.Is(err, holdover.ErrNotLoaded) || errors.Is(err, holdover.ErrUnknownOutcome) {
			t.Errorf("%s: %v", stage, err)
		}
		back()
		r.both(t, stage.String()+": taken back", 10, 10)

		r.next(mysqlOps("Adjust"), before(gone))
		r.next(redisOps("UndoLowered"), dropped)
		if _, err := r.f.Adjust(t.Context(), a); !errors.Is(err, holdover.ErrUnknownOutcome) {
			t.Errorf("%s: %v", stage, err)
		}
		other := r.another(t)
		eventually(t, "another instance has taken it back", func() bool {
			if err := other.SettleAdjustments(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, lowered := r.open(t)
			return lowered == 0
		})
		back()
		r.both(t, stage.String()+": taken back by another", 10, 10)
		if done, err := r.f.Adjust(t.Context(), a); err != nil || done.Changed != -4 {
			t.Errorf("%s: the same token later: %+v, %v", stage, done, err)
		}
		r.both(t, stage.String()+": later", 6, 6)
	}
}

// TestAdjustWithRedisAway: units can be added in mysql, and Redis is owed them;
// none can be taken away, since a kill could make Redis sell them.
func TestAdjustWithRedisAway(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 10)
	r.inject(redisOps("LowerFor", "SettleAdjustment"), refused)
	down, up := r.change(-4), r.change(4)
	if _, err := r.f.Adjust(t.Context(), down); !errors.Is(err, holdover.ErrUnavailable) || errors.Is(err, holdover.ErrUnknownOutcome) {
		t.Errorf("lowered without redis: %v", err)
	}
	r.both(t, "not lowered", 10, 10)
	if done, err := r.f.Adjust(t.Context(), up); err != nil || !done.Owed {
		t.Errorf("%+v, %v", done, err)
	}
	r.both(t, "owed", 10, 14)
	r.heal()
	if err := r.f.SettleAdjustments(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.both(t, "settled", 14, 14)
	if done, err := r.f.Adjust(t.Context(), down); err != nil || done.Changed != -4 {
		t.Errorf("%+v, %v", done, err)
	}
	r.both(t, "lowered", 10, 10)
}

// TestAdjustAndKill: a kill between the two stores never lets Redis sell what
// was taken away, nor a step of the old epoch give units up.
func TestAdjustAndKill(t *testing.T) {
	for _, c := range []struct {
		name string
		at   func(call) bool
		when func(func()) fault
	}{
		{"before redis gives up", redisOps("LowerFor"), before},
		{"after redis gave up", redisOps("LowerFor"), after},
		{"after mysql decided", mysqlOps("Adjust"), after},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, holdover.StageMySQL, 10)
			sw := newSwitch(t, r.stores)
			for range 8 {
				r.hold(t)
			}
			// Redis sells after the kill: it must not have the units that go. And
			// MySQL hears of what it sold only later.
			mirror := new(faults)
			mirror.inject(mysqlOps("Apply"), dropped)
			seller := r.another(t, wrap(mirror))
			r.next(c.at, c.when(func() {
				trip(t, sw)
				if err := seller.Refresh(t.Context()); err != nil {
					t.Error(err)
				}
				for range 3 {
					reserveOn(seller, r.one())
				}
			}))
			a := r.change(-2)
			_, err := r.f.Adjust(t.Context(), a)
			if err != nil && !errors.Is(err, holdover.ErrAdjustRefused) {
				t.Fatal(err)
			}
			mirror.heal()
			settle(t, r.stores, r.f)
			settle(t, r.stores, seller)
			held := r.count(t, "SELECT SUM(quantity) FROM reserved_quantities WHERE state = 'held' AND shop_id = ?", r.shop)
			ledger, counter := r.ledger(t, r.shop, 1), r.counter(t, r.shop, 1)
			if held > ledger || counter != ledger-held {
				t.Errorf("%d held, %d in the ledger, counter %d (%v)", held, ledger, counter, err)
			}
			if sold := held == 10; sold != (err != nil) {
				t.Errorf("%d held, and the adjustment says %v", held, err)
			}
		})
	}
}

// TestAdjustUnderTraffic: restocks and lowerings while buyers reserve through
// two instances: in the end both stores agree, and nothing was sold twice.
func TestAdjustUnderTraffic(t *testing.T) {
	for _, stage := range dualStages() {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 60)
			second := r.another(t)
			var changed, held, lowered atomic.Int64
			var all sync.WaitGroup
			for worker, f := range []*dualwrite.Facade{r.f, second} {
				for range 3 {
					all.Go(func() {
						for range 12 {
							if got := reserveOn(f, r.one()); got.err == nil {
								held.Add(1)
							} else if !errors.Is(got.err, holdover.ErrOutOfStock) && !errors.Is(got.err, holdover.ErrTryAgain) {
								t.Error(got)
							}
						}
					})
				}
				all.Go(func() {
					for i := range 12 {
						a := r.change(int64(1 + i))
						if i%3 != 0 {
							a.Delta, a.Clamp = -int64(5+worker), i%2 == 0
						}
						done, err := f.Adjust(t.Context(), a)
						if err != nil && !errors.Is(err, holdover.ErrAdjustRefused) {
							t.Error(err)
						}
						changed.Add(done.Changed)
						lowered.Add(max(0, -done.Changed))
					}
				})
			}
			all.Wait()
			settle(t, r.stores, r.f)
			settle(t, r.stores, second)
			if err := r.f.SettleAdjustments(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := 60 + changed.Load()
			r.both(t, "in the end", want-held.Load(), want)
			if held.Load() > want {
				t.Errorf("%d held of %d", held.Load(), want)
			}
			if lowered.Load() == 0 || held.Load() == 0 {
				t.Errorf("%d lowered, %d held: the test shows nothing", lowered.Load(), held.Load())
			}
		})
	}
}

// TestAdjustLoop: Run settles what was left open.
func TestAdjustLoop(t *testing.T) {
	r := newRig(t, holdover.StageShadow, 10)
	r.next(mysqlOps("Adjust"), dropped)
	if _, err := r.f.Adjust(t.Context(), r.change(-4)); !errors.Is(err, holdover.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	r.another(t, func(c *dualwrite.Config) { c.SweepEvery = 5 * time.Millisecond })
	eventually(t, "the other instance's loop has settled it", func() bool { return r.ledger(t, r.shop, 1) == 6 })
	eventually(t, "nothing is open", func() bool { owed, lowered := r.open(t); return owed+lowered == 0 })
	r.both(t, "settled", 6, 6)
}

// TestAdjustAfterGoingBackToRedis: MySQL is left alone there, and what it kept
// of an earlier shadow and is over in Redis stands in no lowering's way. What is
// not over does, and the ledger never gets below its pool and holds.
func TestAdjustAfterGoingBackToRedis(t *testing.T) {
	r := newRig(t, holdover.StageShadow, 10, func(c *dualwrite.Config) { c.ReaperGrace = time.Millisecond })
	over, live := r.hold(t), r.hold(t)
	reach(t, r.f, holdover.StageRedis)
	onlyMySQL := func(expires time.Time) holdover.Token {
		h := holdover.Hold{Token: holdover.NewToken(), Shop: r.shop, Lines: []holdover.Line{line(1, 1)}, State: holdover.StateHeld, GrantedAt: time.Now().Add(-time.Hour), ExpiresAt: expires}
		if _, err := r.mysql.Apply(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		return h.Token
	}
	past, unknown := onlyMySQL(time.Now().Add(-time.Minute)), onlyMySQL(time.Now().Add(time.Hour))
	wantOK(t, "release", releaseOn(r.f, r.shop, over))

	if _, err := r.f.Adjust(t.Context(), r.change(-1)); err != nil {
		t.Fatal(err)
	}
	if h, err := r.mysql.Lookup(t.Context(), over); err != nil || h.State != holdover.StateHeld {
		t.Errorf("mysql was not left alone where it has enough: %s, %v", h.State, err)
	}
	r.both(t, "enough in mysql as it is", 8, 9)

	var refused *holdover.AdjustRefusedError
	if _, err := r.f.Adjust(t.Context(), r.change(-8)); !errors.As(err, &refused) || refused.Free != 7 {
		t.Errorf("a hold that is not over: %v", err)
	}
	r.both(t, "refused", 8, 9)
	for token, want := range map[holdover.Token]holdover.State{over: holdover.StateReleased, past: holdover.StateExpired, unknown: holdover.StateHeld, live: holdover.StateHeld} {
		if h, err := r.mysql.Lookup(t.Context(), token); err != nil || h.State != want {
			t.Errorf("mysql has it as %s, want %s: %v", h.State, want, err)
		}
	}
	if h, err := r.redis.Lookup(t.Context(), past); err != nil || h.State != holdover.StateExpired {
		t.Errorf("redis has the one that it did not know as %s, %v", h.State, err)
	}

	if done, err := r.f.Adjust(t.Context(), r.change(-7)); err != nil || done.Changed != -7 {
		t.Errorf("all that is free: %+v, %v", done, err)
	}
	r.both(t, "lowered", 1, 2)
	wantOK(t, "claim", claimOn(r.f, r.shop, live))
	r.both(t, "claimed", 1, 1)
	if c, err := r.mysql.Conserve(t.Context(), mysqlpool.ConserveConfig{Looks: 1}); err != nil || !c.OK() {
		t.Errorf("%s, %v", c.Summary(), err)
	}
}
