package main

import (
	"errors"
	"fmt"
	"time"

	"holdover/internal/mutants"
	"holdover/internal/torture"
)

type tortureCmd struct {
	Schedules int     `help:"How many schedules of faults and flips." default:"100"`
	Seed      uint64  `help:"What is drawn follows from it." default:"1"`
	Replay    uint64  `help:"Run one schedule again, by the seed that its line shows." placeholder:"SEED"`
	Minutes   float64 `help:"No new schedule begins after so many minutes; 0: no limit."`
	Mutate    string  `help:"Switch one protection off, or all in turn: each must be missed. One of ${mutants}, all." placeholder:"NAME"`
	JSON      bool    `help:"One JSON object on stdout."`
	Keep      bool    `help:"Leave the folder with the servers' data and logs in place."`
	Verbose   bool    `help:"Say more about the servers."`
}

func (cmd *tortureCmd) Run(e *env) error {
	if cmd.Schedules < 1 {
		return usage("--schedules %d: must be positive", cmd.Schedules)
	}
	cfg := torture.Config{
		Schedules: cmd.Schedules, Seed: cmd.Seed, Replay: cmd.Replay, Limit: time.Duration(cmd.Minutes * float64(time.Minute)),
		Mutate: cmd.Mutate, Keep: cmd.Keep, Progress: e.stderr,
	}
	if cmd.Verbose {
		cfg.Verbose = e.stderr
	}
	if cmd.Mutate != "" && cmd.Replay == 0 {
		return cmd.mutate(e, cfg)
	}
	report, err := torture.Run(e.ctx, cfg)
	if err != nil {
		return err
	}
	if cmd.JSON {
		err = e.json(report)
	} else {
		err = report.WriteText(e.stdout)
	}
	if err == nil && !report.OK {
		err = &exitError{exitNotSatisfied, errors.New("a promise was broken: see above, with the command that replays it")}
	}
	return err
}

// mutate runs one mutant or all of them. Here a broken promise is what is asked
// for.
func (cmd *tortureCmd) mutate(e *env, cfg torture.Config) error {
	names := []string{cmd.Mutate}
	if cmd.Mutate == "all" {
		names = mutants.Names()
	}
	result, err := torture.Mutants(e.ctx, cfg, names)
	if err != nil {
		return err
	}
	if cmd.JSON {
		err = e.json(result)
	} else {
		err = result.WriteText(e.stdout)
	}
	if err == nil && !result.OK {
		err = &exitError{exitNotSatisfied, fmt.Errorf("a protection was switched off and nothing was missed: the campaign does not see what it protects")}
	}
	return err
}
