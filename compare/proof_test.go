package compare

import (
	"math"
	"strings"
	"testing"
	"time"

	"holdover"
)

// Each of the spoilings takes the proof of evidence that fits away, or makes it
// say otherwise.
func TestEvidenceNeedsItsProof(t *testing.T) {
	reserve := func(e holdover.Evidence) func() holdover.Observation {
		return func() holdover.Observation {
			return seen(holdover.StageShadow, holdover.OpReserve, granted, refused, e)
		}
	}
	claim := func(e holdover.Evidence) func() holdover.Observation {
		return func() holdover.Observation {
			return seen(holdover.StageShadow, holdover.OpClaim, granted, refused, e)
		}
	}
	type spoil struct {
		how  func(*holdover.Observation)
		want lack
	}
	none := func(o *holdover.Observation) { o.Proof = nil }
	empty := func(o *holdover.Observation) { o.Proof = &holdover.Proof{} }
	oneItem := func(o *holdover.Observation) { o.Proof.Sides = o.Proof.Sides[:1] }
	for _, tc := range []struct {
		kind Kind
		obs  func() holdover.Observation
		bad  map[string]spoil
	}{
		{KindStraddledFlip, reserve(holdover.EvidenceEpochMoved), map[string]spoil{
			"none": {none, lackProof}, "empty": {empty, lackEpochs},
			"same epoch": {func(o *holdover.Observation) { o.Proof.EpochEnded = o.Proof.EpochBegan }, lackEpochs},
			"backwards":  {func(o *holdover.Observation) { o.Proof.EpochEnded = o.Proof.EpochBegan - 1 }, lackEpochs},
		}},
		{KindMirrorLost, claim(holdover.EvidenceMirrorLost), map[string]spoil{"none": {none, lackProof}, "empty": {empty, lackCause}}},
		{KindPreShadow, claim(holdover.EvidencePreShadow), map[string]spoil{
			"none": {none, lackProof}, "empty": {empty, lackTimes},
			"one time":       {func(o *holdover.Observation) { o.Proof.DualSince = time.Time{} }, lackTimes},
			"granted later":  {func(o *holdover.Observation) { o.Proof.GrantedAt = o.Proof.DualSince.Add(1) }, lackOrder},
			"at that moment": {func(o *holdover.Observation) { o.Proof.GrantedAt = o.Proof.DualSince }, lackOrder},
		}},
		{KindExpirySkew, claim(holdover.EvidenceExpiryBetween), map[string]spoil{
			"none": {none, lackProof}, "empty": {empty, lackTimes},
			"one expiry":  {func(o *holdover.Observation) { o.Proof.MySQLExpires = time.Time{} }, lackTimes},
			"no answer":   {func(o *holdover.Observation) { o.Proof.AnsweredAt = time.Time{} }, lackTimes},
			"long before": {func(o *holdover.Observation) { o.Proof.AnsweredAt = o.Proof.RedisExpires.Add(-1) }, lackOrder},
		}},
		{KindLocation, reserve(holdover.EvidenceOtherLocations), map[string]spoil{
			"none": {none, lackProof}, "empty": {empty, lackSides}, "one item only": {oneItem, lackSides},
			"units nowhere": {func(o *holdover.Observation) { o.Proof.Sides[0].MySQL[1].Available = 1 }, lackElsewhere},
			"units there": {func(o *holdover.Observation) {
				for i := range o.Proof.Sides {
					o.Proof.Sides[i].MySQL[0].Available = 9
				}
			}, lackElsewhere},
			"held elsewhere": {func(o *holdover.Observation) { o.Proof.Sides[0].MySQL[1].Issued = 9 }, lackElsewhere},
		}},
		{KindPoolShort, reserve(holdover.EvidencePoolShort), map[string]spoil{
			"none": {none, lackProof}, "empty": {empty, lackSides}, "one item only": {oneItem, lackSides},
			"no headroom": {func(o *holdover.Observation) { o.Proof.Sides[0].MySQL[0].Available = 1 }, lackHeadroom},
			"elsewhere":   {func(o *holdover.Observation) { o.Proof.Sides[1].MySQL[0].Group = 5 }, lackHeadroom},
			"two lines of one item": {func(o *holdover.Observation) {
				o.Lines = []holdover.Line{{Item: 1, Group: 1, Quantity: 5}, {Item: 1, Group: 1, Quantity: 5}}
			}, lackHeadroom},
			"no lines": {func(o *holdover.Observation) { o.Lines = nil }, lackSides},
		}},
		{KindLastUnitRace, reserve(holdover.EvidenceLastUnits), map[string]spoil{
			"none": {none, lackProof}, "empty": {empty, lackSides}, "one item only": {oneItem, lackSides},
			"lasting":                 {func(o *holdover.Observation) { o.Proof.Sides[1].Lasting = -1 }, lackLasting},
			"alone, and no agreement": {func(o *holdover.Observation) { o.Proof.Overlapping = 0 }, lackOverlap},
			"plenty in redis": {func(o *holdover.Observation) {
				for i := range o.Proof.Sides {
					o.Proof.Sides[i].Redis = 67
				}
			}, lackFew},
			"plenty in mysql": {func(o *holdover.Observation) {
				for i := range o.Proof.Sides {
					o.Proof.Sides[i].MySQL[0].Available = 67
				}
			}, lackFew},
			"plenty in an answer": {func(o *holdover.Observation) { o.MySQL.Remaining = []int64{67, 67} }, lackFew},
			"no lines":            {func(o *holdover.Observation) { o.Lines = nil }, lackSides},
		}},
	} {
		o := tc.obs()
		if f := classify(&o, 64); f.kind != tc.kind {
			t.Errorf("%s with its proof is %s: %s", tc.kind, f.kind, why(f, &o))
		}
		for name, bad := range tc.bad {
			o := tc.obs()
			bad.how(&o)
			f := classify(&o, 64)
			if f.kind != KindUnexplained || f.lack != bad.want {
				t.Errorf("%s, %s: %s, lacks %q, want unexplained, %q", tc.kind, name, f.kind, f.lack, bad.want)
			}
			if text := why(f, &o); !strings.Contains(text, bad.want.String()) || !strings.Contains(text, o.Evidence[0].String()) {
				t.Errorf("%s, %s: why is %q", tc.kind, name, text)
			}
		}
	}
}

