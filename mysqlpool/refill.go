package mysqlpool

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"

	"holdover"
)

// need is a pool to be filled up to target when it has fewer rows than low.
type need struct {
	key
	low, target int64

	// short: somebody found too few rows, when the pool had been filled so often.
	// If it was not filled since, what is remembered of it is wrong.
	short bool
	seen  uint64
}

// maxRefill bounds the rows that one refill transaction makes: claims of the
// same items wait for it.
const maxRefill = 1000

// refillShort puts rows into the pools that were short of what the calls want:
// one refill for all of them.
func (s *Store) refillShort(ctx context.Context, calls []*wanted, patient bool) error {
	var all []amount
	seen := map[key]uint64{}
	for _, w := range calls {
		all = append(all, w.short...)
		for i, a := range w.short {
			seen[a.key] = max(seen[a.key], w.seen[i])
		}
	}
	var needs []need
	for _, a := range sum(all...) {
		n := s.need(a.key)
		n.short, n.seen = true, seen[a.key]
		n.low = min(s.cfg.PoolCap, max(n.low, a.n))
		n.target = max(n.target, n.low)
		needs = append(needs, n)
	}
	_, err := s.refillAll(ctx, needs, patient)
	return err
}

// need says how many rows a location's pool should have: what it will probably
// sell within RefillAhead, at least RefillBatch, at most the cap; and a new
// refill is due when half of it is gone.
func (s *Store) need(k key) need {
	target := min(s.cfg.PoolCap, max(s.cfg.RefillBatch, s.positions.ahead(k, s.cfg.RefillAhead)))
	return need{key: k, low: (target + 1) / 2, target: target}
}

// refill fills the pool of one item at one location; see refillAll.
func (s *Store) refill(ctx context.Context, k key, low, target int64) (added int64, err error) {
	return s.refillAll(ctx, []need{{key: k, low: low, target: target, short: true, seen: math.MaxUint64}}, true)
}

// refillAll fills pools, in key order, as many in one transaction as maxRefill
// allows: the commits are what a refill costs. It returns the rows added.
func (s *Store) refillAll(ctx context.Context, needs []need, patient bool) (added int64, err error) {
	for len(needs) > 0 {
		n, rows := 0, int64(0)
		for n < len(needs) && n < maxKeys && (n == 0 || rows+needs[n].target <= maxRefill) {
			rows += needs[n].target
			n++
		}
		more, err := s.refillTogether(ctx, needs[:n], patient)
		added += more
		if err != nil {
			return added, err
		}
		needs = needs[n:]
	}
	return added, nil
}

// refillTogether is one transaction of refillAll. The locks on the pool_state
// rows make one caller refill: the others wait, look again and go on. Rows
// never exceed the cap, because only the holder of a lock adds any.
func (s *Store) refillTogether(ctx context.Context, needs []need, patient bool) (added int64, err error) {
	var missing []key
	for made := false; ; made = true {
		missing = nil
		err = s.transactWith(ctx, s.main, "refill", holdover.Token{}, patient, func(ctx context.Context, t *tx) (err error) {
			added, missing, err = t.refill(ctx, needs)
			return err
		})
		if !errors.Is(err, errNoPool) || made {
			break
		}
		if err := s.ensurePools(ctx, "refill", missing); err != nil {
			return 0, err
		}
	}
	if errors.Is(err, errNoPool) {
		return 0, s.notLoaded(missing[0])
	}
	if err == nil && added > 0 {
		s.stats.refills.Add(1)
		s.stats.refilled.Add(added)
	}
	return added, err
}

// refill locks, counts where it has to, and writes: a round trip each. What
// buyers have taken since the last refill is known when they are all of this
// process, and so is what another caller has just refilled; otherwise the rows
// are counted, those too that a buyer is about to take: they may come back.
func (t *tx) refill(ctx context.Context, needs []need) (added int64, missing []key, err error) {
	keys := make([]key, len(needs))
	for i, n := range needs {
		keys[i] = n.key
	}
	locked, err := t.lockStock(ctx, keys)
	if err != nil {
		return 0, nil, err
	}
	for _, k := range keys {
		if _, ok := locked.pools[k]; !ok {
			missing = append(missing, k)
		}
	}
	if len(missing) > 0 {
		return 0, missing, errNoPool
	}
	pools, err := t.countPools(ctx, needs, locked.pools)
	if err != nil {
		return 0, nil, err
	}
	b := new(statement)
	for i, n := range needs {
		p := &pools[i]
		left := max(0, locked.available[n.key]-locked.pools[n.key].issued)
		p.low, p.next = n.low, locked.pools[n.key].next
		units := min(n.target-p.rows, left)
		if p.rows >= n.low || units <= 0 {
			p.headroom = left > 0
			continue
		}
		b.insertUnits(n.key, p.next, units)
		p.rows, p.added, p.next, p.headroom = p.rows+units, units, p.next+units, left > units
		added += units
	}
	if b.count > 0 {
		if _, err := t.send(ctx, b.commit()); err != nil {
			return 0, nil, err
		}
	}
	for i, n := range needs {
		t.s.positions.refilled(n.key, pools[i], t.s.cfg.RefillEvery)
	}
	return added, nil, nil
}

