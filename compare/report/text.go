package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// WriteJSON writes the report as one JSON object, which ReadJSON reads again.
func (r Report) WriteJSON(w io.Writer) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("report as JSON: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(from io.Reader) (Report, error) {
	var r Report
	if err := json.NewDecoder(from).Decode(&r); err != nil {
		return Report{}, fmt.Errorf("not a report: %w", err)
	}
	if r.Schema != Schema || r.Verdict == "" {
		return Report{}, fmt.Errorf("not a report of schema %d: it says %d and verdict %q; make it again with this version", Schema, r.Schema, r.Verdict)
	}
	return r, nil
}

// WriteText writes the report for a terminal: the first screen is enough for
// the decision.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	line, why := r.headline()
	fmt.Fprintf(&b, "verdict    %s\n           %s\n", strings.ToUpper(string(r.Verdict)), line)
	for _, reason := range why {
		fmt.Fprintf(&b, "           - %s\n", printable(reason))
	}
	for _, line := range r.header() {
		fmt.Fprintf(&b, "%-10s %s\n", line[0], printable(line[1]))
	}
	fmt.Fprintf(&b, "digest     %s%s\n", r.Digest, r.Source.of())
	r.gateTable().text(&b)
	r.listText(&b, "not exercised: this report says nothing about", r.NotExercised)
	r.listText(&b, "notes", r.Notes)
	for _, t := range r.tables() {
		t.text(&b)
	}
	r.samplesText(&b)
	how, commands := r.signing()
	fmt.Fprintf(&b, "\nDecision\n  %s\n", how)
	for _, command := range commands {
		fmt.Fprintf(&b, "  %s\n", printable(command))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) listText(b *strings.Builder, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, item := range items {
		fmt.Fprintf(b, "  - %s\n", printable(item))
	}
}

func (t table) text(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s\n", t.Title)
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "  "+strings.Join(t.Header, "\t"))
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = printable(c)
		}
		fmt.Fprintln(w, "  "+strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	_ = w.Flush() // a strings.Builder takes everything
}

func (r Report) samplesText(b *strings.Builder) {
	first := true
	for _, k := range r.Divergences.Kinds {
		for _, e := range k.Samples {
			if first {
				b.WriteString("\nSamples (everything that is known of each is in the JSON)\n")
				first = false
			}
			fmt.Fprintf(b, "  %s, %s, %d units: %s %s of %s, shop %d, epoch %d, on %s at %s\n",
				e.Kind, e.Direction, e.Units, e.Stage, printable(e.Op), printable(e.Token), e.Shop, e.Epoch, printable(e.Instance), stamp(e.At))
			for _, fact := range r.facts(e) {
				fmt.Fprintf(b, "    %-9s %s\n", fact[0], printable(fact[1]))
			}
		}
	}
}

// printable keeps what comes from outside from moving the cursor, breaking a
// line or turning the text around.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

// printableLines does the same and keeps lines and their indentation.
func printableLines(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\t", "    "), "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
