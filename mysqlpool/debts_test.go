package mysqlpool

import (
	"testing"
	"time"

	"holdover"
)

// Stock, holds and debts are told as they are at one moment; a debt is none once
// MySQL has a record of its token.
func TestLevelsAndStanding(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.load(t, 1, 1, 10)
	f.load(t, 1, 2, 5)
	f.load(t, 2, 1, 7)
	h := f.reserveOne(t, holdover.Line{Item: 1, Group: 1, Quantity: 3})
	debt := holdover.Hold{Token: holdover.NewToken(), Shop: h.Shop, Lines: []holdover.Line{{Item: 1, Group: 2, Quantity: 4}, {Item: 2, Group: 1, Quantity: 1}}, ExpiresAt: time.Now().Add(time.Hour)}
	if err := f.Owe(ctx, debt); err != nil {
		t.Fatal(err)
	}
	check := func(owed1, owed2 int64, debts int) {
		t.Helper()
		stocks, owed, err := f.Levels(ctx, h.Shop, []int64{1, 2})
		if err != nil || len(stocks) != 3 || owed[1] != owed1 || owed[2] != owed2 {
			t.Errorf("%+v, owed %v, %v", stocks, owed, err)
		}
		all, err := f.Standing(ctx, h.Shop, []int64{1})
		if err != nil || len(all.Stocks) != 2 || len(all.Held) != 1 || len(all.Owed) != debts {
			t.Fatalf("%+v, %v", all, err)
		}
		if all.Held[0] != (holdover.StandingHold{Token: h.Token, Item: 1, Units: 3}) {
			t.Errorf("held %+v", all.Held)
		}
		free := int64(0)
		for _, s := range all.Stocks {
			free += s.Free()
		}
		if free != 12 {
			t.Errorf("%d free", free)
		}
	}
	check(4, 1, 1)
	if _, err := f.Apply(ctx, holdover.Hold{Token: debt.Token, State: holdover.StateReleased}); err != nil {
		t.Fatal(err)
	}
	check(0, 0, 0)
	if owes, err := f.Owes(ctx, debt.Token); err != nil || !owes {
		t.Errorf("it is not known to have been a debt: %v", err)
	}
}

// That a fact came late is known by token and fact, and is no debt.
func TestLatecomers(t *testing.T) {
	f := newFixture(t)
	ctx, token := t.Context(), holdover.NewToken()
	f.exec(t, "INSERT INTO holdover_latecomers (token, fact, at) VALUES (?, 'held', UTC_TIMESTAMP(3) - INTERVAL 2 DAY)", make([]byte, 16))
	for range 2 {
		if err := f.NoteLate(ctx, token, holdover.StateReleased); err != nil {
			t.Fatal(err)
		}
	}
	for fact, want := range map[holdover.State]bool{holdover.StateReleased: true, holdover.StateHeld: false} {
		if late, err := f.CameLate(ctx, token, fact); err != nil || late != want {
			t.Errorf("%s: %t, %v", fact, late, err)
		}
	}
	if late, err := f.CameLate(ctx, holdover.NewToken(), holdover.StateReleased); err != nil || late {
		t.Errorf("another token: %t, %v", late, err)
	}
	if owes, err := f.Owes(ctx, token); err != nil || owes {
		t.Errorf("it is a debt: %v", err)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM holdover_latecomers"); n != 1 {
		t.Errorf("%d notes, want the new one", n)
	}
}
