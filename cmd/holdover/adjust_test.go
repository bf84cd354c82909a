package main

import (
	"database/sql"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"holdover/internal/app"
	"holdover/mysqlpool"
)

// sql changes MySQL behind the product's back.
func (s *site) sql(pod int, statement string) {
	s.t.Helper()
	db, err := sql.Open("mysql", s.pods[pod].dsn)
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(s.t.Context(), statement); err != nil {
		s.t.Fatalf("%s: %v", statement, err)
	}
}

func TestStockAdjust(t *testing.T) {
	s := newSite(t, "pod-a", "pod-b").stocked()
	at := []string{"stock", "adjust", "--shop", "1", "--item", "7", "--group", "1", "--by", "ada", "--reason", "count"}
	with := func(more ...string) []string { return append(slices.Clone(at), more...) }
	s.want(1, []string{"no fence"}, with("--delta", "1")...) // nobody has served the pod yet
	srv := s.serve("one").ready()

	before := s.dump()
	for want, args := range map[string][]string{
		"would change the ledger from 10 to 30010 units (+30000)":  with("--delta", "30000", "--dry-run"),
		"would change the ledger from 10 to 4 units (-6)":          with("--set", "4", "--dry-run"),
		"would be refused: 11 units were to go, the ledger has 10": with("--delta=-11", "--dry-run"),
		"would take 10 units from the ledger's 10, instead of 11":  with("--delta=-11", "--clamp", "--dry-run"),
		"beyond 2^53": with("--delta", "9007199254740992", "--dry-run"),
	} {
		s.want(0, []string{want}, args...)
	}
	for want, args := range map[string][]string{
		"missing flags":                 {"stock", "adjust", "--shop", "1", "--reason", "x", "--delta", "1"},
		"delta \"0\" is zero":           at,
		"--delta and --set":             with("--delta", "1", "--set", "2"),
		"set \"-1\" must be from 0":     with("--set=-1"),
		"--reason is missing":           {"stock", "adjust", "--shop", "1", "--item", "7", "--group", "1", "--delta", "1"},
		"token \"x\" is not a UUID":     with("--delta", "1", "--token", "x"),
		"is served by no configured":    {"stock", "adjust", "--shop", "900", "--item", "7", "--group", "1", "--delta", "1", "--reason", "x"},
		"shop 1 is one of pod pod-a":    with("--delta", "1", "--pod", "pod-b"),
		"item_id \"-7\" must be a posi": {"stock", "adjust", "--shop", "1", "--item=-7", "--group", "1", "--delta", "1", "--reason", "x"},
	} {
		s.want(2, []string{want}, args...)
	}
	s.want(1, []string{"has no row in the ledger"}, "stock", "adjust", "--shop", "1", "--item", "7", "--group", "9", "--delta", "1", "--reason", "x")
	s.want(3, []string{"11 units of shop 1, item 7 at group 1 were to be taken away, the ledger has 10 and 10 of them are free"}, with("--delta=-11")...)
	after := s.dump()
	for key := range after { // heartbeats go on, and the refusal is remembered
		if strings.Contains(key, "inventory") && before[key] != after[key] {
			t.Errorf("%s changed", key)
		}
	}
	if !maps.Equal(counters(before), counters(after)) {
		t.Error("something refused changed a counter")
	}

	var done app.StockChange
	s.object(0, &done, with("--delta", "30000", "--pod", "pod-a")...)
	if done.Pod != "pod-a" || done.Changed != 30_000 || done.Available != 30_010 || done.Owed || done.By != "ada" || done.Reason != "count" || done.At.IsZero() {
		t.Errorf("%+v", done)
	}
	again := with("--delta", "30000", "--token", done.Token.String())
	s.want(0, []string{"has 30010 units, changed by +30000; it was made before, by ada", done.Token.String()}, again...)
	s.want(0, []string{"would change nothing: it was made before"}, append(again, "--dry-run")...)
	s.want(1, []string{"token was used", "made as 1:7:1:add:30000:false by ada"}, with("--delta", "5", "--token", done.Token.String())...)
	s.want(0, []string{"30010", "30015"}, "stock", "show", "--item", "7") // ledger here, counter over both locations

	// The API: the same change, with the operator's token.
	body := `{"token":"%s","item_id":8,"group_id":1,"delta":%d,"by":"bob","reason":"broken"}`
	path, token := "/v1/shops/1/adjustments", "5f0c8f2e-6f0a-4c57-9d6b-4d2f5a1c9e01"
	srv.post(path, fmt.Sprintf(body, token, -2)).has(t, http.StatusUnauthorized)
	srv.operate("POST", path, fmt.Sprintf(body, token, -2)).has(t, 200, `"changed":-2`, `"available":1`, `"replayed":false`, `"by":"bob"`)
	srv.operate("POST", path, fmt.Sprintf(body, token, -2)).has(t, 200, `"changed":-2`, `"replayed":true`)
	srv.operate("POST", path, fmt.Sprintf(body, token, -1)).has(t, 409, "token-reused")
	srv.operate("POST", path, fmt.Sprintf(body, "5f0c8f2e-6f0a-4c57-9d6b-4d2f5a1c9e02", -9)).has(t, 409, "adjustment-refused", "1 of them are free")
	srv.close(0)
	s.want(0, []string{"pod-a: conserved: 3 rows"}, "verify", "--store", "mysql", "--pod", "pod-a")
	s.want(0, []string{"pod-a"}, "verify", "--pod", "pod-a")
}

