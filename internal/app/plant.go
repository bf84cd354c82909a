package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/dualwrite"
	"holdover/internal/httpapi"
	"holdover/internal/plant"
)

// plantedOn tells the shop on which divergences are planted; nil: there is none.
func (s *Stores) plantedOn() func(shop int64) bool {
	if s.reserved == 0 {
		return nil
	}
	return func(shop int64) bool { return shop == s.reserved }
}

// withoutReserved refuses new reservations in the pod's reserved shop: there, only
// divergences are planted, and nobody compares what else happens. Holds that are
// there can be claimed, released and extended.
func (p *Pod) withoutReserved(r holdover.Reserver) holdover.Reserver {
	if p.reserved == 0 {
		return r
	}
	return &unreserved{Reserver: r, pod: p}
}

type unreserved struct {
	holdover.Reserver
	pod  *Pod
	said sync.Once
}

// Reserve passes on what is not for the reserved shop.
func (u *unreserved) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	if r.Shop != u.pod.reserved {
		return u.Reserver.Reserve(ctx, r)
	}
	u.said.Do(func() {
		u.pod.log.Warn("a buyer asks for units of the reserved shop and is refused, as each one after: it is for planted divergences, and nobody would compare the buyer's call; set reserved_shop to a shop that no buyer uses", "shop", r.Shop)
	})
	return holdover.Result{}, &holdover.InvalidError{Field: "shop_id", Value: fmt.Sprint(r.Shop),
		Problem: fmt.Sprintf("is the reserved_shop of pod %s, where divergences are planted: it sells nothing; if it is a shop with buyers, reserve another one", u.pod.Name)}
}

// notReserved refuses stock for the reserved shop.
func (s *Stores) notReserved(shop int64) error {
	if s.reserved == 0 || shop != s.reserved {
		return nil
	}
	return &holdover.InvalidError{Field: "shop_id", Value: fmt.Sprint(shop),
		Problem: fmt.Sprintf("is the reserved_shop of pod %s: it sells nothing, and planting brings in its own stock; if it is a shop with buyers, reserve another one", s.Name)}
}

// mendsPlants: an adjustment that brings a row of the reserved shop to what
// planting has there, which is none of what it does not use.
func mendsPlants(a holdover.Adjustment) bool {
	return a.Set != nil && *a.Set == plant.Units(a.Item, a.Group)
}

// codeNotPlanted is the warning that kinds of divergence can't be planted.
const codeNotPlanted = "not-planted"

// foreignStock warns of rows in the reserved shop that keep plants from being made.
func (s *Stores) foreignStock(ctx context.Context) (warnings []httpapi.Reason) {
	if s.reserved == 0 {
		return nil
	}
	stocks, err := s.MySQL.StocksOf(ctx, s.reserved, plant.Items())
	if err != nil {
		return nil // MySQL's trouble is said already
	}
	for _, err := range plant.Foreign(s.Name, s.reserved, stocks) {
		warnings = append(warnings, httpapi.Reason{Code: codeNotPlanted, Text: "some kinds of divergence can't be planted: " + err.Error()})
	}
	return warnings
}

// notPlanted warns of what this process's planter can't plant.
func (p *Pod) notPlanted() (warnings []httpapi.Reason) {
	if p.planter == nil {
		return nil
	}
	for _, u := range p.planter.Failing() {
		warnings = append(warnings, httpapi.Reason{Code: codeNotPlanted, Text: u.String(), Number: int64(len(u.Kinds))})
	}
	return warnings
}

// reach puts the planter's hand between a facade and its stores; nil when no
// shop is reserved.
func (s *Stores) reach(c *dualwrite.Config) *plant.Hand {
	if s.reserved == 0 {
		return nil
	}
	hand := plant.NewHand(s.reserved)
	c.Redis, c.MySQL, c.Observe = hand.Redis(c.Redis), hand.MySQL(c.MySQL), hand.Watch(c.Observe)
	return hand
}

// plantLock keeps planters of other processes out.
const plantLock = "plant"

func (s *Stores) plants(instance string, hand *plant.Hand, f *dualwrite.Facade, c *compare.Comparator) plant.Config {
	return plant.Config{
		Pod: s.Name, Instance: instance, Shop: s.reserved, Hand: hand, Facade: f, Comparator: c, Redis: s.Redis, MySQL: s.MySQL,
		Alone: func(ctx context.Context, do func(context.Context) error) (bool, error) {
			return s.MySQL.Alone(ctx, plantLock, do)
		},
	}
}

