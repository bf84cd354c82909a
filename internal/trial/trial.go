package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdover"
	"holdover/compare/report"
	"holdover/internal/app"
	"holdover/internal/devstack"
	"holdover/internal/mutants"
	"holdover/internal/workload"
)

// Config says how to try the report. Zero fields mean the default.
type Config struct {
	Duration  time.Duration // of the traffic of each case; 60 s
	Cases     []string      // names of Cases; all
	Instances int           // of each pod; 4
	Rate      float64       // arrivals a second; 100
	Seed      uint64        // of the traffic
	Baskets   []workload.Basket
	Limits    report.Limits // of the reports
	Progress  io.Writer     // nil: discard
	Logger    *slog.Logger
}

// Case is one pod's part: a bug, and what the report has to make of it.
type Case struct {
	Name   string         `json:"name"`
	Mutant string         `json:"mutant,omitempty"` // see internal/mutants; empty: no bug
	Half   bool           `json:"half,omitempty"`   // half of the instances have it, and are judged against the others; many small carts, for twice as long
	Want   report.Verdict `json:"want"`
	Breaks []string       `json:"breaks,omitempty"` // gates of which the bug must break one, by the start of their names
}

// Cases lists what is tried, the case without a bug first.
func Cases() []Case {
	return []Case{
		{Name: "healthy", Want: report.Pass},
		{Name: "lost-mirrors", Mutant: mutants.LoseMirror + ":200", Want: report.Fail, Breaks: []string{"unexplained", "verification"}},
		{Name: "past-stock", Mutant: mutants.GrantPastStock, Want: report.Fail, Breaks: []string{"unexplained", "verification"}},
		{Name: "slow-tail", Mutant: mutants.SlowTail, Half: true, Want: report.Fail, Breaks: []string{"latency"}},
	}
}

// Result is what came of it.
type Result struct {
	OK      bool     `json:"ok"` // every verdict was as it should be
	Seed    uint64   `json:"seed"`
	Cases   []Tried  `json:"cases"`
	Wrong   []string `json:"wrong,omitempty"` // one line for each that was not
	Seconds float64  `json:"seconds"`
}

// Tried is a case and what its report said.
type Tried struct {
	Case
	Verdict     report.Verdict    `json:"verdict"`
	Broken      []Broken          `json:"broken"` // gates
	Reservation int64             `json:"reservations"`
	Granted     int64             `json:"granted"`
	Refused     int64             `json:"refused"`
	Eligible    uint64            `json:"eligible"`
	Compared    uint64            `json:"compared"`
	Unexplained uint64            `json:"unexplained"`
	Kinds       map[string]uint64 `json:"kinds"`
	Unproved    int               `json:"unproved"` // sampled explained divergences without their proof: must be none
	Digest      string            `json:"digest"`
	Report      report.Report     `json:"-"`
}

// Broken is a gate that did not hold.
type Broken struct {
	Gate   string `json:"gate"`
	Reason string `json:"reason"`
}

// run is a trial under way.
type run struct {
	cfg   Config
	stack *devstack.Stack
	began time.Time
}

// Run tries the report.
func Run(ctx context.Context, cfg Config) (result Result, err error) {
	cfg.Duration = cmp.Or(cfg.Duration, time.Minute)
	cfg.Instances = cmp.Or(cfg.Instances, 4)
	cfg.Rate = cmp.Or(cfg.Rate, 100)
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Duration < 5*time.Second || cfg.Instances < 2 || cfg.Rate < 1 {
		return result, fmt.Errorf("trial: %s, %d instances, %g arrivals a second: want at least 5s, 2 and 1", cfg.Duration, cfg.Instances, cfg.Rate)
	}
	cases, err := chosen(cfg.Cases)
	if err != nil {
		return result, err
	}
	r := &run{cfg: cfg, began: time.Now()}
	var pods []string
	for _, c := range cases {
		pods = append(pods, c.Name)
	}
	if r.stack, err = devstack.Start(ctx, devstack.Config{Pods: pods, Log: cfg.Progress}); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, r.stack.Close()) }()
	app.RouteDriverLogs(cfg.Logger)
	result.Seed = cfg.Seed
	for _, c := range cases {
		tried, err := r.try(ctx, c)
		if err != nil {
			return result, fmt.Errorf("case %s: %w", c.Name, err)
		}
		result.Cases = append(result.Cases, tried)
		result.Wrong = append(result.Wrong, tried.wrong()...)
	}
	result.OK = len(result.Wrong) == 0
	result.Seconds = time.Since(r.began).Seconds()
	return result, nil
}

