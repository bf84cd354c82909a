package dualwrite_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// story is a fixed sequence of operations on 4 units, and what buyers are told.
func story(t *testing.T, r *rig) (told []string, tokens map[string]holdover.Token) {
	t.Helper()
	tokens = map[string]holdover.Token{}
	note := func(what string, o outcome) {
		var short *holdover.OutOfStockError
		switch {
		case errors.As(o.err, &short):
			told = append(told, fmt.Sprintf("%s: out of stock in %s, %d left", what, short.Store, short.Short[0].Left))
		case o.err != nil:
			class := "another error: " + o.err.Error()
			for _, known := range []error{holdover.ErrTokenReused, holdover.ErrAlreadyClaimed, holdover.ErrEnded, holdover.ErrUnknownHold, holdover.ErrNotLoaded, holdover.ErrClaimPending} {
				if errors.Is(o.err, known) {
					class = known.Error()
				}
			}
			told = append(told, what+": "+class)
		default:
			told = append(told, fmt.Sprintf("%s: yes, %s, replayed %t, by %s", what, o.res.Hold.State, o.res.Replayed, o.res.Decision.Store))
		}
	}
	reserve := func(name string, quantity int64) {
		if _, known := tokens[name]; !known {
			tokens[name] = holdover.NewToken()
		}
		note("reserve "+name, reserveOn(r.f, request(r.shop, tokens[name], line(1, quantity))))
	}
	for _, name := range []string{"a", "b", "c"} {
		reserve(name, 1)
	}
	reserve("a", 1)
	reserve("a", 2)
	reserve("big", 2)
	note("release b", releaseOn(r.f, r.shop, tokens["b"]))
	note("release b", releaseOn(r.f, r.shop, tokens["b"]))
	note("release in another shop", releaseOn(r.f, r.shop+1, tokens["a"]))
	reserve("big", 2)
	reserve("late", 1)
	reserve("b", 1)
	note("unknown item", reserveOn(r.f, request(r.shop, holdover.NewToken(), line(99, 1))))
	note("release unknown", releaseOn(r.f, r.shop, holdover.NewToken()))
	return told, tokens
}

// TestShadowCannotHurtTheTruth is G3: whatever MySQL does in shadow, buyers are
// told what stage redis would tell them, without waiting, in bounded memory, and
// afterwards MySQL catches up.
func TestShadowCannotHurtTheTruth(t *testing.T) {
	alone := newRig(t, holdover.StageRedis, 4)
	want, _ := story(t, alone)

	for _, c := range []struct {
		name   string
		hangs  bool // until the test opens the gate
		fault  func(*gate) fault
		change func(*dualwrite.Config)
	}{
		{"hung, heeding no deadline", true, func(g *gate) fault { return g.hang }, nil},
		{"hung until its deadline", true, func(g *gate) fault { return g.stuck }, nil},
		{"answering after the deadline", true, func(g *gate) fault { return g.hangAfter }, nil},
		{"refusing connections", false, func(*gate) fault { return refused }, nil},
		{"losing every answer", false, func(*gate) fault { return replyLost }, nil},
		{"panicking", false, func(*gate) fault { return panics }, nil},
		{"hung, with lanes of one", true, func(g *gate) fault { return g.hang }, func(c *dualwrite.Config) { c.Lanes, c.LaneDepth = 1, 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The background passes run too: they may not end the process either.
			r := newRig(t, holdover.StageShadow, 4, func(cfg *dualwrite.Config) {
				cfg.SweepEvery, cfg.RefreshTimeout = 5*time.Millisecond, 50*time.Millisecond
				cfg.LaneTimeout = time.Second
				if c.change != nil {
					c.change(cfg)
				}
			})
			g := newGate(t)
			r.inject(mysqlOps(), c.fault(g))
			done := async(func() []string { told, _ := story(t, r); return told })
			told := await(t, done, "the buyers, who wait for mysql")
			if !slices.Equal(told, want) {
				t.Errorf("buyers were told\n%q\nin stage redis\n%q", told, want)
			}
			if c.hangs { // the gate is closed: not one mirror has been done
				g.wait(t)
				if n := r.count(t, "SELECT COUNT(*) FROM reserved_quantities"); n != 0 && c.name != "answering after the deadline" {
					t.Errorf("mysql has %d rows, and hangs", n)
				}
			}
			refreshed := await(t, async(func() error { return r.f.Refresh(context.Background()) }), "a refresh, which waits for mysql")
			if refreshed != nil {
				t.Errorf("refresh: %v", refreshed)
			}
			r.heal()
			g.open()
			r.calm(t)
			// MySQL has caught up: a and c hold one unit each, big holds two.
			r.conserved(t, r.shop, 1, 4, 4, 0)
			if got, _ := r.f.Agreed(); got.Stage != holdover.StageShadow {
				t.Errorf("the pod is in %s", got)
			}
		})
	}
}

