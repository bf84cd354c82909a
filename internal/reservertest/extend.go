package reservertest

import (
	"testing"
	"time"

	"holdover"
)

// testExtend: an extension moves the expiry forward, and nothing else.
func testExtend(s *suite) {
	s.t.Run("Forward", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(5)
		r := s.request(holdover.NewToken(), longTTL, line(item, 2))
		first, err := s.reserve(r)
		if err != nil {
			t.Fatalf("reserve: %v", err)
		}
		s.settle()
		began := time.Now()
		longer, err := s.extend(r.Token, 2*longTTL)
		took := time.Since(began)
		if err != nil || longer.Replayed {
			t.Fatalf("extend: replayed %t, error %v", longer.Replayed, err)
		}
		// By the store's clock: at least ttl from the grant, and no more than the
		// call and a moment later.
		lived := longer.Hold.ExpiresAt.Sub(first.Hold.GrantedAt)
		if lived < 2*longTTL || lived > 2*longTTL+took+patience {
			t.Errorf("a hold extended by %s lives for %s from its grant", 2*longTTL, lived)
		}
		s.sameUntil(r.Token, longer.Hold, item, 3)
		again, err := s.reserve(r)
		if err != nil || !again.Replayed {
			t.Errorf("the reserve repeated: replayed %t, error %v", again.Replayed, err)
		}
		s.sameHold(longer.Hold, again.Hold)

		// Never back.
		for _, ttl := range []time.Duration{time.Minute, longTTL} {
			same, err := s.extend(r.Token, ttl)
			if err != nil || !same.Replayed {
				t.Errorf("an extension that ends earlier: replayed %t, error %v; want a replay", same.Replayed, err)
			}
			s.sameHold(longer.Hold, same.Hold)
			s.sameUntil(r.Token, longer.Hold, item, 3)
		}
		if _, err := s.claim(r.Token); err != nil {
			t.Errorf("claim: %v", err)
		}
		s.wantFree(item, 3)
		s.wantLedger(item, 3)
	})
	s.t.Run("KeepsFromExpiring", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(5)
		extended := s.mustReserveFor(shortTTL, line(item, 2))
		if _, err := s.extend(extended, longTTL); err != nil {
			t.Fatalf("extend: %v", err)
		}
		due := s.lapsed(line(item, 1)) // granted later: the first one's time has passed too
		s.expire()
		s.wantState(due, holdover.StateExpired)
		s.wantState(extended, holdover.StateHeld)
		s.wantFree(item, 3)
		_, err := s.reserve(s.request(holdover.NewToken(), longTTL, line(item, 4)))
		s.wantClass("the units of an extended hold", err, classOutOfStock)
		s.wantState(extended, holdover.StateHeld)
	})
	s.t.Run("PastItsExpiry", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(5)
		token := s.lapsed(line(item, 2))
		res, err := s.extend(token, longTTL)
		if err != nil || res.Replayed || res.Hold.State != holdover.StateHeld {
			t.Fatalf("extend: %+v, error %v", res, err)
		}
		s.expire()
		s.sameUntil(token, res.Hold, item, 3)
	})
	s.t.Run("Maximum", func(t *testing.T) {
		if s.f.MaxLife == 0 {
			return // the default can't be reached within a test
		}
		s := s.in(t)
		item := s.stocked(5)
		token := s.mustReserve(line(item, 1))
		for i := range 2 {
			res, err := s.extend(token, 2*s.f.MaxLife)
			if err != nil || res.Replayed != (i > 0) {
				t.Errorf("extend to the maximum: replayed %t, error %v", res.Replayed, err)
			}
			if lives := res.Hold.ExpiresAt.Sub(res.Hold.GrantedAt).Round(time.Millisecond); lives != s.f.MaxLife {
				t.Errorf("it lives for %s from its grant, want the maximum of %s", lives, s.f.MaxLife)
			}
			s.sameUntil(token, res.Hold, item, 4)
		}
	})
	s.t.Run("OtherShop", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(5)
		token := s.mustReserve(line(item, 1))
		s.settle()
		before, err := s.lookup(token)
		if err != nil {
			t.Fatalf("look-up: %v", err)
		}
		ctx, cancel := s.ctx()
		defer cancel()
		_, err = s.f.Reserver.Extend(ctx, s.f.Shop+1, token, 2*longTTL)
		s.wantClass("extend through another shop", err, classUnknownHold)
		s.sameUntil(token, before.Hold, item, 4)
	})
	s.t.Run("BadInput", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(5)
		token := s.mustReserve(line(item, 1))
		s.settle()
		before, err := s.lookup(token)
		if err != nil {
			t.Fatalf("look-up: %v", err)
		}
		for _, ttl := range []time.Duration{0, -time.Second, 1000 * time.Hour} {
			_, err := s.extend(token, ttl)
			s.wantClass("extend by "+ttl.String(), err, classInvalid)
			s.sameUntil(token, before.Hold, item, 4)
		}
		_, err = s.extend(holdover.Token{}, longTTL)
		s.wantClass("extend of the zero token", err, classInvalid, classUnknownHold)
		_, err = s.extend(holdover.NewToken(), longTTL)
		s.wantClass("extend of an unknown token", err, classUnknownHold)
	})
	for _, first := range ends {
		s.t.Run("After"+first.name, func(t *testing.T) {
			s := s.in(t)
			item := s.stocked(5)
			token := first.end(s, line(item, 2))
			free := int64(5)
			if first.state == holdover.StateClaimed {
				free = 3
			}
			for range 2 {
				s.settle()
				_, err := s.extend(token, longTTL)
				s.wantClass("extend", err, endClass(first.state))
				s.wantState(token, first.state)
				s.wantFree(item, free)
				s.wantLedger(item, free)
			}
		})
	}
}

// sameUntil: a look-up finds the hold as it was answered, and nothing else moved.
func (s *suite) sameUntil(token holdover.Token, want holdover.Hold, item, free int64) {
	s.t.Helper()
	s.settle()
	res, err := s.lookup(token)
	if err != nil {
		s.t.Errorf("look-up: %v", err)
	}
	s.sameHold(want, res.Hold)
	s.wantFree(item, free)
	s.wantLedger(item, 5)
}

// testExtendAgainstExpiry: an extension past the expiry and a buyer who is short
// of the unit can't both have it.
func testExtendAgainstExpiry(s *suite) {
	for round := range 6 {
		item := s.stocked(1)
		token, buyer := s.lapsed(line(item, 1)), holdover.NewToken()
		var extend, reserve answer
		atOnce(2, func(i int) {
			if i == round%2 {
				extend = persistently(func() (holdover.Result, error) { return s.extend(token, longTTL) })
			} else {
				reserve = persistently(func() (holdover.Result, error) {
					return s.reserve(s.request(buyer, longTTL, line(item, 1)))
				})
			}
		})
		if extend.err == nil {
			s.wantClass("reserve against an extension that won", reserve.err, classOutOfStock)
			s.expire()
			s.wantState(token, holdover.StateHeld)
		} else {
			s.wantClass("extension that lost", extend.err, classExpired)
			s.wantClass("reserve against an extension that lost", reserve.err, classOK)
			s.wantState(token, holdover.StateExpired)
		}
		s.wantFree(item, 0)
		s.wantLedger(item, 1)
	}
}
