package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"holdover/compare"
)

type reportCmd struct {
	podFlags
	Events []string `help:"Event files to read instead of the configured folder's." placeholder:"FILE" type:"path"`
	JSON   bool     `help:"One JSON object on stdout."`
}

func (reportCmd) Help() string {
	return "It reads the event files of all instances, so that it needs none that runs. A file is brought up to date every 30 seconds and when its instance ends."
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
