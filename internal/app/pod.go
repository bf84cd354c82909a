package app

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/dualwrite"
	"holdover/internal/mutants"
	"holdover/internal/plant"
	"holdover/killswitch"
	"holdover/legacyredis"
	"holdover/mysqlpool"
	"holdover/mysqlpool/connhold"
)

// Stores are a pod's two stores and the switch over their fences: all that a
// command needs which does not serve buyers.
type Stores struct {
	Name   string
	Redis  *legacyredis.Store
	MySQL  *mysqlpool.Store
	Switch *killswitch.Switch
	Holds  *connhold.Totals // of MySQL's connections

	held     compare.ConnectionTimes // the same, for reports
	reserved int64                   // the shop for planted divergences; zero: none
	rules    RolloutConfig
	maxAge   time.Duration   // of a live instance's heartbeat
	mutant   *mutants.Mutant // between the stores and their users; changes nothing but in a torture
	// Facade is for commands: it reads and changes the agreement. Nothing runs
	// in its background, and it serves nobody.
	Facade *dualwrite.Facade
	verify func(ctx context.Context) (clean bool, why string, err error)
}

// commandTime bounds how long a command waits for a store that hangs: its
// connections are new, and it is in no hurry.
const commandTime = 1200 * time.Millisecond

// OpenStores connects to a pod's stores. A store that does not answer is no
// error here: the kill switch works without MySQL, and serving starts without
// either.
func OpenStores(ctx context.Context, c Config, p PodConfig) (*Stores, error) {
	return openStores(ctx, c, p, c.redis(p))
}

// OpenUnasked opens the stores without a word to either: for a kill, whose first
// call connects to both at once. It gives Redis more time to answer than a buyer
// would: a kill that has to be pressed again takes longer.
func OpenUnasked(ctx context.Context, c Config, p PodConfig) (*Stores, error) {
	redis := c.redis(p)
	redis.LazyConnect, redis.OpTimeout = true, max(redis.OpTimeout, min(commandTime, redis.GiveBackWindow/2))
	return openStores(ctx, c, p, redis)
}

func openStores(ctx context.Context, c Config, p PodConfig, redis legacyredis.Config) (_ *Stores, err error) {
	s := &Stores{Name: p.Name, Holds: new(connhold.Totals), rules: c.Rollout, maxAge: c.InstanceMaxAge(), reserved: p.ReservedShop}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("pod %s: %w", p.Name, err), s.Close(ctx))
		}
	}()
	if s.Redis, err = legacyredis.Open(ctx, redis); err != nil {
		return nil, err
	}
	pool := c.mysql(p)
	pool.WrapConnector = func(c driver.Connector) driver.Connector { return connhold.Wrap(c, recorders{s.Holds, &s.held}) }
	if s.MySQL, err = mysqlpool.Open(ctx, pool); err != nil {
		return nil, err
	}
	if s.mutant, err = mutants.Make(c.Mutate, mutants.Servers{RedisAddr: p.Redis.Addr, MySQLDSN: p.MySQL.DSN}); err != nil {
		return nil, err
	}
	s.Switch, err = killswitch.New(killswitch.Config{
		Pod: p.Name, Redis: s.Redis, MySQL: s.mutant.KillMySQL(s.MySQL), InstanceMaxAge: c.InstanceMaxAge(), Logger: c.Logger,
	})
	if err != nil {
		return nil, err
	}
	bare := c.facade(s)
	bare.RefreshTimeout = commandTime
	bare.Verify = func(ctx context.Context) (clean bool, why string, err error) {
		v, err := Verify(ctx, c, s)
		return v.Clean, v.Summary(), err
	}
	s.verify = bare.Verify
	s.Facade, err = dualwrite.New(bare)
	return s, err
}

// facade is what each facade of the pod is told.
func (c Config) facade(s *Stores) dualwrite.Config {
	return dualwrite.Config{
		Pod: s.Name, Instance: c.Instance, Redis: s.mutant.Redis(s.Redis), MySQL: s.mutant.MySQL(s.MySQL), Limits: c.Limits(),
		CallTimeout: c.Timing.Call, MirrorTimeout: c.Timing.Mirror, MirrorLinger: max(c.Timing.MirrorLinger, 0), SweepEvery: c.Timing.Sweep,
		ReaperGrace: c.Timing.ReaperGrace, InstanceMaxAge: c.InstanceMaxAge(), RebuildEnded: c.endRetention(),
		ReadinessEvery: c.Timing.Readiness, VerifiedMaxAge: c.Timing.VerifiedMaxAge, DrillMaxAge: c.Rollout.DrillMaxAge, Logger: c.Logger,
	}
}

// InstanceMaxAge is how old a heartbeat may be: three missed ones are a dead
// instance.
func (c Config) InstanceMaxAge() time.Duration { return 3*c.Timing.Heartbeat + 500*time.Millisecond }