// openPlanter makes the pod's planter, unless no shop is reserved or the
// configuration wants no plants.
func (p *Pod) openPlanter(hand *plant.Hand) (err error) {
	if hand == nil || p.cfg.Compare.SelftestEvery < 0 {
		return nil
	}
	c := p.plants(p.cfg.Instance, hand, p.Facade, p.Comparator)
	c.Every, c.Logger = p.cfg.Compare.SelftestEvery, p.log
	p.planter, err = plant.New(c)
	return err
}

// ErrNoReservedShop: nothing may be planted in this pod.
var ErrNoReservedShop = errors.New("no shop is reserved for planted divergences: set the pod's reserved_shop to one of its shops that no buyer uses")

// SelfTest plants each kind times often in a live pod, with a facade and a
// comparator of its own, and counts what was caught. That goes to the pod's records
// too: a report counts it as it does what serve plants.
func SelfTest(ctx context.Context, c Config, s *Stores, times int) (r plant.Result, err error) {
	if s.reserved == 0 {
		return r, fmt.Errorf("pod %s: %w", s.Name, ErrNoReservedShop)
	}
	began := time.Now()
	dir, err := os.MkdirTemp("", "holdover-selftest-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	events := filepath.Join(dir, "selftest.jsonl")
	cmp, err := compare.New(compare.Config{Pod: s.Name, Instance: c.Instance + selftestName, Version: c.Version, ConfigHash: c.Hash(), Path: events, Reserved: s.plantedOn(), Logger: c.Logger})
	if err != nil {
		return r, err
	}
	fence, failed, err := s.plantAll(ctx, c, cmp, times)
	if err := errors.Join(err, cmp.Close()); err != nil {
		return r, err
	}
	rollups, _, err := compare.ReadRollups(events)
	if err != nil {
		return r, err
	}
	total, err := compare.Sum(rollups)
	if err != nil {
		return r, err
	}
	if err := s.keepPlants(ctx, rollups); err != nil {
		return r, fmt.Errorf("pod %s: what was planted can't be kept for reports: %w", s.Name, Hinted(err))
	}
	r = plant.Count(total.Planted, plant.Kinds(), times)
	r.Fail(failed)
	r.Pod, r.Stage, r.Seconds = s.Name, fence.Stage.String(), time.Since(began).Seconds()
	return r, nil
}

// selftestName is what tells a self-test's records from those of the instance that
// its configuration names.
const selftestName = " selftest"

// keepPlants puts a self-test's counts into the pod's records.
func (s *Stores) keepPlants(ctx context.Context, rollups []compare.Rollup) error {
	for _, r := range rollups {
		kept, err := comparisonOf(r)
		if err != nil {
			return err
		}
		if _, err := s.MySQL.AppendComparison(ctx, kept); err != nil {
			return err
		}
	}
	return nil
}

// plantAll runs a facade of its own while it plants. It does no other
// instance's work: it only mirrors what is planted.
func (s *Stores) plantAll(ctx context.Context, c Config, cmp *compare.Comparator, times int) (fence holdover.Fence, failed []error, err error) {
	own := c.facade(s)
	own.Instance, own.Observe, own.Verify = c.Instance+selftestName, cmp.Observe, s.verify
	own.SweepEvery, own.ReadinessEvery = 24*time.Hour, -1
	hand := s.reach(&own)
	f, err := dualwrite.New(own)
	if err != nil {
		return fence, nil, err
	}
	if err := f.Look(ctx); err != nil {
		return fence, nil, err
	}
	if fence, err = f.Agreed(); err != nil {
		return fence, nil, err
	}
	if !fence.Stage.Dual() {
		return fence, nil, fmt.Errorf("pod %s is in %s, where nothing is compared: a self-test needs shadow, joint or mysql: %w", s.Name, fence.Stage, holdover.ErrNotReady)
	}
	planter, err := plant.New(s.plants(own.Instance, hand, f, cmp))
	if err != nil {
		return fence, nil, err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { f.Run(background) })
	defer running.Wait()
	defer stop()
	for range times {
		failed = append(failed, planter.PlantEach(ctx)...)
		if ctx.Err() != nil {
			return fence, failed, ctx.Err()
		}
	}
	return fence, failed, nil
}
