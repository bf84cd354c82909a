package dualwrite_test

import (
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// Rule 15: whatever arrives after the end never revives a token.
func TestLateStepsNeverReviveAnEndedToken(t *testing.T) {
	for _, c := range []struct {
		name  string
		stage holdover.Stage
		match func(call) bool
	}{
		{"late mirror of the grant", holdover.StageShadow, mysqlOps("Apply")},
		{"late copy", holdover.StageMySQL, redisOps("Copy")},
	} {
		for _, how := range []string{"released", "claimed"} {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				r := newRig(t, c.stage, 2, still)
				r.next(c.match, r.later)
				q := r.one()
				wantOK(t, "reserve", reserveOn(r.f, q))
				eventually(t, "the lane has tried", func() bool { return r.f.Stats().LaneJobs == 0 })
				if err := r.f.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				sold, want := int64(0), holdover.ErrEnded
				if how == "claimed" {
					sold, want = 1, holdover.ErrAlreadyClaimed
					wantOK(t, "claim", claimOn(r.f, r.shop, q.Token))
				} else {
					wantOK(t, "release", releaseOn(r.f, r.shop, q.Token))
				}
				r.runLate()
				r.calm(t)
				if err := r.f.SweepOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.conserved(t, r.shop, 1, 2, 0, sold)
				wantErr(t, "reserve with the ended token", reserveOn(r.f, q), want)
			})
		}
	}
}

// A vote that gave no answer and runs after its buyer has gone takes units that
// nobody was told of: its time to live ends them, in both stores, also after a
// release that found nothing to end.
func TestLateVotesEndWithTheirTimeToLive(t *testing.T) {
	for _, c := range []struct {
		name  string
		stage holdover.Stage
		match func(call) bool
	}{
		{"redis", holdover.StageShadow, redisOps("Vote")},
		{"redis", holdover.StageJoint, redisOps("Vote")},
		{"mysql", holdover.StageJoint, mysqlOps("Vote")},
		{"mysql", holdover.StageMySQL, mysqlOps("Vote")},
		{"mysql", holdover.StageMySQLOnly, mysqlOps("Vote")},
	} {
		t.Run(c.stage.String()+"/"+c.name, func(t *testing.T) {
			r := newRig(t, c.stage, 2, func(c *dualwrite.Config) { c.ReaperGrace = time.Millisecond })
			r.next(c.match, r.later)
			q := r.one()
			q.TTL = 200 * time.Millisecond
			wantErr(t, "reserve", reserveOn(r.f, q), holdover.ErrUnknownOutcome)
			eventually(t, "the lane has tried", func() bool { return r.f.Stats().LaneJobs == 0 })
			wantErr(t, "release", releaseOn(r.f, r.shop, q.Token), holdover.ErrUnknownHold)
			r.runLate()
			eventually(t, "its time has ended", func() bool {
				if err := r.f.SweepOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
				return r.liveInMySQL(t, r.shop, 1) == 0 && (c.stage == holdover.StageMySQLOnly || r.liveInRedis(t, r.shop, 1) == 0)
			})
			if c.stage != holdover.StageMySQLOnly {
				r.calm(t)
				r.conserved(t, r.shop, 1, 2, 0, 0)
			}
		})
	}
}

