package mysqlpool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"holdover"
)

// poolRow is a locked row of pool_state.
type poolRow struct{ issued, next int64 }

// stockLocks are locked rows of pool_state and of the ledger. Those that are
// missing in the database are missing here: ensurePools makes those of
// pool_state, outside the transaction.
type stockLocks struct {
	pools     map[key]poolRow
	available map[key]int64
	now       time.Time // the server's; zero when no row was found
}

// lockStock locks the rows of pool_state, then those of the ledger, in key
// order. More statements may follow in the packet: before is called with it.
func (t *tx) lockStock(ctx context.Context, keys []key) (stockLocks, error) {
	b := new(statement)
	l, scans := b.lockStock(t.s.ledger, keys)
	return *l, t.ask(ctx, b, scans...)
}

func (b *statement) lockStock(ledger *ledgerStatements, keys []key) (*stockLocks, []func(*sql.Rows) error) {
	l := &stockLocks{pools: make(map[key]poolRow, len(keys)), available: make(map[key]int64, len(keys))}
	var scans []func(*sql.Rows) error
	for chunk := range slices.Chunk(keys, maxKeys) {
		b.next().add(lockPoolsHead).keysWhere(chunk).add(lockPoolsTail)
		scans = append(scans, func(rows *sql.Rows) error {
			var k key
			var p poolRow
			err := rows.Scan(&k.shop, &k.item, &k.group, &p.issued, &p.next, &l.now)
			l.pools[k] = p
			return err
		})
	}
	for chunk := range slices.Chunk(keys, maxKeys) {
		b.next().add(ledger.lockHead).ledgerKeys(ledger, chunk).add(ledger.lockTail)
		scans = append(scans, func(rows *sql.Rows) error {
			var k key
			var n int64
			err := rows.Scan(&k.shop, &k.item, &k.group, &n)
			l.available[k] = n
			return err
		})
	}
	return l, scans
}