// Close closes what is open, in reverse order.
func (s *Stores) Close(ctx context.Context) error {
	var errs []error
	if s.Switch != nil {
		errs = append(errs, s.Switch.Close(ctx))
	}
	errs = append(errs, s.mutant.Close())
	if s.MySQL != nil {
		errs = append(errs, s.MySQL.Close())
	}
	if s.Redis != nil {
		errs = append(errs, s.Redis.Close())
	}
	return errors.Join(errs...)
}

// Pod is one pod as one process serves it.
type Pod struct {
	*Stores
	Facade     *dualwrite.Facade // the one that serves; it hides the command's
	Comparator *compare.Comparator

	cfg        Config
	shops      []shopRange
	instanceID string
	follower   *killswitch.Follower
	events     *compare.EventFile // nil without a folder
	shipper    *shipper           // nil without a folder
	planter    *plant.Planter     // nil without a reserved shop
	serving    atomic.Pointer[dualwrite.Facade]
	beat       chan struct{} // asks for a heartbeat now
	hottest    *hottest
	log        *slog.Logger

	mu           sync.Mutex
	verification *compare.Verification // the last one
	conservation *mysqlpool.Conservation
	foreign      time.Time // see foreignSeen
}

// OpenPod connects to the pod's stores and makes its facade, comparator and
// follower. Run runs them.
func OpenPod(ctx context.Context, c Config, p PodConfig) (_ *Pod, err error) {
	stores, err := OpenStores(ctx, c, p)
	if err != nil {
		return nil, err
	}
	pod := &Pod{Stores: stores, cfg: c, beat: make(chan struct{}, 1), hottest: newHottest(time.Now), log: c.Logger.With("pod", p.Name)}
	defer func() {
		if err != nil {
			err = errors.Join(err, pod.Close(ctx))
		}
	}()
	if pod.shops, err = parseShops(p.Shops); err != nil {
		return nil, fmt.Errorf("pod %s: shops: %w", p.Name, err)
	}
	if err = pod.openComparator(); err != nil {
		return nil, err
	}
	pod.instanceID = pod.Comparator.Run() // a report tells by it whether who lives reports
	serving := c.facade(stores)
	serving.InstanceID, serving.Observe, serving.Verify, serving.ForeignSeen = pod.instanceID, pod.Comparator.Observe, pod.verified, pod.foreignSeen
	serving.Acknowledge = func(holdover.Fence) { pod.nudge() }
	hand := pod.reach(&serving)
	if pod.Facade, err = dualwrite.New(serving); err != nil {
		return nil, err
	}
	pod.serving.Store(pod.Facade)
	if err = pod.openPlanter(hand); err != nil {
		return nil, err
	}
	pod.follower, err = killswitch.NewFollower(killswitch.FollowerConfig{
		Pod: p.Name, Watch: unlessRetired{pod}, Refresh: pod.refresh, Logger: c.Logger,
	})
	return pod, err
}

// refresh renews the fence; before the pod is begun its error matches
// holdover.ErrNoFence: both stores answer, and neither has one.
func (p *Pod) refresh(ctx context.Context) error {
	err := p.Facade.Refresh(ctx)
	if err == nil {
		return nil
	}
	_, redis := p.Redis.Fence(ctx)
	_, mysql := p.MySQL.Fence(ctx)
	if errors.Is(redis, holdover.ErrNoFence) && errors.Is(mysql, holdover.ErrNoFence) {
		return fmt.Errorf("%w (%w)", err, holdover.ErrNoFence)
	}
	return err
}

// Run serves the pod's background until ctx ends: it follows the fence, shows
// signs of life, mirrors, drains, sweeps, refills and checks its stock.
func (p *Pod) Run(ctx context.Context) error {
	var background sync.WaitGroup
	background.Go(func() { p.Facade.Run(ctx) })
	background.Go(func() { p.heartbeats(ctx) })
	background.Go(func() { p.refill(ctx) })
	background.Go(func() { p.conserveLoop(ctx) })
	background.Go(func() { p.verifyLoop(ctx) })
	if p.shipper != nil {
		background.Go(func() { p.shipper.run(ctx) })
	}
	if p.planter != nil {
		background.Go(func() { p.planter.Run(ctx) })
	}
	err := p.follower.Run(ctx)
	background.Wait()
	return err
}

// Close writes the comparator's last counts and closes the stores.
func (p *Pod) Close(ctx context.Context) error {
	var errs []error
	if p.Comparator != nil {
		errs = append(errs, p.Comparator.Close())
		if p.shipper != nil {
			p.shipper.last(ctx)
		}
	}
	if p.events != nil {
		errs = append(errs, p.events.Close())
	}
	return errors.Join(append(errs, p.Stores.Close(ctx))...)
}

// Serves reports whether the shop is one of the pod's.
func (p *Pod) Serves(shop int64) bool { return serves(p.shops, shop) }

func (p *Pod) nudge() {
	select {
	case p.beat <- struct{}{}:
	default:
	}
}

// refill runs the pool's background refill while a stage uses the pool.
func (p *Pod) refill(ctx context.Context) {
	if err := p.MySQL.Run(ctx); err != nil && ctx.Err() == nil {
		p.log.Error("the pool's refill stopped", "err", err)
	}
}
