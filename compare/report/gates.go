package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/stats"
)

// The units of a gate's value.
const (
	unitShare   = "share"
	unitCount   = "count"
	unitSeconds = "seconds"
)

// judge makes the gates, in the order in which a person should read them, and
// the verdict: fail when one fails, no-verdict when one could not be judged.
func (r *Report) judge(in Input, s *sum) error {
	r.Gates = []Gate{r.unexplained(), r.unexplainedRate()}
	r.Gates = append(r.Gates, r.coverage(s)...)
	r.Gates = append(r.Gates, r.budgets()...)
	r.Gates = append(r.Gates, r.verification(in), r.selfTest(in, s), r.undecided(), r.exercised(s), r.panics(s))
	r.Gates = append(r.Gates, r.instances(in), r.gaps(s))
	if in.Baseline != nil {
		g, err := r.latency(*in.Baseline, in.Noise)
		if err != nil {
			return err
		}
		r.Gates = append(r.Gates, g)
	}
	r.Verdict = Pass
	demanded := 0
	for i := range r.Gates {
		g := &r.Gates[i]
		g.OK = g.Verdict == Pass
		family, _, _ := strings.Cut(g.Name, ":")
		g.Waived = slices.Contains(r.Limits.Waived, g.Name) || slices.Contains(r.Limits.Waived, family)
		if !g.excused() {
			r.Verdict = worst(r.Verdict, g.Verdict)
			demanded++
		}
	}
	if demanded == 0 { // nothing was asked
		r.Verdict = NoVerdict
	}
	return nil
}

// Waived names each gate that a waiver covers and excuses, with what it came to: a
// waiver of a family covers all of it. It belongs to the verdict wherever that is told.
func (r Report) Waived() string {
	var parts []string
	for _, g := range r.Gates {
		switch {
		case !g.excused():
		case g.OK:
			parts = append(parts, g.Name+" (passed anyway)")
		default:
			parts = append(parts, fmt.Sprintf("%s (%s)", g.Name, g.Verdict))
		}
	}
	return strings.Join(parts, ", ")
}

// excused: a waiver excuses what could not be judged, and no failure.
func (g Gate) excused() bool { return g.Waived && g.Verdict != Fail }

// Tally counts the gates: those that passed, those that were waived, by name, and
// those that are neither are all that there are.
func (r Report) Tally() string {
	var passed, waived, not int
	for _, g := range r.Gates {
		switch {
		case g.excused():
			waived++
		case g.OK:
			passed++
		default:
			not++
		}
	}
	text := fmt.Sprintf("%d of %s passed", passed, counted(len(r.Gates), "gate"))
	if not > 0 {
		text += fmt.Sprintf(", %d not", not)
	}
	if waived > 0 {
		text += fmt.Sprintf(", %d waived: %s", waived, r.Waived())
	}
	return text
}

// Excused are the gates that were waived and not passed: somebody has to say why
// it is a go all the same.
func (r Report) Excused() (all []Gate) {
	for _, g := range r.Gates {
		if g.Waived && !g.OK {
			all = append(all, g)
		}
	}
	return all
}

// unexplained counts. One that oversells is never allowed.
func (r *Report) unexplained() Gate {
	g := Gate{Name: "unexplained", Unit: unitCount, Value: float64(r.Divergences.Unexplained), Threshold: float64(r.Limits.Unexplained), N: r.Divergences.Compared}
	var parts []string
	oversell := false
	for _, k := range r.Divergences.Kinds {
		if k.Kind != compare.KindUnexplained.String() {
			continue
		}
		for _, d := range k.Directions {
			parts = append(parts, fmt.Sprintf("%d %s (%d units)", d.Count, d.Direction, d.Units))
			oversell = oversell || d.Direction == compare.DirectionOversell
		}
	}
	switch {
	case oversell || r.Divergences.Unexplained > r.Limits.Unexplained:
		g.Verdict, g.Reason = Fail, "differences that no evidence explains: "+strings.Join(parts, ", ")
	case r.Divergences.Compared == 0:
		g.Verdict, g.Reason = NoVerdict, "nothing was compared"
	case len(parts) > 0:
		g.Verdict, g.Reason = Pass, "within what is allowed: "+strings.Join(parts, ", ")
	default:
		g.Verdict, g.Reason = Pass, "every difference is explained by recorded evidence"
	}
	return g
}

