package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/internal/app"
	"holdover/mysqlpool"
)

type verifyCmd struct {
	changeFlags
	Store     string `enum:"both,mysql" default:"both" help:"both: compare the two stores. mysql: check MySQL's own sums, without Redis." placeholder:"STORE"`
	Repair    bool   `help:"Bring the store that follows to where the deciding one is, then verify again. Needs --reason, or --dry-run."`
	FromMySQL bool   `name:"from-mysql" help:"With --repair: where Redis decides and its data is lost for good, fill it from what MySQL has copied. Holds that were not copied yet are lost."`
	Counters  bool   `help:"With --repair: set counters also where Redis decides. Somebody else may have sold those units: look first."`
}

func (verifyCmd) Help() string {
	return "Counters, holds and ledger of both stores are read while buyers go on. What differs is looked at again after the configured re-check time: what is only late is no difference. In redis and after a fresh start of dual writing holds that only Redis has are expected; they end by their time to live. " +
		"With --repair each difference that stood still is repaired by its token, toward the store that decides: in shadow and joint Redis, in mysql MySQL. A Redis that lost its data, or has older data, while MySQL decides is filled from MySQL first. " +
		"Where Redis decides, such a Redis is never clean and nothing is repaired, exit 3: bring back its own data, or give it up with --from-mysql. " +
		"In mysql counters are moved to what ledger and holds say; where Redis decides only with --counters. In redis only counters are repaired; in mysql-only there is nothing to compare. Each change is recorded in holdover_repairs before it is made. Exit 3 while differences remain. " +
		"With --store mysql every item and location is checked in MySQL alone: available >= issued >= 0, issued = pool rows + held, and the sum of the ledger's entries = available."
}

// Run verifies all chosen pods at once; one that can't be verified stops no other.
func (cmd *verifyCmd) Run(e *env) error {
	cmd.All = cmd.All || len(cmd.Pod) == 0 && (!cmd.Repair || cmd.DryRun) // what writes is told where
	switch {
	case cmd.Repair && cmd.Store == "mysql":
		return usage("--repair works on both stores: leave --store out")
	case !cmd.Repair && (cmd.DryRun || cmd.Counters || cmd.FromMySQL):
		return usage("--dry-run, --counters and --from-mysql belong to --repair")
	}
	if cmd.Repair {
		if cmd.DryRun && strings.TrimSpace(cmd.Reason) == "" {
			cmd.Reason = "a dry run" // nothing is recorded
		}
		if err := cmd.who(); err != nil {
			return err
		}
	}
	switch {
	case cmd.Store == "mysql":
		return cmd.conserve(e)
	case cmd.Repair:
		return cmd.repair(e)
	}
	by := cmd.By
	if by == "" {
		by, _ = whoami() // the instance's name stands for an unknown user
	}
	found, errs, err := onPods(e, &cmd.podFlags, app.OpenStores, func(c app.Config, s *app.Stores) (compare.Verification, error) {
		return app.VerifyFor(e.ctx, c, s, app.VerifyOptions{By: by, Progress: progress(e.stderr, s.Name)})
	})
	if err != nil {
		return err
	}
	results, clean, items := []compare.Verification{}, true, 0
	for i, r := range found {
		v := r.Result
		if errs[i] != nil && (!errors.Is(errs[i], app.ErrRedisLost) || v.Items == 0) {
			continue
		}
		clean, items = clean && v.Clean, items+v.Items
		results = append(results, v)
		if !cmd.JSON {
			printVerification(e.stdout, v)
		}
	}
	return cmd.verdict(e, clean, items, results, errors.Join(errs...), "the stores differ, or did not stand still: `holdover status` says what that means now, `holdover verify --repair --dry-run` what would be repaired")
}

func printVerification(w io.Writer, v compare.Verification) {
	fmt.Fprintf(w, "pod %s: %s\n", v.Pod, v.Summary())
	for _, d := range v.Differences {
		fmt.Fprintf(w, "  %s\n", d)
	}
	for _, d := range v.Unsettled {
		fmt.Fprintf(w, "  never stood still: %s\n", d)
	}
	for _, who := range v.Strangers {
		fmt.Fprintf(w, "  connected to this Redis and not holdover: %s\n", who)
	}
}

