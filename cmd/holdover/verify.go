package main

import (
	"errors"
	"fmt"
	"sync"

	"holdover/compare"
	"holdover/internal/app"
	"holdover/mysqlpool"
)

type verifyCmd struct {
	podFlags
	Store string `enum:"both,mysql" default:"both" help:"both: compare the two stores. mysql: check MySQL's own sums, without Redis." placeholder:"STORE"`
	JSON  bool   `help:"One JSON object on stdout."`
}

func (verifyCmd) Help() string {
	return "Counters, holds and ledger of both stores are read while buyers go on. What differs is looked at again after the configured re-check time: what is only late is no difference. In redis and after a fresh start of dual writing holds that only Redis has are expected; they end by their time to live. " +
		"With --store mysql every item and location is checked in MySQL alone: available >= issued >= 0, issued = pool rows + held, and the sum of the ledger's entries = available."
}

// Run verifies all chosen pods at once; one that can't be verified stops no other.
func (cmd *verifyCmd) Run(e *env) error {
	cmd.All = cmd.All || len(cmd.Pod) == 0
	c, all, closeAll, err := cmd.stores(e)
	if err != nil {
		return err
	}
	defer closeAll()
	if cmd.Store == "mysql" {
		return cmd.conserve(e, all)
	}
	found, errs := onAll(all, func(s *app.Stores) (compare.Verification, error) { return app.Verify(e.ctx, c, s) })
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
	return cmd.verdict(e, clean, items, results, errors.Join(errs...), "the stores differ, or did not stand still")
}

// conserve checks MySQL alone.
func (cmd *verifyCmd) conserve(e *env, all []*app.Stores) error {
	found, errs := onAll(all, func(s *app.Stores) (mysqlpool.Conservation, error) {
		return s.MySQL.Conserve(e.ctx, mysqlpool.ConserveConfig{})
	})
	results, ok, rows := []mysqlpool.Conservation{}, true, 0
	for i, c := range found {
		if errs[i] != nil {
			continue
		}
		ok, rows = ok && c.OK(), rows+c.Rows+c.Violating // units without a row are something to judge
		results = append(results, c)
		if cmd.JSON {
			continue
		}
		fmt.Fprintf(e.stdout, "pod %s: %s\n", c.Pod, c.Summary())
		for _, v := range c.Violations {
			fmt.Fprintf(e.stdout, "  %s\n", v)
		}
	}
	return cmd.verdict(e, ok, rows, results, errors.Join(errs...), "stock is not conserved")
}

// verdict prints the JSON object and chooses the exit code.
func (cmd *verifyCmd) verdict(e *env, clean bool, looked int, results any, err error, no string) error {
	if cmd.JSON {
		if err := e.json(map[string]any{"clean": clean && err == nil, "pods": results}); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return err
	case looked == 0:
		return &exitError{exitNothing, errors.New("nothing to verify: no stock is imported")}
	case !clean:
		return &exitError{exitNotSatisfied, errors.New(no)}
	}
	return nil
}

// onAll asks all pods at once.
func onAll[T any](all []*app.Stores, ask func(*app.Stores) (T, error)) ([]T, []error) {
	found, errs := make([]T, len(all)), make([]error, len(all))
	var asking sync.WaitGroup
	for i, s := range all {
		asking.Go(func() { found[i], errs[i] = ask(s) })
	}
	asking.Wait()
	return found, errs
}