// Rule 12: with the ledger away a claim is pending; it can't be released and
// does not expire, and other instances roll it forward exactly once.
func TestPendingClaimIsRolledForwardExactlyOnce(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageRedis, holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		for name, f := range map[string]func(*rig) fault{
			"ledger away": func(*rig) fault { return dropped }, "answer lost": func(*rig) fault { return replyLost }, "executed later": func(r *rig) fault { return r.later },
		} {
			t.Run(stage.String()+"/"+name, func(t *testing.T) {
				r := newRig(t, stage, 2)
				q := r.one()
				q.TTL = 200 * time.Millisecond
				wantOK(t, "reserve", reserveOn(r.f, q))
				eventually(t, "the grant is mirrored", func() bool { return r.f.Stats().LaneJobs == 0 })
				r.next(mysqlOps("Apply"), f(r))
				got := claimOn(r.f, r.shop, q.Token)
				if got.err != nil || !got.res.Pending {
					t.Errorf("claim: told %v, pending %t", got, got.res.Pending)
				}
				wantErr(t, "release", releaseOn(r.f, r.shop, q.Token), holdover.ErrClaimPending)
				if state := r.redisState(t, q.Token); state != "claiming" {
					t.Errorf("redis has it %s", state)
				}
				others := []*dualwrite.Facade{r.another(t), r.another(t)}
				eventually(t, "the claim is applied", func() bool {
					var sweeps sync.WaitGroup
					for _, f := range others {
						sweeps.Go(func() {
							if err := f.SweepOnce(t.Context()); err != nil {
								t.Errorf("sweep: %v", err)
							}
						})
					}
					sweeps.Wait()
					return r.redisState(t, q.Token) == "claimed"
				})
				r.runLate()
				wantOK(t, "claim again", claimOn(r.f, r.shop, q.Token))
				r.states(t, q.Token, "claimed", "claimed")
				if n := r.count(t, "SELECT COUNT(*) FROM ledger_entries WHERE token=?", q.Token[:]); n != 1 {
					t.Errorf("%d entries in the ledger, want 1", n)
				}
				r.conserved(t, r.shop, 1, 2, 0, 1)
			})
		}
	}
}

// A mark whose claim finds an end record in MySQL is rolled back, by the call
// and by the sweep.
func TestMarkIsRolledBackWhenMySQLHasAnEndRecord(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageJoint, holdover.StageMySQL} {
		for _, byTheSweep := range []bool{false, true} {
			r := newRig(t, stage, 1)
			token := r.hold(t)
			fence, _ := r.f.Agreed()
			if _, err := r.mysql.End(t.Context(), fence.Epoch, 0, token, holdover.StateReleased, false); err != nil {
				t.Fatal(err)
			}
			if byTheSweep {
				r.next(mysqlOps("Apply"), dropped)
				if got := claimOn(r.f, r.shop, token); got.err != nil || !got.res.Pending {
					t.Errorf("claim: told %v", got)
				}
				eventually(t, "the mark is rolled back", func() bool {
					if err := r.f.SweepOnce(t.Context()); err != nil {
						t.Fatal(err)
					}
					return r.redisState(t, token) == "released"
				})
			} else {
				wantErr(t, "claim", claimOn(r.f, r.shop, token), holdover.ErrEnded)
			}
			r.calm(t)
			r.states(t, token, "released", "released")
			r.conserved(t, r.shop, 1, 1, 0, 0)
		}
	}
}

// Claims and releases of one hold at once, on two instances.
func TestClaimAndReleaseAtOnce(t *testing.T) {
	for _, stage := range holdover.Stages() {
		t.Run(stage.String(), func(t *testing.T) {
			const holds = 16
			c := newCrossing(t, flip{from: stage, to: stage})
			shop := c.start(t, map[[2]int64]int64{{1, 1}: 100})
			for range holds {
				token := holdover.NewToken()
				if got := reserveOn(c.ahead, request(shop, token, line(1, 1))); got.err != nil {
					t.Fatal(got)
				}
				claim := async(func() outcome { return claimOn(c.ahead, shop, token) })
				release := async(func() outcome { return releaseOn(c.behind, shop, token) })
				claimed, released := await(t, claim, "the claim"), await(t, release, "the release")
				if (claimed.err == nil) == (released.err == nil) {
					t.Errorf("claim was told %v,\nrelease was told %v", claimed, released)
				}
				c.settle(t)
				state := c.s.redisState(t, token)
				if stage == holdover.StageMySQLOnly {
					state = c.s.mysqlState(t, token)
				}
				if want := map[bool]string{true: "claimed", false: "released"}[claimed.err == nil]; state != want {
					t.Errorf("it is %s, want %s", state, want)
				}
			}
			sold := c.s.sold(t, shop, 1)
			if stage.Dual() {
				c.s.conserved(t, shop, 1, 100, 0, sold)
			} else if ledger := c.s.ledger(t, shop, 1); ledger != 100-sold {
				t.Errorf("%d sold, %d in the ledger", sold, ledger)
			}
		})
	}
}

