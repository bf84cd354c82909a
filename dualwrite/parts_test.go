package dualwrite_test

import (
	"context"
	"testing"

	"holdover"
	"holdover/dualwrite"
)

func claimPartOn(f *dualwrite.Facade, shop int64, token holdover.Token, lines ...holdover.Line) outcome {
	res, err := f.Claim(context.Background(), shop, token, lines...)
	return outcome{res, err}
}

const partStock = 10 // of items 1 and 2

// cart reserves 3 units of item 1 and 2 of item 2, and waits until both stores
// are done.
func (r *rig) cart(t *testing.T) holdover.Token {
	t.Helper()
	r.load(t, r.shop, map[[2]int64]int64{{2, 1}: partStock})
	token := holdover.NewToken()
	if got := reserveOn(r.f, request(r.shop, token, line(1, 3), line(2, 2))); got.err != nil {
		t.Fatal(got)
	}
	eventually(t, "the grant is mirrored", func() bool { return r.f.Stats().LaneJobs == 0 })
	return token
}

// sweep rolls forward what is marked, on another instance, until Redis has it
// in a state.
func (r *rig) sweep(t *testing.T, f *dualwrite.Facade, token holdover.Token, state string) {
	t.Helper()
	eventually(t, "it is "+state+" in redis", func() bool {
		if err := f.SweepOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.redisState(t, token) == state
	})
}

// partClaimed fails unless one unit of item 1 is claimed, and nothing else.
func (r *rig) partClaimed(t *testing.T, stage holdover.Stage, token holdover.Token) {
	t.Helper()
	if stage.Dual() {
		r.calm(t)
		r.conserved(t, r.shop, 1, partStock, 0, 1)
		r.conserved(t, r.shop, 2, partStock, 0, 0)
	} else if r.sold(t, r.shop, 1) != 1 || r.sold(t, r.shop, 2) != 0 {
		t.Errorf("%d and %d units sold, want 1 and 0", r.sold(t, r.shop, 1), r.sold(t, r.shop, 2))
	}
	if n := r.count(t, "SELECT COUNT(*) FROM ledger_entries WHERE token=?", token[:]); n != 1 {
		t.Errorf("%d entries in the ledger, want 1", n)
	}
	again := claimPartOn(r.f, r.shop, token, line(1, 1))
	if again.err != nil || !again.res.Replayed || len(again.res.Hold.Claimed) != 1 || again.res.Hold.Claimed[0] != line(1, 1) {
		t.Errorf("the claim repeated: told %v, %+v", again, again.res.Hold)
	}
	wantErr(t, "a claim of another part", claimPartOn(r.f, r.shop, token, line(2, 1)), holdover.ErrTokenReused)
	wantErr(t, "a claim of all", claimOn(r.f, r.shop, token), holdover.ErrTokenReused)
}

// MySQL gives no answer after the mark: the claim of a part is pending, the rest
// is back at once, and any instance rolls forward what was marked.
func TestPendingClaimOfAPart(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageRedis, holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		for name, f := range map[string]func(*rig) fault{
			"ledger away": func(*rig) fault { return dropped }, "answer lost": func(*rig) fault { return replyLost }, "executed later": func(r *rig) fault { return r.later },
		} {
			t.Run(stage.String()+"/"+name, func(t *testing.T) {
				r := newRig(t, stage, partStock)
				token := r.cart(t)
				r.next(mysqlOps("Apply"), f(r))
				if got := claimPartOn(r.f, r.shop, token, line(1, 1)); got.err != nil || !got.res.Pending {
					t.Fatalf("claim: told %v", got)
				}
				if a, b := r.counter(t, r.shop, 1), r.counter(t, r.shop, 2); a != partStock-1 || b != partStock {
					t.Errorf("redis has %d and %d units, want the rest back", a, b)
				}
				r.sweep(t, r.another(t), token, "claimed")
				r.runLate()
				r.partClaimed(t, stage, token)
			})
		}
	}
}

// Redis's answer to the mark is lost.
func TestLostReplyOfAMarkOfAPart(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageRedis, holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		for name, f := range map[string]func(*rig) fault{
			"answer lost": func(*rig) fault { return replyLost }, "dropped": func(*rig) fault { return dropped }, "executed later": func(r *rig) fault { return r.later },
		} {
			t.Run(stage.String()+"/"+name, func(t *testing.T) {
				r := newRig(t, stage, partStock)
				token := r.cart(t)
				r.next(redisOps("Mark"), f(r))
				got := claimPartOn(r.f, r.shop, token, line(1, 1))
				if stage == holdover.StageMySQL { // MySQL claims it alone, and its journal carries the part
					wantOK(t, "claim", got)
				} else {
					wantErr(t, "claim", got, holdover.ErrUnknownOutcome)
					wantOK(t, "claim again", claimPartOn(r.f, r.shop, token, line(1, 1)))
				}
				eventually(t, "the lanes are empty", func() bool { return r.f.Stats().LaneJobs == 0 })
				if err := r.f.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.runLate()
				r.partClaimed(t, stage, token)
			})
		}
	}
}

