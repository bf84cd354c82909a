package holdover_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdover"
)

func choosing(choices ...holdover.Choice) holdover.Request {
	return holdover.Request{Shop: 1, Token: holdover.NewToken(), TTL: time.Minute, Choices: choices}
}

func choice(item, quantity int64, groups ...int64) holdover.Choice {
	return holdover.Choice{Item: item, Quantity: quantity, Groups: groups}
}

func split(c holdover.Choice) holdover.Choice {
	c.Split = true
	return c
}

func line(item, group, quantity int64) holdover.Line {
	return holdover.Line{Item: item, Group: group, Quantity: quantity}
}

func TestNormalizeChoices(t *testing.T) {
	for name, c := range map[string]struct {
		in      holdover.Request
		lines   []holdover.Line
		choices []holdover.Choice
	}{
		"sorted by item":      {choosing(choice(5, 1, 2, 1), choice(3, 1, 1, 2)), nil, []holdover.Choice{choice(3, 1, 1, 2), choice(5, 1, 2, 1)}},
		"one group is a line": {choosing(choice(5, 2, 7), choice(5, 1, 7), choice(5, 1, 8)), []holdover.Line{line(5, 7, 3), line(5, 8, 1)}, nil},
		"added up":            {choosing(choice(5, 2, 1, 2), choice(4, 1, 1, 2), choice(5, 1, 1, 2)), nil, []holdover.Choice{choice(4, 1, 1, 2), choice(5, 3, 1, 2)}},
		"beside a line": {holdover.Request{Shop: 1, Token: holdover.NewToken(), TTL: time.Minute, Lines: []holdover.Line{line(9, 1, 1), line(2, 1, 1)},
			Choices: []holdover.Choice{choice(5, 1, 1, 2)}}, []holdover.Line{line(2, 1, 1), line(9, 1, 1)}, []holdover.Choice{choice(5, 1, 1, 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			before := fmt.Sprint(c.in)
			got, err := c.in.Normalize(holdover.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			again, err := got.Normalize(holdover.Limits{})
			if err != nil || fmt.Sprint(again) != fmt.Sprint(got) {
				t.Errorf("normalized twice: %v, %v", again, err)
			}
			if !slices.Equal(got.Lines, c.lines) || !slices.EqualFunc(got.Choices, c.choices, sameChoice) {
				t.Errorf("lines %v, choices %+v; want %v, %+v", got.Lines, got.Choices, c.lines, c.choices)
			}
			if fmt.Sprint(c.in) != before {
				t.Errorf("the caller's request was changed: %v", c.in)
			}
		})
	}
}

func sameChoice(a, b holdover.Choice) bool {
	return a.Item == b.Item && a.Quantity == b.Quantity && a.Split == b.Split && slices.Equal(a.Groups, b.Groups)
}

func TestNormalizeRefusesChoices(t *testing.T) {
	for name, c := range map[string]struct {
		choices []holdover.Choice
		lines   []holdover.Line
		limits  holdover.Limits
		field   string
	}{
		"no item":                 {choices: []holdover.Choice{choice(0, 1, 1, 2)}, field: "item_id"},
		"no quantity":             {choices: []holdover.Choice{choice(5, 0, 1, 2)}, field: "quantity"},
		"quantity over":           {choices: []holdover.Choice{choice(5, 11, 1, 2)}, limits: holdover.Limits{MaxQuantity: 10}, field: "quantity"},
		"sum over":                {choices: []holdover.Choice{choice(5, 6, 1, 2), choice(5, 5, 1, 2)}, limits: holdover.Limits{MaxQuantity: 10}, field: "quantity"},
		"sum overflows":           {choices: []holdover.Choice{choice(5, math.MaxInt64, 1, 2), choice(5, math.MaxInt64, 1, 2)}, limits: holdover.Limits{MaxQuantity: math.MaxInt64}, field: "quantity"},
		"no groups":               {choices: []holdover.Choice{choice(5, 1)}, field: "group_ids"},
		"a group twice":           {choices: []holdover.Choice{choice(5, 1, 2, 3, 2)}, field: "group_ids"},
		"a bad group":             {choices: []holdover.Choice{choice(5, 1, 2, -3)}, field: "group_ids"},
		"too many groups":         {choices: []holdover.Choice{choice(5, 1, 1, 2, 3)}, limits: holdover.Limits{MaxGroups: 2}, field: "group_ids"},
		"another order":           {choices: []holdover.Choice{choice(5, 1, 1, 2), choice(5, 1, 2, 1)}, field: "group_ids"},
		"once split, once not":    {choices: []holdover.Choice{choice(5, 1, 1, 2), split(choice(5, 1, 1, 2))}, field: "group_ids"},
		"line and choice":         {choices: []holdover.Choice{choice(5, 1, 1, 2)}, lines: []holdover.Line{line(5, 3, 1)}, field: "group_ids"},
		"too many together":       {choices: []holdover.Choice{choice(5, 1, 1, 2)}, lines: []holdover.Line{line(6, 3, 1)}, limits: holdover.Limits{MaxLines: 1}, field: "lines"},
		"too many when split":     {choices: []holdover.Choice{split(choice(5, 3, 1, 2, 3))}, limits: holdover.Limits{MaxLines: 2}, field: "lines"},
		"neither line nor choice": {field: "lines"},
	} {
		t.Run(name, func(t *testing.T) {
			r := choosing(c.choices...)
			r.Lines = c.lines
			_, err := r.Normalize(c.limits)
			var bad *holdover.InvalidError
			if !errors.As(err, &bad) || bad.Field != c.field || bad.Problem == "" {
				t.Errorf("%v, want an *InvalidError about %s", err, c.field)
			}
		})
	}
	// Two units can't be at three locations.
	if _, err := choosing(split(choice(5, 2, 1, 2, 3))).Normalize(holdover.Limits{MaxLines: 2}); err != nil {
		t.Errorf("a split into at most two lines: %v", err)
	}
}

// stocks is what is free of item 5 in shop 1 at groups 1, 2, ...; below zero: no record.
func stocks(free ...int64) (all []holdover.Stock) {
	for i, n := range free {
		if n >= 0 { // half of it in the pool, and two units held beside it
			all = append(all, holdover.Stock{Shop: 1, Item: 5, Group: int64(i + 1), Available: n + 2, Issued: n/2 + 2, Pooled: n / 2, Held: 2})
		}
	}
	return append(all, holdover.Stock{Shop: 2, Item: 5, Group: 1, Available: 99}, holdover.Stock{Shop: 1, Item: 6, Group: 1, Available: 99})
}

func TestPlan(t *testing.T) {
	for name, c := range map[string]struct {
		choice holdover.Choice
		stocks []holdover.Stock
		want   []holdover.Line
		left   int64 // of a refusal
	}{
		"the first":                    {choice(5, 2, 1, 2), stocks(2, 9), []holdover.Line{line(5, 1, 2)}, 0},
		"the preferred one":            {choice(5, 2, 2, 1), stocks(2, 9), []holdover.Line{line(5, 2, 2)}, 0},
		"the first that has all":       {choice(5, 3, 1, 2, 3), stocks(2, 2, 3), []holdover.Line{line(5, 3, 3)}, 0},
		"none has all":                 {choice(5, 3, 1, 2, 3), stocks(2, 1, 0), nil, 2},
		"not listed":                   {choice(5, 3, 1, 2), stocks(2, 1, 9), nil, 2},
		"unknown is skipped":           {choice(5, 1, 1, 2), stocks(-1, 1), []holdover.Line{line(5, 2, 1)}, 0},
		"one is better than a split":   {split(choice(5, 3, 1, 2, 3)), stocks(2, 2, 3), []holdover.Line{line(5, 3, 3)}, 0},
		"split in order":               {split(choice(5, 4, 3, 1, 2)), stocks(2, 9, 1), []holdover.Line{line(5, 2, 4)}, 0},
		"split in order, none has all": {split(choice(5, 4, 3, 1, 2)), stocks(2, 3, 1), []holdover.Line{line(5, 1, 2), line(5, 2, 1), line(5, 3, 1)}, 0},
		"split, nothing to spare":      {split(choice(5, 6, 1, 2)), stocks(2, 3, 1), nil, 5},
		"oversold counts as nothing":   {split(choice(5, 3, 1, 2)), []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 1, Issued: 4, Held: 4}, {Shop: 1, Item: 5, Group: 2, Available: 2}}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := choosing(c.choice).Normalize(holdover.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Plan(c.stocks)
			var short *holdover.OutOfStockError
			switch {
			case c.want == nil && (!errors.As(err, &short) || !slices.Equal(short.Short, []holdover.Shortage{{Item: 5, Want: c.choice.Quantity, Left: c.left}})):
				t.Errorf("lines %v, error %v; want out of stock with %d left", got, err, c.left)
			case c.want != nil && (err != nil || !slices.Equal(got, c.want)):
				t.Errorf("lines %v, error %v; want %v", got, err, c.want)
			}
		})
	}
	r, _ := choosing(choice(5, 1, 8, 9)).Normalize(holdover.Limits{})
	if _, err := r.Plan(stocks(5)); !errors.Is(err, holdover.ErrNotLoaded) {
		t.Errorf("no group is known: %v", err)
	}
}

