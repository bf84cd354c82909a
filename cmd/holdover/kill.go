package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"holdover/internal/app"
)

// changeFlags say who changes the agreement, and why.
type changeFlags struct {
	podFlags
	By     string `help:"Who you are; default: the user of this shell." placeholder:"NAME"`
	Reason string `help:"Why; kept with the fence, shown by status." placeholder:"TEXT"`
	DryRun bool   `help:"Say what would happen and change nothing."`
	JSON   bool   `help:"One JSON object on stdout."`
}

type killCmd struct{ changeFlags }

func (cmd *killCmd) Run(e *env) error {
	return change(e, &cmd.changeFlags, app.Kill, func(k app.Killed) string {
		if k.DryRun {
			return "would " + k.Would
		}
		return k.Message + told(k.Acknowledged, k.Missing, k.AckTook.String()) + "\n  back later: holdover restore --pod " + k.Pod + " --reason TEXT"
	})
}

type restoreCmd struct{ changeFlags }

func (cmd *restoreCmd) Run(e *env) error {
	return change(e, &cmd.changeFlags, app.Restore, func(r app.RestoredPod) string {
		if r.DryRun {
			return "would " + r.Would
		}
		return r.Message + told(r.Acknowledged, r.Missing, r.AckTook.String())
	})
}

func told(acked, missing []string, took string) string {
	text := fmt.Sprintf("\n  in effect on %d instances after %s: %s", len(acked), took, strings.Join(acked, ", "))
	if len(acked) == 0 {
		text = "\n  no instance is alive; the next one starts with it"
	}
	if len(missing) > 0 {
		text += "\n  NOT YET on: " + strings.Join(missing, "; ") + " (their old epoch is refused by the stores all the same)"
	}
	return text
}

// podResult is one pod's part of a change of many.
type podResult[T any] struct {
	Pod    string `json:"pod"`
	Result T      `json:"result"`
	Err    string `json:"err,omitempty"`
}

// change runs do on all chosen pods at once; one pod's failure stops no other.
func change[T any](e *env, f *changeFlags, do func(ctx context.Context, s *app.Stores, by, reason string, dryRun bool) (T, error), text func(T) string) error {
	if f.Reason == "" {
		return usage("--reason is missing: it is kept with the fence and shown to everybody")
	}
	if f.By == "" {
		by, err := whoami()
		if err != nil {
			return usage("%w", err)
		}
		f.By = by
	}
	_, all, closeAll, err := f.stores(e)
	if err != nil {
		return err
	}
	defer closeAll()
	results, errs := make([]podResult[T], len(all)), make([]error, len(all))
	var wait sync.WaitGroup
	for i, s := range all {
		wait.Go(func() {
			result, err := do(e.ctx, s, f.By, f.Reason, f.DryRun)
			results[i], errs[i] = podResult[T]{Pod: s.Name, Result: result}, err
			if err != nil {
				results[i].Err = err.Error()
			}
		})
	}
	wait.Wait()
	if f.JSON {
		if err := e.json(map[string]any{"pods": results, "ok": errors.Join(errs...) == nil}); err != nil {
			return err
		}
	} else {
		for i, r := range results {
			if errs[i] == nil {
				fmt.Fprintf(e.stdout, "pod %s: %s\n", r.Pod, text(r.Result))
			}
		}
	}
	return errors.Join(errs...)
}
