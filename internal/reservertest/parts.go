package reservertest

import (
	"slices"
	"testing"

	"holdover"
)

// testPartialClaim: a claim takes a part of the hold, and gives back the rest in
// the same step.
func testPartialClaim(s *suite) {
	for _, test := range []struct {
		name string
		a, b int64 // claimed units
		as   func(a, b int64) []holdover.Line
	}{
		{"OneLine", 2, 0, func(a, _ int64) []holdover.Line { return []holdover.Line{line(a, 2)} }},
		{"FewerUnits", 0, 2, func(_, b int64) []holdover.Line { return []holdover.Line{line(b, 2)} }},
		{"OfEachLine", 1, 1, func(a, b int64) []holdover.Line { return []holdover.Line{line(b, 1), line(a, 1)} }},
		{"OneLineTwice", 0, 2, func(_, b int64) []holdover.Line { return []holdover.Line{line(b, 1), line(b, 1)} }},
	} {
		s.t.Run(test.name, func(t *testing.T) { testPart(s.in(t), test.a, test.b, test.as) })
	}
	s.t.Run("AllLinesAreAPlainClaim", func(t *testing.T) {
		s := s.in(t)
		a, b := s.stocked(5), s.stocked(5)
		cart := []holdover.Line{line(a, 2), line(b, 3)}
		token := s.mustReserve(cart...)
		for i, lines := range [][]holdover.Line{{cart[1], cart[0]}, {line(b, 1), cart[0], line(b, 2)}, nil, cart} {
			res, err := s.claim(token, lines...)
			if err != nil || res.Replayed != (i > 0) || res.Hold.State != holdover.StateClaimed || len(res.Hold.Claimed) != 0 {
				t.Errorf("claim %d of all lines: replayed %t, claimed %v, state %s, error %v", i, res.Replayed, res.Hold.Claimed, res.Hold.State, err)
			}
			s.settle()
		}
		s.wantFree(a, 3)
		s.wantFree(b, 2)
		s.wantLedger(a, 3)
		s.wantLedger(b, 2)
		_, err := s.claim(token, cart[0])
		s.wantClass("a part of what is claimed whole", err, classTokenReused)
		s.wantLedger(b, 2)
	})
	s.t.Run("NoPart", func(t *testing.T) {
		s := s.in(t)
		a, b := s.stocked(9), s.stocked(9)
		token := s.mustReserve(line(a, 2), line(b, 3))
		for name, lines := range map[string][]holdover.Line{
			"another item":            {line(a, 1), line(s.newItem(), 1)},
			"another location":        {{Item: a, Group: 2, Quantity: 1}},
			"more units":              {line(a, 3)},
			"more units in two lines": {line(a, 1), line(b, 1), line(a, 2)},
			"no units":                {line(a, 0)},
			"units below zero":        {line(a, 2), line(b, -1)},
		} {
			_, err := s.claim(token, lines...)
			s.wantClass("a claim of "+name, err, classInvalid)
			s.wantState(token, holdover.StateHeld)
			s.wantFree(a, 7)
			s.wantFree(b, 6)
			s.wantLedger(a, 9)
			s.wantLedger(b, 9)
		}
		if _, err := s.claim(token, line(b, 1)); err != nil {
			t.Errorf("a part after what was none: %v", err)
		}
	})
	s.t.Run("OtherShop", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(5)
		token := s.mustReserve(line(item, 2))
		s.settle()
		ctx, cancel := s.ctx()
		defer cancel()
		_, err := s.f.Reserver.Claim(ctx, s.f.Shop+1, token, line(item, 1))
		s.wantClass("a part through another shop", err, classUnknownHold)
		s.wantState(token, holdover.StateHeld)
		s.wantFree(item, 3)
		s.wantLedger(item, 5)
	})
	s.t.Run("AfterAnEnd", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(5)
		token := s.mustReserve(line(item, 2))
		if _, err := s.release(token); err != nil {
			t.Fatalf("release: %v", err)
		}
		s.settle()
		_, err := s.claim(token, line(item, 1))
		s.wantClass("a part of a released hold", err, classReleased)
		_, err = s.claim(holdover.NewToken(), line(item, 1))
		s.wantClass("a part of an unknown hold", err, classUnknownHold)
		s.wantFree(item, 5)
		s.wantLedger(item, 5)
	})
	s.t.Run("Late", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(5)
		token := s.lapsed(line(item, 3))
		if _, err := s.claim(token, line(item, 1)); err != nil {
			t.Errorf("a part of a hold past its expiry: %v", err)
		}
		s.expire()
		s.wantState(token, holdover.StateClaimed)
		s.wantFree(item, 4)
		s.wantLedger(item, 4)
	})
}

