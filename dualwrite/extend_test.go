package dualwrite_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

func extendOn(f *dualwrite.Facade, shop int64, token holdover.Token, ttl time.Duration) outcome {
	res, err := f.Extend(context.Background(), shop, token, ttl)
	return outcome{res, err}
}

// expiries are what the two stores say; zero for a hold that one does not know.
func (s *stores) expiries(t *testing.T, token holdover.Token) (redis, mysql time.Time) {
	t.Helper()
	if s.redisState(t, token) != "none" {
		ms, err := s.raw.HGet(t.Context(), "hold:"+token.String(), "expires_ms").Int64()
		if err != nil {
			t.Fatal(err)
		}
		redis = time.UnixMilli(ms)
	}
	if s.mysqlState(t, token) != "none" {
		mysql = time.UnixMilli(s.count(t, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at) DIV 1000 FROM reserved_quantities WHERE token=? AND line=0", token[:]))
	}
	return redis, mysql
}

// keeps fails unless the hold lives on in each store that can begin an expiry in
// the stage, until what was acknowledged at least.
func (s *stores) keeps(t *testing.T, stage holdover.Stage, token holdover.Token, until time.Time) {
	t.Helper()
	redis, mysql := s.expiries(t, token)
	if stage != holdover.StageMySQLOnly && (redis.Before(until) || s.redisState(t, token) != "held") {
		t.Errorf("redis has it %s until %s, acknowledged was %s", s.redisState(t, token), redis, until)
	}
	if stage.Truth() == holdover.StoreMySQL && (mysql.Before(until) || s.mysqlState(t, token) != "held") {
		t.Errorf("mysql has it %s until %s, acknowledged was %s", s.mysqlState(t, token), mysql, until)
	}
}

// outlives waits until the time that the hold had at first has passed for each
// store, lets the facades expire what is due, and finds it held everywhere.
func (r *rig) outlives(t *testing.T, first time.Time, token holdover.Token, facades ...*dualwrite.Facade) {
	t.Helper()
	eventually(t, "its first expiry has passed by both clocks", func() bool {
		now, err := r.raw.Time(t.Context()).Result()
		passed := r.count(t, "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000")
		return err == nil && now.After(first) && passed > first.UnixMilli()
	})
	for _, f := range facades {
		for range 2 {
			if err := f.SweepOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		wantErr(t, "a buyer who is short of its unit", reserveOn(f, r.one()), holdover.ErrOutOfStock)
		if res, err := f.Lookup(t.Context(), r.shop, token); err != nil || res.Hold.State != holdover.StateHeld {
			t.Errorf("after the sweep it is %s, %v", res.Hold.State, err)
		}
	}
}

// lapsing is a hold of the rig's one unit that both stores know and that lives
// for a moment.
func (r *rig) lapsing(t *testing.T) holdover.Hold {
	t.Helper()
	q := r.one()
	q.TTL = 400 * time.Millisecond
	got := reserveOn(r.f, q)
	if got.err != nil {
		t.Fatal(got)
	}
	eventually(t, "the grant is mirrored", func() bool { return r.f.Stats().LaneJobs == 0 })
	return got.res.Hold
}

// An extension is in every store that can begin an expiry before it is
// acknowledged, and in the other soon: no expiry comes before its time.
func TestExtendInEachStage(t *testing.T) {
	for _, stage := range holdover.Stages() {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 1, func(c *dualwrite.Config) { c.ReaperGrace = time.Millisecond })
			h := r.lapsing(t)
			got := extendOn(r.f, r.shop, h.Token, time.Hour)
			wantOK(t, "extend", got)
			until := got.res.Hold.ExpiresAt
			if got.res.Replayed || until.Before(h.GrantedAt.Add(time.Hour)) {
				t.Errorf("extended: %+v", got.res)
			}
			r.keeps(t, stage, h.Token, until)
			r.outlives(t, h.ExpiresAt, h.Token, r.f)
			if stage.Dual() {
				r.calm(t)
				r.conserved(t, r.shop, 1, 1, 1, 0)
				if redis, mysql := r.expiries(t, h.Token); !redis.Equal(mysql) {
					t.Errorf("redis has %s, mysql %s", redis, mysql)
				}
			}
			again := extendOn(r.f, r.shop, h.Token, time.Minute)
			if again.err != nil || !again.res.Replayed || !again.res.Hold.ExpiresAt.Equal(until) {
				t.Errorf("a shorter extension: %v, replayed %t", again, again.res.Replayed)
			}
		})
	}
}

