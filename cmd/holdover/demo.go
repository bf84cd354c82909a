package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"holdover/internal/app"
	"holdover/internal/demo"
)

type demoCmd struct {
	Duration  time.Duration     `help:"How long buyers come." default:"60s"`
	Seed      uint64            `help:"What the buyers do follows from it." default:"1"`
	Baskets   string            `help:"JSON lines {\"cart\":N,\"items\":[...]} to buy, instead of generated carts." placeholder:"FILE"`
	Out       string            `help:"Where the report's page goes; holdover-demo.html, and with --json only when this is given." placeholder:"FILE" type:"path"`
	JSON      bool              `help:"One JSON object on stdout."`
	Keep      bool              `help:"Leave the folder with the servers' data and the divergence events in place."`
	MySQLDSN  string            `name:"mysql-dsn" help:"A MySQL server of your own; schemas are made in it and dropped." placeholder:"DSN"`
	RedisAddr map[string]string `name:"redis-addr" help:"A Redis of your own for a pod." placeholder:"POD=HOST:PORT"`
	Verbose   bool              `help:"Log every decision to stderr."`
}

func (cmd *demoCmd) Run(e *env) error {
	if cmd.Duration <= 0 {
		return usage("--duration %s: must be positive, from 5s on", cmd.Duration)
	}
	cfg := demo.Config{Duration: cmd.Duration, Seed: cmd.Seed, Keep: cmd.Keep, Version: version, Progress: e.stderr, MySQLDSN: cmd.MySQLDSN, RedisAddrs: cmd.RedisAddr}
	for pod := range cmd.RedisAddr {
		if !strings.Contains(" "+strings.Join(demo.PodNames(), " ")+" ", " "+pod+" ") {
			return usage("--redis-addr %s: the demo's pods are %s", pod, strings.Join(demo.PodNames(), ", "))
		}
	}
	if cmd.Verbose {
		cfg.Logger = slog.New(slog.NewTextHandler(e.stderr, nil))
	}
	if cmd.Baskets != "" {
		var err error
		if cfg.Baskets, err = readBaskets(cmd.Baskets); err != nil {
			return err
		}
	}
	result, err := demo.Run(e.ctx, cfg)
	if err != nil {
		return err
	}
	if cmd.JSON {
		err = e.json(result)
	} else {
		err = result.WriteText(e.stdout)
	}
	page := cmd.Out
	if page == "" && !cmd.JSON {
		page = "holdover-demo.html"
	}
	if err == nil && page != "" {
		if err = app.WriteReportFile(page, result.Report, app.FormatHTML); err == nil {
			fmt.Fprintln(e.stderr, "the report as a page to read and sign:", page)
		}
	}
	if err == nil && !result.OK {
		err = &exitError{exitNotSatisfied, errors.New("the demo found a fault: see above")}
	}
	if cmd.Keep {
		fmt.Fprintln(e.stderr, "kept:", result.Folder)
	}
	return err
}