func chosen(names []string) ([]Case, error) {
	all := Cases()
	if len(names) == 0 {
		return all, nil
	}
	var out []Case
	for _, name := range names {
		i := slices.IndexFunc(all, func(c Case) bool { return c.Name == name })
		if i < 0 {
			var known []string
			for _, c := range all {
				known = append(known, c.Name)
			}
			return nil, &holdover.InvalidError{Field: "case", Value: name, Problem: "want one of " + strings.Join(known, ", ")}
		}
		out = append(out, all[i])
	}
	return out, nil
}

// wrong says what is not as it should be.
func (t Tried) wrong() (lines []string) {
	say := func(format string, args ...any) {
		lines = append(lines, fmt.Sprintf("case %s: ", t.Name)+fmt.Sprintf(format, args...))
	}
	var broken []string
	for _, b := range t.Broken {
		broken = append(broken, b.Gate+" ("+b.Reason+")")
	}
	if t.Verdict != t.Want {
		say("the verdict is %s, want %s: %s", t.Verdict, t.Want, strings.Join(broken, "; "))
	}
	hit := slices.ContainsFunc(t.Broken, func(b Broken) bool {
		return slices.ContainsFunc(t.Breaks, func(gate string) bool { return strings.HasPrefix(b.Gate, gate) })
	})
	if len(t.Breaks) > 0 && !hit {
		say("none of the gates that the bug must break is broken (%s), but: %s", strings.Join(t.Breaks, ", "), strings.Join(broken, "; "))
	}
	if t.Mutant == "" && t.Unexplained > 0 {
		say("%d divergences are unexplained, want 0", t.Unexplained)
	}
	if t.Unproved > 0 {
		say("%d sampled divergences are explained without a proof", t.Unproved)
	}
	return lines
}

// judged is what a report says, as the result has it.
func judged(c Case, rep report.Report, counts workload.Counts) Tried {
	t := Tried{
		Case: c, Verdict: rep.Verdict, Broken: []Broken{}, Kinds: map[string]uint64{}, Report: rep, Digest: rep.Digest,
		Reservation: counts.Tokens, Granted: counts.Granted, Refused: counts.Refused,
		Eligible: rep.Coverage.Eligible, Compared: rep.Coverage.Compared, Unexplained: rep.Divergences.Unexplained,
	}
	for _, g := range rep.Gates {
		if !g.OK && !g.Waived {
			t.Broken = append(t.Broken, Broken{g.Name, g.Reason})
		}
	}
	for _, k := range rep.Divergences.Kinds {
		t.Kinds[k.Kind] = k.Count
		for _, e := range k.Samples {
			if e.Kind.Explained() && e.Proof == nil {
				t.Unproved++
			}
		}
	}
	return t
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.cfg.Progress, "%6.1fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// folder is where an instance of a case writes its events.
func (r *run) folder(c Case, mutated bool) string {
	return filepath.Join(r.stack.Dir(), "trial", c.Name, map[bool]string{true: "mutated", false: "plain"}[mutated])
}

// want sets the flag of a case's pod.
func (r *run) want(c Case, stage holdover.Stage) error {
	file := r.flags(c)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	text := fmt.Sprintf(`{"flags": {"holdover-stage": {"state": "ENABLED", "variants": {%q: %[1]q}, "defaultVariant": %[1]q}}}`, stage.String())
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (r *run) flags(c Case) string {
	return filepath.Join(r.stack.Dir(), "trial", c.Name, "stages.json")
}