// A flip is followed without waiting for a MySQL that hangs.
func TestFlipInShadowDoesNotWaitForMySQL(t *testing.T) {
	r := newRig(t, holdover.StageShadow, 2, func(c *dualwrite.Config) { c.RefreshTimeout = time.Hour })
	g := newGate(t)
	r.inject(mysqlOps(), g.hang)
	trip(t, newSwitch(t, r.stores)) // latches: a new epoch
	got := await(t, async(func() outcome { return reserveOn(r.f, r.one()) }), "a reserve across the flip")
	if got.err != nil || got.res.Decision.Stage != holdover.StageShadow {
		t.Errorf("told %v", got)
	}
	if fence, _ := r.f.Agreed(); !fence.Latched {
		t.Errorf("the agreement is %s", fence)
	}
}

// With MySQL away for good, lanes and memory stay within their bounds, and what
// is over them is counted.
func TestShadowMemoryIsBounded(t *testing.T) {
	const buyers, depth, remembered = 300, 4, 16
	r := newRig(t, holdover.StageShadow, 1000, still, func(c *dualwrite.Config) {
		c.Lanes, c.LaneDepth, c.UnmirroredMax = 2, depth, remembered
	})
	g := newGate(t)
	r.inject(mysqlOps(), g.hang)
	goroutines := runtime.NumGoroutine()
	for range buyers {
		wantOK(t, "reserve", reserveOn(r.f, r.one()))
	}
	st := r.f.Stats()
	if st.LaneJobs > 2*(depth+1) || st.Unmirrored > remembered {
		t.Errorf("%d jobs in 2 lanes of %d, %d of at most %d tokens remembered", st.LaneJobs, depth, st.Unmirrored, remembered)
	}
	if int64(st.LaneJobs)+st.LaneShed != buyers {
		t.Errorf("%d buyers: %d jobs and %d shed", buyers, st.LaneJobs, st.LaneShed)
	}
	if st.Forgotten != st.LaneShed-remembered {
		t.Errorf("%d forgotten; %d shed, %d remembered", st.Forgotten, st.LaneShed, remembered)
	}
	if now := runtime.NumGoroutine(); now > goroutines+20 {
		t.Errorf("%d goroutines for %d buyers, %d before", now, buyers, goroutines)
	}
	if r.f.Busy() < remembered {
		t.Errorf("the heartbeat says %d", r.f.Busy())
	}
	r.heal()
	g.open()
	r.calm(t)
	if live := r.liveInMySQL(t, r.shop, 1); live != int64(st.LaneJobs+remembered) {
		t.Errorf("mysql has %d holds, want the %d of the lanes and the %d remembered", live, st.LaneJobs, remembered)
	}
	// What was forgotten is found by the buyer's next step.
	for _, c := range r.made(redisOps("Vote")) {
		wantOK(t, "claim", claimOn(r.f, r.shop, c.token))
	}
	r.calm(t)
	r.conserved(t, r.shop, 1, 1000, 0, buyers)
}

// A comparator that panics harms nobody.
func TestComparatorPanicIsContained(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 2, func(c *dualwrite.Config) { c.Observe = func(holdover.Observation) { panic("comparator") } })
			kept, claimed := r.hold(t), r.hold(t)
			wantErr(t, "a third buyer", reserveOn(r.f, r.one()), holdover.ErrOutOfStock)
			wantOK(t, "claim", claimOn(r.f, r.shop, claimed))
			wantOK(t, "release", releaseOn(r.f, r.shop, kept))
			r.calm(t)
			r.conserved(t, r.shop, 1, 2, 0, 1)
			eventually(t, "the panics are counted", func() bool { return r.f.Stats().ObservePanics >= 5 })
		})
	}
}

// Pitfall 52: a token's end never overtakes its reserve on the way to MySQL.
func TestLanesKeepTheOrderOfAToken(t *testing.T) {
	r := newRig(t, holdover.StageShadow, 100)
	g := newGate(t)
	r.inject(mysqlOps("Apply"), g.hang)
	var tokens []holdover.Token
	for range 40 {
		q := r.one()
		wantOK(t, "reserve", reserveOn(r.f, q))
		wantOK(t, "release", releaseOn(r.f, r.shop, q.Token))
		tokens = append(tokens, q.Token)
	}
	g.open()
	r.calm(t)
	for _, token := range tokens {
		// In the wrong order the release leaves an end record without lines.
		if n := r.count(t, "SELECT quantity FROM reserved_quantities WHERE token=? AND state='released'", token[:]); n != 1 {
			t.Errorf("hold %s was released before it was reserved: quantity %d", token, n)
		}
	}
	r.conserved(t, r.shop, 1, 100, 0, 0)
}

