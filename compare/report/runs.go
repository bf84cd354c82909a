package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"holdover"
	"holdover/compare"
)

// latest sorts rollups by run and number. Of two with one number the one that
// reaches further counts, which was written when more had happened, and the one
// that was closed in order.
func latest(rollups []compare.Rollup) (sorted []compare.Rollup, twice int) {
	sorted = slices.Clone(rollups)
	slices.SortStableFunc(sorted, func(a, b compare.Rollup) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Seq, b.Seq), b.To.Compare(a.To), cmp.Compare(torn(a), torn(b)))
	})
	n := len(sorted)
	sorted = slices.CompactFunc(sorted, func(a, b compare.Rollup) bool { return a.Run == b.Run && a.Seq == b.Seq })
	return sorted, n - len(sorted)
}

func torn(r compare.Rollup) int {
	if r.Torn {
		return 1
	}
	return 0
}

// runs says of each run what is missing of it between since and until. sorted
// is in the order of latest.
func runs(sorted []compare.Rollup, since, until time.Time, maxGap time.Duration) []Run {
	all := []Run{}
	var last compare.Rollup
	for _, r := range sorted {
		if len(all) == 0 || all[len(all)-1].Run != r.Run {
			all = append(all, Run{Pod: r.Pod, Instance: r.Instance, Run: r.Run, Started: r.Started, From: r.From, State: RunMissing})
			begin := r.From
			if r.Seq > 1 {
				begin = later(since, r.Started)
			}
			all[len(all)-1].gap(begin, r.From, r.Lost)
		} else if missing := max(r.Seq-last.Seq-1, r.Lost); missing > 0 {
			all[len(all)-1].gap(last.To, r.From, missing)
		}
		run := &all[len(all)-1]
		run.Version, run.Config, run.To = r.Version, r.Config, r.To
		run.Rollups++
		switch {
		case r.Final:
			run.State = RunClosed
		case r.Torn:
			run.State = RunTorn
		}
		last = r
	}
	slices.SortStableFunc(all, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Instance, b.Instance), a.Started.Compare(b.Started), cmp.Compare(a.Run, b.Run))
	})
	for i := range all {
		run := &all[i]
		again, isAgain := startedAgain(all, i)
		switch {
		case run.State == RunTorn && isAgain: // when it was killed is not known: it may have written nothing for long
			run.gap(run.To, again, 0)
		case run.State != RunMissing:
		case isAgain:
			run.State = RunReplaced
			run.gap(run.To, again, 0)
		case !until.After(run.To.Add(maxGap)):
			run.State = RunRunning
		default:
			run.gap(run.To, until, 0)
		}
	}
	return all
}

// startedAgain is when the instance of a run was started after it. all is sorted.
func startedAgain(all []Run, i int) (time.Time, bool) {
	if i+1 < len(all) && all[i+1].Pod == all[i].Pod && all[i+1].Instance == all[i].Instance && all[i+1].Started.After(all[i].To) {
		return all[i+1].Started, true
	}
	return time.Time{}, false
}

// gap notes a stretch without counts.
func (r *Run) gap(from, to time.Time, lost uint64) {
	seconds := max(to.Sub(from), 0).Seconds()
	r.Gap = max(r.Gap, seconds)
	r.Missing += seconds
	r.Lost += lost
}

// absent lists who should be reporting and is not: runs that fell silent, and
// live instances without a run that reports. One that has just ended may still
// be taken for live: its last run is new enough then.
func absent(all []Run, live map[string][]holdover.Instance, pods []string, newEnough time.Time) (who []string) {
	for _, r := range all {
		if r.State == RunMissing {
			who = append(who, fmt.Sprintf("%s of %s (run %s) fell silent at %s", r.Instance, r.Pod, r.Run, stamp(r.To)))
		}
	}
	for _, pod := range pods {
		for _, instance := range live[pod] {
			reports := slices.ContainsFunc(all, func(r Run) bool {
				return r.Pod == pod && r.Instance == instance.Name && (r.State == RunMissing || !r.To.Before(newEnough))
			})
			if !reports {
				who = append(who, fmt.Sprintf("%s of %s is live and has not reported: if it has just started, look again in a minute", instance.Name, pod))
			}
		}
	}
	slices.Sort(who)
	return slices.Compact(who)
}

