package bench

// truth is what the stores say after a turn: by item, in the order of the
// stock that the turn began with.
type truth struct {
	left  []int64 // units that could still be sold
	held  []int64 // units in holds, claimed ones included
	holds int64   // tokens that have a hold, claimed ones included
	// claimed units that the ledger has lost; nil where claims are not measured.
	deducted []int64
}

// told is what callers were told in a turn.
type told struct {
	units     []int64   // granted, by item
	calls     int64     // granted
	claims    bool      // grants were claimed
	claimed   []int64   // units of claims that were answered well, by item
	refusals  []refusal // sold out
	lastStart []int64   // by item, when the latest call that was granted began, ns into the turn
}

func newTold(items int) told {
	return told{units: make([]int64, items), claimed: make([]int64, items), lastStart: make([]int64, items)}
}

func (t *told) merge(other told) {
	t.calls += other.calls
	t.claims = t.claims || other.claims
	t.refusals = append(t.refusals, other.refusals...)
	for i := range t.units {
		t.units[i] += other.units[i]
		t.claimed[i] += other.claimed[i]
		t.lastStart[i] = max(t.lastStart[i], other.lastStart[i])
	}
}

// refusal is one "sold out".
type refusal struct {
	item     int // index; several: a cart of more than one line
	quantity int64
	at       int64 // when it was answered, ns into the turn
}

const several = -1

// oversold is how many units callers were granted and the stock has not lost:
// for each item told + left - stock, if positive. Nothing comes back during a
// turn, so a right way has told + left = stock, or less where a call failed
// half way and its hold stands.
func oversold(stock []int64, t told, s truth) (units int64) {
	for i, n := range stock {
		units += max(0, t.units[i]+max(s.left[i], 0)-n)
	}
	return units
}

// falseSoldOut is how many refusals were wrong. Nothing comes back during a
// turn, so a refusal of q units of an item is proved wrong
//   - if the stores have at least q units of it left at the end, or
//   - if a call for the same item that began after the refusal was answered was
//     granted: the units that it got were there all the time.
//
// The second proof needs q = 1 and grants of one unit, which is what the
// scenarios that run out use. A refused cart is proved wrong only by the first:
// when the stores have units of every item left.
func falseSoldOut(t told, s truth) (wrong int64) {
	for _, r := range t.refusals {
		if r.item == several {
			if !anyOut(s.left) {
				wrong++
			}
			continue
		}
		if s.left[r.item] >= r.quantity || (r.quantity == 1 && t.lastStart[r.item] > r.at) {
			wrong++
		}
	}
	return wrong
}

func anyOut(left []int64) bool {
	for _, n := range left {
		if n <= 0 {
			return true
		}
	}
	return false
}

// lostHolds is how many grants have no hold. A hold that nobody was told of is
// no fault: its call failed.
func lostHolds(t told, s truth) int64 { return max(0, t.calls-s.holds) }

// wrongLedger is by how many units the ledger's deductions differ from the
// claims that callers were told of.
func wrongLedger(t told, s truth) (units int64) {
	if s.deducted == nil {
		return 0
	}
	for i, n := range t.claimed {
		d := s.deducted[i] - n
		units += max(d, -d)
	}
	return units
}
