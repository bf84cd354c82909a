package compare

import (
	"testing"
	"time"

	"holdover"
)

const (
	granted = holdover.OutcomeGranted
	refused = holdover.OutcomeRefused
)

// seen builds an observation of three units in pod p.
func seen(stage holdover.Stage, op holdover.Op, redis, mysql holdover.Outcome, evidence ...holdover.Evidence) holdover.Observation {
	o := holdover.Observation{
		Pod: "p", Instance: "i", Epoch: 7, Stage: stage, Op: op, Shop: 1, Token: holdover.NewToken(),
		Lines:    []holdover.Line{{Item: 1, Group: 1, Quantity: 2}, {Item: 2, Group: 1, Quantity: 1}},
		At:       time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Redis:    holdover.Answer{Outcome: redis, Latency: 100 * time.Microsecond},
		MySQL:    holdover.Answer{Outcome: mysql, Latency: 400 * time.Microsecond},
		Evidence: evidence,
	}
	if len(evidence) > 0 {
		o.Proof = proofOf(evidence...)
	}
	return o
}

// stock is what MySQL has of an item at one location.
func stock(item, group, free int64) holdover.Stock {
	return holdover.Stock{Shop: 1, Item: item, Group: group, Available: free}
}

// proofOf is a proof that fits the evidence, for the lines of seen.
func proofOf(evidence ...holdover.Evidence) *holdover.Proof {
	t := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := &holdover.Proof{}
	sides := func(redis int64, stocks ...holdover.Stock) {
		p.Sides = nil
		for item := int64(1); item <= 2; item++ {
			s := holdover.ItemSides{Item: item, Redis: redis}
			for _, one := range stocks {
				one.Item = item
				s.MySQL = append(s.MySQL, one)
			}
			p.Sides = append(p.Sides, s)
		}
	}
	for _, e := range evidence {
		switch e {
		case holdover.EvidenceEpochMoved:
			p.EpochBegan, p.EpochEnded = 7, 8
		case holdover.EvidencePreShadow:
			p.GrantedAt, p.DualSince = t.Add(-time.Hour), t.Add(-time.Minute)
		case holdover.EvidenceMirrorLost:
			p.Cause = "the lane was full"
		case holdover.EvidenceOtherLocations:
			sides(9, stock(0, 1, 0), stock(0, 2, 9))
		case holdover.EvidencePoolShort:
			sides(9, stock(0, 1, 9))
		case holdover.EvidenceLastUnits:
			sides(1, stock(0, 1, 0))
			p.Overlapping = 1
		case holdover.EvidenceExpiryBetween:
			p.RedisExpires, p.MySQLExpires, p.AnsweredAt = t, t.Add(time.Second), t.Add(time.Millisecond)
		}
	}
	return p
}

func states(o holdover.Observation, redis, mysql holdover.State) holdover.Observation {
	o.Redis.State, o.MySQL.State = redis, mysql
	return o
}

func left(o holdover.Observation, redis, mysql []int64) holdover.Observation {
	o.Redis.Remaining, o.MySQL.Remaining = redis, mysql
	return o
}

