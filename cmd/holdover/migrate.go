package main

import (
	"errors"
	"fmt"
	"time"

	"holdover/mysqlpool"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply what is missing. Two at once: one waits."`
	Status migrateStatusCmd `cmd:"" help:"Which migrations are applied."`
	Print  migratePrintCmd  `cmd:"" help:"Print the SQL, to be read or applied by hand."`
}

type migrateUpCmd struct{ podFlags }

func (cmd *migrateUpCmd) Run(e *env) error {
	return cmd.each(e, func(pod, dsn string, ledger mysqlpool.Ledger) error {
		applied, err := mysqlpool.Migrate(e.ctx, dsn, ledger)
		for _, m := range applied {
			fmt.Fprintf(e.stdout, "pod %s: applied %s\n", pod, m.Name)
		}
		if err == nil && len(applied) == 0 {
			fmt.Fprintf(e.stdout, "pod %s: nothing to do\n", pod)
		}
		return err
	})
}

type migrateStatusCmd struct{ podFlags }

func (cmd *migrateStatusCmd) Run(e *env) error {
	return cmd.each(e, func(pod, dsn string, ledger mysqlpool.Ledger) error {
		all, err := mysqlpool.MigrateStatus(e.ctx, dsn, ledger)
		for _, m := range all {
			state := "pending"
			if m.Applied {
				state = "applied " + m.At.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(e.stdout, "pod %s: %s %s\n", pod, m.Name, state)
		}
		return err
	})
}

type migratePrintCmd struct{}

func (migratePrintCmd) Run(e *env) error { return mysqlpool.MigratePrint(e.stdout) }

func (f *podFlags) each(e *env, do func(pod, dsn string, ledger mysqlpool.Ledger) error) error {
	c, err := f.load(e)
	if err != nil {
		return err
	}
	chosen, err := f.choose(c)
	if err != nil {
		return err
	}
	var errs []error // one pod's failure stops no other
	for _, p := range chosen {
		if err := do(p.Name, p.MySQL.DSN, mysqlpool.Ledger(p.MySQL.Ledger)); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}
