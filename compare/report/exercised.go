package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdover"
	"holdover/compare"
)

// incomparable are the strata whose calls have no answer of one store: that they
// occurred is all that can be asked of them.
var incomparable = []string{"redis-away", "mysql-away"}

// exercised: what has to have been compared, and that the stage which the pod is
// in was observed at all: it is the one that the next step starts from.
func (r *Report) exercised(s *sum) Gate {
	var never, uncompared, reasons []string
	for _, name := range r.Limits.MustSee {
		i := slices.IndexFunc(r.Divergences.Strata, func(x StratumCount) bool { return x.Name == name })
		switch {
		case i < 0:
			never = append(never, name)
		case r.Divergences.Strata[i].Compared == 0 && !slices.Contains(incomparable, name):
			uncompared = append(uncompared, fmt.Sprintf("%s (%d)", name, r.Divergences.Strata[i].Eligible))
		}
	}
	if len(never) > 0 {
		reasons = append(reasons, "never seen: "+strings.Join(never, ", "))
	}
	if len(uncompared) > 0 {
		reasons = append(reasons, "seen and never compared: "+strings.Join(uncompared, ", "))
	}
	for _, pod := range r.Pods {
		stage, at, ok := r.ends(pod)
		if !ok || !stage.Dual() {
			continue
		}
		of := fmt.Sprintf("compared in %s, where %s is since %s", stage, pod, stamp(at))
		if n := s.comparedIn(pod, stage, at); n == 0 {
			reasons = append(reasons, "nothing was "+of)
		} else if n < r.Limits.MinOperation {
			reasons = append(reasons, fmt.Sprintf("only %d operations were %s: fewer than %d say nothing", n, of, r.Limits.MinOperation))
		}
	}
	demanded := len(r.Limits.MustSee)
	g := Gate{Name: "exercised", Unit: unitCount, Value: float64(demanded - len(never) - len(uncompared)), Threshold: float64(demanded),
		N: r.Coverage.Eligible, Verdict: Pass, Reason: "all that must occur was compared"}
	if len(reasons) > 0 {
		g.Verdict, g.Reason = NoVerdict, strings.Join(reasons, "; ")
	} else if demanded == 0 {
		g.Reason = "no kind of call is demanded"
	}
	return g
}

// ends is the stage that the pod is in when the period ends, and since when; not
// ok where no change of stage is in the data.
func (r *Report) ends(pod string) (stage holdover.Stage, since time.Time, ok bool) {
	for _, c := range r.Timeline {
		if c.Pod == pod && (!ok || c.Stage != stage) {
			stage, since, ok = c.Stage, c.At, true
		}
	}
	return stage, since, ok
}

// comparedIn is how much of the pod was compared in a stage by the rollups that
// reach beyond a time.
func (s *sum) comparedIn(pod string, stage holdover.Stage, since time.Time) (n uint64) {
	for _, r := range s.rollups {
		if r.Pod != pod || !r.To.After(since) {
			continue
		}
		for _, c := range r.Cells {
			if c.Stage == stage {
				n += c.Compared
			}
		}
	}
	return n
}

// undecided bounds the differences that nobody could judge: each may be a fault.
func (r *Report) undecided() Gate {
	g := Gate{Name: "undecided", Unit: unitCount, N: r.Coverage.Eligible, Verdict: Pass,
		Threshold: float64(Budget{Floor: r.Limits.UndecidedFloor, Share: r.Limits.UndecidedShare}.allows(r.Coverage.Eligible))}
	for _, x := range r.Divergences.Strata {
		if x.Name == compare.StratumUndecided {
			g.Value = float64(x.Eligible)
		}
	}
	g.Reason = fmt.Sprintf("%.0f differences never stood still long enough to be judged, %.0f allowed", g.Value, g.Threshold)
	switch {
	case r.Coverage.Eligible == 0:
		g.Verdict, g.Reason = NoVerdict, "nothing was compared"
	case g.Value > g.Threshold:
		g.Verdict = NoVerdict
		g.Reason += ": each may be a fault; compare when there is less traffic on the same items"
	case g.Value == 0:
		g.Reason = "every difference could be judged"
	}
	return g
}

// notExercised says what this report can say nothing about.
func notExercised(r Report) []string {
	out := []string{}
	for _, name := range r.Coverage.NeverSeen {
		out = append(out, "stratum "+name+": never seen")
	}
	for _, x := range r.Divergences.Strata {
		if x.Compared == 0 && x.Name != compare.StratumUndecided && !slices.Contains(incomparable, x.Name) {
			out = append(out, fmt.Sprintf("stratum %s: seen %d times, never compared", x.Name, x.Eligible))
		}
	}
	for _, stage := range r.Stages {
		for op := holdover.OpReserve; op <= holdover.OpExtend; op++ {
			i := slices.IndexFunc(r.Coverage.Operations, func(o OperationCoverage) bool { return o.Stage == stage && o.Op == op.String() })
			if i < 0 {
				out = append(out, fmt.Sprintf("%s in stage %s: never seen", op, stage))
			} else if n := r.Coverage.Operations[i].Eligible; n < r.Limits.MinOperation {
				out = append(out, fmt.Sprintf("%s in stage %s: %d only, too few to judge its coverage", op, stage, n))
			}
		}
	}
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		if !slices.Contains(r.Stages, stage) {
			out = append(out, "stage "+stage.String()+": nothing was observed in it")
		}
	}
	for _, kind := range compare.Kinds() {
		planted := slices.ContainsFunc(r.SelfTest.ByKind, func(k PlantedKind) bool { return k.Kind == kind.String() })
		if r.SelfTest.Planted > 0 && kind.Divergence() && !planted {
			out = append(out, "a divergence of kind "+kind.String()+": never planted")
		}
	}
	return out
}
