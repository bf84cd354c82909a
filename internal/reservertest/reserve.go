package reservertest

import (
	"errors"
	"slices"
	"testing"

	"holdover"
)

func testReplay(s *suite) {
	item := s.stocked(5)
	r := s.request(holdover.NewToken(), longTTL, line(item, 2))
	first, err := s.reserve(r)
	if err != nil || first.Replayed {
		s.t.Fatalf("first reserve: replayed %t, error %v", first.Replayed, err)
	}
	if first.Hold.State != holdover.StateHeld || !slices.Equal(first.Hold.Lines, r.Lines) || first.Hold.ExpiresAt.IsZero() {
		s.t.Errorf("first reserve: the hold is %+v", first.Hold)
	}
	s.settle()
	for range 2 {
		again, err := s.reserve(r)
		if err != nil || !again.Replayed {
			s.t.Fatalf("repeated reserve: replayed %t, error %v; want a replay", again.Replayed, err)
		}
		s.sameHold(first.Hold, again.Hold)
	}
	// The time to live of a repeat changes nothing: expiry is never renewed.
	r.TTL = 2 * longTTL
	again, err := s.reserve(r)
	if err != nil {
		s.t.Fatalf("repeated reserve with another time to live: %v", err)
	}
	s.sameHold(first.Hold, again.Hold)
	s.wantFree(item, 3)
	s.wantLedger(item, 5)

	s.settle()
	found, err := s.lookup(r.Token)
	if err != nil {
		s.t.Fatalf("look-up: %v", err)
	}
	s.sameHold(first.Hold, found.Hold)
}

// sameHold: the same units until the same moment.
func (s *suite) sameHold(want, got holdover.Hold) {
	s.t.Helper()
	if got.Token != want.Token || got.Shop != want.Shop || got.State != want.State ||
		!slices.Equal(got.Lines, want.Lines) || got.ExpiresAt.UnixMilli() != want.ExpiresAt.UnixMilli() {
		s.t.Errorf("another hold than before:\n got %+v\nwant %+v", got, want)
	}
}

func testTokenReused(s *suite) {
	item, other := s.stocked(9), s.stocked(9)
	token := s.mustReserve(line(item, 2))
	s.settle()
	for name, r := range map[string]holdover.Request{
		"another item":     s.request(token, longTTL, line(other, 2)),
		"another quantity": s.request(token, longTTL, line(item, 3)),
		"another location": s.request(token, longTTL, holdover.Line{Item: item, Group: 2, Quantity: 2}),
		"one line more":    s.request(token, longTTL, line(item, 2), line(other, 1)),
		"another shop":     {Shop: s.f.Shop + 1, Token: token, TTL: longTTL, Lines: []holdover.Line{line(item, 2)}},
	} {
		_, err := s.reserve(r)
		s.wantClass("the token with "+name, err, classTokenReused)
		s.wantState(token, holdover.StateHeld)
		s.wantFree(item, 7)
		s.wantFree(other, 9)
	}
	// Written otherwise, but the same lines.
	res, err := s.reserve(s.request(token, longTTL, line(item, 1), line(item, 1)))
	if err != nil || !res.Replayed {
		s.t.Errorf("the same lines written otherwise: replayed %t, error %v; want a replay", res.Replayed, err)
	}
	s.wantFree(item, 7)
}

// testOtherShop: a hold can't be seen or ended through another shop.
func testOtherShop(s *suite) {
	item := s.stocked(3)
	token := s.mustReserve(line(item, 1))
	s.settle()
	ctx, cancel := s.ctx()
	defer cancel()
	_, err := s.f.Reserver.Lookup(ctx, s.f.Shop+1, token)
	s.wantClass("look-up through another shop", err, classUnknownHold)
	_, err = s.f.Reserver.Claim(ctx, s.f.Shop+1, token)
	s.wantClass("claim through another shop", err, classUnknownHold)
	_, err = s.f.Reserver.Release(ctx, s.f.Shop+1, token)
	s.wantClass("release through another shop", err, classUnknownHold)
	s.wantState(token, holdover.StateHeld)
	s.wantFree(item, 2)
	s.wantLedger(item, 3)
}

