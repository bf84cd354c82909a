package compare

import "holdover"

const (
	hotSlots  = 32   // items that are counted at a time
	hotWindow = 4096 // lines after which all counts are halved: what is hot is hot now
	hotShare  = 10   // hot is one in so many lines
	hotLeast  = 20   // and at least so many
)

// hotItems finds the items that a tenth or more of the recent lines ask for, by
// the space-saving count of Metwally, Agrawal and El Abbadi (2005): a bounded
// table whose counts are too high by a 32nd of the lines at most.
type hotItems struct {
	slots [hotSlots]struct {
		shop, item int64
		count      uint32
	}
	total uint32
}

// note counts the lines, and reports whether one of their items is hot.
func (h *hotItems) note(shop int64, lines []holdover.Line) (hot bool) {
	for i := range lines {
		hot = h.line(shop, lines[i].Item) || hot
	}
	return hot
}

func (h *hotItems) line(shop, item int64) bool {
	if h.total++; h.total > hotWindow {
		h.total /= 2
		for i := range h.slots {
			h.slots[i].count /= 2
		}
	}
	least := 0
	for i := range h.slots {
		s := &h.slots[i]
		if s.item == item && s.shop == shop && s.count > 0 {
			s.count++
			return s.count >= hotLeast && s.count*hotShare >= h.total
		}
		if s.count < h.slots[least].count {
			least = i
		}
	}
	s := &h.slots[least] // the rarest gives its place away, and its count with it
	s.shop, s.item = shop, item
	s.count++
	return false
}
