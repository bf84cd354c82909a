package report

import (
	"cmp"
	"fmt"
	"maps"
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
// is in the order of latest. Nothing can have been read that happened after read.
func runs(sorted []compare.Rollup, since, until, read time.Time, limits Limits) []Run {
	all := []Run{}
	var last compare.Rollup
	longest := map[string]time.Duration{} // by pod
	for _, r := range sorted {
		longest[r.Pod] = max(longest[r.Pod], r.To.Sub(r.From))
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
		case !earlier(until, read).After(run.To.Add(limits.silence(longest[run.Pod]))):
			run.State = RunRunning
		default:
			run.gap(run.To, until, 0)
		}
	}
	return all
}

// silence is for how long a run may have said nothing, whose pod's longest rollup
// has this length: the next one is on its way.
func (l Limits) silence(rollup time.Duration) time.Duration {
	return min(l.MaxGap, time.Duration(l.SilentAfter*float64(max(rollup, time.Minute))))
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

// absent lists who should be reporting and is not: runs that fell silent, live
// instances whose run does not report, and runs that live no longer and never said
// that they ended. Names tell nothing here: two processes may have one.
func absent(all []Run, live map[string][]holdover.Instance, pods []string, newEnough time.Time) (who []string) {
	say := func(r Run, format string, args ...any) {
		who = append(who, fmt.Sprintf("%s of %s (run %s) ", r.Instance, r.Pod, r.Run)+fmt.Sprintf(format, args...))
	}
	for i, r := range all {
		alive := slices.ContainsFunc(live[r.Pod], func(l holdover.Instance) bool { return l.ID == r.Run })
		switch r.State {
		case RunMissing:
			say(r, "fell silent at %s", stamp(r.To))
		case RunReplaced:
			again, _ := startedAgain(all, i)
			say(r, "fell silent at %s; a process of its name was started at %s, and whether the first one ended is not known", stamp(r.To), stamp(again))
		case RunRunning:
			if live[r.Pod] != nil && !alive {
				say(r, "lives no longer and never said that it ended: what it did after %s was not counted, until its next start sends what it left; if it has just ended in order, look again in a minute", stamp(r.To))
			}
		case RunClosed, RunTorn:
			if alive && r.To.Before(newEnough) { // one that has just ended may be taken for live for a moment
				say(r, "is live and has not reported since %s, when it ended by its counts", stamp(r.To))
			}
		}
	}
	for _, pod := range pods {
		for _, instance := range live[pod] {
			if !slices.ContainsFunc(all, func(r Run) bool { return r.Pod == pod && r.Run == instance.ID }) {
				who = append(who, fmt.Sprintf("%s of %s (run %s) is live and has not reported: if it has just started, look again in a minute", instance.Name, pod, instance.ID))
			}
		}
	}
	slices.Sort(who)
	return slices.Compact(who)
}

// ended is how many runs were closed in order or reported to the end of the
// period, and which were killed.
func ended(all []Run) (n int, torn []string) {
	for _, r := range all {
		switch r.State {
		case RunRunning, RunClosed:
			n++
		case RunTorn:
			torn = append(torn, fmt.Sprintf("%s of %s (run %s) at about %s", r.Instance, r.Pod, r.Run, stamp(r.To)))
		}
	}
	return n, torn
}

// ahead are the runs whose rollups reach beyond the time at which they were read,
// and how far: their last ones are not in a period that ends now.
func ahead(in Input, pods []string, limits Limits) (who []string) {
	read := in.Read
	if read.IsZero() && in.Instances != nil {
		read = in.Until
	}
	if read.IsZero() {
		return nil
	}
	furthest := map[string]compare.Rollup{}
	for _, r := range in.Rollups {
		if slices.Contains(pods, r.Pod) && r.To.Sub(read) > limits.MaxAhead && r.To.After(furthest[r.Run].To) {
			furthest[r.Run] = r
		}
	}
	for _, run := range slices.Sorted(maps.Keys(furthest)) {
		r := furthest[run]
		by := seconds(r.To.Sub(read).Seconds())
		who = append(who, fmt.Sprintf("the clock of %s of %s (run %s) is ahead by %s or more: what it counted in the last %s is kept, and not in this period; set its clock, wait for %s and make the report again",
			r.Instance, r.Pod, run, by, by, by))
	}
	return who
}

// runNotes say what a reader should know of runs that did not end in order.
func runNotes(all []Run, source Source) (notes []string) {
	for i, r := range all {
		name := fmt.Sprintf("%s of %s (run %s)", r.Instance, r.Pod, r.Run)
		switch r.State {
		case RunTorn:
			if again, ok := startedAgain(all, i); ok {
				notes = append(notes, fmt.Sprintf("%s was killed after %s and started again at %s: what it did between them was not counted", name, stamp(r.To), stamp(again)))
			} else if source != SourceFiles { // a file does not tell, and has a note of its own
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

// earlier is the first of the two; zero is no time.
func earlier(a, b time.Time) time.Time {
	if b.IsZero() || !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}

// stamp writes a time as a person reads it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }
