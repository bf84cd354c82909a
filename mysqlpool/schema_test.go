package mysqlpool

import (
	"database/sql"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"holdover"
	"holdover/internal/teststack"
)

// TestMigrateTwice: two at once, and once more: each migration is applied once.
func TestMigrateTwice(t *testing.T) {
	dsn := teststack.MySQLDSN(t)
	files, err := fs.Glob(schemaFiles, "schema/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	pending, err := MigrateStatus(t.Context(), dsn)
	if err != nil || len(pending) != len(files) || pending[0].Applied {
		t.Fatalf("%+v, %v", pending, err)
	}
	var mu sync.Mutex
	applied := 0
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			done, err := Migrate(t.Context(), dsn)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			applied += len(done)
			mu.Unlock()
		})
	}
	wg.Wait()
	if applied != len(files) {
		t.Errorf("%d applied, want %d", applied, len(files))
	}
	if again, err := Migrate(t.Context(), dsn); err != nil || len(again) != 0 {
		t.Fatalf("%+v, %v", again, err)
	}
	status, err := MigrateStatus(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range status {
		if !m.Applied || m.At.IsZero() || !strings.HasSuffix(m.Name, ".sql") {
			t.Errorf("%+v", m)
		}
	}
}

// TestMigrateResumes: one that died between a table and its record goes on.
func TestMigrateResumes(t *testing.T) {
	dsn := teststack.MySQLDSN(t)
	if _, err := Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	db := plain(t, dsn, nil)
	if _, err := db.ExecContext(t.Context(), "DELETE FROM holdover_schema WHERE version_id > 3"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Pod: "p", DSN: dsn}); !errors.Is(err, holdover.ErrNotReady) {
		t.Fatalf("an old schema: %v", err)
	}
	done, err := Migrate(t.Context(), dsn)
	if err != nil || len(done) == 0 || done[0].Version != 4 {
		t.Fatalf("%+v, %v", done, err)
	}
}

// TestMigratePrint: what is printed makes the same tables.
func TestMigratePrint(t *testing.T) {
	var out strings.Builder
	if err := MigratePrint(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "+goose") {
		t.Errorf("printed:\n%s", out.String())
	}
	printed := plain(t, teststack.MySQLDSN(t), nil)
	printed.SetMaxOpenConns(1) // as one client would run it
	for _, statement := range strings.Split(strings.TrimSpace(out.String()), ";\n") {
		if _, err := printed.ExecContext(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	f := newFixture(t)
	columns := func(db *sql.DB) string {
		var all string
		err := db.QueryRowContext(t.Context(), `SELECT GROUP_CONCAT(c.text ORDER BY c.text SEPARATOR '\n') FROM (
			SELECT CONCAT(table_name, '.', column_name, ' ', column_type, ' ', is_nullable) AS text FROM information_schema.columns
			WHERE table_schema = DATABASE() AND table_name <> 'holdover_schema'
			UNION SELECT CONCAT(table_name, ' key ', index_name, ' ', seq_in_index, ' ', column_name) FROM information_schema.statistics
			WHERE table_schema = DATABASE() AND table_name <> 'holdover_schema') c`).Scan(&all)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, db := range []*sql.DB{printed, f.db} {
		db.SetMaxOpenConns(1)
		if _, err := db.ExecContext(t.Context(), "SET SESSION group_concat_max_len = 1000000"); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := columns(printed), columns(f.db); got != want || !strings.Contains(got, "inventory_ledger.available") {
		t.Errorf("printed:\n%s\nmigrated:\n%s", got, want)
	}
}

func TestImportStock(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	var rows []StockRow
	for item := int64(1); item <= 1200; item++ {
		rows = append(rows, StockRow{shop, item, 1, item})
	}
	if n, err := f.ImportStock(ctx, rows); n != 1200 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := f.ImportStock(ctx, append(rows, StockRow{shop + 1, 1, 1, 5})); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for _, bad := range [][]StockRow{
		{{shop, 5000, 1, 1}, {shop, 3, 1, 4}},    // another value than the ledger's
		{{shop, 5000, 1, 1}, {shop, 5000, 1, 2}}, // two values in one import
		{{shop, 5000, 1, -1}}, {{shop, 0, 1, 1}},
	} {
		if n, err := f.ImportStock(ctx, bad); n != 0 || !errors.Is(err, holdover.ErrInvalid) {
			t.Errorf("%+v: %d, %v", bad, n, err)
		}
	}
	if n := f.number(t, "SELECT COUNT(*) FROM inventory_ledger"); n != 1201 {
		t.Errorf("%d rows: a refused import wrote something", n)
	}
	// Pages: every row once, in order.
	var all []holdover.Stock
	var after holdover.Stock
	for {
		page, err := f.Stocks(ctx, after, 500)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		if len(page) < 500 {
			break
		}
		after = page[len(page)-1]
	}
	if len(all) != 1201 || all[1199].Item != 1200 || all[1200].Shop != shop+1 {
		t.Errorf("%d rows in pages", len(all))
	}
	f.reserveOne(t, line(9, 1, 2))
	got, err := f.Probe(ctx, shop, []int64{9, 10, 99999})
	if err != nil || len(got) != 2 || got[0].Held != 2 || got[0].Free() != 7 || got[1].Free() != 10 {
		t.Errorf("%+v, %v", got, err)
	}
}
