package mysqlpool

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"holdover"
)

// Ledger names the table that is the ledger and its columns: holdover's own, or
// one that the application already has, in the same schema. A zero field means
// the name in its comment. A table of the application's needs InnoDB, whole
// numbers that are not null, and a visible unique key over exactly shop, item
// and location; other columns need defaults if stock is imported. holdover changes
// available, by claims and adjustments; the application may add to it in
// transactions of its own, and may take away what is in no pool and no hold
// only: Adjust knows, it does not. Conservation then leaves the journal's sum out.
type Ledger struct {
	Table     string // inventory_ledger
	Shop      string // shop_id
	Item      string // item_id
	Group     string // group_id; the location
	Available string // available
	Key       string // PRIMARY; the name of the unique key
}

func (l *Ledger) setDefaults() {
	own := Ledger{"inventory_ledger", "shop_id", "item_id", "group_id", "available", "PRIMARY"}
	def(&l.Table, own.Table)
	def(&l.Shop, own.Shop)
	def(&l.Item, own.Item)
	def(&l.Group, own.Group)
	def(&l.Available, own.Available)
	def(&l.Key, own.Key)
}

// own: it is the table that the migrations make.
func (l Ledger) own() bool {
	var own Ledger
	own.setDefaults()
	l.setDefaults()
	return l == own
}

// identifier: a name that needs no quotes.
func identifier(name string) bool {
	other := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '$')
	}
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, other)
}

func (l Ledger) validate() error {
	columns := map[string]bool{}
	for _, n := range []struct{ field, name string }{
		{"table", l.Table}, {"key", l.Key}, {"shop", l.Shop}, {"item", l.Item}, {"group", l.Group}, {"available", l.Available},
	} {
		if !identifier(n.name) {
			return &holdover.InvalidError{Field: "mysql ledger " + n.field, Value: n.name, Problem: "must be a name of letters, digits, _ and $, in the schema of the dsn"}
		}
		if n.field == "table" || n.field == "key" {
			continue
		}
		if columns[strings.ToLower(n.name)] {
			return &holdover.InvalidError{Field: "mysql ledger " + n.field, Value: n.name, Problem: "stands for two columns"}
		}
		columns[strings.ToLower(n.name)] = true
	}
	return nil
}

// ledgerStatements are the statements over the ledger, with its names in them:
// written once, when a Store is opened.
type ledgerStatements struct {
	lockHead, lockTail           string // over ledgerKeys
	keyEquals, ensurePool        string
	deductHead, caseWhen         string // {available} - CASE ... END for the amounts
	deductLine                   string // what the ledger can't pay is not matched, and the caller sees fewer rows
	setAvailable                 string
	locationsHead, locationsTail string
	levelsItems, levelsTail      string
	owedItems, standingStocks    string
	levelsBranch                 string
	stocks, snapshot             string
	readHead, readTail           string
	importHead, importTail       string
	available, change            string // of one location, for an adjustment
	conserveHead, conserveTail   string
	conserveNext, orphans        string
}

