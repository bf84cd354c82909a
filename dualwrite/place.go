package dualwrite

import (
	"context"
	"errors"
	"maps"

	"holdover"
)

// applyToMySQL carries a fact into MySQL, whose fence is raised first if it is
// owed. Redis knows no locations. So MySQL may have a token's units at others
// than Redis says: an instance placed them, was told to stop, and the buyer's
// repeat was granted by Redis. Then MySQL's place stands, the fact is carried in
// MySQL's lines, and it comes back in its own, as Redis knows it.
func (f *Facade) applyToMySQL(ctx context.Context, fact holdover.Hold) (holdover.Hold, error) {
	if err := f.raiseMySQL(ctx); err != nil {
		return holdover.Hold{}, err
	}
	known, err := f.mysql.Apply(ctx, fact)
	if errors.Is(err, holdover.ErrTokenReused) || errors.Is(err, holdover.ErrInvalid) {
		there, lookErr := f.mysql.Lookup(ctx, fact.Token)
		if lookErr != nil || there.Shop != fact.Shop || holdover.SameLines(there.Lines, fact.Lines) || !sameUnits(there.Lines, fact.Lines) {
			return known, err
		}
		placed := fact
		placed.Lines, placed.Claimed = there.Lines, partAt(there.Lines, fact.Claimed)
		known, err = f.mysql.Apply(ctx, placed)
	}
	if err == nil && sameUnits(known.Lines, fact.Lines) && sameUnits(known.Part(), fact.Part()) {
		known.Lines, known.Claimed = fact.Lines, fact.Claimed
	}
	return known, err
}

// sameUnits: as many of each item, wherever they are.
func sameUnits(a, b []holdover.Line) bool { return maps.Equal(unitsOf(a), unitsOf(b)) }

func unitsOf(lines []holdover.Line) map[int64]int64 {
	units := make(map[int64]int64, len(lines))
	for _, l := range lines {
		units[l.Item] += l.Quantity
	}
	return units
}

// partAt takes the units of part out of lines, in their order; nil is all.
func partAt(lines, part []holdover.Line) []holdover.Line {
	if part == nil {
		return nil
	}
	need := unitsOf(part)
	placed := make([]holdover.Line, 0, len(part))
	for _, l := range lines {
		if n := min(l.Quantity, need[l.Item]); n > 0 {
			need[l.Item] -= n
			placed = append(placed, holdover.Line{Item: l.Item, Group: l.Group, Quantity: n})
		}
	}
	return placed
}
