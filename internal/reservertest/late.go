package reservertest

import (
	"errors"
	"slices"
	"testing"

	"holdover"
)

// expired is a hold of lines that has been expired.
func (s *suite) expired(lines ...holdover.Line) holdover.Token {
	s.t.Helper()
	token := s.lapsed(lines...)
	s.expire()
	return token
}

// wantLate checks that a claim was late: lines as reserved, claimed under the
// late token.
func (s *suite) wantLate(what string, res holdover.Result, err error, late holdover.Token, lines, claimed []holdover.Line) {
	s.t.Helper()
	h := res.Hold
	if err != nil || h.State != holdover.StateClaimed || h.Late != late || !slices.Equal(h.Lines, lines) || !slices.Equal(h.Claimed, claimed) {
		s.t.Fatalf("%s: %+v, error %v; want %v claimed (%v) under %s", what, h, err, lines, claimed, late)
	}
}

// testLateClaims: a claim of a hold that has expired takes the units again if
// there are any.
func testLateClaims(s *suite) {
	for _, sub := range []struct {
		name string
		run  func(s *suite)
	}{
		{"TakenAgain", testLateTakenAgain},
		{"Gone", testLateGone},
		{"Cart", testLateCart},
		{"Part", testLatePart},
		{"ReleasedNever", testLateReleasedNever},
		{"Interrupted", testLateInterrupted},
		{"AtOnce", testLateAtOnce},
		{"AgainstABuyer", testLateAgainstABuyer},
		{"DueHold", testLateDueHold},
	} {
		s.t.Run(sub.name, func(t *testing.T) { sub.run(s.in(t)) })
	}
}

func testLateTakenAgain(s *suite) {
	item := s.stocked(5)
	lines := []holdover.Line{line(item, 2)}
	token := s.expired(lines...)
	s.wantFree(item, 5)
	ctx, cancel := s.ctx()
	defer cancel()
	_, err := s.f.Reserver.Claim(ctx, s.f.Shop+1, token)
	s.wantClass("late claim through another shop", err, classUnknownHold)
	for i := range 3 {
		res, err := s.claim(token)
		s.wantLate("late claim", res, err, token.Late(), lines, nil)
		if res.Replayed != (i > 0) {
			s.t.Errorf("late claim number %d: replayed %t", i+1, res.Replayed)
		}
		s.wantFree(item, 3)
		s.wantLedger(item, 3)
	}
	// It is claimed for everybody who asks.
	res, err := s.lookup(token)
	s.wantLate("look-up", res, err, token.Late(), lines, nil)
	_, err = s.reserve(s.request(token, longTTL, lines...))
	s.wantClass("reserve after a late claim", err, classClaimed)
	_, err = s.release(token)
	s.wantClass("release after a late claim", err, classClaimed)
	_, err = s.f.Reserver.Extend(ctx, s.f.Shop, token, longTTL)
	s.wantClass("extension after a late claim", err, classClaimed)
	s.wantFree(item, 3)
	s.wantLedger(item, 3)
}

func testLateGone(s *suite) {
	item := s.stocked(3)
	token := s.expired(line(item, 2))
	buyer := s.mustReserve(line(item, 2))
	for range 2 {
		s.settle()
		_, err := s.claim(token)
		s.wantClass("late claim of units that are gone", err, classLate)
		var late *holdover.LateClaimError
		if errors.As(err, &late) && (late.Token != token || !slices.Equal(late.Short, []holdover.Shortage{{Item: item, Group: 1, Want: 2, Left: 1}})) {
			s.t.Errorf("the error is %+v, want 2 of item %d wanted for %s and 1 left", late, item, token)
		}
		if !errors.Is(err, holdover.ErrEnded) || !errors.Is(err, holdover.ErrOutOfStock) {
			s.t.Errorf("%v matches ErrEnded: %t, ErrOutOfStock: %t", err, errors.Is(err, holdover.ErrEnded), errors.Is(err, holdover.ErrOutOfStock))
		}
		s.wantState(token, holdover.StateExpired)
		s.wantFree(item, 1)
		s.wantLedger(item, 3)
	}
	_, err := s.release(token)
	s.wantClass("release of the expired hold", err, classExpired)
	// The refusal is not remembered.
	if _, err := s.release(buyer); err != nil {
		s.t.Fatalf("release: %v", err)
	}
	s.settle()
	res, err := s.claim(token)
	s.wantLate("late claim when the units are back", res, err, token.Late(), []holdover.Line{line(item, 2)}, nil)
	s.wantFree(item, 1)
	s.wantLedger(item, 1)
}

func testLateCart(s *suite) {
	gone, there := s.stocked(1), s.stocked(5)
	token := s.expired(line(gone, 1), line(there, 2))
	buyer := s.mustReserve(line(gone, 1))
	_, err := s.claim(token)
	s.wantClass("late claim of a cart of which an item is gone", err, classLate)
	s.wantFree(there, 5)
	s.wantLedger(there, 5)
	// What is there can still be had.
	res, err := s.claim(token, line(there, 2))
	s.wantLate("late claim of the rest", res, err, token.Late(), []holdover.Line{line(gone, 1), line(there, 2)}, []holdover.Line{line(there, 2)})
	s.wantFree(there, 3)
	s.wantLedger(there, 3)
	s.wantLedger(gone, 1)
	s.wantState(buyer, holdover.StateHeld)
}

