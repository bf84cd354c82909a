package holdover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Choice asks for Quantity units of an item wherever they are: all of them from
// the first of Groups that can fulfil alone, or, with Split and when none can,
// from several in order of preference. Only the listed groups are touched; one
// that has no stock record counts as empty. Hold.Lines of the answer says where
// the units are from.
//
// A choice is made above the stores' steps, which know concrete lines only. The
// Redis path has one counter for an item and no notion of location: where Redis
// decides alone, the line is at the first group, whatever is left there.
type Choice struct {
	Item     int64
	Groups   []int64 // in order of preference
	Quantity int64
	Split    bool
}

// normalChoices checks r.Choices and brings them into one order, by item. A
// choice of one group is an ordinary line. Repeated choices of an item are
// added up, as lines are, when they list the same groups; an item that is asked
// for in two different ways is refused, since what a token stands for would
// depend on where the units were.
func (r *Request) normalChoices(l Limits) error {
	r.Lines = slices.Clone(r.Lines)
	var choices []Choice
	for _, c := range r.Choices {
		if err := c.check(l); err != nil {
			return err
		}
		if len(c.Groups) == 1 {
			r.Lines = append(r.Lines, Line{Item: c.Item, Group: c.Groups[0], Quantity: c.Quantity})
			continue
		}
		i := slices.IndexFunc(choices, func(o Choice) bool { return o.Item == c.Item })
		switch {
		case i < 0:
			c.Groups = slices.Clone(c.Groups)
			choices = append(choices, c)
		case !slices.Equal(choices[i].Groups, c.Groups) || choices[i].Split != c.Split:
			return invalid("group_ids", c.Groups, fmt.Sprintf("asks for item %d in another way than an earlier line: list the same groups, or make it two reservations", c.Item))
		case c.Quantity > l.MaxQuantity-choices[i].Quantity:
			return invalid("quantity", c.Quantity, fmt.Sprintf("takes item %d over the limit of %d units: its lines are added up", c.Item, l.MaxQuantity))
		default:
			choices[i].Quantity += c.Quantity
		}
	}
	// The limit on lines must hold however the units are found.
	most := int64(len(r.Lines))
	for _, c := range choices {
		if slices.ContainsFunc(r.Lines, func(line Line) bool { return line.Item == c.Item }) {
			return invalid("group_ids", c.Groups, fmt.Sprintf("asks for item %d, which has a line at one group too: list the same groups, or make it two reservations", c.Item))
		}
		if c.Split {
			most += min(int64(len(c.Groups)), c.Quantity)
		} else {
			most++
		}
	}
	if most > int64(l.MaxLines) {
		return invalid("lines", most, fmt.Sprintf("is what these choices may come to, over the limit of %d lines: list fewer groups or split less", l.MaxLines))
	}
	slices.SortFunc(choices, func(a, b Choice) int { return cmp.Compare(a.Item, b.Item) })
	r.Choices = choices
	return nil
}

func (c Choice) check(l Limits) error {
	switch {
	case c.Item <= 0:
		return invalid("item_id", c.Item, "must be a positive number")
	case c.Quantity <= 0:
		return invalid("quantity", c.Quantity, "must be a positive number")
	case c.Quantity > l.MaxQuantity:
		return invalid("quantity", c.Quantity, fmt.Sprintf("is over the limit of %d units a line", l.MaxQuantity))
	case len(c.Groups) == 0:
		return invalid("group_ids", "", "must list at least one group")
	case len(c.Groups) > l.MaxGroups:
		return invalid("group_ids", len(c.Groups), fmt.Sprintf("lists more than the limit of %d groups", l.MaxGroups))
	}
	for i, g := range c.Groups {
		switch {
		case g <= 0:
			return invalid("group_ids", g, "must be positive numbers")
		case slices.Contains(c.Groups[:i], g):
			return invalid("group_ids", g, "is listed twice")
		}
	}
	return nil
}

// at is r with these lines and without choices: what a step can be asked.
func (r Request) at(lines []Line) Request {
	r.Lines, r.Choices = lines, nil
	return r
}