// pairs is every shape of an observation that matters, and what it means.
var pairs = []struct {
	name      string
	obs       holdover.Observation
	kind      Kind
	direction Direction
	units     int64
}{
	{"both grant", seen(holdover.StageShadow, holdover.OpReserve, granted, granted), KindMatch, DirectionNeutral, 0},
	{"both refuse", seen(holdover.StageShadow, holdover.OpReserve, refused, refused), KindMatch, DirectionNeutral, 0},
	{"evidence without a difference", seen(holdover.StageShadow, holdover.OpReserve, granted, granted, holdover.EvidenceEpochMoved), KindMatch, DirectionNeutral, 0},
	{"same state", states(seen(holdover.StageJoint, holdover.OpClaim, granted, granted), holdover.StateClaimed, holdover.StateClaimed), KindMatch, DirectionNeutral, 0},
	{"claiming before the ledger", states(seen(holdover.StageJoint, holdover.OpClaim, granted, granted), holdover.StateClaiming, holdover.StateHeld), KindMatch, DirectionNeutral, 0},
	{"claiming after the ledger", states(seen(holdover.StageJoint, holdover.OpClaim, granted, granted), holdover.StateClaiming, holdover.StateClaimed), KindMatch, DirectionNeutral, 0},
	{"extended", states(seen(holdover.StageShadow, holdover.OpExtend, granted, granted), holdover.StateHeld, holdover.StateHeld), KindMatch, DirectionNeutral, 0},
	{"one state not known", states(seen(holdover.StageJoint, holdover.OpClaim, granted, granted), holdover.StateNone, holdover.StateClaimed), KindMatch, DirectionNeutral, 0},

	{"redis refuses, mysql would grant, shadow", seen(holdover.StageShadow, holdover.OpReserve, refused, granted), KindUnexplained, DirectionUndersell, 3},
	{"redis grants, mysql refuses, shadow", seen(holdover.StageShadow, holdover.OpReserve, granted, refused), KindUnexplained, DirectionOversell, 3},
	{"redis grants, mysql refuses, joint", seen(holdover.StageJoint, holdover.OpReserve, granted, refused), KindUnexplained, DirectionOversell, 3},
	{"mysql grants, DECR would refuse", seen(holdover.StageMySQL, holdover.OpReserve, refused, granted), KindUnexplained, DirectionOversell, 3},
	{"mysql refuses, redis would grant", seen(holdover.StageMySQL, holdover.OpReserve, granted, refused), KindUnexplained, DirectionUndersell, 3},
	{"claim refused by mysql", seen(holdover.StageShadow, holdover.OpClaim, granted, refused), KindUnexplained, DirectionOversell, 3},
	{"truth freed, other claimed", states(seen(holdover.StageShadow, holdover.OpRelease, granted, granted), holdover.StateReleased, holdover.StateClaimed), KindUnexplained, DirectionOversell, 3},
	{"truth claimed, other freed", states(seen(holdover.StageMySQL, holdover.OpRelease, granted, granted), holdover.StateReleased, holdover.StateClaimed), KindUnexplained, DirectionUndersell, 3},
	{"claiming against released", states(seen(holdover.StageJoint, holdover.OpClaim, granted, granted), holdover.StateClaiming, holdover.StateReleased), KindUnexplained, DirectionUndersell, 3},
	{"extended, and ended in the other", states(seen(holdover.StageShadow, holdover.OpExtend, granted, granted), holdover.StateHeld, holdover.StateExpired), KindUnexplained, DirectionUndersell, 3},
	{"extended, mirror lost", seen(holdover.StageShadow, holdover.OpExtend, granted, holdover.OutcomeUnknown, holdover.EvidenceMirrorLost), KindNotComparable, DirectionNeutral, 0},
	{"released against expired", states(seen(holdover.StageShadow, holdover.OpRelease, granted, granted), holdover.StateReleased, holdover.StateExpired), KindUnexplained, DirectionNeutral, 0},

	{"epoch moved", seen(holdover.StageMySQL, holdover.OpReserve, refused, granted, holdover.EvidenceEpochMoved), KindStraddledFlip, DirectionOversell, 3},
	{"mirror lost", seen(holdover.StageShadow, holdover.OpRelease, granted, refused, holdover.EvidenceMirrorLost), KindMirrorLost, DirectionOversell, 3},
	{"mirror lost, by state", states(seen(holdover.StageShadow, holdover.OpRelease, granted, granted, holdover.EvidenceMirrorLost), holdover.StateReleased, holdover.StateHeld), KindMirrorLost, DirectionOversell, 3},
	{"pre-shadow", seen(holdover.StageShadow, holdover.OpClaim, granted, refused, holdover.EvidencePreShadow), KindPreShadow, DirectionOversell, 3},
	{"pre-shadow can't make mysql the generous one", seen(holdover.StageShadow, holdover.OpReserve, refused, granted, holdover.EvidencePreShadow), KindUnexplained, DirectionUndersell, 3},
	{"other locations", seen(holdover.StageShadow, holdover.OpReserve, granted, refused, holdover.EvidenceOtherLocations), KindLocation, DirectionOversell, 3},
	{"locations can't make redis refuse", seen(holdover.StageShadow, holdover.OpReserve, refused, granted, holdover.EvidenceOtherLocations), KindUnexplained, DirectionUndersell, 3},
	{"locations are about reserves", seen(holdover.StageShadow, holdover.OpClaim, granted, refused, holdover.EvidenceOtherLocations), KindUnexplained, DirectionOversell, 3},
	{"pool short", seen(holdover.StageJoint, holdover.OpReserve, granted, refused, holdover.EvidencePoolShort), KindPoolShort, DirectionOversell, 3},
	{"pool short can't make redis refuse", seen(holdover.StageJoint, holdover.OpReserve, refused, granted, holdover.EvidencePoolShort), KindUnexplained, DirectionUndersell, 3},
	{"last units", left(seen(holdover.StageShadow, holdover.OpReserve, refused, granted, holdover.EvidenceLastUnits), []int64{1, 90}, []int64{0, 90}), KindLastUnitRace, DirectionUndersell, 3},
	{"last units, no figures", seen(holdover.StageShadow, holdover.OpReserve, granted, refused, holdover.EvidenceLastUnits), KindLastUnitRace, DirectionOversell, 3},
	{"last units, but plenty is left", left(seen(holdover.StageShadow, holdover.OpReserve, refused, granted, holdover.EvidenceLastUnits), []int64{1, 90}, []int64{90, 90}), KindUnexplained, DirectionUndersell, 3},
	{"expiry between", seen(holdover.StageShadow, holdover.OpClaim, granted, refused, holdover.EvidenceExpiryBetween), KindExpirySkew, DirectionOversell, 3},
	{"the first fitting evidence names it", seen(holdover.StageShadow, holdover.OpReserve, granted, refused, holdover.EvidencePoolShort, holdover.EvidenceEpochMoved), KindPoolShort, DirectionOversell, 3},
	{"later evidence fits", seen(holdover.StageShadow, holdover.OpReserve, refused, granted, holdover.EvidencePoolShort, holdover.EvidenceEpochMoved), KindStraddledFlip, DirectionUndersell, 3},
	{"evidence of a later version", seen(holdover.StageShadow, holdover.OpReserve, refused, granted, holdover.Evidence(99)), KindUnexplained, DirectionUndersell, 3},

	{"mysql failed", seen(holdover.StageShadow, holdover.OpReserve, granted, holdover.OutcomeError), KindNotComparable, DirectionNeutral, 0},
	{"mysql unknown", seen(holdover.StageShadow, holdover.OpReserve, granted, holdover.OutcomeUnknown), KindNotComparable, DirectionNeutral, 0},
	{"mysql shed, mirror lost", seen(holdover.StageShadow, holdover.OpReserve, granted, holdover.OutcomeShed, holdover.EvidenceMirrorLost), KindNotComparable, DirectionNeutral, 0},
	{"redis failed", seen(holdover.StageMySQL, holdover.OpReserve, holdover.OutcomeError, granted), KindNotComparable, DirectionNeutral, 0},
	{"mysql not asked", seen(holdover.StageShadow, holdover.OpReserve, refused, holdover.OutcomeNone), KindNotComparable, DirectionNeutral, 0},
	{"no operation", seen(holdover.StageShadow, 0, granted, refused), KindNotComparable, DirectionNeutral, 0},
	{"outcome of a later version", seen(holdover.StageShadow, holdover.OpReserve, granted, 77), KindNotComparable, DirectionNeutral, 0},
}

