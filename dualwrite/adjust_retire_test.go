package dualwrite_test

import (
	"testing"

	"holdover"
)

// A lowering that MySQL did not answer: its caller was told that any instance goes
// on with it. Nobody does once Redis is retired.
func TestRetirementWaitsForLowerings(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 5, still)
	r.inject(mysqlOps("Adjust"), dropped)
	_, err := r.f.Adjust(t.Context(), r.change(-2))
	if err == nil {
		t.Fatal("it was decided")
	}
	t.Log("told:", err)
	r.heal()
	ready, err := r.f.Ready(t.Context(), holdover.StageMySQLOnly)
	if err != nil {
		t.Fatal(err)
	}
	if !ready.OK() {
		return // named
	}
	reach(t, r.f, holdover.StageMySQLOnly)
	if _, err := r.f.FinishClaims(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.ledger(t, r.shop, 1); got != 3 {
		t.Errorf("the ledger has %d units, want 3: readiness said yes, and the lowering is in a Redis that may be stopped now", got)
	}
}