// What is in braces is replaced by the table's names. Columns are given
// holdover's names where they are read.
const (
	ledgerRead   = `SELECT {shop}, {item}, {group}, {available} FROM {ledger} FORCE INDEX ({key}) WHERE `
	ledgerOrder  = ` ORDER BY {ledger}.{shop}, {ledger}.{item}, {ledger}.{group}` // not by a name that stands for another column in the SELECT
	ledgerEquals = `({shop} = ? AND {item} = ? AND {group} = ?)`
	ledgerPage   = `{ledger}.{shop} > ? OR ({ledger}.{shop} = ? AND ({ledger}.{item} > ? OR ({ledger}.{item} = ? AND {ledger}.{group} > ?)))`
	ledgerNamed  = `SELECT {shop} AS shop_id, {item} AS item_id, {group} AS group_id, {available} AS available FROM {ledger} FORCE INDEX ({key}) WHERE `
	ledgerPool   = `pool_state p ON p.shop_id = l.{shop} AND p.item_id = l.{item} AND p.group_id = l.{group}`

	// One snapshot of three tables. Nothing is locked.
	ledgerLevels = `SELECT l.{shop}, l.{item}, l.{group}, l.{available}, COALESCE(p.issued, 0),
(SELECT COUNT(*) FROM reservation_units u WHERE u.shop_id = l.{shop} AND u.item_id = l.{item} AND u.group_id = l.{group})
FROM {ledger} l LEFT JOIN ` + ledgerPool + ` WHERE l.{shop} = ? AND l.{item} IN (`
	// A token of which MySQL has a record is no debt any more: it was placed since,
	// or has ended. One whose time passed a minute ago without one is nobody's.
	owedOpen = `d.expires_at > UTC_TIMESTAMP(3) - INTERVAL 1 MINUTE
AND NOT EXISTS (SELECT 1 FROM reserved_quantities r WHERE r.token = d.token AND r.line = 0)`
	ledgerOwed = `SELECT l.{shop}, l.{item}, l.{group}, l.{available}, COALESCE(p.issued, 0),
(SELECT COUNT(*) FROM reservation_units u WHERE u.shop_id = l.{shop} AND u.item_id = l.{item} AND u.group_id = l.{group}),
(SELECT CAST(COALESCE(SUM(d.quantity), 0) AS SIGNED) FROM holdover_debts d WHERE d.shop_id = l.{shop} AND d.item_id = l.{item} AND ` + owedOpen + `)
FROM {ledger} l LEFT JOIN ` + ledgerPool + ` WHERE l.{shop} = ? AND l.{item} IN (`

	// Stocks, holds and debts in one snapshot, told apart by the first column.
	ledgerStanding = `SELECT 0, NULL, l.{item}, l.{group}, l.{available}, COALESCE(p.issued, 0),
(SELECT COUNT(*) FROM reservation_units u WHERE u.shop_id = l.{shop} AND u.item_id = l.{item} AND u.group_id = l.{group})
FROM {ledger} l LEFT JOIN ` + ledgerPool + ` WHERE l.{shop} = ? AND l.{item} IN (`
	standingHolds = `) UNION ALL SELECT 1, r.token, r.item_id, r.group_id, r.quantity, 0, 0 FROM reserved_quantities r
WHERE r.state = 'held' AND r.shop_id = ? AND r.item_id IN (`
	standingOwed = `) UNION ALL SELECT 2, d.token, d.item_id, 0, d.quantity, 0, 0 FROM holdover_debts d
WHERE ` + owedOpen + ` AND d.shop_id = ? AND d.item_id IN (`
	standingTail = `) /*app='holdover',op='probe',step='standing'*/`

	// One branch a location: its rows are counted from the first one that may be
	// there, so that rows which purge has not removed yet are not read again.
	ledgerLevelsBranch = `(SELECT l.{shop} AS shop_id, l.{item} AS item_id, l.{group} AS group_id, l.{available} AS available, COALESCE(p.issued, 0),
(SELECT COUNT(*) FROM reservation_units u FORCE INDEX (PRIMARY) WHERE u.shop_id = ? AND u.item_id = ? AND u.group_id = ? AND u.unit >= ?)
FROM {ledger} l LEFT JOIN ` + ledgerPool + `
WHERE l.{shop} = ? AND l.{item} = ? AND l.{group} = ?)`

	ledgerLevelsBranchTail = `) u /*app='holdover',op='reserve',step='levels'*/`
	ledgerDeductTail       = ` /*app='holdover',op='claim',step='ledger'*/`

	// Held units have no index by location, since every reserve would pay for it:
	// they are added up once for a page. Verification only.
	ledgerHeld = `LEFT JOIN (SELECT shop_id, item_id, group_id, SUM(quantity) AS held FROM reserved_quantities FORCE INDEX (reserved_quantities_due)
           WHERE state = 'held' GROUP BY shop_id, item_id, group_id) h
       ON h.shop_id = l.shop_id AND h.item_id = l.item_id AND h.group_id = l.group_id
ORDER BY l.shop_id, l.item_id, l.group_id`
	ledgerPooled = `SELECT l.shop_id, l.item_id, l.group_id, l.available, COALESCE(p.issued, 0),
(SELECT COUNT(*) FROM reservation_units u FORCE INDEX (PRIMARY) WHERE u.shop_id = l.shop_id AND u.item_id = l.item_id AND u.group_id = l.group_id),
COALESCE(h.held, 0)`
	ledgerJoins = ` LIMIT ?) l
LEFT JOIN pool_state p ON p.shop_id = l.shop_id AND p.item_id = l.item_id AND p.group_id = l.group_id
`

	// One statement, so one snapshot of all tables: what it shows was true at one
	// moment, whatever buyers do meanwhile.
	ledgerConserve = ledgerPooled + `,
COALESCE(b.carried, 0) + COALESCE((SELECT SUM(e.delta) FROM ledger_entries e FORCE INDEX (ledger_entries_location)
  WHERE e.shop_id = l.shop_id AND e.item_id = l.item_id AND e.group_id = l.group_id AND e.kind <> 'oversold'), 0)
FROM (` + ledgerNamed
	ledgerConserveTail = ledgerOrder + ledgerJoins + `LEFT JOIN holdover_balances b ON b.shop_id = l.shop_id AND b.item_id = l.item_id AND b.group_id = l.group_id
` + ledgerHeld + ` /*app='holdover',op='conserve',step='page'*/`

	// Units that belong to no row of the ledger: no page shows them.
	ledgerOrphans = `SELECT k.shop_id, k.item_id, k.group_id, SUM(k.issued), SUM(k.pooled), SUM(k.held) FROM (
  SELECT shop_id, item_id, group_id, issued, 0 AS pooled, 0 AS held FROM pool_state WHERE issued <> 0
  UNION ALL
  SELECT shop_id, item_id, group_id, 0, COUNT(*), 0 FROM reservation_units GROUP BY shop_id, item_id, group_id
  UNION ALL
  SELECT shop_id, item_id, group_id, 0, 0, SUM(quantity) FROM reserved_quantities FORCE INDEX (reserved_quantities_due)
  WHERE state = 'held' GROUP BY shop_id, item_id, group_id
) k LEFT JOIN {ledger} l ON l.{shop} = k.shop_id AND l.{item} = k.item_id AND l.{group} = k.group_id
WHERE l.{shop} IS NULL GROUP BY k.shop_id, k.item_id, k.group_id
ORDER BY k.shop_id, k.item_id, k.group_id LIMIT ? /*app='holdover',op='conserve',step='orphans'*/`
)

