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
	Baskets  string        `help:"JSON lines {\"cart\":N,\"items\":[...]} for carts, instead of generated ones." placeholder:"FILE"`
	MySQL    string        `name:"mysql" help:"A MySQL server of your own; a schema is made in it and dropped." placeholder:"DSN"`
	Redis    string        `name:"redis" help:"A Redis of your own; keys get a prefix and are removed." placeholder:"HOST:PORT"`
	HTML     string        `name:"html" help:"Write a page with plots; all writes holdover-bench.html when not set." placeholder:"FILE"`
	Profile  string        `name:"pprof" help:"Write a CPU profile of holdover's last turn." placeholder:"FILE"`
}

func (cmd *benchCmd) Run(e *env) (err error) {
	cfg := bench.Config{
		Scenario: cmd.Scenario, Clients: cmd.Clients, Duration: cmd.Duration, Rounds: cmd.Rounds, Stock: cmd.Stock, Cap: cmd.Cap,
		MySQLDSN: cmd.MySQL, RedisAddr: cmd.Redis, Progress: e.stderr,
	}
	if cmd.Baskets != "" {
		if cfg.Baskets, err = readBaskets(cmd.Baskets); err != nil {
			return err
		}
	}
	if cmd.Profile != "" {
		file, err := os.Create(cmd.Profile)
		if err != nil {
			return usage("--pprof: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		cfg.Profile = file
	}
	if _, err := e.logger("error"); err != nil { // go-redis's own remarks go nowhere
		return err
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
	if cmd.HTML == "" && cmd.Scenario == "all" {
		cmd.HTML = "holdover-bench.html"
	}
	if err == nil && cmd.HTML != "" {
		err = cmd.writePage(e, report)
	}
	if err == nil && !report.OK {
		err = &exitError{exitNotSatisfied, errors.New("an invariant is broken: " + strings.Join(report.Broken, "; "))}
	}
	return err
}

func (cmd *benchCmd) writePage(e *env, report bench.Report) (err error) {
	file, err := os.Create(cmd.HTML)
	if err != nil {
		return fmt.Errorf("the page with plots: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := report.WriteHTML(file); err != nil {
		return fmt.Errorf("write %s: %w", cmd.HTML, err)
	}
	fmt.Fprintln(e.stderr, "written:", cmd.HTML)
	return nil
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
