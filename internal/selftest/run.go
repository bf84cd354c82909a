package selftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/dualwrite"
	"holdover/internal/devstack"
	"holdover/internal/plant"
	"holdover/internal/workload"
	"holdover/legacyredis"
	"holdover/mysqlpool"
)

// Config says how to test. Zero fields mean the default.
type Config struct {
	Times    int          // how often each kind is planted; 20
	Workers  int          // planters at work at a time; 8
	Rate     float64      // buyers a second on other shops meanwhile; 40
	Progress io.Writer    // nil: discard
	Logger   *slog.Logger // at debug level it hears of every planted observation

	MySQLDSN  string // a server of the user's own instead of one started here
	RedisAddr string
}

const (
	pod      = "selftest"
	reserved = int64(1_000_000) // the shop that is planted on; buyers are on others
	giveBack = 7 * time.Second
)

// buyers' shops.
var shops = []int64{1, 2, 3}

// bench is what the test runs on.
type bench struct {
	cfg     Config
	stack   *devstack.Stack
	redis   *legacyredis.Store
	mysql   *mysqlpool.Store
	facade  *dualwrite.Facade
	hand    *plant.Hand
	cmp     *compare.Comparator
	began   time.Time
	flips   int
	planter []*plant.Planter
}

// Run plants each kind on servers of its own and counts what was caught.
func Run(ctx context.Context, cfg Config) (result plant.Result, err error) {
	for field, value := range map[*int]int{&cfg.Times: 20, &cfg.Workers: 8} {
		if *field == 0 {
			*field = value
		}
	}
	if cfg.Rate == 0 {
		cfg.Rate = 40
	}
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b := &bench{cfg: cfg, began: time.Now(), hand: plant.NewHand(reserved)}
	stack := devstack.Config{Pods: []string{pod}, MySQLDSN: cfg.MySQLDSN, Log: cfg.Progress}
	if cfg.RedisAddr != "" {
		stack.RedisAddrs = map[string]string{pod: cfg.RedisAddr}
	}
	if b.stack, err = devstack.Start(ctx, stack); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, b.stack.Close()) }()
	if err := b.open(ctx); err != nil {
		return result, errors.Join(err, b.close())
	}
	failed, err := b.run(ctx)
	if err := errors.Join(err, b.close()); err != nil {
		return result, err
	}
	rollups, _, err := compare.ReadRollups(b.events())
	if err != nil {
		return result, err
	}
	total, err := compare.Sum(rollups)
	if err != nil {
		return result, err
	}
	result = plant.Count(total.Planted, plant.Kinds(), cfg.Times)
	for _, cell := range total.Cells {
		result.Load += cell.Eligible
	}
	result.Fail(failed)
	v := b.stack.Versions()
	result.RedisVersion, result.MySQLVersion, result.Flips = v.Redis, v.MySQL, b.flips
	result.Seconds = time.Since(b.began).Seconds()
	return result, nil
}

func (b *bench) events() string { return filepath.Join(b.stack.Dir(), "selftest.jsonl") }