// statements writes the ledger's names into its statements.
func (l Ledger) statements() *ledgerStatements {
	quoted := func(name string) string { return "`" + name + "`" } // validated: it has no quote in it
	names := strings.NewReplacer("{ledger}", quoted(l.Table), "{shop}", quoted(l.Shop), "{item}", quoted(l.Item),
		"{group}", quoted(l.Group), "{available}", quoted(l.Available), "{key}", quoted(l.Key))
	named := func(template string) string { return names.Replace(template) }
	return &ledgerStatements{
		lockHead:  named(ledgerRead),
		lockTail:  named(ledgerOrder + ` FOR UPDATE /*app='holdover',op='ledger',step='lock'*/`),
		keyEquals: named(ledgerEquals),
		ensurePool: named(`INSERT IGNORE INTO pool_state (shop_id, item_id, group_id, issued, next_unit)
SELECT {shop}, {item}, {group}, 0, 1 FROM {ledger} WHERE ` + ledgerEquals + ` /*app='holdover',op='refill',step='pool_state'*/`),

		deductHead:   named(`UPDATE {ledger} FORCE INDEX ({key}) SET {available} = {available} - CASE`),
		caseWhen:     named(` WHEN {shop} = ? AND {item} = ? AND {group} = ? THEN ?`),
		deductLine:   named(`({shop} = ? AND {item} = ? AND {group} = ? AND {available} >= ?)`),
		setAvailable: named(`UPDATE {ledger} FORCE INDEX ({key}) SET {available} = ? WHERE ` + ledgerEquals + ` /*app='holdover',op='claim',step='set_available'*/`),

		locationsHead: named(`SELECT {item}, {group} FROM {ledger} WHERE {shop} = ? AND {item} IN (`),
		locationsTail: named(`)` + ledgerOrder + ` /*app='holdover',op='claim',step='locations'*/`),

		levelsItems:    named(ledgerLevels),
		levelsTail:     named(`) ORDER BY l.{shop}, l.{item}, l.{group} /*app='holdover',op='probe',step='levels'*/`),
		levelsBranch:   named(ledgerLevelsBranch),
		owedItems:      named(ledgerOwed),
		standingStocks: named(ledgerStanding),
		stocks: named(ledgerPooled + `
FROM (` + ledgerNamed + ledgerPage + ledgerOrder + ledgerJoins + ledgerHeld + ` /*app='holdover',op='verify',step='stocks'*/`),

		snapshot: named(ledgerRead + ledgerPage + ledgerOrder + ` LIMIT ? /*app='holdover',op='snapshot',step='ledger'*/`),

		readHead:   named(ledgerRead),
		readTail:   ` /*app='holdover',op='import',step='check'*/`,
		importHead: named(`INSERT INTO {ledger} ({shop}, {item}, {group}, {available}) VALUES `),
		importTail: ` /*app='holdover',op='import',step='ledger'*/`,

		available: named(`SELECT {available} FROM {ledger} FORCE INDEX ({key}) WHERE ` + ledgerEquals + ` FOR UPDATE /*app='holdover',op='adjust',step='ledger'*/`),
		change:    named(`UPDATE {ledger} FORCE INDEX ({key}) SET {available} = {available} + ? WHERE ` + ledgerEquals + ` /*app='holdover',op='adjust',step='change'*/`),

		conserveHead: named(ledgerConserve),
		conserveTail: named(ledgerConserveTail),
		conserveNext: named(ledgerConserve + ledgerPage + ledgerConserveTail),
		orphans:      named(ledgerOrphans),
	}
}

// ledgerKeys matches whole keys of the ledger.
func (b *statement) ledgerKeys(l *ledgerStatements, keys []key) *statement {
	for i, k := range keys {
		b.sep(i, " OR ").add(l.keyEquals, k.shop, k.item, k.group)
	}
	return b
}

