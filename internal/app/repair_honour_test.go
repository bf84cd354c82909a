package app

import (
	"testing"
	"time"

	"holdover"
)

// MySQL failed over and lost its last commits: holds that buyers were told of are in
// Redis alone. Rule 16: such a hold is honoured, as a vote for units; its claim is.
// A repair asks MySQL for its units.
func TestRepairHonoursAToldHold(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	if err := r.Facade.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := func() holdover.Token {
		token := holdover.NewToken()
		if _, err := r.Facade.Reserve(t.Context(), holdover.Request{Shop: 1, Token: token, TTL: time.Hour, Lines: []holdover.Line{{Item: 5, Group: 1, Quantity: 1}}}); err != nil {
			t.Fatal(err)
		}
		r.exec(t, "DELETE FROM reserved_quantities WHERE token = ?", token[:])
		r.exec(t, "UPDATE pool_state SET issued = issued - 1 WHERE item_id = 5")
		return token
	}
	before := lost()
	if res, err := r.Facade.Claim(t.Context(), 1, before); err != nil || res.Hold.State != holdover.StateClaimed {
		t.Errorf("without a repair: %v %v", res, err)
	}
	after := lost()
	r.exec(t, "UPDATE reserved_quantities SET granted_at = granted_at - INTERVAL 1 HOUR")
	done := r.repair(t, false, false)
	t.Log(done.Clean, done.Repairs)
	if res, err := r.Facade.Claim(t.Context(), 1, after); err != nil || res.Hold.State != holdover.StateClaimed {
		t.Errorf("after the repair the buyer is told: %v", err)
	}
}