// unexplainedRate asks whether there are enough observations for "none" to mean anything.
func (r *Report) unexplainedRate() Gate {
	limit, d := r.Limits.UnexplainedRate, r.Divergences
	g := Gate{Name: "unexplained-rate", Unit: unitShare, Value: d.UnexplainedRate.High, Threshold: limit, N: d.Compared}
	switch level := fmt.Sprintf("%g %%", 100*(1-r.Limits.Alpha)); {
	case d.UnexplainedRate.High <= limit:
		g.Verdict, g.Reason = Pass, fmt.Sprintf("at most %s with %s confidence, however often one looks", percent(d.UnexplainedRate.High), level)
	case d.UnexplainedRate.Low > limit:
		g.Verdict, g.Reason = Fail, fmt.Sprintf("at least %s with %s confidence", percent(d.UnexplainedRate.Low), level)
	default:
		g.Verdict, g.Reason = NoVerdict, fmt.Sprintf("%d compared observations can't rule out %s: with none unexplained it takes about %d",
			d.Compared, percent(limit), stats.TrialsFor(limit, r.Limits.Alpha))
	}
	return g
}

// coverage is judged overall, of each pod, of each instance, and of each operation
// in each stage. Too little of it is never a failure: nothing was shown.
func (r *Report) coverage(s *sum) []Gate {
	judge := func(name, what string, compared, of uint64) Gate {
		g := Gate{Name: name, Unit: unitShare, Value: share(compared, of), Threshold: r.Limits.MinCoverage, N: of, Verdict: Pass,
			Reason: fmt.Sprintf("%d of %d %s were compared", compared, of, what)}
		if of == 0 || g.Value < r.Limits.MinCoverage {
			g.Verdict = NoVerdict
		}
		return g
	}
	c := r.Coverage
	all := judge("coverage", "operations", c.Compared, c.Eligible+c.Bypassed)
	if c.Bypassed > 0 {
		all.Reason += fmt.Sprintf("; %d bypassed the comparator", c.Bypassed)
	}
	if c.Compared == 0 {
		all.Reason = "nothing was compared"
	} else if c.Compared < r.Limits.MinCompared {
		all.Verdict = NoVerdict
		all.Reason += fmt.Sprintf(": fewer than %d say nothing", r.Limits.MinCompared)
	}
	gates := []Gate{all}
	if len(r.Pods) > 1 || len(r.UnknownPods) > 0 {
		for _, p := range c.Pods {
			g := judge("coverage:pod/"+p.Pod, "operations of the pod", p.Compared, p.Eligible+p.Bypassed)
			if slices.Contains(r.UnknownPods, p.Pod) {
				g.Reason = "the pod is not known: nothing of it is in the data; check its name"
			} else if p.Eligible+p.Bypassed == 0 {
				g.Reason = "nothing of the pod was observed in the period"
			}
			gates = append(gates, g)
		}
	}
	gates = append(gates, r.instanceCoverage(s), r.thinGate(s))
	for _, o := range c.Operations {
		if o.Eligible >= r.Limits.MinOperation || o.Compared == 0 { // a rare one too, when nothing of it is known
			gates = append(gates, judge(fmt.Sprintf("coverage:%s/%s", o.Stage, o.Op), "operations", o.Compared, o.Eligible))
		}
	}
	return gates
}

// instanceCoverage: one instance that compares nothing is a few percent of all.
func (r *Report) instanceCoverage(s *sum) Gate {
	g := Gate{Name: "coverage:instances", Unit: unitShare, Value: 1, Threshold: r.Limits.MinCoverage, Verdict: Pass}
	var thin []string
	for _, name := range slices.Sorted(maps.Keys(s.instances)) {
		i := s.instances[name]
		of := i.Eligible + i.Bypassed
		if of < r.Limits.MinOperation {
			continue
		}
		g.N++
		compared := share(i.Compared, of)
		g.Value = min(g.Value, compared)
		if compared < r.Limits.MinCoverage {
			thin = append(thin, fmt.Sprintf("%s: %d of %d", name, i.Compared, of))
		}
	}
	switch {
	case len(thin) > 0:
		g.Verdict, g.Reason = NoVerdict, "too little was compared on "+strings.Join(thin, ", ")
	case g.N == 0:
		g.Value, g.Verdict, g.Reason = 0, NoVerdict, fmt.Sprintf("no instance had %d operations", r.Limits.MinOperation)
	default:
		g.Reason = fmt.Sprintf("the least of %d instances", g.N)
	}
	return g
}

// budgets: an explanation that is needed too often is no explanation.
func (r *Report) budgets() (gates []Gate) {
	for _, k := range r.Divergences.Kinds {
		var kind compare.Kind
		if err := kind.UnmarshalText([]byte(k.Kind)); err != nil || !kind.Explained() {
			continue
		}
		g := Gate{Name: "budget:" + k.Kind, Unit: unitCount, Value: float64(k.Count), Threshold: float64(k.Budget), N: r.Divergences.Eligible,
			Verdict: Pass, Reason: fmt.Sprintf("%d explained, %d allowed", k.Count, k.Budget)}
		if k.Count > k.Budget {
			g.Verdict = Fail
			var parts []string
			for _, d := range k.Directions {
				parts = append(parts, fmt.Sprintf("%d %s (%d units)", d.Count, d.Direction, d.Units))
			}
			g.Reason = fmt.Sprintf("more than the %d that evidence of this kind may explain: %s", k.Budget, strings.Join(parts, ", "))
		}
		gates = append(gates, g)
	}
	return append(gates, r.budgetOfAll())
}

