package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"holdover"
	"holdover/compare/report"
	"holdover/internal/app"
)

// reportCmd is about the divergence report.
type reportCmd struct {
	Show  reportShowCmd  `cmd:"" default:"withargs" help:"Make the report; what report alone does. Exit 3: a gate failed; 4: no verdict."`
	Diff  reportDiffCmd  `cmd:"" help:"What changed from one report to another, both as JSON files."`
	Sign  reportSignCmd  `cmd:"" help:"Record somebody's go or no-go about a report. Exit 3 when the report does not bear it."`
	Signs reportSignsCmd `cmd:"" help:"Who decided what so far."`
}

// periodFlags are the two ends of a report's period.
type periodFlags struct {
	Since string `default:"7d" help:"Beginning of the period: a duration back from now (90m, 24h, 7d, 2w), a date, or an RFC 3339 time." placeholder:"WHEN"`
	Until string `help:"Its end; now. With both ends given as times the same command later makes the same report, as long as nothing arrives late." placeholder:"WHEN"`
}

type reportShowCmd struct {
	podFlags
	periodFlags
	Format   string   `enum:"text,html,md,json" default:"text" help:"text, html (one file, to print and sign), md or json." placeholder:"FORMAT"`
	JSON     bool     `help:"Short for --format json: one JSON object on stdout."`
	Out      string   `help:"Write it to this file; stdout gets the verdict." placeholder:"FILE" type:"path"`
	Events   []string `help:"Read event files, or folders of them, instead of the pods' MySQL." placeholder:"FILE" type:"path"`
	Baseline string   `help:"An earlier report as JSON: slower than that becomes a gate." placeholder:"FILE" type:"path"`
	Noise    string   `help:"What holdover calibrate wrote with --out: a latency delta that two equal stores have too is none." placeholder:"FILE" type:"path"`
	MustSee  []string `help:"Kinds of calls that must have occurred, instead of claim, release, expire, last-unit and refused; none: no demands." placeholder:"NAME"`
	Waive    []string `help:"Gates that are shown and not demanded." placeholder:"GATE"`
}

func (reportShowCmd) Help() string {
	return "It asks the MySQL of each pod, where every instance's counts arrive within about a minute, and needs no instance: run it from any machine with access. With --events it needs no store at all, but then it knows nothing of stages, kills, verifications and sign-offs."
}

// Run makes the report.
func (cmd *reportShowCmd) Run(e *env) error {
	if cmd.JSON {
		if cmd.Format != app.FormatText && cmd.Format != app.FormatJSON {
			return usage("--json and --format %s exclude each other", cmd.Format)
		}
		cmd.Format = app.FormatJSON
	}
	o, err := cmd.options()
	if err != nil {
		return err
	}
	var r report.Report
	if len(cmd.Events) > 0 {
		r, err = app.ReportOffline(cmd.Events, cmd.Pod, o)
	} else {
		r, err = stored(e, &cmd.podFlags, o)
	}
	if err != nil {
		return err
	}
	if err := cmd.write(e, r); err != nil {
		return err
	}
	switch r.Verdict {
	case report.Pass:
		return nil
	case report.Fail:
		return &exitError{exitNotSatisfied, errors.New("the report's verdict is fail")}
	default:
		return &exitError{exitNothing, errors.New("no verdict: not everything that a verdict needs is in the data")}
	}
}

func (cmd *reportShowCmd) options() (o app.ReportOptions, err error) {
	if o.Since, o.Until, err = app.ParsePeriod(cmd.Since, cmd.Until, time.Now()); err != nil {
		return o, err
	}
	o.Limits.MustSee, o.Limits.Waived = cmd.MustSee, cmd.Waive
	if len(cmd.MustSee) == 1 && cmd.MustSee[0] == "none" {
		o.Limits.MustSee = []string{""}
	}
	if cmd.Baseline != "" {
		earlier, err := readReport(cmd.Baseline)
		if err != nil {
			return o, err
		}
		o.Baseline = report.BaselineOf(earlier)
	}
	if cmd.Noise != "" {
		calibrated, err := readReport(cmd.Noise)
		if err != nil {
			return o, err
		}
		o.Noise = report.BaselineOf(calibrated)
	}
	return o, nil
}

// stored makes the report of the chosen pods from their MySQLs.
func stored(e *env, f *podFlags, o app.ReportOptions) (report.Report, error) {
	f.All = f.All || len(f.Pod) == 0
	c, all, closeAll, err := f.stores(e)
	if err != nil {
		return report.Report{}, err
	}
	defer closeAll()
	return app.Report(e.ctx, c, all, o)
}

func (cmd *reportShowCmd) write(e *env, r report.Report) error {
	if cmd.Out == "" {
		e.printed = cmd.Format == app.FormatJSON
		return app.WriteReport(e.stdout, r, cmd.Format)
	}
	file, err := os.Create(cmd.Out)
	if err != nil {
		return usage("--out: %w", err)
	}
	if err := errors.Join(app.WriteReport(file, r, cmd.Format), file.Close()); err != nil {
		return err
	}
	if cmd.JSON {
		return e.json(map[string]any{"verdict": r.Verdict, "digest": r.Digest, "out": cmd.Out})
	}
	printVerdictOf(e.stdout, r)
	_, err = fmt.Fprintf(e.stdout, "written to %s\n", cmd.Out)
	return err
}

