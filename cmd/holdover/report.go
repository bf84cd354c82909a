package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"holdover/compare"
	"holdover/internal/app"
)

type reportCmd struct {
	podFlags
	Events []string `help:"Event files to read instead of the configured folder's." placeholder:"FILE" type:"path"`
	JSON   bool     `help:"One JSON object on stdout."`
}

// Run reads the event files of all instances: it needs no running instance.
func (cmd *reportCmd) Run(e *env) error {
	files := cmd.Events
	if len(files) == 0 {
		c, err := cmd.load(e)
		if err != nil {
			return err
		}
		if c.Events == "" {
			return usage("no event files: set `events` in the configuration, or give --events FILE")
		}
		cmd.All = cmd.All || len(cmd.Pod) == 0
		chosen, err := cmd.choose(c)
		if err != nil {
			return err
		}
		for _, p := range chosen {
			found, err := filepath.Glob(filepath.Join(c.Events, p.Name+".*.jsonl*"))
			if err != nil {
				return err
			}
			files = append(files, found...)
		}
		slices.Sort(files)
		if len(files) == 0 {
			return &exitError{exitNothing, fmt.Errorf("nothing to judge: no event files in %s yet", c.Events)}
		}
	}
	report, err := compare.ReadFiles(files...)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return usage("%w", err)
		}
		return err
	}
	if cmd.JSON {
		err = e.json(report)
	} else {
		err = report.WriteText(e.stdout)
	}
	if err != nil {
		return err
	}
	switch report.Verdict {
	case compare.VerdictOK:
		return nil
	case compare.VerdictNotOK:
		return &exitError{exitNotSatisfied, errors.New("the report is not ok")}
	default:
		return &exitError{exitNothing, errors.New("no verdict: too little was compared")}
	}
}

type verifyCmd struct {
	podFlags
	JSON bool `help:"One JSON object on stdout."`
}

func (cmd *verifyCmd) Run(e *env) error {
	c, all, closeAll, err := cmd.stores(e)
	if err != nil {
		return err
	}
	defer closeAll()
	results, clean, items := []compare.Verification{}, true, 0
	for _, s := range all {
		v, err := app.Verify(e.ctx, c, s)
		if err != nil {
			return err
		}
		clean, items = clean && v.Clean, items+v.Items
		results = append(results, v)
		if cmd.JSON {
			continue
		}
		fmt.Fprintf(e.stdout, "pod %s: %s\n", v.Pod, v.Summary())
		for _, d := range slices.Concat(v.Differences, v.Unsettled) {
			fmt.Fprintf(e.stdout, "  %s\n", d.Text)
		}
	}
	if cmd.JSON {
		if err := e.json(map[string]any{"clean": clean, "pods": results}); err != nil {
			return err
		}
	}
	switch {
	case items == 0:
		return &exitError{exitNothing, errors.New("nothing to verify: no stock is imported")}
	case !clean:
		return &exitError{exitNotSatisfied, errors.New("the stores differ, or did not stand still")}
	}
	return nil
}