func testCarts(s *suite) {
	s.t.Run("AllOrNothing", func(t *testing.T) {
		s := s.in(t)
		first, second, third := s.stocked(5), s.stocked(1), s.stocked(5)
		for _, cart := range [][]holdover.Line{
			{line(first, 2), line(second, 2)},
			{line(second, 2), line(first, 2)},
			{line(first, 1), line(second, 2), line(third, 1)},
		} {
			token := holdover.NewToken()
			_, err := s.reserve(s.request(token, longTTL, cart...))
			s.wantClass("a cart that is short of one item", err, classOutOfStock)
			var short *holdover.OutOfStockError
			if errors.As(err, &short) && (len(short.Short) != 1 || short.Short[0] != holdover.Shortage{Item: second, Group: 1, Want: 2, Left: 1}) {
				t.Errorf("the shortage is %+v, want 2 of item %d with 1 left", short.Short, second)
			}
			s.wantFree(first, 5)
			s.wantFree(second, 1)
			s.wantFree(third, 5)
			s.settle()
			_, err = s.lookup(token)
			s.wantClass("look-up after the refusal", err, classUnknownHold)
		}
		token := s.mustReserve(line(third, 5), line(second, 1), line(first, 1))
		s.wantFree(first, 4)
		s.wantFree(second, 0)
		s.wantFree(third, 0)
		if _, err := s.release(token); err != nil {
			t.Errorf("release of the cart: %v", err)
		}
		s.wantFree(first, 5)
		s.wantFree(second, 1)
		s.wantFree(third, 5)
	})
	s.t.Run("TwoLinesOfOneItem", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(5)
		_, err := s.reserve(s.request(holdover.NewToken(), longTTL, line(item, 3), line(item, 3)))
		s.wantClass("3 + 3 of 5", err, classOutOfStock)
		s.wantFree(item, 5)
		token := s.mustReserve(line(item, 3), line(item, 2))
		s.wantFree(item, 0)
		s.settle()
		res, err := s.lookup(token)
		if err != nil || !slices.Equal(res.Hold.Lines, []holdover.Line{line(item, 5)}) {
			t.Errorf("the hold has lines %v (error %v), want one line of 5", res.Hold.Lines, err)
		}
		if _, err := s.claim(token); err != nil {
			t.Errorf("claim: %v", err)
		}
		s.wantLedger(item, 0)
		s.wantFree(item, 0)
	})
	s.t.Run("ManyLines", func(t *testing.T) {
		s := s.in(t)
		var cart []holdover.Line
		stock := map[[2]int64]int64{}
		for range 50 {
			item := s.newItem()
			stock[[2]int64{item, 1}] = 2
			cart = append(cart, line(item, 2))
		}
		s.f.Load(t, stock)
		token := s.mustReserve(cart...)
		if _, err := s.claim(token); err != nil {
			t.Errorf("claim: %v", err)
		}
		for _, l := range []holdover.Line{cart[0], cart[25], cart[49]} {
			s.wantFree(l.Item, 0)
			s.wantLedger(l.Item, 0)
		}
	})
	s.t.Run("LargeLine", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(20_000)
		token := s.mustReserve(line(item, 15_000))
		s.wantFree(item, 5_000)
		_, err := s.reserve(s.request(holdover.NewToken(), longTTL, line(item, 5_001)))
		s.wantClass("one more than is left", err, classOutOfStock)
		s.mustReserve(line(item, 5_000))
		s.wantFree(item, 0)
		if _, err := s.claim(token); err != nil {
			t.Errorf("claim: %v", err)
		}
		s.wantLedger(item, 5_000)
	})
}

