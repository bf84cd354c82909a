package reservertest

import (
	"errors"
	"slices"
	"testing"

	"holdover"
)

func at(item, group, quantity int64) holdover.Line {
	return holdover.Line{Item: item, Group: group, Quantity: quantity}
}

func choice(item, quantity int64, groups ...int64) holdover.Choice {
	return holdover.Choice{Item: item, Groups: groups, Quantity: quantity}
}

func splitting(c holdover.Choice) holdover.Choice {
	c.Split = true
	return c
}

func (s *suite) chooses(token holdover.Token, choices ...holdover.Choice) holdover.Request {
	return holdover.Request{Shop: s.f.Shop, Token: token, TTL: longTTL, Choices: choices}
}

// placed returns a new item with units by location, at groups 1, 2, ...
func (s *suite) placed(units ...int64) int64 {
	s.t.Helper()
	item := s.newItem()
	stock := map[[2]int64]int64{}
	for i, n := range units {
		stock[[2]int64{item, int64(i + 1)}] = n
	}
	s.f.Load(s.t, stock)
	return item
}

// wantPlaced reserves choices under a new token, checks where the units are
// from, and returns the token. With one counter for all locations the line is
// at the first group of each choice.
func (s *suite) wantPlaced(want []holdover.Line, choices ...holdover.Choice) holdover.Token {
	s.t.Helper()
	if s.f.SumOverLocations {
		want = nil
		for _, c := range choices {
			want = append(want, at(c.Item, c.Groups[0], c.Quantity))
		}
	}
	token := holdover.NewToken()
	res, err := s.reserve(s.chooses(token, choices...))
	if err != nil || res.Replayed || res.Hold.State != holdover.StateHeld || !slices.Equal(res.Hold.Lines, want) {
		s.t.Fatalf("reserve %+v: lines %v, state %s, replayed %t, error %v; want %v", choices, res.Hold.Lines, res.Hold.State, res.Replayed, err, want)
	}
	return token
}

// wantLeft counts an item's units at groups 1, 2, ...; where one counter counts
// them, its sum.
func (s *suite) wantLeft(item int64, want ...int64) {
	s.t.Helper()
	if s.f.SumOverLocations {
		var sum int64
		for _, n := range want {
			sum += n
		}
		s.wantFree(item, sum)
		return
	}
	for i, n := range want {
		s.wantFreeAt(item, int64(i+1), n)
	}
}

func testChoices(s *suite) {
	for _, sub := range []struct {
		name string
		run  func(s *suite)
	}{
		{"Preference", testChoicePreference},
		{"Split", testChoiceSplit},
		{"Refused", testChoiceRefused},
		{"Replay", testChoiceReplay},
		{"UnknownGroups", testChoiceUnknownGroups},
		{"Carts", testChoiceCarts},
		{"DueHold", testChoiceDueHold},
		{"BadInput", testChoiceBadInput},
		{"OneTokenAtOnce", testChoiceOneTokenAtOnce},
		{"BuyersAtOnce", testChoiceBuyersAtOnce},
		{"RandomAgainstModel", testChoicesAgainstModel},
	} {
		s.t.Run(sub.name, func(t *testing.T) { sub.run(s.in(t)) })
	}
}

func testChoicePreference(s *suite) {
	item := s.placed(1, 4, 9)
	s.wantPlaced([]holdover.Line{at(item, 2, 1)}, choice(item, 1, 2, 1))
	s.wantLeft(item, 1, 3, 9)
	s.wantPlaced([]holdover.Line{at(item, 2, 2)}, choice(item, 2, 1, 2)) // not 1 + 1
	s.wantLeft(item, 1, 1, 9)
	s.wantPlaced([]holdover.Line{at(item, 3, 2)}, choice(item, 2, 1, 2, 3))
	s.wantLeft(item, 1, 1, 7)
	s.wantPlaced([]holdover.Line{at(item, 1, 1)}, choice(item, 1, 1, 2, 3))
	s.wantLeft(item, 0, 1, 7)
	token := s.wantPlaced([]holdover.Line{at(item, 2, 1)}, choice(item, 1, 1, 2, 3))
	s.wantLeft(item, 0, 0, 7)
	if _, err := s.claim(token); err != nil {
		s.t.Errorf("claim: %v", err)
	}
	s.wantLeft(item, 0, 0, 7)
	s.wantLedger(item, 13)
}

