package app

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/internal/plant"
	"holdover/mysqlpool"
)

// reservedConfig is newConfig's pod with shop 9 for plants.
func reservedConfig(t *testing.T) Config {
	c := newConfig(t)
	c.Pods[0].ReservedShop = 9
	c.Timing.Mirror = 2 * time.Second
	return c
}

// On demand, each kind is planted in a live pod and caught, in every stage that
// compares; afterwards the stores agree, the reserved shop included.
func TestSelfTest(t *testing.T) {
	stages := []holdover.Stage{holdover.StageRedis, holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL}
	for i, stage := range stages {
		t.Run(stage.String(), func(t *testing.T) {
			c := reservedConfig(t)
			s := newStores(t, c)
			fences(t, s, stages[:i+1]...)
			r, err := SelfTest(t.Context(), c, s, 1)
			if !stage.Dual() {
				if !errors.Is(err, holdover.ErrNotReady) {
					t.Errorf("%+v, %v", r, err)
				}
				return
			}
			if err != nil || !r.OK || r.Stage != stage.String() || r.Caught < uint64(len(plant.Kinds())) {
				t.Errorf("%+v, %v", r, err)
			}
			page, err := Report(t.Context(), c, []*Stores{s}, ReportOptions{Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)})
			if err != nil || page.SelfTest.Planted != r.Planted || page.SelfTest.Caught != r.Caught || page.Coverage.Eligible != 0 {
				t.Errorf("the report does not count what was planted: %+v, %v", page.SelfTest, err)
			}
			s.reserved = 0 // look at all of it
			if v, err := VerifyFor(t.Context(), c, s, VerifyOptions{}); err != nil || !v.Clean {
				t.Errorf("%s %v, %v", v.Summary(), v.Differences, err)
			}
		})
	}
	s := newStores(t, newConfig(t))
	if _, err := SelfTest(t.Context(), newConfig(t), s, 1); !errors.Is(err, ErrNoReservedShop) {
		t.Errorf("without a reserved shop: %v", err)
	}
}

// TestReservedShopSellsNothing: nobody compares a buyer there, so none gets a hold;
// what is there already can be ended.
func TestReservedShopSellsNothing(t *testing.T) {
	c := reservedConfig(t)
	fences(t, newStores(t, c), holdover.StageRedis, holdover.StageShadow)
	p, err := OpenPod(t.Context(), c, c.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.WithoutCancel(t.Context())) })
	asked := &askedFor{}
	r := p.withoutReserved(asked)
	request := func(shop int64) holdover.Request {
		return holdover.Request{Shop: shop, Token: holdover.NewToken(), TTL: time.Minute, Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}}
	}
	if _, err := r.Reserve(t.Context(), request(9)); !errors.Is(err, holdover.ErrInvalid) || !strings.Contains(err.Error(), "reserved_shop of pod") || asked.reserves != 0 {
		t.Errorf("in the reserved shop: %v", err)
	}
	if _, err := r.Reserve(t.Context(), request(1)); err != nil || asked.reserves != 1 {
		t.Errorf("in another shop: %v", err)
	}
	if _, err := r.Release(t.Context(), 9, holdover.NewToken()); err != nil || asked.releases != 1 {
		t.Errorf("a release in the reserved shop: %v", err)
	}
}

// askedFor counts what comes through to a reserver.
type askedFor struct {
	holdover.Reserver
	reserves, releases int
}

func (a *askedFor) Reserve(context.Context, holdover.Request) (holdover.Result, error) {
	a.reserves++
	return holdover.Result{}, nil
}

func (a *askedFor) Release(context.Context, int64, holdover.Token) (holdover.Result, error) {
	a.releases++
	return holdover.Result{}, nil
}

// A pod that serves plants one kind after the other, and what is planted counts
// in no other figure.
func TestPodPlants(t *testing.T) {
	c := reservedConfig(t)
	c.Compare.SelftestEvery, c.Compare.FlushEvery = 20*time.Millisecond, 50*time.Millisecond
	c.Timing.VerifyEvery = -1
	fences(t, newStores(t, c), holdover.StageRedis, holdover.StageShadow)
	pod, err := OpenPod(t.Context(), c, c.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- pod.Run(ctx) }()
	seen := map[compare.Kind]uint64{}
	deadline := time.After(90 * time.Second)
	for len(seen) < len(compare.Kinds()) {
		select {
		case <-deadline:
			t.Fatalf("planted in vain: %v", seen)
		case <-time.After(50 * time.Millisecond):
		}
		rollups, _, err := compare.ReadRollups(c.Events, c.Events+"/"+spoolFolder)
		if err != nil {
			continue // it is being written
		}
		total, err := compare.Sum(rollups)
		if err != nil {
			t.Fatal(err)
		}
		clear(seen)
		for _, p := range total.Planted {
			if p.Want != p.Got {
				t.Fatalf("%s was seen as %s", p.Want, p.Got)
			}
			seen[p.Want] += p.Count
		}
		if len(total.Cells) > 0 {
			t.Fatalf("nobody bought anything, and %+v is counted", total.Cells)
		}
	}
	stop()
	if err := errors.Join(<-ended, pod.Close(context.Background())); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A verification leaves the reserved shop out, whose counters are changed on
// purpose.
func TestVerifyLeavesTheReservedShopOut(t *testing.T) {
	c := reservedConfig(t)
	c.Timing.Recheck = 50 * time.Millisecond
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	for _, shop := range []int64{8, 9} {
		if _, err := ImportStock(t.Context(), s, []mysqlpool.StockRow{{Shop: shop, Item: 1, Group: 1, Available: 5}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Redis.Load(t.Context(), 9, map[int64]int64{1: 4}, true); err != nil {
		t.Fatal(err)
	}
	if v, err := VerifyFor(t.Context(), c, s, VerifyOptions{}); err != nil || !v.Clean || v.Items != 1 {
		t.Errorf("%s, %v", v.Summary(), err)
	}
	s.reserved = 0
	if v, err := VerifyFor(t.Context(), c, s, VerifyOptions{}); err != nil || len(v.ForeignWrites) != 1 {
		t.Errorf("the counter is not changed at all: %s, %v", v.Summary(), err)
	}
}
