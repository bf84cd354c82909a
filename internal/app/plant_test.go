package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/internal/plant"
	"holdover/mysqlpool"
	"holdover/rollout"
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

// foreignStock puts a row into both stores, past what refuses it in a reserved shop.
func foreignStock(t *testing.T, s *Stores, rows ...mysqlpool.StockRow) {
	t.Helper()
	if _, err := s.MySQL.ImportStock(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	counters := map[int64]map[int64]int64{}
	for _, row := range rows {
		if counters[row.Shop] == nil {
			counters[row.Shop] = map[int64]int64{}
		}
		counters[row.Shop][row.Item] += row.Available
	}
	for shop, items := range counters {
		if _, err := s.Redis.Load(t.Context(), shop, items, false); err != nil {
			t.Fatal(err)
		}
	}
}

// lockedLog is a log that a test reads while it is written.
type lockedLog struct {
	mu    sync.Mutex
	lines strings.Builder
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(b)
}

func (l *lockedLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.String()
}

// needPlenty are the kinds that are planted on the item which foreignStock takes.
var needPlenty = []string{"match", "pool-short", "expiry-skew", "not-comparable"}

// TestForeignStockIsNamed: stock of somebody else in the reserved shop keeps some
// kinds from being planted and no others; the cause is said, with a command that
// mends it.
func TestForeignStockIsNamed(t *testing.T) {
	c := reservedConfig(t)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	foreignStock(t, s, mysqlpool.StockRow{Shop: 9, Item: 1, Group: 1, Available: 5}, mysqlpool.StockRow{Shop: 9, Item: 3, Group: 7, Available: 2})
	r, err := SelfTest(t.Context(), c, s, 1)
	if err != nil || r.OK || r.Blind() || r.NotPlanted != 5 || len(r.Failed) != 2 || r.Caught < uint64(len(plant.Kinds())-5) {
		t.Fatalf("%+v, %v", r, err)
	}
	said := strings.Join(r.Failed, "\n")
	for _, want := range []string{"4 kinds could not be planted (" + strings.Join(needPlenty, ", ") + ")", "5 units at location 1 instead of 1000",
		"holdover stock adjust --pod pod-a --shop 9 --item 1 --group 1 --set 1000 --reason", "1 kind could not be planted (last-unit-race)", "--item 3 --group 7 --set 0"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in:\n%s", want, said)
		}
	}
	warned := func() (n int) {
		for _, w := range Status(t.Context(), s, rollout.Desired{}).Warnings {
			if w.Code == codeNotPlanted && strings.Contains(w.Text, "--reason TEXT") {
				n++
			}
		}
		return n
	}
	if n := warned(); n != 2 {
		t.Errorf("status warns %d times", n)
	}
	live := ReportOptions{Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour), Live: true}
	if page, err := Report(t.Context(), c, []*Stores{s}, live); err != nil || !strings.Contains(strings.Join(page.Notes, "\n"), "--item 1 --group 1 --set 1000 --reason") {
		t.Errorf("the report does not name the cause: %v, %v", page.Notes, err)
	}
	set := func(item, group, units int64) error {
		_, err := Adjust(t.Context(), c, s, holdover.Adjustment{Token: holdover.NewToken(), Shop: 9, Item: item, Group: group, Set: &units, By: "ada", Reason: "for plants"}, false)
		return err
	}
	if err := errors.Join(set(1, 1, 1000), set(3, 7, 0)); err != nil {
		t.Fatal(err)
	}
	if n := warned(); n != 0 {
		t.Errorf("status warns %d times of stock that is as it should be", n)
	}
	if r, err := SelfTest(t.Context(), c, s, 1); err != nil || !r.OK {
		t.Errorf("after the named commands: %+v, %v", r, err)
	}
}

// TestReservedShopTakesNoStock: neither an import nor an adjustment.
func TestReservedShopTakesNoStock(t *testing.T) {
	c := reservedConfig(t)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, holdover.ErrInvalid) || !strings.Contains(err.Error(), "it sells nothing, and planting brings in its own stock") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := ImportStock(t.Context(), s, []mysqlpool.StockRow{{Shop: 8, Item: 1, Group: 1, Available: 5}, {Shop: 9, Item: 50, Group: 1, Available: 5}})
	refused("import", err)
	if stocks, err := s.MySQL.StocksOf(t.Context(), 8, []int64{1}); err != nil || len(stocks) > 0 {
		t.Errorf("the other shop's row was imported: %+v, %v", stocks, err)
	}
	seven := int64(7)
	for _, a := range []holdover.Adjustment{{Delta: 3}, {Set: &seven}} {
		a.Token, a.Shop, a.Item, a.Group, a.By, a.Reason = holdover.NewToken(), 9, 1, 1, "ada", "more"
		for _, dry := range []bool{true, false} {
			_, err := Adjust(t.Context(), c, s, a, dry)
			refused("adjust", err)
		}
	}
}

// TestPlantingGoesOn: a kind that can't be planted holds no other up, and its cause
// is logged once; when it is mended, all are planted again.
func TestPlantingGoesOn(t *testing.T) {
	c := reservedConfig(t)
	log := &lockedLog{}
	c.Logger = slog.New(slog.NewTextHandler(log, nil))
	c.Compare.SelftestEvery, c.Compare.FlushEvery = 20*time.Millisecond, 50*time.Millisecond
	c.Timing.VerifyEvery = -1
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	foreignStock(t, s, mysqlpool.StockRow{Shop: 9, Item: 1, Group: 1, Available: 5})
	pod, err := OpenPod(t.Context(), c, c.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- pod.Run(ctx) }()
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.After(90 * time.Second); !ok(); {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-deadline:
				t.Fatalf("%s: never\n%s", what, log.text())
			}
		}
	}
	eventually("each kind had its turn twice", func() bool {
		n := map[compare.Kind]uint64{}
		for _, p := range pod.Comparator.Total().Planted {
			n[p.Want] += p.Count
		}
		return len(n) == len(compare.Kinds())-len(needPlenty) && n[compare.KindForeignWrite] > 1
	})
	if f := pod.notPlanted(); len(f) != 1 || !strings.Contains(f[0].Text, "4 kinds could not be planted") {
		t.Errorf("%+v", f)
	}
	if n := strings.Count(log.text(), "can't be planted"); n != 1 || strings.Count(log.text(), "pod=pod-a pod=pod-a") > 0 {
		t.Errorf("logged %d times:\n%s", n, log.text())
	}
	units := int64(1000)
	if _, err := Adjust(t.Context(), c, s, holdover.Adjustment{Token: holdover.NewToken(), Shop: 9, Item: 1, Group: 1, Set: &units, By: "ada", Reason: "for plants"}, false); err != nil {
		t.Fatal(err)
	}
	eventually("all are planted", func() bool { return len(pod.notPlanted()) == 0 })
	if !strings.Contains(log.text(), "what kept divergences from being planted is over") {
		t.Error(log.text())
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
		foreignStock(t, s, mysqlpool.StockRow{Shop: shop, Item: 1, Group: 1, Available: 5})
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
