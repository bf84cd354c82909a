package holdover_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdover"
)

func TestParseToken(t *testing.T) {
	const canonical = "123e4567-e89b-42d3-a456-426614174000"
	for _, c := range []struct {
		name, in, want string // want empty: refused
	}{
		{"canonical", canonical, canonical},
		{"upper case is the same token", strings.ToUpper(canonical), canonical},
		{"empty", "", ""},
		{"the zero token", "00000000-0000-0000-0000-000000000000", ""},
		{"without dashes", "123e4567e89b42d3a456426614174000", ""},
		{"in braces", "{123e4567-e89b-42d3-a456-426614174000}", ""},
		{"as a URN", "urn:uuid:" + canonical, ""},
		{"one short", canonical[:35], ""},
		{"one long", canonical + "0", ""},
		{"a space before", " " + canonical[:35], ""},
		{"not hexadecimal", "123e4567-e89b-42d3-a456-42661417400g", ""},
		{"a dash in the wrong place", "123e456-7e89b-42d3-a456-426614174000", ""},
		{"more dashes than four", "123e4567-e89b-42d3-a456-42661417--00", ""},
		{"36 bytes that are fewer characters", "123e4567-e89b-42d3-a456-4266141740é", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			token, err := holdover.ParseToken(c.in)
			if c.want == "" {
				var bad *holdover.InvalidError
				if !errors.As(err, &bad) || bad.Field != "token" || !errors.Is(err, holdover.ErrInvalid) {
					t.Errorf("ParseToken(%q) = %s, %v; want an *InvalidError about the token", c.in, token, err)
				}
				if token != (holdover.Token{}) {
					t.Errorf("ParseToken(%q) returns the token %s beside its error", c.in, token)
				}
				return
			}
			if err != nil || token.String() != c.want {
				t.Errorf("ParseToken(%q) = %s, %v; want %s", c.in, token, err, c.want)
			}
		})
	}
}

// Whatever is accepted is written back as it was read: no two spellings but
// upper and lower case mean one token, and none is cut or filled up.
func FuzzParseToken(f *testing.F) {
	for _, seed := range []string{
		"123e4567-e89b-42d3-a456-426614174000", "123E4567-E89B-42D3-A456-426614174000",
		"00000000-0000-0000-0000-000000000000", "123e4567-e89b-42d3-a456-42661417--00",
		"------------------------------------", "", "123e4567-e89b-42d3-a456-42661417400\x00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token, err := holdover.ParseToken(s)
		switch {
		case err == nil && token.String() != strings.ToLower(s):
			t.Errorf("ParseToken(%q) = %s: another token than the text says", s, token)
		case err == nil && token == holdover.Token{}:
			t.Errorf("ParseToken(%q) accepts the zero token, which means none", s)
		case err != nil && !errors.Is(err, holdover.ErrInvalid):
			t.Errorf("ParseToken(%q): %v does not match ErrInvalid", s, err)
		case err != nil && len(err.Error()) > 500:
			t.Errorf("ParseToken of %d bytes: the error repeats them all", len(s))
		}
	})
}

func TestNewToken(t *testing.T) {
	seen := map[holdover.Token]bool{}
	for range 1000 {
		token := holdover.NewToken()
		if seen[token] {
			t.Fatalf("%s was given twice", token)
		}
		seen[token] = true
		if token[6]>>4 != 4 || token[8]>>6 != 2 {
			t.Fatalf("%s is not a version 4 UUID", token)
		}
		if again, err := holdover.ParseToken(token.String()); err != nil || again != token {
			t.Fatalf("%s is read back as %s, %v", token, again, err)
		}
	}
}

// valid is a request that Normalize accepts; change makes it another.
func valid(change func(*holdover.Request)) holdover.Request {
	r := holdover.Request{
		Shop: 7, Token: holdover.Token{15: 1}, TTL: time.Minute,
		Lines: []holdover.Line{{Item: 2, Group: 1, Quantity: 3}, {Item: 1, Group: 2, Quantity: 1}},
	}
	if change != nil {
		change(&r)
	}
	return r
}

