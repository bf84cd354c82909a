package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
)

// Bin is a value and how often it occurred.
type Bin struct {
	Value float64
	Count uint64
}

// Dist is a sorted sample. The zero Dist is empty.
type Dist struct {
	bins  []Bin
	below []uint64 // below[i] is how many values are in bins[:i+1]
}

// NewDist sorts bins, which it does not keep. Values may repeat.
func NewDist(bins []Bin) (Dist, error) {
	d := Dist{bins: slices.Clone(bins)}
	for _, b := range d.bins {
		if math.IsNaN(b.Value) || math.IsInf(b.Value, 0) {
			return Dist{}, fmt.Errorf("a value of %v, %d times: not a number, so that nothing can be said about the sample", b.Value, b.Count)
		}
	}
	slices.SortFunc(d.bins, func(a, b Bin) int { return cmp.Compare(a.Value, b.Value) })
	d.below = make([]uint64, len(d.bins))
	n := uint64(0)
	for i, b := range d.bins {
		n += b.Count
		d.below[i] = n
	}
	return d, nil
}

// N is how many values there are.
func (d Dist) N() uint64 {
	if len(d.below) == 0 {
		return 0
	}
	return d.below[len(d.below)-1]
}

// Quantile is the smallest value with a share of at least q at or below it; 0
// when there are none.
func (d Dist) Quantile(q float64) float64 {
	n := d.N()
	if n == 0 {
		return 0
	}
	return d.ranked(min(max(uint64(math.Ceil(q*float64(n))), 1), n))
}

// ranked is the value at a rank from 1 to N.
func (d Dist) ranked(rank uint64) float64 {
	i := sort.Search(len(d.below), func(i int) bool { return d.below[i] >= rank })
	return d.bins[i].Value
}

// Interval is where a figure is. An end that the sample says nothing about is infinite.
type Interval struct {
	Low, High float64
}

// Interval is where the quantile q is at level alpha, at this look and at all
// others.
func (d Dist) Interval(q, alpha float64) Interval {
	open := Interval{math.Inf(-1), math.Inf(1)}
	n := d.N()
	if n == 0 || q <= 0 || q >= 1 {
		return open
	}
	low, high := ranks(n, q, alpha)
	if low > 0 {
		open.Low = d.ranked(low)
	}
	if high < n {
		open.High = d.ranked(high + 1)
	}
	return open
}

// ranks are the fewest and the most of n values that may be at or below the
// quantile q. The martingale is convex in them, so each end is one bisection.
func ranks(n uint64, q, alpha float64) (low, high uint64) {
	limit := math.Log(1 / alpha)
	possible := func(rank uint64) bool { return mixture(rank, n)-likelihood(rank, n, q) < limit }
	middle := min(uint64(math.Round(q*float64(n))), n)
	low = uint64(sort.Search(int(middle), func(i int) bool { return possible(uint64(i)) }))
	high = middle + uint64(sort.Search(int(n-middle), func(i int) bool { return !possible(middle + uint64(i) + 1) }))
	return low, high
}
