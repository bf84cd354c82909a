package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/alecthomas/kong"

	"holdover"
	"holdover/internal/app"
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
	Kill    killCmd    `cmd:"" help:"Flip pods back to Redis and latch them there. Dual writes go on."`
	Restore restoreCmd `cmd:"" help:"Take the latch off: the flag is followed again."`
	Verify  verifyCmd  `cmd:"" help:"Compare both stores completely, under traffic. Exit 3 when they differ."`
	Report  reportCmd  `cmd:"" help:"The divergence report. Exit 3 when it is not ok, 4 when there is nothing to judge."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// env is what a command gets from outside.
type env struct {
	ctx            context.Context
	in             io.Reader
	stdout, stderr io.Writer
}

func run(ctx context.Context, args []string, in io.Reader, stdout, stderr io.Writer) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c, kong.Name("holdover"),
		kong.Description("Moves checkout reservations from Redis counters to MySQL unit rows while the shop stays open."),
		kong.UsageOnError(), kong.Writers(stdout, stderr), kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	if err != nil {
		fmt.Fprintln(stderr, "holdover:", err)
		return exitFailed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if exited >= 0 { // --help has printed
		return exited
	}
	if err != nil {
		fmt.Fprintln(stderr, "holdover:", err)
		fmt.Fprintln(stderr, "See `holdover --help`.")
		return exitUsage
	}
	if err := command.Run(&env{ctx: ctx, in: in, stdout: stdout, stderr: stderr}); err != nil {
		fmt.Fprintln(stderr, "holdover:", err)
		return exitCode(err)
	}
	return exitDone
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
	enc := json.NewEncoder(e.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// logger writes to stderr, by default only what needs somebody's attention.
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

// stores opens the stores of the chosen pods; close them with the function.
func (f *podFlags) stores(e *env) (app.Config, []*app.Stores, func(), error) {
	c, err := f.load(e)
	if err != nil {
		return c, nil, nil, err
	}
	chosen, err := f.choose(c)
	if err != nil {
		return c, nil, nil, err
	}
	var all []*app.Stores
	closeAll := func() {
		for i := len(all) - 1; i >= 0; i-- {
			if err := all[i].Close(context.WithoutCancel(e.ctx)); err != nil {
				fmt.Fprintln(e.stderr, "holdover: close:", err)
			}
		}
	}
	for _, p := range chosen {
		s, err := app.OpenStores(e.ctx, c, p)
		if err != nil {
			closeAll()
			return c, nil, nil, err
		}
		all = append(all, s)
	}
	return c, all, closeAll, nil
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
	for _, name := range f.Pod {
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
