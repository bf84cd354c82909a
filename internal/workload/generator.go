package workload

import (
	"math"
	"math/rand/v2"
	"slices"
)

// The generator imitates 4,601 real supermarket baskets over 100 items.
// Measured there:
//
//	lines a basket   mean 17.3, deviation 7.0, 1 at least, 47 at most
//	quantiles        1 %: 3, 5 %: 7, 10 %: 9, 25 %: 12, 50 %: 16, 75 %: 22,
//	                 90 %: 27, 95 %: 30, 99 %: 35
//	demand           top item 4.2 % of all lines and in 72 % of the baskets,
//	                 top 5: 18.8 %, top 10: 34.4 %, top 20: 57.8 %, top 50: 90.5 %
//	repeats          none: an item is in a basket once
//
// A power law does not fit that demand (with the same top item it leaves the
// top 20 at 45 %). Drawing without replacement, with weights that fall by 5 %
// from rank to rank, does: top 3.8 %, top 5 17.9 %, top 10 33.3 %, top 20
// 57.4 %, top 50 90.7 %.
const (
	realItems = 100
	realDecay = 0.052
)

// sizeQuantiles is the inverse distribution of basket sizes.
var sizeQuantiles = [...]struct{ p, lines float64 }{
	{0, 1}, {0.01, 3}, {0.05, 7}, {0.10, 9}, {0.20, 11}, {0.30, 13}, {0.40, 15},
	{0.50, 16}, {0.60, 18}, {0.70, 21}, {0.80, 23}, {0.90, 27}, {0.95, 30}, {0.99, 35}, {1, 47},
}

// smallSizes is the cumulated share of small carts with 1, 2, ... 5 lines.
var smallSizes = [...]float64{0.35, 0.60, 0.80, 0.92, 1}

// GeneratorConfig says what baskets to make. Zero fields mean the defaults.
type GeneratorConfig struct {
	Seed  uint64
	Items int  // items 1..Items, the most wanted first; 100, as in the real baskets
	Small bool // carts of 1 to 5 lines instead of real ones
}

// Generator makes baskets with the statistics of real ones. The n-th basket of
// a seed is always the same. It is safe for concurrent use.
type Generator struct {
	cfg     GeneratorConfig
	weights []float64
}

// NewGenerator returns a generator.
func NewGenerator(cfg GeneratorConfig) *Generator {
	if cfg.Items <= 0 {
		cfg.Items = realItems
	}
	weights := make([]float64, cfg.Items)
	for i := range weights {
		// Other catalogue sizes stretch the curve of the real one.
		weights[i] = math.Exp(-realDecay * float64(i) * realItems / float64(cfg.Items))
	}
	return &Generator{cfg: cfg, weights: weights}
}

// Items lists the items that the baskets are made of, the most wanted first.
func (g *Generator) Items() []int64 {
	items := make([]int64, g.cfg.Items)
	for i := range items {
		items[i] = int64(i + 1)
	}
	return items
}

// Basket returns the n-th basket of the seed, its items in ascending order.
func (g *Generator) Basket(n uint64) Basket {
	rng := rand.New(rand.NewPCG(g.cfg.Seed, n))
	size := realSize(rng.Float64())
	if g.cfg.Small {
		size = smallSize(rng.Float64())
	}
	size = min(size, g.cfg.Items)

	// Weighted drawing without replacement: the smallest of exponential times,
	// each item's at the rate of its weight.
	type draw struct {
		at   float64
		item int64
	}
	draws := make([]draw, len(g.weights))
	for i, w := range g.weights {
		draws[i] = draw{at: rng.ExpFloat64() / w, item: int64(i + 1)}
	}
	slices.SortFunc(draws, func(a, b draw) int {
		if a.at < b.at {
			return -1
		}
		return 1
	})
	b := Basket{Cart: int64(n + 1), Items: make([]int64, size)}
	for i := range b.Items {
		b.Items[i] = draws[i].item
	}
	slices.Sort(b.Items)
	return b
}

func realSize(p float64) int {
	for i := 1; i < len(sizeQuantiles); i++ {
		lo, hi := sizeQuantiles[i-1], sizeQuantiles[i]
		if p <= hi.p {
			return int(math.Round(lo.lines + (hi.lines-lo.lines)*(p-lo.p)/(hi.p-lo.p)))
		}
	}
	return int(sizeQuantiles[len(sizeQuantiles)-1].lines)
}

func smallSize(p float64) int {
	for i, share := range smallSizes {
		if p <= share {
			return i + 1
		}
	}
	return len(smallSizes)
}
