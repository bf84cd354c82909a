package torture

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/internal/app"
	"holdover/internal/devstack"
	"holdover/internal/faults"
	"holdover/mysqlpool"
)

const podName = "pod-a"

// The short lives of the instances: a schedule takes seconds.
const (
	callTime  = 1500 * time.Millisecond
	redisTime = 250 * time.Millisecond
	window    = 1700 * time.Millisecond
	recheck   = 1800 * time.Millisecond
	heartbeat = 150 * time.Millisecond
)

// world is a set of real servers, the instances that use them through proxies,
// and ways of its own to both stores, which no fault is in.
type world struct {
	cfg            Config
	stack          *devstack.Stack
	dir            string
	instances      []*instance
	operator       wires
	operating      *app.Stores // an operator's machine, behind wires of its own
	operatorConfig app.Config
	direct         *app.Stores // brings in the stock
	db             *sql.DB
	redis          *redis.Client
	shops          int64        // how many were used
	retired        atomic.Int64 // how often Redis was
}

// newWorld starts everything. On an error nothing is left running.
func newWorld(ctx context.Context, cfg Config) (_ *world, err error) {
	w := &world{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(ctx))
		}
	}()
	if w.stack, err = devstack.Start(ctx, devstack.Config{Pods: []string{podName}, RedisFsync: "always", Keep: cfg.Keep, Log: cfg.Verbose}); err != nil {
		return w, err
	}
	w.dir = filepath.Join(w.stack.Dir(), "torture")
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return w, err
	}
	if err := w.openDirect(); err != nil {
		return w, err
	}
	if _, err := mysqlpool.Migrate(ctx, w.stack.MySQLDSN(podName)); err != nil {
		return w, fmt.Errorf("migrate: %w", err)
	}
	if err := w.wantStage(holdover.StageRedis); err != nil {
		return w, err
	}
	if w.operator, err = w.wire(); err != nil {
		return w, err
	}
	if w.operating, w.operatorConfig, err = w.openStores(ctx, "operator", w.operator.redis.Addr(), w.operator.mysql.Addr(), cfg.Mutate, callTime); err != nil {
		return w, err
	}
	if w.direct, _, err = w.openStores(ctx, "stock", w.stack.RedisAddr(podName), w.mysqlAddr(), "", 30*time.Second); err != nil {
		return w, err
	}
	for i := range instances {
		in, err := w.newInstance(i)
		if err != nil {
			return w, err
		}
		w.instances = append(w.instances, in)
		if err := in.start(); err != nil {
			return w, err
		}
	}
	for _, in := range w.instances {
		if err := in.awaitReady(ctx); err != nil {
			return w, fmt.Errorf("%w\n%s", err, in.logTail(10))
		}
	}
	return w, nil
}

func (w *world) openDirect() error {
	dsn, err := mysql.ParseDSN(w.stack.MySQLDSN(podName))
	if err != nil {
		return err
	}
	dsn.Timeout, dsn.Logger, dsn.InterpolateParams = 5*time.Second, &mysql.NopLogger{}, true
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return err
	}
	w.db = sql.OpenDB(connector)
	w.redis = redis.NewClient(&redis.Options{Addr: w.stack.RedisAddr(podName), DisableIdentity: true})
	return nil
}

func (w *world) mysqlAddr() string {
	dsn, err := mysql.ParseDSN(w.stack.MySQLDSN(podName))
	if err != nil {
		return "" // it was parsed before
	}
	return dsn.Addr
}

// wire makes a pair of proxies.
func (w *world) wire() (p wires, err error) {
	if p.redis, err = faults.Listen(w.stack.RedisAddr(podName)); err != nil {
		return p, err
	}
	p.mysql, err = faults.Listen(w.mysqlAddr())
	return p, err
}

// through is the DSN of the pod's schema by way of addr.
func (w *world) through(addr string) (string, error) {
	dsn, err := mysql.ParseDSN(w.stack.MySQLDSN(podName))
	if err != nil {
		return "", err
	}
	dsn.Addr = addr
	return dsn.FormatDSN(), nil
}

