package dualwrite_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// rig is one pod with one instance whose calls can fail.
type rig struct {
	*stores
	*faults
	f    *dualwrite.Facade
	shop int64
}

// still keeps the background work out: tests call DrainOnce and SweepOnce.
func still(c *dualwrite.Config) { c.DrainEvery = time.Hour }

// newRig has units of item 1 at location 1, in a stage.
func newRig(t *testing.T, stage holdover.Stage, units int64, change ...func(*dualwrite.Config)) *rig {
	t.Helper()
	r := &rig{stores: newStores(t), faults: new(faults), shop: newShop()}
	r.f = newFacade(t, r.stores, append([]func(*dualwrite.Config){wrap(r.faults), func(c *dualwrite.Config) { c.ClaimAge = time.Millisecond }}, change...)...)
	reach(t, r.f, stage)
	r.load(t, r.shop, map[[2]int64]int64{{1, 1}: units})
	return r
}

// another is a second instance on the same stores, without faults.
func (r *rig) another(t *testing.T, change ...func(*dualwrite.Config)) *dualwrite.Facade {
	t.Helper()
	f := newFacade(t, r.stores, append([]func(*dualwrite.Config){func(c *dualwrite.Config) { c.ClaimAge = time.Millisecond }}, change...)...)
	if err := f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// one asks for one unit.
func (r *rig) one() holdover.Request { return request(r.shop, holdover.NewToken(), line(1, 1)) }

// hold reserves one unit and waits until both stores are done.
func (r *rig) hold(t *testing.T) holdover.Token {
	t.Helper()
	q := r.one()
	if got := reserveOn(r.f, q); got.err != nil {
		t.Fatal(got)
	}
	eventually(t, "the grant is mirrored", func() bool { return r.f.Stats().LaneJobs == 0 })
	return q.Token
}

// calm drains and waits until nothing is left to carry over.
func (r *rig) calm(t *testing.T, more ...*dualwrite.Facade) {
	t.Helper()
	for _, f := range append(more, r.f) {
		if err := f.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "nothing is left to carry over", func() bool {
			if err := f.DrainOnce(t.Context()); err != nil {
				t.Fatalf("drain: %v", err)
			}
			st := f.Stats()
			return st.LaneJobs == 0 && st.Unmirrored+st.Debts == 0 && r.journal(t) == 0
		})
	}
}

func wantErr(t *testing.T, what string, got outcome, want error) {
	t.Helper()
	if !errors.Is(got.err, want) {
		t.Errorf("%s: told %v, want %v", what, got, want)
	}
}

func wantOK(t *testing.T, what string, got outcome) {
	t.Helper()
	if got.err != nil {
		t.Errorf("%s: told %v", what, got)
	}
}

// Rule 1: a stale epoch is followed, a bounded number of times.
func TestStaleEpochIsFollowedAndBounded(t *testing.T) {
	for _, c := range []struct {
		moves int
		want  error
	}{{1, nil}, {3, nil}, {4, holdover.ErrTryAgain}} {
		r := newRig(t, holdover.StageRedis, 1, func(c *dualwrite.Config) { c.MaxMoves = 3 })
		operator := r.another(t)
		left := c.moves
		r.inject(redisOps("Vote"), before(func() {
			if left == 0 {
				return
			}
			left--
			fence, _ := operator.Agreed()
			to := holdover.StageShadow
			if fence.Stage == to {
				to = holdover.StageRedis
			}
			if _, err := operator.Step(t.Context(), fence, to, "test", "flap"); err != nil {
				t.Errorf("step: %v", err)
			}
		}))
		q := r.one()
		got := reserveOn(r.f, q)
		fence, _ := operator.Agreed()
		if c.want == nil {
			if got.err != nil || got.res.Decision.Epoch != fence.Epoch || got.res.Decision.Stage != fence.Stage {
				t.Errorf("%d moves: told %v, the agreement is %s", c.moves, got, fence)
			}
			continue
		}
		wantErr(t, "a call that the agreement outruns", got, c.want)
		r.states(t, q.Token, "none", "none")
		if n := len(r.made(redisOps("Vote"))); n != 4 {
			t.Errorf("%d votes were asked for, want 4: one and three moves", n)
		}
	}
}

