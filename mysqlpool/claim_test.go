package mysqlpool

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"holdover"
)

func entriesOf(t *testing.T, f *fixture, token holdover.Token) (list []string) {
	t.Helper()
	rows, err := f.db.QueryContext(t.Context(), "SELECT group_id, delta, kind FROM ledger_entries WHERE token=? ORDER BY entry", token[:])
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var group, delta int64
		var kind string
		if err := rows.Scan(&group, &delta, &kind); err != nil {
			t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%d:%d:%s", group, delta, kind))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestClaimWithoutHold: a claim that Redis decided takes what is free, from the
// line's location first, then from the others in order, headroom before pool
// rows, then what others hold; the rest is oversold. Never below zero.
func TestClaimWithoutHold(t *testing.T) {
	type at struct{ available, pooled, held int64 }
	for _, test := range []struct {
		name    string
		before  []at // groups 1, 2, 3
		group   int64
		claim   int64
		entries []string
		after   []at
	}{
		{"headroom of its own", []at{{10, 2, 3}}, 1, 5, []string{"1:-5:claim"}, []at{{5, 2, 3}}},
		{"then pool rows", []at{{10, 2, 3}}, 1, 6, []string{"1:-6:claim"}, []at{{4, 1, 3}}},
		{"then other locations in order", []at{{3, 1, 0}, {4, 4, 0}, {5, 0, 0}}, 2, 8, []string{"2:-4:claim", "1:-3:claim", "3:-1:claim"}, []at{{0, 0, 0}, {0, 0, 0}, {4, 0, 0}}},
		{"another location before other buyers' holds", []at{{3, 0, 3}, {2, 0, 0}}, 1, 2, []string{"2:-2:claim"}, []at{{3, 0, 3}, {0, 0, 0}}},
		{"then what others hold", []at{{3, 0, 3}, {1, 0, 0}}, 1, 2, []string{"1:-1:claim", "2:-1:claim"}, []at{{2, 0, 3}, {0, 0, 0}}},
		{"the rest is oversold", []at{{3, 1, 1}, {1, 0, 0}}, 1, 6, []string{"1:-3:claim", "2:-1:claim", "1:-2:oversold"}, []at{{0, 0, 1}, {0, 0, 0}}},
		{"a location that the ledger does not have", []at{{0, 0, 0}, {4, 2, 0}}, 9, 3, []string{"1:-0:claim", "2:-3:claim"}[1:], []at{{0, 0, 0}, {1, 1, 0}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			for i, b := range test.before {
				group := int64(i + 1)
				f.load(t, 1, group, b.available)
				if b.pooled+b.held > 0 {
					if n, err := f.refill(t.Context(), key{shop, 1, group}, b.pooled+b.held, b.pooled+b.held); err != nil || n != b.pooled+b.held {
						t.Fatal(n, err)
					}
				}
				if b.held > 0 {
					f.reserveOne(t, line(1, group, b.held))
				}
			}
			h := fact(request(line(1, test.group, test.claim)), holdover.StateClaimed)
			for range 3 { // by token: only the first one deducts
				got, err := f.Apply(t.Context(), h)
				if err != nil || got.State != holdover.StateClaimed {
					t.Fatalf("%v, %v", got.State, err)
				}
			}
			if got := entriesOf(t, f, h.Token); !slices.Equal(got, test.entries) {
				t.Errorf("entries %q, want %q", got, test.entries)
			}
			for i, want := range test.after {
				st := f.stock(t, 1, int64(i+1))
				if got := (at{st.Available, st.Pooled, st.Held}); got != want || st.Issued != st.Pooled+st.Held {
					t.Errorf("group %d: %+v, want %+v", i+1, st, want)
				}
			}
			var owed int64
			if test.name == "the rest is oversold" {
				owed = 2
			}
			if got := f.Stats().OversoldUnits; got != owed {
				t.Errorf("%d units counted as oversold, want %d", got, owed)
			}
		})
	}
}

// TestOverbooked: once a claim took what a hold stood for, the store confirms
// no hold of the item again, though look-ups and ends go on; the hold's own
// claim takes from elsewhere or is oversold.
func TestOverbooked(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.load(t, 1, 1, 2)
	f.load(t, 1, 2, 1)
	r := request(line(1, 1, 2))
	if _, err := f.Vote(ctx, alone, r, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Apply(ctx, fact(request(line(1, 1, 2)), holdover.StateClaimed)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Vote(ctx, alone, r, false); !errors.Is(err, holdover.ErrTryAgain) {
		t.Fatalf("a replay in an overbooked store: %v", err)
	}
	if h, err := f.Lookup(ctx, r.Token); err != nil || h.State != holdover.StateHeld {
		t.Fatalf("%+v, %v", h, err)
	}
	h, err := f.Claim(ctx, 0, 0, r.Token, nil, false)
	if err != nil || h.State != holdover.StateClaimed {
		t.Fatalf("%+v, %v", h, err)
	}
	if got, want := entriesOf(t, f, r.Token), []string{"1:-1:claim", "1:-1:oversold"}; !slices.Equal(got, want) {
		t.Errorf("entries %q, want %q", got, want)
	}
	if st := f.stock(t, 1, 1); st.Available != 0 || st.Issued != 0 {
		t.Errorf("%+v", st)
	}
	f.conserved(t)
}

// TestClaimNotLoaded: an item that no location knows is neither zero nor full.
func TestClaimNotLoaded(t *testing.T) {
	f := newFixture(t)
	if _, err := f.Apply(t.Context(), fact(request(line(1, 1, 2)), holdover.StateClaimed)); !errors.Is(err, holdover.ErrNotLoaded) {
		t.Fatal(err)
	}
	if _, err := f.Vote(t.Context(), alone, request(line(1, 1, 2)), false); !errors.Is(err, holdover.ErrNotLoaded) {
		t.Fatal(err)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM reserved_quantities"); n != 0 {
		t.Fatal("something was written")
	}
}
