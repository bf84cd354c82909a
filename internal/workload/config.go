package workload

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"holdover"
)

// Config is the traffic of one pod. Zero fields mean the defaults.
type Config struct {
	Seed  uint64  // what the buyers buy and do follows from it; tokens are always new
	Shops []int64 // the pod's shops, at least one; each arrival chooses one at random

	Baskets    []Basket // what carts hold; nil: a Generator makes them from Seed
	Items      int      // items of the generator; 100
	SmallCarts bool     // the generator makes carts of 1 to 5 lines
	Groups     int      // locations 1..Groups of every item; 1
	MaxUnits   int64    // units of one line; most lines have 1; 3

	HotItem  int64   // an item that everybody wants; zero: none
	HotShare float64 // share of the buyers who want it, half of them nothing else
	HotStock int64   // its units in each shop, over all locations; 50

	Stock      int64   // units of an ordinary item at each location; 100,000
	ScarceRate float64 // share of the less wanted items that have little: they run out; 0.05, negative: none
	Scarce     int64   // units of such an item at each location; 20

	Clients     int           // buyers at a time in a closed loop; 16
	Rate        float64       // arrivals a second in an open loop; zero: closed loop
	MaxInFlight int           // buyers at a time in an open loop, more are shed; 512
	MaxBuyers   int64         // the run ends after so many arrivals; zero: when ctx ends
	ThinkMin    time.Duration // between a grant and the payment
	ThinkMax    time.Duration // 50 ms
	PaymentFail float64       // share of granted carts that are released
	Abandon     float64       // share of granted carts that are left to expire

	TTL         time.Duration // of a hold; 15 s
	Retries     int           // repeats of a call that got no answer, same token; 5
	Backoff     time.Duration // before the first repeat, doubled each time, jittered; 10 ms
	CallTimeout time.Duration // of one call; 5 s
	Finish      time.Duration // buyers may finish for so long after ctx has ended; 30 s
}

// withDefaults fills in the zero fields and checks the rest together.
func (c Config) withDefaults() (Config, error) {
	set(&c.Items, realItems)
	set(&c.Groups, 1)
	set(&c.MaxUnits, 3)
	set(&c.HotStock, 50)
	set(&c.Stock, 100_000)
	set(&c.ScarceRate, 0.05)
	set(&c.Scarce, 20)
	set(&c.Clients, 16)
	set(&c.MaxInFlight, 512)
	set(&c.ThinkMax, max(50*time.Millisecond, c.ThinkMin))
	set(&c.TTL, 15*time.Second)
	set(&c.Retries, 5)
	set(&c.Backoff, 10*time.Millisecond)
	set(&c.CallTimeout, 5*time.Second)
	set(&c.Finish, 30*time.Second)
	for _, f := range []struct {
		name  string
		value float64
	}{{"HotShare", c.HotShare}, {"PaymentFail", c.PaymentFail}, {"Abandon", c.Abandon}, {"PaymentFail+Abandon", c.PaymentFail + c.Abandon}} {
		if !(f.value >= 0 && f.value <= 1) {
			return c, fmt.Errorf("workload: %s is %v: it is a share between 0 and 1", f.name, f.value)
		}
	}
	switch {
	case len(c.Shops) == 0:
		return c, errors.New("workload: no shops: name the pod's shops")
	case slices.Min(c.Shops) <= 0:
		return c, fmt.Errorf("workload: shop %d is not a positive number", slices.Min(c.Shops))
	case c.HotItem < 0:
		return c, fmt.Errorf("workload: hot item %d is not a positive number", c.HotItem)
	case c.HotItem == 0 && c.HotShare > 0:
		return c, errors.New("workload: HotShare without a HotItem")
	case !(c.Rate >= 0 && c.Rate <= 1e6):
		return c, fmt.Errorf("workload: a rate of %v arrivals a second: want 0 to 1,000,000", c.Rate)
	case c.Items < 0 || c.Groups < 0 || c.MaxUnits < 0 || c.HotStock < 0 || c.Stock < 0 || c.Scarce < 0 ||
		c.Clients < 0 || c.MaxInFlight < 0 || c.MaxBuyers < 0 || c.Retries < 0:
		return c, errors.New("workload: a number of the configuration is negative")
	case c.ThinkMin < 0 || c.ThinkMax < c.ThinkMin:
		return c, fmt.Errorf("workload: a think time from %s to %s: the second must not be smaller", c.ThinkMin, c.ThinkMax)
	case c.TTL < 0 || c.Backoff < 0 || c.CallTimeout < 0 || c.Finish < 0:
		return c, errors.New("workload: a duration of the configuration is negative")
	}
	return c, nil
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// catalogue lists the items that carts are made of, the most wanted first.
func (c Config) catalogue() []int64 {
	if len(c.Baskets) == 0 {
		return NewGenerator(GeneratorConfig{Items: c.Items}).Items()
	}
	wanted := map[int64]int{}
	for _, b := range c.Baskets {
		for _, item := range b.Items {
			wanted[item]++
		}
	}
	items := make([]int64, 0, len(wanted))
	for item := range wanted {
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, b int64) int {
		return cmp.Or(cmp.Compare(wanted[b], wanted[a]), cmp.Compare(a, b))
	})
	return items
}

// Stock is the stock that a pod begins with, for every shop, item and
// location, in key order: little of the hot item, which runs out; little of
// some of the less wanted items; plenty of the rest. Only the key and
// Available are set. It follows from the configuration alone.
func Stock(cfg Config) ([]holdover.Stock, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	items := c.catalogue()
	if c.HotItem != 0 && !slices.Contains(items, c.HotItem) {
		items = append(items, c.HotItem)
	}
	var rows []holdover.Stock
	for _, shop := range c.Shops {
		rng := rand.New(rand.NewPCG(c.Seed, uint64(shop)))
		for rank, item := range items {
			scarce := rank >= len(items)/2 && rng.Float64() < c.ScarceRate
			for group := int64(1); group <= int64(c.Groups); group++ {
				row := holdover.Stock{Shop: shop, Item: item, Group: group, Available: c.Stock}
				switch {
				case item == c.HotItem:
					// An even share, the rest at the first locations.
					row.Available = c.HotStock / int64(c.Groups)
					if group <= c.HotStock%int64(c.Groups) {
						row.Available++
					}
				case scarce:
					row.Available = c.Scarce
				}
				rows = append(rows, row)
			}
		}
	}
	slices.SortFunc(rows, func(a, b holdover.Stock) int {
		return cmp.Or(cmp.Compare(a.Shop, b.Shop), cmp.Compare(a.Item, b.Item), cmp.Compare(a.Group, b.Group))
	})
	return rows, nil
}
