package main

import (
	"context"
	"fmt"

	"holdover/internal/app"
)

type serveCmd struct {
	configFlags
	Check  bool   `help:"Validate the configuration and the flag file, print what would run, and stop."`
	Listen string `help:"Address to listen on instead of the configured one." placeholder:"HOST:PORT"`
}

func (cmd *serveCmd) Run(e *env) error {
	c, err := cmd.load(e)
	if err != nil {
		return err
	}
	if cmd.Listen != "" {
		c.Listen = cmd.Listen
	}
	if cmd.Check {
		for _, p := range c.Pods {
			desired := desiredFromFile(c, p.Name)
			if c.Flags.File != "" && !desired.Known {
				return usage("flags: %s", desired.Err)
			}
			fmt.Fprintf(e.stdout, "pod %s: shops %v, redis %s, desired stage %s\n", p.Name, p.Shops, p.Redis.Addr+p.Redis.MasterName, desired.Stage)
		}
		fmt.Fprintf(e.stdout, "ok: instance %s would serve %d pods on %s\n", c.Instance, len(c.Pods), c.Listen)
		return nil
	}
	a, err := app.New(e.ctx, c)
	if err != nil {
		return err
	}
	err = a.Serve(e.ctx, func(addr string) {
		fmt.Fprintf(e.stderr, "holdover %s: instance %s serves %d pods on http://%s\n", version, c.Instance, len(c.Pods), addr)
	})
	if closeErr := a.Close(context.WithoutCancel(e.ctx)); err == nil {
		err = closeErr
	}
	return err
}

type versionCmd struct{}

func (versionCmd) Run(e *env) error {
	_, err := fmt.Fprintln(e.stdout, "holdover", version)
	return err
}
