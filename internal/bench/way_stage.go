package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdover"
	"holdover/internal/app"
	"holdover/mysqlpool"
)

// staged is a pod in stage mysql as `serve` runs it, in this process and without
// HTTP: what the pool alone is compared with.
type staged struct {
	counts  *pooled // reads the truth; it has no store of its own
	pod     *app.Pod
	stop    context.CancelFunc
	running sync.WaitGroup
}

func openStageMySQL(ctx context.Context, s *servers, set setting) (way, error) {
	cfg := s.podConfig()
	cfg.Pool.Cap, cfg.Pool.Connections = int(set.cap), set.conns
	p, err := app.OpenPod(ctx, cfg, cfg.Pods[0])
	if err != nil {
		return nil, err
	}
	w := &staged{counts: &pooled{servers: s, items: len(set.stock)}, pod: p}
	if err := w.open(ctx, set.stock); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// podConfig is the bench's one pod with everything at its default.
func (s *servers) podConfig() app.Config {
	return app.Config{Instance: "bench", Pods: []app.PodConfig{{
		Name: pod, Shops: []string{"1"},
		Redis: app.RedisConfig{Addr: s.addr, Prefix: s.prefix, CounterTemplate: s.counterTemplate()},
		MySQL: app.MySQLConfig{DSN: s.stack.MySQLDSN(pod)},
	}}}.WithDefaults()
}

// stockRows are units of items 1..n of shop 1 at one location.
func stockRows(stock []int64) []mysqlpool.StockRow {
	rows := make([]mysqlpool.StockRow, len(stock))
	for i, n := range stock {
		rows[i] = mysqlpool.StockRow{Shop: 1, Item: int64(i + 1), Group: 1, Available: n}
	}
	return rows
}

// importTries is how often an import is begun again: on a busy machine Redis may
// miss its deadline, and an import goes on where it stopped.
const importTries = 5

func importStock(ctx context.Context, to *app.Stores, stock []int64) (err error) {
	for range importTries {
		if _, err = app.ImportStock(ctx, to, stockRows(stock)); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// open fills the stock in and takes the empty pod to mysql by its stages. An
// empty pod needs no verification.
func (w *staged) open(ctx context.Context, stock []int64) error {
	if err := importStock(ctx, w.pod.Stores, stock); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	w.running.Go(func() { _ = w.pod.Run(running) }) // it ends by its context only
	const by, reason = "bench", "to be measured"
	fence, err := w.pod.Facade.Init(ctx, by, reason)
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		if err != nil {
			return fmt.Errorf("on the way to mysql: %w", err)
		}
		fence, err = w.pod.Facade.Step(ctx, fence, stage, by, reason)
	}
	if err != nil {
		return err
	}
	return w.pod.MySQL.WarmUp(ctx)
}

func (w *staged) reserve(ctx context.Context, c *call) (bool, error) {
	c.attempts++
	_, err := w.pod.Facade.Reserve(ctx, holdover.Request{Shop: 1, Token: c.token, Lines: c.lines, TTL: holdTTL})
	return grantedOr(err)
}

func (w *staged) claim(ctx context.Context, c *call) error {
	_, err := w.pod.Facade.Claim(ctx, 1, c.token)
	return err
}

func (w *staged) count(ctx context.Context) (truth, error) { return w.counts.count(ctx) }

// held is of all of the pod's connections, as it is for the pool alone.
func (w *staged) held() (sum time.Duration) {
	for _, t := range w.pod.Holds.Snapshot() {
		sum += t.Held
	}
	return sum
}

func (w *staged) close() error {
	if w.stop != nil {
		w.stop()
		w.running.Wait()
	}
	return w.pod.Close(context.Background()) // it has a deadline of its own where it needs one
}