// runNotes say what a reader should know of runs that did not end in order.
func runNotes(all []Run) (notes []string) {
	for i, r := range all {
		name := fmt.Sprintf("%s of %s (run %s)", r.Instance, r.Pod, r.Run)
		switch r.State {
		case RunTorn:
			if again, ok := startedAgain(all, i); ok {
				notes = append(notes, fmt.Sprintf("%s was killed after %s and started again at %s: what it did between them was not counted", name, stamp(r.To), stamp(again)))
			} else {
				notes = append(notes, fmt.Sprintf("%s was killed at about %s: up to a second of it was not counted", name, stamp(r.To)))
			}
		case RunReplaced:
			notes = append(notes, fmt.Sprintf("%s fell silent at %s and was started again: what it did last was not counted", name, stamp(r.To)))
		}
		if r.Lost > 0 {
			notes = append(notes, fmt.Sprintf("%d rollups of %s are missing, %s in all", r.Lost, name, seconds(r.Missing)))
		} else if r.State == RunRunning && r.Missing > 0 {
			notes = append(notes, fmt.Sprintf("the first rollups of %s are missing, %s", name, seconds(r.Missing)))
		}
	}
	return notes
}

// timeline is each pod's changes within the period, after the one that it began
// with; and what of them, of the
// verifications and of what the caller names is an incident.
func timeline(in Input, pods []string, since, until time.Time) ([]Change, []Incident) {
	changes, incidents := []Change{}, []Incident{}
	for _, pod := range pods {
		var before *Change
		var own []Change
		for _, f := range in.Fences {
			if f.Pod != pod || f.At.After(until) {
				continue
			}
			c := Change{Pod: pod, At: f.At.UTC(), Epoch: f.Epoch, Stage: f.Stage, Latched: f.Latched, By: f.By, Reason: f.Reason, Before: f.At.Before(since)}
			if c.Before {
				before = &c
			} else {
				own = append(own, c)
			}
		}
		if before != nil {
			own = slices.Insert(own, 0, *before)
		}
		for i, c := range own {
			if !c.Latched || i > 0 && own[i-1].Latched {
				continue
			}
			kill := Incident{Pod: pod, What: "kill", From: c.At, To: until, Open: true, By: c.By,
				Text: fmt.Sprintf("the kill switch latched %s at epoch %d: %s", c.Stage, c.Epoch, c.Reason)}
			for _, end := range own[i+1:] {
				if !end.Latched {
					kill.To, kill.Open = end.At, false
					kill.Text += fmt.Sprintf("; restored by %s: %s", end.By, end.Reason)
					break
				}
			}
			incidents = append(incidents, kill)
		}
		changes = append(changes, own...)
		for _, v := range in.Verified {
			if v.Pod == pod && v.Differences > 0 && !v.At.Before(since) && !v.At.After(until) {
				incidents = append(incidents, Incident{Pod: pod, What: "verification", From: v.At.UTC(), To: v.At.UTC(), By: v.By, Text: v.Summary})
			}
		}
	}
	for _, i := range in.Incidents {
		if slices.Contains(pods, i.Pod) && !i.From.After(until) && (i.Open || !i.To.Before(since)) {
			if i.From, i.To = i.From.UTC(), i.To.UTC(); i.Open || i.To.After(until) { // what comes later is not of this period
				i.To, i.Open = until, true
			}
			incidents = append(incidents, i)
		}
	}
	slices.SortStableFunc(incidents, func(a, b Incident) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.What, b.What), cmp.Compare(a.Text, b.Text))
	})
	return changes, incidents
}

// verifications is the newest one of each pod up to until.
func verifications(in Input, pods []string, since, until time.Time) []Verification {
	all := []Verification{}
	for _, pod := range pods {
		var last *Verification
		runs, clean := 0, 0
		for _, v := range in.Verified {
			if v.Pod != pod || v.At.After(until) {
				continue
			}
			if !v.At.Before(since) {
				runs++
				if v.Clean {
					clean++
				}
			}
			if last == nil || v.At.After(last.At) {
				last = &Verification{Verified: v, Age: until.Sub(v.At).Seconds()}
				last.At = v.At.UTC()
			}
		}
		if last != nil {
			last.Runs, last.Cleaned = runs, clean
			all = append(all, *last)
		}
	}
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// stamp writes a time as a person reads it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