// Every plan fits its request, is possible, and is refused only when no way of
// distributing the units exists.
func TestPlanAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		free := rapid.SliceOfN(rapid.Int64Range(0, 4), 3, 3).Draw(t, "free")
		c := holdover.Choice{Item: 5, Quantity: rapid.Int64Range(1, 9).Draw(t, "quantity"), Split: rapid.Bool().Draw(t, "split"),
			Groups: rapid.Permutation([]int64{1, 2, 3}).Draw(t, "groups")[:rapid.IntRange(2, 3).Draw(t, "listed")]}
		r, err := choosing(c).Normalize(holdover.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		lines, err := r.Plan(stocks(free...))
		var most, sum int64
		for _, g := range c.Groups {
			most, sum = max(most, free[g-1]), sum+free[g-1]
		}
		if possible := most >= c.Quantity || c.Split && sum >= c.Quantity; possible != (err == nil) {
			t.Fatalf("%+v of %v: %v, possible %t", c, free, err, possible)
		}
		if err != nil {
			return
		}
		if !r.Fits(lines) {
			t.Fatalf("%+v of %v: the plan %v does not fit", c, free, lines)
		}
		for _, l := range lines {
			if l.Quantity > free[l.Group-1] {
				t.Fatalf("%+v of %v: the plan %v takes what is not there", c, free, lines)
			}
		}
		if most >= c.Quantity && len(lines) > 1 {
			t.Fatalf("%+v of %v: split into %v although one location has all", c, free, lines)
		}
	})
}

