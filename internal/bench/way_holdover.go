package bench

import (
	"context"
	"errors"
	"sync"

	"holdover"
	"holdover/mysqlpool"
)

// pooled is holdover: package mysqlpool as a shop would use it, with everything
// but the number of connections at its default, refill and reaper running. With
// several instances each has a Store of its own, and callers are dealt out.
type pooled struct {
	servers *servers
	items   int
	before  int64 // holds of the first item that no caller of this turn made
	stores  []*mysqlpool.Store
	pools   []*mysqlpool.Pool
	stop    context.CancelFunc
	running sync.WaitGroup
}

func openHoldover(ctx context.Context, s *servers, set setting) (way, error) {
	return openInstances(ctx, s, set, 1)
}

func openInstances(ctx context.Context, s *servers, set setting, instances int) (*pooled, error) {
	w := &pooled{servers: s, items: len(set.stock), before: set.preload}
	if err := w.open(ctx, set, instances); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *pooled) open(ctx context.Context, set setting, instances int) error {
	for i := range instances {
		dsn := w.servers.mysql.Clone()
		dsn.InterpolateParams, dsn.MultiStatements = false, false // the pool's own to choose
		if set.proxy != "" {
			dsn.Addr = set.proxy
		}
		store, err := mysqlpool.Open(ctx, mysqlpool.Config{
			Pod: pod, DSN: dsn.FormatDSN(), MaxOpenConns: set.conns, PoolCap: set.cap, WrapConnector: set.held.wrap,
		})
		if err != nil {
			return err
		}
		w.stores = append(w.stores, store)
		w.pools = append(w.pools, mysqlpool.NewPool(store, mysqlpool.PoolConfig{}))
		if i > 0 {
			continue
		}
		if _, err := store.ImportStock(ctx, stockRows(set.stock)); err != nil {
			return err
		}
	}
	if err := w.stores[0].WarmUp(ctx); err != nil {
		return err
	}
	if err := w.servers.preload(ctx, set.preload); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	for _, p := range w.pools {
		w.running.Go(func() { _ = p.Run(running) }) // it ends by its context only
	}
	return nil
}

func (w *pooled) reserve(ctx context.Context, c *call) (bool, error) {
	c.attempts++
	_, err := w.pools[c.worker%len(w.pools)].Reserve(ctx, holdover.Request{Shop: 1, Token: c.token, Lines: c.lines, TTL: holdTTL})
	return grantedOr(err)
}

func (w *pooled) claim(ctx context.Context, c *call) error {
	_, err := w.pools[c.worker%len(w.pools)].Claim(ctx, 1, c.token)
	return err
}

// ownCounts are the tries that no caller sees: transactions run again.
func (w *pooled) ownCounts() (retries, conflicts int64) {
	for _, s := range w.stores {
		stats := s.Stats()
		retries += stats.Retries
		conflicts += stats.Deadlocks + stats.LockWaits
	}
	return retries, conflicts
}

func (w *pooled) close() error {
	if w.stop != nil {
		w.stop()
		w.running.Wait()
	}
	var errs []error
	for _, s := range w.stores {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// count reads holdover's tables, not its counters. A claim takes units out of
// the ledger and leaves its hold as a record, so the ledger has lost what was
// deducted, and what could still be sold is the rest less what is in holds.
func (w *pooled) count(ctx context.Context) (t truth, err error) {
	available, err := w.servers.perItem(ctx, w.items, "SELECT item_id, available FROM inventory_ledger")
	if err != nil {
		return t, err
	}
	held, err := w.servers.perItem(ctx, w.items, "SELECT item_id, SUM(quantity) FROM reserved_quantities WHERE state = 'held' GROUP BY item_id")
	if err != nil {
		return t, err
	}
	claimed, err := w.servers.perItem(ctx, w.items, "SELECT item_id, SUM(quantity) FROM reserved_quantities WHERE state = 'claimed' GROUP BY item_id")
	if err != nil {
		return t, err
	}
	deducted, err := w.servers.perItem(ctx, w.items, "SELECT item_id, SUM(-delta) FROM ledger_entries WHERE kind = 'claim' GROUP BY item_id")
	if err != nil {
		return t, err
	}
	t.left, t.held, t.deducted = make([]int64, w.items), add(held, claimed), deducted
	held[0] -= w.before
	t.held[0] -= w.before
	for i := range t.left {
		t.left[i] = available[i] - held[i]
	}
	t.holds, err = w.servers.one(ctx, "SELECT COUNT(*) FROM reserved_quantities WHERE line = 0 AND state IN ('held', 'claimed')")
	t.holds -= w.before
	return t, err
}
