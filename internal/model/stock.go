package model

import (
	"slices"
	"time"

	"holdover"
)

// Load adds stock, by {item, group}; zero units make the place known and sold
// out. A negative number takes units away and may leave less than is held.
func (m *Model) Load(shop int64, stock map[[2]int64]int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, units := range stock {
		m.ledger[place{shop, k[0], k[1]}] += units
	}
}

// Free is how many units of the item a reserve at group could still get; false
// when the model has no stock record for it. Holds past their expiry count as
// taken until the expiry step.
func (m *Model) Free(shop, item, group int64) (int64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.free(shop, item, group)
}

// Ledger is the sum of what is sellable and not yet claimed over the locations
// of the item.
func (m *Model) Ledger(shop, item int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sum int64
	for p, units := range m.ledger {
		if p.shop == shop && p.item == item {
			sum += units
		}
	}
	return sum
}

// Now is the model's clock.
func (m *Model) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now()
}

// Advance moves the clock forward. Nothing expires by that alone.
func (m *Model) Advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead += d
}

// Expire is the expiry step: it ends every live hold whose expiry has passed,
// and says how many there were.
func (m *Model) Expire() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.expireDue(0, nil)
}

// Due lists the live holds whose expiry has passed.
func (m *Model) Due() []holdover.Token {
	m.mu.Lock()
	defer m.mu.Unlock()
	var due []holdover.Token
	for token, h := range m.holds {
		if m.due(h) {
			due = append(due, token)
		}
	}
	return due
}

// ExpireHold is the expiry step for one hold: it reports whether the hold was
// due, and so has ended.
func (m *Model) ExpireHold(token holdover.Token) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.holds[token]
	if h == nil || !m.due(h) {
		return false
	}
	h.State = holdover.StateExpired
	return true
}

func (m *Model) now() time.Time { return m.cfg.Now().Add(m.ahead).Truncate(time.Millisecond) }

func (m *Model) due(h *holdover.Hold) bool { return h.State.Live() && !h.ExpiresAt.After(m.now()) }

// expireDue ends the due holds; with lines, only those that have one of their
// items in the shop.
func (m *Model) expireDue(shop int64, lines []holdover.Line) int {
	n := 0
	for _, h := range m.holds {
		if m.due(h) && (lines == nil || h.Shop == shop && shareItem(h.Lines, lines)) {
			h.State = holdover.StateExpired
			n++
		}
	}
	return n
}

func shareItem(a, b []holdover.Line) bool {
	return slices.ContainsFunc(a, func(x holdover.Line) bool {
		return slices.ContainsFunc(b, func(y holdover.Line) bool { return x.Item == y.Item })
	})
}

// at is where the model counts the units of a line.
func (m *Model) at(shop, item, group int64) place {
	if m.cfg.Locations == SumOverLocations {
		group = 0
	}
	return place{shop, item, group}
}

// free is derived from the ledger and the live holds each time: there is no
// counter that could drift.
func (m *Model) free(shop, item, group int64) (units int64, loaded bool) {
	where := m.at(shop, item, group)
	for p, n := range m.ledger {
		if m.at(p.shop, p.item, p.group) == where {
			units += n
			loaded = true
		}
	}
	for _, h := range m.holds {
		if !h.State.Live() {
			continue
		}
		for _, line := range h.Lines {
			if m.at(h.Shop, line.Item, line.Group) == where {
				units -= line.Quantity
			}
		}
	}
	return units, loaded
}

// short lists the lines that are not covered. Lines that are counted in one
// place are looked at in order, each with what those before it leave.
func (m *Model) short(r holdover.Request) []holdover.Shortage {
	var short []holdover.Shortage
	taken := map[place]int64{}
	for _, line := range r.Lines {
		where := m.at(r.Shop, line.Item, line.Group)
		units, _ := m.free(r.Shop, line.Item, line.Group)
		left := max(units-taken[where], 0)
		if line.Quantity > left {
			short = append(short, holdover.Shortage{Item: line.Item, Group: line.Group, Want: line.Quantity, Left: left})
		}
		taken[where] += line.Quantity
	}
	return short
}

// deduct takes a claimed line out of the ledger: from its own location first,
// then, as one counter for all locations makes necessary, from the item's
// others in order.
func (m *Model) deduct(shop int64, line holdover.Line) {
	places := []place{{shop, line.Item, line.Group}}
	for p := range m.ledger {
		if p.shop == shop && p.item == line.Item && p.group != line.Group {
			places = append(places, p)
		}
	}
	slices.SortFunc(places[1:], func(a, b place) int { return int(a.group - b.group) })
	want := line.Quantity
	for _, p := range places {
		n := min(max(m.ledger[p], 0), want)
		if n > 0 {
			m.ledger[p] -= n
			want -= n
		}
	}
}
