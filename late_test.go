package holdover_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"holdover"
)

func TestLateToken(t *testing.T) {
	token, err := holdover.ParseToken("123e4567-e89b-42d3-a456-426614174000")
	if err != nil {
		t.Fatal(err)
	}
	// For ever the same: instances of other versions must agree on it.
	if got, want := token.Late().String(), "4f195903-9501-8948-9dfe-de78e00d19b4"; got != want {
		t.Errorf("the late token of %s is %s, want %s", token, got, want)
	}
	seen := map[holdover.Token]bool{}
	for late := token; len(seen) < 1000; late = late.Late() {
		if seen[late] {
			t.Fatalf("the chain of late tokens comes back to %s", late)
		}
		seen[late] = true
		if s := late.Late().String(); s[14] != '8' || s[19] != '8' && s[19] != '9' && s[19] != 'a' && s[19] != 'b' {
			t.Fatalf("%s is no UUID of version 8", s)
		}
	}
}

func TestLateClaimError(t *testing.T) {
	token := holdover.NewToken()
	err := error(&holdover.LateClaimError{Token: token, Store: holdover.StoreMySQL, Shop: 3, Short: []holdover.Shortage{{Item: 5, Group: 1, Want: 2, Left: 1}}})
	var ended *holdover.EndedError
	var short *holdover.OutOfStockError
	if !errors.Is(err, holdover.ErrEnded) || !errors.Is(err, holdover.ErrOutOfStock) || holdover.NoAnswer(err) {
		t.Errorf("it matches ErrEnded %t, ErrOutOfStock %t, no answer %t", errors.Is(err, holdover.ErrEnded), errors.Is(err, holdover.ErrOutOfStock), holdover.NoAnswer(err))
	}
	if !errors.As(err, &ended) || ended.Token != token || ended.State != holdover.StateExpired || !errors.As(err, &short) || len(short.Short) != 1 || short.Shop != 3 {
		t.Errorf("its facts: %+v, %+v", ended, short)
	}
	if want := "hold " + token.String() + " has expired, and its units can't be taken again: out of stock in mysql, shop 3: item 5 at group 1: 2 wanted, 1 left"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

// TestLateClaimErrors: what the two steps and the look-ups of a late claim say
// is told of the caller's token, and never as an end of it.
func TestLateClaimErrors(t *testing.T) {
	token := holdover.NewToken()
	lines := []holdover.Line{line(5, 1, 2)}
	original := holdover.Hold{Token: token, Shop: 1, Lines: lines, State: holdover.StateExpired}
	lost := &holdover.StoreError{Store: holdover.StoreMySQL, Pod: "p", Op: "look up", Err: errors.New("gone")}
	end := func(token holdover.Token) error { return holdover.EndError(token, holdover.StateExpired) }
	for name, c := range map[string]struct {
		first                  error // of the claim itself
		known                  map[holdover.Token]holdover.Hold
		lookup, reserve, claim error
		off                    bool
		want                   error
		reserved, claimed      int
	}{
		"a claim that went well":      {first: nil},
		"another error":               {first: lost, want: lost},
		"released":                    {first: holdover.EndError(token, holdover.StateReleased), want: holdover.ErrEnded},
		"taken again":                 {first: end(token), reserved: 1, claimed: 1},
		"the look-up fails":           {first: end(token), lookup: lost, want: lost},
		"the end record has no lines": {first: end(token), known: map[holdover.Token]holdover.Hold{token: {Token: token, State: holdover.StateExpired}}, want: holdover.ErrEnded},
		"another shop's":              {first: end(token), known: map[holdover.Token]holdover.Hold{token: {Token: token, Shop: 2, Lines: lines, State: holdover.StateExpired}}, want: holdover.ErrEnded},
		"switched off":                {first: end(token), off: true, want: holdover.ErrEnded},
		"switched off, claimed before": {first: end(token), off: true, claimed: 1,
			known: map[holdover.Token]holdover.Hold{token: original, token.Late(): {Token: token.Late(), Shop: 1, Lines: lines, State: holdover.StateClaimed}}},
		"reserving gives no answer": {first: end(token), reserve: lost, want: lost, reserved: 1},
		"a twin was faster":         {first: end(token), reserve: holdover.ErrAlreadyClaimed, reserved: 1, claimed: 1},
		"claiming gives no answer":  {first: end(token), claim: lost, want: lost, reserved: 1, claimed: 1},
		"it expires between":        {first: end(token), claim: end(token.Late()), want: holdover.ErrTryAgain, reserved: 1, claimed: 1},
		"the late one was released": {first: end(token), want: holdover.ErrEnded,
			known: map[holdover.Token]holdover.Hold{token: original, token.Late(): {Token: token.Late(), Shop: 1, Lines: lines, State: holdover.StateReleased}}},
		"other lines under way": {first: end(token), want: holdover.ErrTokenReused,
			known: map[holdover.Token]holdover.Hold{token: original, token.Late(): {Token: token.Late(), Shop: 1, Lines: []holdover.Line{line(5, 1, 1)}, State: holdover.StateHeld}}},
		"the first late one expired": {first: end(token), reserved: 1, claimed: 1,
			known: map[holdover.Token]holdover.Hold{token: original, token.Late(): {Token: token.Late(), Shop: 1, Lines: lines, State: holdover.StateExpired}}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.known == nil {
				c.known = map[holdover.Token]holdover.Hold{token: original}
			}
			var reserved, claimed int
			l := holdover.LateClaims{
				Off:    c.off,
				Lookup: func(_ context.Context, token holdover.Token) (holdover.Hold, error) { return c.known[token], c.lookup },
				Reserve: func(_ context.Context, r holdover.Request) (holdover.Result, error) {
					reserved++
					if r.Shop != 1 || !slices.Equal(r.Lines, lines) || r.TTL <= 0 || r.Token == token {
						t.Errorf("reserved %+v", r)
					}
					return holdover.Result{}, c.reserve
				},
				Claim: func(ctx context.Context, shop int64, token holdover.Token, part ...holdover.Line) (holdover.Result, error) {
					claimed++
					if shop != 1 || part != nil || ctx.Err() != nil {
						t.Errorf("claimed %v of shop %d, context %v", part, shop, ctx.Err())
					}
					return holdover.Result{Hold: holdover.Hold{Token: token, State: holdover.StateClaimed}}, c.claim
				},
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // a caller that goes between the two steps does not leave the units taken
			res, err := l.AfterClaim(ctx, 1, token, nil, holdover.Result{}, c.first)
			if !errors.Is(err, c.want) || (c.want == nil) != (err == nil) || reserved != c.reserved || claimed != c.claimed {
				t.Errorf("%v after %d reserves and %d claims; want %v after %d and %d", err, reserved, claimed, c.want, c.reserved, c.claimed)
			}
			var ended *holdover.EndedError
			if errors.As(err, &ended) && ended.Token != token {
				t.Errorf("the end of hold %s is told: %v", ended.Token, err)
			}
			if err == nil && c.first != nil && (res.Hold.Token != token || res.Hold.State != holdover.StateClaimed || !slices.Equal(res.Hold.Lines, lines) || res.Hold.Late == (holdover.Token{})) {
				t.Errorf("the hold is %+v", res.Hold)
			}
		})
	}
}