// repair repairs all chosen pods at once.
func (cmd *verifyCmd) repair(e *env) error {
	found, errs, err := onPods(e, &cmd.podFlags, app.OpenStores, func(c app.Config, s *app.Stores) (app.RepairedPod, error) {
		say := progress(e.stderr, s.Name)
		return app.Repair(e.ctx, c, s, app.RepairOptions{
			By: cmd.By, Reason: cmd.Reason, DryRun: cmd.DryRun, Counters: cmd.Counters, FromMySQL: cmd.FromMySQL, Progress: say,
			Rebuilding: func(holds, items int) { say(holds+items, 0, 0) },
		})
	})
	if err != nil {
		return err
	}
	clean, items, results := true, 0, make([]app.RepairedPod, len(found))
	for i := range found {
		r := found[i].Result
		if r.Pod == "" { // it could not be opened
			r = app.RepairedPod{Pod: found[i].Pod, DryRun: cmd.DryRun, Repairs: []compare.Repaired{}, Error: found[i].Err}
		}
		results[i] = r
		if r.Found != nil {
			items += r.Found.Items
		}
		if r.Rebuild != "" {
			items++ // something to judge
		}
		clean = clean && r.Clean && errs[i] == nil
		if !cmd.JSON && (errs[i] == nil || len(r.Repairs) > 0) {
			printRepair(e.stdout, r)
		}
	}
	return cmd.verdict(e, clean, items, results, errors.Join(errs...), "differences remain")
}

func printRepair(w io.Writer, r app.RepairedPod) {
	fmt.Fprintf(w, "pod %s: in %s. %s\n", r.Pod, r.Stage, r.Rule)
	if r.Rebuild != "" {
		line(w, "rebuild", r.Rebuild)
	}
	if r.Rebuilt != nil {
		line(w, "rebuilt", fmt.Sprintf("%s, %s and %s in %s", count(r.Rebuilt.Holds, "hold"), count(r.Rebuilt.Ended, "end record"), count(r.Rebuilt.Items, "counter"), r.Rebuilt.Took.Round(time.Millisecond)))
	}
	if r.Found != nil {
		printVerification(w, *r.Found)
	}
	for _, done := range r.Repairs {
		fmt.Fprintf(w, "  %s\n", done)
	}
	if r.After != nil {
		fmt.Fprint(w, "after the repair: ")
		printVerification(w, *r.After)
	}
}

// progressEvery is how often progress is printed.
const progressEvery = 5 * time.Second

// progress prints how far a pod is, now and then; a short run prints nothing.
func progress(w io.Writer, pod string) func(done, total int, left time.Duration) {
	var mu sync.Mutex
	last := time.Now()
	return func(done, total int, left time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		if total == 0 {
			fmt.Fprintf(w, "pod %s: %d written\n", pod, done)
			return
		}
		fmt.Fprintf(w, "pod %s: %d of %d read, about %s left\n", pod, done, total, left.Round(time.Second))
	}
}

// conserve checks MySQL alone.
func (cmd *verifyCmd) conserve(e *env) error {
	found, errs, err := onPods(e, &cmd.podFlags, app.OpenStores, func(_ app.Config, s *app.Stores) (mysqlpool.Conservation, error) {
		return s.MySQL.Conserve(e.ctx, mysqlpool.ConserveConfig{})
	})
	if err != nil {
		return err
	}
	results, ok, rows := []mysqlpool.Conservation{}, true, 0
	for i, r := range found {
		c := r.Result
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
	case errors.Is(err, app.ErrNothingToVerify) && looked == 0:
		return &exitError{exitNothing, err}
	case holdover.NoAnswer(err):
		return fmt.Errorf("%w\nA store did not answer, so nothing is known of what differs there: bring it back and run this again; `holdover status` says what that means for buyers", err)
	case errors.Is(err, app.ErrRedisLost):
		return &exitError{exitNotSatisfied, err}
	case err != nil:
		return err
	case looked == 0:
		return &exitError{exitNothing, errors.New("nothing to verify: no stock is imported")}
	case !clean:
		return &exitError{exitNotSatisfied, errors.New(no)}
	}
	return nil
}
