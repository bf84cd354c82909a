package main

import (
	"errors"
	"time"

	"holdover/internal/app"
	"holdover/internal/calibrate"
)

type calibrateCmd struct {
	Duration time.Duration `help:"How long buyers come." default:"1m"`
	Rate     float64       `help:"Buyers a second." default:"200"`
	Seed     uint64        `help:"What the buyers buy follows from it." default:"1"`
	Baskets  string        `help:"JSON lines {\"cart\":N,\"items\":[...]} to buy, instead of generated carts." placeholder:"FILE" type:"path"`
	Redis    string        `help:"A Redis of your own, an empty one: its keys stay. Without it two servers are started." placeholder:"HOST:PORT"`
	Second   string        `help:"The second one." placeholder:"HOST:PORT"`
	Out      string        `help:"Write the report here, for holdover report --noise." placeholder:"FILE" type:"path"`
	JSON     bool          `help:"One JSON object on stdout."`
}

func (cmd *calibrateCmd) Run(e *env) (err error) {
	if cmd.Duration < time.Second || cmd.Rate <= 0 {
		return usage("--duration %s, --rate %v: must be at least 1s, and positive", cmd.Duration, cmd.Rate)
	}
	cfg := calibrate.Config{Duration: cmd.Duration, Rate: cmd.Rate, Seed: cmd.Seed, First: cmd.Redis, Second: cmd.Second, Progress: e.stderr}
	if cfg.Logger, err = e.logger("error"); err != nil {
		return err
	}
	if cmd.Baskets != "" {
		if cfg.Baskets, err = readBaskets(cmd.Baskets); err != nil {
			return err
		}
	}
	result, err := calibrate.Run(e.ctx, cfg)
	if err != nil {
		return err
	}
	if cmd.Out != "" {
		if err := app.WriteReportFile(cmd.Out, result.Report, app.FormatJSON); err != nil {
			return err
		}
	}
	if cmd.JSON {
		err = e.json(result)
	} else {
		err = result.WriteText(e.stdout)
	}
	switch {
	case err != nil:
		return err
	case result.Pairs == 0:
		return &exitError{exitNothing, errors.New("nothing was compared")}
	case !result.OK:
		return &exitError{exitNotSatisfied, errors.New("the two servers gave different answers: see above")}
	}
	return nil
}
