package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdover"
	"holdover/compare"
)

// table is one part of a report in columns: the text, the Markdown and the HTML
// show the same ones.
type table struct {
	Title  string
	Header []string
	Rows   [][]string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

func head(title string, header ...string) table { return table{Title: title, Header: header} }

// tables are those that have rows, in the order of a report.
func (r Report) tables() []table {
	all := []table{
		r.incidentTable(), r.kindTable(), r.shiftTable(), r.latencyTable(), r.noiseTable(), r.connectionTable(), r.operationTable(), r.podTable(), r.thinHours(), r.outcomeTable(),
		r.stratumTable(), r.verificationTable(), r.plantedTable(), r.timelineTable(), r.instanceTable(), r.signOffTable(),
	}
	return slices.DeleteFunc(all, func(t table) bool { return len(t.Rows) == 0 })
}

func (r Report) gateTable() table {
	t := head("Gates", "gate", "verdict", "value", "limit", "n", "reason")
	for _, g := range r.Gates {
		t.add(g.Name, g.word(), g.figure(g.Value), g.limit(), g.N, g.Reason)
	}
	return t
}

// between writes a rate with its bounds.
func between(e Estimate) string {
	return fmt.Sprintf("%s (%s to %s)", percent(e.Rate), percent(e.Low), percent(e.High))
}

const kindTitle = "Divergences by kind"

func (r Report) kindTable() table {
	t := head(kindTitle, "kind", "direction", "count", "rate and its bounds", "units", "budget")
	for _, k := range r.Divergences.Kinds {
		budget := "-"
		if k.Budget > 0 {
			budget = fmt.Sprint(k.Budget)
		}
		for i, d := range k.Directions {
			of := r.Divergences.Compared
			if k.Kind == compare.KindNotComparable.String() {
				of = r.Divergences.Eligible
			}
			if i > 0 {
				budget = "″"
			}
			t.add(k.Kind, d.Direction, d.Count, between(estimate(d.Count, of, r.Limits.Alpha)), d.Units, budget)
		}
	}
	return t
}

func (r Report) operationTable() table {
	t := head("Coverage by operation", "stage", "operation", "eligible", "compared", "coverage", "differed")
	for _, o := range r.Coverage.Operations {
		t.add(o.Stage, o.Op, o.Eligible, o.Compared, percent(o.Share), o.Differed)
	}
	return t
}

func (r Report) podTable() table {
	t := head("Coverage by pod", "pod", "eligible", "bypassed", "compared", "coverage")
	for _, p := range r.Coverage.Pods {
		t.add(p.Pod, p.Eligible, p.Bypassed, p.Compared, percent(p.Share))
	}
	return t
}

// thinHours are the hours in which too little was compared: the HTML has a map
// of all of them.
func (r Report) thinHours() table {
	t := head("Hours with too little coverage", "hour", "operation", "eligible", "compared", "coverage")
	for _, h := range r.Coverage.Hours {
		if h.Share < r.Limits.MinCoverage {
			t.add(h.Hour.Format("2006-01-02 15:00Z"), h.Op, h.Eligible, h.Compared, percent(h.Share))
		}
	}
	return t
}

func (r Report) outcomeTable() table {
	t := head("Answers", "operation", "redis", "mysql", "count")
	for _, o := range r.Coverage.Outcomes {
		t.add(o.Op, o.Redis, o.MySQL, o.Count)
	}
	return t
}

func (r Report) stratumTable() table {
	t := head("Kinds of calls", "stratum", "demanded", "eligible", "compared", "differed", "unexplained", "rate and its bounds")
	for _, s := range r.Divergences.Strata {
		t.add(s.Name, yes(s.Demanded), s.Eligible, s.Compared, s.Differed, s.Unexplained, between(s.Rate))
	}
	return t
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}

func (r Report) latencyTable() table {
	t := head("Times, with their intervals", "operation", "pairs", "store", "p50", "p90", "p99", "p99.9", "max")
	for _, l := range r.Latency.Operations {
		name, pairs := stageOp(l.Stage, l.Op, l.Probe), fmt.Sprint(l.Pairs)
		for _, s := range []struct {
			of   string
			from Series
		}{{"redis", l.Redis}, {"mysql", l.MySQL}, {"mysql - redis", l.Delta}} {
			t.add(name, pairs, s.of, quantile(s.from.P50), quantile(s.from.P90), quantile(s.from.P99), quantile(s.from.P999), micros(s.from.Max))
			name, pairs = "", ""
		}
	}
	return t
}

func (r Report) shiftTable() table {
	return shiftsTable("Slower than the baseline (mysql - redis)", r.Latency.Shifts)
}

func shiftsTable(title string, shifts []Shift) table {
	t := head(title, "operation", "quantile", "before", "after", "allowed growth")
	for _, s := range shifts {
		name := s.Quantile
		if s.Tail {
			name += " (the tail alone)"
		}
		t.add(stageOp(s.Stage, s.Op, s.Probe), name, micros(s.Before), micros(s.After), micros(s.Allowed))
	}
	return t
}

func (r Report) connectionTable() table {
	t := head("Connections: how long they were taken", "store", "for", "times", "p50", "p90", "p99", "p99.9", "max")
	for _, c := range r.Latency.Connections {
		tag := cmp.Or(c.Tag, "untagged")
		t.add(c.Store, tag, c.Holds, quantile(c.Held.P50), quantile(c.Held.P90), quantile(c.Held.P99), quantile(c.Held.P999), micros(c.Held.Max))
	}
	return t
}

func (r Report) verificationTable() table {
	t := head("Newest complete verification", "pod", "at", "clean", "differences", "unsettled", "by", "in the period", "summary")
	for _, v := range r.Verification {
		t.add(v.Pod, stamp(v.At), yes(v.Clean), v.Differences, v.Unsettled, v.By, fmt.Sprintf("%d, %d clean", v.Runs, v.Cleaned), v.Summary)
	}
	return t
}

func (r Report) plantedTable() table {
	t := head("Planted divergences", "kind", "planted", "caught", "taken for")
	for _, k := range r.SelfTest.ByKind {
		var seen []string
		for name, n := range k.Seen {
			seen = append(seen, fmt.Sprintf("%s %d", name, n))
		}
		slices.Sort(seen)
		t.add(k.Kind, k.Planted, k.Caught, strings.Join(append(seen, "")[:max(len(seen), 1)], ", "))
	}
	return t
}

func (r Report) timelineTable() table {
	t := head("Stages", "pod", "at", "epoch", "stage", "latched", "by", "reason")
	for _, c := range r.Timeline {
		at := stamp(c.At)
		if c.Before {
			at += " (before the period)"
		}
		t.add(c.Pod, at, c.Epoch, c.Stage, yes(c.Latched), c.By, c.Reason)
	}
	return t
}

func (r Report) incidentTable() table {
	t := head("Incidents", "pod", "what", "from", "for", "by", "text")
	for _, i := range r.Incidents {
		length := "-"
		if i.Open || i.To.After(i.From) {
			length = seconds(i.To.Sub(i.From).Seconds())
			if i.Open {
				length += ", and it lasts"
			}
		}
		t.add(i.Pod, i.What, stamp(i.From), length, i.By, i.Text)
	}
	return t
}

func (r Report) instanceTable() table {
	t := head("Instances", "pod", "instance", "run", "state", "from", "to", "missing", "version", "configuration")
	for _, i := range r.Instances {
		t.add(i.Pod, i.Instance, i.Run, i.State, stamp(i.From), stamp(i.To), seconds(i.Missing), i.Version, i.Config)
	}
	return t
}

func (r Report) signOffTable() table {
	t := head("Signed", "at", "decision", "by", "pod", "stage", "verdict then", "this data", "note")
	for _, s := range r.SignOffs {
		same := "yes"
		switch {
		case s.SameData:
		case s.From.Equal(r.From) && s.To.Equal(r.To):
			same = "no: of this period, and the data was another: " + s.Digest
		default:
			same = fmt.Sprintf("no: of %s to %s", stamp(s.From), stamp(s.To))
		}
		t.add(stamp(s.At), s.Decision, s.As, s.Pod, s.Stage, s.Verdict, same, s.Note)
	}
	return t
}

// header is what stands above the gates.
func (r Report) header() [][2]string {
	stages := []string{}
	for s := holdover.StageRedis; s <= holdover.StageMySQLOnly; s++ {
		if slices.Contains(r.Stages, s) || slices.ContainsFunc(r.Timeline, func(c Change) bool { return c.Stage == s }) {
			stages = append(stages, s.String())
		}
	}
	none := func(names []string) string {
		if len(names) == 0 {
			return "none"
		}
		return strings.Join(names, ", ")
	}
	names := []string{}
	for _, i := range r.Instances {
		if name := i.Pod + "/" + i.Instance; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > 8 {
		names = append(names[:8], fmt.Sprintf("%d more", len(names)-8))
	}
	what := map[string]int{}
	for _, i := range r.Incidents {
		what[i.What]++
	}
	incidents := fmt.Sprintf("kills %d, drills %d, verifications with differences %d", what[WhatKill], what[WhatDrill], what[WhatVerification])
	if r.Source == SourceFiles {
		incidents = "kills, drills, verifications and repairs: not in event files"
	}
	for _, name := range slices.Sorted(maps.Keys(what)) {
		if name != WhatKill && name != WhatDrill && name != WhatVerification {
			incidents += fmt.Sprintf(", %s %d", name, what[name])
		}
	}
	lines := [][2]string{
		{"pods", none(r.Pods)},
		{"period", r.period()},
		{"stages", none(stages)},
		{"instances", fmt.Sprintf("%s (%d runs)", none(names), len(r.Instances))},
		{"incidents", incidents},
		{"versions", fmt.Sprintf("%s; configuration %s", none(r.Versions), none(r.Configs))},
		{"compared", fmt.Sprintf("%d of %d operations (%s); %d differed, %d unexplained", r.Coverage.Compared, r.Coverage.Eligible+r.Coverage.Bypassed,
			percent(r.Coverage.Share), r.Divergences.Differed, r.Divergences.Unexplained)},
	}
	if r.Latency.Baseline != "" {
		lines = append(lines, [2]string{"baseline", fmt.Sprintf("the report with digest %.12s", r.Latency.Baseline)})
	}
	if r.Noise != nil {
		lines = append(lines, [2]string{"noise", r.Noise.String()})
	}
	return lines
}

// says is one store's answer in a sample.
func says(s compare.Side) string {
	text := s.Outcome
	if s.State != 0 {
		text += " (" + s.State.String() + ")"
	}
	if s.Probe {
		text += " when probed"
	}
	return text
}
