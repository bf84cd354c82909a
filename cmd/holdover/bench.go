package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"holdover/internal/bench"
	"holdover/internal/workload"
)

type benchCmd struct {
	Scenario string        `arg:"" help:"What to measure: ${bench_scenarios}."`
	JSON     bool          `help:"One JSON object on stdout."`
	Clients  int           `help:"Callers at a time; 0: what the scenario is made for, mostly 256."`
	Duration time.Duration `help:"Measured time of the whole scenario, shared by all turns; 0: what it is made for, under a minute."`
	Rounds   int           `help:"Turns of each competitor." default:"3"`
	Stock    int64         `help:"Units of an item at the start of a turn; 0: 1,000 in drain, more than can be sold elsewhere."`
	Cap      int64         `help:"Unit rows of an item; 0: 1,000, and in drain 10, 100 and 1,000 in turn."`
	Rate     float64       `help:"Buyers a second in kill, shadow and mysql; 0: 100 in kill, in the others a tenth of what the slower store can do."`
	Hang     time.Duration `help:"How long MySQL hangs in shadow, once in each stage." default:"15s"`
	Procs    int           `name:"instances" help:"Processes that serve the pod in kill." default:"8"`
	Baskets  string        `help:"JSON lines {\"cart\":N,\"items\":[...]} for carts, instead of generated ones." placeholder:"FILE"`
	MySQL    string        `name:"mysql" help:"A MySQL server of your own; a schema is made in it and dropped." placeholder:"DSN"`
	Redis    string        `name:"redis" help:"A Redis of your own; keys get a prefix and are removed." placeholder:"HOST:PORT"`
	HTML     string        `name:"html" help:"Write a page with plots; all writes holdover-bench.html when not set." placeholder:"FILE"`
	Profile  string        `name:"pprof" help:"Write a CPU profile of holdover's last turn." placeholder:"FILE"`
}

func (cmd *benchCmd) Run(e *env) (err error) {
	if _, err := e.logger("error"); err != nil { // what go-redis says of its connections goes nowhere
		return err
	}
	program, err := os.Executable() // kill and shadow run it as instances and as the command
	if err != nil {
		return fmt.Errorf("where this program is can't be found out: %w", err)
	}
	cfg := bench.Config{
		Scenario: cmd.Scenario, Clients: cmd.Clients, Duration: cmd.Duration, Rounds: cmd.Rounds, Stock: cmd.Stock, Cap: cmd.Cap,
		Rate: cmd.Rate, Hang: cmd.Hang, Instances: cmd.Procs, Program: program,
		MySQLDSN: cmd.MySQL, RedisAddr: cmd.Redis, Progress: e.stderr,
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cmd.Baskets != "" {
		if cfg.Baskets, err = readBaskets(cmd.Baskets); err != nil {
			return err
		}
	}
	if cmd.HTML == "" && cmd.Scenario == "all" {
		cmd.HTML = "holdover-bench.html"
	}
	// Files are opened before a minute is spent.
	page, err := create("--html", cmd.HTML)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, page.Close()) }()
	profile, err := create("--pprof", cmd.Profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, profile.Close()) }()
	if profile.File != nil {
		cfg.Profile = profile.File
	}
	report, err := bench.Run(e.ctx, cfg)
	if err != nil {
		return err
	}
	if cmd.JSON {
		err = e.json(report)
	} else {
		err = report.WriteText(e.stdout)
	}
	if err == nil && page.File != nil {
		if err = report.WriteHTML(page.File); err == nil {
			fmt.Fprintln(e.stderr, "written:", cmd.HTML)
		}
	}
	if err == nil && !report.OK {
		err = &exitError{exitNotSatisfied, errors.New("an invariant is broken: " + strings.Join(report.Broken, "; "))}
	}
	return err
}

// output is a file to write, or none.
type output struct{ *os.File }

// create makes the file of a flag that was given.
func create(flag, path string) (output, error) {
	if path == "" {
		return output{}, nil
	}
	file, err := os.Create(path)
	if err != nil {
		return output{}, usage("%s: %w", flag, err)
	}
	return output{file}, nil
}

func (o output) Close() error {
	if o.File == nil {
		return nil
	}
	return o.File.Close()
}

func readBaskets(path string) ([]workload.Basket, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, usage("baskets: %w", err)
	}
	defer file.Close()
	all, err := workload.ReadBaskets(file)
	if err != nil {
		return nil, usage("baskets %s: %w", path, err)
	}
	return all, nil
}
