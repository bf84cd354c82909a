package app

import (
	"context"
	"sync"
	"time"

	"holdover"
)

// hottestItems bounds the items that are counted in one second. An item worth
// the name is asked for early in it; those that come later are left out.
const hottestItems = 4096

// hottest knows how many reserves a second the item gets that is asked for
// most: the figure that says whether one row could take them. Which item it is
// stays here: metrics are of low cardinality.
type hottest struct {
	now func() time.Time

	mu     sync.Mutex
	began  time.Time // of the second that is counted
	counts map[shopItem]int64
	most   int64 // the highest of counts
	last   int64 // the highest of the second before, if that was counted
	peak   int64
}

type shopItem struct{ shop, item int64 }

func newHottest(now func() time.Time) *hottest {
	return &hottest{now: now, counts: map[shopItem]int64{}}
}

func (h *hottest) saw(r holdover.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn()
	for _, line := range r.Lines {
		key := shopItem{r.Shop, line.Item}
		n, known := h.counts[key]
		if !known && len(h.counts) >= hottestItems {
			continue
		}
		h.counts[key] = n + 1
		h.most = max(h.most, n+1)
	}
	h.peak = max(h.peak, h.most)
}

// turn begins a new second when the one that was counted is over.
func (h *hottest) turn() {
	now := h.now()
	age := now.Sub(h.began)
	if age < time.Second {
		return
	}
	h.last = 0
	if age < 2*time.Second {
		h.last = h.most
	}
	clear(h.counts)
	h.began, h.most = now, 0
}

func (h *hottest) rates() (last, peak int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn()
	return h.last, h.peak
}

// counted counts what buyers ask for on its way in.
type counted struct {
	holdover.Reserver
	hottest *hottest
}

// Reserve counts the request and passes it on.
func (c counted) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	c.hottest.saw(r)
	return c.Reserver.Reserve(ctx, r)
}