// Each step of an extension without an answer: what was acknowledged all the
// same is kept, and the repeat finds it.
func TestExtendWithoutAnAnswer(t *testing.T) {
	inRedis, inMySQL, alone := redisOps("Extend"), mysqlOps("Apply"), mysqlOps("Extend")
	for _, c := range []struct {
		stage holdover.Stage
		step  string
		match func(call) bool
		acked bool // although the step gave no answer
	}{
		{holdover.StageRedis, "redis", inRedis, false},
		{holdover.StageShadow, "redis", inRedis, false},
		{holdover.StageShadow, "mysql", inMySQL, true},
		{holdover.StageJoint, "redis", inRedis, false},
		{holdover.StageJoint, "mysql", inMySQL, true},
		{holdover.StageJoint, "mysql, and nobody may have been told of the hold", inMySQL, false},
		{holdover.StageMySQL, "redis", inRedis, true},
		{holdover.StageMySQL, "mysql", inMySQL, false},
		{holdover.StageMySQL, "mysql alone", alone, false},
		{holdover.StageMySQLOnly, "mysql alone", alone, false},
	} {
		for name, inject := range map[string]func(*rig) fault{
			"dropped":        func(*rig) fault { return dropped },
			"answer lost":    func(*rig) fault { return replyLost },
			"executed later": func(r *rig) fault { return r.later },
			"panicking":      func(*rig) fault { return panics },
		} {
			t.Run(c.stage.String()+"/"+c.step+"/"+name, func(t *testing.T) {
				r := newRig(t, c.stage, 1, still)
				token := r.hold(t)
				if c.acked { // a replay is an answer: the hold is firm
					wantOK(t, "reserve again", reserveOn(r.f, request(r.shop, token, line(1, 1))))
				}
				if c.step == "mysql alone" && c.stage == holdover.StageMySQL {
					r.next(inRedis, dropped)
				}
				r.next(c.match, inject(r))
				got := extendOn(r.f, r.shop, token, 2*time.Hour)
				if acked := got.err == nil; acked != c.acked {
					t.Fatalf("told %v, want acknowledged %t", got, c.acked)
				}
				eventually(t, "the lane has tried", func() bool { return r.f.Stats().LaneJobs == 0 })
				if c.acked && c.stage != holdover.StageMySQL {
					r.keeps(t, c.stage, token, got.res.Hold.ExpiresAt)
					if r.f.Busy() == 0 {
						t.Error("the heartbeat says that nothing is left to carry over")
					}
				}
				if c.acked && c.stage == holdover.StageMySQL {
					if _, mysql := r.expiries(t, token); mysql.Before(got.res.Hold.ExpiresAt) || r.journal(t) != 1 {
						t.Errorf("mysql has it until %s, and %d rows in its journal", mysql, r.journal(t))
					}
				}
				if err := r.f.Refresh(t.Context()); err != nil { // redis is back
					t.Fatal(err)
				}
				r.runLate()
				again := extendOn(r.f, r.shop, token, 2*time.Hour)
				wantOK(t, "extend again", again)
				if c.stage.Dual() {
					r.calm(t)
					r.keeps(t, c.stage, token, again.res.Hold.ExpiresAt)
					r.conserved(t, r.shop, 1, 1, 1, 0)
					if _, mysql := r.expiries(t, token); mysql.Before(again.res.Hold.ExpiresAt) {
						t.Errorf("mysql has it until %s, acknowledged was %s", mysql, again.res.Hold.ExpiresAt)
					}
				}
			})
		}
	}
}

