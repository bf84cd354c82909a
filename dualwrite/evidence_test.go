package dualwrite_test

import (
	"context"
	"testing"
	"time"

	"holdover"
)

// refuse says that there are too few units, and asks nobody.
func refuse(hook func()) fault {
	return func(_ context.Context, c call, _ func(context.Context) error) error {
		hook()
		return &holdover.OutOfStockError{Store: c.store, Short: []holdover.Shortage{{Item: 1, Group: 1, Want: 1}}}
	}
}

// MySQL refuses although its ledger has the units: its pool was short, unless
// another operation on the item ended meanwhile.
func TestPoolShortIsEvidence(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			r, rec := observed(t, stage, 5)
			for _, overlapping := range []bool{false, true} {
				q := r.one()
				matches := func(c call) bool { return mysqlOps("Vote", "Apply")(c) && c.token == q.Token }
				r.inject(matches, refuse(func() { // each time: a refusal by a pool that is not empty is asked again
					if !overlapping {
						return
					}
					other := request(r.shop, holdover.NewToken(), line(1, 10))
					other.Token[15] = q.Token[15] + 1 // in another lane
					wantErr(t, "another buyer", reserveOn(r.f, other), holdover.ErrOutOfStock)
					rec.last(t, other.Token, 1)
				}))
				got := reserveOn(r.f, q)
				if stage == holdover.StageShadow {
					wantOK(t, "redis decides", got)
				} else {
					wantErr(t, "mysql refuses", got, holdover.ErrOutOfStock)
				}
				o := rec.last(t, q.Token, 1)
				// In mysql the first answer is the refusal itself: what ended before it is no part of the difference.
				if overlapping && stage != holdover.StageMySQL {
					wantEvidence(t, o, granted, denied, holdover.EvidenceLastUnits, holdover.EvidencePoolShort)
				} else {
					wantEvidence(t, o, granted, denied, holdover.EvidencePoolShort)
				}
			}
		})
	}
}

// A difference about a token whose earlier mirror work was lost is that loss.
func TestEarlierLossIsEvidence(t *testing.T) {
	r, rec := observed(t, holdover.StageShadow, 1, still)
	r.load(t, r.shop, map[[2]int64]int64{{5, 1}: 3, {5, 2}: 0})
	q := request(r.shop, holdover.NewToken(), holdover.Line{Item: 5, Group: 2, Quantity: 1})
	r.next(mysqlOps("Apply"), dropped)
	wantOK(t, "reserve", reserveOn(r.f, q))
	wantEvidence(t, rec.last(t, q.Token, 1), granted, holdover.OutcomeUnknown, holdover.EvidenceMirrorLost)
	wantOK(t, "repeat", reserveOn(r.f, q))
	wantEvidence(t, rec.last(t, q.Token, 2), granted, denied, holdover.EvidenceMirrorLost, holdover.EvidenceOtherLocations)
}

// An end, or an extension, that finds the hold alive in Redis and expired in
// MySQL: its time passed between the two answers.
func TestExpiryBetweenIsEvidence(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			r, rec := observed(t, stage, 5, still)
			for _, c := range []struct {
				op    holdover.Op
				mysql holdover.Outcome
				call  func(token holdover.Token)
			}{
				{holdover.OpClaim, denied, func(token holdover.Token) { claimOn(r.f, r.shop, token) }},
				{holdover.OpExtend, denied, func(token holdover.Token) { _, _ = r.f.Extend(t.Context(), r.shop, token, time.Minute) }},
				{holdover.OpRelease, granted, func(token holdover.Token) { releaseOn(r.f, r.shop, token) }},
			} {
				q := r.one()
				q.TTL = 2 * time.Second
				wantOK(t, "reserve", reserveOn(r.f, q))
				rec.last(t, q.Token, 1)
				r.next(func(c call) bool { return mysqlOps("Apply")(c) && c.token == q.Token }, before(func() {
					h, err := r.mysql.Lookup(t.Context(), q.Token)
					if err != nil {
						t.Error(err)
					}
					eventually(t, "its time has passed", func() bool { return time.Now().After(h.ExpiresAt) })
					h.State = holdover.StateExpired
					if _, err := r.mysql.Apply(t.Context(), h); err != nil {
						t.Error(err)
					}
				}))
				c.call(q.Token)
				o := rec.last(t, q.Token, 2)
				wantEvidence(t, o, granted, c.mysql, holdover.EvidenceExpiryBetween)
				if o.Op != c.op || o.MySQL.State != holdover.StateExpired || o.Redis.State == o.MySQL.State {
					t.Errorf("%s: redis has it %s, mysql %s", o.Op, o.Redis.State, o.MySQL.State)
				}
			}
		})
	}
}

