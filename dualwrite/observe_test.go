package dualwrite_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// recorder collects observations.
type recorder struct {
	mu   sync.Mutex
	seen []holdover.Observation
}

func (r *recorder) observe(o holdover.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, o)
}

func (r *recorder) of(token holdover.Token) (got []holdover.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.seen {
		if o.Token == token {
			got = append(got, o)
		}
	}
	return got
}

// observed is a rig whose observations are recorded.
func observed(t *testing.T, stage holdover.Stage, units int64, change ...func(*dualwrite.Config)) (*rig, *recorder) {
	rec := new(recorder)
	return newRig(t, stage, units, append([]func(*dualwrite.Config){func(c *dualwrite.Config) {
		c.Observe, c.RecheckEvery, c.RecheckTries, c.LaneLag = rec.observe, 5*time.Millisecond, 10_000, 50*time.Millisecond
	}}, change...)...), rec
}

// last waits for the n-th observation of the token and returns it.
func (r *recorder) last(t *testing.T, token holdover.Token, n int) holdover.Observation {
	t.Helper()
	eventually(t, "it is observed", func() bool { return len(r.of(token)) >= n })
	return r.of(token)[n-1]
}

const (
	none    = holdover.OutcomeNone
	granted = holdover.OutcomeGranted
	denied  = holdover.OutcomeRefused
)

