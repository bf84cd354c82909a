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
func absent(all []Run, in Input, pods []string, until time.Time, limits Limits) (who []string) {
	live, newEnough := in.Instances, until.Add(-limits.MaxGap)
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
			if live[r.Pod] != nil && !alive && !in.Past {
				say(r, "lives no longer and never said that it ended: what it did after %s was not counted, until its next start sends what it left; if it has just ended in order, look again in a minute", stamp(r.To))
			}
		case RunClosed, RunTorn:
			if alive && r.To.Before(newEnough) { // one that has just ended may be taken for live for a moment
				say(r, "is live and has not reported since %s, when it ended by its counts", stamp(r.To))
			}
		}
	}
	missing, told := unheard(all, in, pods, until)
	who = append(who, missing...)
	for _, pod := range pods {
		for _, instance := range live[pod] {
			switch {
			case told[instance.ID], slices.ContainsFunc(all, func(r Run) bool { return r.Pod == pod && r.Run == instance.ID }):
			case in.Past:
				who = append(who, fmt.Sprintf("%s of %s (run %s) lives now and was not heard of: whether it lived in the period is not known; if it has just started, look again in a minute", instance.Name, pod, instance.ID))
			default:
				who = append(who, fmt.Sprintf("%s of %s (run %s) is live and has not reported: if it has just started, look again in a minute", instance.Name, pod, instance.ID))
			}
		}
	}
	slices.Sort(who)
	return slices.Compact(who)
}

// unheard lists who was heard of around the period and may have lived in it, of whom
// nothing is in it; and of which runs that was to be told, for they say it themselves.
func unheard(all []Run, in Input, pods []string, until time.Time) (who []string, told map[string]bool) {
	told = map[string]bool{}
	heard := map[string][]Heard{}
	for _, h := range in.Heard {
		if slices.Contains(pods, h.Pod) {
			heard[h.Run] = append(heard[h.Run], h)
		}
	}
	for run, of := range heard {
		told[run] = true
		if slices.ContainsFunc(all, func(r Run) bool { return r.Run == run }) {
			continue
		}
		slices.SortFunc(of, func(a, b Heard) int { return a.From.Compare(b.From) })
		first, last := of[0], of[len(of)-1]
		name := fmt.Sprintf("%s of %s (run %s) ", first.Instance, first.Pod, run)
		switch {
		case last.From.Before(until): // before the period only
			if !last.Ended && !replaced(last, all, in.Heard) {
				who = append(who, name+fmt.Sprintf("reported until %s, before the period, and never said that it ended: whether it lived in the period is not known", stamp(last.To)))
			} else if !last.Ended {
				delete(told, run) // if it lives all the same
			}
		case first.Started.Before(until):
			who = append(who, name+fmt.Sprintf("was started at %s and reported at %s, after the period: of what it did in the period nothing is kept", stamp(first.Started), stamp(last.To)))
		}
	}
	return who, told
}

// replaced: a process of its name was started after it.
func replaced(h Heard, all []Run, heard []Heard) bool {
	return slices.ContainsFunc(all, func(r Run) bool { return r.Pod == h.Pod && r.Instance == h.Instance && r.Started.After(h.To) }) ||
		slices.ContainsFunc(heard, func(o Heard) bool { return o.Pod == h.Pod && o.Instance == h.Instance && o.Started.After(h.To) })
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

// wrongClocks are the runs of which counts in the period bear times that were not:
// they were kept before they ended, or they have no length, for the clock had been set
// back and the counts go on where they were. In is from when to when, by that clock.
func wrongClocks(in Input, sorted []compare.Rollup, pods []string, limits Limits) (all []Incident) {
	type clock struct {
		Ahead
		back uint64
	}
	clocks := map[string]*clock{}
	note := func(a Ahead, back uint64) {
		c := clocks[a.Run]
		if c == nil {
			c = &clock{Ahead: a}
			clocks[a.Run] = c
		}
		c.From, c.To, c.By, c.back = earlier(a.From, c.From), later(c.To, a.To), max(c.By, a.By), c.back+back
	}
	for _, a := range in.Ahead {
		if slices.Contains(pods, a.Pod) && a.By > limits.MaxAhead {
			note(a, 0)
		}
	}
	for _, r := range sorted {
		if r.From.Equal(r.To) && !r.Final && !r.Torn {
			note(Ahead{Pod: r.Pod, Instance: r.Instance, Run: r.Run, From: r.From, To: r.To}, 1)
		}
	}
	for _, run := range slices.Sorted(maps.Keys(clocks)) {
		c := clocks[run]
		text := fmt.Sprintf("the clock of %s (run %s) was wrong", c.Instance, run)
		if c.By > 0 {
			text += fmt.Sprintf(": it was ahead by %s or more", seconds(c.By.Seconds()))
		}
		if c.back > 0 {
			text += fmt.Sprintf("; it was set back, and %s that came then are of one moment", counted(int(c.back), "rollup"))
		}
		all = append(all, Incident{Pod: c.Pod, What: WhatClock, From: c.From.UTC(), To: c.To.UTC(), By: c.Instance,
			Text: text + ". Its counts are whole, and their times are not to be trusted: some of another time may be in this period, and some of this time in another"})
	}
	return all
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