// votes is a scripted store: each vote gets the next answer.
type votes struct {
	t       *testing.T
	asked   [][]holdover.Line
	answers []error
	hold    holdover.Hold
	stocks  [][]holdover.Stock // of each probe; the last one stays
	probes  int
}

func (v *votes) placer() holdover.Placer {
	return holdover.Placer{
		Vote: func(_ context.Context, r holdover.Request) (holdover.Grant, error) {
			if len(r.Choices) > 0 {
				v.t.Errorf("a step is asked for choices: %+v", r)
			}
			v.asked = append(v.asked, r.Lines)
			err := v.answers[min(len(v.asked), len(v.answers))-1]
			return holdover.Grant{Hold: holdover.Hold{Token: r.Token, Lines: r.Lines}}, err
		},
		Lookup: func(context.Context, holdover.Token) (holdover.Hold, error) { return v.hold, nil },
		Probe: func(context.Context, int64, []int64) ([]holdover.Stock, error) {
			v.probes++
			return v.stocks[min(v.probes, len(v.stocks))-1], nil
		},
	}
}

func shortAt(group int64) error {
	return &holdover.OutOfStockError{Store: holdover.StoreMySQL, Shop: 1, Short: []holdover.Shortage{{Item: 5, Group: group, Want: 2, Left: 1}}}
}

func TestPlaceReadsNothingWhenTheFirstChoiceIsThere(t *testing.T) {
	v := &votes{t: t, answers: []error{nil}}
	r, _ := choosing(choice(5, 2, 1, 2)).Normalize(holdover.Limits{})
	g, asked, err := v.placer().Place(t.Context(), r)
	if want := []holdover.Line{line(5, 1, 2)}; err != nil || v.probes != 0 || !slices.Equal(g.Hold.Lines, want) || !slices.Equal(asked, want) {
		t.Errorf("lines %v, asked %v, %d probes, error %v", g.Hold.Lines, asked, v.probes, err)
	}
}

func TestPlaceOutlivesLostRaces(t *testing.T) {
	v := &votes{t: t, answers: []error{shortAt(1), shortAt(2), shortAt(1), nil}, stocks: [][]holdover.Stock{stocks(1, 2), stocks(2, 1), stocks(0, 9)}}
	r, _ := choosing(choice(5, 2, 1, 2)).Normalize(holdover.Limits{})
	g, _, err := v.placer().Place(t.Context(), r)
	if err != nil || v.probes != 3 || !slices.Equal(g.Hold.Lines, []holdover.Line{line(5, 2, 2)}) {
		t.Errorf("lines %v after %v, %d probes, error %v", g.Hold.Lines, v.asked, v.probes, err)
	}
}

// A plan that is always lost is no refusal: stock is there.
func TestPlaceGivesUpWithTryAgain(t *testing.T) {
	v := &votes{t: t, answers: []error{shortAt(1)}, stocks: [][]holdover.Stock{stocks(2, 1), stocks(1, 2)}}
	r, _ := choosing(choice(5, 2, 1, 2)).Normalize(holdover.Limits{})
	_, _, err := v.placer().Place(t.Context(), r)
	if !errors.Is(err, holdover.ErrTryAgain) || errors.Is(err, holdover.ErrOutOfStock) || len(v.asked) < 4 || len(v.asked) > 100 {
		t.Errorf("after %d plans: %v", len(v.asked), err)
	}
}