// Each operation of a dual stage is observed once, with both stores' answers;
// nothing is in the stages that compare nothing.
func TestEachDualOperationIsObservedOnce(t *testing.T) {
	for _, stage := range holdover.Stages() {
		t.Run(stage.String(), func(t *testing.T) {
			r, rec := observed(t, stage, 3)
			type step struct {
				op           holdover.Op
				token        holdover.Token
				redis, mysql holdover.Outcome
				state        holdover.State
			}
			var steps []step
			did := func(op holdover.Op, token holdover.Token, redis, mysql holdover.Outcome, state holdover.State) {
				steps = append(steps, step{op, token, redis, mysql, state})
				eventually(t, "the lanes are empty", func() bool { return r.f.Stats().LaneJobs == 0 })
			}
			claimed, released, expired := r.one(), r.one(), r.one()
			expired.TTL = 100 * time.Millisecond
			for _, q := range []holdover.Request{claimed, released, expired} {
				wantOK(t, "reserve", reserveOn(r.f, q))
				did(holdover.OpReserve, q.Token, granted, granted, holdover.StateHeld)
			}
			refused := request(r.shop, holdover.NewToken(), line(1, 10))
			wantErr(t, "reserve too much", reserveOn(r.f, refused), holdover.ErrOutOfStock)
			did(holdover.OpReserve, refused.Token, denied, denied, holdover.StateNone)
			wantOK(t, "repeat", reserveOn(r.f, claimed))
			did(holdover.OpReserve, claimed.Token, granted, granted, holdover.StateHeld)
			wantOK(t, "claim", claimOn(r.f, r.shop, claimed.Token))
			did(holdover.OpClaim, claimed.Token, granted, granted, holdover.StateClaimed)
			wantOK(t, "release", releaseOn(r.f, r.shop, released.Token))
			did(holdover.OpRelease, released.Token, granted, granted, holdover.StateReleased)
			eventually(t, "it is expired", func() bool {
				if err := r.f.SweepOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
				return r.redisState(t, expired.Token) == "expired" || r.mysqlState(t, expired.Token) == "expired"
			})
			did(holdover.OpExpire, expired.Token, granted, granted, holdover.StateExpired)
			// What changes nothing is no operation.
			wantOK(t, "claim again", claimOn(r.f, r.shop, claimed.Token))
			wantOK(t, "release again", releaseOn(r.f, r.shop, released.Token))
			eventually(t, "the lanes are empty", func() bool { return r.f.Stats().LaneJobs == 0 })

			if !stage.Dual() {
				steps = nil
			}
			if n := r.f.Stats().Bypassed; n != 0 {
				t.Errorf("%d bypassed", n)
			}
			eventually(t, "all is observed", func() bool { rec.mu.Lock(); defer rec.mu.Unlock(); return len(rec.seen) >= len(steps) })
			rec.mu.Lock()
			defer rec.mu.Unlock()
			if len(rec.seen) != len(steps) {
				t.Errorf("%d observations of %d operations: %+v", len(rec.seen), len(steps), rec.seen)
			}
			fence, _ := r.f.Agreed()
			for _, want := range steps {
				i := slices.IndexFunc(rec.seen, func(o holdover.Observation) bool { return o.Op == want.op && o.Token == want.token })
				if i < 0 {
					t.Errorf("%s of %s is not observed", want.op, want.token)
					continue
				}
				o := rec.seen[i]
				rec.seen = slices.Delete(rec.seen, i, i+1)
				if o.Redis.Outcome != want.redis || o.MySQL.Outcome != want.mysql {
					t.Errorf("%s: redis %s, mysql %s, want %s and %s", o.Op, o.Redis.Outcome, o.MySQL.Outcome, want.redis, want.mysql)
				}
				if o.Pod != pod || o.Instance != "test" || o.Stage != stage || o.Epoch != fence.Epoch || o.Shop != r.shop || o.At.IsZero() || len(o.Lines) != 1 {
					t.Errorf("incomplete: %+v", o)
				}
				if want.redis != denied && o.Op != holdover.OpClaim && (o.Redis.State != want.state || o.MySQL.State != want.state) {
					t.Errorf("%s: %s in redis and %s in mysql, want %s", o.Op, o.Redis.State, o.MySQL.State, want.state)
				}
				if o.Redis.Latency <= 0 || o.MySQL.Latency <= 0 {
					t.Errorf("%s: redis took %s, mysql %s", o.Op, o.Redis.Latency, o.MySQL.Latency)
				}
				if len(o.Evidence) > 0 {
					t.Errorf("%s: evidence %v of nothing", o.Op, o.Evidence)
				}
				// Who was asked for a vote, and who by a look.
				redisProbe := want.redis == denied && stage == holdover.StageMySQL
				mysqlProbe := want.redis == denied && stage != holdover.StageMySQL
				if o.Redis.Probe != redisProbe || o.MySQL.Probe != mysqlProbe {
					t.Errorf("%s: probe is %t for redis and %t for mysql", o.Op, o.Redis.Probe, o.MySQL.Probe)
				}
				if want.redis == denied && (len(o.Redis.Remaining) == 0 || len(o.MySQL.Remaining) == 0) {
					t.Errorf("a refusal without what is left: %+v", o)
				}
			}
		})
	}
}

func wantEvidence(t *testing.T, o holdover.Observation, redis, mysql holdover.Outcome, want ...holdover.Evidence) {
	t.Helper()
	if o.Redis.Outcome != redis || o.MySQL.Outcome != mysql || !slices.Equal(o.Evidence, want) {
		t.Errorf("%s in %s: redis %s, mysql %s, evidence %v; want %s, %s, %v", o.Op, o.Stage, o.Redis.Outcome, o.MySQL.Outcome, o.Evidence, redis, mysql, want)
	}
	for _, e := range want {
		if !proves(o, e) {
			t.Errorf("%s in %s: %s without its proof: %+v", o.Op, o.Stage, e, o.Proof)
		}
	}
}

