package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"holdover/internal/app"
)

// rolloutCmd has the two steps that no flag takes.
type rolloutCmd struct {
	Retire retireCmd `cmd:"" help:"mysql to mysql-only: Redis is closed, and nothing asks it any more. Exit 3 when something speaks against it."`
	Return returnCmd `cmd:"" help:"mysql-only to mysql: Redis is rebuilt from MySQL while buyers are served. Exit 3 when it is not clean afterwards."`
}

// confirmFlags are those of a change that takes its pod's name to confirm.
type confirmFlags struct {
	changeFlags
	Confirm string `help:"The pod's name once more; on a terminal it is asked for." placeholder:"NAME"`
}

// open checks who asks, that it is confirmed, and opens the one pod's stores.
func (f *confirmFlags) open(e *env, what string) (app.Config, *app.Stores, func(), error) {
	fail := func(err error) (app.Config, *app.Stores, func(), error) { return app.Config{}, nil, nil, err }
	if err := f.who(); err != nil {
		return fail(err)
	}
	c, err := f.load(e)
	if err != nil {
		return fail(err)
	}
	chosen, err := f.choose(c)
	switch {
	case err != nil:
		return fail(err)
	case len(chosen) != 1:
		return fail(usage("one pod at a time: give --pod NAME"))
	}
	if err := f.confirmed(e, chosen[0].Name, what); err != nil {
		return fail(err)
	}
	f.Pod, f.All = []string{chosen[0].Name}, false
	c, all, closeAll, err := f.stores(e)
	if err != nil {
		return fail(err)
	}
	return c, all[0], closeAll, nil
}

func (f *confirmFlags) confirmed(e *env, pod, what string) error {
	if f.DryRun {
		return nil
	}
	if f.Confirm == "" && terminal(e) {
		fmt.Fprintf(e.stderr, "This %s. Type the pod's name to go on: ", what)
		typed, err := bufio.NewReader(e.in).ReadString('\n')
		if err != nil {
			return usage("nothing was confirmed: %w", err)
		}
		f.Confirm = strings.TrimSpace(typed)
	}
	switch f.Confirm {
	case pod:
		return nil
	case "":
		return usage("this %s: confirm it with --confirm %s, or say --dry-run", what, pod)
	default:
		return usage("--confirm %q is not the pod's name, %s: nothing was changed", f.Confirm, pod)
	}
}

// terminal reports whether somebody can be asked.
func terminal(e *env) bool {
	file, is := e.in.(*os.File)
	if !is {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

type retireCmd struct {
	confirmFlags
	WithoutFlag      bool `help:"Go on although the flag does not want mysql-only."`
	RedisIsDestroyed bool `name:"redis-is-destroyed" help:"Redis is gone for good and can't be closed: MySQL's fence alone is raised. No Redis with this pod's old data may ever answer again."`
}

func (retireCmd) Help() string {
	return "Every instance must have acknowledged, the journal must be empty, the kill switch must have been used before, and a verification is made. " +
		"Redis is closed first, so that it votes on nothing; then MySQL. Afterwards the kill switch is refused, and the way back is `holdover rollout return`. " +
		"Run again after a failure it goes on where it stopped."
}

func (cmd *retireCmd) Run(e *env) error {
	c, s, closeStores, err := cmd.open(e, "takes the pod to where the kill switch has no Redis to flip to")
	if err != nil {
		return err
	}
	defer closeStores()
	r, err := app.Retire(e.ctx, s, desiredFromFile(c, s.Name), app.RetireOptions{
		By: cmd.By, Reason: cmd.Reason, WithoutFlag: cmd.WithoutFlag, RedisDestroyed: cmd.RedisIsDestroyed, DryRun: cmd.DryRun,
	})
	if cmd.JSON {
		return e.result(r, hindered(err))
	}
	switch {
	case len(r.Reasons) > 0:
		fmt.Fprintf(e.stdout, "pod %s: Redis is not retired\n", r.Pod)
		for _, why := range r.Reasons {
			line(e.stdout, "no", fmt.Sprintf("%s -> %s", why.Text, why.Do))
		}
	case err != nil:
	case r.DryRun:
		fmt.Fprintf(e.stdout, "pod %s: would %s\n", r.Pod, r.Would)
	default:
		word := "RETIRED"
		if r.Already {
			word = "RETIRED ALREADY"
		}
		fmt.Fprintf(e.stdout, "%s  pod %s: now %s\n", word, r.Pod, r.To)
		line(e.stdout, "now", r.Now)
		if r.Claims > 0 {
			line(e.stdout, "claims", count(r.Claims, "claim")+" that were marked in Redis are in the ledger now")
		}
		if !cmd.RedisIsDestroyed {
			told(e.stdout, r.Changed)
		}
		line(e.stdout, "next", r.Next)
	}
	return hindered(err)
}

type returnCmd struct{ confirmFlags }

func (returnCmd) Help() string {
	return "A Redis, empty or the old one, has to answer at the configured address: everything of this pod in it is replaced. Buyers are served by MySQL all the time. " +
		"Run again after a failure it goes on where it stopped."
}

func (cmd *returnCmd) Run(e *env) error {
	_, s, closeStores, err := cmd.open(e, "replaces everything of the pod in its Redis")
	if err != nil {
		return err
	}
	defer closeStores()
	var said time.Time
	r, err := app.Return(e.ctx, s, cmd.By, cmd.Reason, cmd.DryRun, func(holds, items int) {
		if time.Since(said) > time.Second {
			said = time.Now()
			fmt.Fprintf(e.stderr, "rebuilding: %s and %s so far\n", count(holds, "hold"), count(items, "item"))
		}
	})
	if err == nil && !r.DryRun && !r.Clean {
		err = &exitError{exitNotSatisfied, fmt.Errorf("pod %s is in %s, and the stores differ: %s", r.Pod, r.To.Stage, r.Summary)}
	}
	if cmd.JSON {
		return e.result(r, hindered(err))
	}
	switch {
	case r.DryRun && err == nil:
		fmt.Fprintf(e.stdout, "pod %s: would %s\n", r.Pod, r.Would)
	case r.Now != "":
		fmt.Fprintf(e.stdout, "RETURNED  pod %s: now %s\n", r.Pod, r.To)
		line(e.stdout, "now", r.Now)
		if r.Rebuilt != nil {
			line(e.stdout, "rebuilt", fmt.Sprintf("%s, %s and %s in %s", count(r.Rebuilt.Holds, "hold"), count(r.Rebuilt.Ended, "end record"), count(r.Rebuilt.Items, "counter"), r.Rebuilt.Took.Round(time.Millisecond)))
		}
		told(e.stdout, r.Changed)
		line(e.stdout, "verified", r.Summary)
		line(e.stdout, "next", r.Next)
	}
	return hindered(err)
}

// hindered gives what was checked and refused its exit code.
func hindered(err error) error {
	if errors.Is(err, app.ErrHindered) {
		return &exitError{exitNotSatisfied, err}
	}
	return err
}

// result prints the one JSON object of a command that may have failed half way.
func (e *env) result(v any, failed error) error {
	out := map[string]any{"ok": failed == nil, "result": v}
	if failed != nil {
		out["error"] = failed.Error()
	}
	if err := e.json(out); err != nil {
		return err
	}
	return failed
}