func testChoiceSplit(s *suite) {
	item := s.placed(2, 3, 4)
	// One location that has it all comes before a split.
	s.wantPlaced([]holdover.Line{at(item, 3, 4)}, splitting(choice(item, 4, 1, 2, 3)))
	s.wantLeft(item, 2, 3, 0)
	token := s.wantPlaced([]holdover.Line{at(item, 1, 1), at(item, 2, 3)}, splitting(choice(item, 4, 2, 1)))
	s.wantLeft(item, 1, 0, 0)
	if _, err := s.claim(token); err != nil {
		s.t.Errorf("claim: %v", err)
	}
	s.wantLeft(item, 1, 0, 0)
	s.wantLedger(item, 5)
	if s.f.SumOverLocations {
		return
	}
	_, err := s.reserve(s.chooses(holdover.NewToken(), splitting(choice(item, 2, 1, 2, 3))))
	s.wantChoiceShort("a split of more than there is", err, holdover.Shortage{Item: item, Want: 2, Left: 1})
}

// wantChoiceShort checks a refusal: at no location, with what was left at most.
func (s *suite) wantChoiceShort(what string, err error, want ...holdover.Shortage) {
	s.t.Helper()
	s.wantClass(what, err, classOutOfStock)
	var short *holdover.OutOfStockError
	if errors.As(err, &short) && !slices.Equal(short.Short, want) {
		s.t.Errorf("%s: the shortage is %+v, want %+v", what, short.Short, want)
	}
}

func testChoiceRefused(s *suite) {
	item := s.placed(2, 3, 9)
	sum := holdover.Shortage{Item: item, Want: 15, Left: 14}
	if s.f.SumOverLocations {
		_, err := s.reserve(s.chooses(holdover.NewToken(), choice(item, 15, 1, 2)))
		s.wantChoiceShort("more than all locations have", err, sum)
		s.wantLeft(item, 2, 3, 9)
		return
	}
	token := holdover.NewToken()
	_, err := s.reserve(s.chooses(token, choice(item, 4, 1, 2)))
	s.wantChoiceShort("more than each location has", err, holdover.Shortage{Item: item, Want: 4, Left: 3})
	_, err = s.reserve(s.chooses(holdover.NewToken(), splitting(choice(item, 6, 1, 2))))
	s.wantChoiceShort("more than both have", err, holdover.Shortage{Item: item, Want: 6, Left: 5})
	s.wantLeft(item, 2, 3, 9)
	s.settle()
	_, err = s.lookup(token)
	s.wantClass("look-up after the refusal", err, classUnknownHold)
	// A refusal is not remembered.
	if res, err := s.reserve(s.chooses(token, choice(item, 3, 1, 2))); err != nil || res.Replayed {
		s.t.Errorf("the refused token, asked for less: replayed %t, error %v", res.Replayed, err)
	}
	s.wantLeft(item, 2, 0, 9)
}