// A store that answers "stale" for ever, with a fence that is not newer, ends
// the call too.
func TestStoreThatStaysBehindIsBounded(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 1)
	r.inject(mysqlOps("Vote"), func(context.Context, call, func(context.Context) error) error {
		return &holdover.StaleError{Store: holdover.StoreMySQL, Asked: 4, Fence: holdover.Fence{Pod: pod, Epoch: 1, Stage: holdover.StageRedis}}
	})
	wantErr(t, "behind for ever", reserveOn(r.f, r.one()), holdover.ErrTryAgain)
	if n := len(r.made(mysqlOps("Vote"))); n != 7 {
		t.Errorf("%d votes were asked for, want 7: one and six moves", n)
	}
	r.calm(t)
	r.conserved(t, r.shop, 1, 1, 0, 0)
}

// Rules 2 and 4: a killer that died between its two writes. MySQL has the new
// fence, Redis does not; whoever raises Redis carries the journal with it, or
// the unit that only MySQL knows to be held is sold again.
func TestKillerDiedBetweenItsWrites(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 2, still)
	r.inject(redisOps(), dropped)
	journaled := r.one()
	wantOK(t, "reserve with redis away", reserveOn(r.f, journaled))
	r.heal()
	fence, _ := r.f.Agreed()
	if _, err := r.mysql.TripFence(t.Context(), holdover.Fence{Pod: pod, Epoch: fence.Epoch + 2, Stage: holdover.StageShadow, Latched: true, By: "test", Reason: "dies"}); err != nil {
		t.Fatal(err)
	}

	second, third := reserveOn(r.f, r.one()), reserveOn(r.another(t, still), r.one())
	if second.err != nil || second.res.Decision.Stage != holdover.StageShadow || second.res.Decision.Epoch != fence.Epoch+2 {
		t.Errorf("the second of two units: told %v", second)
	}
	wantErr(t, "the third of two units", third, holdover.ErrOutOfStock)
	if state := r.redisState(t, journaled.Token); state != "held" {
		t.Errorf("the journaled hold is %s in redis, which decides now", state)
	}
	if there, err := r.redis.Fence(t.Context()); err != nil || there.Epoch != fence.Epoch+2 || !there.Latched {
		t.Errorf("redis has %v, %v", there, err)
	}
	r.calm(t)
	r.conserved(t, r.shop, 1, 2, 2, 0)
}

// Rules 2 and 19: a copy refused because Redis is behind is not a flip. Every
// change but a kill writes Redis first, so this Redis has older data: it is not
// raised, the buyer is served by MySQL and its journal, and readiness says no.
func TestCopyToARedisThatIsBehind(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 1, still)
	fence, _ := r.f.Agreed()
	if err := r.raw.HSet(t.Context(), "fence", "epoch", int64(fence.Epoch-1), "stage", "joint").Err(); err != nil {
		t.Fatal(err)
	}
	q := r.one()
	got := reserveOn(r.f, q)
	if got.err != nil || got.res.Decision.Stage != holdover.StageMySQL || got.res.Decision.Epoch != fence.Epoch {
		t.Errorf("told %v", got)
	}
	r.states(t, q.Token, "none", "held")
	if n := r.journal(t); n != 1 {
		t.Errorf("%d rows in the journal", n)
	}
	if there, err := r.redis.Fence(t.Context()); err != nil || there.Epoch != fence.Epoch-1 {
		t.Errorf("redis has %v, %v", there, err)
	}
	if h := r.f.Hindrances(t.Context(), holdover.StageJoint); h.OK() {
		t.Errorf("readiness says %+v", h)
	}
}

