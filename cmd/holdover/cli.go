package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/alecthomas/kong"

	"holdover"
	"holdover/internal/app"
	"holdover/internal/bench"
	"holdover/internal/mutants"
)

// The exit codes.
const (
	exitDone         = 0
	exitFailed       = 1
	exitUsage        = 2 // bad usage or configuration
	exitNotSatisfied = 3 // checked, and not satisfied
	exitNothing      = 4 // nothing to judge
)

// exitError is an error with its own exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// cli is the command line.
type cli struct {
	Demo    demoCmd    `cmd:"" help:"The whole migration in a minute, on servers of its own: real traffic, a kill, nothing lost."`
	Serve   serveCmd   `cmd:"" help:"Serve the reservation API and move the pods as the flag says."`
	Migrate migrateCmd `cmd:"" help:"Create or update holdover's tables in each pod's MySQL."`
	Stock   stockCmd   `cmd:"" help:"Bring stock into the ledger and the counters, or show it."`
	Status  statusCmd  `cmd:"" help:"What is true now, is it safe to move, and what happens next."`
	pressed
	Drill     drillCmd     `cmd:"" help:"Rehearse the kill and measure it: trip, wait for every instance, restore at once. Exit 3: refused, or somebody had not acknowledged."`
	Rollout   rolloutCmd   `cmd:"" help:"The two steps that no flag takes: retire a pod's Redis, and return to it."`
	Verify    verifyCmd    `cmd:"" help:"Compare both stores completely, under traffic. Exit 3 when they differ."`
	Bench     benchCmd     `cmd:"" help:"Measure reserving in MySQL and Redis, every way in its best form, in turn. Exit 3 when an invariant is broken."`
	Report    reportCmd    `cmd:"" help:"The divergence report: verdict, gates, rates, latency; sign it, compare two. Exit 3: fail; 4: no verdict."`
	Selftest  selftestCmd  `cmd:"" help:"Plant divergences of every kind and count what the comparison sees, on a pod's reserved shop or, with --dev, on servers of its own. Exit 3 when one is missed."`
	Calibrate calibrateCmd `cmd:"" help:"Compare Redis with a second Redis: the noise floor before old is compared with new."`
	Torture   tortureCmd   `cmd:"" help:"Try to break the handover: faults, flips and kills from a seed, on servers of its own. Exit 3 when a promise was broken."`
	Advise    adviseCmd    `cmd:"" help:"Whether to migrate at all, from a live pod's metrics or a bench file. Exit 3: don't; 4: it depends."`
	Version   versionCmd   `cmd:"" help:"Print the version."`
}

// pressed are the commands that somebody waits for with a hand on the switch.
// They are parsed alone: to put the grammar of all commands together takes
// longer than the flip.
type pressed struct {
	Kill    killCmd    `cmd:"" help:"Flip pods back to Redis and latch them there. Dual writes go on."`
	Restore restoreCmd `cmd:"" help:"Take the latch off: the flag is followed again."`
}

// grammar is what args are parsed by.
func grammar(args []string) any {
	if len(args) > 0 && (args[0] == "kill" || args[0] == "restore") {
		return new(pressed)
	}
	return new(cli)
}

// env is what a command gets from outside.
type env struct {
	ctx            context.Context
	in             io.Reader
	stdout, stderr io.Writer
	printed        bool // the JSON object is out
}

func run(ctx context.Context, args []string, in io.Reader, stdout, stderr io.Writer) int {
	exited := -1
	parser, err := newParser(grammar(args), stdout, stderr, func(code int) { exited = code })
	if err != nil {
		fmt.Fprintln(stderr, "holdover:", err)
		return exitFailed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	e := &env{ctx: ctx, in: in, stdout: stdout, stderr: stderr}
	command, err := parser.Parse(args)
	if exited >= 0 { // --help has printed
		return exited
	}
	if err != nil {
		err = usage("%w (see `holdover --help`)", err)
	} else {
		err = command.Run(e)
	}
	if err == nil {
		return exitDone
	}
	err = app.Hinted(err)
	code := exitCode(err)
	if wantsJSON(args) && !e.printed {
		_ = e.json(map[string]any{"error": err.Error(), "exit_code": code}) // stderr has it too
	}
	fmt.Fprintln(stderr, "holdover:", err)
	return code
}

// wantsJSON: whoever parses stdout gets an object in any case, also when the
// command came to nothing.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true":
			return true
		}
	}
	return false
}

