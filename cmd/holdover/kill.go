package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"holdover/internal/app"
	"holdover/killswitch"
)

// changeFlags say who changes the agreement, and why.
type changeFlags struct {
	podFlags
	By     string `help:"Who you are; default: the user of this shell." placeholder:"NAME"`
	Reason string `help:"Why; kept with the fence, shown by status." placeholder:"TEXT"`
	DryRun bool   `help:"Say what would happen and change nothing."`
	JSON   bool   `help:"One JSON object on stdout."`
}

// who makes sure that it is known who asks, and why.
func (f *changeFlags) who() error {
	if strings.TrimSpace(f.Reason) == "" {
		return usage("--reason is missing: it is kept with the change and shown to everybody")
	}
	if f.By == "" {
		by, err := whoami()
		if err != nil {
			return usage("%w", err)
		}
		f.By = by
	}
	if err := killswitch.CheckWho(f.By, f.Reason); err != nil {
		return usage("--%w", err)
	}
	return nil
}

type killCmd struct{ changeFlags }

func (killCmd) Help() string {
	return "In joint and mysql the pod goes to shadow, where Redis decides; in redis and shadow it stays. In each case it is latched: " +
		"the flag is ignored until `holdover restore`. It needs the pod's Redis; neither MySQL, nor the flag source, nor any instance. " +
		"A second kill changes nothing."
}

func (cmd *killCmd) Run(e *env) error {
	return change(e, &cmd.changeFlags, app.Kill, func(w io.Writer, k app.Killed) {
		if k.DryRun {
			fmt.Fprintf(w, "pod %s: would %s\n", k.Pod, k.Would)
			line(w, "before", "readiness is "+k.Readiness)
			return
		}
		word := "KILLED"
		if k.Already {
			word = "KILLED ALREADY"
		}
		fmt.Fprintf(w, "%s  %s\n", word, k.Message)
		line(w, "now", k.Now)
		line(w, "before", "readiness was "+k.Readiness)
		switch {
		case k.NotCarried > 0:
			line(w, "carried", fmt.Sprintf("none of %s of MySQL's journal", count(k.NotCarried, "unmirrored hold")))
		case k.Carried > 0:
			line(w, "carried", count(k.Carried, "unmirrored hold")+" of MySQL's journal, together with the flip")
		}
		if k.Owed != "" {
			line(w, "FAULT", k.Owed)
		}
		told(w, k.Changed)
		line(w, "took", k.Took.Round(time.Millisecond).String())
		line(w, "next", k.Next)
	})
}

type restoreCmd struct{ changeFlags }

func (restoreCmd) Help() string {
	return "The pod stays in its stage and follows its flag again from there: forward through joint, each step when it is ready for it. Both stores must answer."
}

func (cmd *restoreCmd) Run(e *env) error {
	return change(e, &cmd.changeFlags, app.Restore, func(w io.Writer, r app.RestoredPod) {
		if r.DryRun {
			fmt.Fprintf(w, "pod %s: would %s\n", r.Pod, r.Would)
			return
		}
		fmt.Fprintln(w, r.Message)
		line(w, "now", r.Now)
		if r.Owed != "" {
			line(w, "FAULT", r.Owed)
		}
		told(w, r.Changed)
		line(w, "next", r.Next)
	})
}

func line(w io.Writer, name, text string) { fmt.Fprintf(w, "  %-8s %s\n", name, text) }

func told(w io.Writer, c app.Changed) {
	switch {
	case len(c.Acknowledged) == 0 && len(c.Missing) == 0:
		line(w, "seen by", "no instance is alive; the next one starts with it")
	case len(c.Acknowledged) > 0:
		line(w, "seen by", fmt.Sprintf("%s after %s: %s", count(len(c.Acknowledged), "instance"), c.AckTook.Round(time.Millisecond), strings.Join(c.Acknowledged, ", ")))
	}
	if len(c.Missing) > 0 {
		line(w, "NOT YET", strings.Join(c.Missing, "; ")+" (the stores refuse their old epoch all the same)")
	}
}

// podResult is one pod's part of a change of many.
type podResult[T any] struct {
	Pod    string `json:"pod"`
	OK     bool   `json:"ok"`
	Result T      `json:"result"`
	Err    string `json:"error,omitempty"`
}

// opener opens one pod's stores.
type opener func(context.Context, app.Config, app.PodConfig) (*app.Stores, error)

// onPods does something with each chosen pod, all at once. A pod that can't be
// opened, or fails, stops no other: its error is at its place.
func onPods[T any](e *env, f *podFlags, open opener, do func(app.Config, *app.Stores) (T, error)) ([]podResult[T], []error, error) {
	c, err := f.load(e)
	if err != nil {
		return nil, nil, err
	}
	chosen, err := f.choose(c)
	if err != nil {
		return nil, nil, err
	}
	all, errs := openAll(e, c, chosen, open)
	defer closeStores(e, all)
	results := make([]podResult[T], len(all))
	var doing sync.WaitGroup
	for i, s := range all {
		if results[i].Pod = chosen[i].Name; s != nil {
			doing.Go(func() { results[i].Result, errs[i] = do(c, s) })
		}
	}
	doing.Wait()
	for i, err := range errs {
		if results[i].OK = err == nil; err != nil {
			results[i].Err = err.Error()
		}
	}
	return results, errs, nil
}

// change changes all chosen pods.
func change[T any](e *env, f *changeFlags, do func(ctx context.Context, s *app.Stores, by, reason string, dryRun bool) (T, error), text func(io.Writer, T)) error {
	if err := f.who(); err != nil {
		return err
	}
	results, errs, err := onPods(e, &f.podFlags, app.OpenUnasked, func(_ app.Config, s *app.Stores) (T, error) {
		return do(e.ctx, s, f.By, f.Reason, f.DryRun)
	})
	if err != nil {
		return err
	}
	failed := errors.Join(errs...)
	if f.JSON {
		if err := e.json(map[string]any{"ok": failed == nil, "pods": results}); err != nil {
			return err
		}
		return failed
	}
	for i, r := range results {
		if errs[i] == nil {
			text(e.stdout, r.Result)
		}
	}
	return failed
}
