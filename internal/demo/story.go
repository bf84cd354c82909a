package demo

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql" // the auditor's own connection
	"github.com/redis/go-redis/v9"     // and its own client

	"holdover"
	"holdover/internal/app"
	"holdover/internal/devstack"
	"holdover/internal/workload"
	"holdover/mysqlpool"
)

// Config says how to tell the story. Zero fields mean the default.
type Config struct {
	Duration  time.Duration // of the traffic; 60 s
	Seed      uint64        // of the traffic
	Baskets   []workload.Basket
	Instances int       // processes per pod, as the stores see them; 2
	Keep      bool      // leave the servers' folder in place
	Version   string    // of the binary, for the report
	Progress  io.Writer // nil: discard
	Logger    *slog.Logger

	MySQLDSN   string            // a server of the user's own instead of one started here
	RedisAddrs map[string]string // by pod
}

// podStory is one pod's part.
type podStory struct {
	name    string
	shops   []int64
	rate    float64 // arrivals a second
	forward float64 // when the flag wants mysql, as a share of the duration
}

// Pods of different traffic, from the quietest to the busiest.
var podStories = []podStory{
	{name: "pod-quiet", shops: []int64{1}, rate: 25, forward: 0.05},
	{name: "pod-steady", shops: []int64{2, 3}, rate: 50, forward: 0.12},
	{name: "pod-busy", shops: []int64{4, 5, 6}, rate: 90, forward: 0.19},
}

// PodNames lists the demo's pods.
func PodNames() []string {
	var names []string
	for _, p := range podStories {
		names = append(names, p.name)
	}
	return names
}

// The short lives that make a minute enough. A real rollout stays for days in
// what takes seconds here.
const (
	callTime = 1500 * time.Millisecond
	window   = 1800 * time.Millisecond
	recheck  = 2 * time.Second
	dwell    = 500 * time.Millisecond
)

// ErrInterrupted: somebody ended the demo before its story did.
var ErrInterrupted = errors.New("interrupted: the servers are stopped and their data is gone")

// story is a running demo.
type story struct {
	cfg   Config
	stack *devstack.Stack
	dir   string
	began time.Time

	apps     []*app.App
	stores   map[string]*app.Stores // the operator's own connections
	stock    map[string][]holdover.Stock
	accounts map[string]*workload.Account
	desired  map[string]holdover.Stage

	mu    sync.Mutex // guards what follows
	share float64    // of the usual rate of buyers
	runs  map[string]context.CancelFunc

	flips  int
	killMS float64
	errors int64 // buyers who were let down while the kill and the restore ran
}

// Run tells the story and judges it.
func Run(ctx context.Context, cfg Config) (result Result, err error) {
	if cfg.Duration == 0 {
		cfg.Duration = time.Minute
	}
	if cfg.Duration < 5*time.Second || cfg.Duration > 24*time.Hour {
		return result, &holdover.InvalidError{Field: "duration", Value: cfg.Duration.String(), Problem: "must be between 5s and 24h"}
	}
	if cfg.Instances == 0 {
		cfg.Instances = 2
	}
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	app.RouteDriverLogs(cfg.Logger)
	s := &story{
		cfg: cfg, began: time.Now(), stores: map[string]*app.Stores{}, stock: map[string][]holdover.Stock{},
		accounts: map[string]*workload.Account{}, desired: map[string]holdover.Stage{}, share: 1, runs: map[string]context.CancelFunc{},
	}
	s.stack, err = devstack.Start(ctx, devstack.Config{
		Pods: PodNames(), Keep: cfg.Keep, MySQLDSN: cfg.MySQLDSN, RedisAddrs: cfg.RedisAddrs, Log: prefixed{cfg.Progress, "  "},
	})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, s.stack.Close()) }()
	s.dir = filepath.Join(s.stack.Dir(), "demo")
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return result, err
	}
	v := s.stack.Versions()
	s.say("real servers: %d redis-server (%s), one mysqld (%s), durable settings, ports of their own", len(podStories), v.Redis, v.MySQL)
	if v.MariaDB {
		s.say("the server is MariaDB: the demo runs on it; the figures are not MySQL's")
	}
	if err := s.setUp(ctx); err != nil {
		if ctx.Err() != nil {
			return result, ErrInterrupted
		}
		return result, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	if err := s.tell(ctx); err != nil {
		if ctx.Err() != nil {
			return result, ErrInterrupted
		}
		return result, err
	}
	return s.judge(ctx)
}