// ensurePools makes the rows of pool_state that are missing for rows of the
// ledger: each in a transaction of its own, so that no other lock is held.
func (s *Store) ensurePools(ctx context.Context, op string, keys []key) error {
	for _, k := range keys {
		err := s.transact(ctx, s.main, op, holdover.Token{}, func(ctx context.Context, t *tx) error {
			_, err := t.exec(ctx, s.ledger.ensurePool, k.shop, k.item, k.group)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// moveIssued adds sign times each amount to its location's issued units, in
// key order.
func (t *tx) moveIssued(ctx context.Context, all []amount, sign int64) error {
	for chunk := range slices.Chunk(all, maxKeys) {
		changed, err := t.send(ctx, new(statement).moveIssued(chunk, sign))
		if err != nil {
			return err
		}
		if changed[0] != int64(len(chunk)) {
			return t.s.fail("move issued units", holdover.Token{}, fmt.Errorf("shop %d: pool_state has %d of %d rows of a hold, a row was deleted by hand: verify the stock", chunk[0].shop, changed[0], len(chunk)))
		}
	}
	return nil
}

// deduct takes each amount out of the ledger, in key order, or says
// errOverdrawn.
func (t *tx) deduct(ctx context.Context, all []amount) error {
	for chunk := range slices.Chunk(all, maxKeys) {
		changed, err := t.send(ctx, new(statement).deduct(t.s.ledger, chunk))
		if err != nil {
			return err
		}
		if changed[0] != int64(len(chunk)) {
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

func (t *tx) writeEntries(ctx context.Context, token holdover.Token, entries []entry) error {
	if len(entries) == 0 {
		return nil
	}
	_, err := t.send(ctx, new(statement).entries(token, entries).endRows(entriesTail))
	return err
}

// entries adds rows of one token.
func (b *statement) entries(token holdover.Token, entries []entry) *statement {
	for i, e := range entries {
		if b.rows == maxRows {
			b.endRows(entriesTail)
		}
		if b.rows == 0 {
			b.next().add(entriesHead)
		}
		b.sep(b.rows, ", ").add(entriesRow, token[:], i, e.shop, e.item, e.group, e.delta, e.kind)
		b.rows++
	}
	return b
}

func claimEntries(shop int64, lines []holdover.Line) []entry {
	entries := make([]entry, len(lines))
	for i, l := range lines {
		entries[i] = entry{keyOf(shop, l), -l.Quantity, kindClaim}
	}
	return entries
}

// levels reads, without a lock and in one snapshot for each chunk of keys, what
// the pool knows of them. Held is what conservation says it is.
func (s *Store) levels(ctx context.Context, db querier, keys []key) (map[key]holdover.Stock, error) {
	b := new(statement)
	found, scans := b.levels(s, keys)
	return found, eachSet(ctx, db, scans, b.String())
}

func (b *statement) levels(s *Store, keys []key) (map[key]holdover.Stock, []func(*sql.Rows) error) {
	found := make(map[key]holdover.Stock, len(keys))
	var scans []func(*sql.Rows) error
	for chunk := range slices.Chunk(keys, maxKeys) {
		b.next().add(unionHead)
		for i, k := range chunk {
			b.sep(i, unionJoin).add(s.ledger.levelsBranch, k.shop, k.item, k.group, s.positions.floor(k), k.shop, k.item, k.group)
		}
		b.add(ledgerLevelsBranchTail)
		scans = append(scans, func(rows *sql.Rows) error {
			st, err := scanLevel(rows)
			found[key{st.Shop, st.Item, st.Group}] = st
			return err
		})
	}
	return found, scans
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
		b.add(s.ledger.levelsItems, shop).in(chunk).add(s.ledger.levelsTail)
		err := s.read(ctx, s.main, "probe", holdover.Token{}, func(rows *sql.Rows) error {
			st, err := scanLevel(rows)
			all = append(all, st)
			return err
		}, b.String())
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
	}, s.ledger.stocks, after.Shop, after.Shop, after.Item, after.Item, after.Group, limit)
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
			pools, ledger, entries := new(statement), new(statement), new(statement)
			pools.add(importPoolHead)
			ledger.add(s.ledger.importHead)
			entries.add(entriesHead)
			token := holdover.NewToken() // of these entries
			for i, r := range part {
				pools.sep(i, ", ").add("(?, ?, ?, 0, 1)", r.Shop, r.Item, r.Group)
				ledger.sep(i, ", ").add("(?, ?, ?, ?)", r.Shop, r.Item, r.Group, r.Available)
				entries.sep(i, ", ").add(entriesRow, token[:], i, r.Shop, r.Item, r.Group, r.Available, kindImport)
			}
			for _, b := range []*statement{pools.add(importPoolTail), ledger.add(s.ledger.importTail), entries.add(importEntriesTail)} {
				if _, err := t.exec(ctx, b.String()); err != nil {
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
	wanted := make(map[key]int64, len(rows))
	for i, r := range rows {
		if r.Shop <= 0 || r.Item <= 0 || r.Group <= 0 || r.Available < 0 {
			return nil, &holdover.InvalidError{Field: "stock row", Value: fmt.Sprintf("%d: %+v", i+1, r), Problem: "needs positive ids and no negative stock"}
		}
		k := key{r.Shop, r.Item, r.Group}
		if n, ok := wanted[k]; ok && n != r.Available {
			return nil, stockConflict(r, n, "also has")
		}
		wanted[k] = r.Available
	}
	there := make(map[key]int64, len(wanted))
	keys := sorted(slices.Collect(maps.Keys(wanted)))
	for chunk := range slices.Chunk(keys, maxKeys) {
		b := new(statement)
		b.add(s.ledger.readHead).ledgerKeys(s.ledger, chunk).add(s.ledger.readTail)
		err := s.read(ctx, s.main, "import stock", holdover.Token{}, func(rows *sql.Rows) error {
			var k key
			var n int64
			err := rows.Scan(&k.shop, &k.item, &k.group, &n)
			there[k] = n
			return err
		}, b.String())
		if err != nil {
			return nil, err
		}
	}
	var missing []StockRow
	for _, k := range keys {
		row := StockRow{Shop: k.shop, Item: k.item, Group: k.group, Available: wanted[k]}
		switch n, ok := there[k]; {
		case !ok:
			missing = append(missing, row)
		case n != row.Available:
			return nil, stockConflict(row, n, "is in the ledger with")
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
