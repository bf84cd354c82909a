package main

import (
	"os"
	"strings"
	"testing"
)

// TestForeignLedger: a pod whose ledger is a table that the application has.
func TestForeignLedger(t *testing.T) {
	s := newSite(t, "pod-a")
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	with := func(ledger string) string {
		return s.write("holdover-foreign.yaml", strings.Replace(string(text), "    mysql: {", "    mysql: {ledger: {"+ledger+"}, ", 1))
	}
	s.file = with("tabel: stock")
	s.want(2, []string{`unknown field "tabel"`}, "migrate", "up")
	s.file = with("table: 'stock; drop'")
	s.want(2, []string{"pod-a", `mysql ledger table "stock; drop" must be a name`}, "migrate", "up")
	s.file = with("table: stock, shop: branch, item: sku, group: depot, available: on_hand, key: place")
	s.want(0, []string{"pod pod-a: applied 00002_pool_state.sql"}, "migrate", "up")
	s.want(1, []string{"the configured ledger table stock is no table of the dsn's schema"}, "stock", "show")

	s.sql(0, "CREATE TABLE stock (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, branch INT NOT NULL, sku INT NOT NULL, depot INT NOT NULL, on_hand INT NOT NULL, UNIQUE KEY place (branch, sku, depot))")
	s.sql(0, "INSERT INTO stock (branch, sku, depot, on_hand) VALUES (1, 7, 1, 12)")
	s.want(0, []string{"0 new in the ledger, 1 counters made"}, "stock", "import", s.write("stock.csv", "shop_id,item_id,group_id,available\n1,7,1,12\n"))
	srv := s.serveFile(s.file).ready()
	srv.post("/v1/shops/1/reservations", `{"token":"5f0c8f2e-6f0a-4c57-9d6b-4d2f5a1c9e11","lines":[{"item_id":7,"group_id":1,"quantity":2}]}`).has(t, 201)
	srv.post("/v1/shops/1/reservations/5f0c8f2e-6f0a-4c57-9d6b-4d2f5a1c9e11/claim", "").has(t, 200, `"claimed"`)
	srv.close(0)
	s.want(0, []string{"has 30 units, changed by +20"}, "stock", "adjust", "--shop", "1", "--item", "7", "--group", "1", "--delta", "20", "--reason", "restock")
	s.want(0, []string{"pod-a     1     7      1         30"}, "stock", "show")
	s.want(0, []string{"conserved: 1 rows"}, "verify", "--store", "mysql")
}
