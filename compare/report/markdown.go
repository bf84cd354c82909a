package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// WriteMarkdown writes the report for an issue or a pull request.
func (r Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	headline, why := r.headline()
	fmt.Fprintf(&b, "# holdover report: %s\n\n%s\n\n", r.Verdict, headline)
	for _, reason := range why {
		fmt.Fprintf(&b, "- %s\n", marked(reason))
	}
	if len(why) > 0 {
		b.WriteString("\n")
	}
	for _, line := range r.header() {
		fmt.Fprintf(&b, "- **%s**: %s\n", line[0], marked(line[1]))
	}
	fmt.Fprintf(&b, "- **digest**: %s%s\n", r.Digest, r.Source.of())
	r.gateTable().markdown(&b)
	listMarkdown(&b, "Not exercised: this report says nothing about", r.NotExercised)
	listMarkdown(&b, "Notes", r.Notes)
	for _, t := range r.tables() {
		t.markdown(&b)
	}
	if err := r.samplesMarkdown(&b); err != nil {
		return err
	}
	b.WriteString("\n## Decision\n\n| | |\n| --- | --- |\n| go / no-go | |\n| name | |\n| date | |\n| note | |\n")
	how, commands := r.signing()
	fmt.Fprintf(&b, "\n%s\n", how)
	for i, command := range commands {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "    %s\n", printable(command))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func listMarkdown(b *strings.Builder, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, item := range items {
		fmt.Fprintf(b, "- %s\n", marked(item))
	}
}

func (t table) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n| %s |\n|%s\n", t.Title, strings.Join(t.Header, " | "), strings.Repeat(" --- |", len(t.Header)))
	for _, row := range t.Rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = marked(c)
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
}

func (r Report) samplesMarkdown(b *strings.Builder) error {
	for _, k := range r.Divergences.Kinds {
		for i, e := range k.Samples {
			if i == 0 {
				fmt.Fprintf(b, "\n## Samples of %s\n", k.Kind)
			}
			text, err := json.MarshalIndent(e, "    ", "  ") // an indented block ends at nothing that a value can hold
			if err != nil {
				return fmt.Errorf("sample %d of run %s: %w", e.Seq, e.Run, err)
			}
			fmt.Fprintf(b, "\n**%s %s, %s, %d units**, shop %d, epoch %d, %s\n\n", marked(e.Stage.String()), marked(e.Op), e.Direction, e.Units, e.Shop, e.Epoch, stamp(e.At))
			for _, fact := range r.facts(e) {
				fmt.Fprintf(b, "- %s: %s\n", fact[0], marked(fact[1]))
			}
			fmt.Fprintf(b, "\nEverything that is known of it:\n\n    %s\n", printableLines(string(text)))
		}
	}
	return nil
}

// marked writes a text so that nothing in it is markup: it comes from outside.
func marked(s string) string {
	var b strings.Builder
	for _, c := range printable(s) {
		if strings.ContainsRune("\\`*_{}[]<>#!|~&$", c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}
