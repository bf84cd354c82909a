package reservertest

import (
	"sync/atomic"

	"holdover"
)

// answer is what one of many concurrent callers was told.
type answer struct {
	res holdover.Result
	err error
}

// persistently repeats a call that gave no answer, as a caller does: with 100
// callers at once on a small machine a store may well be too slow for one.
func persistently(call func() (holdover.Result, error)) answer {
	var a answer
	for range 10 {
		a.res, a.err = call()
		if !holdover.NoAnswer(a.err) {
			break
		}
	}
	return a
}

func testOneTokenAtOnce(s *suite) {
	item := s.stocked(9)
	r := s.request(holdover.NewToken(), longTTL, line(item, 2))
	answers := make([]answer, 16)
	atOnce(len(answers), func(i int) {
		answers[i] = persistently(func() (holdover.Result, error) { return s.reserve(r) })
	})
	for _, a := range answers {
		if a.err != nil {
			s.t.Fatalf("one of 16 reserves of one token: %v", a.err)
		}
		s.sameHold(answers[0].res.Hold, a.res.Hold)
	}
	s.wantFree(item, 7)
	s.wantState(r.Token, holdover.StateHeld)
	s.wantLedger(item, 9)
}

func testHundredBuyersTenUnits(s *suite) {
	item := s.stocked(10)
	tokens := make([]holdover.Token, 100)
	answers := make([]answer, len(tokens))
	for i := range tokens {
		tokens[i] = holdover.NewToken()
	}
	atOnce(len(tokens), func(i int) {
		answers[i] = persistently(func() (holdover.Result, error) {
			return s.reserve(s.request(tokens[i], longTTL, line(item, 1)))
		})
	})
	granted := 0
	for i, a := range answers {
		s.wantClass("a buyer", a.err, classOK, classOutOfStock)
		if a.err == nil {
			granted++
			s.wantState(tokens[i], holdover.StateHeld)
		}
	}
	if granted != 10 {
		s.t.Errorf("%d of 100 buyers got one of 10 units, want 10", granted)
	}
	s.wantFree(item, 0)
	s.wantLedger(item, 10)
}

// testCartsAtOnce: carts that share items, in different orders, while holds
// only come: a buyer is refused only if an item of his is short at the end too.
func testCartsAtOnce(s *suite) {
	items := []int64{s.stocked(8), s.stocked(8), s.stocked(8)}
	carts := [][]holdover.Line{
		{line(items[0], 1), line(items[1], 2)},
		{line(items[1], 1), line(items[2], 2)},
		{line(items[2], 1), line(items[0], 2)},
	}
	answers := make([]answer, 30)
	atOnce(len(answers), func(i int) {
		token := holdover.NewToken()
		answers[i] = persistently(func() (holdover.Result, error) {
			return s.reserve(s.request(token, longTTL, carts[i%len(carts)]...))
		})
	})
	left := map[int64]int64{items[0]: 8, items[1]: 8, items[2]: 8}
	for i, a := range answers {
		s.wantClass("a cart", a.err, classOK, classOutOfStock)
		if a.err == nil {
			for _, l := range carts[i%len(carts)] {
				left[l.Item] -= l.Quantity
			}
		}
	}
	for _, item := range items {
		if left[item] < 0 {
			s.t.Errorf("item %d is oversold by %d", item, -left[item])
		}
		s.wantFree(item, left[item])
	}
	for i, a := range answers {
		cart := carts[i%len(carts)]
		if classOf(a.err) == classOutOfStock && left[cart[0].Item] >= cart[0].Quantity && left[cart[1].Item] >= cart[1].Quantity {
			s.t.Errorf("a cart was refused (%v) although its units were free all the time", a.err)
		}
	}
}

func testClaimsAtOnce(s *suite) {
	for range 5 {
		item := s.stocked(5)
		token := s.mustReserve(line(item, 2))
		answers := make([]answer, 8)
		atOnce(len(answers), func(i int) {
			answers[i] = persistently(func() (holdover.Result, error) { return s.claim(token) })
		})
		for _, a := range answers {
			s.wantClass("one of 8 claims", a.err, classOK)
		}
		s.wantFree(item, 3)
		s.wantLedger(item, 3)
		s.wantState(token, holdover.StateClaimed)
	}
}

func testReleasesAtOnce(s *suite) {
	for range 5 {
		item := s.stocked(5)
		token := s.mustReserve(line(item, 2))
		answers := make([]answer, 8)
		atOnce(len(answers), func(i int) {
			answers[i] = persistently(func() (holdover.Result, error) { return s.release(token) })
		})
		for _, a := range answers {
			s.wantClass("one of 8 releases", a.err, classOK)
		}
		s.wantFree(item, 5)
		s.wantLedger(item, 5)
		s.wantState(token, holdover.StateReleased)
	}
}

// testClaimAgainstRelease: one of them wins, and the stock says which. The one
// that starts first changes with the round: on a fast store it wins.
func testClaimAgainstRelease(s *suite) {
	for round := range 10 {
		item := s.stocked(5)
		token := s.mustReserve(line(item, 2))
		var claims, releases atomic.Int32
		atOnce(4, func(i int) {
			if i%2 == round%2 {
				a := persistently(func() (holdover.Result, error) { return s.claim(token) })
				s.wantClass("claim against release", a.err, classOK, classReleased)
				if a.err == nil {
					claims.Add(1)
				}
				return
			}
			a := persistently(func() (holdover.Result, error) { return s.release(token) })
			s.wantClass("release against claim", a.err, classOK, classClaimed, classClaimPending)
			if a.err == nil {
				releases.Add(1)
			}
		})
		switch {
		case claims.Load() == 2 && releases.Load() == 0:
			s.wantState(token, holdover.StateClaimed)
			s.wantFree(item, 3)
			s.wantLedger(item, 3)
		case claims.Load() == 0 && releases.Load() == 2:
			s.wantState(token, holdover.StateReleased)
			s.wantFree(item, 5)
			s.wantLedger(item, 5)
		default:
			s.t.Errorf("%d of 2 claims and %d of 2 releases of one hold succeeded, want 2 of one kind", claims.Load(), releases.Load())
		}
	}
}

// testClaimAgainstExpiry: a late claim and a buyer who is short of the unit
// can't both have it.
func testClaimAgainstExpiry(s *suite) {
	for round := range 6 {
		item := s.stocked(1)
		token, buyer := s.lapsed(line(item, 1)), holdover.NewToken()
		var claim, reserve answer
		atOnce(2, func(i int) {
			if i == round%2 {
				claim = persistently(func() (holdover.Result, error) { return s.claim(token) })
			} else {
				reserve = persistently(func() (holdover.Result, error) {
					return s.reserve(s.request(buyer, longTTL, line(item, 1)))
				})
			}
		})
		switch {
		case claim.err == nil:
			s.wantClass("reserve against a late claim that won", reserve.err, classOutOfStock)
			s.wantState(token, holdover.StateClaimed)
			s.wantLedger(item, 0)
		default:
			s.wantClass("late claim that lost", claim.err, classLate)
			s.wantClass("reserve against a late claim that lost", reserve.err, classOK)
			s.wantState(token, holdover.StateExpired)
			s.wantLedger(item, 1)
		}
		s.wantFree(item, 0)
	}
}
