package torture

import (
	"context"
	"fmt"
	"io"
)

// MutantsReport says which protections were missed.
type MutantsReport struct {
	OK      bool           `json:"ok"` // every one, and nothing failed with the protection on
	Mutants []MutantResult `json:"mutants"`
}

// MutantResult is one protection that was switched off.
type MutantResult struct {
	Mutate    string   `json:"mutate"`
	Caught    bool     `json:"caught"`
	Schedules int      `json:"schedules"`  // that it took, or that were not enough
	ControlOK bool     `json:"control_ok"` // the same schedules with the protection on
	Seconds   float64  `json:"seconds"`
	Details   []string `json:"details"` // what was found
}

// mutantSchedules is within how many schedules a missing protection must show.
const mutantSchedules = 40

// Mutants runs the product without each of these protections, on schedules aimed
// at it, until something is broken; and the same schedules with the protection,
// which must pass.
func Mutants(ctx context.Context, cfg Config, names []string) (MutantsReport, error) {
	r := MutantsReport{OK: len(names) > 0, Mutants: []MutantResult{}}
	for _, name := range names {
		one := cfg
		one.Mutate, one.Aim = name, name
		one.Schedules = min(cfg.Schedules, mutantSchedules)
		report, err := Run(ctx, one)
		if err != nil {
			return r, fmt.Errorf("mutant %s: %w", name, err)
		}
		m := MutantResult{Mutate: name, Caught: len(report.Failed) > 0, Schedules: report.Schedules, Details: []string{}}
		if m.Caught {
			m.Details = report.Failed[0].Details
		}
		one.Mutate, one.Schedules = "", report.Schedules
		control, err := Run(ctx, one)
		if err != nil {
			return r, fmt.Errorf("control of mutant %s: %w", name, err)
		}
		m.ControlOK, m.Seconds = control.OK, report.Seconds+control.Seconds
		r.OK = r.OK && m.Caught && m.ControlOK
		r.Mutants = append(r.Mutants, m)
	}
	return r, nil
}

// WriteText prints the report for people.
func (r MutantsReport) WriteText(w io.Writer) (err error) {
	for _, m := range r.Mutants {
		verdict, control := "NOT CAUGHT", "and nothing broken with the protection on"
		if m.Caught {
			verdict = "caught"
		}
		if !m.ControlOK {
			control = "BUT BROKEN WITH THE PROTECTION ON TOO"
		}
		_, err = fmt.Fprintf(w, "%-22s %-10s after %2d schedules, %4.0f s, %s\n", m.Mutate, verdict, m.Schedules, m.Seconds, control)
		if len(m.Details) > 0 {
			_, err = fmt.Fprintf(w, "    %s\n", m.Details[0])
		}
	}
	return err
}
