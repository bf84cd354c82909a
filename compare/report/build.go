package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/stats"
)

// Build makes a report. It returns an error where the data contradicts itself;
// where data is missing, the report says so and has no verdict.
func Build(in Input) (Report, error) {
	limits, err := in.Limits.withDefaults()
	if err != nil {
		return Report{}, err
	}
	pods, unknown := podsOf(in)
	rollups, twice := latest(selected(in, pods))
	since, until := period(in, rollups)

	s, err := sumOf(rollups, pods)
	if err != nil {
		return Report{}, err
	}
	if in.Pulse == nil {
		in.Pulse = new(Pulse)
		for _, one := range rollups {
			in.Pulse.Add(one)
		}
	}
	s.thin = in.Pulse.thin(pods, limits)
	r := Report{
		Schema: Schema, Source: in.Source, Pods: pods, UnknownPods: unknown, From: since, To: until, Limits: limits,
		Stages: []holdover.Stage{}, Notes: slices.Concat([]string{}, in.Notes), SignOffs: []SignOff{},
		Instances: runs(rollups, since, until, in.Read, limits),
		Versions:  slices.Concat([]string{}, s.Versions), Configs: slices.Concat([]string{}, s.Configs),
		Verification: verifications(in, pods, since, until),
		Coverage:     s.fillCoverage(),
	}
	for _, o := range r.Coverage.Operations {
		if !slices.Contains(r.Stages, o.Stage) {
			r.Stages = append(r.Stages, o.Stage)
		}
	}
	slices.Sort(r.Stages)
	r.Data = dataOf(rollups, since, until)
	r.Timeline = timeline(in, pods, since, until)
	r.Incidents = r.incidents(in, rollups)
	r.Divergences = s.fillDivergences(limits)
	if r.Latency, err = s.fillLatency(limits.Alpha); err != nil {
		return Report{}, err
	}
	r.SelfTest = s.fillSelfTest()
	r.Noise = noiseOf(in.Noise, limits.Alpha)
	r.NotExercised = notExercised(r)
	r.Notes = append(r.Notes, s.notes(twice)...)
	r.Notes = append(r.Notes, runNotes(r.Instances, in.Source)...)
	r.Notes = append(r.Notes, ahead(in, pods, limits)...)
	if err := r.judge(in, s); err != nil {
		return Report{}, err
	}
	if r.Digest, err = digest(in, r, rollups); err != nil {
		return Report{}, err
	}
	for _, signed := range in.SignOffs {
		r.SignOffs = append(r.SignOffs, SignOff{SignOff: signed, SameData: signed.Digest == r.Digest})
	}
	return r, nil
}

// podsOf is what the report is about, and which of those that were asked for
// nothing is known of.
func podsOf(in Input) (pods, unknown []string) {
	known := map[string]bool{}
	for _, r := range in.Rollups {
		known[r.Pod] = true
	}
	for _, f := range in.Fences {
		known[f.Pod] = true
	}
	observed := slices.Sorted(maps.Keys(known))
	for _, v := range in.Verified {
		known[v.Pod] = true
	}
	for _, s := range in.SignOffs {
		known[s.Pod] = true
	}
	for pod, live := range in.Instances {
		known[pod] = known[pod] || len(live) > 0
	}
	pods = slices.Clone(in.Pods)
	if len(pods) == 0 {
		pods = observed
	}
	slices.Sort(pods)
	pods, unknown = slices.Compact(pods), []string{}
	for _, pod := range pods {
		if !known[pod] {
			unknown = append(unknown, pod)
		}
	}
	if pods == nil {
		pods = []string{}
	}
	return pods, unknown
}

// selected is the rollups of these pods that touch the period, in UTC: data from
// a file and from MySQL is the same.
func selected(in Input, pods []string) []compare.Rollup {
	var out []compare.Rollup
	for _, r := range in.Rollups {
		if slices.Contains(pods, r.Pod) && r.To.After(in.Since) && (in.Until.IsZero() || r.From.Before(in.Until)) {
			r.Started, r.From, r.To = r.Started.UTC(), r.From.UTC(), r.To.UTC()
			out = append(out, r)
		}
	}
	return out
}

