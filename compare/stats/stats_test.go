package stats_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat/distuv"
	"pgregory.net/rapid"

	"holdover/compare/stats"
)

const alpha = 0.05

// clopperPearson says whether a rate is outside the exact interval of one look
// at a sample of fixed size.
func clopperPearson(r stats.Rate, rate float64) (outside bool) {
	s, n := float64(r.Hits), float64(r.Trials)
	if r.Value() < rate {
		return rate > mathext.InvRegIncBeta(s+1, n-s, 1-alpha/2)
	}
	return r.Hits > 0 && rate < mathext.InvRegIncBeta(s, n-s+1, alpha/2)
}

// sequence says the same of the interval of this package. Only the end on the
// rate's side can leave it outside.
func sequence(r stats.Rate, rate float64) (outside bool) {
	if r.Value() < rate {
		return rate > r.Upper(alpha)
	}
	return rate < r.Lower(alpha)
}

// everWrong is the share of paths on which the true rate was outside at one
// look or more: 168 of them, one an hour for a week.
func everWrong(rate float64, perLook, paths int, outside func(stats.Rate, float64) bool) float64 {
	source := rand.New(rand.NewPCG(7, uint64(rate*1e9)))
	wrong := 0
	for range paths {
		var seen stats.Rate
		for range 168 {
			seen.Trials += uint64(perLook)
			seen.Hits += uint64(distuv.Binomial{N: float64(perLook), P: rate, Src: source}.Rand())
			if outside(seen, rate) {
				wrong++
				break
			}
		}
	}
	return float64(wrong) / float64(paths)
}

func TestBoundHoldsAtAllLooks(t *testing.T) {
	for _, x := range []struct {
		rate           float64
		perLook, paths int
	}{
		{0, 500, 1}, // without hits all paths are the same
		{1e-4, 500, 1000}, {0.02, 500, 700}, {0.3, 500, 700},
		{0.02, 20, 700}, {0.3, 1, 700}, {0.5, 1, 700}, // few at a look: a bound that is too tight shows there first
	} {
		if got := everWrong(x.rate, x.perLook, x.paths, sequence); got > alpha {
			t.Errorf("rate %v, %d at a look: outside the interval at some look on %.2f %% of the paths, more than %.0f %%", x.rate, x.perLook, 100*got, 100*alpha)
		}
	}
}

// The control: a test that the usual bound passes too would show nothing.
func TestFixedSampleBoundDoesNotHold(t *testing.T) {
	for _, rate := range []float64{0.02, 0.3} {
		if got := everWrong(rate, 500, 300, clopperPearson); got < 2*alpha {
			t.Errorf("rate %v: Clopper-Pearson was wrong on %.2f %% of the paths only: the simulation does not look often enough to prove anything", rate, 100*got)
		}
	}
}

// By hand: without hits M(p) is B(1/2, n+1/2) / pi / (1-p)^n, and B(1/2, 3/2) is pi/2.
func TestKnownValues(t *testing.T) {
	one := stats.Rate{Trials: 1}
	if got, want := one.Upper(alpha), 1-alpha/2; math.Abs(got-want) > 1e-12 {
		t.Errorf("upper bound after one trial without a hit is %v, want %v", got, want)
	}
	if got, want := (stats.Rate{Hits: 1, Trials: 1}).Lower(alpha), alpha/2; math.Abs(got-want) > 1e-12 {
		t.Errorf("lower bound after one hit is %v, want %v", got, want)
	}
	// ln(20) + ln(pi n)/2 over n, to first order.
	n := 1e6
	want := (math.Log(20) + math.Log(math.Pi*n)/2) / n
	if got := (stats.Rate{Trials: 1e6}).Upper(alpha); math.Abs(got-want) > 1e-3*want {
		t.Errorf("upper bound after a million trials is %v, want about %v", got, want)
	}
	if n := stats.TrialsFor(1e-3, alpha); (stats.Rate{Trials: n}).Upper(alpha) > 1e-3 || (stats.Rate{Trials: n - 1}).Upper(alpha) <= 1e-3 {
		t.Errorf("%d trials are not the fewest that show a rate below 0.001", n)
	}
}

func TestRateProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(0, 1e9).Draw(t, "trials")
		s := rapid.Uint64Range(0, n).Draw(t, "hits")
		r := stats.Rate{Hits: s, Trials: n}
		low, high := r.Lower(alpha), r.Upper(alpha)
		switch {
		case n == 0 && (low != 0 || high != 1):
			t.Fatalf("no trials give %v to %v, want 0 to 1", low, high)
		case !(0 <= low && low <= r.Value() && r.Value() <= high && high <= 1):
			t.Fatalf("%v <= %v <= %v does not hold", low, r.Value(), high)
		case r.Upper(0.01) < high || r.Lower(0.01) > low:
			t.Fatal("a stricter level gives a narrower interval")
		}
		mirrored := stats.Rate{Hits: n - s, Trials: n}
		if math.Abs(mirrored.Upper(alpha)-(1-low)) > 1e-9 {
			t.Fatalf("upper bound of the misses is %v, want 1 - %v", mirrored.Upper(alpha), low)
		}
	})
}

func dist(t testing.TB, values []float64) stats.Dist {
	t.Helper()
	bins := make([]stats.Bin, len(values))
	for i, v := range values {
		bins[i] = stats.Bin{Value: v, Count: 1}
	}
	d, err := stats.NewDist(bins)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestQuantilesOfFewValues(t *testing.T) {
	d, err := stats.NewDist([]stats.Bin{{3, 1}, {1, 2}, {2, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for q, want := range map[float64]float64{0.25: 1, 0.5: 1, 0.75: 2, 0.76: 3, 1: 3} {
		if got := d.Quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := d.Interval(0.99, alpha); !math.IsInf(got.High, 1) {
		t.Errorf("four values bound p99 from above by %v: they can't", got.High)
	}
	if got := (stats.Dist{}).Interval(0.5, alpha); !math.IsInf(got.High, 1) || !math.IsInf(got.Low, -1) {
		t.Errorf("no values give the interval %v", got)
	}
	if _, err := stats.NewDist([]stats.Bin{{math.NaN(), 1}}); err == nil {
		t.Error("NaN was taken as a value")
	}
}

// A rank is possible when the rate bound for so many hits holds the quantile.
func TestQuantileIntervalIsThatOfTheRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, 60).Draw(t, "values")
		q := rapid.Float64Range(0.05, 0.95).Draw(t, "q")
		var bins []stats.Bin
		want := stats.Interval{Low: math.Inf(-1), High: math.Inf(1)}
		for i := uint64(0); i <= n; i++ {
			r := stats.Rate{Hits: i, Trials: n}
			if q < r.Lower(alpha) && math.IsInf(want.High, 1) {
				want.High = float64(i) // the value after the last possible rank
			}
			if q > r.Upper(alpha) {
				want.Low = float64(i + 1) // the first rank that is possible
			}
			if i > 0 {
				bins = append(bins, stats.Bin{Value: float64(i), Count: 1})
			}
		}
		d, err := stats.NewDist(bins)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Interval(q, alpha); got != want {
			t.Fatalf("quantile %v of 1 to %d is in %v, want %v", q, n, got, want)
		}
	})
}

// The true quantile has to be inside at all looks, and for tied values too.
func TestQuantileIntervalHoldsAtAllLooks(t *testing.T) {
	const paths, looks, perLook = 150, 20, 100
	for _, q := range []float64{0.5, 0.9, 0.99} {
		for _, step := range []float64{0, 0.05} { // rounded up to steps: ties
			source := rand.New(rand.NewPCG(11, uint64(q*1000)))
			truth := q
			if step > 0 {
				truth = math.Ceil(q/step) * step
			}
			wrong := 0
			for range paths {
				var values []float64
				for range looks {
					for range perLook {
						v := source.Float64()
						if step > 0 {
							v = math.Ceil(v/step) * step
						}
						values = append(values, v)
					}
					if in := dist(t, values).Interval(q, alpha); truth < in.Low-1e-9 || truth > in.High+1e-9 {
						wrong++
						break
					}
				}
			}
			if share := float64(wrong) / paths; share > alpha {
				t.Errorf("quantile %v with steps of %v was outside at some look on %.1f %% of the paths", q, step, 100*share)
			}
		}
	}
}

// times are like those of a store: most near 2 ms, with a tail; slower changes
// each value.
func times(source *rand.Rand, n int, slower func(rank, v float64) float64) []float64 {
	values := make([]float64, n)
	for i := range values {
		u := source.Float64()
		values[i] = slower(u, 2000*math.Exp(0.6*math.Sqrt2*math.Erfinv(2*u-1)))
	}
	return values
}

func same(_, v float64) float64 { return v }

func moved(levels []stats.Level) (body, tail int) {
	for _, l := range levels {
		if l.Moved && l.Q < 0.99 {
			body++
		} else if l.Moved {
			tail++
		}
	}
	return body, tail
}

func TestShiftOfTheTailAlone(t *testing.T) {
	source := rand.New(rand.NewPCG(3, 5))
	before := dist(t, times(source, 50_000, same))
	tolerance := func(q float64) float64 { return 0.1 * before.Quantile(q) }

	tailOnly := func(rank, v float64) float64 {
		if rank > 0.99 {
			return 1.3 * v
		}
		return v
	}
	after := dist(t, times(source, 50_000, tailOnly))
	if body, tail := moved(stats.Shift(before, after, tolerance, alpha)); tail == 0 || body > 0 {
		t.Errorf("30 %% slower above p99 only: %d quantiles of the tail and %d below it moved, want some and none", tail, body)
	}
	if body, tail := moved(stats.Shift(after, before, tolerance, alpha)); body+tail > 0 {
		t.Errorf("a tail that became faster is reported as slower")
	}
	everything := dist(t, times(source, 50_000, func(_, v float64) float64 { return 1.3 * v }))
	if body, tail := moved(stats.Shift(before, everything, tolerance, alpha)); body == 0 || tail == 0 {
		t.Errorf("all 30 %% slower: %d quantiles of the tail and %d below it moved, want some of both", tail, body)
	}
	slightly := dist(t, times(source, 50_000, func(_, v float64) float64 { return 1.06 * v }))
	if body, tail := moved(stats.Shift(before, slightly, tolerance, alpha)); body+tail > 0 {
		t.Error("6 % slower is reported where 10 % are tolerated")
	}
	if body, _ := moved(stats.Shift(before, slightly, func(float64) float64 { return 0 }, alpha)); body == 0 {
		t.Error("6 % slower is not seen where nothing is tolerated")
	}
	few := dist(t, times(source, 20, tailOnly))
	for _, l := range stats.Shift(before, few, tolerance, alpha) {
		if l.Q >= 0.99 && l.Judged && l.Moved {
			t.Errorf("20 values are enough to call %s slower", l.Name)
		}
	}
}

// Too few values to say anything of p99.9, and p99 itself has not moved.
func TestShiftBetweenTheNamedQuantiles(t *testing.T) {
	source := rand.New(rand.NewPCG(23, 5))
	before := dist(t, times(source, 10_000, same))
	after := dist(t, times(source, 10_000, func(rank, v float64) float64 {
		if rank > 0.991 {
			return 3 * v
		}
		return v
	}))
	var grid int
	for _, l := range stats.Shift(before, after, func(q float64) float64 { return 0.1 * before.Quantile(q) }, alpha) {
		if l.Moved && l.Tail {
			grid++
		} else if l.Moved {
			t.Errorf("%s is named, and this test is about what is between", l.Name)
		}
	}
	if grid == 0 {
		t.Error("a tail three times as slow above p99.1 is not seen")
	}
}

// No tolerance at all: what is left is the level.
func TestEqualSamplesDoNotShift(t *testing.T) {
	source := rand.New(rand.NewPCG(13, 17))
	const pairs = 200
	wrong := 0
	for range pairs {
		before, values := dist(t, times(source, 3000, same)), []float64(nil)
		for range 10 { // looks
			values = append(values, times(source, 300, same)...)
			body, tail := moved(stats.Shift(before, dist(t, values), func(float64) float64 { return 0 }, alpha))
			if body+tail > 0 {
				wrong++
				break
			}
		}
	}
	if share := float64(wrong) / pairs; share > alpha {
		t.Errorf("%.1f %% of the equal pairs are called slower at some look", 100*share)
	}
}