func testChoiceReplay(s *suite) {
	item, other := s.placed(1, 4), s.placed(9)
	token := holdover.NewToken()
	cart := func(groups ...int64) holdover.Request {
		r := s.chooses(token, choice(item, 2, groups...))
		r.Lines = []holdover.Line{at(other, 1, 1)}
		return r
	}
	first, err := s.reserve(cart(1, 2))
	if err != nil || first.Replayed {
		s.t.Fatalf("reserve: replayed %t, error %v", first.Replayed, err)
	}
	replays := map[string]holdover.Request{
		"the same":           cart(1, 2),
		"the other order":    cart(2, 1),
		"more groups":        cart(3, 1, 2),
		"the lines it got":   {Shop: s.f.Shop, Token: token, TTL: longTTL, Lines: first.Hold.Lines},
		"written in pieces":  {Shop: s.f.Shop, Token: token, TTL: longTTL, Choices: []holdover.Choice{choice(item, 1, 1, 2), choice(other, 1, 1), choice(item, 1, 1, 2)}},
		"a split would do":   {Shop: s.f.Shop, Token: token, TTL: longTTL, Lines: []holdover.Line{at(other, 1, 1)}, Choices: []holdover.Choice{splitting(choice(item, 2, 1, 2))}},
		"the other order, 2": cart(2, 1, 3),
	}
	reused := map[string]holdover.Request{
		"another quantity": {Shop: s.f.Shop, Token: token, TTL: longTTL, Lines: []holdover.Line{at(other, 1, 1)}, Choices: []holdover.Choice{choice(item, 1, 1, 2)}},
		"other locations":  cart(4, 5),
		"one line less":    s.chooses(token, choice(item, 2, 1, 2)),
		"another shop":     {Shop: s.f.Shop + 1, Token: token, TTL: longTTL, Lines: cart(1, 2).Lines, Choices: cart(1, 2).Choices},
	}
	check := func(when string, want class) {
		s.t.Helper()
		for name, r := range replays {
			s.settle()
			got, err := s.reserve(r)
			s.wantClass(name+" "+when, err, want)
			if err == nil {
				s.sameHold(first.Hold, got.Hold)
				if !got.Replayed {
					s.t.Errorf("%s %s: not called a replay", name, when)
				}
			}
		}
		for name, r := range reused {
			_, err := s.reserve(r)
			s.wantClass(name+" "+when, err, classTokenReused, want)
			if err == nil {
				s.t.Errorf("%s %s: granted", name, when)
			}
		}
	}
	check("while it is held", classOK)
	if s.f.SumOverLocations {
		s.wantLeft(item, 1, 2)
	} else {
		s.wantLeft(item, 1, 2)
		// The units that make the first choice possible later change nothing.
		s.mustReserve(at(item, 1, 1))
		check("while the first choice is sold out", classOK)
	}
	s.wantFree(other, 8)
	if _, err := s.claim(token); err != nil {
		s.t.Fatalf("claim: %v", err)
	}
	check("after the claim", classClaimed)
	s.wantLedger(item, 3)
	s.wantLedger(other, 8)
}

func testChoiceUnknownGroups(s *suite) {
	if s.f.SumOverLocations {
		return // it takes the first one, known or not
	}
	item := s.placed(2)
	s.wantPlaced([]holdover.Line{at(item, 1, 1)}, choice(item, 1, 8, 1))
	s.wantPlaced([]holdover.Line{at(item, 1, 1)}, splitting(choice(item, 1, 8, 1, 9)))
	_, err := s.reserve(s.chooses(holdover.NewToken(), choice(item, 1, 8, 1)))
	s.wantChoiceShort("sold out at the one location that is known", err, holdover.Shortage{Item: item, Want: 1})
	_, err = s.reserve(s.chooses(holdover.NewToken(), choice(s.placed(1), 1, 8, 9)))
	s.wantClass("no location is known", err, classNotLoaded)
	// A line that is not loaded is no matter of location.
	r := s.chooses(holdover.NewToken(), choice(s.placed(1, 1), 1, 1, 2))
	r.Lines = []holdover.Line{at(s.newItem(), 1, 1)}
	_, err = s.reserve(r)
	s.wantClass("a line beside the choice is not loaded", err, classNotLoaded)
	s.wantFree(r.Choices[0].Item, 1)
}

// testChoiceCarts: all or nothing, over every location.
func testChoiceCarts(s *suite) {
	first, second, plain := s.placed(1, 5), s.placed(1, 1), s.placed(3)
	cart := func(ofSecond, ofPlain int64) holdover.Request {
		r := s.chooses(holdover.NewToken(), choice(first, 3, 1, 2), choice(second, ofSecond, 1, 2))
		r.Lines = []holdover.Line{at(plain, 1, ofPlain)}
		return r
	}
	if !s.f.SumOverLocations {
		_, err := s.reserve(cart(2, 1))
		s.wantChoiceShort("a cart with a choice that no location can fulfil", err, holdover.Shortage{Item: second, Want: 2, Left: 1})
		_, err = s.reserve(cart(1, 4))
		s.wantChoiceShort("a cart with a line that is short", err, holdover.Shortage{Item: plain, Group: 1, Want: 4, Left: 3})
		s.wantLeft(first, 1, 5)
		s.wantLeft(second, 1, 1)
		s.wantFree(plain, 3)
	}
	r := cart(1, 3)
	res, err := s.reserve(r)
	if err != nil {
		s.t.Fatalf("reserve: %v", err)
	}
	want := []holdover.Line{at(first, 2, 3), at(second, 1, 1), at(plain, 1, 3)}
	if s.f.SumOverLocations {
		want[0].Group = 1
	}
	if !slices.Equal(res.Hold.Lines, want) {
		s.t.Errorf("the cart has lines %v, want %v", res.Hold.Lines, want)
	}
	s.wantLeft(first, 1, 2)
	s.wantLeft(second, 0, 1)
	s.wantFree(plain, 0)
	if _, err := s.release(r.Token); err != nil {
		s.t.Errorf("release: %v", err)
	}
	s.wantLeft(first, 1, 5)
	s.wantLeft(second, 1, 1)
	s.wantFree(plain, 3)
}