// period is what was asked for; an end that was not is that of the rollups.
func period(in Input, rollups []compare.Rollup) (since, until time.Time) {
	since, until = in.Since, in.Until
	for _, r := range rollups {
		if in.Since.IsZero() && (since.IsZero() || r.From.Before(since)) {
			since = r.From
		}
		if in.Until.IsZero() {
			until = later(until, r.To)
		}
	}
	return since.UTC(), until.UTC()
}

func estimate(hits, trials uint64, alpha float64) Estimate {
	r := stats.Rate{Hits: min(hits, trials), Trials: trials}
	return Estimate{Rate: r.Value(), Low: r.Lower(alpha), High: r.Upper(alpha)}
}

func (s *sum) fillDivergences(limits Limits) Divergences {
	d := Divergences{Kinds: []KindCount{}, Strata: []StratumCount{}}
	d.Eligible, d.Compared, d.Differed, d.Unexplained = s.Counts()
	d.UnexplainedRate = estimate(d.Unexplained, d.Compared, limits.Alpha)
	for _, kind := range compare.Kinds() {
		k := KindCount{Kind: kind.String(), Directions: []DirectionCount{}, Samples: []compare.Event{}}
		for _, direction := range []compare.Direction{compare.DirectionOversell, compare.DirectionUndersell, compare.DirectionNeutral} {
			of := DirectionCount{Direction: direction}
			for _, c := range s.Cells {
				for _, t := range c.Kinds {
					if t.Kind == kind && t.Direction == direction {
						of.Count += t.Count
						of.Units = addUnits(of.Units, t.Units)
					}
				}
			}
			if of.Count == 0 {
				continue
			}
			k.Count += of.Count
			k.Units = addUnits(k.Units, of.Units)
			k.Directions = append(k.Directions, of)
			var samples []compare.Event
			for _, e := range s.Samples {
				if kind != compare.KindMatch && e.Kind == kind && e.Direction == direction { // what a match looks like is no news
					samples = append(samples, e)
				}
			}
			slices.SortStableFunc(samples, func(a, b compare.Event) int { return a.At.Compare(b.At) })
			k.Samples = append(k.Samples, samples...)
		}
		if k.Count == 0 {
			continue
		}
		of := d.Compared
		if kind == compare.KindNotComparable {
			of = d.Eligible
		}
		k.Rate = estimate(k.Count, of, limits.Alpha)
		if kind.Explained() {
			k.Budget = limits.budget(k.Kind).allows(d.Eligible)
		}
		d.Kinds = append(d.Kinds, k)
	}
	for _, x := range s.Strata {
		if x.Eligible > 0 {
			d.Strata = append(d.Strata, StratumCount{
				Name: x.Name, Eligible: x.Eligible, Compared: x.Compared, Differed: x.Differed, Unexplained: x.Unexplained,
				Rate: estimate(x.Unexplained, x.Compared, limits.Alpha), Demanded: slices.Contains(limits.MustSee, x.Name),
			})
		}
	}
	return d
}

func (s *sum) notes(twice int) (notes []string) {
	say := func(n uint64, format string) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(format, n))
		}
	}
	say(uint64(twice), "%d rollups were in the data twice and are counted once")
	say(s.EventsDropped, "%d events found the queue full: counted, and not among the samples")
	say(s.EventsFailed, "%d events or rollups could not be written at first")
	say(s.Untimed, "%d compared observations have no time on both sides")
	say(s.Ignored, "%d observations were outside a dual stage, or of another pod")
	if len(s.Configs) > 1 {
		notes = append(notes, "the configuration changed within the period: "+strings.Join(s.Configs, ", "))
	}
	if len(s.Versions) > 1 {
		notes = append(notes, "the version changed within the period: "+strings.Join(s.Versions, ", "))
	}
	return notes
}

// worst is the larger of two verdicts in the order pass, no-verdict, fail.
func worst(a, b Verdict) Verdict {
	rank := func(v Verdict) int { return slices.Index([]Verdict{Pass, NoVerdict, Fail}, v) }
	if cmp.Compare(rank(a), rank(b)) < 0 {
		return b
	}
	return a
}