// Rule 4: an instance that sees Redis newer raises MySQL before it uses it,
// however often MySQL was silent in between.
func TestMySQLIsOwedTheFenceAfterAKillWithoutIt(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 2, still)
	fence, _ := r.f.Agreed()
	r.inject(mysqlOps(), dropped)
	killed := holdover.Fence{Pod: pod, Epoch: fence.Epoch + 2, Stage: holdover.StageShadow, Latched: true, By: "test", Reason: "mysql silent"}
	if err := r.redis.Trip(t.Context(), killed, nil); err != nil {
		t.Fatal(err)
	}
	q := r.one()
	got := reserveOn(r.f, q)
	if got.err == nil { // its vote in mysql gave no answer before it could learn of the kill
		t.Errorf("told %v", got)
	}
	if err := r.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	q = r.one()
	if got := reserveOn(r.f, q); got.err != nil || got.res.Decision.Stage != holdover.StageShadow {
		t.Errorf("told %v", got)
	}
	if h := r.f.Hindrances(t.Context(), holdover.StageJoint); h.OK() {
		t.Errorf("ready for the next step without mysql: %+v", h)
	}
	if there, err := r.mysql.Fence(t.Context()); err != nil || there.Epoch != fence.Epoch {
		t.Fatalf("mysql has %v, %v", there, err)
	}
	r.heal()
	// The first use of MySQL, here by the drain of what the lane could not mirror.
	eventually(t, "the lane has given up", func() bool { return r.f.Stats().LaneJobs == 0 })
	if err := r.f.DrainOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if there, err := r.mysql.Fence(t.Context()); err != nil || there.Epoch != killed.Epoch || !there.Latched {
		t.Errorf("mysql has %v, %v, and was used", there, err)
	}
	r.calm(t)
	r.states(t, q.Token, "held", "held")
	r.conserved(t, r.shop, 1, 2, 1, 0)
}

// Rule 7 and G4: with Redis away buyers are served from MySQL; readiness says
// no until the drain has carried the facts over.
func TestRedisAwayInMySQL(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 5, still)
	before := [3]holdover.Token{r.hold(t), r.hold(t), r.hold(t)} // to be kept, claimed, released
	r.inject(redisOps(), dropped)
	first, second := r.one(), r.one()
	for i, q := range []holdover.Request{first, second} { // the first finds out, the second knows
		got := reserveOn(r.f, q)
		if got.err != nil || got.res.Decision.Store != holdover.StoreMySQL {
			t.Errorf("reserve %d with redis away: told %v", i+1, got)
		}
	}
	wantErr(t, "the sixth of five units", reserveOn(r.f, r.one()), holdover.ErrOutOfStock)
	wantOK(t, "claim with redis away", claimOn(r.f, r.shop, before[1]))
	wantOK(t, "claim again", claimOn(r.f, r.shop, before[1]))
	wantOK(t, "release with redis away", releaseOn(r.f, r.shop, before[2]))
	wantErr(t, "release of what was claimed", releaseOn(r.f, r.shop, before[1]), holdover.ErrAlreadyClaimed)
	wantErr(t, "claim of what was released", claimOn(r.f, r.shop, before[2]), holdover.ErrEnded)
	if n := r.journal(t); n != 4 {
		t.Errorf("%d rows in the journal, want 4", n)
	}
	notReady := func(code string) {
		t.Helper()
		h := r.f.Hindrances(t.Context(), holdover.StageJoint)
		if h.OK() || h.Reasons[0].Code != code {
			t.Errorf("readiness says %+v, want %s", h, code)
		}
	}
	notReady("redis-away")
	r.heal()
	notReady("unmirrored")
	r.calm(t)
	if h := r.f.Hindrances(t.Context(), holdover.StageJoint); !h.OK() {
		t.Errorf("readiness says %+v after the drain", h)
	}
	for token, state := range map[holdover.Token]string{first.Token: "held", second.Token: "held", before[0]: "held", before[1]: "claimed", before[2]: "released"} {
		r.states(t, token, state, state)
	}
	r.conserved(t, r.shop, 1, 5, 3, 1)
}

