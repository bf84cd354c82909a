package compare

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"holdover"
)

func TestObserveAllocates(t *testing.T) {
	for name, tc := range map[string]struct {
		obs  holdover.Observation
		most float64
	}{
		"match":      {seen(holdover.StageShadow, holdover.OpReserve, granted, granted), 0},
		"divergence": {left(seen(holdover.StageShadow, holdover.OpReserve, granted, refused, holdover.EvidencePoolShort), []int64{1, 2}, []int64{1, 2}), 1},
	} {
		const n = 500
		c := start(t, Config{})
		c.out, c.ring = &writer{c: c, queue: make(chan *kept, 2*n)}, newRing() // nobody takes anything out: only Observe's part is counted
		c.Observe(tc.obs)
		if got := testing.AllocsPerRun(n, func() { c.Observe(tc.obs) }); got > tc.most {
			t.Errorf("%s: %v allocations, at most %v", name, got, tc.most)
		}
		if len(c.out.queue) > 0 != (tc.most > 0) {
			t.Errorf("%s: %d queued", name, len(c.out.queue))
		}
		c.out = nil
	}
}

// BenchmarkObserve is what comparing costs the buyer: at most 2 µs and one
// allocation, also while everything is written.
func BenchmarkObserve(b *testing.B) {
	for name, o := range map[string]holdover.Observation{
		"match":          left(seen(holdover.StageShadow, holdover.OpReserve, granted, granted), []int64{500, 500}, []int64{500, 500}),
		"not-comparable": seen(holdover.StageShadow, holdover.OpReserve, granted, holdover.OutcomeError),
		"divergence":     seen(holdover.StageShadow, holdover.OpReserve, granted, refused, holdover.EvidencePoolShort),
	} {
		for _, written := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/written=%v", name, written), func(b *testing.B) {
				cfg := Config{}
				if written {
					cfg.Path, cfg.Spool = filepath.Join(b.TempDir(), "events.jsonl"), b.TempDir()
				}
				c := start(b, cfg)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					o := o
					o.At = time.Now()
					for pb.Next() {
						c.Observe(o)
					}
				})
			})
		}
	}
}

func BenchmarkTotal(b *testing.B) {
	c := start(b, Config{})
	for range 1000 {
		plant(c)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = c.Total()
	}
}