const (
	stmtLedgerEngine = `SELECT COALESCE(engine, '') FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name = ? AND table_type = 'BASE TABLE' /*app='holdover',op='connect',step='ledger'*/`
	stmtLedgerColumn = `SELECT data_type, is_nullable FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = ? AND column_name = ? /*app='holdover',op='connect',step='ledger_column'*/`
	// A part that is an expression has no column: it counts as one without a name.
	stmtLedgerKeys = `SELECT index_name, LOWER(GROUP_CONCAT(COALESCE(column_name, '') ORDER BY column_name)), MAX(non_unique), COUNT(sub_part), MAX(is_visible = 'NO')
` + ledgerKeysTail
	stmtLedgerKeysMariaDB = `SELECT index_name, LOWER(GROUP_CONCAT(column_name ORDER BY column_name)), MAX(non_unique), COUNT(sub_part), MAX(ignored = 'YES')
` + ledgerKeysTail
	ledgerKeysTail = `FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = ?
GROUP BY index_name ORDER BY index_name /*app='holdover',op='connect',step='ledger_keys'*/`
	stmtLedgerMariaDB = `SELECT VERSION() LIKE '%MariaDB%' /*app='holdover',op='connect',step='ledger_server'*/`
)

// wholeNumbers are the column types that a ledger may have.
var wholeNumbers = []string{"tinyint", "smallint", "mediumint", "int", "bigint"}

// checkLedger looks at a table of the application's before the first use of a
// connection: what it relies on, or what is wrong and what to do.
func (s *Store) checkLedger(ctx context.Context, db *sql.DB) error {
	l := s.cfg.Ledger
	if l.own() {
		return nil // the schema's version says that it is there
	}
	bad := func(format string, args ...any) error {
		// Not an InvalidError: a buyer's call may be the first to find out, and it
		// is not the buyer's fault.
		return fmt.Errorf("the configured ledger table %s %s", l.Table, fmt.Sprintf(format, args...))
	}
	var engine string
	switch err := db.QueryRowContext(ctx, stmtLedgerEngine, l.Table).Scan(&engine); {
	case err == sql.ErrNoRows:
		return bad("is no table of the dsn's schema")
	case err != nil:
		return err
	case !strings.EqualFold(engine, "InnoDB"):
		return bad("has the engine %s: InnoDB is needed for its row locks", engine)
	}
	for _, column := range []string{l.Shop, l.Item, l.Group, l.Available} {
		var kind, nullable string
		switch err := db.QueryRowContext(ctx, stmtLedgerColumn, l.Table, column).Scan(&kind, &nullable); {
		case err == sql.ErrNoRows:
			return bad("has no column %s", column)
		case err != nil:
			return err
		case !slices.Contains(wholeNumbers, strings.ToLower(kind)):
			return bad("has the column %s of type %s: a whole number is needed, best BIGINT", column, kind)
		case nullable != "NO":
			return bad("has the column %s that may be null: make it NOT NULL", column)
		}
	}
	var mariadb bool
	if err := db.QueryRowContext(ctx, stmtLedgerMariaDB).Scan(&mariadb); err != nil {
		return err
	}
	keys := stmtLedgerKeys
	if mariadb {
		keys = stmtLedgerKeysMariaDB
	}
	rows, err := db.QueryContext(ctx, keys, l.Table)
	if err != nil {
		return err
	}
	defer rows.Close()
	wanted := strings.ToLower(strings.Join([]string{l.Shop, l.Item, l.Group}, ","))
	other := ""
	for rows.Next() {
		var name, columns string
		var notUnique, parts int
		var hidden bool
		if err := rows.Scan(&name, &columns, &notUnique, &parts, &hidden); err != nil {
			return err
		}
		switch named := strings.EqualFold(name, l.Key); {
		case notUnique != 0 || parts != 0 || !sameNames(columns, wanted):
		case named && hidden:
			return bad("has the key %s that statements can't name, since it is invisible (in MariaDB: ignored): make it visible", name)
		case named:
			return rows.Close()
		case !hidden:
			other = name
		}
	}
	switch err := rows.Err(); {
	case err != nil:
		return err
	case other != "":
		return bad("has the key %s over exactly %s, and not the key %s: set the ledger's key to %s", other, wanted, l.Key, other)
	}
	return bad("has no unique key over exactly %s: two rows of one location could not be told apart", wanted)
}

func sameNames(a, b string) bool {
	set := func(names string) map[string]bool {
		all := map[string]bool{}
		for name := range strings.SplitSeq(names, ",") {
			all[name] = true
		}
		return all
	}
	x, y := set(a), set(b)
	for name := range x {
		if !y[name] {
			return false
		}
	}
	return len(x) == len(y)
}