// openStores opens the pod's stores as a command of the product does.
func (w *world) openStores(ctx context.Context, name, redisAddr, mysqlAddr, mutate string, call time.Duration) (*app.Stores, app.Config, error) {
	dsn, err := w.through(mysqlAddr)
	if err != nil {
		return nil, app.Config{}, err
	}
	c := app.Config{
		Instance: name, Logger: slog.New(slog.DiscardHandler), Mutate: mutate,
		Timing: app.Timing{Call: call, Redis: redisTime, Heartbeat: heartbeat},
		Pods:   []app.PodConfig{{Name: podName, Shops: []string{"1-1000000"}, Redis: app.RedisConfig{Addr: redisAddr}, MySQL: app.MySQLConfig{DSN: dsn}}},
	}.WithDefaults()
	s, err := app.OpenStores(ctx, c, c.Pods[0])
	return s, c, err
}

func (w *world) flagFile() string { return filepath.Join(w.dir, "stages.json") }

// wantStage writes what the flag says, whole, beside the old file.
func (w *world) wantStage(stage holdover.Stage) error {
	variants := map[string]string{}
	for _, s := range holdover.Stages() {
		variants[s.String()] = s.String()
	}
	text, err := json.Marshal(map[string]any{"flags": map[string]any{"holdover-stage": map[string]any{
		"state": "ENABLED", "variants": variants, "defaultVariant": stage.String(),
	}}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.flagFile()+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(w.flagFile()+".new", w.flagFile())
}

// configuration of one instance, as a user would write it.
const configuration = `instance: %s
listen: %s
flags: {file: %q, poll: 50ms}
max_ttl: 15m
timing:
  call: %s
  redis: %s
  mirror: %s
  give_back_window: %s
  recheck: %s
  sweep: 200ms
  reaper_grace: 1s
  heartbeat: %s
  dwell: 20ms
  drive: 80ms
  readiness: 150ms
  verify_every: 3s
pool: {cap: 200, connections: 12, lock_wait: 1s}
pods:
  - name: pod-a
    shops: ["1-1000000"]
    redis: {addr: %q}
    mysql: {dsn: %q}
`

func (w *world) newInstance(i int) (*instance, error) {
	name := fmt.Sprintf("checkout-%d", i+1)
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	in := &instance{
		name: name, addr: addr, program: w.cfg.Program, logPath: filepath.Join(w.dir, name+".log"),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	if in.wires, err = w.wire(); err != nil {
		return in, errors.Join(err, in.wires.close())
	}
	dsn, err := w.through(in.wires.mysql.Addr())
	if err != nil {
		return in, errors.Join(err, in.wires.close())
	}
	file := filepath.Join(w.dir, name+".yaml")
	redisWait, mirrorWait := patience(w.cfg.Aim)
	text := fmt.Sprintf(configuration, name, addr, w.flagFile(), callTime, redisWait, mirrorWait, window, recheck, heartbeat, in.wires.redis.Addr(), dsn)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return in, errors.Join(err, in.wires.close())
	}
	in.args = []string{"serve", "--config", file}
	if w.cfg.Mutate != "" {
		in.args = append(in.args, "--mutate", w.cfg.Mutate)
	}
	return in, nil
}

// close ends everything, in reverse order.
func (w *world) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, in := range w.instances {
		errs = append(errs, in.kill(), in.wires.close())
		in.client.CloseIdleConnections()
	}
	for _, s := range []*app.Stores{w.operating, w.direct} {
		if s != nil {
			errs = append(errs, s.Close(ctx))
		}
	}
	errs = append(errs, w.operator.close())
	if w.redis != nil {
		errs = append(errs, w.redis.Close())
	}
	if w.db != nil {
		_ = w.db.Close() // it says goodbye on connections that faults have cut, too
	}
	if w.stack != nil {
		errs = append(errs, w.stack.Close())
	}
	return errors.Join(errs...)
}
