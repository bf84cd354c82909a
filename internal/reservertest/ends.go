package reservertest

import (
	"testing"

	"holdover"
)

// ends are the ways a hold ends; each is tried on lines of a new hold.
var ends = []struct {
	name  string
	state holdover.State
	end   func(s *suite, lines ...holdover.Line) holdover.Token
}{
	{"Claim", holdover.StateClaimed, func(s *suite, lines ...holdover.Line) holdover.Token {
		token := s.mustReserve(lines...)
		res, err := s.claim(token)
		if err != nil || res.Replayed || res.Pending || res.Hold.State != holdover.StateClaimed {
			s.t.Fatalf("claim: %+v, error %v", res, err)
		}
		return token
	}},
	{"Release", holdover.StateReleased, func(s *suite, lines ...holdover.Line) holdover.Token {
		token := s.mustReserve(lines...)
		res, err := s.release(token)
		if err != nil || res.Replayed || res.Hold.State != holdover.StateReleased {
			s.t.Fatalf("release: %+v, error %v", res, err)
		}
		return token
	}},
	{"Expire", holdover.StateExpired, func(s *suite, lines ...holdover.Line) holdover.Token {
		token := s.lapsed(lines...)
		s.expire()
		return token
	}},
}

// testEnds is every way to end a hold followed by every operation, twice.
func testEnds(s *suite) {
	for _, first := range ends {
		for _, second := range []struct {
			name string
			do   func(s *suite, r holdover.Request) (holdover.Result, error)
			want class // classOK: a replay that says how the hold ended
		}{
			{"Reserve", func(s *suite, r holdover.Request) (holdover.Result, error) { return s.reserve(r) }, endClass(first.state)},
			{"Claim", func(s *suite, r holdover.Request) (holdover.Result, error) { return s.claim(r.Token) }, repeated(first.state, holdover.StateClaimed)},
			{"Release", func(s *suite, r holdover.Request) (holdover.Result, error) { return s.release(r.Token) }, repeated(first.state, holdover.StateReleased)},
			{"Lookup", func(s *suite, r holdover.Request) (holdover.Result, error) { return s.lookup(r.Token) }, classOK},
			{"Expire", func(s *suite, r holdover.Request) (holdover.Result, error) { s.expire(); return s.lookup(r.Token) }, classOK},
		} {
			if first.state == holdover.StateExpired && second.name == "Claim" {
				continue // it takes the units again: testLateClaims
			}
			s.t.Run(first.name+"Then"+second.name, func(t *testing.T) {
				s := s.in(t)
				item := s.stocked(5)
				lines := []holdover.Line{line(item, 2)}
				token := first.end(s, lines...)
				free, ledger := int64(5), int64(5)
				if first.state == holdover.StateClaimed {
					free, ledger = 3, 3
				}
				s.wantFree(item, free)
				s.wantLedger(item, ledger)
				for range 2 {
					s.settle()
					res, err := second.do(s, s.request(token, longTTL, lines...))
					s.wantClass(second.name, err, second.want)
					if err == nil && res.Hold.State != first.state {
						t.Errorf("the answer says %s, want %s", res.Hold.State, first.state)
					}
					if replay := second.name == "Claim" || second.name == "Release"; replay && err == nil && !res.Replayed {
						t.Errorf("%s twice: the second is not called a replay", second.name)
					}
					s.wantFree(item, free)
					s.wantLedger(item, ledger)
					s.wantState(token, first.state)
				}
				// What is free is what a buyer can get.
				s.mustReserve(line(item, free))
				_, err := s.reserve(s.request(holdover.NewToken(), longTTL, line(item, 1)))
				s.wantClass("one more than was free", err, classOutOfStock)
			})
		}
	}
}

// repeated is the answer to ending a hold as want that has ended as state.
func repeated(state, want holdover.State) class {
	if state == want {
		return classOK
	}
	return endClass(state)
}

