package main

import (
	"context"
	"fmt"
	"strings"

	"holdover/internal/app"
)

type serveCmd struct {
	configFlags
	Check  bool   `help:"Validate the configuration and the flag file, print what would run, and stop."`
	Listen string `help:"Address to listen on instead of the configured one." placeholder:"HOST:PORT"`
	Mutate string `hidden:"" help:"For holdover torture alone: serve without a protection."`
}

func (cmd *serveCmd) Run(e *env) error {
	if cmd.LogLevel == "" {
		cmd.LogLevel = "info"
	}
	c, err := cmd.load(e)
	if err != nil {
		return err
	}
	c.Mutate = cmd.Mutate
	if cmd.Listen != "" {
		c.Listen = cmd.Listen
		if err := c.Validate(); err != nil {
			return usage("--%w", err)
		}
	}
	if cmd.Check {
		return check(e, c)
	}
	a, err := app.New(e.ctx, c)
	if err != nil {
		return err
	}
	err = a.Serve(e.ctx, func(addr string) {
		fmt.Fprintf(e.stderr, "holdover %s: instance %s serves %s on http://%s\n", version, c.Instance, count(len(c.Pods), "pod"), addr)
	})
	if closeErr := a.Close(context.WithoutCancel(e.ctx)); err == nil {
		err = closeErr
	}
	return err
}

// check says what serve would do. It asks no store.
func check(e *env, c app.Config) error {
	for _, p := range c.Pods {
		desired := desiredFromFile(c, p.Name)
		wants := "the flag wants " + desired.Stage.String()
		switch {
		case c.Flags.File == "":
			wants = "no flag file: stays where its stores agree it is"
		case !desired.Known:
			return usage("%s", desired.Err)
		}
		fmt.Fprintf(e.stdout, "pod %s: shops %s; redis %s; %s\n", p.Name, strings.Join(p.Shops, ", "), p.Redis.Addr+p.Redis.MasterName, wants)
	}
	token := "operator routes are closed: HOLDOVER_OPERATOR_TOKEN is not set"
	if c.OperatorToken != "" {
		token = "operator routes want the token"
	}
	_, err := fmt.Fprintf(e.stdout, "ok: instance %s would serve %s on %s; %s. No store was asked.\n", c.Instance, count(len(c.Pods), "pod"), c.Listen, token)
	return err
}

type versionCmd struct{}

func (versionCmd) Run(e *env) error {
	_, err := fmt.Fprintln(e.stdout, "holdover", version)
	return err
}
