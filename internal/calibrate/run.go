package calibrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
	"holdover/internal/devstack"
	"holdover/internal/workload"
	"holdover/legacyredis"
)

// Config says what to compare. Zero fields mean the default.
type Config struct {
	Duration time.Duration // of the traffic; 1 min
	Rate     float64       // buyers a second; 200
	Seed     uint64        // what they buy follows from it
	Baskets  []workload.Basket
	// First and Second are servers of the user's own, whose keys stay there: give
	// empty ones. Empty: two are started here, and their data goes.
	First, Second string
	Progress      io.Writer // nil: discard
	Logger        *slog.Logger
}

// Pod is what the pair is called in observations.
const Pod = "calibration"

const instance = "calibrate"

// shops are many, so that the calls of one that wait for each other are few.
const shops = 16

// Result is what came of it.
type Result struct {
	OK          bool          `json:"ok"` // something was compared, and nothing was left unexplained
	Pairs       uint64        `json:"pairs"`
	Divergences uint64        `json:"divergences"`
	Unexplained uint64        `json:"unexplained"`
	Coverage    float64       `json:"coverage"`
	Kinds       []Rate        `json:"kinds"`
	Delta       Quantiles     `json:"delta"` // second minus first, of reserves, microseconds
	Operations  []Operation   `json:"operations"`
	Rate        float64       `json:"rate"` // calls compared a second
	First       string        `json:"first"`
	Second      string        `json:"second"`
	Redis       string        `json:"redis_version,omitempty"`
	Seconds     float64       `json:"seconds"`
	Report      report.Report `json:"-"` // for `holdover report --noise`
}

// Rate is how often one kind of divergence occurred, with an upper bound that
// holds at whatever moment the run was ended.
type Rate struct {
	Kind  string  `json:"kind"`
	Count uint64  `json:"count"`
	Rate  float64 `json:"rate"`
	Upper float64 `json:"upper"`
}

// Operation is the paired times of one operation.
type Operation struct {
	Op    string    `json:"op"`
	Pairs uint64    `json:"pairs"`
	Delta Quantiles `json:"delta"`
}

// Quantiles of the delta, microseconds.
type Quantiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
}

// noLedger takes every claim: no ledger is compared here.
type noLedger struct{}

func (noLedger) Apply(_ context.Context, h holdover.Hold) (holdover.Hold, error) { return h, nil }

// Run feeds both servers and judges what differed.
func Run(ctx context.Context, cfg Config) (r Result, err error) {
	if cfg.Duration == 0 {
		cfg.Duration = time.Minute
	}
	if cfg.Rate == 0 {
		cfg.Rate = 200
	}
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if (cfg.First == "") != (cfg.Second == "") {
		return r, &holdover.InvalidError{Field: "redis and second", Problem: "one is given and the other is not: give both, or none"}
	}
	dir, err := os.MkdirTemp("", "holdover-calibrate-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if cfg.First == "" {
		stack, err := devstack.Start(ctx, devstack.Config{Pods: []string{"first", "second"}, Log: cfg.Progress})
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, stack.Close()) }()
		cfg.First, cfg.Second, r.Redis = stack.RedisAddr("first"), stack.RedisAddr("second"), stack.Versions().Redis
	}
	r.First, r.Second = cfg.First, cfg.Second
	events := filepath.Join(dir, "events.jsonl")
	began := time.Now()
	if err := feed(ctx, cfg, events); err != nil {
		return r, err
	}
	r.Seconds = time.Since(began).Seconds()
	return r, r.judge(events)
}

// feed sends the buyers to both.
func feed(ctx context.Context, cfg Config, events string) (err error) {
	cmp, err := compare.New(compare.Config{Pod: Pod, Instance: instance, Path: events, Logger: cfg.Logger})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cmp.Close()) }()
	load := cfg.workload()
	stock, err := workload.Stock(load)
	if err != nil {
		return err
	}
	var paths []holdover.Reserver
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, addr := range []string{cfg.First, cfg.Second} {
		store, err := legacyredis.Open(ctx, legacyredis.Config{Pod: Pod, Addr: addr})
		if err != nil {
			return err
		}
		defer store.Close()
		if err := fill(ctx, store, stock); err != nil {
			return fmt.Errorf("stock in %s: %w", addr, err)
		}
		path, err := legacyredis.NewPath(store, noLedger{}, legacyredis.PathConfig{Logger: cfg.Logger})
		if err != nil {
			return err
		}
		running.Go(func() { path.Run(background) })
		paths = append(paths, path)
	}
	fmt.Fprintf(cfg.Progress, "%s against %s: %.0f buyers a second for %s\n", cfg.First, cfg.Second, cfg.Rate, cfg.Duration)
	buying, done := context.WithTimeout(ctx, cfg.Duration)
	defer done()
	_, err = workload.Run(buying, load, []holdover.Reserver{NewPair(paths[0], paths[1], cmp.Observe)}, workload.NewAccount(workload.AccountConfig{}))
	return errors.Join(err, ctx.Err())
}

func (cfg Config) workload() workload.Config {
	c := workload.Config{
		Seed: cfg.Seed, Baskets: cfg.Baskets, SmallCarts: len(cfg.Baskets) == 0, Rate: cfg.Rate,
		HotItem: 7777, HotShare: 0.15, HotStock: int64(cfg.Rate*cfg.Duration.Seconds()/200) + 1, // it runs out
		// Holds outlive the run: an expiry comes by each server's own clock.
		PaymentFail: 0.3, TTL: 2*cfg.Duration + time.Minute,
	}
	for shop := int64(1); shop <= shops; shop++ {
		c.Shops = append(c.Shops, shop)
	}
	return c
}

func fill(ctx context.Context, store *legacyredis.Store, stock []holdover.Stock) error {
	counters := map[int64]map[int64]int64{}
	for _, s := range stock {
		if counters[s.Shop] == nil {
			counters[s.Shop] = map[int64]int64{}
		}
		counters[s.Shop][s.Item] += s.Available
	}
	for shop, items := range counters {
		if _, err := store.Load(ctx, shop, items, true); err != nil {
			return err
		}
	}
	return nil
}