func testUnknownToken(s *suite) {
	item := s.stocked(2)
	for name, do := range map[string]func(holdover.Token) (holdover.Result, error){
		"claim": func(token holdover.Token) (holdover.Result, error) { return s.claim(token) }, "release": s.release, "look-up": s.lookup,
	} {
		_, err := do(holdover.NewToken())
		s.wantClass(name+" of an unknown token", err, classUnknownHold)
	}
	// A look-up leaves no trace.
	r := s.request(holdover.NewToken(), longTTL, line(item, 1))
	_, err := s.lookup(r.Token)
	s.wantClass("look-up of an unknown token", err, classUnknownHold)
	if res, err := s.reserve(r); err != nil || res.Replayed {
		s.t.Errorf("reserve after a look-up of its token: replayed %t, error %v", res.Replayed, err)
	}
	s.wantFree(item, 1)
	s.wantLedger(item, 2)
}

// testExpiryWithoutReaper: nobody is refused while a hold is due, though the
// reaper never runs.
func testExpiryWithoutReaper(s *suite) {
	s.t.Run("OneItem", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(2)
		first, second := s.lapsed(line(item, 1)), s.lapsed(line(item, 1))
		s.wantFree(item, 0) // a hold ends when the expiry step runs
		s.mustReserve(line(item, 2))
		s.wantFree(item, 0)
		s.wantState(first, holdover.StateExpired)
		s.wantState(second, holdover.StateExpired)
		_, err := s.claim(first)
		s.wantClass("claim of the hold that gave its unit away", err, classLate)
		_, err = s.release(second)
		s.wantClass("release of the hold that gave its unit away", err, classExpired)
		s.wantFree(item, 0)
		s.wantLedger(item, 2)
	})
	s.t.Run("Cart", func(t *testing.T) {
		s := s.in(t)
		short, plenty := s.stocked(1), s.stocked(5)
		old := s.lapsed(line(plenty, 2), line(short, 1))
		s.mustReserve(line(short, 1), line(plenty, 1))
		s.wantState(old, holdover.StateExpired)
		s.wantFree(short, 0)
		s.wantFree(plenty, 4)
	})
	s.t.Run("LiveHoldsStay", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(2)
		live, due := s.mustReserve(line(item, 1)), s.lapsed(line(item, 1))
		_, err := s.reserve(s.request(holdover.NewToken(), longTTL, line(item, 2)))
		s.wantClass("more than the due hold has", err, classOutOfStock)
		s.wantState(live, holdover.StateHeld)
		s.mustReserve(line(item, 1))
		s.wantState(live, holdover.StateHeld)
		s.wantState(due, holdover.StateExpired)
		s.wantFree(item, 0)
	})
}

func testExpiryByReaper(s *suite) {
	item, other := s.stocked(5), s.stocked(5)
	live := s.mustReserve(line(item, 1))
	claimed := s.mustReserveFor(shortTTL, line(item, 1))
	if _, err := s.claim(claimed); err != nil {
		s.t.Fatalf("claim: %v", err)
	}
	due := s.lapsed(line(item, 2), line(other, 3))
	s.wantFree(item, 1)
	for range 2 {
		s.expire()
		s.wantState(live, holdover.StateHeld)
		s.wantState(claimed, holdover.StateClaimed)
		s.wantState(due, holdover.StateExpired)
		s.wantFree(item, 3)
		s.wantFree(other, 5)
		s.wantLedger(item, 4)
	}
}

// testLateEnds: a hold past its expiry that nobody has expired is live.
func testLateEnds(s *suite) {
	item := s.stocked(6)
	claimed, released, repeated := s.lapsed(line(item, 1)), s.lapsed(line(item, 2)), s.lapsed(line(item, 3))
	res, err := s.claim(claimed)
	if err != nil || res.Hold.State != holdover.StateClaimed {
		s.t.Errorf("late claim: state %s, error %v", res.Hold.State, err)
	}
	if _, err := s.release(released); err != nil {
		s.t.Errorf("late release: %v", err)
	}
	res, err = s.reserve(s.request(repeated, longTTL, line(item, 3)))
	if err != nil || !res.Replayed {
		s.t.Errorf("late repeat of a reserve: replayed %t, error %v", res.Replayed, err)
	}
	s.wantFree(item, 2)
	s.wantLedger(item, 5)
	s.expire()
	s.wantState(claimed, holdover.StateClaimed)
	s.wantState(released, holdover.StateReleased)
	s.wantState(repeated, holdover.StateExpired)
	s.wantFree(item, 5)
	s.wantLedger(item, 5)
}
