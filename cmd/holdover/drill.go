package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"holdover/internal/app"
)

type drillCmd struct{ changeFlags }

func (drillCmd) Help() string {
	return "The kill is rehearsed and measured: the pod is tripped as by `holdover kill`, every live instance has to acknowledge, and the latch is taken off at once, also after Ctrl-C. " +
		"In redis and shadow no truth changes: the stage stays. In joint and mysql it is the real thing: the pod goes to shadow, where Redis decides, and its driver takes it forward again through joint. " +
		"It is refused, exit 3, while a kill would lose anything, while the pod is latched, and in mysql-only; nothing overrides that. " +
		"A kill by somebody else meanwhile stays. The outcome is kept in MySQL and shown by status; rollout.drill_max_age makes it a condition of each step forward. " +
		"Exit 3: somebody had not acknowledged in time, or somebody else moved the pod; 1: the pod may still be latched, or the outcome could not be kept."
}

func (cmd *drillCmd) Run(e *env) error {
	if err := cmd.who(); err != nil {
		return err
	}
	results, errs, err := onPods(e, &cmd.podFlags, app.OpenStores, func(c app.Config, s *app.Stores) (app.DrilledPod, error) {
		return app.Drill(e.ctx, s, app.DrillOptions{By: cmd.By, Reason: cmd.Reason, DryRun: cmd.DryRun, Desired: desiredFromFile(c, s.Name), Dwell: c.Timing.Dwell})
	})
	if err != nil {
		return err
	}
	failed := drilledWorst(errs)
	if cmd.JSON {
		if err := e.json(map[string]any{"ok": failed == nil, "pods": results}); err != nil {
			return err
		}
		return failed
	}
	for i, r := range results {
		if r.Result.Pod != "" && (errs[i] == nil || r.Result.Latched != nil || len(r.Result.Reasons) > 0) {
			printDrill(e.stdout, r.Result)
		}
	}
	return failed
}

// drilledWorst joins the errors; the code is 3 unless one is worse than a drill
// that was refused or failed.
func drilledWorst(errs []error) error {
	failed := errors.Join(errs...)
	if failed == nil {
		return nil
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, app.ErrDrillRefused) && !errors.Is(err, app.ErrDrillFailed) {
			return failed
		}
	}
	return &exitError{exitNotSatisfied, failed}
}

func printDrill(w io.Writer, d app.DrilledPod) {
	switch {
	case d.DryRun && d.Would != "":
		fmt.Fprintf(w, "pod %s: would %s\n", d.Pod, d.Would)
		return
	case len(d.Reasons) > 0:
		fmt.Fprintf(w, "pod %s: NO DRILL: nothing was changed\n", d.Pod)
		for _, why := range d.Reasons {
			line(w, "no", withDo(why))
		}
		return
	}
	word := "DRILLED"
	if !d.OK {
		word = "DRILL FAILED"
	}
	fmt.Fprintf(w, "%s  pod %s: %s -> %s, latched at epoch %d, and back\n", word, d.Pod, d.From.Stage, d.Latched.Stage, d.Latched.Epoch)
	kill := fmt.Sprintf("%s acknowledged after %.0f ms: %s", count(len(d.Acknowledged), "instance"), d.KillMS, strings.Join(d.Acknowledged, ", "))
	switch {
	case len(d.Acknowledged) == 0:
		kill = "no instance acknowledged"
	case len(d.Missing) > 0:
		kill = fmt.Sprintf("%s acknowledged, %d not within %.0f ms: %s", count(len(d.Acknowledged), "instance"), len(d.Missing), d.KillMS, strings.Join(d.Acknowledged, ", "))
	}
	line(w, "kill", kill)
	switch {
	case d.Restored && len(d.RestoreMissing) > 0:
		line(w, "restore", fmt.Sprintf("not acknowledged by %d within %.0f ms", len(d.RestoreMissing), d.RestoreMS))
	case d.Restored:
		line(w, "restore", fmt.Sprintf("acknowledged after %.0f ms", d.RestoreMS))
	}
	if d.Carried > 0 {
		line(w, "carried", count(d.Carried, "unmirrored hold")+" of MySQL's journal, together with the flip")
	}
	if d.Problem != "" {
		line(w, "FAULT", d.Problem)
	}
	if !d.Recorded {
		line(w, "NOT KEPT", "the outcome could not be written to MySQL: status shows the drill before this one")
	}
	line(w, "now", d.Now)
	line(w, "next", d.Next)
}