func TestPlaceRefusesByOneReading(t *testing.T) {
	v := &votes{t: t, answers: []error{shortAt(1)}, stocks: [][]holdover.Stock{stocks(1, 1)}}
	r, _ := choosing(choice(5, 2, 1, 2)).Normalize(holdover.Limits{})
	_, _, err := v.placer().Place(t.Context(), r)
	var short *holdover.OutOfStockError
	if !errors.As(err, &short) || short.Short[0] != (holdover.Shortage{Item: 5, Want: 2, Left: 1}) || v.probes != 1 || len(v.asked) != 1 {
		t.Errorf("%v after %d votes and %d probes", err, len(v.asked), v.probes)
	}
	if want := "out of stock in mysql, shop 1: item 5 at any listed group: 2 wanted, 1 left"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

func TestPlaceLeavesOtherAnswersAlone(t *testing.T) {
	r, _ := choosing(choice(5, 2, 1, 2)).Normalize(holdover.Limits{})
	stale := &holdover.StaleError{Store: holdover.StoreMySQL}
	inRedis := &holdover.OutOfStockError{Store: holdover.StoreRedis, Shop: 1, Short: []holdover.Shortage{{Item: 5, Group: 1, Want: 2}}}
	for _, c := range []struct {
		answer, want error
	}{
		{stale, stale}, {holdover.ErrOverloaded, holdover.ErrOverloaded}, {holdover.ErrTryAgain, holdover.ErrTryAgain},
		{inRedis, holdover.ErrOutOfStock}, {holdover.ErrUnavailable, holdover.ErrUnavailable},
	} {
		v := &votes{t: t, answers: []error{c.answer}}
		_, asked, err := v.placer().Place(t.Context(), r)
		if !errors.Is(err, c.want) || v.probes != 0 || len(v.asked) != 1 || !slices.Equal(asked, v.asked[0]) {
			t.Errorf("%v: %v after %d votes, %d probes", c.answer, err, len(v.asked), v.probes)
		}
	}
	// Only the lines beside the choices are short: no location helps.
	r = choosing(choice(5, 2, 1, 2))
	r.Lines = []holdover.Line{line(7, 1, 3)}
	r, _ = r.Normalize(holdover.Limits{})
	v := &votes{t: t, answers: []error{&holdover.OutOfStockError{Store: holdover.StoreMySQL, Shop: 1,
		Short: []holdover.Shortage{{Item: 5, Group: 1, Want: 2}, {Item: 7, Group: 1, Want: 3, Left: 2}}}}}
	_, _, err := v.placer().Place(t.Context(), r)
	var short *holdover.OutOfStockError
	if !errors.As(err, &short) || !slices.Equal(short.Short, []holdover.Shortage{{Item: 7, Group: 1, Want: 3, Left: 2}}) || v.probes != 0 {
		t.Errorf("%v after %d probes", err, v.probes)
	}
}

func TestPlaceFindsTheHoldOfItsToken(t *testing.T) {
	r, _ := choosing(choice(5, 2, 1, 2)).Normalize(holdover.Limits{})
	held := holdover.Hold{Token: r.Token, Shop: 1, State: holdover.StateHeld, Lines: []holdover.Line{line(5, 2, 2)}}
	v := &votes{t: t, answers: []error{holdover.ErrTokenReused, nil}, hold: held}
	g, _, err := v.placer().Place(t.Context(), r)
	if err != nil || !slices.Equal(g.Hold.Lines, held.Lines) || v.probes != 0 {
		t.Errorf("lines %v, %d probes, error %v", g.Hold.Lines, v.probes, err)
	}
	for name, other := range map[string]holdover.Hold{
		"another shop":     {Token: r.Token, Shop: 2, State: holdover.StateHeld, Lines: held.Lines},
		"another location": {Token: r.Token, Shop: 1, State: holdover.StateHeld, Lines: []holdover.Line{line(5, 3, 2)}},
		"another quantity": {Token: r.Token, Shop: 1, State: holdover.StateHeld, Lines: []holdover.Line{line(5, 2, 1)}},
		"a split":          {Token: r.Token, Shop: 1, State: holdover.StateHeld, Lines: []holdover.Line{line(5, 1, 1), line(5, 2, 1)}},
		"more items":       {Token: r.Token, Shop: 1, State: holdover.StateHeld, Lines: []holdover.Line{line(5, 2, 2), line(6, 1, 1)}},
		"an end record":    {Token: r.Token, State: holdover.StateReleased},
	} {
		v := &votes{t: t, answers: []error{holdover.ErrTokenReused}, hold: other}
		if _, _, err := v.placer().Place(t.Context(), r); !errors.Is(err, holdover.ErrTokenReused) || len(v.asked) != 1 {
			t.Errorf("%s: %v after %d votes", name, err, len(v.asked))
		}
	}
	// Given back between the two: the token is free again.
	v = &votes{t: t, answers: []error{holdover.ErrTokenReused, nil}, hold: holdover.Hold{Token: r.Token}}
	if g, _, err := v.placer().Place(t.Context(), r); err != nil || !slices.Equal(g.Hold.Lines, []holdover.Line{line(5, 1, 2)}) {
		t.Errorf("lines %v, error %v", g.Hold.Lines, err)
	}
}

// A call that goes on under another agreement asks first for what a store may
// have granted already.
func TestPlaceBeginsWithWhatWasAskedBefore(t *testing.T) {
	r, _ := choosing(choice(5, 2, 1, 2)).Normalize(holdover.Limits{})
	v := &votes{t: t, answers: []error{nil}}
	p := v.placer()
	p.Before, p.ProbeFirst = []holdover.Line{line(5, 2, 2)}, true
	if g, _, err := p.Place(t.Context(), r); err != nil || !slices.Equal(g.Hold.Lines, p.Before) || v.probes != 0 {
		t.Errorf("lines %v, error %v", g.Hold.Lines, err)
	}
	p.Before = nil
	v.stocks = [][]holdover.Stock{stocks(1, 2)}
	if g, _, err := p.Place(t.Context(), r); err != nil || !slices.Equal(g.Hold.Lines, []holdover.Line{line(5, 2, 2)}) || v.probes != 1 {
		t.Errorf("planned first: lines %v, %d probes, error %v", g.Hold.Lines, v.probes, err)
	}
}
