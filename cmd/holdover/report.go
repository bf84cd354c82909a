package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"holdover/compare"
	"holdover/internal/app"
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

type verifyCmd struct {
	podFlags
	JSON bool `help:"One JSON object on stdout."`
}

func (verifyCmd) Help() string {
	return "Counters, holds and ledger of both stores are read while buyers go on. What differs is looked at again after the configured re-check time: what is only late is no difference. In redis and after a fresh start of dual writing holds that only Redis has are expected; they end by their time to live."
}

// Run verifies all chosen pods at once; one that can't be verified stops no other.
func (cmd *verifyCmd) Run(e *env) error {
	cmd.All = cmd.All || len(cmd.Pod) == 0
	c, all, closeAll, err := cmd.stores(e)
	if err != nil {
		return err
	}
	defer closeAll()
	found, errs := make([]compare.Verification, len(all)), make([]error, len(all))
	var verifying sync.WaitGroup
	for i, s := range all {
		verifying.Go(func() { found[i], errs[i] = app.Verify(e.ctx, c, s) })
	}
	verifying.Wait()
	results, clean, items := []compare.Verification{}, true, 0
	for i, v := range found {
		if errs[i] != nil {
			continue
		}
		clean, items = clean && v.Clean, items+v.Items
		results = append(results, v)
		if cmd.JSON {
			continue
		}
		fmt.Fprintf(e.stdout, "pod %s: %s\n", v.Pod, v.Summary())
		for _, d := range v.Differences {
			fmt.Fprintf(e.stdout, "  %s\n", d)
		}
		for _, d := range v.Unsettled {
			fmt.Fprintf(e.stdout, "  never stood still: %s\n", d)
		}
	}
	err = errors.Join(errs...)
	if cmd.JSON {
		if err := e.json(map[string]any{"clean": clean && err == nil, "pods": results}); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return err
	case items == 0:
		return &exitError{exitNothing, errors.New("nothing to verify: no stock is imported")}
	case !clean:
		return &exitError{exitNotSatisfied, errors.New("the stores differ, or did not stand still")}
	}
	return nil
}
