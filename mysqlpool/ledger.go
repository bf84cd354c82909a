package mysqlpool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"holdover"
)

// poolRow is a locked row of pool_state.
type poolRow struct{ issued, next int64 }

// lockPools locks the rows of pool_state in key order. Rows that are missing
// are made, outside this transaction, by ensurePools.
func (t *tx) lockPools(ctx context.Context, shop int64, keys []key) (map[key]poolRow, sql.NullTime, error) {
	pools := make(map[key]poolRow, len(keys))
	var now sql.NullTime
	for chunk := range slices.Chunk(keys, maxKeys) {
		b := new(statement)
		b.add(lockPoolsHead).keysWhere(shop, chunk).add(lockPoolsTail)
		err := t.query(ctx, func(rows *sql.Rows) error {
			var k key
			var p poolRow
			err := rows.Scan(&k.item, &k.group, &p.issued, &p.next, &now)
			pools[k] = p
			return err
		}, b.String(), b.args...)
		if err != nil {
			return nil, now, err
		}
	}
	return pools, now, nil
}

// lockLedger locks the rows of the ledger in key order, behind those of
// pool_state. Missing rows are missing in the answer.
func (t *tx) lockLedger(ctx context.Context, shop int64, keys []key) (map[key]int64, error) {
	available := make(map[key]int64, len(keys))
	for chunk := range slices.Chunk(keys, maxKeys) {
		b := new(statement)
		b.add(lockLedgerHead).keysWhere(shop, chunk).add(lockLedgerTail)
		err := t.query(ctx, func(rows *sql.Rows) error {
			var k key
			var n int64
			err := rows.Scan(&k.item, &k.group, &n)
			available[k] = n
			return err
		}, b.String(), b.args...)
		if err != nil {
			return nil, err
		}
	}
	return available, nil
}