// Rule 13 with Redis away: an expiry that may have begun there is not undone.
func TestLateExtensionWithRedisAway(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 1, still)
	other := &rig{stores: r.stores, faults: new(faults), shop: r.shop}
	other.f = r.another(t, still, wrap(other.faults))
	h := r.lapsing(t)
	eventually(t, "it is past its time", func() bool {
		due, err := r.mysql.Due(t.Context(), 0, 0, nil, 10)
		return err == nil && len(due) == 1
	})
	// An instance begins the expiry in Redis, and dies before it tells MySQL.
	other.next(redisOps("End"), replyLost)
	other.next(mysqlOps("End"), dropped)
	if err := other.f.SweepOnce(t.Context()); err != nil && !holdover.NoAnswer(err) {
		t.Fatal(err)
	}
	r.states(t, h.Token, "expired", "held")
	r.inject(redisOps(), dropped)
	wantErr(t, "extend", extendOn(r.f, r.shop, h.Token, time.Hour), holdover.ErrTryAgain)
	r.heal()
	if err := r.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "extend with redis there", extendOn(r.f, r.shop, h.Token, time.Hour), holdover.ErrEnded)
	eventually(t, "mysql follows", func() bool {
		if err := r.f.SweepOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.mysqlState(t, h.Token) == "expired"
	})
	r.calm(t)
	r.conserved(t, r.shop, 1, 1, 0, 0)
}

// The kill at every step of an extension, and every other flip: what was
// acknowledged is kept by whoever decides afterwards.
func TestExtendAcrossAFlip(t *testing.T) {
	for _, f := range flips() {
		if f.from == holdover.StageMySQLOnly || f.to == holdover.StageMySQLOnly {
			continue // not offered yet: nobody carries over what the other store lacks
		}
		t.Run(f.String(), func(t *testing.T) {
			c := newCrossing(t, f)
			for _, deaf := range []bool{false, true} { // Redis, to this call
				if deaf && f.from != holdover.StageMySQL {
					continue
				}
				points := stepsOf(holdover.OpExtend, f.from)
				name := "redis there"
				if deaf {
					p := killPoint{step: "Extend", store: holdover.StoreMySQL}
					points = []killPoint{p, {p.step, p.store, true}}
					name = "redis deaf"
				}
				for _, point := range points {
					t.Run(name+"/flip "+point.String(), func(t *testing.T) {
						shop := c.start(t, map[[2]int64]int64{{1, 1}: 1})
						q := request(shop, holdover.NewToken(), line(1, 1))
						if got := reserveOn(c.behind, q); got.err != nil {
							t.Fatal(got)
						}
						c.settle(t)
						if deaf {
							c.faults.next(redisOps("Extend"), dropped)
						}
						done := make(chan struct{}) // the step may run after the answer, in a lane
						c.faults.next(point.match(), point.hook(func() {
							defer close(done)
							c.cross(t)
						}, plain))
						got := extendOn(c.behind, shop, q.Token, 2*time.Hour)
						wantOK(t, "extend", got)
						await(t, done, "the flip")
						if c.kill { // the kill carries what only MySQL knew: Redis decides now
							c.s.keeps(t, c.to, q.Token, got.res.Hold.ExpiresAt)
						}
						c.settle(t)
						c.s.keeps(t, c.to, q.Token, got.res.Hold.ExpiresAt)
						if c.both() {
							c.s.conserved(t, shop, 1, 1, 1, 0)
						}
					})
				}
			}
		})
	}
}

// A killer that dies between the two stores leaves an extension that only MySQL
// knows: it is carried into Redis before Redis decides.
func TestExtendAndAKillerThatDies(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 1, still)
	h := r.lapsing(t)
	r.next(redisOps("Extend"), dropped)
	got := extendOn(r.f, r.shop, h.Token, time.Hour)
	wantOK(t, "extend with redis away", got)
	if redis, _ := r.expiries(t, h.Token); !redis.Before(got.res.Hold.ExpiresAt) {
		t.Fatal("redis knows of the extension: this test shows nothing")
	}
	fence, _ := r.f.Agreed()
	if _, err := r.mysql.TripFence(t.Context(), holdover.Fence{Pod: pod, Epoch: fence.Epoch + 2, Stage: holdover.StageShadow, Latched: true, By: "test", Reason: "dies"}); err != nil {
		t.Fatal(err)
	}
	other := r.another(t, still)
	if err := r.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.keeps(t, holdover.StageShadow, h.Token, got.res.Hold.ExpiresAt)
	r.outlives(t, h.ExpiresAt, h.Token, other, r.f)
	r.calm(t)
	r.conserved(t, r.shop, 1, 1, 1, 0)
}