func newParser(grammar any, stdout, stderr io.Writer, exit func(code int)) (*kong.Kong, error) {
	return kong.New(grammar, kong.Name("holdover"), kong.Vars{"bench_scenarios": strings.Join(bench.Scenarios(), ", "), "mutants": strings.Join(mutants.Names(), ", ")},
		kong.Description("Moves checkout reservations from Redis counters to MySQL unit rows while the shop stays open."),
		kong.Writers(stdout, stderr), kong.Exit(exit), kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
}

// exitCode is the one place that maps errors to exit codes.
func exitCode(err error) int {
	var e *exitError
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.Is(err, holdover.ErrInvalid):
		return exitUsage
	default:
		return exitFailed
	}
}

// json prints the one JSON object of a command.
func (e *env) json(v any) error {
	e.printed = true
	enc := json.NewEncoder(e.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// logger writes to stderr. A command says what is wrong itself: by default only
// a server logs more than errors.
func (e *env) logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usage("--log-level %q: want debug, info, warn or error", level)
	}
	log := slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: l}))
	app.RouteDriverLogs(log)
	return log, nil
}

// podFlags name the pods that a command works on.
type podFlags struct {
	configFlags
	Pod []string `help:"Pods by name; repeat it or separate by commas." placeholder:"NAME"`
	All bool     `help:"All pods of the configuration."`
}

// stores opens the stores of the chosen pods, all at once; close them with the
// function.
func (f *podFlags) stores(e *env) (app.Config, []*app.Stores, func(), error) {
	c, err := f.load(e)
	if err != nil {
		return c, nil, nil, err
	}
	chosen, err := f.choose(c)
	if err != nil {
		return c, nil, nil, err
	}
	all, errs := openAll(e, c, chosen, app.OpenStores)
	closeAll := func() { closeStores(e, all) }
	if err := errors.Join(errs...); err != nil {
		closeAll()
		return c, nil, nil, err
	}
	return c, all, closeAll, nil
}

// openAll opens each pod's stores; where the error is set they are nil.
func openAll(e *env, c app.Config, pods []app.PodConfig, open func(context.Context, app.Config, app.PodConfig) (*app.Stores, error)) ([]*app.Stores, []error) {
	all, errs := make([]*app.Stores, len(pods)), make([]error, len(pods))
	var opening sync.WaitGroup
	for i, p := range pods {
		opening.Go(func() { all[i], errs[i] = open(e.ctx, c, p) })
	}
	opening.Wait()
	return all, errs
}

func closeStores(e *env, all []*app.Stores) {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i] == nil {
			continue
		}
		if err := all[i].Close(context.WithoutCancel(e.ctx)); err != nil {
			fmt.Fprintln(e.stderr, "holdover: close:", err)
		}
	}
}

// choose picks the pods; with one pod configured nothing has to be said.
func (f *podFlags) choose(c app.Config) ([]app.PodConfig, error) {
	var names []string
	for _, p := range c.Pods {
		names = append(names, p.Name)
	}
	switch {
	case f.All && len(f.Pod) > 0:
		return nil, usage("--all and --pod exclude each other")
	case f.All || (len(f.Pod) == 0 && len(c.Pods) == 1):
		return c.Pods, nil
	case len(f.Pod) == 0:
		return nil, usage("which pod? Give --pod NAME or --all; configured are %s", strings.Join(names, ", "))
	}
	var chosen []app.PodConfig
	for i, name := range f.Pod {
		if slices.Contains(f.Pod[:i], name) {
			return nil, usage("pod %s is named twice", name)
		}
		found := false
		for _, p := range c.Pods {
			if p.Name == name {
				chosen, found = append(chosen, p), true
			}
		}
		if !found {
			return nil, usage("pod %q is not configured; configured are %s", name, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}
