package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"holdover"
	"holdover/compare"
)

// Comparison is what changed from one report to another.
type Comparison struct {
	Before   Summary        `json:"before"`
	After    Summary        `json:"after"`
	SameData bool           `json:"same_data"` // the digests are equal
	Gates    []GateChange   `json:"gates"`     // those with another verdict
	Rates    []RateChange   `json:"rates"`     // of kinds in either
	Coverage []ShareChange  `json:"coverage"`  // overall and by stage and operation
	Strata   []StrataChange `json:"strata"`    // seen in one of them only
	Slower   []Shift        `json:"slower"`    // mysql minus redis, beyond what the limits of after allow
	Faster   []Shift        `json:"faster"`
}

// Summary names one of the two reports.
type Summary struct {
	Verdict  Verdict  `json:"verdict"`
	Pods     []string `json:"pods"`
	Period   string   `json:"period"`
	Versions []string `json:"versions"`
	Configs  []string `json:"configs"`
	Digest   string   `json:"digest"`
}

// GateChange is a gate with another verdict. A gate that one report does not
// have is "absent" there.
type GateChange struct {
	Name   string  `json:"name"`
	Before Verdict `json:"before"`
	After  Verdict `json:"after"`
	Reason string  `json:"reason"` // of the newer one that has it
}

const absentGate Verdict = "absent"

// RateChange is the rate of one kind in both.
type RateChange struct {
	Kind   string   `json:"kind"`
	Before Estimate `json:"before"`
	After  Estimate `json:"after"`
	Moved  string   `json:"moved"` // higher, lower, or empty when the intervals overlap
}

