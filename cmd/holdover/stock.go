package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"holdover"
	"holdover/internal/app"
)

type stockCmd struct {
	Import stockImportCmd `cmd:"" help:"Add stock from a file of shop_id,item_id,group_id,available: ledger rows, and the counters that are missing."`
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