// One item that Redis has no counter for is not a Redis that is away: the other
// items go on being copied, and the drain does not stop at it.
func TestItemThatRedisDoesNotKnow(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 5, still)
	r.load(t, r.shop, map[[2]int64]int64{{2, 1}: 5})
	if err := r.raw.Del(t.Context(), "inventory:"+text(r.shop)+":2").Err(); err != nil {
		t.Fatal(err)
	}
	odd := request(r.shop, holdover.NewToken(), line(2, 1))
	wantOK(t, "an item that redis does not know", reserveOn(r.f, odd))
	if r.f.Stats().RedisAway {
		t.Error("redis counts as away because of one item")
	}
	q := r.one()
	wantOK(t, "another item", reserveOn(r.f, q))
	r.states(t, q.Token, "held", "held")
	if n := r.journal(t); n != 1 {
		t.Errorf("%d rows in the journal, want 1", n)
	}
	r.next(redisOps("Copy"), dropped)
	behind := r.one() // after the odd one in the journal
	wantOK(t, "reserve", reserveOn(r.f, behind))
	if err := r.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = r.f.DrainOnce(t.Context())
	r.states(t, behind.Token, "held", "held")
	if n := r.journal(t); n != 1 {
		t.Errorf("%d rows in the journal after the drain, want 1", n)
	}
	if _, err := r.redis.Load(t.Context(), r.shop, map[int64]int64{2: 5}, false); err != nil {
		t.Fatal(err)
	}
	r.calm(t)
	r.states(t, odd.Token, "held", "held")
	r.conserved(t, r.shop, 2, 5, 1, 0)
}

// A copy whose answer is lost is journaled; the drain changes nothing.
func TestLostReplyOfTheCopy(t *testing.T) {
	for name, f := range map[string]func(*rig) fault{
		"executed": func(*rig) fault { return replyLost }, "executed later": func(r *rig) fault { return r.later }, "never executed": func(*rig) fault { return dropped },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, holdover.StageMySQL, 2, still)
			r.next(redisOps("Copy"), f(r))
			q := r.one()
			wantOK(t, "reserve", reserveOn(r.f, q))
			if n := r.journal(t); n != 1 {
				t.Errorf("%d rows in the journal, want 1", n)
			}
			r.calm(t)
			r.runLate()
			r.states(t, q.Token, "held", "held")
			r.conserved(t, r.shop, 1, 2, 1, 0)
		})
	}
}

// Neither store answers after MySQL granted: the outcome is unknown to the
// buyer, but both stores agree on it: a fact that the journal has is carried
// over, or given back in both.
func TestNoAnswerFromTheCopyAndTheJournal(t *testing.T) {
	for name, f := range map[string]fault{"not executed": dropped, "executed": replyLost} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, holdover.StageMySQL, 1, still)
			r.next(redisOps("Copy"), dropped)
			r.next(mysqlOps("JournalGrant"), f)
			g := newGate(t)
			if name == "executed" { // the drain comes before the give-back
				r.next(mysqlOps("GiveBack"), g.hang)
			}
			q := r.one()
			wantErr(t, "reserve", reserveOn(r.f, q), holdover.ErrUnknownOutcome)
			if name == "executed" {
				g.wait(t)
				if err := errors.Join(r.f.Refresh(t.Context()), r.f.DrainOnce(t.Context())); err != nil {
					t.Fatal(err)
				}
				g.open()
				r.calm(t)
				r.states(t, q.Token, "held", "held")
				r.conserved(t, r.shop, 1, 1, 1, 0)
			} else {
				r.calm(t)
				r.states(t, q.Token, "none", "none")
				r.conserved(t, r.shop, 1, 1, 0, 0)
			}
			wantOK(t, "repeat", reserveOn(r.f, q))
			r.calm(t)
			r.conserved(t, r.shop, 1, 1, 1, 0)
		})
	}
}

