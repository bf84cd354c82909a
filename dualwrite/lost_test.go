package dualwrite_test

import (
	"testing"

	"holdover"
)

// Rule 19: a Redis that lost its data is neither raised nor used. In mysql
// buyers are served and what Redis lacks is journaled; where Redis decides they
// are told that it is not available; readiness names it in both.
func TestRedisThatLostItsData(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRig(t, stage, 3, still)
			before := r.hold(t)
			if err := r.raw.FlushDB(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			q := r.one()
			got, claimed := reserveOn(r.f, q), claimOn(r.f, r.shop, before)
			if stage == holdover.StageMySQL {
				wantOK(t, "reserve", got)
				wantOK(t, "claim", claimed)
				if n := r.journal(t); n != 2 {
					t.Errorf("%d rows in the journal, want 2", n)
				}
			} else {
				wantErr(t, "reserve", got, holdover.ErrUnavailable)
				wantErr(t, "claim", claimed, holdover.ErrUnavailable)
			}
			if err := r.f.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = r.f.DrainOnce(t.Context())
			if n, err := r.raw.DBSize(t.Context()).Result(); err != nil || n != 0 {
				t.Errorf("%d keys in a redis that lost its data, %v: it must be rebuilt, not painted over", n, err)
			}
			if h := r.f.Hindrances(t.Context(), holdover.StageJoint); h.OK() || h.Reasons[0].Code != "redis-lost-its-data" {
				t.Errorf("readiness says %+v", h)
			}
			if live, sold := r.liveInMySQL(t, r.shop, 1), r.sold(t, r.shop, 1); live+sold > 3 || (stage == holdover.StageMySQL && (live != 1 || sold != 1)) {
				t.Errorf("mysql has %d units held and %d sold", live, sold)
			}
		})
	}
}
