package app

import (
	"testing"
	"time"

	"holdover"
)

// The counter of an item is missing; one unit is sold meanwhile, and journaled. The
// repair makes the counter from a ledger that has the sale already, and then the
// drain brings the sale.
func TestRepairMakesACounterBesideAJournaledClaim(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	if err := r.Facade.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.raw.Del(t.Context(), "inventory:1:9").Err(); err != nil {
		t.Fatal(err)
	}
	sold, given, held := holdover.NewToken(), holdover.NewToken(), holdover.NewToken()
	for _, token := range []holdover.Token{sold, given, held} {
		if _, err := r.Facade.Reserve(t.Context(), holdover.Request{Shop: 1, Token: token, TTL: time.Hour, Lines: []holdover.Line{{Item: 9, Group: 1, Quantity: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Facade.Claim(t.Context(), 1, sold); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Facade.Release(t.Context(), 1, given); err != nil {
		t.Fatal(err)
	}
	done := r.repair(t, false, false)
	t.Log(done.Clean, done.Repairs)
	for range 3 {
		if err := r.Facade.DrainOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := r.number(t, "SELECT COUNT(*) FROM holdover_unmirrored"); n != 0 {
		t.Errorf("%d facts are left", n)
	}
	r.sums(t)
}
