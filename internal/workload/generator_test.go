package workload

import (
	"cmp"
	"math"
	"slices"
	"testing"
)

// The figures of the real baskets, see generator.go.
func TestGeneratorIsLikeTheRealBaskets(t *testing.T) {
	const n = 4601
	g := NewGenerator(GeneratorConfig{Seed: 1})
	var sizes []int
	wanted := map[int64]int{}
	lines := 0
	for i := range uint64(n) {
		b := g.Basket(i)
		sizes = append(sizes, len(b.Items))
		lines += len(b.Items)
		for _, item := range b.Items {
			wanted[item]++
		}
		if !slices.IsSorted(b.Items) || len(slices.Compact(slices.Clone(b.Items))) != len(b.Items) {
			t.Fatalf("basket %d has an item twice or is not in order: %v", i, b.Items)
		}
	}
	slices.Sort(sizes)
	near(t, "mean lines", float64(lines)/n, 17.3, 0.5)
	var square float64
	for _, s := range sizes {
		d := float64(s) - float64(lines)/n
		square += d * d
	}
	near(t, "deviation of lines", math.Sqrt(square/n), 7.0, 0.5)
	if lo, hi := sizes[0], sizes[n-1]; lo < 1 || hi > 47 || hi < 40 {
		t.Errorf("baskets of %d to %d lines, want 1 to 47", lo, hi)
	}
	for _, q := range []struct{ p, lines float64 }{{0.05, 7}, {0.25, 12}, {0.5, 16}, {0.75, 22}, {0.95, 30}} {
		near(t, "quantile of lines", float64(sizes[int(q.p*n)]), q.lines, 1)
	}
	ranked := make([]int, 0, len(wanted))
	for _, times := range wanted {
		ranked = append(ranked, times)
	}
	slices.SortFunc(ranked, func(a, b int) int { return cmp.Compare(b, a) })
	near(t, "baskets with the top item", float64(ranked[0])/n, 0.72, 0.08)
	sum := 0
	for i, times := range ranked {
		sum += times
		switch i + 1 {
		case 1:
			near(t, "share of the top item", float64(sum)/float64(lines), 0.042, 0.006)
		case 5:
			near(t, "share of the top 5", float64(sum)/float64(lines), 0.188, 0.02)
		case 20:
			near(t, "share of the top 20", float64(sum)/float64(lines), 0.578, 0.02)
		case 50:
			near(t, "share of the top 50", float64(sum)/float64(lines), 0.905, 0.02)
		}
	}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within {
		t.Errorf("%s: %.4g, want %.4g within %.2g", what, got, want, within)
	}
}

func TestGeneratorFollowsItsSeed(t *testing.T) {
	a, b, other := NewGenerator(GeneratorConfig{Seed: 5}), NewGenerator(GeneratorConfig{Seed: 5}), NewGenerator(GeneratorConfig{Seed: 6})
	same := true
	for i := range uint64(50) {
		if !slices.Equal(a.Basket(i).Items, b.Basket(i).Items) {
			t.Fatalf("basket %d differs between two generators with one seed", i)
		}
		same = same && slices.Equal(a.Basket(i).Items, other.Basket(i).Items)
	}
	if same {
		t.Error("another seed makes the same baskets")
	}
}

func TestGeneratorOfSmallCarts(t *testing.T) {
	sizes := map[int]int{}
	g := NewGenerator(GeneratorConfig{Seed: 1, Small: true, Items: 200})
	for i := range uint64(2000) {
		b := g.Basket(i)
		sizes[len(b.Items)]++
		if first, last := b.Items[0], b.Items[len(b.Items)-1]; first < 1 || last > 200 {
			t.Fatalf("items %v outside of the catalogue", b.Items)
		}
	}
	for lines := 1; lines <= 5; lines++ {
		if sizes[lines] < 50 {
			t.Errorf("%d of 2000 small carts have %d lines", sizes[lines], lines)
		}
		delete(sizes, lines)
	}
	if len(sizes) > 0 {
		t.Errorf("small carts of other sizes: %v", sizes)
	}
	if n := len(NewGenerator(GeneratorConfig{Seed: 1, Items: 3}).Basket(0).Items); n > 3 {
		t.Errorf("%d lines from a catalogue of 3 items", n)
	}
}