func counters(dump map[string]string) map[string]string {
	only := map[string]string{}
	for key, value := range dump {
		if strings.Contains(key, "inventory:") || strings.Contains(key, "inventory_ledger") {
			only[key] = value
		}
	}
	return only
}

// TestVerifyMySQL: sums of MySQL alone, also while Redis is away; exit 3 names
// what differs by how much, 4 says that there was nothing.
func TestVerifyMySQL(t *testing.T) {
	s := newSite(t, "pod-a", "pod-b").stocked()
	s.want(4, []string{"nothing to verify"}, "verify", "--store", "mysql", "--pod", "pod-b")
	s.want(0, []string{"pod pod-a: conserved: 3 rows", "pod pod-b: nothing to check"}, "verify", "--store", "mysql")
	s.want(2, []string{"--store"}, "verify", "--store", "redis")

	s.sql(0, "UPDATE inventory_ledger SET available = available + 2 WHERE item_id = 8")
	var found struct {
		Clean bool
		Pods  []mysqlpool.Conservation
	}
	s.object(3, &found, "verify", "--store", "mysql")
	if found.Clean || len(found.Pods) != 2 || found.Pods[0].Violating != 1 || len(found.Pods[0].Violations) != 1 ||
		found.Pods[0].Violations[0].Rule != mysqlpool.RuleJournal || found.Pods[0].Violations[0].Units != 2 {
		t.Errorf("%+v", found)
	}
	s.pods[0].redis = "127.0.0.1:1"
	s.file = s.configure("operator")
	s.want(3, []string{"NOT CONSERVED: 1 of 3 rows", "journal: shop 1, item 8 at group 1: the ledger has 5, and its entries come to 3", "stock is not conserved"}, "verify", "--store", "mysql", "--pod", "pod-a")
}

// TestConservationIsChecked: an instance looks by itself, and shows what it found.
func TestConservationIsChecked(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	s.sql(0, "UPDATE inventory_ledger SET available = available + 2 WHERE item_id = 8")
	text, err := os.ReadFile(s.configure("one"))
	if err != nil {
		t.Fatal(err)
	}
	srv := s.serveFile(s.write("holdover-one.yaml", strings.Replace(string(text), "timing:\n", "timing:\n  conserve: 20ms\n", 1)))
	metric := func(line string) func() bool {
		return func() bool { return strings.Contains(srv.get("/metrics").text, line) }
	}
	eventually(t, "the metric shows the row", metric(`holdover_conservation_violating_rows{pod="pod-a"} 1`))
	if text := srv.get("/metrics").text; !strings.Contains(text, `holdover_conservation_rows{pod="pod-a"} 3`) || !strings.Contains(text, "holdover_conservation_timestamp_seconds") {
		t.Error("rows and time are missing")
	}
	eventually(t, "the log names the row", func() bool {
		return strings.Contains(srv.stderr.String(), "off_by=2") && strings.Contains(srv.stderr.String(), "rule=journal")
	})
	s.sql(0, "UPDATE inventory_ledger SET available = available - 2 WHERE item_id = 8")
	eventually(t, "it is mended", metric(`holdover_conservation_violating_rows{pod="pod-a"} 0`))
	srv.close(0)
}
