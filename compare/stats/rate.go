package stats

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Rate is how often something happened.
type Rate struct {
	Hits, Trials uint64
}

// prior is both parameters of the mixture's beta distribution: Jeffreys's,
// which is good at rates near zero and costs little elsewhere.
const prior = 0.5

// Value is the observed rate; 0 without trials.
func (r Rate) Value() float64 {
	if r.Trials == 0 {
		return 0
	}
	return float64(r.Hits) / float64(r.Trials)
}

// Upper is the largest rate that the trials leave possible at level alpha
// (0.05 is 95 %), at this look and at all others.
func (r Rate) Upper(alpha float64) float64 {
	if r.Hits >= r.Trials {
		return 1
	}
	_, outside := r.search(r.Value(), 1, alpha)
	return outside
}

// Lower is the smallest rate that the trials leave possible at level alpha.
// Upper and Lower together are wrong at most at that level.
func (r Rate) Lower(alpha float64) float64 {
	if r.Hits == 0 {
		return 0
	}
	_, outside := r.search(min(r.Value(), 1), 0, alpha)
	return outside
}

// TrialsFor is about how many trials without a hit show that a rate is below
// this one.
func TrialsFor(rate, alpha float64) uint64 {
	n := uint64(1)
	for ; n < 1<<40 && (Rate{Trials: n}).Upper(alpha) > rate; n *= 2 {
	}
	for step := n / 2; step > 0; step /= 2 {
		if (Rate{Trials: n - step}).Upper(alpha) <= rate {
			n -= step
		}
	}
	return n
}

// search bisects between a rate that is inside the interval and one that is
// outside. It returns neighbours, so that the outer one is never too tight.
func (r Rate) search(inside, outside, alpha float64) (in, out float64) {
	limit := math.Log(1 / alpha)
	mixed := mixture(r.Hits, r.Trials)
	for {
		middle := inside + (outside-inside)/2
		if middle == inside || middle == outside {
			return inside, outside
		}
		if mixed-likelihood(r.Hits, r.Trials, middle) < limit {
			inside = middle
		} else {
			outside = middle
		}
	}
}

// mixture is the logarithm of the probability of one sequence with these hits,
// mixed over all rates.
func mixture(hits, trials uint64) float64 {
	return mathext.Lbeta(float64(hits)+prior, float64(trials-hits)+prior) - mathext.Lbeta(prior, prior)
}

// likelihood is the logarithm of the probability of the same sequence at one rate.
func likelihood(hits, trials uint64, rate float64) (sum float64) {
	if hits > 0 {
		sum = float64(hits) * math.Log(rate)
	}
	if hits < trials {
		sum += float64(trials-hits) * math.Log1p(-rate)
	}
	return sum
}
