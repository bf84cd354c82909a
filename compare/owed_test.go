package compare

import (
	"testing"

	"holdover"
)

// What Redis gave from a place where MySQL has none is missing in its counter
// afterwards: MySQL has just that much more, and a later buyer meets it.
func TestOwedUnitsExplainALaterRefusal(t *testing.T) {
	obs := func() holdover.Observation {
		o := seen(holdover.StageShadow, holdover.OpReserve, refused, granted, holdover.EvidenceOtherLocations)
		for i := range o.Proof.Sides {
			s := &o.Proof.Sides[i]
			_, all := freeAt(s.MySQL, 0)
			s.Redis = all
		}
		o.Proof.Sides[0].Redis -= 2
		o.Proof.Sides[0].Owed = 2
		return o
	}
	o := obs()
	if f := classify(&o, 64); f.kind != KindLocation || f.direction != DirectionUndersell {
		t.Errorf("%s %s: %s", f.kind, f.direction, why(f, &o))
	}
	for name, tc := range map[string]struct {
		spoil func(*holdover.Observation)
		want  lack
	}{
		"nothing is owed": {func(o *holdover.Observation) {
			o.Proof.Sides[0].Owed, o.Proof.Sides[0].Redis = 0, o.Proof.Sides[0].Redis+2
		}, lackOwed},
		"it differs by more":   {func(o *holdover.Observation) { o.Proof.Sides[0].Owed = 1 }, lackOwed},
		"another item differs": {func(o *holdover.Observation) { o.Proof.Sides[1].Redis-- }, lackOwed},
		"an item is missing":   {func(o *holdover.Observation) { o.Proof.Sides = o.Proof.Sides[:1] }, lackSides},
	} {
		o := obs()
		tc.spoil(&o)
		if f := classify(&o, 64); f.kind != KindUnexplained || f.lack != tc.want {
			t.Errorf("%s: %s, lacks %q, want unexplained, %q", name, f.kind, f.lack, tc.want)
		}
	}
}