// A release is a fact as soon as Redis has it: with MySQL silent the token is
// unmirrored, readiness says so, and it is reconciled.
func TestReleaseWithMySQLSilentIsReconciled(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		for name, f := range map[string]fault{"away": dropped, "answer lost": replyLost, "panicking": panics} {
			t.Run(stage.String()+"/"+name, func(t *testing.T) {
				r := newRig(t, stage, 1, still)
				token := r.hold(t)
				r.next(mysqlOps("Apply"), f)
				wantOK(t, "release", releaseOn(r.f, r.shop, token))
				eventually(t, "it is unmirrored", func() bool { st := r.f.Stats(); return st.LaneJobs == 0 && st.Unmirrored == 1 })
				if r.f.Busy() == 0 {
					t.Error("the heartbeat says that nothing is left to carry over")
				}
				r.calm(t)
				r.states(t, token, "released", "released")
				r.conserved(t, r.shop, 1, 1, 0, 0)
			})
		}
	}
}

// Rule 13: expiry in each stage: the truth's reaper finds it, and it ends in
// both stores, as an expiry.
func TestExpiryInEachStage(t *testing.T) {
	for _, stage := range holdover.Stages() {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 2, func(c *dualwrite.Config) { c.ReaperGrace = time.Hour })
			short, long := r.one(), r.one()
			short.TTL = 100 * time.Millisecond
			wantOK(t, "reserve", reserveOn(r.f, short))
			wantOK(t, "reserve", reserveOn(r.f, long))
			eventually(t, "the short one is past its time", func() bool {
				all, err := due(r.stores, stage)(t.Context(), 0, 0, nil, 10)
				return err == nil && len(all) == 1
			})
			// A hold ends when the expiry step runs, not when the clock passes.
			if res, err := r.f.Lookup(t.Context(), r.shop, short.Token); err != nil || res.Hold.State != holdover.StateHeld {
				t.Errorf("before the sweep: %+v, %v", res, err)
			}
			eventually(t, "it is expired", func() bool {
				if err := r.f.SweepOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
				if stage.Truth() == holdover.StoreMySQL {
					return r.mysqlState(t, short.Token) == "expired"
				}
				return r.redisState(t, short.Token) == "expired"
			})
			wantErr(t, "release of an expired hold", releaseOn(r.f, r.shop, short.Token), holdover.ErrEnded)
			switch stage {
			case holdover.StageRedis:
				r.states(t, long.Token, "held", "none")
			case holdover.StageMySQLOnly:
				r.states(t, short.Token, "none", "expired")
				r.states(t, long.Token, "none", "held")
			default:
				r.calm(t)
				r.states(t, short.Token, "expired", "expired")
				r.states(t, long.Token, "held", "held")
				r.conserved(t, r.shop, 1, 2, 1, 0)
			}
		})
	}
}

