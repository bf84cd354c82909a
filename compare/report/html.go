package report

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"

	"holdover/compare"
)

//go:embed report.html.tmpl
var pageText string

// page is what the template shows: texts, and drawings as numbers. Nothing is
// marked as safe, so that the template escapes everything.
type page struct {
	Report
	Headline, DigestOf  string
	How                 string   // a decision is recorded
	Commands            []string // that record it
	Why                 []string // reasons of what is not ok
	Head                [][2]string
	Gates               []gateRow
	Lanes               *lanes
	Map                 *hourMap
	Plots               []plot
	Rates               []rateBar
	Differences, Tables []table
	Kinds               []sampleGroup
}

type gateRow struct {
	Gate
	Shown, Limit, Word string
}

type sampleGroup struct {
	KindCount
	Shown []sample
}

type sample struct {
	compare.Event
	At          string
	Facts       [][2]string
	Everything  string // the event as JSON
	Differences string
}

// WriteHTML writes the report as one page that needs nothing else: no network,
// no script.
func (r Report) WriteHTML(w io.Writer) error {
	p := page{Report: r, Head: r.header(), Lanes: r.drawLanes(), Map: r.drawHours(), Plots: r.drawPlots(), Rates: r.drawRates()}
	for _, t := range r.tables() {
		if t.Title == kindTitle {
			p.Differences = append(p.Differences, t) // its samples follow it
		} else {
			p.Tables = append(p.Tables, t)
		}
	}
	p.Headline, p.Why = r.headline()
	p.How, p.Commands = r.signing()
	p.DigestOf = r.Source.of()
	for _, g := range r.Gates {
		p.Gates = append(p.Gates, gateRow{Gate: g, Shown: g.figure(g.Value), Limit: g.limit(), Word: g.word()})
	}
	for _, k := range r.Divergences.Kinds {
		group := sampleGroup{KindCount: k}
		for _, e := range k.Samples {
			text, err := json.MarshalIndent(e, "", "  ")
			if err != nil {
				return fmt.Errorf("sample %d of run %s: %w", e.Seq, e.Run, err)
			}
			group.Shown = append(group.Shown, sample{Event: e, At: stamp(e.At), Facts: r.facts(e), Everything: printableLines(string(text)), Differences: printableLines(e.Diff)})
		}
		p.Kinds = append(p.Kinds, group)
	}
	t, err := template.New("report").Funcs(template.FuncMap{"printable": printable}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("template of a report: %w", err)
	}
	var b bytes.Buffer // half a page is worse than none
	if err := t.Execute(&b, p); err != nil {
		return fmt.Errorf("report as HTML: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// headline is the verdict in a sentence, and the reasons for it.
func (r Report) headline() (line string, why []string) {
	for _, v := range []Verdict{Fail, NoVerdict} {
		for _, g := range r.Gates {
			if g.Verdict == v && (!g.Waived || v == Fail) {
				why = append(why, fmt.Sprintf("%s: %s", g.Name, g.Reason))
			}
		}
	}
	switch {
	case r.Verdict == Fail:
		return "Fail: don't go on; " + r.Tally(), why
	case r.Verdict == NoVerdict && len(why) == 0:
		return "No verdict: every gate was waived, so that nothing was demanded", why
	case r.Verdict == NoVerdict:
		return "No verdict: too little was shown to say go or no; " + r.Tally(), why
	}
	if not := r.LatencyNotJudged(); not != "" {
		why = append(why, not)
	}
	if r.Waived() != "" {
		return "Pass: every gate that was demanded is met; " + r.Tally(), why
	}
	return fmt.Sprintf("Pass: all %d gates are met", len(r.Gates)), why
}
