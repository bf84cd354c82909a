package bench

import (
	"math"
	"testing"
)

// Time that waits for the disk is idle, a guest's is in user's already, and what
// can't be read is not known instead of busy.
func TestCPUShare(t *testing.T) {
	before := parseCPU("cpu  100 0 50 800 50 0 0 0 40 0")
	after := parseCPU("cpu  160 0 70 870 60 10 20 10 90 0")
	share := after.sub(before).share()
	if share == nil || math.Abs(*share-0.4) > 1e-9 { // 70 idle and 10 of waiting, of 200
		t.Errorf("idle share %v", share)
	}
	for _, line := range []string{"", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3", "cpu a b c d e f g h"} {
		if got := parseCPU(line).share(); got != nil {
			t.Errorf("%q: idle share %v", line, *got)
		}
	}
}