// printVerdictOf is a report in a few lines.
func printVerdictOf(w io.Writer, r report.Report) {
	passed, judged := 0, 0
	var not []report.Gate
	for _, g := range r.Gates {
		switch {
		case g.Waived:
			continue
		case g.OK:
			passed++
		default:
			not = append(not, g)
		}
		judged++
	}
	fmt.Fprintf(w, "%s, %s to %s: %s, %d of %s passed (digest %.12s)\n", strings.Join(r.Pods, ", "), r.From.UTC().Format(time.RFC3339), r.To.UTC().Format(time.RFC3339),
		strings.ToUpper(string(r.Verdict)), passed, count(judged, "gate"), r.Digest)
	for _, g := range not {
		fmt.Fprintf(w, "  %-10s %s: %s\n", g.Verdict, g.Name, g.Reason)
	}
}

// maxReport bounds a report that is read, in bytes.
const maxReport = 64 << 20

func readReport(path string) (report.Report, error) {
	file, err := os.Open(path)
	if err != nil {
		return report.Report{}, usage("%w", err)
	}
	defer file.Close()
	r, err := report.ReadJSON(io.LimitReader(file, maxReport))
	if err != nil {
		return r, usage("%s is no report as JSON (`holdover report --format json` makes one): %w", path, err)
	}
	return r, nil
}

type reportDiffCmd struct {
	A    string `arg:"" help:"The earlier report." type:"path"`
	B    string `arg:"" help:"The later report." type:"path"`
	JSON bool   `help:"One JSON object on stdout."`
}

// Run compares two reports.
func (cmd *reportDiffCmd) Run(e *env) error {
	a, err := readReport(cmd.A)
	if err != nil {
		return err
	}
	b, err := readReport(cmd.B)
	if err != nil {
		return err
	}
	d, err := report.Diff(a, b)
	if err != nil {
		return err
	}
	if cmd.JSON {
		e.printed = true
		return d.WriteJSON(e.stdout)
	}
	return d.WriteText(e.stdout)
}

type reportSignCmd struct {
	podFlags
	periodFlags
	As       string `required:"" help:"Who decides." placeholder:"NAME"`
	Decision string `required:"" enum:"go,no-go" help:"go or no-go."`
	Note     string `required:"" help:"Why; kept with the decision." placeholder:"TEXT"`
	Report   string `help:"The report that was read, as JSON; otherwise it is made now, for --since and --until." placeholder:"FILE" type:"path"`
	Digest   string `help:"Of the report that was read: if the data has changed since, nothing is signed." placeholder:"HEX"`
	Override string `help:"Why it is a go although the report does not pass; kept in the note." placeholder:"REASON"`
	JSON     bool   `help:"One JSON object on stdout."`
}

// Run shows the verdict and records the decision.
func (cmd *reportSignCmd) Run(e *env) error {
	var r report.Report
	o := app.ReportOptions{}
	var err error
	if cmd.Report != "" {
		if r, err = readReport(cmd.Report); err != nil {
			return err
		}
	} else if o.Since, o.Until, err = app.ParsePeriod(cmd.Since, cmd.Until, time.Now()); err != nil {
		return err
	}
	c, all, closeAll, err := cmd.stores(e)
	if err != nil {
		return err
	}
	defer closeAll()
	if len(all) != 1 {
		return usage("one pod at a time: give --pod NAME")
	}
	if cmd.Report == "" {
		if r, err = app.Report(e.ctx, c, all, o); err != nil {
			return err
		}
	}
	if !cmd.JSON {
		printVerdictOf(e.stdout, r)
	}
	signed, err := app.Sign(e.ctx, all[0], r, app.SignOptions{As: cmd.As, Decision: cmd.Decision, Note: cmd.Note, Digest: cmd.Digest, Override: cmd.Override})
	switch {
	case errors.Is(err, app.ErrNotSigned):
		return &exitError{exitNotSatisfied, err}
	case err != nil:
		return err
	case cmd.JSON:
		return e.json(signed)
	}
	_, err = fmt.Fprintf(e.stdout, "signed: %s by %s for %s in %s at epoch %d\n", strings.ToUpper(signed.Decision), signed.As, signed.Pod, signed.Stage, signed.Epoch)
	return err
}

type reportSignsCmd struct {
	podFlags
	Since string `default:"52w" help:"How far back: a duration, a date, or an RFC 3339 time." placeholder:"WHEN"`
	JSON  bool   `help:"One JSON object on stdout."`
}

// Run lists the decisions, the oldest first.
func (cmd *reportSignsCmd) Run(e *env) error {
	since, _, err := app.ParsePeriod(cmd.Since, "", time.Now())
	if err != nil {
		return err
	}
	cmd.All = cmd.All || len(cmd.Pod) == 0
	_, all, closeAll, err := cmd.stores(e)
	if err != nil {
		return err
	}
	defer closeAll()
	list := []holdover.SignOff{}
	for _, s := range all {
		signed, err := s.MySQL.SignOffs(e.ctx, since)
		if err != nil {
			return fmt.Errorf("pod %s: %w", s.Name, err)
		}
		for _, d := range signed {
			if !cmd.JSON {
				fmt.Fprintf(e.stdout, "%s  pod %s, %s at epoch %d: %s by %s (report %s, %.12s): %s\n", d.At.UTC().Format(time.RFC3339), d.Pod, d.Stage, d.Epoch,
					strings.ToUpper(d.Decision), d.As, d.Verdict, d.Digest, d.Note)
			}
			list = append(list, d)
		}
	}
	if cmd.JSON {
		return e.json(map[string]any{"sign_offs": list})
	}
	if len(list) == 0 {
		fmt.Fprintln(e.stdout, "nobody has signed anything yet")
	}
	return nil
}
