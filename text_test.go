package holdover_test

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdover"
)

// roundTrip writes v as text and reads it back into a value of the same type.
func roundTrip[T comparable, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, values ...T) {
	t.Helper()
	names := map[string]bool{}
	for _, v := range values {
		text, err := any(v).(encoding.TextMarshaler).MarshalText()
		if err != nil {
			t.Errorf("%T %v: %v", v, v, err)
			continue
		}
		if names[string(text)] {
			t.Errorf("%T: two values are written %q", v, text)
		}
		names[string(text)] = true
		if string(text) != fmt.Sprint(v) {
			t.Errorf("%T: written %q, printed %q", v, text, fmt.Sprint(v))
		}
		var back T
		if err := P(&back).UnmarshalText(text); err != nil || back != v {
			t.Errorf("%T %q is read back as %v, %v", v, text, back, err)
		}
	}
	var zero T
	for _, bad := range []string{"", "nonsense", "Held", "redis\n"} {
		got := zero
		if err := P(&got).UnmarshalText([]byte(bad)); !errors.Is(err, holdover.ErrInvalid) {
			t.Errorf("%T: %q is read as %v, %v; want it refused", zero, bad, got, err)
		}
	}
}

func TestTextRoundTrips(t *testing.T) {
	roundTrip(t, holdover.NewToken(), holdover.Token{0: 1}, holdover.Token{15: 255})
	roundTrip(t, holdover.Stages()...)
	roundTrip(t, holdover.StateNone, holdover.StateHeld, holdover.StateClaiming, holdover.StateClaimed, holdover.StateReleased, holdover.StateExpired)
	roundTrip(t, holdover.StoreNone, holdover.StoreRedis, holdover.StoreMySQL)
}

// Names stand in event files and reports: they may be added to and never change.
func TestNamesOfObservations(t *testing.T) {
	check := func(want []string, name func(i int) (string, []byte, error)) {
		t.Helper()
		for i, w := range want {
			printed, text, err := name(i)
			if printed != w || string(text) != w || err != nil {
				t.Errorf("value %d is printed %q and written %q (%v), want %q", i, printed, text, err, w)
			}
		}
		if printed, _, _ := name(200); printed != "unknown" {
			t.Errorf("a value that this build does not know is printed %q", printed)
		}
	}
	check([]string{"none", "reserve", "claim", "release", "expire"}, func(i int) (string, []byte, error) {
		o := holdover.Op(i)
		text, err := o.MarshalText()
		return o.String(), text, err
	})
	check([]string{"none", "granted", "refused", "error", "unknown", "shed"}, func(i int) (string, []byte, error) {
		o := holdover.Outcome(i)
		text, err := o.MarshalText()
		return o.String(), text, err
	})
	check([]string{"none", "epoch-moved", "pre-shadow", "mirror-lost", "other-locations", "pool-short", "last-units", "expiry-between"}, func(i int) (string, []byte, error) {
		e := holdover.Evidence(i)
		text, err := e.MarshalText()
		return e.String(), text, err
	})
}

func TestHoldInJSON(t *testing.T) {
	token, err := holdover.ParseToken("123e4567-e89b-42d3-a456-426614174000")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	hold := holdover.Hold{
		Token: token, Shop: 7, State: holdover.StateHeld, Lines: []holdover.Line{{Item: 1, Group: 2, Quantity: 3}},
		GrantedAt: at, ExpiresAt: at.Add(time.Minute), Attempt: 99, Firm: true, Again: true,
	}
	text, err := json.Marshal(hold)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"token":"123e4567-e89b-42d3-a456-426614174000","shop_id":7,"lines":[{"item_id":1,"group_id":2,"quantity":3}],` +
		`"state":"held","expires_at":"2026-03-04T05:07:07.089Z","granted_at":"2026-03-04T05:06:07.089Z"}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	var back holdover.Hold
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	// What is internal to a step stays inside the process.
	hold.Attempt, hold.Firm, hold.Again = 0, false, false
	if fmt.Sprint(back) != fmt.Sprint(hold) {
		t.Errorf("read back as %+v, want %+v", back, hold)
	}
}