// proves: what was read when the evidence was recorded bears it out.
func proves(o holdover.Observation, e holdover.Evidence) bool {
	p := o.Proof
	if p == nil {
		return false
	}
	// sides: for every line, or for one, when all is false.
	sides := func(all bool, ok func(s holdover.ItemSides, l holdover.Line) bool) bool {
		n := 0
		for _, l := range o.Lines {
			for _, s := range p.Sides {
				if s.Item == l.Item && ok(s, l) {
					n++
				}
			}
		}
		return n == len(o.Lines) || n > 0 && !all
	}
	free := func(s holdover.ItemSides, group int64) (n int64) {
		for _, at := range s.MySQL {
			if group == 0 || at.Group == group {
				n += at.Free()
			}
		}
		return n
	}
	switch e {
	case holdover.EvidenceEpochMoved:
		return p.EpochBegan > 0 && p.EpochEnded > p.EpochBegan && o.Marks.Has(holdover.MarkMoved)
	case holdover.EvidencePreShadow:
		return !p.GrantedAt.IsZero() && p.GrantedAt.Before(p.DualSince)
	case holdover.EvidenceMirrorLost:
		return p.Cause != ""
	case holdover.EvidenceOtherLocations:
		return sides(false, func(s holdover.ItemSides, l holdover.Line) bool {
			return free(s, l.Group) < l.Quantity && free(s, 0) >= l.Quantity
		})
	case holdover.EvidencePoolShort:
		return sides(true, func(s holdover.ItemSides, l holdover.Line) bool { return free(s, l.Group) >= l.Quantity })
	case holdover.EvidenceLastUnits:
		return p.Overlapping > 0 || sides(true, func(s holdover.ItemSides, _ holdover.Line) bool { return s.Redis == free(s, 0) })
	case holdover.EvidenceExpiryBetween:
		first := p.RedisExpires
		if p.MySQLExpires.Before(first) {
			first = p.MySQLExpires
		}
		return !first.IsZero() && !p.AnsweredAt.Before(first)
	}
	return false
}

// Mirror work that failed or was dropped is evidence, and no difference.
func TestLostMirrorIsEvidence(t *testing.T) {
	t.Run("failed", func(t *testing.T) {
		r, rec := observed(t, holdover.StageShadow, 2, still)
		r.inject(mysqlOps("Apply"), dropped)
		q := r.one()
		wantOK(t, "reserve", reserveOn(r.f, q))
		wantEvidence(t, rec.last(t, q.Token, 1), granted, holdover.OutcomeUnknown, holdover.EvidenceMirrorLost)
		wantOK(t, "release", releaseOn(r.f, r.shop, q.Token))
		wantEvidence(t, rec.last(t, q.Token, 2), granted, holdover.OutcomeUnknown, holdover.EvidenceMirrorLost)
	})
	t.Run("shed", func(t *testing.T) {
		r, rec := observed(t, holdover.StageShadow, 5, still, func(c *dualwrite.Config) { c.Lanes, c.LaneDepth = 1, 1 })
		g := newGate(t)
		r.inject(mysqlOps(), g.hang)
		wantOK(t, "reserve", reserveOn(r.f, r.one()))
		g.wait(t) // the lane works on the first one
		wantOK(t, "reserve", reserveOn(r.f, r.one()))
		q := r.one()
		wantOK(t, "reserve", reserveOn(r.f, q))
		wantEvidence(t, rec.last(t, q.Token, 1), granted, holdover.OutcomeShed, holdover.EvidenceMirrorLost)
		wantOK(t, "release", releaseOn(r.f, r.shop, q.Token))
		wantEvidence(t, rec.last(t, q.Token, 2), granted, holdover.OutcomeShed, holdover.EvidenceMirrorLost)
		refused := request(r.shop, holdover.NewToken(), line(1, 10))
		wantErr(t, "reserve too much", reserveOn(r.f, refused), holdover.ErrOutOfStock)
		if o := rec.last(t, refused.Token, 1); o.MySQL.Outcome != holdover.OutcomeShed || !o.MySQL.Probe {
			t.Errorf("a probe that was shed: %+v", o.MySQL)
		}
	})
}

