package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"holdover"
	"holdover/compare/stats"
)

// latency compares the paired deltas with those of a baseline. The delta is
// used because what slows both stores, as a busy machine does, is in both times
// of a pair. What is allowed is a share of MySQL's own time: a share of a delta,
// which may be near zero, is nothing.
func (r *Report) latency(baseline Baseline, noise *Baseline) (Gate, error) {
	g := Gate{Name: "latency", Unit: unitCount, Verdict: Pass}
	r.Latency.Baseline = baseline.Digest
	judged := 0
	var unknown []string
	for _, now := range r.Latency.Operations {
		before := row(baseline.Rows, now)
		if now.Pairs >= r.Limits.MinCompared && (before == nil || before.Pairs < r.Limits.MinCompared) {
			unknown = append(unknown, stageOp(now.Stage, now.Op, now.Probe))
		}
		if before == nil {
			continue
		}
		var quiet *Latency
		if noise != nil {
			quiet = row(noise.Rows, now)
			if quiet == nil { // a calibration may have run in another stage
				quiet = rowOf(noise.Rows, func(l Latency) bool { return l.Op == now.Op })
			}
		}
		levels, err := slower(*before, now, quiet, r.Limits)
		if err != nil {
			return Gate{}, err
		}
		moved := shiftsOf(now, *before, levels)
		r.Latency.Shifts = append(r.Latency.Shifts, moved...)
		if slices.ContainsFunc(levels, func(l stats.Level) bool { return l.Judged && l.Q >= 0.9 }) {
			judged++
			g.N += now.Pairs
		}
	}
	g.Value = float64(len(r.Latency.Shifts))
	if old := r.To.Sub(baseline.To); !baseline.To.IsZero() && old > r.Limits.BaselineWithin {
		r.Notes = append(r.Notes, fmt.Sprintf("the baseline's period ended at %s, %s before this one: what was usual then may not be so now", stamp(baseline.To), long(old)))
	}
	switch {
	case len(baseline.Pods) > 0 && !slices.Equal(baseline.Pods, r.Pods): // whose times are others', slower or faster
		g.Verdict, g.Value, r.Latency.Shifts = NoVerdict, 0, []Shift{}
		g.Reason = fmt.Sprintf("the baseline is of %s, and this report of %s: give an earlier report of the same", strings.Join(baseline.Pods, ", "), strings.Join(r.Pods, ", "))
	case len(r.Latency.Shifts) > 0:
		g.Verdict = Fail
		var parts []string
		for _, s := range r.Latency.Shifts {
			what := ""
			if s.Tail {
				what = " (the tail alone)"
			}
			parts = append(parts, fmt.Sprintf("%s %s %s %s%s: %s over redis, %s before", s.Stage, s.Op, asked(s.Probe), s.Quantile, what, micros(s.After), micros(s.Before)))
		}
		g.Reason = "mysql became slower: " + strings.Join(parts, "; ")
	case judged > 0 && len(unknown) > 0:
		g.Verdict, g.Reason = NoVerdict, fmt.Sprintf("the baseline has fewer than %d pairs of times, or none, of %s: give one of a period in which that occurred", r.Limits.MinCompared, strings.Join(unknown, ", "))
	case judged == 0:
		g.Verdict, g.Reason = NoVerdict, "the period and the baseline have no operation in common with times enough to compare"
	default:
		g.Reason = fmt.Sprintf("in %d operations no quantile is slower than the baseline by more than %s of mysql's time there", judged, percent(r.Limits.SlowerBy))
	}
	return g, nil
}

// LatencyNotJudged is a line for beside the verdict of a report without a baseline:
// whether MySQL is fast enough is no part of that. Empty: latency is a gate.
func (r Report) LatencyNotJudged() string {
	if slices.ContainsFunc(r.Gates, func(g Gate) bool { return g.Name == "latency" }) {
		return ""
	}
	text, most := "latency: not judged, no --baseline", 0.0
	for _, l := range r.Latency.Operations {
		if l.Probe || l.Pairs < r.Limits.MinOperation || l.Redis.P50.Value <= 0 {
			continue
		}
		if times := l.MySQL.P50.Value / l.Redis.P50.Value; times > most {
			most = times
			text = fmt.Sprintf("latency: not judged, no --baseline; MySQL's p50 was up to %.2g times Redis' (%s: %s to %s)", times,
				stageOp(l.Stage, l.Op, false), micros(l.MySQL.P50.Value), micros(l.Redis.P50.Value))
		}
	}
	return text
}

func row(rows []Latency, like Latency) *Latency {
	return rowOf(rows, func(l Latency) bool { return l.Stage == like.Stage && l.Op == like.Op && l.Probe == like.Probe })
}

func rowOf(rows []Latency, fits func(Latency) bool) *Latency {
	if i := slices.IndexFunc(rows, fits); i >= 0 {
		return &rows[i]
	}
	return nil
}

// slower compares the deltas of one operation at each quantile.
func slower(before, now Latency, noise *Latency, limits Limits) ([]stats.Level, error) {
	var d [4]stats.Dist
	for i, s := range []Series{before.Delta, now.Delta, before.MySQL} {
		var err error
		if d[i], err = dist(s); err != nil {
			return nil, err
		}
	}
	if noise != nil {
		var err error
		if d[3], err = dist(noise.Delta); err != nil {
			return nil, err
		}
	}
	allowed := func(q float64) float64 {
		least := float64(limits.SlowerByAtLeast) / float64(time.Microsecond)
		if noise != nil { // two equal stores, on either side
			least = max(least, math.Abs(d[3].Quantile(q)), math.Abs(d[3].Quantile(1-q)))
		}
		return max(least, limits.SlowerBy*d[2].Quantile(q))
	}
	return stats.Shift(d[0], d[1], allowed, limits.Alpha), nil
}

// shiftsOf names what moved. Quantiles of the grid over the tail are named only
// when none of the four that a report shows moved there: one reason is enough.
func shiftsOf(now, before Latency, levels []stats.Level) (out []Shift) {
	body, shown := false, false
	for _, l := range levels {
		body = body || l.Moved && l.Q < 0.95
		shown = shown || l.Moved && !l.Tail && l.Q >= 0.99
	}
	deltaNow, _ := dist(now.Delta) // slower has shown that they can be read
	deltaBefore, _ := dist(before.Delta)
	for _, l := range levels {
		if !l.Moved || l.Tail && shown {
			continue
		}
		out = append(out, Shift{
			Stage: now.Stage, Op: now.Op, Probe: now.Probe, Quantile: l.Name, Tail: !body,
			Before: deltaBefore.Quantile(l.Q), After: deltaNow.Quantile(l.Q), Allowed: l.Tolerance,
		})
	}
	return out
}

// stageOp names a row for a person.
func stageOp(stage holdover.Stage, op string, probe bool) string {
	if probe {
		return fmt.Sprintf("%s %s (probe)", stage, op)
	}
	return fmt.Sprintf("%s %s", stage, op)
}