func TestClassify(t *testing.T) {
	for _, tc := range pairs {
		t.Run(tc.name, func(t *testing.T) {
			f := classify(&tc.obs, 64)
			if f.kind != tc.kind || f.direction != tc.direction || f.units != tc.units {
				t.Errorf("got %s %s %d units, want %s %s %d", f.kind, f.direction, f.units, tc.kind, tc.direction, tc.units)
			}
			if f.compared == (tc.kind == KindNotComparable) {
				t.Errorf("compared is %v for %s", f.compared, tc.kind)
			}
			if text := why(f, &tc.obs); (text == "") != (tc.kind == KindMatch) {
				t.Errorf("why is %q for %s", text, tc.kind)
			}
		})
	}
}

// Every kind but foreign-write, which a verification finds, is in the table:
// a comparator that can't see a kind would pass everything else.
func TestEveryKindIsPlanted(t *testing.T) {
	planted := map[Kind]bool{KindForeignWrite: true}
	for _, tc := range pairs {
		planted[tc.kind] = true
	}
	for _, k := range Kinds() {
		if !planted[k] {
			t.Errorf("no observation makes %s", k)
		}
	}
}

func TestUnitsDoNotWrap(t *testing.T) {
	if n := unitsOf([]holdover.Line{{Quantity: 1 << 62}, {Quantity: 1 << 62}}); n < 1<<62 {
		t.Errorf("units wrapped around to %d", n)
	}
}

func TestNamesRoundTrip(t *testing.T) {
	for _, k := range Kinds() {
		b, _ := k.MarshalText()
		var back Kind
		if err := back.UnmarshalText(b); err != nil || back != k {
			t.Errorf("kind %s reads back as %s, %v", k, back, err)
		}
	}
	for d := Direction(0); d < numDirections; d++ {
		b, _ := d.MarshalText()
		var back Direction
		if err := back.UnmarshalText(b); err != nil || back != d {
			t.Errorf("direction %s reads back as %s, %v", d, back, err)
		}
	}
	var k Kind
	if err := k.UnmarshalText([]byte("new-kind")); err == nil {
		t.Error("an unknown kind was read")
	}
}