// config is one instance's configuration, as a user would write it.
func (s *story) config(instance string) app.Config {
	c := app.Config{
		Instance: instance, Version: s.cfg.Version, Logger: s.cfg.Logger, Events: s.dir, DefaultTTL: holdTTL(s.cfg.Duration),
		Flags: app.FlagsConfig{File: s.flagFile(), Poll: 100 * time.Millisecond},
		Timing: app.Timing{
			Call: callTime, Mirror: 250 * time.Millisecond, GiveBackWindow: window, Recheck: recheck, Sweep: 250 * time.Millisecond,
			ReaperGrace: 2 * time.Second, Heartbeat: 200 * time.Millisecond, Dwell: dwell, Drive: 200 * time.Millisecond,
		},
		Compare: app.CompareConfig{RollupEvery: 5 * time.Second, SelftestEvery: max(s.cfg.Duration/30, 500*time.Millisecond)},
		Pool:    app.PoolConfig{Cap: 200, LockWait: time.Second},
	}
	for i, p := range podStories {
		reserved := int64(90 + i) // no buyer's: divergences are planted there
		pod := app.PodConfig{Name: p.name, Shops: []string{fmt.Sprint(reserved)}, ReservedShop: reserved, Redis: app.RedisConfig{Addr: s.stack.RedisAddr(p.name)}, MySQL: app.MySQLConfig{DSN: s.stack.MySQLDSN(p.name)}}
		for _, shop := range p.shops {
			pod.Shops = append(pod.Shops, fmt.Sprint(shop))
		}
		c.Pods = append(c.Pods, pod)
	}
	return c.WithDefaults()
}

// holdTTL is short, so that abandoned holds expire within the demo.
func holdTTL(d time.Duration) time.Duration { return min(max(d/10, 2*time.Second), 10*time.Second) }

func (s *story) workload(p podStory) workload.Config {
	rate := p.rate * s.share
	if len(s.cfg.Baskets) > 0 {
		rate *= 0.8 // real carts have several times as many lines
	}
	return workload.Config{
		Seed: s.cfg.Seed + uint64(p.shops[0]), Shops: p.shops, Baskets: s.cfg.Baskets, SmallCarts: len(s.cfg.Baskets) == 0,
		Groups: 2, HotItem: 7777, HotShare: 0.15, HotStock: int64(math.Ceil(rate * s.cfg.Duration.Seconds() * 0.04 / float64(len(p.shops)))),
		// Buyers in flight are bounded, so that a slow machine has fewer of them
		// and not a longer queue.
		Rate: rate, MaxInFlight: max(1, int(rate*0.6)), ThinkMin: 20 * time.Millisecond, ThinkMax: 400 * time.Millisecond,
		PaymentFail: 0.15, Abandon: 0.05, TTL: holdTTL(s.cfg.Duration), CallTimeout: 5 * time.Second,
	}
}

// setUp makes tables, stock, flags and instances: what README's steps do.
func (s *story) setUp(ctx context.Context) error {
	c := s.config("operator")
	for i, p := range podStories {
		if _, err := mysqlpool.Migrate(ctx, c.Pods[i].MySQL.DSN); err != nil {
			return fmt.Errorf("pod %s: migrate: %w", p.name, err)
		}
		stores, err := app.OpenStores(ctx, c, c.Pods[i])
		if err != nil {
			return err
		}
		s.stores[p.name] = stores
		stock, err := workload.Stock(s.workload(p))
		if err != nil {
			return err
		}
		s.stock[p.name] = stock
		rows := make([]mysqlpool.StockRow, len(stock))
		for j, st := range stock {
			rows[j] = mysqlpool.StockRow{Shop: st.Shop, Item: st.Item, Group: st.Group, Available: st.Available}
		}
		if _, err := app.ImportStock(ctx, stores, rows); err != nil {
			return fmt.Errorf("pod %s: import stock: %w", p.name, err)
		}
		s.accounts[p.name] = workload.NewAccount(workload.AccountConfig{})
		s.desired[p.name] = holdover.StageRedis
	}
	if err := s.writeFlags(); err != nil {
		return err
	}
	for i := range s.cfg.Instances {
		a, err := app.New(ctx, s.config(fmt.Sprintf("checkout-%d", i+1)))
		if err != nil {
			return err
		}
		s.apps = append(s.apps, a)
	}
	return nil
}

