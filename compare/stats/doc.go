// Package stats bounds rates and quantiles so that the bounds hold however
// often somebody looks, and says whether times have become slower.
//
// # Usage
//
//	upper := stats.Rate{Hits: 0, Trials: 20_000}.Upper(0.05) // 0.000426...
//	d, err := stats.NewDist(bins)                            // values and counts of a sketch
//	p99 := d.Interval(0.99, 0.05)
//	levels := stats.Shift(before, after, tolerance, 0.05)
//
// # Guarantees
//
// A report is looked at each hour and the decision is made at the first look
// that pleases: a bound for a sample of fixed size (Clopper-Pearson) is then
// wrong far more often than it says. The bounds here are confidence sequences:
// with probability 1 - alpha the truth is inside at every look at once.
//
// For a rate p, s hits in n trials and the prior Beta(1/2, 1/2),
//
//	M(p) = B(s + 1/2, n - s + 1/2) / B(1/2, 1/2) / (p^s (1-p)^(n-s))
//
// is a martingale that begins at 1 when p is the true rate, so that it ever
// reaches 1/alpha has a probability of at most alpha (Ville). The interval is
// every p with M(p) < 1/alpha. The mixture is Robbins's (Statistical methods
// related to the law of the iterated logarithm, 1970); the form used here, and
// what it costs against a fixed sample, is in Howard, Ramdas, McAuliffe and
// Sekhon (Time-uniform, nonparametric, nonasymptotic confidence sequences, 2021).
//
// For a quantile, the number of values at or below the true one is a count of
// hits at the rate q: the ranks that the same martingale allows, read off the
// sorted values, are an interval for the quantile. It needs no assumption about
// the form of the distribution. Where too few values are beyond a quantile the
// interval is open: its end is infinite, not the largest value seen.
//
// [Shift] compares two samples at the median, p90, p99, p99.9 and on a grid over
// the tail, each with its share of alpha, so that all of them together are wrong
// at most at that level. A quantile counts as moved when the whole interval of
// one sample, and the tolerance, is above the whole interval of the other.
//
// All of it takes trials to be independent. Bursts of one cause (an outage, a
// hot item) are not, and make the true uncertainty larger.
//
// # Concurrency
//
// Everything is a pure function of its arguments.
//
// # Failure
//
// No trials give the interval from 0 to 1. NaN is refused with an error where
// it would get in, in NewDist.
//
// # Testing
//
// Simulations with fixed seeds look 168 times at each of some thousand paths
// and count those that the truth ever left; Clopper-Pearson fails the same test.
package stats
