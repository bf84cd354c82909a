package model

import (
	"fmt"
	"slices"

	"holdover"
)

// located is r with the concrete lines that its choices mean at this moment: the
// ones of its hold if it has one, else the first location that has all of a
// choice, else, if it may be split, all that each has in the order of
// preference. What no location can fulfil stays short at the first one, and is
// told without a location.
func (m *Model) located(r holdover.Request) (holdover.Request, error) {
	if len(r.Choices) == 0 {
		return r, nil
	}
	h := m.holds[r.Token]
	if h != nil && h.Shop == r.Shop && asked(h.Lines, r) {
		r.Lines = h.Lines
		return r, nil
	}
	lines := slices.Clone(r.Lines)
	for _, c := range r.Choices {
		found, err := m.locate(r.Shop, c)
		if err != nil && h == nil { // a token that stands for something else is refused for that
			return r, err
		}
		lines = append(lines, found...)
	}
	slices.SortFunc(lines, func(a, b holdover.Line) int {
		if a.Item != b.Item {
			return int(a.Item - b.Item)
		}
		return int(a.Group - b.Group)
	})
	r.Lines = lines
	return r, nil
}

func (m *Model) locate(shop int64, c holdover.Choice) ([]holdover.Line, error) {
	at := func(group, quantity int64) holdover.Line {
		return holdover.Line{Item: c.Item, Group: group, Quantity: quantity}
	}
	whole := []holdover.Line{at(c.Groups[0], c.Quantity)}
	if m.cfg.Locations == SumOverLocations {
		return whole, nil
	}
	var parts []holdover.Line
	missing, loaded := c.Quantity, false
	for _, group := range c.Groups {
		units, known := m.free(shop, c.Item, group)
		loaded = loaded || known
		if known && units >= c.Quantity {
			return []holdover.Line{at(group, c.Quantity)}, nil
		}
		if n := min(units, missing); known && n > 0 {
			parts = append(parts, at(group, n))
			missing -= n
		}
	}
	switch {
	case !loaded:
		return nil, fmt.Errorf("shop %d, item %d at groups %d: %w", shop, c.Item, c.Groups, holdover.ErrNotLoaded)
	case c.Split && missing == 0:
		return parts, nil
	}
	for _, group := range c.Groups { // one that is known, so that it is short and not "not loaded"
		if _, known := m.free(shop, c.Item, group); known {
			return []holdover.Line{at(group, c.Quantity)}, nil
		}
	}
	return whole, nil
}

// asked reports whether the lines are an answer to r: for each item the units
// of r, at listed locations, together unless r may be split.
func asked(lines []holdover.Line, r holdover.Request) bool {
	left := slices.Clone(lines)
	take := func(of func(holdover.Line) bool) (units int64, n int) {
		left = slices.DeleteFunc(left, func(l holdover.Line) bool {
			if !of(l) {
				return false
			}
			units, n = units+l.Quantity, n+1
			return true
		})
		return units, n
	}
	for _, c := range r.Choices {
		units, n := take(func(l holdover.Line) bool { return l.Item == c.Item && slices.Contains(c.Groups, l.Group) })
		if units != c.Quantity || n > 1 && !c.Split {
			return false
		}
	}
	return slices.Equal(left, r.Lines)
}

// told is a shortage list as callers are told it: that of a choice is at no
// location, and says what the choice could have got at most.
func (m *Model) told(r holdover.Request, short []holdover.Shortage) []holdover.Shortage {
	out := slices.Clone(short)
	for i, s := range out {
		at := slices.IndexFunc(r.Choices, func(c holdover.Choice) bool { return c.Item == s.Item })
		if at < 0 {
			continue
		}
		c := r.Choices[at]
		out[i].Group, out[i].Want = 0, c.Quantity
		if m.cfg.Locations == SumOverLocations {
			continue
		}
		out[i].Left = 0
		for _, group := range c.Groups {
			units, _ := m.free(r.Shop, c.Item, group)
			if c.Split {
				out[i].Left += max(0, units)
			} else {
				out[i].Left = max(out[i].Left, units)
			}
		}
	}
	return out
}