// A vote whose COMMIT is lost: no promise, and no unit stays behind; the same
// token asks anew, also while the give-back is still on its way.
func TestLostCommitOfTheVote(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageJoint, holdover.StageMySQL, holdover.StageMySQLOnly} {
		t.Run(stage.String()+"/repeated after the give-back", func(t *testing.T) {
			r := newRig(t, stage, 1, still)
			r.next(mysqlOps("Vote"), replyLost)
			q := r.one()
			wantErr(t, "reserve", reserveOn(r.f, q), holdover.ErrUnknownOutcome)
			r.calm(t)
			r.states(t, q.Token, "none", "none")
			wantOK(t, "repeat", reserveOn(r.f, q))
			r.calm(t)
			if held := r.liveInMySQL(t, r.shop, 1); held != 1 {
				t.Errorf("%d units held", held)
			}
		})
		t.Run(stage.String()+"/repeated before the give-back", func(t *testing.T) {
			r := newRig(t, stage, 1, still)
			g := newGate(t)
			r.next(mysqlOps("Vote"), replyLost)
			r.next(mysqlOps("GiveBack"), g.hang)
			q := r.one()
			wantErr(t, "reserve", reserveOn(r.f, q), holdover.ErrUnknownOutcome)
			g.wait(t)
			repeat := reserveOn(r.f, q)
			wantOK(t, "repeat", repeat)
			g.open()
			r.calm(t)
			if state := r.mysqlState(t, q.Token); state != "held" {
				t.Errorf("the first attempt took back what the second was granted: %s", state)
			}
			if stage.Dual() {
				r.conserved(t, r.shop, 1, 1, 1, 0)
			}
		})
	}
}

// Rule 6: in joint both grant, or neither keeps anything.
func TestJointGivesBackWhatOnlyOneGranted(t *testing.T) {
	for _, c := range []struct {
		name  string
		match func(call) bool
		fault fault
		want  error
	}{
		{"mysql gives no answer", mysqlOps("Vote"), dropped, holdover.ErrUnknownOutcome},
		{"mysql granted, answer lost", mysqlOps("Vote"), replyLost, holdover.ErrUnknownOutcome},
		{"redis gives no answer", redisOps("Vote"), dropped, holdover.ErrUnknownOutcome},
		{"redis granted, answer lost", redisOps("Vote"), replyLost, holdover.ErrUnknownOutcome},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, holdover.StageJoint, 1, still)
			r.next(c.match, c.fault)
			q := r.one()
			wantErr(t, "reserve", reserveOn(r.f, q), c.want)
			if state := r.redisState(t, q.Token); state != "none" {
				t.Errorf("redis, which the next buyer asks first, has it %s", state)
			}
			r.calm(t)
			r.states(t, q.Token, "none", "none")
			r.conserved(t, r.shop, 1, 1, 0, 0)
		})
	}
	t.Run("mysql refuses", func(t *testing.T) {
		r := newRig(t, holdover.StageJoint, 1, still)
		if _, err := r.db.Exec("UPDATE inventory_ledger SET available=0 WHERE shop_id=?", r.shop); err != nil {
			t.Fatal(err)
		}
		q := r.one()
		wantErr(t, "reserve", reserveOn(r.f, q), holdover.ErrOutOfStock)
		r.states(t, q.Token, "none", "none")
		if counter := r.counter(t, r.shop, 1); counter != 1 {
			t.Errorf("redis's counter is %d", counter)
		}
		r.calm(t)
	})
	t.Run("redis's give-back gets no answer at first", func(t *testing.T) {
		r := newRig(t, holdover.StageJoint, 1, still)
		r.next(mysqlOps("Vote"), dropped)
		r.next(redisOps("GiveBack"), dropped)
		q := r.one()
		wantErr(t, "reserve", reserveOn(r.f, q), holdover.ErrUnknownOutcome)
		r.calm(t)
		r.states(t, q.Token, "none", "none")
		r.conserved(t, r.shop, 1, 1, 0, 0)
	})
}

