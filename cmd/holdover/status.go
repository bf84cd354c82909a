package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/app"
	"holdover/internal/httpapi"
	"holdover/rollout"
)

type statusCmd struct {
	podFlags
	JSON bool `help:"One JSON object on stdout."`
}

// Run asks the stores themselves: it works without any instance running.
func (cmd *statusCmd) Run(e *env) error {
	cmd.All = cmd.All || len(cmd.Pod) == 0
	c, all, closeAll, err := cmd.stores(e)
	if err != nil {
		return err
	}
	defer closeAll()
	list := httpapi.PodList{}
	for _, s := range all {
		facade, err := dualwrite.New(dualwrite.Config{Pod: s.Name, Instance: c.Instance, Redis: s.Redis, MySQL: s.MySQL})
		if err != nil {
			return err
		}
		if err := facade.Look(e.ctx); err != nil && !errors.Is(err, holdover.ErrNotReady) {
			return err
		}
		status, err := app.Status(e.ctx, s, facade, desiredFromFile(c, s.Name))
		if err != nil {
			return err
		}
		list.Pods = append(list.Pods, status)
	}
	if cmd.JSON {
		return e.json(list)
	}
	for _, p := range list.Pods {
		printStatus(e.stdout, p)
	}
	return nil
}

// desiredFromFile evaluates the flag file once, as serve does all the time.
func desiredFromFile(c app.Config, pod string) rollout.Desired {
	d := rollout.Desired{Pod: pod}
	if c.Flags.File == "" {
		d.Err = "no flag file is configured: the fence rules"
		return d
	}
	text, err := readFile(c.Flags.File, maxConfig)
	if err == nil {
		var set *rollout.FlagSet
		if set, err = rollout.ParseFlags(text); err == nil {
			choice := set.For(pod)
			d.Known, d.Stage, d.Variant, d.Reason = true, choice.Stage, choice.Variant, "DEFAULT"
			if choice.Targeted {
				d.Reason = "TARGETING_MATCH"
			}
			return d
		}
	}
	d.Err = fmt.Sprintf("%s: %v", c.Flags.File, err)
	return d
}

func printStatus(w io.Writer, p httpapi.PodStatus) {
	fmt.Fprintf(w, "pod %s\n", p.Pod)
	if p.Agreed != nil {
		fmt.Fprintf(w, "  now        %s\n", p.Agreed)
	}
	fmt.Fprintf(w, "  flag       %s (%s)\n", p.Desired.Stage, p.Desired.Reason)
	fmt.Fprintf(w, "  redis      %s\n", fenceLine(p.Redis, p.RedisProblem))
	fmt.Fprintf(w, "  mysql      %s\n", fenceLine(p.MySQL, p.MySQLProblem))
	fmt.Fprintf(w, "  unmirrored %d facts in the journal%s\n", p.Journal.Rows, oldest(p.Journal))
	for _, i := range p.Instances {
		late := ""
		if p.Agreed != nil && i.Epoch != p.Agreed.Epoch {
			late = "  <- has not acknowledged"
		}
		fmt.Fprintf(w, "  instance   %s at epoch %d, seen %s ago, %d unmirrored%s\n", i.Name, i.Epoch, time.Duration(i.AgeMS)*time.Millisecond, i.Busy, late)
	}
	if len(p.Instances) == 0 {
		fmt.Fprintln(w, "  instance   none alive")
	}
	printVerdict(w, "forward", p.Readiness.Forward)
	printVerdict(w, "back", p.Readiness.Back)
	printVerdict(w, "kill", p.Readiness.Kill)
	fmt.Fprintf(w, "  next       %s\n", p.Next)
}

func fenceLine(f *holdover.Fence, problem string) string {
	if problem != "" {
		return problem
	}
	if f == nil {
		return "no fence"
	}
	return fmt.Sprintf("epoch %d, %s since %s", f.Epoch, f.Stage, f.At.Format(time.RFC3339))
}

func oldest(j httpapi.JournalStatus) string {
	if j.Rows == 0 {
		return ""
	}
	return ", the oldest for " + (time.Duration(j.OldestMS) * time.Millisecond).String()
}

func printVerdict(w io.Writer, name string, v httpapi.Verdict) {
	word := "no"
	if v.OK {
		word = "yes"
	}
	fmt.Fprintf(w, "  %-10s %s", name, word)
	for _, r := range v.Reasons {
		fmt.Fprintf(w, "; %s", r.Text)
		if r.Do != "" {
			fmt.Fprintf(w, " -> %s", r.Do)
		}
	}
	fmt.Fprintln(w, strings.Repeat("", 0))
}
