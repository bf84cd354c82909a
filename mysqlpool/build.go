package mysqlpool

import (
	"cmp"
	"slices"
	"strings"

	"holdover"
)

// Bounds of one statement. Longer lists are cut, in key order.
const (
	maxKeys  = 64  // rows of pool_state or inventory_ledger, branches of the locking union
	maxUnits = 128 // units of one DELETE
	maxRows  = 500 // rows of one INSERT
)

// key is an item at a location, inside one shop.
type key struct{ item, group int64 }

func keyOf(l holdover.Line) key { return key{l.Item, l.Group} }

func keysOf(lines []holdover.Line) []key {
	keys := make([]key, len(lines))
	for i, l := range lines {
		keys[i] = keyOf(l)
	}
	return sorted(keys)
}

// sorted puts keys into lock order and drops repeats.
func sorted(keys []key) []key {
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(a.item, b.item), cmp.Compare(a.group, b.group)) })
	return slices.Compact(keys)
}

// statement collects text and parameters.
type statement struct {
	strings.Builder
	args []any
}

func (b *statement) add(text string, args ...any) *statement {
	b.WriteString(text)
	b.args = append(b.args, args...)
	return b
}

// list writes the separator between n things.
func (b *statement) sep(i int, sep string) *statement {
	if i > 0 {
		b.WriteString(sep)
	}
	return b
}

// keysWhere matches whole primary keys of one shop.
func (b *statement) keysWhere(shop int64, keys []key) *statement {
	b.add("shop_id = ? AND (", shop)
	for i, k := range keys {
		b.sep(i, " OR ").add("(item_id = ? AND group_id = ?)", k.item, k.group)
	}
	return b.add(")")
}

func (b *statement) in(items []int64) *statement {
	for i, item := range items {
		b.sep(i, ", ").add("?", item)
	}
	return b
}

// want asks for units of one key.
type want struct {
	key
	n int64
}

// grabStatement locks up to n units of each key: one branch a key.
func grabStatement(shop int64, wants []want, skipLocked bool) *statement {
	branch, tail := grabBranch, grabTail
	if !skipLocked {
		branch, tail = waitBranch, waitTail
	}
	b := new(statement)
	b.add(unionHead)
	for i, w := range wants {
		b.sep(i, unionJoin).add(branch, shop, w.item, w.group, w.n)
	}
	return b.add(tail)
}

// unit is one row of the pool, inside one shop.
type unit struct {
	key
	number int64
}

// deleteUnitsStatement deletes at most maxUnits units by their whole keys.
func deleteUnitsStatement(shop int64, units []unit) *statement {
	b := new(statement)
	b.add(deleteUnitsHead)
	for i, u := range units {
		row := deleteUnitsNext
		if i == 0 {
			row = deleteUnitsFirst
		}
		b.add(row, u.item, u.group, u.number)
	}
	return b.add(deleteUnitsTail, shop)
}

func moveIssuedStatement(shop int64, lines []holdover.Line, sign int64) *statement {
	b := new(statement)
	b.add(moveIssuedHead)
	keys := make([]key, len(lines))
	for i, l := range lines {
		keys[i] = keyOf(l)
		b.add(caseWhen, l.Item, l.Group, sign*l.Quantity)
	}
	return b.add(caseEnd).keysWhere(shop, keys).add(moveIssuedTail)
}

func deductStatement(shop int64, lines []holdover.Line) *statement {
	b := new(statement)
	b.add(deductHead)
	for _, l := range lines {
		b.add(caseWhen, l.Item, l.Group, l.Quantity)
	}
	b.add(caseEnd).add("shop_id = ? AND (", shop)
	for i, l := range lines {
		b.sep(i, " OR ").add(deductLine, l.Item, l.Group, l.Quantity)
	}
	return b.add(")").add(deductTail)
}