// firstChoice is each choice at its first group: what is tried before anything
// is read.
func (r Request) firstChoice() []Line {
	lines := slices.Clone(r.Lines)
	for _, c := range r.Choices {
		lines = append(lines, Line{Item: c.Item, Group: c.Groups[0], Quantity: c.Quantity})
	}
	return sortedLines(lines)
}

// Plan makes concrete lines of a normalized request, given what is free at each
// location of the choices' items. It is a guess, for stock moves: a step
// decides. Errors say that no plan exists: an *OutOfStockError, where Group is
// 0 for "none of the listed" and Left the most that a larger Quantity could have
// got, or ErrNotLoaded when none of a choice's groups has a stock record.
func (r Request) Plan(stocks []Stock) ([]Line, error) {
	lines := slices.Clone(r.Lines)
	var short []Shortage
	for _, c := range r.Choices {
		free, known := make([]int64, len(c.Groups)), false
		for i, g := range c.Groups {
			at := slices.IndexFunc(stocks, func(s Stock) bool { return s.Shop == r.Shop && s.Item == c.Item && s.Group == g })
			if at >= 0 {
				free[i], known = max(0, stocks[at].Free()), true
			}
		}
		if !known {
			return nil, fmt.Errorf("shop %d, item %d has no stock record at any of the groups %d: %w", r.Shop, c.Item, c.Groups, ErrNotLoaded)
		}
		found, left := c.pick(free)
		if found == nil {
			short = append(short, Shortage{Item: c.Item, Want: c.Quantity, Left: left})
		}
		lines = append(lines, found...)
	}
	if len(short) > 0 {
		return nil, &OutOfStockError{Store: StoreMySQL, Shop: r.Shop, Short: short}
	}
	return sortedLines(lines), nil
}

// pick takes the choice's units out of what its groups have free; nil when they
// can't fulfil it, with the most that they could.
func (c Choice) pick(free []int64) (found []Line, left int64) {
	if i := slices.IndexFunc(free, func(n int64) bool { return n >= c.Quantity }); i >= 0 {
		return []Line{{Item: c.Item, Group: c.Groups[i], Quantity: c.Quantity}}, 0
	}
	if !c.Split {
		return nil, slices.Max(free)
	}
	need := c.Quantity
	for i, n := range free {
		if n = min(n, need); n > 0 {
			found = append(found, Line{Item: c.Item, Group: c.Groups[i], Quantity: n})
			need -= n
		}
	}
	if need > 0 {
		return nil, c.Quantity - need
	}
	return found, 0
}

// Fits reports whether a hold with these lines is what the normalized request
// asks for, wherever its units were found: the test of "the same token with
// other lines" when the store has chosen.
func (r Request) Fits(lines []Line) bool {
	type found struct{ units, lines int64 }
	got := make(map[int64]found, len(r.Choices))
	var rest []Line
	for _, l := range lines {
		i := slices.IndexFunc(r.Choices, func(c Choice) bool { return c.Item == l.Item })
		switch {
		case i < 0:
			rest = append(rest, l)
		case !slices.Contains(r.Choices[i].Groups, l.Group):
			return false
		default:
			f := got[l.Item]
			got[l.Item] = found{f.units + l.Quantity, f.lines + 1}
		}
	}
	for _, c := range r.Choices {
		if f := got[c.Item]; f.units != c.Quantity || f.lines > 1 && !c.Split {
			return false
		}
	}
	return SameLines(rest, r.Lines)
}

// Placer finds the lines for a request's choices by asking steps that know
// concrete lines only.
type Placer struct {
	// Vote asks for concrete lines.
	Vote func(ctx context.Context, r Request) (Grant, error)
	// Lookup is the look-up of the store that Vote asks; an unknown token has
	// StateNone and no error.
	Lookup func(ctx context.Context, token Token) (Hold, error)
	// Probe reads, without a lock, every location of the items. Nil: the store
	// knows no locations, and the first group of a choice is its line.
	Probe func(ctx context.Context, shop int64, items []int64) ([]Stock, error)
	// Before are the lines that this call asked for last, under another
	// agreement: they come first, because a store may have granted them. Nil:
	// the first choice comes first.
	Before []Line
	// ProbeFirst plans before the first try too: where a try that is lost may
	// leave something behind.
	ProbeFirst bool
}