// A row may come into the journal after the step back to joint has looked at it,
// and before MySQL's fence is raised: joint looks again before it expires.
func TestExtensionJournaledDuringTheStepBackToJoint(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 1, still)
	operator := &rig{stores: r.stores, faults: new(faults), shop: r.shop}
	operator.f = r.another(t, still, wrap(operator.faults))
	h := r.lapsing(t)
	var got outcome
	operator.next(mysqlOps("RaiseFence"), before(func() {
		r.next(redisOps("Extend"), dropped)
		got = extendOn(r.f, r.shop, h.Token, time.Hour)
	}))
	fence, _ := operator.f.Agreed()
	if _, err := operator.f.Step(t.Context(), fence, holdover.StageJoint, "test", "back"); err != nil {
		t.Fatal(err)
	}
	wantOK(t, "extend", got)
	if redis, _ := r.expiries(t, h.Token); !redis.Before(got.res.Hold.ExpiresAt) {
		t.Fatal("redis knows of the extension: this test shows nothing")
	}
	r.outlives(t, h.ExpiresAt, h.Token, operator.f)
	r.keeps(t, holdover.StageJoint, h.Token, got.res.Hold.ExpiresAt)
	r.calm(t)
	r.conserved(t, r.shop, 1, 1, 1, 0)
}

// An instance that dies with an extension in its memory: MySQL's reaper takes it
// over from Redis, so that MySQL can decide later.
func TestMySQLTakesOverAnExtensionFromRedis(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint} {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 1, still)
			h := r.lapsing(t)
			wantOK(t, "reserve again", reserveOn(r.f, request(r.shop, h.Token, line(1, 1))))
			r.next(mysqlOps("Apply"), dropped)
			got := extendOn(r.f, r.shop, h.Token, time.Hour)
			wantOK(t, "extend", got)
			eventually(t, "the lane has tried", func() bool { return r.f.Stats().LaneJobs == 0 })
			other := r.another(t, still, func(c *dualwrite.Config) { c.ReaperGrace = time.Millisecond })
			r.outlives(t, h.ExpiresAt, h.Token, other)
			eventually(t, "mysql has it", func() bool {
				if err := other.SweepOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
				_, mysql := r.expiries(t, h.Token)
				return !mysql.Before(got.res.Hold.ExpiresAt)
			})
			r.conserved(t, r.shop, 1, 1, 1, 0)
		})
	}
}

// Rule 9: a hold that nobody was told of can still be given back; an extension
// is an answer, so it is confirmed first.
func TestExtendConfirmsATentativeHold(t *testing.T) {
	for _, units := range []int64{1, 2} {
		r := newRig(t, holdover.StageJoint, 2, still)
		if units == 1 { // Redis has two units, MySQL one less, and that one is taken
			if _, err := r.db.Exec("UPDATE inventory_ledger SET available=0 WHERE shop_id=?", r.shop); err != nil {
				t.Fatal(err)
			}
		}
		other := r.another(t, still)
		q := r.one()
		var got outcome
		r.next(mysqlOps("Vote"), func(ctx context.Context, c call, do func(context.Context) error) error {
			got = extendOn(other, r.shop, q.Token, 2*time.Hour)
			return dropped(ctx, c, do)
		})
		if mine := reserveOn(r.f, q); mine.err == nil {
			t.Fatalf("the reserve: told %v", mine)
		}
		if units == 1 {
			wantErr(t, "extend of what mysql has no unit for", got, holdover.ErrUnknownHold)
			r.states(t, q.Token, "none", "none")
			continue
		}
		wantOK(t, "extend", got)
		r.states(t, q.Token, "held", "held")
		r.keeps(t, holdover.StageMySQL, q.Token, got.res.Hold.ExpiresAt)
		r.calm(t, other)
		r.conserved(t, r.shop, 1, 2, 1, 0)
	}
}

