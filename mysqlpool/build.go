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
	maxUnits = 128 // holds or lines that one statement changes
	maxList  = 500 // units that one statement looks up
	minRun   = 16  // units in a row that are worth a DELETE of their own
	maxRows  = 500 // rows of one INSERT

	maxRecursion = 1000 // both dialects' default bound of a recursive list
	hintWindow   = 32   // numbers that a hint looks up beyond twice what is wanted
)

// key is an item at a location of a shop.
type key struct{ shop, item, group int64 }

func keyOf(shop int64, l holdover.Line) key { return key{shop, l.Item, l.Group} }

func keysOf(shop int64, lines []holdover.Line) []key {
	keys := make([]key, len(lines))
	for i, l := range lines {
		keys[i] = keyOf(shop, l)
	}
	return sorted(keys)
}

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.shop, other.shop), cmp.Compare(k.item, other.item), cmp.Compare(k.group, other.group))
}

// sorted puts keys into lock order and drops repeats.
func sorted(keys []key) []key {
	slices.SortFunc(keys, key.compare)
	return slices.Compact(keys)
}

// amount is a number of units at one location.
type amount struct {
	key
	n int64
}

// sum adds amounts up, in lock order; those that come to nothing are left out.
func sum(amounts ...amount) []amount {
	slices.SortFunc(amounts, func(a, b amount) int { return a.compare(b.key) })
	out := amounts[:0]
	for _, a := range amounts {
		if n := len(out); n > 0 && out[n-1].key == a.key {
			out[n-1].n += a.n
			continue
		}
		out = append(out, a)
	}
	return slices.DeleteFunc(out, func(a amount) bool { return a.n == 0 })
}

// amounts are sign times the lines' quantities.
func amounts(shop int64, lines []holdover.Line, sign int64) []amount {
	out := make([]amount, len(lines))
	for i, l := range lines {
		out[i] = amount{keyOf(shop, l), sign * l.Quantity}
	}
	return out
}

func keysOfAmounts(all []amount) []key {
	keys := make([]key, len(all))
	for i, a := range all {
		keys[i] = a.key
	}
	return keys
}

// statement is the text of one statement, or of several that go to the server
// together; see add.
type statement struct {
	strings.Builder
	args  []any // of a text with question marks: for the driver
	count int   // statements begun with next
	rows  int   // rows of the INSERT that is being written

	commits bool // a COMMIT is its last statement
}

// next begins one more statement.
func (b *statement) next() *statement {
	if b.count > 0 {
		b.WriteString(";\n")
	}
	b.count++
	return b
}

// endRows ends the INSERT that is being written, if there is one.
func (b *statement) endRows(tail string) *statement {
	if b.rows > 0 {
		b.add(tail)
		b.rows = 0
	}
	return b
}

// sep writes the separator between things of a list.
func (b *statement) sep(i int, sep string) *statement {
	if i > 0 {
		b.WriteString(sep)
	}
	return b
}

const keyEquals = `(shop_id = ? AND item_id = ? AND group_id = ?)`

// keysWhere matches whole primary keys.
func (b *statement) keysWhere(keys []key) *statement {
	for i, k := range keys {
		b.sep(i, " OR ").add(keyEquals, k.shop, k.item, k.group)
	}
	return b
}

func (b *statement) in(items []int64) *statement {
	for i, item := range items {
		b.sep(i, ", ").add("?", item)
	}
	return b
}

// grab locks up to n units of each location: one branch a location, each from
// its hint on (zero: from the first). from is nil when locked rows are waited for.
func (b *statement) grab(wants []amount, from []int64) *statement {
	b.next()
	if len(wants) > 1 {
		b.add(unionHead)
	}
	for i, w := range wants {
		if len(wants) > 1 {
			b.sep(i, unionJoin).add("(")
		}
		switch {
		case from == nil:
			b.add(waitBranch, i, w.shop, w.item, w.group, w.n)
		case from[i] == 0:
			b.add(grabBranch, i, w.shop, w.item, w.group, w.n)
		default:
			b.add(hintBranch, i, from[i], from[i]+min(maxRecursion, 2*w.n+hintWindow), w.shop, w.item, w.group, w.n)
		}
		if len(wants) > 1 {
			b.add(")")
		}
	}
	if len(wants) > 1 {
		b.add(unionEnd)
	}
	if from == nil {
		return b.add(waitTail)
	}
	return b.add(grabTail)
}

// unit is one row of the pool.
type unit struct {
	key
	number int64
}

func (u unit) compare(other unit) int {
	return cmp.Or(u.key.compare(other.key), cmp.Compare(u.number, other.number))
}

// listUnits writes units as a table d; n counts them from 1.
func (b *statement) listUnits(units []unit) *statement {
	b.WriteString(unitsHead)
	for i, u := range units {
		b.sep(i, ",").add(unitsRow, u.shop, u.item, u.group, u.number)
	}
	b.WriteString(unitsTail)
	return b
}

// grabListed locks those of the units that are there and that nobody has locked.
func (b *statement) grabListed(units []unit) *statement {
	if len(units) == 1 {
		u := units[0]
		return b.next().add(stmtGrabUnit, u.shop, u.item, u.group, u.number)
	}
	return b.next().add(grabListedHead).listUnits(units).add(grabListedTail)
}

// deleteUnits deletes units that this transaction has locked: those in a row by
// the row's ends, the others by their whole keys.
func (b *statement) deleteUnits(units []unit) *statement {
	slices.SortFunc(units, unit.compare)
	var single []unit
	for len(units) > 0 {
		run := 1
		for run < len(units) && units[run] == (unit{units[0].key, units[0].number + int64(run)}) {
			run++
		}
		if run >= minRun {
			u := units[0]
			b.next().add(stmtDeleteRun, u.shop, u.item, u.group, u.number, u.number+int64(run)-1, run)
		} else {
			single = append(single, units[:run]...)
		}
		units = units[run:]
	}
	if len(single) == 1 {
		u := single[0]
		return b.next().add(stmtDeleteUnit, u.shop, u.item, u.group, u.number)
	}
	for chunk := range slices.Chunk(single, maxList) {
		b.next().add(deleteUnitsHead).listUnits(chunk).add(deleteUnitsTail)
	}
	return b
}

// moveIssued adds each amount to its location's issued units.
func (b *statement) moveIssued(all []amount, sign int64) *statement {
	b.next().add(moveIssuedHead)
	for _, a := range all {
		b.add(caseWhen, a.shop, a.item, a.group, sign*a.n)
	}
	return b.add(caseEnd).keysWhere(keysOfAmounts(all)).add(moveIssuedTail)
}

// deduct takes each amount out of the ledger, where it is there.
func (b *statement) deduct(l *ledgerStatements, all []amount) *statement {
	b.next().add(l.deductHead)
	for _, a := range all {
		b.add(l.caseWhen, a.shop, a.item, a.group, a.n)
	}
	b.add(caseEnd)
	for i, a := range all {
		b.sep(i, " OR ").add(l.deductLine, a.shop, a.item, a.group, a.n)
	}
	return b.add(ledgerDeductTail)
}

// expect makes the statements after it, the COMMIT among them, depend on how
// many rows the statement before it has changed; see errMismatch.
func (b *statement) expect(rows int) *statement { return b.next().add(stmtExpect, rows) }
