package workload

import (
	"reflect"
	"strings"
	"testing"

	"holdover"
)

func TestStock(t *testing.T) {
	cfg := Config{Seed: 3, Shops: []int64{7, 4}, Items: 40, Groups: 3, HotItem: 999, HotShare: 0.1, HotStock: 50, Scarce: 2, ScarceRate: 0.5}
	rows, err := Stock(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := Stock(cfg); !reflect.DeepEqual(rows, again) {
		t.Error("the stock of one configuration differs from call to call")
	}
	if len(rows) != 2*41*3 {
		t.Fatalf("%d rows, want 2 shops of 41 items at 3 locations", len(rows))
	}
	hot, scarce := map[int64]int64{}, 0
	for i, row := range rows {
		if i > 0 && sortStock(rows[i-1], row) >= 0 {
			t.Fatalf("row %d is not behind row %d", i, i-1)
		}
		switch {
		case row.Item == 999:
			hot[row.Shop] += row.Available
		case row.Available == 2:
			scarce++
			if row.Item <= 20 {
				t.Errorf("item %d is among the most wanted and scarce", row.Item)
			}
		case row.Available != 100_000:
			t.Errorf("item %d has %d units", row.Item, row.Available)
		}
	}
	if hot[7] != 50 || hot[4] != 50 {
		t.Errorf("the hot item has %v units, want 50 in each shop", hot)
	}
	if scarce == 0 {
		t.Error("nothing is scarce")
	}
}

func TestStockOfBasketsCoversTheirItems(t *testing.T) {
	rows, err := Stock(Config{Shops: []int64{1}, Baskets: []Basket{{1, []int64{30, 10}}, {2, []int64{30, 20}}}, ScarceRate: -1})
	if err != nil {
		t.Fatal(err)
	}
	var items []int64
	for _, row := range rows {
		items = append(items, row.Item)
	}
	if !reflect.DeepEqual(items, []int64{10, 20, 30}) {
		t.Errorf("stock of %v, want of 10, 20 and 30", items)
	}
}

func TestConfigIsCheckedAsAWhole(t *testing.T) {
	for want, cfg := range map[string]Config{
		"no shops":             {},
		"shop -1":              {Shops: []int64{1, -1}},
		"HotShare without":     {Shops: []int64{1}, HotShare: 0.5},
		"PaymentFail+Abandon":  {Shops: []int64{1}, PaymentFail: 0.6, Abandon: 0.6},
		"PaymentFail is":       {Shops: []int64{1}, PaymentFail: -1},
		"arrivals a second":    {Shops: []int64{1}, Rate: -4},
		"number of the config": {Shops: []int64{1}, Clients: -1},
		"think time":           {Shops: []int64{1}, ThinkMin: 5, ThinkMax: 4},
		"duration":             {Shops: []int64{1}, TTL: -1},
	} {
		if _, err := Run(t.Context(), cfg, []holdover.Reserver{nil}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
	}
}
