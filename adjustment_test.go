package holdover_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"holdover"
)

func TestAdjustmentValidate(t *testing.T) {
	units := func(n int64) *int64 { return &n }
	good := holdover.Adjustment{Token: holdover.NewToken(), Shop: 1, Item: 2, Group: 3, Delta: -4, Reason: "count", By: "ada"}
	for name, change := range map[string]func(*holdover.Adjustment){
		"": func(*holdover.Adjustment) {}, " set": func(a *holdover.Adjustment) { a.Delta, a.Set = 0, units(0) },
		" the most": func(a *holdover.Adjustment) { a.Delta = holdover.MaxUnits },
		"token":     func(a *holdover.Adjustment) { a.Token = holdover.Token{} },
		"shop_id":   func(a *holdover.Adjustment) { a.Shop = 0 }, "item_id": func(a *holdover.Adjustment) { a.Item = -1 },
		"group_id": func(a *holdover.Adjustment) { a.Group = 0 }, "delta": func(a *holdover.Adjustment) { a.Delta = 0 },
		"delta and set": func(a *holdover.Adjustment) { a.Set = units(1) }, "delta too much": func(a *holdover.Adjustment) { a.Delta = -holdover.MaxUnits - 1 },
		"set":           func(a *holdover.Adjustment) { a.Delta, a.Set = 0, units(-1) },
		"set too much":  func(a *holdover.Adjustment) { a.Delta, a.Set = 0, units(holdover.MaxUnits+1) },
		"reason":        func(a *holdover.Adjustment) { a.Reason = " \n" },
		"reason of 501": func(a *holdover.Adjustment) { a.Reason = strings.Repeat("ä", 501) },
		"by":            func(a *holdover.Adjustment) { a.By = "" }, "by in no text": func(a *holdover.Adjustment) { a.By = "\xff" },
	} {
		a := good
		change(&a)
		err := a.Validate()
		var bad *holdover.InvalidError
		field, _, _ := strings.Cut(name, " ")
		if field == "" && err != nil || field != "" && (!errors.As(err, &bad) || bad.Field != field) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestAdjustmentContent: what is changed is in it, who and why is not; and it
// comes through JSON as it was.
func TestAdjustmentContent(t *testing.T) {
	zero := int64(0)
	a := holdover.Adjustment{Token: holdover.NewToken(), Shop: 1, Item: 2, Group: 3, Set: &zero, Reason: "count", By: "ada"}
	seen := map[string]bool{a.Content(): true}
	for _, change := range []func(*holdover.Adjustment){
		func(a *holdover.Adjustment) { a.Shop = 9 }, func(a *holdover.Adjustment) { a.Item = 9 }, func(a *holdover.Adjustment) { a.Group = 9 },
		func(a *holdover.Adjustment) { a.Clamp = true }, func(a *holdover.Adjustment) { a.Set = nil }, func(a *holdover.Adjustment) { a.Set, a.Delta = nil, 9 },
	} {
		other := a
		change(&other)
		if seen[other.Content()] {
			t.Errorf("%+v looks like another one: %s", other, other.Content())
		}
		seen[other.Content()] = true
	}
	retold := a
	retold.Reason, retold.By = "again", "bob"
	if retold.Content() != a.Content() {
		t.Error("who repeats it made it another one")
	}
	text, err := json.Marshal(a)
	var back holdover.Adjustment
	if err != nil || json.Unmarshal(text, &back) != nil || back.Content() != a.Content() || back.Token != a.Token || back.By != "ada" {
		t.Errorf("%s, %v: %+v", text, err, back)
	}
}

func TestAdjustedErr(t *testing.T) {
	seven := int64(7)
	a := holdover.Adjusted{Adjustment: holdover.Adjustment{Token: holdover.Token{1}, Shop: 1, Item: 2, Group: 3, Set: &seven}, Available: 10, Free: 2}
	if a.Err() != nil {
		t.Error(a.Err())
	}
	a.Refused = true
	var refused *holdover.AdjustRefusedError
	if err := a.Err(); !errors.As(err, &refused) || !errors.Is(err, holdover.ErrAdjustRefused) || refused.Wanted != 3 || refused.Free != 2 ||
		!strings.Contains(err.Error(), "3 units of shop 1, item 2 at group 3 were to be taken away, the ledger has 10 and 2 of them are free") {
		t.Error(err)
	}
	for name, sentinel := range sentinels {
		if errors.Is(a.Err(), sentinel) {
			t.Errorf("it also matches %s", name)
		}
	}
}