// A flip during an operation is evidence, whether the operation followed it or
// was over before it could.
func TestEpochMovedIsEvidence(t *testing.T) {
	for _, c := range []struct {
		from  holdover.Stage
		point killPoint
		want  holdover.Stage // of the one observation
	}{
		{holdover.StageMySQL, killPoint{"Vote", holdover.StoreMySQL, true}, holdover.StageShadow},
		{holdover.StageMySQL, killPoint{"Copy", holdover.StoreRedis, true}, holdover.StageMySQL},
		{holdover.StageJoint, killPoint{"Vote", holdover.StoreRedis, true}, holdover.StageShadow},
		{holdover.StageJoint, killPoint{"Vote", holdover.StoreMySQL, true}, holdover.StageShadow},
		{holdover.StageShadow, killPoint{"Apply", holdover.StoreMySQL, true}, holdover.StageShadow},
	} {
		t.Run(c.from.String()+"/"+c.point.String(), func(t *testing.T) {
			r, rec := observed(t, c.from, 2)
			sw := newSwitch(t, r.stores)
			r.next(c.point.match(), c.point.hook(func() {
				trip(t, sw)
				if err := r.f.Refresh(t.Context()); err != nil {
					t.Error(err)
				}
			}, plain))
			q := r.one()
			wantOK(t, "reserve", reserveOn(r.f, q))
			o := rec.last(t, q.Token, 1)
			wantEvidence(t, o, granted, granted, holdover.EvidenceEpochMoved)
			if o.Stage != c.want {
				t.Errorf("observed in %s, want %s", o.Stage, c.want)
			}
			r.calm(t)
			if n := len(rec.of(q.Token)); n != 1 {
				t.Errorf("%d observations", n)
			}
		})
	}
}

// Redis has no locations: it grants what MySQL has elsewhere only.
func TestOtherLocationsIsEvidence(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageMySQL} {
		r, rec := observed(t, stage, 1)
		r.load(t, r.shop, map[[2]int64]int64{{5, 1}: 3, {5, 2}: 0})
		q := request(r.shop, holdover.NewToken(), holdover.Line{Item: 5, Group: 2, Quantity: 1})
		got := reserveOn(r.f, q)
		if stage == holdover.StageShadow {
			wantOK(t, "redis sees the sum", got)
			wantEvidence(t, rec.last(t, q.Token, 1), granted, denied, holdover.EvidenceOtherLocations)
			eventually(t, "it is a debt", func() bool { return r.f.Stats().Debts == 1 })
		} else {
			wantErr(t, "mysql sees the location", got, holdover.ErrOutOfStock)
			o := rec.last(t, q.Token, 1)
			wantEvidence(t, o, granted, denied, holdover.EvidenceOtherLocations)
			if !o.Redis.Probe || o.MySQL.Probe {
				t.Errorf("redis was asked by a look: %+v", o)
			}
		}
	}
}

// lookedAt counts the looks at what MySQL has.
type lookedAt struct {
	dualwrite.MySQL
	looks *atomic.Int64
}

func (l lookedAt) Levels(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, map[int64]int64, error) {
	l.looks.Add(1)
	return l.MySQL.Levels(ctx, shop, items)
}

