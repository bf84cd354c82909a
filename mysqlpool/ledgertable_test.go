package mysqlpool

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"holdover"
	"holdover/internal/teststack"
)

// foreign is a table that an application might have.
var foreign = Ledger{Table: "stock", Shop: "branch", Item: "sku", Group: "depot", Available: "on_hand", Key: "place"}

const foreignTable = "CREATE TABLE stock (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, branch BIGINT NOT NULL, sku BIGINT NOT NULL, " +
	"depot BIGINT NOT NULL, on_hand INT UNSIGNED NOT NULL, note VARCHAR(20) NOT NULL DEFAULT 'none', UNIQUE KEY place (branch, sku, depot)) ENGINE=InnoDB"

func newForeign(t *testing.T, change ...func(*Config)) *fixture {
	t.Helper()
	f := &fixture{dsn: teststack.MySQLDSN(t)}
	f.db = plain(t, f.dsn, nil)
	f.exec(t, foreignTable)
	if _, err := Migrate(t.Context(), f.dsn, foreign); err != nil {
		t.Fatal(err)
	}
	f.Store = f.open(t, append([]func(*Config){func(c *Config) { c.Ledger = foreign }}, change...)...)
	return f
}

// TestForeignLedger: everything that touches the ledger, on rows that the
// application wrote.
func TestForeignLedger(t *testing.T) {
	f := newForeign(t, func(c *Config) { c.PoolCap, c.RefillBatch = 20, 20 })
	ctx := t.Context()
	if n := f.number(t, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'inventory_ledger'"); n != 0 {
		t.Error("the migrations made a ledger of their own")
	}
	if again, err := Migrate(ctx, f.dsn, foreign); err != nil || len(again) != 0 {
		t.Errorf("migrated again: %+v, %v", again, err)
	}
	if all, err := MigrateStatus(ctx, f.dsn, foreign); err != nil || len(all) == 0 || all[0].Version == 1 || !all[len(all)-1].Applied {
		t.Errorf("%+v, %v", all, err)
	}
	f.exec(t, "INSERT INTO stock (branch, sku, depot, on_hand, note) VALUES (7, 1, 1, 100, 'ours'), (7, 1, 2, 50, 'ours'), (7, 2, 1, 3, 'ours')")
	if err := f.WarmUp(ctx); err != nil {
		t.Fatal(err)
	}
	onHand := func(item, group int64) int64 {
		return f.number(t, "SELECT on_hand FROM stock WHERE branch = 7 AND sku = ? AND depot = ?", item, group)
	}
	cart := f.reserveOne(t, line(1, 1, 2), line(1, 2, 30), line(2, 1, 1)) // one line larger than the cap
	if _, err := f.Claim(ctx, 0, 0, cart.Token, nil, false); err != nil {
		t.Fatal(err)
	}
	// A claim that Redis decided, for more than its location has.
	if _, err := f.Apply(ctx, holdover.Hold{Token: holdover.NewToken(), Shop: shop, Lines: []holdover.Line{line(1, 2, 25)}, State: holdover.StateClaimed}); err != nil {
		t.Fatal(err)
	}
	if a, b, c := onHand(1, 1), onHand(1, 2), onHand(2, 1); a+b != 150-2-30-25 || c != 2 {
		t.Errorf("%d, %d and %d on hand", a, b, c)
	}
	var short *holdover.OutOfStockError
	if _, err := f.Vote(ctx, alone, request(line(2, 1, 3)), false); !errors.As(err, &short) || short.Short[0].Left != 2 {
		t.Errorf("%v", err)
	}
	if done, err := f.Adjust(ctx, 0, clamped(adjustment(2, -9)), holdover.AdjustTerms{}); err != nil || done.Changed != -2 || onHand(2, 1) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if done, err := f.Adjust(ctx, 0, setting(2, 40), holdover.AdjustTerms{}); err != nil || done.Changed != 40 || onHand(2, 1) != 40 {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := f.Adjust(ctx, 0, adjustment(99, 1), holdover.AdjustTerms{}); !errors.Is(err, holdover.ErrNotLoaded) {
		t.Errorf("no such row: %v", err)
	}
	if n, err := f.ImportStock(ctx, []StockRow{{shop, 5, 1, 9}, {shop, 2, 1, 40}}); n != 1 || err != nil || onHand(5, 1) != 9 {
		t.Errorf("%d imported, %v", n, err)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM stock WHERE note = 'ours'"); n != 3 {
		t.Errorf("%d rows kept the application's column", n)
	}
	f.exec(t, "UPDATE stock SET on_hand = on_hand + 10 WHERE sku = 2") // the application restocks
	if got, err := f.Probe(ctx, shop, []int64{2}); err != nil || len(got) != 1 || got[0].Available != 50 {
		t.Errorf("%+v, %v", got, err)
	}
	c, err := f.Conserve(ctx, ConserveConfig{Looks: 1})
	if err != nil || !c.OK() || c.Rows != 4 {
		t.Errorf("%+v, %v", c, err)
	}
	f.conserved(t)
	f.exec(t, "UPDATE stock SET on_hand = 0 WHERE sku = 1 AND depot = 1")
	c, err = f.Conserve(ctx, ConserveConfig{Looks: 1})
	if err != nil || c.Violating != 1 || c.Violations[0].Rule != RuleIssued {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestForeignPlans: through the table's own key, which is not its primary one.
func TestForeignPlans(t *testing.T) {
	f := newForeign(t)
	keys := []key{{shop, 1, 1}, {shop, 2, 1}, {shop, 3, 2}}
	var all []amount
	for i, k := range keys {
		all = append(all, amount{k, int64(i + 1)})
	}
	for _, size := range []int64{1, 20, 1000} {
		f.exec(t, "DELETE FROM stock")
		f.exec(t, "INSERT INTO stock (branch, sku, depot, on_hand) SELECT 7, i, 1, 5 FROM "+numbers+" n", size)
		f.exec(t, "ANALYZE TABLE stock")
		for name, b := range map[string]*statement{
			"deduct":    new(statement).deduct(f.ledger, all),
			"lock":      new(statement).add(f.ledger.lockHead).ledgerKeys(f.ledger, keys).add(f.ledger.lockTail),
			"set":       new(statement).add(f.ledger.setAvailable, 1, shop, 1, 1),
			"available": new(statement).add(f.ledger.available, shop, 1, 1),
			"change":    new(statement).add(f.ledger.change, 1, shop, 1, 1),
		} {
			for _, step := range explain(t, f.db, b.String(), b.args...) {
				if step.table == "stock" && (step.key != "place" || step.kind == "ALL" || step.kind == "index" || strings.Contains(step.extra, "filesort")) {
					t.Errorf("%d rows, %s: read by %s over key %q: %s", size, name, step.kind, step.key, step.extra)
				}
			}
		}
	}
}

// TestForeignLedgerIsChecked: at start, or on the first use of a store that
// was opened while the server was away; each says what to do.
func TestForeignLedgerIsChecked(t *testing.T) {
	dsn := teststack.MySQLDSN(t)
	if _, err := Migrate(t.Context(), dsn, foreign); err != nil {
		t.Fatal(err)
	}
	db := plain(t, dsn, nil)
	for name, c := range map[string]struct {
		table  string
		ledger func(*Ledger)
		want   string
	}{
		"good":                   {foreignTable, nil, ""},
		"another type":           {strings.Replace(foreignTable, "on_hand INT UNSIGNED", "on_hand BIGINT", 1), nil, ""},
		"key in other order":     {strings.Replace(foreignTable, "place (branch, sku, depot)", "place (sku, branch, depot)", 1), nil, ""},
		"no table":               {"CREATE TABLE unrelated (a INT)", nil, "is no table of the dsn's schema"},
		"a view":                 {"CREATE VIEW stock AS SELECT 1 AS branch", nil, "is no table"},
		"no column":              {strings.Replace(foreignTable, "on_hand", "in_hand", 1), nil, "has no column on_hand"},
		"decimals":               {strings.Replace(foreignTable, "on_hand INT UNSIGNED", "on_hand DECIMAL(10,2)", 1), nil, "has the column on_hand of type decimal"},
		"text":                   {strings.Replace(foreignTable, "sku BIGINT", "sku VARCHAR(20)", 1), nil, "has the column sku of type varchar"},
		"null":                   {strings.Replace(foreignTable, "on_hand INT UNSIGNED NOT NULL", "on_hand INT UNSIGNED NULL", 1), nil, "may be null"},
		"no key":                 {strings.Replace(foreignTable, "UNIQUE KEY", "KEY", 1), nil, "has no unique key over exactly branch,sku,depot"},
		"a wider key":            {strings.Replace(foreignTable, "place (branch, sku, depot)", "place (branch, sku, depot, id)", 1), nil, "has no unique key"},
		"a narrower key":         {strings.Replace(foreignTable, "place (branch, sku, depot)", "place (branch, sku)", 1), nil, "has no unique key"},
		"key not named":          {foreignTable, func(l *Ledger) { l.Key = "" }, "set the ledger's key to place"},
		"key over an expression": {strings.Replace(foreignTable, "UNIQUE KEY place (branch, sku, depot)", "KEY by_note ((UPPER(note))), UNIQUE KEY place (branch, sku, depot)", 1), nil, ""},
		"expression in the key":  {strings.Replace(foreignTable, "place (branch, sku, depot)", "place (branch, sku, depot, (UPPER(note)))", 1), nil, "has no unique key"},
		"invisible key":          {strings.Replace(foreignTable, "depot)", "depot) INVISIBLE", 1), nil, "has the key place that statements can't name"},
		"only another invisible": {strings.Replace(foreignTable, "place (branch, sku, depot)", "other (branch, sku, depot) INVISIBLE", 1), nil, "has no unique key"},
		"a point":                {strings.Replace(foreignTable, "on_hand INT UNSIGNED", "on_hand POINT", 1), nil, "has the column on_hand of type point"},
		"the smallest type":      {strings.Replace(foreignTable, "depot BIGINT", "depot TINYINT", 1), nil, ""},
		"MyISAM":                 {strings.Replace(foreignTable, "InnoDB", "MyISAM", 1), nil, "has the engine MyISAM: InnoDB is needed"},
	} {
		if teststack.MariaDB() {
			if strings.Contains(c.table, "((UPPER") || strings.Contains(c.table, ", (UPPER") {
				continue // it has no such keys
			}
			c.table = strings.Replace(c.table, "INVISIBLE", "IGNORED", 1)
		}
		if _, err := db.ExecContext(t.Context(), c.table); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		l := foreign
		if c.ledger != nil {
			c.ledger(&l)
		}
		_, atStart := Open(t.Context(), Config{Pod: "p", DSN: dsn, Ledger: l})
		lazy, err := Open(t.Context(), Config{Pod: "p", DSN: dsn, Ledger: l, LazyConnect: true})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, later := lazy.Probe(t.Context(), shop, []int64{1})
		for when, err := range map[string]error{"at start": atStart, "on first use": later} {
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, holdover.ErrUnavailable) || errors.Is(err, holdover.ErrInvalid)) {
				t.Errorf("%s, %s: %v", name, when, err)
			}
		}
		if err := lazy.Close(); err != nil {
			t.Error(err)
		}
		for _, drop := range []string{"DROP VIEW IF EXISTS stock", "DROP TABLE IF EXISTS stock, unrelated"} {
			if _, err := db.ExecContext(t.Context(), drop); err != nil && !strings.Contains(err.Error(), "is not VIEW") {
				t.Fatal(err)
			}
		}
	}
}

// TestLedgerWithPermutedNames: the columns have holdover's names for other
// things. Pages show every row once, in order, whatever their size.
func TestLedgerWithPermutedNames(t *testing.T) {
	names := Ledger{Table: "stock", Shop: "group_id", Item: "available", Group: "shop_id", Available: "item_id"}
	f := &fixture{dsn: teststack.MySQLDSN(t)}
	f.db = plain(t, f.dsn, nil)
	f.exec(t, "CREATE TABLE stock (group_id BIGINT NOT NULL, available BIGINT NOT NULL, shop_id BIGINT NOT NULL, item_id BIGINT NOT NULL, PRIMARY KEY (group_id, available, shop_id)) ENGINE=InnoDB")
	if _, err := Migrate(t.Context(), f.dsn, names); err != nil {
		t.Fatal(err)
	}
	f.Store = f.open(t, func(c *Config) { c.Ledger = names })
	const shops, items, groups = 3, 2, 4
	for s := shop - 1; s < shop-1+shops; s++ {
		for i := 1; i <= items; i++ {
			for g := 1; g <= groups; g++ {
				f.exec(t, "INSERT INTO stock (group_id, available, shop_id, item_id) VALUES (?, ?, ?, 10)", s, i, g)
			}
		}
	}
	for _, size := range []int{1, 5, 7, 100} {
		var all []holdover.Stock
		for more := true; more; {
			var after holdover.Stock
			if len(all) > 0 {
				after = all[len(all)-1]
			}
			page, err := f.Stocks(t.Context(), after, size)
			if err != nil {
				t.Fatal(err)
			}
			for _, st := range page {
				if st.Available != 10 {
					t.Errorf("%+v", st)
				}
				all = append(all, ids(st))
			}
			more = len(page) == size && len(all) <= shops*items*groups
		}
		sorted := slices.SortedFunc(slices.Values(all), func(a, b holdover.Stock) int {
			return cmp.Or(cmp.Compare(a.Shop, b.Shop), cmp.Compare(a.Item, b.Item), cmp.Compare(a.Group, b.Group))
		})
		if len(slices.Compact(sorted)) != shops*items*groups || !slices.Equal(all, sorted) {
			t.Errorf("pages of %d show %v", size, all)
		}
		c, err := f.Conserve(t.Context(), ConserveConfig{PageSize: size, Looks: 1})
		if err != nil || !c.OK() || c.Rows != shops*items*groups {
			t.Errorf("pages of %d: %s, %v", size, c.Summary(), err)
		}
	}
	h := f.reserveOne(t, line(1, 2, 3), line(2, 1, 4))
	if _, err := f.Claim(t.Context(), 0, 0, h.Token, nil, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Adjust(t.Context(), 0, holdover.Adjustment{Token: holdover.NewToken(), Shop: shop, Item: 1, Group: 2, Delta: -2, Reason: "test", By: "ada"}, holdover.AdjustTerms{}); err != nil {
		t.Fatal(err)
	}
	if n := f.number(t, "SELECT 100 * SUM(item_id) + SUM(item_id <> 10) FROM stock"); n != 100*(10*shops*items*groups-3-4-2)+2 {
		t.Errorf("claim and adjustment changed other rows: %d", n)
	}
}

// TestLedgerNames: what is no name never reaches a statement.
func TestLedgerNames(t *testing.T) {
	for name, l := range map[string]Ledger{
		"quote": {Table: "a`b"}, "dot": {Table: "other.stock"}, "space": {Shop: "shop id"}, "too long": {Key: strings.Repeat("x", 65)},
		"twice": {Item: "shop_id"}, "twice in capitals": {Available: "GROUP_ID"},
	} {
		if _, err := Open(t.Context(), Config{Pod: "p", DSN: "u@tcp(127.0.0.1:1)/s", LazyConnect: true, Ledger: l}); !errors.Is(err, holdover.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !(Ledger{}).own() || !(Ledger{Table: "inventory_ledger"}).own() || foreign.own() || (Ledger{Available: "left"}).own() {
		t.Error("own is not told from foreign")
	}
	if s := foreign.statements(); strings.Contains(s.deductHead+s.conserveNext+s.stocks+s.levelsBranch, "{") || strings.Contains(s.lockHead, "inventory_ledger") {
		t.Errorf("%+v", s)
	}
}
