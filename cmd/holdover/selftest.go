package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"holdover/internal/app"
	"holdover/internal/plant"
	"holdover/internal/selftest"
)

type selftestCmd struct {
	podFlags
	Dev      bool `help:"On servers of its own, under load and with real flips, instead of a pod's reserved shop."`
	Verdicts bool `help:"Try the report itself, on servers of its own: does it pass a new path without a bug, and fail each of three with one?"`
	trialFlags
	Times     int     `help:"How often each kind is planted; 20 with --dev, else once." placeholder:"N"`
	Rate      float64 `help:"Buyers a second on other shops meanwhile, 40 with --dev; of each case, 100 with --verdicts." placeholder:"N"`
	JSON      bool    `help:"One JSON object on stdout."`
	MySQLDSN  string  `name:"mysql-dsn" help:"With --dev: a MySQL server of your own; a schema is made in it and dropped." placeholder:"DSN"`
	RedisAddr string  `name:"redis-addr" help:"With --dev: a Redis of your own." placeholder:"HOST:PORT"`
	Verbose   bool    `help:"Log every planted observation to stderr."`
}

func (cmd *selftestCmd) Run(e *env) error {
	if cmd.Verdicts {
		return cmd.verdicts(e)
	}
	if cmd.Times < 0 || cmd.Rate < 0 {
		return usage("--times %d, --rate %v: must be positive", cmd.Times, cmd.Rate)
	}
	var result plant.Result
	var err error
	if cmd.Dev {
		result, err = cmd.dev(e)
	} else {
		result, err = cmd.live(e)
	}
	if err != nil {
		return err
	}
	if cmd.JSON {
		err = e.json(result)
	} else {
		err = result.WriteText(e.stdout)
	}
	if err != nil || result.OK {
		return err
	}
	return notOK(result)
}

func (selftestCmd) Help() string {
	return "Divergences are planted in a pod's reserved shop, in the real stores, and counted as the report counts them: is each seen as what it is? " +
		"Exit 3: one was missed or taken for something else. Exit 4: some could not be planted, or not judged, and nothing speaks against the comparator; the message says why and what to do."
}

// notOK tells a comparator that is wrong from a test that could not be made.
func notOK(r plant.Result) error {
	switch {
	case r.Blind():
		return &exitError{exitNotSatisfied, errors.New("a planted divergence was not seen as what it is: a report proves nothing until that is mended")}
	case len(r.Failed) > 0:
		return &exitError{exitNothing, fmt.Errorf("%s\nThat says nothing of the comparator: mend it and run the self-test again", strings.Join(r.Failed, "\n"))}
	}
	return &exitError{exitNothing, fmt.Errorf("%d plants could not be judged, for a store did not answer or not in time: run it again when the machine is less busy", r.Unjudged)}
}

func (cmd *selftestCmd) dev(e *env) (plant.Result, error) {
	if len(cmd.Pod) > 0 || cmd.All {
		return plant.Result{}, usage("--dev has a pod of its own: leave --pod and --all out")
	}
	cfg := selftest.Config{Times: cmd.Times, Rate: cmd.Rate, Progress: e.stderr, MySQLDSN: cmd.MySQLDSN, RedisAddr: cmd.RedisAddr, Logger: slog.New(slog.DiscardHandler)}
	if cmd.Verbose {
		cfg.Logger = slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	app.RouteDriverLogs(cfg.Logger)
	return selftest.Run(e.ctx, cfg)
}

func (cmd *selftestCmd) live(e *env) (plant.Result, error) {
	if cmd.MySQLDSN != "" || cmd.RedisAddr != "" {
		return plant.Result{}, usage("--mysql-dsn and --redis-addr are for --dev: a live pod's stores are configured")
	}
	c, err := cmd.load(e)
	if err != nil {
		return plant.Result{}, err
	}
	chosen, err := cmd.choose(c)
	switch {
	case err != nil:
		return plant.Result{}, err
	case len(chosen) != 1:
		return plant.Result{}, usage("one pod at a time: give --pod NAME")
	}
	s, err := app.OpenStores(e.ctx, c, chosen[0])
	if err != nil {
		return plant.Result{}, err
	}
	result, err := app.SelfTest(e.ctx, c, s, max(cmd.Times, 1))
	return result, errors.Join(err, s.Close(context.WithoutCancel(e.ctx)))
}