// open makes tables, stores, the facade with the hand between, and planters.
func (b *bench) open(ctx context.Context) (err error) {
	dsn := b.stack.MySQLDSN(pod)
	if _, err := mysqlpool.Migrate(ctx, dsn); err != nil {
		return err
	}
	if b.redis, err = legacyredis.Open(ctx, legacyredis.Config{Pod: pod, Addr: b.stack.RedisAddr(pod), OpTimeout: 3 * time.Second, GiveBackWindow: giveBack}); err != nil {
		return err
	}
	if b.mysql, err = mysqlpool.Open(ctx, mysqlpool.Config{Pod: pod, DSN: dsn, OpTimeout: 5 * time.Second, GiveBackWindow: giveBack}); err != nil {
		return err
	}
	b.cmp, err = compare.New(compare.Config{
		Pod: pod, Instance: "selftest", Path: b.events(), Logger: b.cfg.Logger,
		Reserved: func(shop int64) bool { return shop == reserved },
	})
	if err != nil {
		return err
	}
	b.facade, err = dualwrite.New(dualwrite.Config{
		Pod: pod, Instance: "selftest", Redis: b.hand.Redis(b.redis), MySQL: b.hand.MySQL(b.mysql), Observe: b.hand.Watch(b.observe),
		Lanes: 16, LaneLag: 300 * time.Millisecond, RecheckEvery: 20 * time.Millisecond, RecheckTries: 5000, LaneTimeout: 6 * time.Second, CallTimeout: 6 * time.Second, MirrorTimeout: time.Second,
		ReadinessEvery: -1, SweepEvery: 500 * time.Millisecond, Logger: b.cfg.Logger,
		Verify: func(context.Context) (bool, string, error) { return true, "", nil }, // flips are what is wanted here, not proof
	})
	if err != nil {
		return err
	}
	for worker := range b.cfg.Workers {
		p, err := plant.New(plant.Config{
			Pod: pod, Instance: "selftest", Shop: reserved, Hand: b.hand, Facade: b.facade, Comparator: b.cmp,
			Redis: b.redis, MySQL: b.mysql, Worker: worker, Logger: b.cfg.Logger,
			Timeout: 30 * time.Second, ShortLife: 2 * time.Second,
		})
		if err != nil {
			return err
		}
		b.planter = append(b.planter, p)
	}
	rows, err := workload.Stock(b.workload())
	if err != nil {
		return err
	}
	stock, counters := make([]mysqlpool.StockRow, len(rows)), map[int64]map[int64]int64{}
	for i, r := range rows {
		stock[i] = mysqlpool.StockRow{Shop: r.Shop, Item: r.Item, Group: r.Group, Available: r.Available}
		if counters[r.Shop] == nil {
			counters[r.Shop] = map[int64]int64{}
		}
		counters[r.Shop][r.Item] += r.Available
	}
	if _, err := b.mysql.ImportStock(ctx, stock); err != nil {
		return err
	}
	for shop, items := range counters {
		if _, err := b.redis.Load(ctx, shop, items, false); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) observe(o holdover.Observation) {
	if o.Shop == reserved {
		b.cfg.Logger.Debug("on the reserved shop", "token", o.Token, "stage", o.Stage, "op", o.Op, "redis", o.Redis.Outcome, "mysql", o.MySQL.Outcome, "evidence", o.Evidence, "proof", o.Proof)
	}
	b.cmp.Observe(o)
}

func (b *bench) close() error {
	var errs []error
	if b.cmp != nil {
		errs = append(errs, b.cmp.Close())
	}
	if b.mysql != nil {
		errs = append(errs, b.mysql.Close())
	}
	if b.redis != nil {
		errs = append(errs, b.redis.Close())
	}
	return errors.Join(errs...)
}

func (b *bench) workload() workload.Config {
	return workload.Config{
		Shops: shops, SmallCarts: true, Groups: 2, Rate: b.cfg.Rate, MaxInFlight: 16, ThinkMax: 200 * time.Millisecond,
		PaymentFail: 0.3, TTL: 5 * time.Second, Finish: 10 * time.Second,
	}
}

// run is the course of the test, with the facade and the buyers in its
// background. failed are plants that could not be made.
func (b *bench) run(ctx context.Context) (failed []error, err error) {
	if _, err := b.facade.Init(ctx, "selftest", "set up"); err != nil {
		return nil, err
	}
	if err := b.facade.Refresh(ctx); err != nil {
		return nil, err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { b.facade.Run(background) })
	running.Go(func() { _ = b.mysql.Run(background) }) // refill
	defer running.Wait()
	defer stop()

	buying, stopBuying := context.WithCancel(ctx)
	sold := make(chan error, 1)
	go func() {
		_, err := workload.Run(buying, b.workload(), []holdover.Reserver{b.facade}, workload.NewAccount(workload.AccountConfig{}))
		sold <- err
	}()
	failed, err = b.course(ctx)
	stopBuying()
	return failed, errors.Join(err, <-sold, ctx.Err())
}

func (b *bench) course(ctx context.Context) (failed []error, err error) {
	older, err := b.grantBefore(ctx)
	if err != nil {
		return nil, err
	}
	b.say("%d holds are granted in redis; the pod goes to shadow over them", len(older))
	if err := b.step(ctx, holdover.StageShadow); err != nil {
		return nil, err
	}
	failed = append(failed, b.meetOlder(ctx, older)...)
	b.say("in shadow: %d planters, each kind %d times", b.cfg.Workers, b.cfg.Times)
	failed = append(failed, b.plantAll(ctx, b.cfg.Times)...)
	b.say("%d flips between shadow and joint in the middle of calls", b.cfg.Times)
	straddled, err := b.straddle(ctx, b.cfg.Times)
	failed = append(failed, straddled...)
	if err != nil {
		return failed, err
	}
	for _, stage := range []holdover.Stage{holdover.StageJoint, holdover.StageMySQL} {
		if fence, err := b.facade.Agreed(); err != nil {
			return failed, err
		} else if fence.Stage != stage { // the flips may have ended there
			if err := errors.Join(b.ready(ctx, stage), b.step(ctx, stage)); err != nil {
				return failed, err
			}
		}
		times := max(1, b.cfg.Times/10)
		b.say("in %s: each kind %d times more", stage, times)
		failed = append(failed, b.plantAll(ctx, times)...)
	}
	return failed, nil
}

// plantAll plants each kind times often, the workers sharing the work.
func (b *bench) plantAll(ctx context.Context, times int) (failed []error) {
	var work []compare.Kind
	for range times {
		work = append(work, distinct(plant.Kinds())...)
	}
	next := make(chan compare.Kind, len(work))
	for _, kind := range work {
		next <- kind
	}
	close(next)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for _, p := range b.planter {
		workers.Go(func() {
			for kind := range next {
				err := p.Plant(ctx, kind)
				for tries := 1; err != nil && tries < 3; tries++ { // a slow machine, perhaps; what was missed stays counted
					err = p.Plant(ctx, kind)
				}
				if err != nil {
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return failed
}

func distinct(kinds []compare.Kind) (out []compare.Kind) {
	seen := map[compare.Kind]bool{}
	for _, k := range kinds {
		if !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.cfg.Progress, "%6.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}
