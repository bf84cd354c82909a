package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

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

func (reportCmd) Help() string {
	return "`holdover report` alone is `holdover report show`: its flags (--pod, --since, --until, --format, --out ...) are in `holdover report show --help`. Without --pod it is about all pods, without --since about the last 7 days."
}

// periodFlags are the two ends of a report's period.
type periodFlags struct {
	Since string `default:"7d" help:"Beginning of the period: a duration back from the last full minute (90m, 24h, 7d, 2w), a date, or an RFC 3339 time." placeholder:"WHEN"`
	Until string `help:"Its end; the last full minute, and then who lives now has to be reporting. With both ends given as times the same command later makes the same report, as long as nothing arrives late." placeholder:"WHEN"`
}

// baselineFlags are the reports that a report's times are compared with.
type baselineFlags struct {
	Baseline string `help:"An earlier report as JSON: slower than that becomes a gate." placeholder:"FILE" type:"path"`
	Noise    string `help:"What holdover calibrate wrote with --out: a latency delta that two equal stores have too is none." placeholder:"FILE" type:"path"`
}

func (f baselineFlags) read() (baseline, noise *report.Baseline, err error) {
	if f.Baseline != "" {
		r, err := readReport(f.Baseline)
		if err != nil {
			return nil, nil, err
		}
		if r.Source == report.SourceCalibration {
			return nil, nil, usage("--baseline %s is a calibration: it goes with --noise, and a baseline is an earlier report of the pods", f.Baseline)
		}
		baseline = report.BaselineOf(r)
	}
	if f.Noise != "" {
		r, err := readReport(f.Noise)
		if err != nil {
			return nil, nil, err
		}
		if noise, err = report.NoiseOf(r); err != nil {
			return nil, nil, usage("--noise %s: %w", f.Noise, err)
		}
	}
	return baseline, noise, nil
}

type reportShowCmd struct {
	podFlags
	periodFlags
	Format string   `enum:"text,html,md,json" default:"text" help:"text, html (one file, to print and sign), md or json." placeholder:"FORMAT"`
	JSON   bool     `help:"Short for --format json: one JSON object on stdout."`
	Out    string   `help:"Write it to this file; stdout gets the verdict." placeholder:"FILE" type:"path"`
	Events []string `help:"Read event files, or folders of them, instead of the pods' MySQL." placeholder:"FILE" type:"path"`
	baselineFlags
	MustSee []string `help:"Kinds of calls that must have occurred, instead of claim, release, expire, last-unit and refused; none: no demands." placeholder:"NAME"`
	Waive   []string `help:"Gates that are shown and not demanded where they can't be judged; one that fails is a fail all the same. The verdict names them, and a go needs --override REASON." placeholder:"GATE"`
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
	o.Live = cmd.Until == ""
	if o.Live && len(cmd.Events) > 0 {
		o.Until = time.Time{} // files end where they end
	}
	o.Limits.MustSee, o.Limits.Waived = cmd.MustSee, cmd.Waive
	if len(cmd.MustSee) == 1 && cmd.MustSee[0] == "none" {
		o.Limits.MustSee = []string{""}
	}
	o.Baseline, o.Noise, err = cmd.read()
	return o, err
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
	if err := app.WriteReportFile(cmd.Out, r, cmd.Format); err != nil {
		return err
	}
	if cmd.JSON {
		return e.json(map[string]any{"verdict": r.Verdict, "digest": r.Digest, "waived": r.Waived(), "gates": r.Tally(), "out": cmd.Out})
	}
	printVerdictOf(e.stdout, r)
	_, err := fmt.Fprintf(e.stdout, "written to %s\n", cmd.Out)
	return err
}