func TestNormalizeRefuses(t *testing.T) {
	oneLine := func(item, group, quantity int64) func(*holdover.Request) {
		return func(r *holdover.Request) {
			r.Lines = append(r.Lines, holdover.Line{Item: item, Group: group, Quantity: quantity})
		}
	}
	for _, c := range []struct {
		name   string
		change func(*holdover.Request)
		limits holdover.Limits
		field  string
	}{
		{"no shop", func(r *holdover.Request) { r.Shop = 0 }, holdover.Limits{}, "shop_id"},
		{"a negative shop", func(r *holdover.Request) { r.Shop = -1 }, holdover.Limits{}, "shop_id"},
		{"no token", func(r *holdover.Request) { r.Token = holdover.Token{} }, holdover.Limits{}, "token"},
		{"no lines", func(r *holdover.Request) { r.Lines = nil }, holdover.Limits{}, "lines"},
		{"more lines than the default", func(r *holdover.Request) { r.Lines = slices.Repeat(r.Lines, 101) }, holdover.Limits{}, "lines"},
		{"more lines than configured", nil, holdover.Limits{MaxLines: 1}, "lines"},
		{"no time to live", func(r *holdover.Request) { r.TTL = 0 }, holdover.Limits{}, "ttl"},
		{"a negative time to live", func(r *holdover.Request) { r.TTL = -time.Second }, holdover.Limits{}, "ttl"},
		{"a time to live under the least", func(r *holdover.Request) { r.TTL = 100*time.Millisecond - 1 }, holdover.Limits{}, "ttl"},
		{"a time to live over the most", func(r *holdover.Request) { r.TTL = 24*time.Hour + 1 }, holdover.Limits{}, "ttl"},
		{"a time to live over the configured most", nil, holdover.Limits{MaxTTL: 59 * time.Second}, "ttl"},
		{"no item", oneLine(0, 1, 1), holdover.Limits{}, "item_id"},
		{"a negative item", oneLine(-4, 1, 1), holdover.Limits{}, "item_id"},
		{"no group", oneLine(4, 0, 1), holdover.Limits{}, "group_id"},
		{"no quantity", oneLine(4, 1, 0), holdover.Limits{}, "quantity"},
		{"a negative quantity", oneLine(4, 1, -1), holdover.Limits{}, "quantity"},
		{"a negative quantity that another line makes good", oneLine(2, 1, -1), holdover.Limits{}, "quantity"},
		{"a quantity over the default", oneLine(4, 1, 1_000_001), holdover.Limits{}, "quantity"},
		{"repeated lines that add up to too much", oneLine(2, 1, 999_998), holdover.Limits{}, "quantity"},
		{"repeated lines that add up beyond the numbers there are", oneLine(2, 1, math.MaxInt64), holdover.Limits{MaxQuantity: math.MaxInt64}, "quantity"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := valid(c.change).Normalize(c.limits)
			var bad *holdover.InvalidError
			if !errors.As(err, &bad) || bad.Field != c.field {
				t.Fatalf("got %+v, %v; want an *InvalidError about %s", got.Lines, err, c.field)
			}
			if !errors.Is(err, holdover.ErrInvalid) {
				t.Errorf("%v does not match ErrInvalid", err)
			}
		})
	}
}

func TestNormalizeAccepts(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*holdover.Request)
		limits holdover.Limits
		want   []holdover.Line
	}{
		{"sorts by item", nil, holdover.Limits{}, []holdover.Line{{Item: 1, Group: 2, Quantity: 1}, {Item: 2, Group: 1, Quantity: 3}}},
		{"sorts by group within an item", func(r *holdover.Request) {
			r.Lines = []holdover.Line{{Item: 1, Group: 9, Quantity: 1}, {Item: 1, Group: 2, Quantity: 1}}
		}, holdover.Limits{}, []holdover.Line{{Item: 1, Group: 2, Quantity: 1}, {Item: 1, Group: 9, Quantity: 1}}},
		{"merges what is asked for twice", func(r *holdover.Request) {
			r.Lines = []holdover.Line{{Item: 1, Group: 1, Quantity: 2}, {Item: 2, Group: 1, Quantity: 1}, {Item: 1, Group: 1, Quantity: 3}}
		}, holdover.Limits{}, []holdover.Line{{Item: 1, Group: 1, Quantity: 5}, {Item: 2, Group: 1, Quantity: 1}}},
		{"the limits themselves", func(r *holdover.Request) {
			r.TTL = 2 * time.Second
			r.Lines = []holdover.Line{{Item: 1, Group: 1, Quantity: 4}, {Item: 1, Group: 1, Quantity: 6}}
		}, holdover.Limits{MaxLines: 2, MaxQuantity: 10, MinTTL: 2 * time.Second, MaxTTL: 2 * time.Second}, []holdover.Line{{Item: 1, Group: 1, Quantity: 10}}},
		{"the largest ids", func(r *holdover.Request) {
			r.Shop, r.Lines = math.MaxInt64, []holdover.Line{{Item: math.MaxInt64, Group: math.MaxInt64, Quantity: 1}}
		}, holdover.Limits{}, []holdover.Line{{Item: math.MaxInt64, Group: math.MaxInt64, Quantity: 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := valid(c.change)
			got, err := r.Normalize(c.limits)
			if err != nil {
				t.Fatal(err)
			}
			if !holdover.SameLines(got.Lines, c.want) {
				t.Errorf("got %v, want %v", got.Lines, c.want)
			}
			if got.Shop != r.Shop || got.Token != r.Token || got.TTL != r.TTL {
				t.Errorf("got shop %d, token %s, ttl %s: only the lines may change", got.Shop, got.Token, got.TTL)
			}
		})
	}
}