// The other store's holds wait for the grace period, and end as the truth says.
func TestOtherStoresReaperWaitsForTheGracePeriod(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		for _, known := range []string{"ended in the truth", "unknown to the truth"} {
			t.Run(stage.String()+"/"+known, func(t *testing.T) {
				r := newRig(t, stage, 2, still, func(c *dualwrite.Config) { c.ReaperGrace = time.Hour })
				hasty := r.another(t, still, func(c *dualwrite.Config) { c.ReaperGrace = time.Millisecond })
				fence, _ := r.f.Agreed()
				q := r.one()
				q.TTL = 100 * time.Millisecond
				// The hold is left over in the other store alone.
				other := r.mysqlState
				if stage == holdover.StageMySQL {
					other = r.redisState
				}
				if known == "unknown to the truth" {
					if stage == holdover.StageMySQL {
						h := holdover.Hold{Token: q.Token, Shop: r.shop, Lines: q.Lines, State: holdover.StateHeld, ExpiresAt: time.Now().Add(-time.Second), GrantedAt: time.Now().Add(-time.Minute), Attempt: 7}
						if _, err := r.redis.Apply(t.Context(), h); err != nil {
							t.Fatal(err)
						}
					} else if _, err := r.mysql.Vote(t.Context(), holdover.Ticket{Epoch: fence.Epoch, Attempt: 7}, q, false); err != nil {
						t.Fatal(err)
					}
				} else {
					wantOK(t, "reserve", reserveOn(r.f, q))
					eventually(t, "the grant is mirrored", func() bool { return r.f.Stats().LaneJobs == 0 })
					var err error
					if stage == holdover.StageMySQL {
						_, err = r.mysql.End(t.Context(), fence.Epoch, 0, q.Token, holdover.StateReleased, false)
					} else {
						_, err = r.redis.End(t.Context(), fence.Epoch, 0, q.Token, holdover.StateReleased)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				list := r.mysql.Due
				if stage == holdover.StageMySQL {
					list = r.redis.Due
				}
				eventually(t, "it is past its time", func() bool {
					all, err := list(t.Context(), 10*time.Millisecond, 0, nil, 10)
					return err == nil && len(all) == 1
				})
				if err := r.f.SweepOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
				if state := other(t, q.Token); state != "held" {
					t.Errorf("it is %s within the grace period", state)
				}
				if err := hasty.SweepOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.calm(t, hasty)
				want := "expired"
				if known == "ended in the truth" {
					want = "released" // as the truth ended it
				}
				if state := other(t, q.Token); state != want {
					t.Errorf("it is %s after the grace period, want %s", state, want)
				}
				r.conserved(t, r.shop, 1, 2, 0, 0)
			})
		}
	}
}

// An expiry that comes too early, by the clock of the store that decides about
// ends, is left alone in both.
func TestEarlyExpiryIsLeftAlone(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 1, func(c *dualwrite.Config) { c.ReaperGrace = time.Millisecond })
			token := r.hold(t)
			// MySQL's clock is ahead.
			if _, err := r.db.Exec("UPDATE reserved_quantities SET expires_at=UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE WHERE token=?", token[:]); err != nil {
				t.Fatal(err)
			}
			if err := r.f.SweepOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantErr(t, "a refusal looks for due holds first", reserveOn(r.f, r.one()), holdover.ErrOutOfStock)
			r.calm(t)
			r.states(t, token, "held", "held")
			r.conserved(t, r.shop, 1, 1, 1, 0)
		})
	}
}

// Nobody is refused for a hold that has run out: the refusal expires it first.
func TestRefusalExpiresWhatIsDueFirst(t *testing.T) {
	for _, stage := range holdover.Stages() {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 1)
			short := r.one()
			short.TTL = 100 * time.Millisecond
			wantOK(t, "reserve", reserveOn(r.f, short))
			eventually(t, "it is past its time", func() bool {
				all, err := due(r.stores, stage)(t.Context(), 0, 0, nil, 10)
				return err == nil && len(all) == 1
			})
			wantOK(t, "the next buyer", reserveOn(r.f, r.one()))
		})
	}
}

