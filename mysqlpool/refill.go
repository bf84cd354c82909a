package mysqlpool

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"holdover"
)

// need is a pool to be filled up to target when it has fewer rows than low.
type need struct {
	key
	low, target int64
}

// maxRefill bounds the rows that one refill transaction makes: claims of the
// same items wait for it.
const maxRefill = 1000

// refillShort puts rows into the pools that were short of a cart's lines.
func (s *Store) refillShort(ctx context.Context, w *wanted) error {
	needs := make([]need, len(w.short))
	for i, l := range w.short {
		target := min(s.cfg.PoolCap, max(s.cfg.RefillBatch, l.Quantity))
		needs[i] = need{keyOf(l), max(l.Quantity, target/2), target}
	}
	_, err := s.refillAll(ctx, w.shop, needs)
	return err
}

// refill fills the pool of one item at one location; see refillAll.
func (s *Store) refill(ctx context.Context, shop int64, k key, low, target int64) (added int64, err error) {
	return s.refillAll(ctx, shop, []need{{k, low, target}})
}

// refillAll fills pools, in key order, as many in one transaction as maxRefill
// allows: the commits are what a refill costs. It returns the rows added.
func (s *Store) refillAll(ctx context.Context, shop int64, needs []need) (added int64, err error) {
	for len(needs) > 0 {
		n, rows := 0, int64(0)
		for n < len(needs) && n < maxKeys && (n == 0 || rows+needs[n].target <= maxRefill) {
			rows += needs[n].target
			n++
		}
		more, err := s.refillTogether(ctx, shop, needs[:n])
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
func (s *Store) refillTogether(ctx context.Context, shop int64, needs []need) (added int64, err error) {
	keys := make([]key, len(needs))
	for i, n := range needs {
		keys[i] = n.key
	}
	var missing key
	for made := false; ; made = true {
		err = s.transact(ctx, s.main, "refill", holdover.Token{}, func(ctx context.Context, t *tx) error {
			added = 0
			pools, _, err := t.lockPools(ctx, shop, keys)
			if err != nil {
				return err
			}
			for _, k := range keys {
				if _, ok := pools[k]; !ok {
					missing = k
					return errNoPool
				}
			}
			available, err := t.lockLedger(ctx, shop, keys)
			if err != nil {
				return err
			}
			for _, n := range needs {
				headroom := available[n.key] - pools[n.key].issued
				if headroom <= 0 {
					continue
				}
				var pooled int64
				if err := t.query(ctx, func(rows *sql.Rows) error { return rows.Scan(&pooled) }, stmtPooled, shop, n.item, n.group, n.target); err != nil {
					return err
				}
				if pooled >= n.low {
					continue
				}
				units := min(n.target-pooled, headroom)
				if err := t.insertUnits(ctx, shop, n.key, pools[n.key].next, units); err != nil {
					return err
				}
				added += units
			}
			return nil
		})
		if !errors.Is(err, errNoPool) || made {
			break
		}
		if err := s.ensurePools(ctx, "refill", shop, keys); err != nil {
			return 0, err
		}
	}
	if errors.Is(err, errNoPool) {
		return 0, s.notLoaded(shop, missing)
	}
	if err == nil && added > 0 {
		s.stats.refills.Add(1)
		s.stats.refilled.Add(added)
	}
	return added, err
}

// insertUnits makes n rows with numbers that were never used before: a scan can
// start where the last one ended, past rows that purge has not removed yet.
func (t *tx) insertUnits(ctx context.Context, shop int64, k key, next, n int64) error {
	for from := int64(0); from < n; from += maxRows {
		b := new(statement)
		b.add(insertUnitsHead)
		for i := from; i < min(n, from+maxRows); i++ {
			b.sep(int(i-from), ", ").add("(?, ?, ?, ?)", shop, k.item, k.group, next+i)
		}
		b.add(insertUnitsTail)
		if _, err := t.exec(ctx, b.String(), b.args...); err != nil {
			return err
		}
	}
	_, err := t.exec(ctx, stmtRefilled, n, n, shop, k.item, k.group)
	return err
}

// demand remembers what was asked for since the last look, bounded: an item
// that does not fit in is refilled on its buyers' path.
type demand struct {
	mu   sync.Mutex
	keys map[shopKey]struct{}
}

type shopKey struct {
	shop int64
	key
}

const maxDemand = 4096

func (d *demand) init() { d.keys = make(map[shopKey]struct{}) }

func (d *demand) note(shop int64, keys []key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range keys {
		if len(d.keys) >= maxDemand {
			return
		}
		d.keys[shopKey{shop, k}] = struct{}{}
	}
}

func (d *demand) drain() map[int64][]key {
	d.mu.Lock()
	keys := d.keys
	d.keys = make(map[shopKey]struct{})
	d.mu.Unlock()
	byShop := map[int64][]key{}
	for k := range keys {
		byShop[k.shop] = append(byShop[k.shop], k.key)
	}
	for _, ks := range byShop {
		sorted(ks)
	}
	return byShop
}

// Run refills pools that are low, and purges ended holds past their retention,
// until ctx ends. Its failures are logged: no caller waits for it.
func (s *Store) Run(ctx context.Context) error {
	refill := time.NewTicker(s.cfg.RefillEvery)
	defer refill.Stop()
	purge := time.NewTicker(s.cfg.PurgeEvery)
	defer purge.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-refill.C:
			s.refillDemand(ctx)
		case <-purge.C:
			if _, err := s.PurgeEnded(ctx, maxPurge); err != nil && ctx.Err() == nil {
				s.log.Warn("ended holds were not purged; the next round tries again", "err", err)
			}
		}
	}
}

