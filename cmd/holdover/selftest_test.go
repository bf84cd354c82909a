package main

import (
	"errors"
	"strings"
	"testing"

	"holdover"
	"holdover/internal/app"
	"holdover/internal/plant"
	"holdover/internal/teststack"
	"holdover/mysqlpool"
)

// TestReservedShop: nobody brings stock into it, and rows that stand there all the
// same are named by the self-test and by status, which say how to mend it.
func TestReservedShop(t *testing.T) {
	teststack.NoLeaks(t)
	s := newSite(t, "pod-a")
	s.pods[0].reserved = 99
	s.file = s.configure("operator")
	s.stocked()
	srv := s.serve("checkout-1").ready()
	if log := srv.stderr.String(); strings.Contains(log, "can't be refreshed") || !strings.Contains(log, "no store has a fence yet") {
		t.Errorf("the first start of a pod is told as a fault:\n%s", log)
	}
	s.flag("shadow")
	s.reach(holdover.StageShadow, 1)
	refused := []string{"is the reserved_shop of pod pod-a: it sells nothing, and planting brings in its own stock"}
	s.want(2, refused, "stock", "import", s.write("reserved.csv", "shop_id,item_id,group_id,available\n99,1,1,5\n"))
	s.want(2, refused, "stock", "adjust", "--shop", "99", "--item", "1", "--group", "1", "--delta", "5", "--reason", "x")

	c, err := (&configFlags{Config: s.file}).load(&env{ctx: t.Context(), stderr: &lockedBuffer{}})
	must(t, err)
	stores, err := app.OpenStores(t.Context(), c, c.Pods[0])
	must(t, err)
	defer stores.Close(t.Context())
	var rows []mysqlpool.StockRow
	for _, item := range plant.Items() {
		rows = append(rows, mysqlpool.StockRow{Shop: 99, Item: item, Group: 5, Available: 5})
	}
	_, err = stores.MySQL.ImportStock(t.Context(), rows)
	must(t, err)

	a := s.want(4, []string{"4 kinds could not be planted (match, pool-short, expiry-skew, not-comparable): item 1 of the reserved shop 99 has stock", "holdover stock adjust --pod pod-a --shop 99 --item 1 --group 5 --set 0 --reason TEXT", "That says nothing of the comparator"}, "selftest", "--pod", "pod-a")
	if strings.Contains(a.stderr, "was not seen") {
		t.Error(a.stderr)
	}
	s.want(0, []string{"can't be planted: item 1 of the reserved shop 99", "--item 6 --group 5 --set 0"}, "status")
	s.want(0, []string{"lanes", "of the asked instance: 0 waiting or under way"}, "status", "--url", srv.url)
	for _, item := range []string{"1", "2", "3", "4", "5", "6"} {
		s.want(0, nil, "stock", "adjust", "--pod", "pod-a", "--shop", "99", "--item", item, "--group", "5", "--set", "0", "--reason", "for plants")
	}
	if a := s.want(0, nil, "status"); strings.Contains(a.out, "can't be planted") {
		t.Error(a.out)
	}
}

// TestSelftestExit: a comparator that is wrong is told from a test that could not be
// made.
func TestSelftestExit(t *testing.T) {
	for _, c := range []struct {
		r    plant.Result
		code int
		want string
	}{
		{plant.Result{Missed: 1, Failed: []string{"x"}}, exitNotSatisfied, "was not seen as what it is"},
		{plant.Result{Misclassified: 1}, exitNotSatisfied, "was not seen as what it is"},
		{plant.Result{NotPlanted: 2, Failed: []string{"2 kinds could not be planted (a, b): away"}}, exitNothing, "2 kinds could not be planted (a, b): away"},
		{plant.Result{Unjudged: 3}, exitNothing, "3 plants could not be judged"},
	} {
		var exit *exitError
		if err := notOK(c.r); !errors.As(err, &exit) || exit.code != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
}