// A refusal that the other store would not have given is looked at again: lag
// is evidence of last units in flight, a lasting difference is none.
func TestLastUnitsIsEvidenceAfterALookAgain(t *testing.T) {
	t.Run("lag", func(t *testing.T) {
		looks := new(atomic.Int64)
		r, rec := observed(t, holdover.StageShadow, 1, func(c *dualwrite.Config) {
			c.RecheckTries, c.MySQL = 1_000_000, lookedAt{c.MySQL, looks}
		})
		g := newGate(t)
		r.next(mysqlOps("Apply"), g.hang)
		first, second := r.one(), r.one()
		second.Token[15] = first.Token[15] + 1 // in another lane
		wantOK(t, "reserve", reserveOn(r.f, first))
		g.wait(t)
		wantErr(t, "the second buyer", reserveOn(r.f, second), holdover.ErrOutOfStock)
		eventually(t, "it was looked at again", func() bool { return looks.Load() >= 2 })
		if n := len(rec.of(second.Token)); n != 0 {
			t.Errorf("observed before the look again was over: %+v", rec.of(second.Token))
		}
		g.open()
		o := rec.last(t, second.Token, 1)
		wantEvidence(t, o, denied, granted, holdover.EvidenceLastUnits)
		if !o.MySQL.Probe {
			t.Error("not marked as a probe")
		}
		if o.Proof == nil || o.Proof.Overlapping != 1 {
			t.Errorf("the first buyer was under way: %+v", o.Proof)
		}
	})
	t.Run("lasting", func(t *testing.T) {
		r, rec := observed(t, holdover.StageShadow, 1)
		if err := r.raw.Set(t.Context(), "inventory:"+text(r.shop)+":1", 0, 0).Err(); err != nil { // a foreign write
			t.Fatal(err)
		}
		q := r.one()
		wantErr(t, "reserve", reserveOn(r.f, q), holdover.ErrOutOfStock)
		o := rec.last(t, q.Token, 1)
		wantEvidence(t, o, denied, granted)
		if o.Proof == nil || len(o.Proof.Sides) != 1 || o.Proof.Sides[0].Redis != 0 || len(o.Proof.Sides[0].MySQL) != 1 || o.Proof.Sides[0].MySQL[0].Free() != 1 {
			t.Errorf("nothing to investigate it with: %+v", o.Proof)
		}
	})
	t.Run("lasting, a debt", func(t *testing.T) {
		r, rec := observed(t, holdover.StageShadow, 0)
		if err := r.raw.Set(t.Context(), "inventory:"+text(r.shop)+":1", 5, 0).Err(); err != nil {
			t.Fatal(err)
		}
		q := r.one()
		wantOK(t, "reserve", reserveOn(r.f, q))
		wantEvidence(t, rec.last(t, q.Token, 1), granted, denied) // and not that nothing can be said
		if st := r.f.Stats(); st.Debts != 1 {
			t.Errorf("%d debts", st.Debts)
		}
	})
	t.Run("lasting, in mysql", func(t *testing.T) {
		r, rec := observed(t, holdover.StageMySQL, 0)
		if err := r.raw.Set(t.Context(), "inventory:"+text(r.shop)+":1", 5, 0).Err(); err != nil {
			t.Fatal(err)
		}
		q := r.one()
		wantErr(t, "reserve", reserveOn(r.f, q), holdover.ErrOutOfStock)
		wantEvidence(t, rec.last(t, q.Token, 1), granted, denied)
	})
	t.Run("a copy below zero", func(t *testing.T) {
		r, rec := observed(t, holdover.StageMySQL, 1)
		if err := r.raw.Set(t.Context(), "inventory:"+text(r.shop)+":1", 0, 0).Err(); err != nil {
			t.Fatal(err)
		}
		q := r.one()
		wantOK(t, "reserve", reserveOn(r.f, q))
		wantEvidence(t, rec.last(t, q.Token, 1), denied, granted)
	})
}

// A hold from before dual writing is known as such.
func TestPreShadowIsEvidence(t *testing.T) {
	r, rec := observed(t, holdover.StageRedis, 3)
	released, claimed, replayed := r.hold(t), r.hold(t), r.hold(t)
	reach(t, r.f, holdover.StageShadow)
	wantOK(t, "release", releaseOn(r.f, r.shop, released))
	wantEvidence(t, rec.last(t, released, 1), granted, denied, holdover.EvidencePreShadow) // MySQL never had it
	wantOK(t, "claim", claimOn(r.f, r.shop, claimed))
	wantEvidence(t, rec.last(t, claimed, 1), granted, denied, holdover.EvidencePreShadow) // MySQL never had it
	wantOK(t, "repeat", reserveOn(r.f, request(r.shop, replayed, line(1, 1))))
	wantEvidence(t, rec.last(t, replayed, 1), granted, granted, holdover.EvidencePreShadow)
	fresh := r.hold(t)
	wantEvidence(t, rec.last(t, fresh, 1), granted, granted)
}