// A claim is stronger than an extension, and MySQL's end record too.
func TestExtendAfterAnEndThatOnlyOneStoreKnows(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageJoint, holdover.StageMySQL} {
		for _, how := range []holdover.State{holdover.StateReleased, holdover.StateClaimed} {
			t.Run(stage.String()+"/"+how.String(), func(t *testing.T) {
				r := newRig(t, stage, 1, still)
				token := r.hold(t)
				fence, _ := r.f.Agreed()
				want, sold := holdover.ErrEnded, int64(0)
				var err error
				if how == holdover.StateClaimed {
					want, sold = holdover.ErrAlreadyClaimed, 1
					_, err = r.mysql.Claim(t.Context(), fence.Epoch, 0, token, nil, false)
				} else {
					_, err = r.mysql.End(t.Context(), fence.Epoch, 0, token, how, false)
				}
				if err != nil {
					t.Fatal(err)
				}
				wantErr(t, "extend", extendOn(r.f, r.shop, token, 2*time.Hour), want)
				r.calm(t)
				r.states(t, token, how.String(), how.String())
				r.conserved(t, r.shop, 1, 1, 0, sold)
			})
		}
	}
	r := newRig(t, holdover.StageMySQL, 1, still)
	token := r.hold(t)
	r.next(mysqlOps("Apply"), dropped)
	if got := claimOn(r.f, r.shop, token); got.err != nil || !got.res.Pending {
		t.Fatalf("claim: told %v", got)
	}
	wantErr(t, "extend of what is being claimed", extendOn(r.f, r.shop, token, 2*time.Hour), holdover.ErrClaimPending)
}

// G3: an extension in shadow does not wait for MySQL.
func TestExtendInShadowDoesNotWaitForMySQL(t *testing.T) {
	r := newRig(t, holdover.StageShadow, 1, still)
	token := r.hold(t)
	g := newGate(t)
	r.inject(mysqlOps(), g.hang)
	got := await(t, async(func() outcome { return extendOn(r.f, r.shop, token, 2*time.Hour) }), "the extension")
	wantOK(t, "extend with mysql hanging", got)
	unknown := await(t, async(func() outcome { return extendOn(r.f, r.shop, holdover.NewToken(), 2*time.Hour) }), "the extension of an unknown hold")
	wantErr(t, "extend of an unknown hold", unknown, holdover.ErrUnknownHold)
	r.heal()
	g.open()
	eventually(t, "mysql follows", func() bool {
		_, mysql := r.expiries(t, token)
		return mysql.Equal(got.res.Hold.ExpiresAt)
	})
}

// An extension is compared by the states of the hold; what says nothing about
// extending is not compared.
func TestExtensionsAreObserved(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			r, rec := observed(t, stage, 2, still)
			token := r.hold(t)
			rec.last(t, token, 1)
			wantOK(t, "extend", extendOn(r.f, r.shop, token, 2*time.Hour))
			o := rec.last(t, token, 2)
			if o.Op != holdover.OpExtend || o.Redis.Outcome != granted || o.MySQL.Outcome != granted ||
				o.Redis.State != holdover.StateHeld || o.MySQL.State != holdover.StateHeld || o.Redis.Latency <= 0 || o.MySQL.Latency <= 0 {
				t.Errorf("observed %+v", o)
			}
			// A claim that comes between the two stores is no difference.
			r.next(mysqlOps("Apply"), before(func() {
				if _, err := r.mysql.Apply(context.Background(), holdover.Hold{Token: token, Shop: r.shop, Lines: []holdover.Line{line(1, 1)}, State: holdover.StateClaimed}); err != nil {
					t.Error(err)
				}
			}))
			if got := extendOn(r.f, r.shop, token, 3*time.Hour); stage != holdover.StageShadow && !errors.Is(got.err, holdover.ErrAlreadyClaimed) {
				t.Errorf("told %v", got)
			}
			if o := rec.last(t, token, 3); o.Op != holdover.OpExtend || o.MySQL.Outcome != holdover.OutcomeShed {
				t.Errorf("observed %+v", o)
			}
		})
	}
}