// tell runs instances and traffic, and the operator's story over them.
func (s *story) tell(ctx context.Context) error {
	background, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	ran := make([]error, len(s.apps))
	for i, a := range s.apps {
		running.Go(func() { ran[i] = a.Run(background) })
	}
	defer running.Wait()
	defer stop()
	if err := s.await(ctx, "every instance is ready", func() bool {
		for _, a := range s.apps {
			if ok, _ := a.Ready(); !ok {
				return false
			}
		}
		return true
	}); err != nil {
		return err
	}
	s.say("%d instances serve %d pods; Redis decides everywhere", len(s.apps), len(podStories))

	buying, stopBuying := context.WithCancel(ctx)
	defer stopBuying()
	var buyers sync.WaitGroup
	sold := make([]error, len(podStories))
	opened := time.Now()
	for i, p := range podStories {
		var instances []holdover.Reserver
		for _, a := range s.apps {
			pod, err := a.Pod(p.name)
			if err != nil {
				return err
			}
			instances = append(instances, pod.Facade)
		}
		buyers.Go(func() { sold[i] = s.sell(buying, p, instances) })
	}
	err := s.operate(ctx, opened)
	if err == nil {
		wait(ctx, time.Until(opened.Add(s.cfg.Duration)))
	}
	stopBuying()
	buyers.Wait()
	if err := errors.Join(err, errors.Join(sold...), ctx.Err()); err != nil {
		return err
	}
	if err := s.await(ctx, "nothing is left to carry over", s.settled); err != nil {
		return err
	}
	stop()
	running.Wait()
	return errors.Join(ran...)
}

// sell runs one pod's traffic until ctx ends, at a lower rate each time that
// easeOff has said so.
func (s *story) sell(ctx context.Context, p podStory, instances []holdover.Reserver) error {
	for {
		run, cancel := context.WithCancel(ctx)
		s.mu.Lock()
		s.runs[p.name] = cancel
		cfg := s.workload(p)
		s.mu.Unlock()
		_, err := workload.Run(run, cfg, instances, s.accounts[p.name])
		cancel()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// easeEvery is how long a pod may keep the story waiting before the buyers
// become half as many: mirror work must be able to catch up on a slow machine.
const easeEvery = 20 * time.Second

func (s *story) easeOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.share < 1.0/16 {
		return
	}
	s.share /= 2
	for _, cancel := range s.runs {
		cancel()
	}
	s.say("this machine is slow: half as many buyers from here on")
}

// operate is what people do: flags for three pods, a kill, a restore.
func (s *story) operate(ctx context.Context, opened time.Time) error {
	at := func(share float64) { wait(ctx, time.Until(opened.Add(time.Duration(share*float64(s.cfg.Duration))))) }
	for _, p := range podStories {
		at(p.forward)
		s.say("flag: %s -> mysql, one legal step at a time", p.name)
		if err := s.want(p.name, holdover.StageMySQL); err != nil {
			return err
		}
	}
	for _, p := range podStories {
		if err := s.awaitStage(ctx, p.name, holdover.StageMySQL); err != nil {
			return err
		}
		s.say("%s is in mysql: MySQL decides, Redis is copied before each answer", p.name)
	}
	at(0.5)
	busy := podStories[len(podStories)-1].name
	letDown := s.letDown(busy)
	// What `holdover kill` does, on connections of its own.
	began := time.Now()
	killed, err := app.Kill(ctx, s.stores[busy], "demo", "checkout errors are up: flip back first, look later", false)
	if err != nil {
		return fmt.Errorf("kill %s: %w", busy, err)
	}
	s.killMS = float64(time.Since(began).Microseconds()) / 1000
	if len(killed.Missing) > 0 {
		return fmt.Errorf("the kill of %s is not in effect on %v", busy, killed.Missing)
	}
	s.flips++
	s.say("KILL %s under load: %s is latched on all %d instances after %.0f ms, %d unmirrored holds carried over", busy, killed.To.Stage, len(killed.Acknowledged), s.killMS, killed.Carried)
	wait(ctx, s.cfg.Duration/10) // Redis sells, MySQL follows: dual writes go on
	restored, err := app.Restore(ctx, s.stores[busy], "demo", "cause found and fixed", false)
	if err != nil {
		return fmt.Errorf("restore %s: %w", busy, err)
	}
	s.say("restore %s: the flag is followed again from %s, at epoch %d", busy, restored.To.Stage, restored.To.Epoch)
	if err := s.awaitStage(ctx, busy, holdover.StageMySQL); err != nil {
		return err
	}
	s.errors = s.letDown(busy) - letDown
	s.say("%s is in mysql again, through joint; %d buyers saw an error meanwhile", busy, s.errors)
	return nil
}

// letDown counts the answers that a buyer could do nothing with.
func (s *story) letDown(pod string) int64 {
	c := s.accounts[pod].Counts()
	return c.Errors + c.NotNow + c.NoAnswer
}

// awaitStage waits until both fences of the pod say the stage, and counts what
// was passed on the way.
func (s *story) awaitStage(ctx context.Context, pod string, want holdover.Stage) error {
	last, asked := holdover.Epoch(0), time.Now()
	return s.await(ctx, pod+" is in "+want.String(), func() bool {
		fence, err := s.stores[pod].Redis.Fence(ctx)
		if err != nil {
			return false
		}
		if last != 0 && fence.Epoch != last {
			s.say("%s: %s at epoch %d", pod, fence.Stage, fence.Epoch)
		}
		last = fence.Epoch
		if time.Since(asked) > easeEvery {
			asked = time.Now()
			s.easeOff()
		}
		return fence.Stage == want && !fence.Latched
	})
}

// settled: lanes, unmirrored tokens, re-checks and journals are empty.
func (s *story) settled() bool {
	for _, a := range s.apps {
		for _, pod := range a.Pods {
			if st := pod.Facade.Stats(); st.LaneJobs > 0 || st.Unmirrored > 0 || st.Rechecks > 0 {
				return false
			}
			if rows, _, err := pod.MySQL.JournalSize(context.Background()); err != nil || rows > 0 {
				return false
			}
		}
	}
	return true
}

// await polls for an event. The bound is wide: a slow machine is no fault.
func (s *story) await(ctx context.Context, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+2*s.cfg.Duration)
	defer cancel()
	for !ok() {
		if !wait(ctx, 20*time.Millisecond) {
			return fmt.Errorf("waited in vain until %s; %s", what, s.waiting())
		}
	}
	return nil
}

