package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"holdover"
	"holdover/internal/app"
)

type stockCmd struct {
	Import stockImportCmd `cmd:"" help:"Add stock from a file of shop_id,item_id,group_id,available: ledger rows, and the counters that are missing."`
	Adjust stockAdjustCmd `cmd:"" help:"Add units to an item at one location, take some away, or set how many there are, while the shop is open."`
	Show   stockShowCmd   `cmd:"" help:"Ledger, pool, holds and counter of each item."`
}

// maxStockRows bounds one import.
const maxStockRows = 1_000_000

type stockImportCmd struct {
	podFlags
	File string `arg:"" help:"CSV file; - for standard input."`
	JSON bool   `help:"One JSON object on stdout."`
}

func (cmd *stockImportCmd) Run(e *env) error {
	cmd.All = cmd.All || len(cmd.Pod) == 0
	var in io.Reader = e.in
	if cmd.File != "-" {
		file, err := os.Open(cmd.File)
		if err != nil {
			return usage("stock file: %w", err)
		}
		defer file.Close()
		in = file
	}
	rows, err := app.ReadStock(in, maxStockRows)
	if err != nil {
		return err
	}
	c, all, closeAll, err := cmd.stores(e)
	if err != nil {
		return err
	}
	defer closeAll()
	byPod, err := app.SplitByPod(c, rows)
	if err != nil {
		return err
	}
	left := len(rows)
	var plans []*app.Import // all pods are checked before the first is written
	var errs []error
	for _, s := range all {
		left -= len(byPod[s.Name])
		plan, err := app.PlanImport(e.ctx, s, byPod[s.Name])
		plans, errs = append(plans, plan), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if left > 0 {
		return usage("%d lines of the stock file are of pods that --pod does not name: nothing was imported", left)
	}
	done := []app.Imported{}
	for _, plan := range plans {
		imported, err := plan.Apply(e.ctx)
		if err != nil {
			return err
		}
		done = append(done, imported)
		if !cmd.JSON {
			fmt.Fprintf(e.stdout, "pod %s: %d rows, %d new in the ledger, %d counters made\n", imported.Pod, imported.Rows, imported.Added, imported.Counters)
		}
	}
	if cmd.JSON {
		return e.json(map[string]any{"pods": done})
	}
	return nil
}

type stockShowCmd struct {
	podFlags
	Shop int64 `help:"Only this shop."`
	Item int64 `help:"Only this item."`
	JSON bool  `help:"One JSON object on stdout."`
}

// shownStock is a row of `stock show`.
type shownStock struct {
	Pod string `json:"pod"`
	holdover.Stock
	Free    int64  `json:"free"`    // what a reserve could still get at this location
	Counter *int64 `json:"counter"` // of the item in Redis, over its locations; null when not loaded
}

func (cmd *stockShowCmd) Run(e *env) error {
	if cmd.Shop < 0 || cmd.Item < 0 {
		return usage("--shop and --item are positive numbers")
	}
	cmd.All = cmd.All || len(cmd.Pod) == 0
	_, all, closeAll, err := cmd.stores(e)
	if err != nil {
		return err
	}
	defer closeAll()
	rows := []shownStock{}
	for _, s := range all {
		for after := (holdover.Stock{}); ; {
			page, err := s.MySQL.Stocks(e.ctx, after, 500)
			if err != nil {
				return err
			}
			if len(page) == 0 {
				break
			}
			after = page[len(page)-1]
			for _, stock := range page {
				if (cmd.Shop != 0 && stock.Shop != cmd.Shop) || (cmd.Item != 0 && stock.Item != cmd.Item) {
					continue
				}
				row := shownStock{Pod: s.Name, Stock: stock, Free: stock.Free()}
				counters, err := s.Redis.Counters(e.ctx, stock.Shop, []int64{stock.Item})
				if err != nil && !errors.Is(err, holdover.ErrNotLoaded) {
					return err
				}
				if err == nil {
					row.Counter = &counters[0]
				}
				rows = append(rows, row)
			}
		}
	}
	if cmd.JSON {
		return e.json(map[string]any{"stock": rows})
	}
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "pod\tshop\titem\tgroup\tavailable\theld\tpooled\tfree\tredis counter\t")
	for _, r := range rows {
		counter := "not loaded"
		if r.Counter != nil {
			counter = fmt.Sprint(*r.Counter)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t\n", r.Pod, r.Shop, r.Item, r.Group, r.Available, r.Held, r.Pooled, r.Free, counter)
	}
	return w.Flush()
}

type stockAdjustCmd struct {
	changeFlags
	Shop  int64  `required:"" help:"The shop."`
	Item  int64  `required:"" help:"The item."`
	Group int64  `required:"" help:"The location."`
	Delta int64  `help:"Units to add or, below zero, to take away (--delta=-5)." xor:"change" placeholder:"N"`
	Set   *int64 `help:"How many units the ledger shall have, live holds included." xor:"change" placeholder:"N"`
	Clamp bool   `help:"Take away as many as nobody holds, where it would be refused without this."`
	Token string `help:"The adjustment's UUID, to repeat one whose outcome is not known; default: a new one." placeholder:"UUID"`
}

func (stockAdjustCmd) Help() string {
	return "Both stores follow. A restock is one update of the ledger, whatever its size. What is held stays: taking away more than is free is refused, or clamped with --clamp. " +
		"The same token with the same change is made once and answered again as it was, a refusal too. Exit 3 when it is refused."
}

func (cmd *stockAdjustCmd) Run(e *env) error {
	a := holdover.Adjustment{Token: holdover.NewToken(), Shop: cmd.Shop, Item: cmd.Item, Group: cmd.Group, Delta: cmd.Delta, Set: cmd.Set, Clamp: cmd.Clamp}
	if cmd.Token != "" {
		var err error
		if a.Token, err = holdover.ParseToken(cmd.Token); err != nil {
			return usage("--%w", err)
		}
	}
	if err := cmd.who(); err != nil {
		return err
	}
	a.By, a.Reason = cmd.By, cmd.Reason
	if err := a.Validate(); err != nil {
		return usage("--%w", err)
	}
	c, err := cmd.load(e)
	if err != nil {
		return err
	}
	pod, err := app.PodOf(c, a.Shop)
	switch {
	case err != nil:
		return err
	case len(cmd.Pod) > 0 && !slices.Equal(cmd.Pod, []string{pod}), cmd.All:
		return usage("shop %d is one of pod %s: leave --pod and --all out", a.Shop, pod)
	}
	cmd.Pod = []string{pod}
	_, all, closeAll, err := cmd.stores(e)
	if err != nil {
		return err
	}
	defer closeAll()
	done, err := app.Adjust(e.ctx, c, all[0], a, cmd.DryRun)
	switch {
	case errors.Is(err, holdover.ErrAdjustRefused):
		return &exitError{exitNotSatisfied, err}
	case errors.Is(err, holdover.ErrUnknownOutcome):
		return fmt.Errorf("%w (repeat it with --token %s)", err, a.Token)
	case err != nil:
		return err
	case cmd.JSON:
		return e.json(done)
	case done.DryRun:
		fmt.Fprintf(e.stdout, "pod %s: would %s\n", done.Pod, done.Would)
	default:
		fmt.Fprintf(e.stdout, "pod %s: %s\n", done.Pod, done.Now)
		line(e.stdout, "token", a.Token.String())
	}
	return nil
}