// testPart claims a part of a cart of 2 units of a and 3 of b; as writes it.
func testPart(s *suite, unitsA, unitsB int64, as func(a, b int64) []holdover.Line) {
	const stock = 9
	a, b := s.stocked(stock), s.stocked(stock)
	cart := []holdover.Line{line(a, 2), line(b, 3)}
	part := slices.DeleteFunc([]holdover.Line{line(a, unitsA), line(b, unitsB)}, func(l holdover.Line) bool { return l.Quantity == 0 })
	token := s.mustReserve(cart...)
	check := func(what string, res holdover.Result, err error, replayed bool) {
		s.t.Helper()
		if err != nil || res.Replayed != replayed || res.Hold.State != holdover.StateClaimed ||
			!slices.Equal(res.Hold.Claimed, part) || !slices.Equal(res.Hold.Lines, cart) {
			s.t.Errorf("%s: replayed %t, error %v, hold %+v; want %v of %v claimed, replayed %t", what, res.Replayed, err, res.Hold, part, cart, replayed)
		}
		s.wantFree(a, stock-unitsA)
		s.wantFree(b, stock-unitsB)
		s.wantLedger(a, stock-unitsA)
		s.wantLedger(b, stock-unitsB)
	}
	res, err := s.claim(token, as(a, b)...)
	// What came back is there at once, before anything settles.
	all := s.mustReserve(line(a, stock-unitsA), line(b, stock-unitsB))
	if _, err := s.release(all); err != nil {
		s.t.Errorf("release of what came back: %v", err)
	}
	check("claim of a part", res, err, false)
	res, err = s.lookup(token)
	check("look-up", res, err, false)
	for range 2 {
		res, err = s.claim(token, as(a, b)...)
		check("the claim repeated", res, err, true)
	}
	for name, lines := range map[string][]holdover.Line{"all": nil, "all lines": cart, "another part": {line(a, 1), line(b, 3)}} {
		_, err := s.claim(token, lines...)
		s.wantClass("then a claim of "+name, err, classTokenReused)
		res, err = s.lookup(token)
		check("look-up after that", res, err, false)
	}
	_, err = s.release(token)
	s.wantClass("release of the rest", err, classClaimed)
	_, err = s.reserve(s.request(token, longTTL, cart...))
	s.wantClass("the reserve repeated", err, classClaimed)
	s.expire()
	res, err = s.lookup(token)
	check("look-up at the end", res, err, false)
}

// testPartialClaimsAtOnce: claims of many different parts of one hold; one wins.
func testPartialClaimsAtOnce(s *suite) {
	const buyers = 32
	item := s.stocked(2 * buyers)
	token := s.mustReserve(line(item, buyers+1)) // no part is all of it
	answers := make([]answer, buyers)
	atOnce(buyers, func(i int) {
		answers[i] = persistently(func() (holdover.Result, error) { return s.claim(token, line(item, int64(i+1))) })
	})
	won := int64(0)
	for i, a := range answers {
		s.wantClass("one of 32 claims of parts", a.err, classOK, classTokenReused)
		if a.err != nil {
			continue
		}
		if won != 0 {
			s.t.Errorf("the claims of %d and of %d units of one hold both succeeded", won, i+1)
		}
		won = int64(i + 1)
	}
	if won == 0 {
		s.t.Fatal("no claim succeeded")
	}
	s.wantFree(item, 2*buyers-won)
	s.wantLedger(item, 2*buyers-won)
	res, err := s.lookup(token)
	if err != nil || res.Hold.State != holdover.StateClaimed || !slices.Equal(res.Hold.Claimed, []holdover.Line{line(item, won)}) {
		s.t.Errorf("look-up: %+v, error %v; want %d units claimed", res.Hold, err, won)
	}
}