// What was special about a call goes with its observation.
func TestMarks(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			r, rec := observed(t, stage, 20)
			r.load2(t, 20)
			want := func(o holdover.Observation, marks holdover.Marks) {
				t.Helper()
				if o.Marks != marks {
					t.Errorf("%s has marks %b, want %b", o.Op, o.Marks, marks)
				}
			}
			plain := r.one()
			wantOK(t, "reserve", reserveOn(r.f, plain))
			want(rec.last(t, plain.Token, 1), 0)
			wantOK(t, "repeat", reserveOn(r.f, plain))
			want(rec.last(t, plain.Token, 2), holdover.MarkReplayed)

			choice := r.either(1)
			wantOK(t, "choose", reserveOn(r.f, choice))
			want(rec.last(t, choice.Token, 1), holdover.MarkChoice)
			split := r.either(3)
			split.Choices[0].Split = true
			wantOK(t, "split", reserveOn(r.f, split))
			want(rec.last(t, split.Token, 1), holdover.MarkChoice|holdover.MarkSplit)

			part := request(r.shop, holdover.NewToken(), line(1, 3))
			wantOK(t, "reserve", reserveOn(r.f, part))
			rec.last(t, part.Token, 1)
			wantOK(t, "claim a part", claimPartOn(r.f, r.shop, part.Token, line(1, 2)))
			want(rec.last(t, part.Token, 2), holdover.MarkPart)

			late := r.expired(t, stage)
			wantLate(t, "claim late", claimOn(r.f, r.shop, late), late)
			want(rec.last(t, late.Late(), 1), holdover.MarkLate)
			want(rec.last(t, late.Late(), 2), holdover.MarkLate)
			if n := r.f.Stats().Bypassed; n != 0 {
				t.Errorf("%d bypassed", n)
			}
		})
	}
}

// A dual operation that ends before there is anything to compare is counted as
// bypassed; a caller's mistake is none.
func TestBypassedIsCounted(t *testing.T) {
	for _, stage := range holdover.Stages() {
		t.Run(stage.String(), func(t *testing.T) {
			r, rec := observed(t, stage, 5)
			hold := r.hold(t)
			// Mistakes, and repeats.
			wantErr(t, "other lines", reserveOn(r.f, request(r.shop, hold, line(1, 2))), holdover.ErrTokenReused)
			wantErr(t, "unknown", claimOn(r.f, r.shop, holdover.NewToken()), holdover.ErrUnknownHold)
			wantErr(t, "unknown", releaseOn(r.f, r.shop, holdover.NewToken()), holdover.ErrUnknownHold)
			wantOK(t, "claim", claimOn(r.f, r.shop, hold))
			wantOK(t, "claim again", claimOn(r.f, r.shop, hold))
			eventually(t, "the claim is cleared", func() bool { return r.f.Stats().LaneJobs == 0 })
			wantErr(t, "release", releaseOn(r.f, r.shop, hold), holdover.ErrAlreadyClaimed)
			if n := r.f.Stats().Bypassed; n != 0 {
				t.Errorf("%d bypassed", n)
			}
			wantErr(t, "no such item", reserveOn(r.f, request(r.shop, holdover.NewToken(), line(99, 1))), holdover.ErrNotLoaded)
			want := int64(0)
			if stage.Dual() {
				want = 1
			}
			if n := r.f.Stats().Bypassed; n != want {
				t.Errorf("%d bypassed, want %d", n, want)
			}
			if stage == holdover.StageMySQLOnly {
				return
			}
			// A release that Redis does not answer is in the denominator: observed where Redis begins it.
			token := r.hold(t)
			seen := len(rec.of(token))
			r.inject(redisOps("End"), dropped)
			releaseOn(r.f, r.shop, token)
			if stage.Dual() {
				rec.last(t, token, seen+1)
			}
			if n := r.f.Stats().Bypassed; n != want {
				t.Errorf("%d bypassed, want %d", n, want)
			}
		})
	}
}