func testLatePart(s *suite) {
	item, other := s.stocked(5), s.stocked(5)
	lines := []holdover.Line{line(item, 3), line(other, 1)}
	token := s.expired(lines...)
	for _, no := range [][]holdover.Line{{line(item, 4)}, {line(s.newItem(), 1)}, {at(item, 2, 1)}} {
		_, err := s.claim(token, no...)
		s.wantClass("late claim of what is no part", err, classInvalid)
	}
	s.wantFree(item, 5)
	part := []holdover.Line{line(item, 2)}
	for i := range 2 {
		res, err := s.claim(token, part...)
		s.wantLate("late claim of a part", res, err, token.Late(), lines, part)
		if res.Replayed != (i > 0) {
			s.t.Errorf("late claim number %d of a part: replayed %t", i+1, res.Replayed)
		}
		s.settle()
	}
	for _, another := range [][]holdover.Line{nil, {line(item, 1)}, lines} {
		_, err := s.claim(token, another...)
		s.wantClass("late claim of another part", err, classTokenReused)
	}
	res, err := s.lookup(token)
	s.wantLate("look-up", res, err, token.Late(), lines, part)
	s.wantFree(item, 3)
	s.wantLedger(item, 3)
	s.wantFree(other, 5)
	s.wantLedger(other, 5)
}

func testLateReleasedNever(s *suite) {
	item := s.stocked(3)
	token := s.mustReserve(line(item, 1))
	if _, err := s.release(token); err != nil {
		s.t.Fatalf("release: %v", err)
	}
	s.settle()
	for range 2 {
		_, err := s.claim(token)
		s.wantClass("claim of a released hold", err, classReleased)
	}
	s.wantFree(item, 3)
	s.wantLedger(item, 3)
}

// testLateInterrupted: a late claim whose caller died between its two steps.
func testLateInterrupted(s *suite) {
	item := s.stocked(2)
	lines := []holdover.Line{line(item, 2)}
	token := s.expired(lines...)
	if _, err := s.reserve(s.request(token.Late(), longTTL, lines...)); err != nil {
		s.t.Fatalf("the first step: %v", err)
	}
	s.wantFree(item, 0)
	s.wantState(token, holdover.StateExpired)
	res, err := s.claim(token)
	s.wantLate("the repeat that finishes it", res, err, token.Late(), lines, nil)
	s.wantFree(item, 0)
	s.wantLedger(item, 0)

	item = s.stocked(2)
	lines = []holdover.Line{line(item, 2)}
	token = s.expired(lines...)
	if _, err := s.reserve(s.request(token.Late(), shortTTL, lines...)); err != nil {
		s.t.Fatalf("the first step: %v", err)
	}
	s.settle()
	s.f.WaitExpired(s.t, token.Late())
	s.expire()
	s.wantFree(item, 2)
	for range 2 {
		res, err = s.claim(token)
		s.wantLate("the repeat that came too late for it", res, err, token.Late().Late(), lines, nil)
		s.wantFree(item, 0)
		s.wantLedger(item, 0)
	}
	s.wantState(token, holdover.StateClaimed)
}

func testLateAtOnce(s *suite) {
	for range 3 {
		item := s.stocked(5)
		token := s.expired(line(item, 2))
		answers := make([]answer, 8)
		atOnce(len(answers), func(i int) {
			answers[i] = persistently(func() (holdover.Result, error) { return s.claim(token) })
		})
		for _, a := range answers {
			s.wantClass("one of 8 late claims", a.err, classOK)
			if a.res.Hold.Late != token.Late() {
				s.t.Errorf("one of 8 late claims is under %s, want %s", a.res.Hold.Late, token.Late())
			}
		}
		s.wantFree(item, 3)
		s.wantLedger(item, 3)
		s.wantState(token, holdover.StateClaimed)
	}
}

// testLateAgainstABuyer: one unit, for which a late claim and a buyer compete.
func testLateAgainstABuyer(s *suite) {
	for round := range 6 {
		item := s.stocked(1)
		token, buyer := s.expired(line(item, 1)), holdover.NewToken()
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
		if claim.err == nil {
			s.wantClass("reserve against a late claim that won", reserve.err, classOutOfStock)
			s.wantState(token, holdover.StateClaimed)
			s.wantLedger(item, 0)
		} else {
			s.wantClass("late claim that lost", claim.err, classLate)
			s.wantClass("reserve against a late claim that lost", reserve.err, classOK)
			s.wantState(token, holdover.StateExpired)
			s.wantLedger(item, 1)
		}
		s.wantFree(item, 0)
	}
}

// testLateDueHold: a late claim is not refused for a hold that is due.
func testLateDueHold(s *suite) {
	item := s.stocked(1)
	token := s.expired(line(item, 1))
	due := s.lapsed(line(item, 1))
	res, err := s.claim(token)
	s.wantLate("late claim of a unit in a due hold", res, err, token.Late(), []holdover.Line{line(item, 1)}, nil)
	s.wantState(due, holdover.StateExpired)
	s.wantFree(item, 0)
	s.wantLedger(item, 0)
}
