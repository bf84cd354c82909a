package main

import (
	"maps"
	"strings"
	"testing"

	"holdover/internal/app"
)

func TestMigrate(t *testing.T) {
	s := newSite(t, "pod-a", "pod-b")
	s.want(0, []string{"pod pod-a: ", "pending"}, "migrate", "status", "--all")
	s.want(1, []string{"the schema is not migrated", "migrate up"}, "stock", "show")
	s.want(0, []string{"pod pod-a: applied "}, "migrate", "up", "--pod", "pod-a")
	if a := s.want(0, nil, "migrate", "status", "--pod", "pod-a"); strings.Contains(a.out, "pending") || !strings.Contains(a.out, "applied 20") {
		t.Errorf("status after up:\n%s", a.out)
	}
	s.want(0, []string{"pod pod-b: ", "pending"}, "migrate", "status", "--pod", "pod-b")
	s.want(0, []string{"pod pod-a: nothing to do", "pod pod-b: applied"}, "migrate", "up", "--all")
	if a := runArgs(t.Context(), "", "migrate", "print"); a.code != 0 || !strings.Contains(a.out, "CREATE TABLE") || strings.Contains(a.out, "+goose") {
		t.Errorf("print: exit %d\n%s", a.code, a.out)
	}
}

// TestMigrateGoesOn: a pod that can't be migrated stops no other.
func TestMigrateGoesOn(t *testing.T) {
	s := newSite(t, "pod-a", "pod-b")
	s.pods[0].dsn = strings.Replace(s.pods[0].dsn, "/t_", "/absent_", 1)
	s.file = s.configure("operator")
	s.want(1, []string{"pod pod-b: applied", "pod pod-a: ", "absent_"}, "migrate", "up", "--all")
}

func TestStock(t *testing.T) {
	s := newSite(t, "pod-a", "pod-b").stocked()
	var shown struct {
		Stock []struct {
			Pod     string `json:"pod"`
			Item    int64  `json:"item_id"`
			Group   int64  `json:"group_id"`
			Free    int64  `json:"free"`
			Counter *int64 `json:"counter"`
		} `json:"stock"`
	}
	s.object(0, &shown, "stock", "show")
	if len(shown.Stock) != 3 || shown.Stock[0].Free != 10 || *shown.Stock[0].Counter != 15 || *shown.Stock[2].Counter != 3 {
		t.Errorf("%+v", shown)
	}
	if a := s.want(0, []string{"redis counter"}, "stock", "show", "--item", "8"); strings.Count(a.out, "\n") != 2 {
		t.Errorf("show --item:\n%s", a.out)
	}

	// Twice is nothing new; a new location of a known item is refused when the
	// counter does not count it, and so is another value.
	file := s.write("again.csv", "shop_id,item_id,group_id,available\n1,7,1,10\n1,7,2,5\n1,8,1,3\n")
	s.want(0, []string{"3 rows, 0 new in the ledger, 0 counters made"}, "stock", "import", file)
	before := s.dump()
	for _, c := range []struct{ lines, want string }{
		{"1,7,1,11\n", "shop 1 item 7: at group 1 the ledger has 10 units and the file says 11"},
		{"1,7,3,2\n", "shop 1 item 7: redis has a counter of 15, the ledger would have 17 with 0 units held: they must add up"},
		{"1,9,1,4\n150,9,1,4\n1,7,1,12\n", "nothing was imported"}, // good rows of both pods beside it
		{"1,20,1,9007199254740992\n1,20,2,1\n", "more than 2^53"},
		{"999,1,1,1\n", `shop_id "999" is served by no configured pod`},
	} {
		s.want(2, []string{c.want}, "stock", "import", s.write("refused.csv", "shop_id,item_id,group_id,available\n"+c.lines))
	}
	s.want(2, []string{"1 lines of the stock file are of pods that --pod does not name"}, "stock", "import", "--pod", "pod-b", s.write("one.csv", "shop_id,item_id,group_id,available\n1,9,1,4\n"))
	if after := s.dump(); !maps.Equal(before, after) {
		t.Error("a refused import wrote something")
	}

	// From standard input, into both pods, in one go; a counter that is there and
	// adds up is taken as it is.
	if err := s.pods[1].client(t).Set(t.Context(), "inventory:150:9", 6, 0).Err(); err != nil {
		t.Fatal(err)
	}
	a := runArgs(t.Context(), "shop_id,item_id,group_id,available\n1,9,1,4\n150,9,1,4\n150,9,2,2\n", "stock", "import", "-", "--json", "--config", s.file)
	var imported struct{ Pods []app.Imported }
	oneObject(t, a.out, &imported)
	if a.code != 0 || len(imported.Pods) != 2 || imported.Pods[0] != (app.Imported{Pod: "pod-a", Rows: 1, Added: 1, Counters: 1}) ||
		imported.Pods[1] != (app.Imported{Pod: "pod-b", Rows: 2, Added: 2}) {
		t.Errorf("exit %d: %+v %s", a.code, imported, a.stderr)
	}
}

// TestBadStockFile: every line that is wrong is named, and nothing is written.
func TestBadStockFile(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	before := s.dump()
	const header = "shop_id,item_id,group_id,available\n"
	for _, c := range []struct {
		text  string
		wants []string
	}{
		{"", []string{"line 1", "must be shop_id,item_id,group_id,available"}},
		{"item_id,shop_id,group_id,available\n1,1,1,1\n", []string{"line 1"}},
		{header, []string{"has no line of stock"}},
		{header + "1,1,1,-1\n", []string{`line 2: available "-1" must be a whole number from 0`}},
		{header + "1,2,1,1\n0,1,1,1\n1,x,1,1\n1,1,1.5,1\n1,1\n1,1,1,1,1\n1,2,1,7\n", []string{
			`line 3: shop_id "0"`, `line 4: item_id "x"`, `line 5: group_id "1.5"`, "line 6:", "must have 4 fields, has 2", "line 7:", "has 5", "line 8:", "repeats line 2"}},
		{header + "1,1,1,9007199254740993\n", []string{"line 2: available"}},
		{header + "1,1,1,99999999999999999999\n", []string{"line 2: available"}},
		{header + "1, 1,1,1\n", []string{`line 2: item_id " 1"`}},
		{header + "1,\"1,1,1\n", []string{"line 2"}},
		{header + strings.Repeat("x,1,1,1\n", 100), []string{"line 2:", "line 21:", "reading stopped"}},
	} {
		s.want(2, c.wants, "stock", "import", s.write("bad.csv", c.text))
	}
	if after := s.dump(); !maps.Equal(before, after) {
		t.Error("the stores changed")
	}
	s.want(0, []string{"1 new in the ledger"}, "stock", "import", s.write("bom.csv", "\ufeff"+header+"1,77,1,0\n"))
}