// ensurePools makes the rows of pool_state that are missing for rows of the
// ledger: each in a transaction of its own, so that no other lock is held.
func (s *Store) ensurePools(ctx context.Context, op string, shop int64, keys []key) error {
	for _, k := range keys {
		err := s.transact(ctx, s.main, op, holdover.Token{}, func(ctx context.Context, t *tx) error {
			_, err := t.exec(ctx, stmtEnsurePool, shop, k.item, k.group)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// moveIssued adds sign times each line's quantity to its location's issued
// units, locking in key order.
func (t *tx) moveIssued(ctx context.Context, shop int64, lines []holdover.Line, sign int64) error {
	for chunk := range slices.Chunk(lines, maxKeys) {
		b := moveIssuedStatement(shop, chunk, sign)
		n, err := t.exec(ctx, b.String(), b.args...)
		if err != nil {
			return err
		}
		if n != int64(len(chunk)) {
			return t.s.fail("move issued units", holdover.Token{}, fmt.Errorf("shop %d: pool_state has %d of %d rows of a hold, a row was deleted by hand: verify the stock", shop, n, len(chunk)))
		}
	}
	return nil
}

// deduct takes each line's quantity out of the ledger, in key order, or says
// errOverdrawn.
func (t *tx) deduct(ctx context.Context, shop int64, lines []holdover.Line) error {
	for chunk := range slices.Chunk(lines, maxKeys) {
		b := deductStatement(shop, chunk)
		n, err := t.exec(ctx, b.String(), b.args...)
		if err != nil {
			return err
		}
		if n != int64(len(chunk)) {
			return errOverdrawn
		}
	}
	return nil
}

// entry is why the ledger changed.
type entry struct {
	key
	delta int64
	kind  string
}

const (
	kindClaim    = "claim"
	kindOversold = "oversold" // owed and not there: the ledger was not changed by it
)

func (t *tx) writeEntries(ctx context.Context, token holdover.Token, shop int64, entries []entry) error {
	for start := 0; start < len(entries); start += maxRows {
		b := new(statement)
		b.add(entriesHead)
		for i, e := range entries[start:min(start+maxRows, len(entries))] {
			b.sep(i, ", ").add(entriesRow, token[:], start+i, shop, e.item, e.group, e.delta, e.kind)
		}
		b.add(entriesTail)
		if _, err := t.exec(ctx, b.String(), b.args...); err != nil {
			return err
		}
	}
	return nil
}

// levels reads, without a lock and in one snapshot, what the pool knows of the
// keys. Held is what conservation says it is.
func (s *Store) levels(ctx context.Context, db querier, shop int64, keys []key) (map[key]holdover.Stock, error) {
	found := make(map[key]holdover.Stock, len(keys))
	for chunk := range slices.Chunk(keys, maxKeys) {
		b := new(statement)
		b.add(levelsHead, shop).add("(")
		for i, k := range chunk {
			b.sep(i, " OR ").add(levelsKey, k.item, k.group)
		}
		b.add(")").add(levelsTail)
		if err := each(ctx, db, func(rows *sql.Rows) error {
			st, err := scanLevel(rows)
			found[key{st.Item, st.Group}] = st
			return err
		}, b.String(), b.args...); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func scanLevel(rows *sql.Rows) (holdover.Stock, error) {
	var st holdover.Stock
	err := rows.Scan(&st.Shop, &st.Item, &st.Group, &st.Available, &st.Issued, &st.Pooled)
	st.Held = st.Issued - st.Pooled
	return st, err
}

// Probe reads, without a lock, every location of the items. Held is issued less
// pooled here; Stocks counts it.
func (s *Store) Probe(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, error) {
	if len(items) == 0 {
		return nil, nil
	}
	var all []holdover.Stock
	for chunk := range slices.Chunk(items, maxKeys) {
		b := new(statement)
		b.add(levelsHead, shop).add(levelsItems).in(chunk).add(")").add(levelsTail)
		err := s.read(ctx, s.main, "probe", holdover.Token{}, func(rows *sql.Rows) error {
			st, err := scanLevel(rows)
			all = append(all, st)
			return err
		}, b.String(), b.args...)
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// StocksOf is Probe under the name that verification uses.
func (s *Store) StocksOf(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, error) {
	return s.Probe(ctx, shop, items)
}

// Stocks is one page of the ledger by shop, item and group, after the given
// row's key (the zero Stock for the first page), with issued, pooled and held
// units counted in one snapshot. A page of fewer than limit is the last one.
func (s *Store) Stocks(ctx context.Context, after holdover.Stock, limit int) ([]holdover.Stock, error) {
	var all []holdover.Stock
	err := s.read(ctx, s.main, "list stocks", holdover.Token{}, func(rows *sql.Rows) error {
		var st holdover.Stock
		err := rows.Scan(&st.Shop, &st.Item, &st.Group, &st.Available, &st.Issued, &st.Pooled, &st.Held)
		all = append(all, st)
		return err
	}, stmtStocks, after.Shop, after.Shop, after.Item, after.Item, after.Group, limit)
	return all, err
}

// StockRow is one row of the ledger.
type StockRow struct {
	Shop      int64 `json:"shop_id"`
	Item      int64 `json:"item_id"`
	Group     int64 `json:"group_id"`
	Available int64 `json:"available"`
}

const importRows = 1000 // rows of one transaction

// ImportStock adds rows to the ledger and returns how many are new. A row that
// is there with the same value is fine; one with another value refuses
// everything, by name, before anything is written. A failure in the middle
// leaves whole transactions of the beginning: run it again.
func (s *Store) ImportStock(ctx context.Context, rows []StockRow) (added int, err error) {
	missing, err := s.missingStock(ctx, rows)
	if err != nil {
		return 0, err
	}
	for chunk := range slices.Chunk(missing, importRows) {
		if err := s.importChunk(ctx, chunk); err != nil {
			return added, err
		}
		added += len(chunk)
	}
	return added, nil
}

func (s *Store) importChunk(ctx context.Context, chunk []StockRow) error {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	err := s.transact(ctx, s.main, "import stock", holdover.Token{}, func(ctx context.Context, t *tx) error {
		for part := range slices.Chunk(chunk, maxRows) {
			pools, ledger := new(statement), new(statement)
			pools.add(importPoolHead)
			ledger.add(importLedgerHead)
			for i, r := range part {
				pools.sep(i, ", ").add("(?, ?, ?, 0, 1)", r.Shop, r.Item, r.Group)
				ledger.sep(i, ", ").add("(?, ?, ?, ?)", r.Shop, r.Item, r.Group, r.Available)
			}
			for _, b := range []*statement{pools.add(importPoolTail), ledger.add(importLedgerTail)} {
				if _, err := t.exec(ctx, b.String(), b.args...); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if number(err) == errDuplicateKey {
		return fmt.Errorf("somebody else imports the same stock now: run it again: %w", err)
	}
	return err
}

// missingStock checks every row against the others and against the ledger, and
// returns those that are new, in key order.
func (s *Store) missingStock(ctx context.Context, rows []StockRow) ([]StockRow, error) {
	byShop := map[int64]map[key]int64{}
	for i, r := range rows {
		if r.Shop <= 0 || r.Item <= 0 || r.Group <= 0 || r.Available < 0 {
			return nil, &holdover.InvalidError{Field: "stock row", Value: fmt.Sprintf("%d: %+v", i+1, r), Problem: "needs positive ids and no negative stock"}
		}
		k := key{r.Item, r.Group}
		if byShop[r.Shop] == nil {
			byShop[r.Shop] = map[key]int64{}
		}
		if n, ok := byShop[r.Shop][k]; ok && n != r.Available {
			return nil, stockConflict(r, n, "also has")
		}
		byShop[r.Shop][k] = r.Available
	}
	var missing []StockRow
	for _, shop := range slices.Sorted(maps.Keys(byShop)) {
		wanted := byShop[shop]
		there := make(map[key]int64, len(wanted))
		keys := make([]key, 0, len(wanted))
		for k := range wanted {
			keys = append(keys, k)
		}
		keys = sorted(keys)
		for chunk := range slices.Chunk(keys, maxKeys) {
			b := new(statement)
			b.add(importReadHead).keysWhere(shop, chunk).add(importReadTail)
			err := s.read(ctx, s.main, "import stock", holdover.Token{}, func(rows *sql.Rows) error {
				var k key
				var n int64
				err := rows.Scan(&k.item, &k.group, &n)
				there[k] = n
				return err
			}, b.String(), b.args...)
			if err != nil {
				return nil, err
			}
		}
		for _, k := range keys {
			row := StockRow{Shop: shop, Item: k.item, Group: k.group, Available: wanted[k]}
			switch n, ok := there[k]; {
			case !ok:
				missing = append(missing, row)
			case n != row.Available:
				return nil, stockConflict(row, n, "is in the ledger with")
			}
		}
	}
	return missing, nil
}

func stockConflict(r StockRow, other int64, how string) error {
	return &holdover.InvalidError{
		Field: "stock row", Value: fmt.Sprintf("shop %d, item %d, group %d: %d units", r.Shop, r.Item, r.Group, r.Available),
		Problem: fmt.Sprintf("%s %d units: nothing was imported; import adds new rows only", how, other),
	}
}

// is reports one of the package's own outcomes.
func is(err error, outcomes ...error) bool {
	return slices.ContainsFunc(outcomes, func(o error) bool { return errors.Is(err, o) })
}