// ShareChange is a coverage in both.
type ShareChange struct {
	Of     string  `json:"of"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
	New    bool    `json:"new"`  // it did not occur before, whose share is no share
	Gone   bool    `json:"gone"` // it occurs no longer
}

// StrataChange is a stratum that only one of them has seen.
type StrataChange struct {
	Name string `json:"name"`
	Now  bool   `json:"now"` // seen in after only
}

// Diff says what changed from a to b. Reports of two sources are refused: files lack
// what MySQL keeps, and every gate of it would be a change.
func Diff(a, b Report) (Comparison, error) {
	if a.Source != "" && b.Source != "" && a.Source != b.Source {
		return Comparison{}, &holdover.InvalidError{Field: "reports", Value: fmt.Sprintf("of %s and of %s", a.Source, b.Source),
			Problem: "can't be compared: make both from MySQL, or both with --events"}
	}
	c := Comparison{
		Before: summary(a), After: summary(b), SameData: a.Digest == b.Digest,
		Gates: []GateChange{}, Rates: []RateChange{}, Coverage: []ShareChange{}, Strata: []StrataChange{}, Slower: []Shift{}, Faster: []Shift{},
	}
	c.gates(a, b)
	c.rates(a, b)
	c.coverage(a, b)
	for _, name := range compare.StratumNames() {
		was, is := !slices.Contains(a.Coverage.NeverSeen, name), !slices.Contains(b.Coverage.NeverSeen, name)
		if was != is {
			c.Strata = append(c.Strata, StrataChange{Name: name, Now: is})
		}
	}
	for _, now := range b.Latency.Operations {
		before := row(a.Latency.Operations, now)
		if before == nil {
			continue
		}
		slow, err := slower(*before, now, nil, b.Limits)
		if err != nil {
			return Comparison{}, err
		}
		c.Slower = append(c.Slower, shiftsOf(now, *before, slow)...)
		fast, err := slower(now, *before, nil, b.Limits)
		if err != nil {
			return Comparison{}, err
		}
		for _, s := range shiftsOf(*before, now, fast) {
			s.Before, s.After = s.After, s.Before
			c.Faster = append(c.Faster, s)
		}
	}
	return c, nil
}

func summary(r Report) Summary {
	return Summary{
		Verdict: r.Verdict, Pods: r.Pods, Versions: r.Versions, Configs: r.Configs, Digest: r.Digest,
		Period: stamp(r.From) + " to " + stamp(r.To),
	}
}

func (c *Comparison) gates(a, b Report) {
	of := func(gates []Gate, name string) (Verdict, string) {
		if i := slices.IndexFunc(gates, func(g Gate) bool { return g.Name == name }); i >= 0 {
			return gates[i].Verdict, gates[i].Reason
		}
		return absentGate, ""
	}
	for _, g := range a.Gates {
		if after, reason := of(b.Gates, g.Name); after != g.Verdict {
			if after == absentGate {
				reason = g.Reason
			}
			c.Gates = append(c.Gates, GateChange{Name: g.Name, Before: g.Verdict, After: after, Reason: reason})
		}
	}
	for _, g := range b.Gates {
		if before, _ := of(a.Gates, g.Name); before == absentGate {
			c.Gates = append(c.Gates, GateChange{Name: g.Name, Before: absentGate, After: g.Verdict, Reason: g.Reason})
		}
	}
}

func (c *Comparison) rates(a, b Report) {
	of := func(r Report, kind string) (Estimate, bool) {
		if kind == compare.KindUnexplained.String() {
			return r.Divergences.UnexplainedRate, true
		}
		if i := slices.IndexFunc(r.Divergences.Kinds, func(k KindCount) bool { return k.Kind == kind }); i >= 0 {
			return r.Divergences.Kinds[i].Rate, true
		}
		n := r.Divergences.Compared
		if kind == compare.KindNotComparable.String() {
			n = r.Divergences.Eligible
		}
		return estimate(0, n, r.Limits.Alpha), false
	}
	for _, kind := range compare.Kinds() {
		before, had := of(a, kind.String())
		after, has := of(b, kind.String())
		if !had && !has {
			continue
		}
		change := RateChange{Kind: kind.String(), Before: before, After: after}
		switch {
		case after.Low > before.High:
			change.Moved = "higher"
		case after.High < before.Low:
			change.Moved = "lower"
		}
		c.Rates = append(c.Rates, change)
	}
}

func (c *Comparison) coverage(a, b Report) {
	c.Coverage = append(c.Coverage, ShareChange{Of: "all", Before: a.Coverage.Share, After: b.Coverage.Share})
	of := func(r Report, o OperationCoverage) (share float64, none bool) {
		for _, x := range r.Coverage.Operations {
			if x.Stage == o.Stage && x.Op == o.Op {
				return x.Share, false
			}
		}
		return 0, true
	}
	for i, o := range slices.Concat(a.Coverage.Operations, b.Coverage.Operations) {
		name := stageOp(o.Stage, o.Op, false)
		if i >= len(a.Coverage.Operations) && slices.ContainsFunc(c.Coverage, func(s ShareChange) bool { return s.Of == name }) {
			continue
		}
		change := ShareChange{Of: name}
		change.Before, change.New = of(a, o)
		change.After, change.Gone = of(b, o)
		c.Coverage = append(c.Coverage, change)
	}
}

// WriteJSON writes the comparison as one JSON object.
func (c Comparison) WriteJSON(w io.Writer) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("comparison of reports as JSON: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// WriteText writes the comparison for a terminal.
func (c Comparison) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "verdict    %s, was %s\n", c.After.Verdict, c.Before.Verdict)
	for _, x := range []struct {
		name string
		s    Summary
	}{{"before", c.Before}, {"after", c.After}} {
		fmt.Fprintf(&b, "%-10s %s; pods %s; versions %s; configuration %s; digest %s\n", x.name, x.s.Period, printable(strings.Join(x.s.Pods, ", ")),
			printable(strings.Join(x.s.Versions, ", ")), printable(strings.Join(x.s.Configs, ", ")), x.s.Digest)
	}
	if c.SameData {
		b.WriteString("both are of the same data\n")
	}
	gates := head("Gates with another verdict", "gate", "before", "after", "reason")
	for _, g := range c.Gates {
		gates.add(g.Name, g.Before, g.After, g.Reason)
	}
	rates := head("Rates with their bounds", "kind", "before", "after", "moved")
	for _, r := range c.Rates {
		rates.add(r.Kind, between(r.Before), between(r.After), r.Moved)
	}
	coverage := head("Coverage", "of", "before", "after")
	for _, s := range c.Coverage {
		before, after := percent(s.Before), percent(s.After)
		if s.New {
			before = "new"
		}
		if s.Gone {
			after = "did not occur"
		}
		coverage.add(s.Of, before, after)
	}
	seen := head("Kinds of calls seen in one of them only", "stratum", "seen")
	for _, s := range c.Strata {
		when := "before"
		if s.Now {
			when = "after"
		}
		seen.add(s.Name, when)
	}
	tables := []table{gates, rates, coverage, seen, shiftsTable("Slower (mysql - redis)", c.Slower), shiftsTable("Faster (mysql - redis)", c.Faster)}
	for _, t := range tables {
		if len(t.Rows) > 0 {
			t.text(&b)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
