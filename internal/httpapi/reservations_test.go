package httpapi_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"holdover"
)

// What a body says reaches the Reserver, normalized.
func TestLocationsOfAReserve(t *testing.T) {
	s := serve(t, nil)
	const body = `{"token":"` + token + `","lines":[
		{"item_id":9,"group_ids":[3,1,2],"quantity":4,"split":true},
		{"item_id":8,"group_ids":[5],"quantity":1},
		{"item_id":7,"group_id":1,"quantity":2},
		{"item_id":6,"group_ids":[2,1],"quantity":1,"split":false}]}`
	if resp, b := s.call(t, "POST", reservations, body); resp.StatusCode != 201 {
		t.Fatalf("%d %s", resp.StatusCode, b)
	}
	r := s.reserver.last.Load()
	if want := []holdover.Line{{Item: 7, Group: 1, Quantity: 2}, {Item: 8, Group: 5, Quantity: 1}}; !slices.Equal(r.Lines, want) {
		t.Errorf("lines %v, want %v", r.Lines, want)
	}
	if len(r.Choices) != 2 || r.Choices[0].Item != 6 || r.Choices[0].Split || !slices.Equal(r.Choices[0].Groups, []int64{2, 1}) ||
		r.Choices[1].Item != 9 || !r.Choices[1].Split || r.Choices[1].Quantity != 4 || !slices.Equal(r.Choices[1].Groups, []int64{3, 1, 2}) {
		t.Errorf("choices %+v", r.Choices)
	}
}

func TestPartOfAClaim(t *testing.T) {
	s := serve(t, nil)
	const claim = reservations + "/" + token + "/claim"
	for body, want := range map[string][]holdover.Line{
		"": nil,
		`{"lines":[{"item_id":7,"group_id":1,"quantity":2},{"item_id":8,"group_id":3,"quantity":1}]}`: {{Item: 7, Group: 1, Quantity: 2}, {Item: 8, Group: 3, Quantity: 1}},
	} {
		if resp, b := s.call(t, "POST", claim, body); resp.StatusCode != 200 {
			t.Errorf("%s: %d %s", body, resp.StatusCode, b)
		}
		if got := *s.reserver.part.Load(); !slices.Equal(got, want) {
			t.Errorf("%s: the reserver was asked for %v, want %v", body, got, want)
		}
	}
}

func TestExtension(t *testing.T) {
	s := serve(t, nil)
	if resp, b := s.call(t, "POST", reservations+"/"+token+"/extend", `{"ttl_seconds":90}`); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	if got := time.Duration(s.reserver.ttl.Load()); got != 90*time.Second {
		t.Errorf("extended by %s", got)
	}
}

// The members that only some holds have are absent from the others.
func TestAnswerOfALatePartialClaim(t *testing.T) {
	s := serve(t, nil)
	hold := holdover.Hold{Shop: 5, State: holdover.StateClaimed, Lines: []holdover.Line{{Item: 7, Group: 1, Quantity: 2}}}
	hold.Token, _ = holdover.ParseToken(token)
	s.reserver.do = func(context.Context, string) (holdover.Result, error) {
		return holdover.Result{Hold: hold, Decision: decision}, nil
	}
	answer := func() map[string]json.RawMessage {
		_, b := s.call(t, "POST", reservations+"/"+token+"/claim", "")
		var got map[string]json.RawMessage
		if err := json.Unmarshal([]byte(b), &got); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		return got
	}
	got := answer()
	if got["claimed"] != nil || got["late_token"] != nil {
		t.Errorf("an ordinary claim: %s", got)
	}
	hold.Claimed, hold.Late = []holdover.Line{{Item: 7, Group: 1, Quantity: 1}}, hold.Token.Late()
	got = answer()
	if string(got["claimed"]) != `[{"item_id":7,"group_id":1,"quantity":1}]` || string(got["late_token"]) != `"`+hold.Late.String()+`"` {
		t.Errorf("a late claim of a part: %s", got)
	}
}