// Nothing was in flight, but both stores agreed when they were looked at again.
func TestAgreementAfterwardsProvesARace(t *testing.T) {
	o := seen(holdover.StageShadow, holdover.OpReserve, refused, granted, holdover.EvidenceLastUnits)
	o.Proof.Overlapping = 0
	for i := range o.Proof.Sides {
		o.Proof.Sides[i].Redis = 0
	}
	if f := classify(&o, 64); f.kind != KindLastUnitRace {
		t.Errorf("%s: %s", f.kind, why(f, &o))
	}
	o.Proof.Sides[1].Redis, o.Proof.Sides[1].Passing = -1, 1 // one was on its way
	if f := classify(&o, 64); f.kind != KindLastUnitRace {
		t.Errorf("%s: %s", f.kind, why(f, &o))
	}
	o.Proof.Sides[1].Redis, o.Proof.Sides[1].Passing = 1, 0 // of one item only
	if f := classify(&o, 64); f.kind != KindUnexplained || f.lack != lackOverlap {
		t.Errorf("%s: %s", f.kind, why(f, &o))
	}
}

// A line far from its end does not hide the one at its end, and huge figures do
// not wrap.
func TestRaceIsJudgedByLine(t *testing.T) {
	o := seen(holdover.StageShadow, holdover.OpReserve, refused, granted, holdover.EvidenceLastUnits)
	o.Proof.Sides[1].Redis, o.Proof.Sides[1].MySQL[0].Available = 500, 500
	if f := classify(&o, 64); f.kind != KindLastUnitRace {
		t.Errorf("one line at its end: %s", why(f, &o))
	}
	o.Lines[1].Quantity = math.MaxInt64
	if f := classify(&o, 64); f.kind != KindLastUnitRace {
		t.Errorf("a huge line: %s", why(f, &o))
	}
}

func TestEveryDivergenceHasANextStep(t *testing.T) {
	for _, k := range Kinds() {
		for _, s := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
			if text := Next(k, s); (text != "") != k.Divergence() {
				t.Errorf("the next step of %s in %s is %q", k, s, text)
			}
		}
	}
}
