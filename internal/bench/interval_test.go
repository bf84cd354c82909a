package bench

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestAroundMedian(t *testing.T) {
	for _, c := range []struct {
		values    []float64
		low, high float64
		sure      float64
	}{
		{nil, 0, 0, 0},
		{[]float64{7}, 7, 7, 0},
		{[]float64{3, 1, 2}, 1, 3, 0.75},             // all that three can say
		{[]float64{6, 5, 4, 3, 2, 1}, 1, 6, 0.96875}, // the first number that can be 95 % sure
		{[]float64{15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, 4, 12, 0.96484375},
	} {
		low, high, sure := aroundMedian(c.values)
		if low != c.low || high != c.high || math.Abs(sure-c.sure) > 1e-9 {
			t.Errorf("%v: from %v to %v, %v sure; want %v to %v, %v", c.values, low, high, sure, c.low, c.high, c.sure)
		}
	}
}

// The interval holds the median as often as it says, also of what is skewed.
func TestAroundMedianIsAsSureAsItSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const times = 20_000
	var held int
	var said float64
	for range times {
		values := make([]float64, 15)
		for i := range values {
			values[i] = rng.ExpFloat64()
		}
		low, high, sure := aroundMedian(values)
		said = sure
		if low <= math.Ln2 && math.Ln2 <= high {
			held++
		}
	}
	if got := float64(held) / times; math.Abs(got-said) > 0.01 {
		t.Errorf("held the median in %.3f of all cases, and said %.3f", got, said)
	}
}