// countPools is how many rows the pools have, at most.
func (t *tx) countPools(ctx context.Context, needs []need, locked map[key]poolRow) ([]found, error) {
	pools := make([]found, len(needs))
	b := new(statement)
	var scans []func(*sql.Rows) error
	for i, n := range needs {
		rows, certain := t.s.positions.rows(n.key, locked[n.key].next)
		if certain && (rows < n.low || !n.short || t.s.positions.filled(n.key) > n.seen) {
			pools[i].rows = rows
			continue
		}
		pools[i].floor, pools[i].counted = locked[n.key].next, true // the floor when there is none
		b.next().add(stmtPooled, n.shop, n.item, n.group, t.s.positions.floor(n.key), t.s.cfg.PoolCap)
		scans = append(scans, func(r *sql.Rows) error {
			var first sql.NullInt64
			err := r.Scan(&pools[i].rows, &first)
			if first.Valid {
				pools[i].floor = first.Int64
			}
			return err
		})
	}
	if len(scans) == 0 {
		return pools, nil
	}
	return pools, t.ask(ctx, b, scans...)
}

// insertUnits makes n rows with numbers that were never used before: a scan can
// start where the last one ended, past rows that purge has not removed yet.
func (b *statement) insertUnits(k key, next, n int64) *statement {
	for from := int64(0); from < n; from += maxRows {
		b.next().add(stmtInsertUnits, min(n-from, maxRows), k.shop, k.item, k.group, next+from)
	}
	return b.next().add(stmtRefilled, n, n, k.shop, k.item, k.group).expect(1)
}

// demand remembers which pools are to be looked at, bounded: an item that does
// not fit in is refilled on its buyers' path.
type demand struct {
	mu   sync.Mutex
	keys map[key]struct{}
	kick chan struct{}
}

const maxDemand = 4096

func (d *demand) init() { d.keys, d.kick = make(map[key]struct{}), make(chan struct{}, 1) }

// note asks for a refill now.
func (d *demand) note(k key) {
	d.mu.Lock()
	if len(d.keys) < maxDemand {
		d.keys[k] = struct{}{}
	}
	d.mu.Unlock()
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

func (d *demand) drain() []key {
	d.mu.Lock()
	keys := d.keys
	d.keys = make(map[key]struct{})
	d.mu.Unlock()
	return sorted(slices.Collect(maps.Keys(keys)))
}

// Run refills pools that are low, and removes what is past its retention, until
// ctx ends; it returns when both have stopped. Its failures are logged: no
// caller waits for it.
func (s *Store) Run(ctx context.Context) error {
	var both sync.WaitGroup
	defer both.Wait()
	both.Go(func() { s.retainLoop(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.demand.kick:
			s.refillDemand(ctx)
		}
	}
}

// refillDemand fills the pools that sales have brought below their mark.
func (s *Store) refillDemand(ctx context.Context) {
	var needs []need
	for _, k := range s.demand.drain() {
		needs = append(needs, s.need(k))
	}
	if err := s.refillChunks(ctx, needs); err != nil && ctx.Err() == nil {
		s.log.Warn("pools were not refilled in the background; their buyers do it", "err", err)
	}
}

// refillChunks gives each part of a long list a deadline of its own. One that
// fails does not stop the others.
func (s *Store) refillChunks(ctx context.Context, needs []need) error {
	var failed error
	for chunk := range slices.Chunk(needs, maxKeys) {
		opCtx, cancel := s.deadline(ctx)
		_, err := s.refillAll(opCtx, chunk, true)
		cancel()
		failed = errors.Join(failed, err)
	}
	return failed
}

// WarmUp fills the pools of the first WarmItems locations of the ledger, so
// that the first buyers after a start find rows.
func (s *Store) WarmUp(ctx context.Context) error {
	var after holdover.Stock
	for left := s.cfg.WarmItems; left > 0; {
		page, err := s.Stocks(ctx, after, min(left, 200))
		if err != nil || len(page) == 0 {
			return err
		}
		var needs []need
		for _, st := range page {
			if n := s.need(key{st.Shop, st.Item, st.Group}); st.Pooled < n.low && st.Available > st.Issued {
				needs = append(needs, n)
			}
		}
		if err := s.refillChunks(ctx, needs); err != nil {
			return err
		}
		left -= len(page)
		after = page[len(page)-1]
	}
	return nil
}