// budgetOfAll bounds all explanations together: several kinds, each within its
// own budget, can hide as much as one.
func (r *Report) budgetOfAll() Gate {
	var n uint64
	for _, k := range r.Divergences.Kinds {
		var kind compare.Kind
		if err := kind.UnmarshalText([]byte(k.Kind)); err == nil && kind.Explained() {
			n += k.Count
		}
	}
	allowed := r.Limits.BudgetAll.allows(r.Divergences.Eligible)
	g := Gate{Name: "budget:all", Unit: unitCount, Value: float64(n), Threshold: float64(allowed), N: r.Divergences.Eligible,
		Verdict: Pass, Reason: fmt.Sprintf("%d explained in all, %d allowed", n, allowed)}
	if n > allowed {
		g.Verdict, g.Reason = Fail, fmt.Sprintf("%d differences are explained in all, more than the %d that may be", n, allowed)
	}
	return g
}

// verification asks for the newest one of each pod: clean, and young.
func (r *Report) verification(in Input) Gate {
	g := Gate{Name: "verification", Unit: unitCount, Verdict: Pass, N: uint64(len(r.Verification)), Reason: "the newest of each pod is clean"}
	var reasons []string
	for _, pod := range r.Pods {
		what, at := r.shaken(in, pod)
		again := r.verifyAgain(in, pod)
		i := slices.IndexFunc(r.Verification, func(v Verification) bool { return v.Pod == pod })
		if i < 0 {
			g.Verdict = worst(g.Verdict, NoVerdict)
			reasons = append(reasons, fmt.Sprintf("%s was not verified by the period's end: %s", pod, again))
			continue
		}
		v := r.Verification[i]
		g.Value += float64(v.Differences)
		switch {
		case v.Differences > 0:
			g.Verdict = Fail
			reasons = append(reasons, fmt.Sprintf("%s: %d differences between the stores at %s: %s", pod, v.Differences, stamp(v.At), v.Summary))
		case !v.Clean:
			g.Verdict = worst(g.Verdict, NoVerdict)
			reasons = append(reasons, fmt.Sprintf("%s: not clean at %s (%d unsettled): %s: %s", pod, stamp(v.At), v.Unsettled, v.Summary, again))
		case v.At.Before(at):
			g.Verdict = worst(g.Verdict, NoVerdict)
			reasons = append(reasons, fmt.Sprintf("%s: the newest, at %s, is older than %s: %s", pod, stamp(v.At), what, again))
		case v.Age > r.Limits.VerifiedWithin.Seconds():
			g.Verdict = worst(g.Verdict, NoVerdict)
			reasons = append(reasons, fmt.Sprintf("%s: the newest is %s old, more than %s: %s", pod, seconds(v.Age), seconds(r.Limits.VerifiedWithin.Seconds()), again))
		}
	}
	if len(r.Pods) == 0 {
		g.Verdict, g.Reason = NoVerdict, "there is no pod"
	}
	if len(reasons) > 0 {
		g.Reason = strings.Join(reasons, "; ")
	}
	return g
}

// verifyAgain is what to do about a pod without a verification that counts.
func (r *Report) verifyAgain(in Input, pod string) string {
	if r.Source == SourceFiles {
		return "verifications are not in event files: make the report from the pods' MySQL"
	}
	var newest holdover.Verified
	for _, v := range in.Verified {
		if v.Pod == pod && v.At.After(r.To) && v.At.After(newest.At) {
			newest = v
		}
	}
	switch {
	case newest.At.IsZero():
		return "run holdover verify --pod " + pod + ", and make the report again, with an end after it"
	case newest.Clean:
		return fmt.Sprintf("the newest verification (%s, clean) is after the period's end: repeat the report in a minute, with an end after it", stamp(newest.At))
	default:
		return fmt.Sprintf("the newest verification (%s, not clean: %s) is after the period's end", stamp(newest.At), newest.Summary)
	}
}

// shaken is what happened to the pod last that a verification has to be younger
// than, and when it was over; zero: nothing.
func (r *Report) shaken(in Input, pod string) (what string, at time.Time) {
	if lost := in.Pulse.lost[pod]; !lost.IsZero() {
		what, at = "the last lost mirror, in the counts until "+stamp(lost), lost
	}
	for _, i := range r.Incidents {
		name, shakes := shaking[i.What]
		if i.Pod != pod || !shakes || !i.To.After(at) {
			continue
		}
		at, what = i.To, name+", until "+stamp(i.To)
		if i.Open {
			what = name + ", which lasts"
		}
	}
	return what, at
}