// Rule 16: a hold that only MySQL knows is honoured while Redis decides, but as
// a vote for units, and not when Redis has an end record.
func TestHoldThatOnlyMySQLKnowsIsAdoptedByAVote(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint} {
		left := func(t *testing.T, units int64) (*rig, holdover.Token) {
			r := newRig(t, stage, units, still)
			fence, _ := r.f.Agreed()
			q := r.one()
			if _, err := r.mysql.Vote(t.Context(), holdover.Ticket{Epoch: fence.Epoch}, q, false); err != nil {
				t.Fatal(err)
			}
			return r, q.Token
		}
		t.Run(stage.String()+"/redis has a unit", func(t *testing.T) {
			r, token := left(t, 2)
			wantOK(t, "claim", claimOn(r.f, r.shop, token))
			r.calm(t)
			r.states(t, token, "claimed", "claimed")
			r.conserved(t, r.shop, 1, 2, 0, 1)
		})
		t.Run(stage.String()+"/released", func(t *testing.T) {
			r, token := left(t, 2)
			wantErr(t, "release in another shop", releaseOn(r.f, r.shop+1, token), holdover.ErrUnknownHold)
			eventually(t, "the lane is done", func() bool { return r.f.Stats().LaneJobs == 0 })
			r.states(t, token, "none", "held")
			_ = releaseOn(r.f, r.shop, token)
			r.calm(t)
			r.states(t, token, "released", "released")
			r.conserved(t, r.shop, 1, 2, 0, 0)
			wantErr(t, "claim", claimOn(r.f, r.shop, token), holdover.ErrEnded)
		})
		t.Run(stage.String()+"/redis has no unit", func(t *testing.T) {
			r, token := left(t, 1)
			fence, _ := r.f.Agreed()
			other := r.one()
			if _, err := r.redis.Vote(t.Context(), holdover.Ticket{Epoch: fence.Epoch}, other); err != nil {
				t.Fatal(err)
			}
			wantErr(t, "claim", claimOn(r.f, r.shop, token), holdover.ErrUnknownHold)
			if sold := r.sold(t, r.shop, 1); sold != 0 {
				t.Errorf("%d units sold", sold)
			}
			wantOK(t, "claim of the hold that redis knows", claimOn(r.f, r.shop, other.Token))
		})
		t.Run(stage.String()+"/redis has an end record", func(t *testing.T) {
			r, token := left(t, 2)
			fence, _ := r.f.Agreed()
			if _, err := r.redis.End(t.Context(), fence.Epoch, 0, token, holdover.StateReleased); err != nil {
				t.Fatal(err)
			}
			wantErr(t, "claim", claimOn(r.f, r.shop, token), holdover.ErrEnded)
			if sold := r.sold(t, r.shop, 1); sold != 0 {
				t.Errorf("%d units sold", sold)
			}
		})
		t.Run(stage.String()+"/a store gives no answer", func(t *testing.T) {
			for _, match := range []func(call) bool{mysqlOps("Lookup"), redisOps("Vote")} {
				r, token := left(t, 2)
				r.next(match, dropped)
				// "No such hold" would be a lie to somebody who has paid.
				wantErr(t, "claim", claimOn(r.f, r.shop, token), holdover.ErrUnknownOutcome)
				wantOK(t, "claim again", claimOn(r.f, r.shop, token))
			}
		})
		t.Run(stage.String()+"/the agreement moves", func(t *testing.T) {
			r, token := left(t, 2)
			operator := r.another(t, still)
			r.next(redisOps("Vote"), before(func() {
				fence, _ := operator.Agreed()
				if _, err := operator.Step(t.Context(), fence, stage.Toward(holdover.StageMySQL), "test", "flip"); err != nil {
					t.Errorf("step: %v", err)
				}
			}))
			wantOK(t, "claim", claimOn(r.f, r.shop, token))
		})
	}
}

// Rule 17 and F7: the drain deletes only the version that it applied: a claim
// journaled while the grant is being carried over is not lost.
func TestDrainDeletesOnlyTheVersionItApplied(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 2, still)
	r.next(redisOps("Copy"), dropped)
	q := r.one()
	wantOK(t, "reserve", reserveOn(r.f, q))
	if err := r.f.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.next(redisOps("Apply"), after(func() { // redis goes away again, and the buyer claims on another instance
		other := r.another(t, still)
		fence, _ := other.Agreed()
		if _, err := r.mysql.Claim(t.Context(), fence.Epoch, r.shop, q.Token, nil, true); err != nil {
			t.Errorf("claim: %v", err)
		}
	}))
	if err := r.f.DrainOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.states(t, q.Token, "held", "claimed")
	if n := r.journal(t); n != 1 {
		t.Errorf("%d rows in the journal: the claim's is lost", n)
	}
	r.calm(t)
	r.states(t, q.Token, "claimed", "claimed")
	r.conserved(t, r.shop, 1, 2, 0, 1)
}