// Pitfall 45: a caller that goes away between the two writes leaves nothing
// half done.
func TestCallerThatGoesAwayDoesNotSplitTheCall(t *testing.T) {
	for _, stage := range holdover.Stages() {
		for _, point := range stepsOf(holdover.OpReserve, stage) {
			t.Run(stage.String()+"/"+point.String(), func(t *testing.T) {
				r := newRig(t, stage, 1, still)
				ctx, cancel := context.WithCancel(t.Context())
				r.next(point.match(), point.hook(cancel, plain))
				q := r.one()
				if _, err := r.f.Reserve(ctx, q); err != nil {
					t.Errorf("told %v", err)
				}
				if !stage.Dual() {
					return
				}
				r.calm(t)
				r.states(t, q.Token, "held", "held")
				r.conserved(t, r.shop, 1, 1, 1, 0)
			})
		}
	}
}

// Pitfall 47: Redis granted and its answer was lost. The buyer is told that
// nothing is certain, the grant is given back, and MySQL is not left with it.
func TestLostAnswerOfTheTruthIsResolvedByToken(t *testing.T) {
	for name, f := range map[string]func(*rig) fault{
		"executed": func(*rig) fault { return replyLost }, "executed later": func(r *rig) fault { return r.later }, "never executed": func(*rig) fault { return dropped },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, holdover.StageShadow, 2, still)
			r.next(redisOps("Vote"), f(r))
			g := newGate(t)
			r.next(redisOps("GiveBack"), g.hang)
			q := r.one()
			done := async(func() outcome { return reserveOn(r.f, q) })
			g.wait(t)
			if err := r.f.DrainOnce(t.Context()); err != nil { // looks the token up before it is given back
				t.Fatal(err)
			}
			g.open()
			wantErr(t, "reserve", await(t, done, "the reserve"), holdover.ErrUnknownOutcome)
			r.runLate()
			_ = r.f.DrainOnce(t.Context())
			if name != "executed later" {
				r.calm(t)
				r.states(t, q.Token, "none", "none")
				r.conserved(t, r.shop, 1, 2, 0, 0)
			}
			wantOK(t, "repeat", reserveOn(r.f, q))
			r.calm(t)
			r.states(t, q.Token, "held", "held")
			r.conserved(t, r.shop, 1, 2, 1, 0)
		})
	}
}

// Pitfall 49: the mirror carries the expiry, however late it comes.
func TestMirrorCarriesTheExpiry(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageMySQL} {
		r := newRig(t, stage, 1, still)
		mirror := mysqlOps("Apply")
		if stage == holdover.StageMySQL {
			mirror = redisOps("Copy")
		}
		r.next(mirror, dropped)
		q := r.one()
		wantOK(t, "reserve", reserveOn(r.f, q))
		eventually(t, "the lane has tried", func() bool { return r.f.Stats().LaneJobs == 0 })
		r.calm(t)
		redis, err := r.raw.HGet(t.Context(), "hold:"+q.Token.String(), "expires_ms").Int64()
		if err != nil {
			t.Fatal(err)
		}
		mysql := r.count(t, "SELECT CAST(ROUND(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at)/1000) AS SIGNED) FROM reserved_quantities WHERE token=?", q.Token[:])
		if redis != mysql {
			t.Errorf("%s: it expires at %d in redis and at %d in mysql", stage, redis, mysql)
		}
	}
}

// What happens to a token while it is being reconciled is not forgotten with it.
func TestReconcileForgetsOnlyWhatItCarried(t *testing.T) {
	r := newRig(t, holdover.StageShadow, 1, still)
	r.next(mysqlOps("Apply"), dropped)
	token := r.hold(t)
	r.next(mysqlOps("Apply"), dropped) // of the release
	r.next(mysqlOps("Apply"), before(func() {
		wantOK(t, "release", releaseOn(r.f, r.shop, token))
		eventually(t, "the lane has tried", func() bool { return r.f.Stats().LaneJobs == 0 })
	}))
	if err := r.f.DrainOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := r.f.Stats(); st.Unmirrored != 1 {
		t.Errorf("%d tokens are remembered: the release is forgotten", st.Unmirrored)
	}
	r.calm(t)
	r.states(t, token, "released", "released")
	r.conserved(t, r.shop, 1, 1, 0, 0)
}

// One token that MySQL can't take does not hold up the ones behind it.
func TestOneBadTokenDoesNotStopTheDrain(t *testing.T) {
	r := newRig(t, holdover.StageShadow, 5, still, func(c *dualwrite.Config) { c.DrainBatch = 1 })
	if _, err := r.redis.Load(t.Context(), r.shop, map[int64]int64{2: 5}, false); err != nil { // not in the ledger
		t.Fatal(err)
	}
	bad := request(r.shop, holdover.NewToken(), line(2, 1))
	wantOK(t, "reserve", reserveOn(r.f, bad))
	eventually(t, "it is unmirrored", func() bool { st := r.f.Stats(); return st.LaneJobs == 0 && st.Unmirrored == 1 })
	r.next(mysqlOps("Apply"), dropped)
	token := r.hold(t)
	eventually(t, "the one behind it is mirrored", func() bool {
		if err := r.f.DrainOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.mysqlState(t, token) == "held"
	})
	if st := r.f.Stats(); st.Unmirrored != 1 {
		t.Errorf("%d tokens are remembered, want the bad one", st.Unmirrored)
	}
}