// shaking are the incidents after which the stores may differ.
var shaking = map[string]string{
	WhatMySQLAway: "the last outage of MySQL", WhatRedisAway: "the last outage of Redis", WhatRebuild: "the last rebuild of Redis", WhatRepair: "the last repair",
}

func (r *Report) panics(s *sum) Gate {
	g := Gate{Name: "panics", Unit: unitCount, Value: float64(s.Panics), N: r.Coverage.Eligible, Verdict: Pass, Reason: "no comparison panicked"}
	if s.Panics > 0 {
		g.Verdict, g.Reason = Fail, fmt.Sprintf("%d comparisons panicked, a bug of holdover: report it", s.Panics)
	} else if r.Coverage.Eligible == 0 {
		g.Verdict, g.Reason = NoVerdict, "nothing was compared"
	}
	return g
}

func (r *Report) instances(in Input) Gate {
	who := absent(r.Instances, in, r.Pods, r.To, r.Limits)
	who = append(who, ahead(in, r.Pods, r.Limits)...)
	for _, i := range r.Incidents {
		if i.What == WhatClock {
			who = append(who, fmt.Sprintf("%s: %s; begin the period after %s, or wait until that is not in it", i.Pod, i.Text, stamp(i.To)))
		}
	}
	var unasked []string
	for _, pod := range r.Pods {
		if in.Past {
			if in.Instances[pod] == nil {
				unasked = append(unasked, pod)
			}
			continue
		}
		if stage, _, ok := r.ends(pod); in.Instances != nil && in.Instances[pod] == nil && ok && stage.Dual() {
			who = append(who, "which instances of "+pod+" live is not known: its Redis did not answer")
		}
	}
	g := Gate{Name: "instances", Unit: unitCount, Value: float64(len(who)), N: uint64(len(r.Instances)), Verdict: Pass,
		Reason: fmt.Sprintf("all %d runs reported to their end, or to the end of the period", len(r.Instances))}
	if n, torn := ended(r.Instances); len(torn) > 0 {
		what := "killed"
		if r.Source == SourceFiles {
			what = "running or killed"
		}
		g.Reason = fmt.Sprintf("%d of %d runs reported to their end, or to the end of the period; "+what+", and known to the last second or so: %s",
			n, len(r.Instances), strings.Join(torn, ", "))
	}
	if in.Past {
		g.Reason += "; the period has ended, and who lived in it is told by what was heard in it, and within an hour of it: an instance that sent nothing then and lives no longer is not known"
		if len(unasked) > 0 {
			g.Reason += "; who lives now could not be asked of " + strings.Join(unasked, ", ")
		}
	}
	switch {
	case len(who) > 0:
		g.Verdict, g.Reason = NoVerdict, strings.Join(who, "; ")
	case len(r.Instances) == 0:
		g.Verdict, g.Reason = NoVerdict, "no instance reported"
	}
	return g
}

// gaps: what was not counted may have been anything, of one run or of a pod
// that should have compared.
func (r *Report) gaps(s *sum) Gate {
	g := Gate{Name: "gaps", Unit: unitSeconds, Threshold: r.Limits.MaxGap.Seconds(), N: uint64(len(r.Instances)), Verdict: Pass, Reason: "no stretch is missing"}
	for _, run := range r.Instances {
		if run.Gap > g.Value {
			g.Value = run.Gap
			g.Reason = fmt.Sprintf("the longest stretch without counts is %s, of %s of %s (run %s)", seconds(run.Gap), run.Instance, run.Pod, run.Run)
		}
	}
	var unseen []string
	for _, pod := range r.Pods {
		for _, s := range r.unseen(s.rollups, pod) {
			g.Value = max(g.Value, s.to.Sub(s.from).Seconds())
			unseen = append(unseen, fmt.Sprintf("no instance of %s counted anything from %s to %s, where it should have compared", pod, stamp(s.from), stamp(s.to)))
		}
	}
	if before := r.Data.From.Sub(r.From); !r.Data.From.IsZero() && before > r.Limits.MaxGap && len(unseen) == 0 && g.Value <= g.Threshold {
		g.Reason += fmt.Sprintf("; this is about the time from the first counts on, %s: nothing is known of the %s of the period before that", stamp(r.Data.From), long(before))
	}
	if len(unseen) > 0 {
		g.Reason = strings.Join(unseen, "; ")
	}
	switch {
	case len(r.Instances) == 0:
		g.Verdict, g.Reason = NoVerdict, strings.Join(append([]string{"no instance reported"}, unseen...), "; ")
	case g.Value > g.Threshold:
		g.Verdict = NoVerdict
	}
	return g
}
