package compare

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the report for a person.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "pods      %s\n", strings.Join(r.Pods, ", "))
	fmt.Fprintf(&b, "instances %s (%d runs)\n", strings.Join(r.Instances, ", "), len(r.Runs))
	if r.From.IsZero() {
		b.WriteString("period    nothing observed\n")
	} else {
		fmt.Fprintf(&b, "period    %s to %s (%s)\n", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339), r.To.Sub(r.From).Round(time.Second))
	}
	stages := make([]string, len(r.Stages))
	for i, s := range r.Stages {
		stages[i] = s.String()
	}
	fmt.Fprintf(&b, "stages    %s\n", strings.Join(stages, ", "))
	fmt.Fprintf(&b, "verdict   %s\n", r.Verdict)
	for _, reason := range r.Reasons {
		fmt.Fprintf(&b, "          - %s\n", reason)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note      %s\n", note)
	}
	fmt.Fprintf(&b, "coverage  %s of eligible observations were compared (%d of %d)\n", percent(r.Compared, r.Eligible), r.Compared, r.Eligible)

	table(&b, "kind\tdirection\tcount\trate\tunits", len(r.Kinds), func(i int) []any {
		t := r.Kinds[i]
		rate := percent(t.Count, r.Compared)
		switch t.Kind {
		case KindNotComparable:
			rate = percent(t.Count, r.Eligible)
		case KindForeignWrite: // from a verification: not an observation
			rate = "-"
		}
		return []any{t.Kind, t.Direction, t.Count, rate, t.Units}
	})
	table(&b, "stage\toperation\teligible\tcompared\tcoverage\tdiffered", len(r.Operations), func(i int) []any {
		o := r.Operations[i]
		return []any{o.Stage, o.Op, o.Eligible, o.Compared, percent(o.Compared, o.Eligible), o.Differed}
	})
	table(&b, "not comparable: redis\tmysql\tcount", len(r.NotComparable), func(i int) []any {
		u := r.NotComparable[i]
		return []any{u.Redis, u.MySQL, u.Count}
	})
	table(&b, "times\tpairs\tstore\tp50\tp90\tp99\tp99.9\tmax", 3*len(r.Latency), func(i int) []any {
		l := r.Latency[i/3]
		asked := "vote"
		if l.Probe {
			asked = "probe"
		}
		name, q := "redis", l.Redis
		switch i % 3 {
		case 1:
			name, q = "mysql", l.MySQL
		case 2:
			name, q = "mysql - redis", l.Delta
		}
		head, pairs := "", ""
		if i%3 == 0 {
			head, pairs = fmt.Sprintf("%s %s %s", l.Stage, l.Op, asked), fmt.Sprint(l.Pairs)
		}
		return []any{head, pairs, name, micros(q.P50), micros(q.P90), micros(q.P99), micros(q.P999), micros(q.Max)}
	})
	r.writeVerified(&b)
	r.writeSamples(&b)
	fmt.Fprintf(&b, "\nevents dropped %d, events not written %d, panics %d, ignored %d, without a time %d\n",
		r.EventsDropped, r.EventsFailed, r.Panics, r.Ignored, r.Untimed)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) writeVerified(b *strings.Builder) {
	if r.Verified.Runs == 0 {
		b.WriteString("\nverification: none in this period\n")
		return
	}
	fmt.Fprintf(b, "\nverification: %d in this period, %d clean; the newest of each pod:\n", r.Verified.Runs, r.Verified.Clean)
	for _, v := range r.Verified.Last {
		fmt.Fprintf(b, "  pod %s at %s: %s\n", v.Pod, v.Started.Format(time.RFC3339), v.Summary())
		for _, d := range v.Differences {
			fmt.Fprintf(b, "    %s\n", d)
		}
	}
}

func (r Report) writeSamples(b *strings.Builder) {
	first := true
	for _, e := range r.Samples {
		if e.Kind == KindMatch {
			continue // kept in the JSON: what a match looks like is no news here
		}
		if first {
			b.WriteString("\nsamples:\n")
			first = false
		}
		fmt.Fprintf(b, "  %s, %s, %d units: %s %s of %s, shop %d, epoch %d, at %s: redis %s, mysql %s: %s\n",
			e.Kind, e.Direction, e.Units, e.Stage, e.Op, e.Token, e.Shop, e.Epoch, e.At.Format(time.RFC3339Nano),
			said(e.Redis), said(e.MySQL), e.Why)
	}
}

func said(s Side) string {
	text := s.Outcome
	if s.State != 0 {
		text += " (" + s.State.String() + ")"
	}
	if s.Probe {
		text += " when probed"
	}
	return text
}

// table writes a header and rows in columns; nothing when there are no rows.
func table(b *strings.Builder, header string, n int, row func(i int) []any) {
	if n == 0 {
		return
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for i := range n {
		for j, cell := range row(i) {
			if j > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, cell)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // a strings.Builder takes everything
}

// percent never rounds a part to all or to nothing.
func percent(part, whole uint64) string {
	switch {
	case whole == 0:
		return "none"
	case part == 0:
		return "0 %"
	case part == whole:
		return "100 %"
	}
	p := 100 * float64(part) / float64(whole)
	switch {
	case p < 0.0001:
		return "< 0.0001 %"
	case p < 1:
		return fmt.Sprintf("%.4f %%", p)
	case p > 99.99:
		return "> 99.99 %"
	default:
		return fmt.Sprintf("%.2f %%", p)
	}
}

// micros writes a time given in microseconds with three digits or more.
func micros(us float64) string {
	switch abs := max(us, -us); {
	case abs >= 10_000:
		return fmt.Sprintf("%.1fms", us/1e3)
	case abs >= 1000:
		return fmt.Sprintf("%.2fms", us/1e3)
	case abs >= 10:
		return fmt.Sprintf("%.1fµs", us)
	default:
		return fmt.Sprintf("%.3fµs", us)
	}
}