// Two claims of different parts, the second while Redis is away: the ledger takes
// one, and Redis follows it, whatever its mark was for.
func TestLedgerDecidesBetweenTwoParts(t *testing.T) {
	for _, byTheSweep := range []bool{false, true} {
		r := newRig(t, holdover.StageMySQL, partStock, still)
		other := &rig{stores: r.stores, faults: new(faults), shop: r.shop}
		other.f = r.another(t, still, wrap(other.faults))
		token := r.cart(t)
		claimAlone := func() {
			other.inject(redisOps(), dropped)
			wantOK(t, "the claim that redis does not hear of", claimPartOn(other.f, r.shop, token, line(1, 1)))
			other.heal()
		}
		if byTheSweep { // marked, and its instance dies
			r.next(mysqlOps("Apply"), dropped)
			if got := claimPartOn(r.f, r.shop, token, line(1, 2), line(2, 1)); got.err != nil || !got.res.Pending {
				t.Fatalf("claim: told %v", got)
			}
			claimAlone()
			r.sweep(t, r.another(t, still), token, "claimed")
		} else {
			r.next(mysqlOps("Apply"), before(claimAlone))
			wantErr(t, "the claim that comes second", claimPartOn(r.f, r.shop, token, line(1, 2), line(2, 1)), holdover.ErrTokenReused)
		}
		if err := other.f.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.calm(t, other.f)
		r.partClaimed(t, holdover.StageMySQL, token)
	}
}

// A mark of a part whose claim finds an end record in MySQL is rolled back: what
// the mark still kept comes back, once.
func TestMarkOfAPartIsRolledBackWhenMySQLHasAnEndRecord(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageJoint, holdover.StageMySQL} {
		for _, byTheSweep := range []bool{false, true} {
			r := newRig(t, stage, partStock)
			token := r.cart(t)
			fence, _ := r.f.Agreed()
			if _, err := r.mysql.End(t.Context(), fence.Epoch, 0, token, holdover.StateReleased, false); err != nil {
				t.Fatal(err)
			}
			if byTheSweep {
				r.next(mysqlOps("Apply"), dropped)
				if got := claimPartOn(r.f, r.shop, token, line(1, 1)); got.err != nil || !got.res.Pending {
					t.Errorf("claim: told %v", got)
				}
				r.sweep(t, r.f, token, "released")
			} else {
				wantErr(t, "claim", claimPartOn(r.f, r.shop, token, line(1, 1)), holdover.ErrEnded)
			}
			r.calm(t)
			r.states(t, token, "released", "released")
			r.conserved(t, r.shop, 1, partStock, 0, 0)
			r.conserved(t, r.shop, 2, partStock, 0, 0)
		}
	}
}

// The kill carries a claim of a part that only MySQL knew: Redis decides now,
// and has the rest to sell at once.
func TestKillCarriesAClaimOfAPart(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, partStock, still)
	sw := newSwitch(t, r.stores)
	token := r.cart(t)
	r.inject(redisOps(), dropped)
	wantOK(t, "claim with redis away", claimPartOn(r.f, r.shop, token, line(1, 1)))
	if state := r.redisState(t, token); state != "held" {
		t.Fatalf("it is %s in redis: this test shows nothing", state)
	}
	trip(t, sw)
	if state := r.redisState(t, token); state != "claimed" {
		t.Errorf("after the kill it is %s in redis", state)
	}
	if a, b := r.counter(t, r.shop, 1), r.counter(t, r.shop, 2); a != partStock-1 || b != partStock {
		t.Errorf("redis has %d and %d units after the kill", a, b)
	}
	r.heal()
	r.partClaimed(t, holdover.StageShadow, token)
}

// A hold that only MySQL knows is honoured as a vote for all of its units, and
// then a part of it is claimed.
func TestPartOfAHoldThatOnlyMySQLKnows(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint} {
		r := newRig(t, stage, partStock, still)
		r.load(t, r.shop, map[[2]int64]int64{{2, 1}: partStock})
		fence, _ := r.f.Agreed()
		q := request(r.shop, holdover.NewToken(), line(1, 3), line(2, 2))
		if _, err := r.mysql.Vote(t.Context(), holdover.Ticket{Epoch: fence.Epoch}, q, false); err != nil {
			t.Fatal(err)
		}
		wantOK(t, "claim", claimPartOn(r.f, r.shop, q.Token, line(1, 1)))
		r.partClaimed(t, stage, q.Token)
	}
}
