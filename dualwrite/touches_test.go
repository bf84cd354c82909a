package dualwrite

import (
	"sync"
	"testing"

	"holdover"
)

// Touches count per item, however many items share the table; another item never
// adds to one's count.
func TestTouches(t *testing.T) {
	var counts touches
	lines := []holdover.Line{{Item: 1, Group: 1}, {Item: 1, Group: 2}, {Item: 2, Group: 1}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				counts.add(7, lines)
			}
		})
	}
	wg.Wait()
	if n := counts.sum(7, lines); n != 16_000 {
		t.Errorf("two items, touched 8,000 times each, sum up to %d", n)
	}
	if n := counts.sum(7, lines[:1]) + counts.sum(8, lines); n != 8000 {
		t.Errorf("one item of the shop and two of another sum up to %d", n)
	}
	for item := range int64(1_000_000) { // every slot is taken by many
		counts.add(9, []holdover.Line{{Item: item + 10}})
	}
	if n := counts.sum(7, lines); n != 0 {
		t.Errorf("items that lost their slots still count %d", n)
	}
	counts.add(7, lines[:1])
	if n := counts.sum(7, lines[:1]); n != 1 {
		t.Errorf("touched once, counted %d", n)
	}
}