// maxPlans bounds how often one request is asked for in other lines. Each of
// them but the last was lost to somebody who was faster.
const maxPlans = 16

// Place asks for a normalized request. The first try takes each choice's first
// group and reads nothing. When a location is short of it, the choices are
// planned from what is free now, and asked for; that is repeated while others
// are faster, because a race is no refusal. Sold out is only what one reading
// shows: all listed groups together with Split, each of them without, have too
// little. It returns the lines that it asked for last.
//
// Errors: as Vote; ErrTryAgain when every plan was lost although stock is there.
// A shortage of a choice has Group 0.
func (p Placer) Place(ctx context.Context, r Request) (g Grant, asked []Line, err error) {
	if len(r.Choices) == 0 {
		g, err = p.Vote(ctx, r)
		return g, r.Lines, err
	}
	asked = p.Before
	if asked == nil && p.ProbeFirst {
		asked, _ = p.plan(ctx, r) // whatever speaks against it, the vote says it
	}
	if asked == nil {
		asked = r.firstChoice()
	}
	for range maxPlans {
		g, err = p.Vote(ctx, r.at(asked))
		next, planErr := p.next(ctx, r, asked, err)
		if planErr != nil || next == nil {
			return g, asked, planErr
		}
		asked = next
	}
	return Grant{}, asked, fmt.Errorf("hold %s in shop %d: each of %d plans for its locations was taken by others first, stock is there (%v): %w", r.Token, r.Shop, maxPlans, err, ErrTryAgain)
}

// next are the lines to ask for after an answer, or nil and the answer's error
// when it stands.
func (p Placer) next(ctx context.Context, r Request, asked []Line, err error) ([]Line, error) {
	var short *OutOfStockError
	switch {
	case errors.Is(err, ErrTokenReused):
		h, lookErr := p.Lookup(ctx, r.Token)
		switch {
		case lookErr != nil:
			return nil, lookErr
		case h.State == StateNone: // given back in the meantime: the token is free again
			return r.firstChoice(), nil
		case h.Shop != r.Shop || !r.Fits(h.Lines) || SameLines(h.Lines, asked):
			return nil, err
		}
		return h.Lines, nil // a replay: asked for as it was granted, it is confirmed like any other
	case p.Probe == nil, errors.As(err, &short) && short.Store != StoreMySQL:
		return nil, r.unlocated(err)
	case short != nil:
		if of := r.unchosen(short); len(of) > 0 { // no other location can help these
			return nil, &OutOfStockError{Store: short.Store, Shop: short.Shop, Short: of}
		}
	case !errors.Is(err, ErrNotLoaded):
		return nil, err
	}
	plan, planErr := p.plan(ctx, r)
	if planErr == nil && short == nil && SameLines(plan, asked) {
		return nil, err // not loaded, and not for the want of a better location
	}
	return plan, planErr
}

// plan reads what is free and plans with it.
func (p Placer) plan(ctx context.Context, r Request) ([]Line, error) {
	items := make([]int64, len(r.Choices))
	for i, c := range r.Choices {
		items[i] = c.Item
	}
	stocks, err := p.Probe(ctx, r.Shop, items)
	if err != nil {
		return nil, err
	}
	return r.Plan(stocks)
}

// unchosen are the shortages of ordinary lines.
func (r Request) unchosen(e *OutOfStockError) []Shortage {
	return slices.DeleteFunc(slices.Clone(e.Short), func(s Shortage) bool { return r.chose(s.Item) })
}

func (r Request) chose(item int64) bool {
	return slices.ContainsFunc(r.Choices, func(c Choice) bool { return c.Item == item })
}

// unlocated is err with the shortages of choices at no group in particular.
func (r Request) unlocated(err error) error {
	var short *OutOfStockError
	if !errors.As(err, &short) {
		return err
	}
	all := slices.Clone(short.Short)
	for i, s := range all {
		if r.chose(s.Item) {
			all[i].Group = 0
		}
	}
	return &OutOfStockError{Store: short.Store, Shop: short.Shop, Short: all}
}

func sortedLines(lines []Line) []Line {
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Item, b.Item), cmp.Compare(a.Group, b.Group))
	})
	return lines
}