type place struct{ item, group int64 }

func sums(lines []holdover.Line) map[place]int64 {
	all := map[place]int64{}
	for _, l := range lines {
		all[place{l.Item, l.Group}] += l.Quantity
	}
	return all
}

func TestNormalizeKeepsWhatIsAskedFor(t *testing.T) {
	line := rapid.Custom(func(t *rapid.T) holdover.Line {
		return holdover.Line{
			Item: rapid.Int64Range(1, 4).Draw(t, "item"), Group: rapid.Int64Range(1, 3).Draw(t, "group"),
			Quantity: rapid.Int64Range(1, 5000).Draw(t, "quantity"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		r := valid(nil)
		r.Lines = rapid.SliceOfN(line, 1, 200).Draw(t, "lines")
		given := slices.Clone(r.Lines)
		got, err := r.Normalize(holdover.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Lines, given) {
			t.Fatal("the caller's lines were changed")
		}
		want := sums(given)
		if have := sums(got.Lines); len(have) != len(want) || len(have) != len(got.Lines) {
			t.Fatalf("%d lines for %d places", len(got.Lines), len(want))
		} else {
			for at, units := range want {
				if have[at] != units {
					t.Fatalf("item %d at group %d: %d units, want %d", at.item, at.group, have[at], units)
				}
			}
		}
		for i := 1; i < len(got.Lines); i++ {
			a, b := got.Lines[i-1], got.Lines[i]
			if a.Item > b.Item || (a.Item == b.Item && a.Group >= b.Group) {
				t.Fatalf("%v stands before %v", a, b)
			}
		}
		again, err := got.Normalize(holdover.Limits{})
		if err != nil || !holdover.SameLines(again.Lines, got.Lines) {
			t.Fatalf("a second time gives %v, %v", again.Lines, err)
		}
		// The same cart in another order is the same reservation.
		seed := rapid.Uint64().Draw(t, "shuffle")
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(r.Lines), func(i, j int) { r.Lines[i], r.Lines[j] = r.Lines[j], r.Lines[i] })
		if shuffled, err := r.Normalize(holdover.Limits{}); err != nil || !holdover.SameLines(shuffled.Lines, got.Lines) {
			t.Fatalf("in another order it gives %v, %v", shuffled.Lines, err)
		}
	})
}

func TestSameLines(t *testing.T) {
	a := []holdover.Line{{Item: 1, Group: 1, Quantity: 1}, {Item: 2, Group: 1, Quantity: 1}}
	for _, c := range []struct {
		b    []holdover.Line
		want bool
	}{
		{slices.Clone(a), true},
		{a[:1], false},
		{nil, false},
		{[]holdover.Line{a[0], {Item: 2, Group: 1, Quantity: 2}}, false},
		{[]holdover.Line{a[0], {Item: 2, Group: 2, Quantity: 1}}, false},
	} {
		if got := holdover.SameLines(a, c.b); got != c.want {
			t.Errorf("SameLines(%v, %v) = %v", a, c.b, got)
		}
	}
}

func TestStates(t *testing.T) {
	for _, c := range []struct {
		state       holdover.State
		live, ended bool
	}{
		{holdover.StateNone, false, false},
		{holdover.StateHeld, true, false},
		{holdover.StateClaiming, true, false},
		{holdover.StateClaimed, false, true},
		{holdover.StateReleased, false, true},
		{holdover.StateExpired, false, true},
	} {
		if c.state.Live() != c.live || c.state.Ended() != c.ended {
			t.Errorf("%s: live %v, ended %v", c.state, c.state.Live(), c.state.Ended())
		}
	}
}

func TestFree(t *testing.T) {
	s := holdover.Stock{Available: 10, Issued: 6, Pooled: 4, Held: 2}
	if got := s.Free(); got != 8 { // the ledger less the holds
		t.Errorf("Free() = %d, want 8", got)
	}
}
