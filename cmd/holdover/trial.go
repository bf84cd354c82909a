package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"holdover/internal/trial"
)

// trialFlags are those of selftest --verdicts.
type trialFlags struct {
	Duration time.Duration `help:"How long buyers come in each case, with --verdicts." default:"60s"`
	Case     []string      `help:"Only this case, with --verdicts." placeholder:"NAME"`
	Seed     uint64        `help:"What the buyers do follows from it, with --verdicts." default:"1"`
	Baskets  string        `help:"JSON lines {\"cart\":N,\"items\":[...]} to buy, with --verdicts, instead of generated carts." placeholder:"FILE" type:"path"`
}

// verdicts tries the report.
func (cmd *selftestCmd) verdicts(e *env) error {
	if cmd.Dev || len(cmd.Pod) > 0 || cmd.All || cmd.MySQLDSN != "" || cmd.RedisAddr != "" {
		return usage("--verdicts has servers and pods of its own: leave --dev, --pod, --all, --mysql-dsn and --redis-addr out")
	}
	cfg := trial.Config{Duration: cmd.Duration, Cases: cmd.Case, Rate: cmd.Rate, Seed: cmd.Seed, Progress: e.stderr, Logger: slog.New(slog.DiscardHandler)}
	if cmd.Verbose {
		cfg.Logger = slog.New(slog.NewTextHandler(e.stderr, nil))
	}
	if cmd.Baskets != "" {
		var err error
		if cfg.Baskets, err = readBaskets(cmd.Baskets); err != nil {
			return err
		}
	}
	if cmd.Duration < time.Minute {
		fmt.Fprintf(e.stderr, "%s is short: it takes about 8,062 compared observations to rule out 0.1 %%, so that the case without a bug may have no verdict\n", cmd.Duration)
	}
	result, err := trial.Run(e.ctx, cfg)
	if err != nil {
		return err
	}
	if cmd.JSON {
		err = e.json(result)
	} else {
		err = writeTrial(e, result)
	}
	if err == nil && !result.OK {
		err = &exitError{exitNotSatisfied, errors.New("a verdict was not as it should be: " + strings.Join(result.Wrong, "; "))}
	}
	return err
}

func writeTrial(e *env, r trial.Result) error {
	w := tabwriter.NewWriter(e.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "case\tbug\tverdict\tcompared\tunexplained\tgates that did not hold")
	for _, c := range r.Cases {
		var gates []string
		for _, b := range c.Broken {
			gates = append(gates, b.Gate)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d of %d\t%d\t%s\n", c.Name, c.Mutant, c.Verdict, c.Compared, c.Eligible, c.Unexplained, strings.Join(gates, ", "))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	word := "every verdict is as it should be"
	if !r.OK {
		word = "NOT OK:\n  " + strings.Join(r.Wrong, "\n  ")
	}
	_, err := fmt.Fprintf(e.stdout, "%s (%.0f s)\n", word, r.Seconds)
	return err
}