// printVerdictOf is a report in a few lines.
func printVerdictOf(w io.Writer, r report.Report) {
	fmt.Fprintf(w, "%s, %s to %s: %s, %s (digest %.12s)\n", strings.Join(r.Pods, ", "), r.From.UTC().Format(time.RFC3339), r.To.UTC().Format(time.RFC3339),
		strings.ToUpper(string(r.Verdict)), r.Tally(), r.Digest)
	if not := r.LatencyNotJudged(); not != "" && r.Verdict == report.Pass {
		fmt.Fprintf(w, "  %s\n", not)
	}
	for _, g := range r.Gates {
		if !g.OK && (!g.Waived || g.Verdict == report.Fail) {
			fmt.Fprintf(w, "  %-10s %s: %s\n", g.Verdict, g.Name, g.Reason)
		}
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
	baselineFlags
	As       string `required:"" help:"Who decides." placeholder:"NAME"`
	Decision string `required:"" enum:"go,no-go" help:"go or no-go."`
	Note     string `required:"" help:"Why; kept with the decision." placeholder:"TEXT"`
	Report   string `help:"The report that was read, as JSON. It is made again, of its pods and period, from MySQL, and signed when that is the same. Otherwise one is made now, for --since and --until." placeholder:"FILE" type:"path"`
	Digest   string `help:"Of the report that was read: if the data has changed since, nothing is signed." placeholder:"HEX"`
	Override string `help:"Why it is a go although the report does not pass, gates were waived, or it ended too long ago or before this epoch (no step is taken on such a go); kept in the note." placeholder:"REASON"`
	JSON     bool   `help:"One JSON object on stdout."`
}

func (reportSignCmd) Help() string {
	return "A report that was made with --baseline or --noise takes the same flags here. Without --report the period is the last 7 days unless --since says else."
}

// Run shows the verdict and records the decision.
func (cmd *reportSignCmd) Run(e *env) error {
	pod, r, read, closeAll, err := cmd.reported(e)
	if err != nil {
		return err
	}
	defer closeAll()
	if !cmd.JSON {
		printVerdictOf(e.stdout, r)
	}
	signed, err := app.Sign(e.ctx, pod, r, app.SignOptions{As: cmd.As, Decision: cmd.Decision, Note: cmd.Note, Digest: cmd.Digest, Override: cmd.Override, Read: read})
	switch {
	case errors.Is(err, app.ErrNotSigned):
		return &exitError{exitNotSatisfied, err}
	case err != nil:
		return err
	case cmd.JSON:
		return e.json(signed)
	}
	_, err = fmt.Fprintf(e.stdout, "signed: %s by %s for %s in %s at epoch %d: the report of %s to %s with verdict %s, digest %s\n", strings.ToUpper(signed.Decision), signed.As, signed.Pod, signed.Stage, signed.Epoch,
		signed.From.UTC().Format(time.RFC3339), signed.To.UTC().Format(time.RFC3339), signed.Verdict, signed.Digest)
	return err
}

// reported makes the report, which is that of read when there is a file, and
// returns the pod that it is signed for.
func (cmd *reportSignCmd) reported(e *env) (pod *app.Stores, r report.Report, read *report.Report, closeAll func(), err error) {
	no := func(err error) (*app.Stores, report.Report, *report.Report, func(), error) {
		return nil, r, nil, nil, err
	}
	from, to, err := app.ParsePeriod(cmd.Since, cmd.Until, time.Now())
	if err != nil {
		return no(err)
	}
	baseline, noise, err := cmd.baselineFlags.read()
	if err != nil {
		return no(err)
	}
	name, of := "", cmd.podFlags
	if cmd.Report != "" {
		file, err := readReport(cmd.Report)
		if err != nil {
			return no(err)
		}
		if name, err = cmd.podIn(file); err != nil {
			return no(err)
		}
		of.Pod, of.All, read = file.Pods, false, &file
	}
	c, all, closeAll, err := of.stores(e)
	if err != nil {
		return no(err)
	}
	i := 0
	if read != nil {
		i = slices.IndexFunc(all, func(s *app.Stores) bool { return s.Name == name })
		r, err = app.Remake(e.ctx, c, all, *read, baseline, noise)
	} else if len(all) != 1 {
		err = usage("one pod at a time: give --pod NAME")
	} else {
		r, err = app.Report(e.ctx, c, all, app.ReportOptions{Since: from, Until: to, Live: cmd.Until == "", Baseline: baseline, Noise: noise})
	}
	if err != nil {
		closeAll()
		return no(err)
	}
	return all[i], r, read, closeAll, nil
}

// podIn is which pod of a report that was read the decision is about.
func (cmd *reportSignCmd) podIn(read report.Report) (string, error) {
	if len(read.Pods) == 0 || !read.To.After(read.From) {
		return "", usage("%s is about no pod or no period: make the report again", cmd.Report)
	}
	pods := cmd.Pod
	if len(pods) == 0 {
		pods = read.Pods
	}
	if cmd.All || len(pods) != 1 || !slices.Contains(read.Pods, pods[0]) {
		return "", usage("one pod at a time, of those that %s is about: give --pod with one of %s", cmd.Report, strings.Join(read.Pods, ", "))
	}
	return pods[0], nil
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
	type signOff struct {
		holdover.SignOff
		Spent string `json:"spent,omitempty"` // why a go opens no step
	}
	list := []signOff{}
	for _, s := range all {
		signed, err := s.MySQL.SignOffs(e.ctx, since)
		if err != nil {
			return fmt.Errorf("pod %s: %w", s.Name, err)
		}
		for i, d := range signed {
			spent, err := s.Spent(e.ctx, signed, i)
			if err != nil {
				return fmt.Errorf("pod %s: %w", s.Name, err)
			}
			if !cmd.JSON {
				counts := ""
				if spent != "" {
					counts = "; no longer counts: " + oneLine(spent)
				}
				fmt.Fprintf(e.stdout, "%s  pod %s, %s at epoch %d: %s by %s (report %s of %s to %s, %.12s%s): %s\n", d.At.UTC().Format(time.RFC3339), d.Pod, d.Stage, d.Epoch,
					strings.ToUpper(d.Decision), oneLine(d.As), d.Verdict, d.From.UTC().Format(time.RFC3339), d.To.UTC().Format(time.RFC3339), d.Digest, counts, oneLine(d.Note))
			}
			list = append(list, signOff{d, spent})
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

// oneLine is text that somebody wrote, without what would make it look like
// another line of the list.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