func testLocations(s *suite) {
	s.t.Run("BothAtOnce", func(t *testing.T) {
		s := s.in(t)
		item := s.newItem()
		s.f.Load(t, map[[2]int64]int64{{item, 1}: 3, {item, 2}: 2})
		token := s.mustReserve(at(item, 2, 2), at(item, 1, 3))
		s.wantFreeAt(item, 1, 0)
		s.wantFreeAt(item, 2, 0)
		_, err := s.reserve(s.request(holdover.NewToken(), longTTL, at(item, 1, 1)))
		s.wantClass("one more", err, classOutOfStock)
		if _, err := s.claim(token); err != nil {
			t.Errorf("claim: %v", err)
		}
		s.wantLedger(item, 0)
	})
	s.t.Run("SumIsShort", func(t *testing.T) {
		s := s.in(t)
		item := s.newItem()
		s.f.Load(t, map[[2]int64]int64{{item, 1}: 3, {item, 2}: 2})
		s.mustReserve(at(item, 2, 1))
		_, err := s.reserve(s.request(holdover.NewToken(), longTTL, at(item, 1, 3), at(item, 2, 2)))
		s.wantClass("5 of 4", err, classOutOfStock)
		s.wantLedger(item, 5)
		if s.f.SumOverLocations {
			s.wantFreeAt(item, 1, 4)
		} else {
			s.wantFreeAt(item, 1, 3)
			s.wantFreeAt(item, 2, 1)
		}
	})
	s.t.Run("MoreThanOneHas", func(t *testing.T) {
		s := s.in(t)
		item := s.newItem()
		s.f.Load(t, map[[2]int64]int64{{item, 1}: 3, {item, 2}: 2})
		if !s.f.SumOverLocations {
			_, err := s.reserve(s.request(holdover.NewToken(), longTTL, at(item, 1, 4)))
			s.wantClass("4 of 3 at a location", err, classOutOfStock)
			var short *holdover.OutOfStockError
			if errors.As(err, &short) && (short.Short[0].Group != 1 || short.Short[0].Want != 4) {
				t.Errorf("the shortage is %+v, want 4 wanted at group 1", short.Short)
			}
			s.wantFreeAt(item, 1, 3)
			s.wantFreeAt(item, 2, 2)
			return
		}
		// One counter is blind to locations; the claim finds the units.
		token := s.mustReserve(at(item, 1, 4))
		s.wantFreeAt(item, 1, 1)
		if _, err := s.claim(token); err != nil {
			t.Errorf("claim of more than the line's location has: %v", err)
		}
		s.wantFreeAt(item, 1, 1)
		s.wantLedger(item, 1)
		if _, err := s.claim(s.mustReserve(at(item, 1, 1))); err != nil {
			t.Errorf("claim of the last unit, which is at another location: %v", err)
		}
		s.wantLedger(item, 0)
	})
}

func testSoldOut(s *suite) {
	item := s.stocked(3)
	refused := func(quantity, left int64) {
		s.t.Helper()
		res, err := s.reserve(s.request(holdover.NewToken(), longTTL, line(item, quantity)))
		s.wantClass("more than is left", err, classOutOfStock)
		var short *holdover.OutOfStockError
		want := []holdover.Shortage{{Item: item, Group: 1, Want: quantity, Left: left}}
		if errors.As(err, &short) && !slices.Equal(short.Short, want) {
			s.t.Errorf("the shortage is %+v, want %+v", short.Short, want)
		}
		if res.Hold.State.Live() {
			s.t.Errorf("a refusal comes with a hold: %+v", res.Hold)
		}
	}
	refused(4, 3)
	first := s.mustReserve(line(item, 2))
	s.wantFree(item, 1)
	refused(2, 1)
	second := s.mustReserve(line(item, 1))
	s.wantFree(item, 0)
	refused(1, 0)
	refused(3, 0)
	s.wantFree(item, 0)

	if _, err := s.claim(first); err != nil {
		s.t.Errorf("claim: %v", err)
	}
	s.settle()
	refused(1, 0)
	s.wantLedger(item, 1)
	if _, err := s.release(second); err != nil {
		s.t.Errorf("release: %v", err)
	}
	s.wantFree(item, 1)
	refused(2, 1)
	s.mustReserve(line(item, 1))
	s.wantFree(item, 0)

	item = s.stocked(0)
	refused(1, 0)
	s.wantFree(item, 0)
}

// testNotLoaded: a missing stock record is neither zero nor full.
func testNotLoaded(s *suite) {
	item := s.stocked(3)
	for _, cart := range [][]holdover.Line{
		{line(s.newItem(), 1)},
		{line(item, 1), line(s.newItem(), 1)},
	} {
		token := holdover.NewToken()
		_, err := s.reserve(s.request(token, longTTL, cart...))
		s.wantClass("an item without a stock record", err, classNotLoaded)
		s.wantFree(item, 3)
		s.settle()
		_, err = s.lookup(token)
		s.wantClass("look-up after it", err, classUnknownHold)
	}
}

// testRefusalNotRemembered: the same token asks anew.
func testRefusalNotRemembered(s *suite) {
	item := s.stocked(1)
	holder := s.mustReserve(line(item, 1))
	r := s.request(holdover.NewToken(), longTTL, line(item, 1))
	for range 2 {
		_, err := s.reserve(r)
		s.wantClass("reserve of a sold-out item", err, classOutOfStock)
	}
	s.settle()
	if _, err := s.release(holder); err != nil {
		s.t.Fatalf("release: %v", err)
	}
	s.settle()
	res, err := s.reserve(r)
	if err != nil || res.Replayed {
		s.t.Errorf("the refused token, asked anew: replayed %t, error %v; want a new hold", res.Replayed, err)
	}
	s.wantFree(item, 0)
	s.wantState(r.Token, holdover.StateHeld)
}
