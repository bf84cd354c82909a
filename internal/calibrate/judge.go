package calibrate

import (
	"fmt"
	"io"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

// judge makes the result of what the comparator wrote.
func (r *Result) judge(events string) error {
	rollups, notes, err := compare.ReadRollups(events)
	if err != nil {
		return err
	}
	// What a migration must prove beside the answers and the times is nobody's business here.
	r.Report, err = report.Build(report.Input{Source: report.SourceCalibration, Pods: []string{Pod}, Rollups: rollups, Notes: notes, Limits: report.Limits{
		MustSee: []string{""}, Waived: []string{"selftest", "verification", "exercised", "instances"},
	}})
	if err != nil {
		return err
	}
	d := r.Report.Divergences
	r.Pairs, r.Divergences, r.Unexplained, r.Coverage = d.Compared, d.Differed, d.Unexplained, r.Report.Coverage.Share
	r.OK = r.Pairs > 0 && r.Unexplained == 0
	if r.Seconds > 0 {
		r.Rate = float64(r.Pairs) / r.Seconds
	}
	r.Kinds = []Rate{}
	for _, k := range d.Kinds {
		r.Kinds = append(r.Kinds, Rate{Kind: k.Kind, Count: k.Count, Rate: k.Rate.Rate, Upper: k.Rate.High})
	}
	for _, l := range r.Report.Latency.Operations {
		q := Quantiles{P50: l.Delta.P50.Value, P90: l.Delta.P90.Value, P99: l.Delta.P99.Value, P999: l.Delta.P999.Value}
		r.Operations = append(r.Operations, Operation{Op: l.Op, Pairs: l.Pairs, Delta: q})
		if l.Op == holdover.OpReserve.String() {
			r.Delta = q
		}
	}
	return nil
}

// WriteText prints the result for people.
func (r Result) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s against %s, Redis %s: %d pairs in %.0f s (%.0f/s), coverage %.2f %%\n", r.First, r.Second, r.Redis, r.Pairs, r.Seconds, r.Rate, 100*r.Coverage)
	fmt.Fprintf(w, "%-15s %8s %9s  %s\n", "kind", "count", "rate", "at most")
	for _, k := range r.Kinds {
		fmt.Fprintf(w, "%-15s %8d %8.4f%%  %.4f%%\n", k.Kind, k.Count, 100*k.Rate, 100*k.Upper)
	}
	fmt.Fprintf(w, "%-15s %8s %9s %9s %9s %9s  second minus first, µs\n", "operation", "pairs", "p50", "p90", "p99", "p99.9")
	for _, o := range r.Operations {
		fmt.Fprintf(w, "%-15s %8d %9.0f %9.0f %9.0f %9.0f\n", o.Op, o.Pairs, o.Delta.P50, o.Delta.P90, o.Delta.P99, o.Delta.P999)
	}
	word := "OK: what differs by less than this means nothing"
	if !r.OK {
		word = fmt.Sprintf("NOT OK: %d of %d pairs differ without a reason: these two servers do not do the same", r.Unexplained, r.Pairs)
	}
	_, err := fmt.Fprintln(w, word)
	return err
}
