package app

import (
	"testing"
	"time"

	"holdover"
	"holdover/compare"
)

// An instance died after Redis gave up the units of a lowering, before MySQL decided
// it. A repair takes the missing units for somebody else's sale and puts them back;
// then the lowering is decided.
func TestBreakRepairUndoesAnOpenLowering(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	a := holdover.Adjustment{Token: holdover.NewToken(), Shop: 1, Item: 4, Group: 1, Delta: -200, Reason: "damaged", By: "ada"}
	if _, err := r.Redis.LowerFor(t.Context(), r.epoch, a, 200, false); err != nil {
		t.Fatal(err)
	}
	for _, d := range r.repair(t, false, false).Repairs {
		if d.Outcome == compare.RepairDone {
			t.Errorf("a lowering that is under way is repaired: %s", d)
		}
	}
	deadline := time.After(30 * time.Second)
	for r.number(t, "SELECT available FROM inventory_ledger WHERE item_id=4") != 800 {
		if err := r.Facade.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Facade.SettleAdjustments(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-deadline:
			t.Fatal("the lowering was not decided")
		case <-time.After(50 * time.Millisecond):
		}
	}
	if n := r.raw.Get(t.Context(), "inventory:1:4").Val(); n != "800" {
		t.Errorf("the ledger has 800 units, and Redis would sell %s after a kill", n)
	}
}
