package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"holdover"
	"holdover/compare"
)

// What an incident was. Callers may name others.
const (
	WhatKill         = "kill"           // the kill switch latched the pod, until somebody restored it
	WhatDrill        = "drill"          // the kill switch was rehearsed: latched and restored
	WhatVerification = "verification"   // a complete verification that found differences
	WhatMySQLAway    = "mysql-away"     // MySQL did not answer
	WhatRedisAway    = "redis-away"     // Redis did not answer
	WhatProcess      = "process-killed" // a process ended without closing its counts
	WhatProcessOpen  = "process-open"   // a file ends in the midst of a process, which is running or was killed
	WhatRepair       = "repair"         // somebody repaired what differed
	WhatClock        = "clock-wrong"    // an instance's clock was ahead, or was set back: times of its counts are not to be trusted
	WhatRebuild      = "rebuild"        // Redis had lost its data, or had older data, and was filled anew
)

// timeline is each pod's changes within the period, after the one that it began
// with.
func timeline(in Input, pods []string, since, until time.Time) []Change {
	changes := []Change{}
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
		changes = append(changes, own...)
	}
	return changes
}

// incidents are all that happened besides what is counted, in the order of time,
// each with its reason.
func (r *Report) incidents(in Input, sorted []compare.Rollup) []Incident {
	all := append([]Incident{}, wrongClocks(in, sorted, r.Pods, r.Limits)...)
	for i, c := range r.Timeline {
		// A kill takes the latch of a drill over.
		if c.Latched && (i == 0 || r.Timeline[i-1].Pod != c.Pod || !r.Timeline[i-1].Latched || in.drill(r.Timeline[i-1]) != nil) {
			all = append(all, r.kill(in, c, r.Timeline[i+1:]))
		}
	}
	all = append(all, r.differing(in)...)
	all = append(all, r.killedProcesses()...)
	for _, pod := range r.Pods {
		all = append(all, in.Pulse.away(pod)...)
	}
	for _, i := range in.Incidents {
		if slices.Contains(r.Pods, i.Pod) && !i.From.After(r.To) && (i.Open || !i.To.Before(r.From)) {
			if i.From, i.To = i.From.UTC(), i.To.UTC(); i.Open || i.To.After(r.To) { // what comes later is not of this period
				i.To, i.Open = r.To, true
			}
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b Incident) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.What, b.What), cmp.Compare(a.Text, b.Text))
	})
	return all
}

// drill is the rehearsal that a change is the latch of; nil: none is.
func (in Input) drill(c Change) *holdover.Drill {
	i := slices.IndexFunc(in.Drills, func(d holdover.Drill) bool { return d.Pod == c.Pod && d.Epoch == c.Epoch && c.Latched })
	if i < 0 {
		return nil
	}
	return &in.Drills[i]
}

// kill is one use of the switch, or its rehearsal; later are the changes after it.
func (r *Report) kill(in Input, c Change, later []Change) Incident {
	kill := Incident{Pod: c.Pod, What: WhatKill, From: c.At, To: r.To, Open: true, By: c.By,
		Text: fmt.Sprintf("the kill switch latched %s at epoch %d: %s", c.Stage, c.Epoch, c.Reason)}
	drill := in.drill(c)
	if drill != nil {
		kill.What = WhatDrill
	}
	for _, end := range later {
		if end.Pod != c.Pod {
			break
		}
		if how := "restored"; !end.Latched || drill != nil {
			if end.Latched {
				how = "taken over"
			}
			kill.To, kill.Open = end.At, false
			kill.Text += fmt.Sprintf("; %s by %s at %s: %s", how, end.By, stamp(end.At), end.Reason)
			break
		}
	}
	switch {
	case drill == nil:
	case drill.At.IsZero():
		kill.Text += "; its outcome was not kept"
	case drill.OK:
		kill.Text += fmt.Sprintf("; passed: acknowledged by %s after %d ms, the restore after %d ms", counted(drill.Instances, "instance"), drill.KillMS, drill.RestoreMS)
	default:
		kill.Text += "; failed: " + drill.Problem
	}
	return kill
}

// differing are the stretches in which each complete verification found
// differences: a lasting one is found by each.
func (r *Report) differing(in Input) (all []Incident) {
	verified := slices.Clone(in.Verified)
	slices.SortStableFunc(verified, func(a, b holdover.Verified) int { return cmp.Or(cmp.Compare(a.Pod, b.Pod), a.At.Compare(b.At)) })
	open, n := false, 0
	for _, v := range verified {
		if !slices.Contains(r.Pods, v.Pod) || v.At.Before(r.From) || v.At.After(r.To) {
			continue
		}
		last := len(all) - 1
		switch {
		case v.Differences == 0:
			open = false
		case open && all[last].Pod == v.Pod:
			n++
			all[last].To, all[last].By = v.At.UTC(), v.By
			all[last].Text = fmt.Sprintf("%d verifications one after the other found differences, the last: %s", n, v.Summary)
		default:
			open, n = true, 1
			all = append(all, Incident{Pod: v.Pod, What: WhatVerification, From: v.At.UTC(), To: v.At.UTC(), By: v.By, Text: v.Summary})
		}
	}
	return all
}

// killedProcesses are the runs that ended out of order.
func (r *Report) killedProcesses() (all []Incident) {
	for i, run := range r.Instances {
		var text string
		what := WhatProcess
		again, isAgain := startedAgain(r.Instances, i)
		switch run.State {
		case RunTorn:
			if r.Source == SourceFiles && !isAgain {
				what, text = WhatProcessOpen, "is running, or was killed: what it counted after that is not in the files"
				break
			}
			text = "was killed, or its machine was: up to a second of its counts before that is missing"
		case RunReplaced:
			text = "fell silent: what it counted last never came"
		case RunMissing:
			text = "fell silent, and nobody of its name was started since: whether it lives is not known"
		default:
			continue
		}
		if what == WhatProcess {
			text += "; a verification from before it still counts"
		}
		one := Incident{Pod: run.Pod, What: what, From: run.To, To: run.To, By: run.Instance,
			Text: fmt.Sprintf("the process %s (run %s, version %s) %s", run.Instance, run.Run, run.Version, text)}
		if isAgain {
			one.To = again
			one.Text += "; started again at " + stamp(again)
		} else if run.State == RunMissing {
			one.To, one.Open = r.To, true
		}
		all = append(all, one)
	}
	return all
}
