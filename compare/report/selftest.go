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
	all, byKind := compare.SumPlants(s.Planted)
	t := SelfTest{Planted: all.Planted, Caught: all.Caught, Missed: all.Missed, Misclassified: all.Misclassified, Unjudged: all.Unjudged, ByKind: []PlantedKind{}}
	for _, sum := range byKind {
		k := PlantedKind{Kind: sum.Kind.String(), Planted: sum.Planted, Caught: sum.Caught, Unjudged: sum.Unjudged, Seen: map[string]uint64{}}
		for got, n := range sum.SeenAs {
			if got != sum.Kind {
				k.Seen[got.String()] = n
			}
		}
		t.ByKind = append(t.ByKind, k)
	}
	return t
}

// selfTest: what is planted must be seen, and as what it is. A comparator that
// saw nothing wrong is believed only then, and one version says nothing of the next.
func (r *Report) selfTest(in Input, s *sum) Gate {
	t := r.SelfTest
	unplanted := slices.Clone(in.Unplanted)
	for _, pod := range r.Pods {
		if stage, _, ok := r.ends(pod); ok && !stage.Dual() && len(r.comparing(pod)) == 0 {
			unplanted = append(unplanted, fmt.Sprintf("%s was in %s all the time, where nothing is compared", pod, stage))
		}
	}
	version, never := neverCaught(s.rollups)
	g := Gate{Name: "selftest", Unit: unitCount, Value: float64(t.Missed + t.Misclassified), N: t.Planted, Verdict: Pass,
		Reason: fmt.Sprintf("%d of %d plants were caught, of each kind some by %s: %s", t.Caught, t.Planted, version, t.caught())}
	switch {
	case t.Planted == 0:
		g.Verdict, g.Reason = NoVerdict, "nothing was planted"+because(unplanted)+": it is not known whether the comparator sees; serve plants on the reserved_shop of a pod that has one, and `holdover selftest --pod POD` at once"
	case t.Missed+t.Misclassified > 0:
		var wrong, kinds []string
		if t.Missed > 0 {
			wrong = append(wrong, fmt.Sprintf("missed %d planted divergences", t.Missed))
		}
		if t.Misclassified > 0 {
			wrong = append(wrong, fmt.Sprintf("took %d for something else than was planted", t.Misclassified))
		}
		for _, k := range t.ByKind {
			if n := k.Planted - k.Caught - k.Unjudged; n > 0 {
				kinds = append(kinds, fmt.Sprintf("%d of %d %s", n, k.Planted, k.Kind))
			}
		}
		g.Verdict, g.Reason = Fail, fmt.Sprintf("the comparator %s (%s): don't believe the rest of this page", strings.Join(wrong, " and "), strings.Join(kinds, ", "))
		if t.Misclassified == 0 { // blind, or only late on a machine that is too busy: this page proves nothing
			g.Verdict = NoVerdict
		}
	case 2*t.Unjudged > t.Planted:
		g.Verdict, g.Reason = NoVerdict, fmt.Sprintf("%d of %d plants could not be judged, for a store did not answer or not in time: the rest show too little", t.Unjudged, t.Planted)
	case len(never) > 0:
		g.Verdict, g.Reason = NoVerdict, fmt.Sprintf("of %s nothing was planted and caught by %s: it is not known whether it sees it; serve plants each in turn, one every compare.selftest_every, and `holdover selftest --pod POD` each at once%s",
			strings.Join(never, ", "), version, because(unplanted))
	default:
		if t.Unjudged > 0 {
			g.Reason += fmt.Sprintf("; %d could not be judged, for a store did not answer or not in time", t.Unjudged)
		}
	}
	return g
}

// because are the reasons that are known, behind a sentence.
func because(reasons []string) string {
	if len(reasons) == 0 {
		return ""
	}
	return " (" + strings.Join(reasons, "; ") + ")"
}

// caught lists how many of each kind were caught.
func (t SelfTest) caught() string {
	var parts []string
	for _, k := range t.ByKind {
		parts = append(parts, fmt.Sprintf("%s %d", k.Kind, k.Caught))
	}
	return strings.Join(parts, ", ")
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
