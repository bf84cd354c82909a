package dualwrite

import (
	"sync/atomic"

	"holdover"
)

// touches counts the dual operations that ended on each item, so that a
// difference can say how many were under way beside it. The counts only grow:
// nothing has to be taken back on any path. An item whose slot another one takes
// starts from nothing again, so that a count may be too low and is never too high.
type touches [4096]atomic.Uint64 // the item's tag in the upper half, its count in the lower

// add counts an operation on these lines, which are sorted by item.
func (t *touches) add(shop int64, lines []holdover.Line) {
	for i, l := range lines {
		if i > 0 && lines[i-1].Item == l.Item {
			continue
		}
		slot, tag := t.slot(shop, l.Item)
		for {
			old := slot.Load()
			next := tag | 1
			if old&tagBits == tag {
				next = tag | uint64(uint32(old)+1)
			}
			if slot.CompareAndSwap(old, next) {
				break
			}
		}
	}
}

// sum adds up the counts of the lines' items.
func (t *touches) sum(shop int64, lines []holdover.Line) (n uint64) {
	for i, l := range lines {
		if i > 0 && lines[i-1].Item == l.Item {
			continue
		}
		slot, tag := t.slot(shop, l.Item)
		if now := slot.Load(); now&tagBits == tag {
			n += uint64(uint32(now))
		}
	}
	return n
}

const tagBits = 0xffffffff << 32

func (t *touches) slot(shop, item int64) (slot *atomic.Uint64, tag uint64) {
	h := uint64(shop)*0x9e3779b97f4a7c15 ^ uint64(item)*0xbf58476d1ce4e5b9
	h ^= h >> 29
	h *= 0x94d049bb133111eb
	h ^= h >> 32
	return &t[h%uint64(len(t))], h&tagBits | 1<<32 // a tag is never zero
}