func (s *Store) refillDemand(ctx context.Context) {
	for shop, keys := range s.demand.drain() {
		if err := s.refillLow(ctx, shop, keys); err != nil && ctx.Err() == nil {
			s.log.Warn("pools were not refilled in the background; their buyers do it", "shop", shop, "err", err)
		}
	}
}

// refillLow fills those pools that are below half of the cap and have headroom.
func (s *Store) refillLow(ctx context.Context, shop int64, keys []key) error {
	levels, err := s.levelsNow(ctx, shop, keys)
	if err != nil {
		return err
	}
	var needs []need
	for _, k := range keys {
		st, ok := levels[k]
		if ok && st.Pooled < s.cfg.PoolCap/2 && st.Available > st.Issued {
			needs = append(needs, need{k, s.cfg.PoolCap / 2, s.cfg.PoolCap})
		}
	}
	for chunk := range slices.Chunk(needs, maxKeys) {
		opCtx, cancel := s.deadline(ctx)
		_, err := s.refillAll(opCtx, shop, chunk)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) levelsNow(ctx context.Context, shop int64, keys []key) (map[key]holdover.Stock, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	levels, err := s.levels(ctx, s.main, shop, keys)
	return levels, s.fail("probe", holdover.Token{}, err)
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
		byShop := map[int64][]key{}
		for _, st := range page {
			byShop[st.Shop] = append(byShop[st.Shop], key{st.Item, st.Group})
		}
		for shop, keys := range byShop {
			if err := s.refillLow(ctx, shop, keys); err != nil {
				return err
			}
		}
		left -= len(page)
		after = page[len(page)-1]
	}
	return nil
}

const maxPurge = 1000

// PurgeEnded deletes up to limit holds that ended longer ago than EndRetention
// and that the journal does not name. Ledger entries stay.
func (s *Store) PurgeEnded(ctx context.Context, limit int) (purged int, err error) {
	old := s.cfg.EndRetention.Microseconds()
	for _, state := range []holdover.State{holdover.StateClaimed, holdover.StateReleased, holdover.StateExpired} {
		var tokens []holdover.Token
		scan := func(rows *sql.Rows) error {
			var b []byte
			var at time.Time
			if err := rows.Scan(&b, &at); err != nil {
				return err
			}
			token, err := tokenOf(b)
			tokens = append(tokens, token)
			return err
		}
		if err := s.read(ctx, s.main, "purge", holdover.Token{}, scan, stmtPurgeable, state.String(), old, old, limit-purged); err != nil {
			return purged, err
		}
		for _, token := range tokens { // one by one: a bounded lock each, and nobody waits for a batch
			opCtx, cancel := s.deadline(ctx)
			err := s.transact(opCtx, s.main, "purge", token, func(ctx context.Context, t *tx) error {
				_, err := t.exec(ctx, stmtPurge, token[:])
				return err
			})
			cancel()
			if err != nil {
				return purged, err
			}
			purged++
		}
	}
	return purged, nil
}
