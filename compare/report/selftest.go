package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"holdover/compare"
)

// fillSelfTest adds up what became of plants, by what was planted.
func (s *sum) fillSelfTest() SelfTest {
	t := SelfTest{ByKind: []PlantedKind{}}
	for _, p := range s.Planted {
		if n := len(t.ByKind); n == 0 || t.ByKind[n-1].Kind != p.Want.String() {
			t.ByKind = append(t.ByKind, PlantedKind{Kind: p.Want.String(), Seen: map[string]uint64{}})
		}
		k := &t.ByKind[len(t.ByKind)-1]
		k.Planted += p.Count
		t.Planted += p.Count
		switch p.Got {
		case p.Want:
			k.Caught += p.Count
			t.Caught += p.Count
		case compare.KindNone:
			k.Seen[p.Got.String()] += p.Count
			t.Missed += p.Count
		case compare.KindNotComparable:
			k.Seen[p.Got.String()] += p.Count
			t.Unjudged += p.Count
		default:
			k.Seen[p.Got.String()] += p.Count
			t.Misclassified += p.Count
		}
	}
	return t
}

// selfTest: what is planted must be seen, and as what it is. A comparator that
// saw nothing wrong is believed only then, and one version says nothing of the next.
func (r *Report) selfTest(s *sum) Gate {
	t := r.SelfTest
	version, never := neverCaught(s.rollups)
	g := Gate{Name: "selftest", Unit: unitCount, Value: float64(t.Missed + t.Misclassified), N: t.Planted, Verdict: Pass,
		Reason: fmt.Sprintf("%d of %d planted divergences were caught, of each kind some by %s", t.Caught, t.Planted, version)}
	switch {
	case t.Planted == 0:
		g.Verdict, g.Reason = NoVerdict, "nothing was planted: it is not known whether the comparator sees; serve plants on the reserved_shop of a pod that has one"
	case t.Missed+t.Misclassified > 0:
		var wrong, kinds []string
		if t.Missed > 0 {
			wrong = append(wrong, fmt.Sprintf("missed %d planted divergences", t.Missed))
		}
		if t.Misclassified > 0 {
			wrong = append(wrong, fmt.Sprintf("took %d for something else than was planted", t.Misclassified))
		}
		for _, k := range t.ByKind {
			if n := k.Planted - k.Caught - k.Seen[compare.KindNotComparable.String()]; n > 0 {
				kinds = append(kinds, fmt.Sprintf("%d of %d %s", n, k.Planted, k.Kind))
			}
		}
		g.Verdict, g.Reason = Fail, fmt.Sprintf("the comparator %s (%s): don't believe the rest of this page", strings.Join(wrong, " and "), strings.Join(kinds, ", "))
		if t.Misclassified == 0 { // blind, or only late on a machine that is too busy: this page proves nothing
			g.Verdict = NoVerdict
		}
	case len(never) > 0:
		g.Verdict, g.Reason = NoVerdict, fmt.Sprintf("of %s nothing was planted and caught by %s: it is not known whether it sees it; serve plants each in turn, one every compare.selftest_every",
			strings.Join(never, ", "), version)
	default:
		if t.Unjudged > 0 {
			g.Reason += fmt.Sprintf("; %d could not be judged, for one store did not answer", t.Unjudged)
		}
	}
	return g
}

// neverCaught are the kinds of divergence of which the version that reported
// last caught no plant.
func neverCaught(rollups []compare.Rollup) (version string, never []string) {
	if len(rollups) > 0 {
		version = slices.MaxFunc(rollups, func(a, b compare.Rollup) int {
			return cmp.Or(a.To.Compare(b.To), a.Started.Compare(b.Started), cmp.Compare(a.Version, b.Version))
		}).Version
	}
	for _, kind := range compare.Kinds() {
		caught := slices.ContainsFunc(rollups, func(r compare.Rollup) bool {
			return r.Version == version && slices.ContainsFunc(r.Planted, func(p compare.Planted) bool { return p.Want == kind && p.Got == kind && p.Count > 0 })
		})
		if kind.Divergence() && !caught {
			never = append(never, kind.String())
		}
	}
	if version == "" {
		return "the newest version", never
	}
	return "version " + version + ", the newest", never
}