// A give-back that finds its store away is not forgotten: nobody else knows
// that these units are free.
func TestGiveBackIsRepeatedUntilTheStoreAnswers(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 1, still)
			r.next(mysqlOps("Vote"), replyLost)
			r.inject(mysqlOps("GiveBack"), dropped)
			q := r.one()
			wantErr(t, "reserve", reserveOn(r.f, q), holdover.ErrUnknownOutcome)
			eventually(t, "the lane has tried", func() bool { return len(r.made(mysqlOps("GiveBack"))) > 0 && r.f.Stats().LaneJobs == 0 })
			if err := r.f.DrainOnce(t.Context()); err == nil {
				t.Error("the drain does not say that mysql is away")
			}
			r.heal()
			r.calm(t)
			r.states(t, q.Token, "none", "none")
			r.conserved(t, r.shop, 1, 1, 0, 0)
		})
	}
}

// Rule 9: a replay by another attempt makes the hold firm: the first attempt's
// give-back does nothing.
func TestGiveBackUndoesOnlyItsOwnAttempt(t *testing.T) {
	r := newRig(t, holdover.StageJoint, 1, still)
	second := r.another(t, still)
	g := newGate(t)
	r.next(mysqlOps("Vote"), g.hang)
	r.next(mysqlOps("GiveBack"), g.hang)
	q := r.one()
	first := async(func() outcome { return reserveOn(r.f, q) }) // has redis's unit, waits for mysql
	g.wait(t)
	wantOK(t, "the retry on another instance", reserveOn(second, q))
	r.heal()
	r.next(mysqlOps("Vote"), dropped)
	g.open()
	await(t, first, "the first attempt")
	r.calm(t, second)
	r.states(t, q.Token, "held", "held")
	r.conserved(t, r.shop, 1, 1, 1, 0)
}

// Rule 10: a replay in mysql copies too before it answers.
func TestReplayInMySQLCopies(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 2, still)
	r.next(redisOps("Copy"), dropped)
	q := r.one()
	wantOK(t, "reserve", reserveOn(r.f, q))
	r.states(t, q.Token, "none", "held")
	if err := r.f.Refresh(t.Context()); err != nil { // redis is back
		t.Fatal(err)
	}
	again := reserveOn(r.f, q)
	if again.err != nil || !again.res.Replayed {
		t.Errorf("repeat: told %v, replayed %t", again, again.res.Replayed)
	}
	r.states(t, q.Token, "held", "held")
	r.calm(t)
	r.conserved(t, r.shop, 1, 2, 1, 0)
}

// Rule 11: a store that holds more than its stock confirms no grant again.
func TestOverbookedStoreReplaysNoVote(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 2, still)
	token := r.hold(t)
	wantOK(t, "repeat, which makes it firm", reserveOn(r.f, request(r.shop, token, line(1, 1))))
	if _, err := r.db.Exec("UPDATE inventory_ledger SET available=0 WHERE shop_id=?", r.shop); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "repeat while overbooked", reserveOn(r.f, request(r.shop, token, line(1, 1))), holdover.ErrTryAgain)
	if res, err := r.f.Lookup(t.Context(), r.shop, token); err != nil || res.Hold.State != holdover.StateHeld {
		t.Errorf("look-up: %+v, %v", res, err)
	}
	wantOK(t, "release", releaseOn(r.f, r.shop, token))
}

// A look-up confirms a tentative hold as a repeated reserve does. When the hold
// is given back at that very moment, the look-up keeps no units of its own.
func TestLookupLeavesNothingBehind(t *testing.T) {
	r := newRig(t, holdover.StageJoint, 1, still)
	token := r.hold(t)
	known, err := r.redis.Lookup(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	r.next(redisOps("Vote"), before(func() {
		for _, store := range []dualwrite.Steps{r.redis, r.mysql} {
			if did, err := store.GiveBack(t.Context(), token, known.Attempt); !did || err != nil {
				t.Errorf("give back: %t, %v", did, err)
			}
		}
	}))
	r.next(mysqlOps("Vote"), replyLost)
	if res, err := r.f.Lookup(t.Context(), r.shop, token); !errors.Is(err, holdover.ErrUnknownOutcome) {
		t.Errorf("told %+v, %v", res, err)
	}
	r.calm(t)
	r.states(t, token, "none", "none")
	r.conserved(t, r.shop, 1, 1, 0, 0)
}
