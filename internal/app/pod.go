package app

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/dualwrite"
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
}

// OpenStores connects to a pod's stores. A store that does not answer is no
// error here: the kill switch works without MySQL, and serving starts without
// either.
func OpenStores(ctx context.Context, c Config, p PodConfig) (_ *Stores, err error) {
	s := &Stores{Name: p.Name, Holds: new(connhold.Totals)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("pod %s: %w", p.Name, err), s.Close(ctx))
		}
	}()
	if s.Redis, err = legacyredis.Open(ctx, c.redis(p)); err != nil {
		return nil, err
	}
	pool := c.mysql(p)
	pool.WrapConnector = func(c driver.Connector) driver.Connector { return connhold.Wrap(c, s.Holds) }
	if s.MySQL, err = mysqlpool.Open(ctx, pool); err != nil {
		return nil, err
	}
	s.Switch, err = killswitch.New(killswitch.Config{
		Pod: p.Name, Redis: s.Redis, MySQL: s.MySQL, InstanceMaxAge: c.InstanceMaxAge(), Logger: c.Logger,
	})
	return s, err
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
	Facade     *dualwrite.Facade
	Comparator *compare.Comparator

	cfg        Config
	shops      []shopRange
	instanceID string
	follower   *killswitch.Follower
	beat       chan struct{} // asks for a heartbeat now
	hottest    *hottest
	log        *slog.Logger

	mu           sync.Mutex
	verification *compare.Verification // the last one
	conservation *mysqlpool.Conservation
}

// OpenPod connects to the pod's stores and makes its facade, comparator and
// follower. Run runs them.
func OpenPod(ctx context.Context, c Config, p PodConfig) (_ *Pod, err error) {
	stores, err := OpenStores(ctx, c, p)
	if err != nil {
		return nil, err
	}
	pod := &Pod{Stores: stores, cfg: c, instanceID: holdover.NewToken().String(), beat: make(chan struct{}, 1), hottest: newHottest(time.Now), log: c.Logger.With("pod", p.Name)}
	defer func() {
		if err != nil {
			err = errors.Join(err, pod.Close(ctx))
		}
	}()
	if pod.shops, err = parseShops(p.Shops); err != nil {
		return nil, fmt.Errorf("pod %s: shops: %w", p.Name, err)
	}
	events := ""
	if c.Events != "" {
		if err := os.MkdirAll(c.Events, 0o755); err != nil {
			return nil, fmt.Errorf("pod %s: the folder of the divergence events can't be made: %w", p.Name, err)
		}
		events = filepath.Join(c.Events, p.Name+"."+c.Instance+".jsonl")
	}
	if pod.Comparator, err = compare.New(compare.Config{Pod: p.Name, Instance: c.Instance, Path: events, Logger: pod.log}); err != nil {
		return nil, err
	}
	pod.Facade, err = dualwrite.New(dualwrite.Config{
		Pod: p.Name, Instance: c.Instance, Redis: stores.Redis, MySQL: stores.MySQL, Limits: c.Limits(),
		CallTimeout: c.Timing.Call, MirrorTimeout: c.Timing.Mirror, SweepEvery: c.Timing.Sweep,
		ReaperGrace: c.Timing.ReaperGrace, InstanceMaxAge: c.InstanceMaxAge(),
		Observe: pod.Comparator.Observe, Acknowledge: func(holdover.Fence) { pod.nudge() },
		Verify: pod.verified, Logger: c.Logger,
	})
	if err != nil {
		return nil, err
	}
	pod.follower, err = killswitch.NewFollower(killswitch.FollowerConfig{
		Pod: p.Name, Watch: stores.Redis, Refresh: pod.Facade.Refresh, Logger: c.Logger,
	})
	return pod, err
}

// Run serves the pod's background until ctx ends: it follows the fence, shows
// signs of life, mirrors, drains, sweeps, refills and checks its stock.
func (p *Pod) Run(ctx context.Context) error {
	var background sync.WaitGroup
	background.Go(func() { p.Facade.Run(ctx) })
	background.Go(func() { p.heartbeats(ctx) })
	background.Go(func() { p.refill(ctx) })
	background.Go(func() { p.conserveLoop(ctx) })
	err := p.follower.Run(ctx)
	background.Wait()
	return err
}

// Close writes the comparator's last counts and closes the stores.
func (p *Pod) Close(ctx context.Context) error {
	var errs []error
	if p.Comparator != nil {
		errs = append(errs, p.Comparator.Close())
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

// heartbeats tell the pod's Redis that this instance lives and which epoch it
// works with: at once after a change, else on the clock.
func (p *Pod) heartbeats(ctx context.Context) {
	ticker := time.NewTicker(p.cfg.Timing.Heartbeat)
	defer ticker.Stop()
	failing := false
	for {
		if fence, err := p.Facade.Agreed(); err == nil {
			err := p.Redis.Heartbeat(ctx, holdover.Instance{Name: p.cfg.Instance, ID: p.instanceID, Epoch: fence.Epoch, Busy: p.Facade.Busy()})
			if (err != nil) != failing && ctx.Err() == nil {
				failing = err != nil
				p.log.Warn("heartbeat", "failing", failing, "err", err)
			}
		}
		select {
		case <-ticker.C:
		case <-p.beat:
		case <-ctx.Done():
			gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if err := p.Redis.Forget(gone, p.instanceID); err != nil {
				p.log.Warn("this instance could not say goodbye; it ages out", "err", err)
			}
			return
		}
	}
}

// refill runs the pool's background refill while a stage uses the pool.
func (p *Pod) refill(ctx context.Context) {
	if err := p.MySQL.Run(ctx); err != nil && ctx.Err() == nil {
		p.log.Error("the pool's refill stopped", "err", err)
	}
}

// Verify compares both stores completely, under traffic.
func (p *Pod) Verify(ctx context.Context) (compare.Verification, error) {
	v, err := Verify(ctx, p.cfg, p.Stores)
	if err != nil {
		return v, err
	}
	p.Comparator.RecordVerification(v)
	p.mu.Lock()
	p.verification = &v
	p.mu.Unlock()
	return v, nil
}

// LastVerification returns the last one this instance made, or nil.
func (p *Pod) LastVerification() *compare.Verification {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.verification
}

// verified is what the facade asks before a step forward.
func (p *Pod) verified(ctx context.Context) (clean bool, why string, err error) {
	v, err := p.Verify(ctx)
	if err != nil {
		return false, "", err
	}
	return v.Clean, v.Summary(), nil
}

// Verify compares a pod's stores completely, under traffic, without an instance.
func Verify(ctx context.Context, c Config, s *Stores) (compare.Verification, error) {
	return compare.Verify(ctx, s.Redis, s.MySQL, compare.VerifyConfig{Pod: s.Name, Recheck: c.Timing.Recheck, DualSince: s.DualSince(ctx)})
}

// historyDepth is how many fences DualSince goes back.
const historyDepth = 1000

// DualSince is when dual writing last began, by Redis's clock and from its
// history of fences; zero when the pod does not write dually, or it can't be
// told. It only names differences: nothing is decided by it.
func (s *Stores) DualSince(ctx context.Context) time.Time {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	history, err := s.Redis.History(ctx, historyDepth)
	if err != nil {
		return time.Time{}
	}
	var since time.Time
	for _, past := range history { // newest first
		if !past.Stage.Dual() {
			return since
		}
		since = past.At
	}
	return time.Time{} // the beginning is no longer in the history
}