// testChoiceDueHold: nobody is refused while a hold is due at a listed location.
func testChoiceDueHold(s *suite) {
	item := s.placed(1, 2)
	s.mustReserve(at(item, 1, 1))
	old := s.lapsed(at(item, 2, 2))
	s.wantPlaced([]holdover.Line{at(item, 2, 2)}, choice(item, 2, 1, 2))
	s.wantState(old, holdover.StateExpired)
	s.wantLeft(item, 0, 0)
}

func testChoiceBadInput(s *suite) {
	item := s.placed(5, 5)
	many := make([]int64, 33)
	for i := range many {
		many[i] = int64(i + 1)
	}
	for name, r := range map[string]holdover.Request{
		"no groups":            s.chooses(holdover.NewToken(), choice(item, 1)),
		"a group twice":        s.chooses(holdover.NewToken(), choice(item, 1, 1, 1)),
		"too many groups":      s.chooses(holdover.NewToken(), choice(item, 1, many...)),
		"a group below one":    s.chooses(holdover.NewToken(), choice(item, 1, 1, 0)),
		"no quantity":          s.chooses(holdover.NewToken(), choice(item, 0, 1, 2)),
		"no item":              s.chooses(holdover.NewToken(), choice(0, 1, 1, 2)),
		"one item in two ways": s.chooses(holdover.NewToken(), choice(item, 1, 1, 2), choice(item, 1, 2, 1)),
		"an item in line and choice": {Shop: s.f.Shop, Token: holdover.NewToken(), TTL: longTTL,
			Lines: []holdover.Line{at(item, 1, 1)}, Choices: []holdover.Choice{choice(item, 1, 1, 2)}},
	} {
		_, err := s.reserve(r)
		s.wantClass(name, err, classInvalid)
	}
	s.wantLeft(item, 5, 5)
}

// insist repeats a reserve while the answer is that others were faster.
func (s *suite) insist(r holdover.Request) answer {
	var a answer
	for range 10 {
		a = persistently(func() (holdover.Result, error) { return s.reserve(r) })
		if !errors.Is(a.err, holdover.ErrTryAgain) {
			break
		}
	}
	return a
}

func testChoiceOneTokenAtOnce(s *suite) {
	item := s.placed(1, 9)
	token := holdover.NewToken()
	lists := [][]int64{{1, 2}, {2, 1}, {3, 1, 2}}
	if s.f.SumOverLocations {
		lists = lists[:2] // its line may be at 3, whose units the others don't ask for
	}
	answers := make([]answer, 16)
	atOnce(len(answers), func(i int) {
		answers[i] = s.insist(s.chooses(token, choice(item, 2, lists[i%len(lists)]...)))
	})
	for _, a := range answers {
		if a.err != nil {
			s.t.Fatalf("one of 16 reserves of one token: %v", a.err)
		}
		s.sameHold(answers[0].res.Hold, a.res.Hold)
	}
	s.wantLeft(item, 1, 7)
	s.wantLedger(item, 10)
}

func testChoiceBuyersAtOnce(s *suite) {
	item := s.placed(7, 2, 11)
	answers := make([]answer, 100)
	atOnce(len(answers), func(i int) {
		groups := [][]int64{{1, 2, 3}, {2, 1, 3}}[i%2] // nobody's first choice has most of it
		token := holdover.NewToken()
		answers[i] = s.insist(s.chooses(token, choice(item, 1, groups...)))
	})
	granted := 0
	for _, a := range answers {
		s.wantClass("a buyer", a.err, classOK, classOutOfStock)
		if a.err == nil {
			granted++
		}
	}
	if granted != 20 {
		s.t.Errorf("%d of 100 buyers got one of 20 units at three locations, want 20", granted)
	}
	s.wantLeft(item, 0, 0, 0)
	s.wantLedger(item, 20)
}