// waiting says what each pod waits for, as its driver sees it.
func (s *story) waiting() string {
	var b bytes.Buffer
	for _, a := range s.apps {
		for _, p := range a.Driver.Status() {
			fmt.Fprintf(&b, "\n  %s: %s, flag %s", p.Pod, p.Agreed, p.Desired.Stage)
			for _, r := range p.Waiting {
				fmt.Fprintf(&b, "; %s", r.Text)
			}
			if p.LastErr != "" {
				fmt.Fprintf(&b, "; %s", p.LastErr)
			}
		}
	}
	return b.String()
}

func (s *story) close(ctx context.Context) error {
	var errs []error
	errs = append(errs, s.closeApps(ctx))
	for _, stores := range s.stores {
		errs = append(errs, stores.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}

// closeApps ends the instances, which write what they have counted.
func (s *story) closeApps(ctx context.Context) error {
	var errs []error
	for _, a := range s.apps {
		errs = append(errs, a.Close(ctx))
	}
	s.apps = nil
	return errors.Join(errs...)
}

func (s *story) say(format string, args ...any) {
	fmt.Fprintf(s.cfg.Progress, "%6.1fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// auditor opens the auditor's own connections to a pod's stores.
func (s *story) auditor(pod string) (*sql.DB, workload.RedisDo, func(), error) {
	db, err := sql.Open("mysql", s.stack.MySQLDSN(pod))
	if err != nil {
		return nil, nil, nil, err
	}
	client := redis.NewClient(&redis.Options{Addr: s.stack.RedisAddr(pod), MaxRetries: -1})
	do := func(ctx context.Context, args ...any) (any, error) { return client.Do(ctx, args...).Result() }
	return db, do, func() { _ = db.Close(); _ = client.Close() }, nil
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// prefixed indents what another part prints.
type prefixed struct {
	to     io.Writer
	prefix string
}

func (p prefixed) Write(b []byte) (int, error) {
	_, err := io.WriteString(p.to, p.prefix+string(bytes.ReplaceAll(bytes.TrimRight(b, "\n"), []byte("\n"), []byte("\n"+p.prefix)))+"\n")
	return len(b), err
}
