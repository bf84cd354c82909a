package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"holdover"
	"holdover/internal/app"
	"holdover/internal/devstack"
)

// fleet is one pod served by real `holdover serve` processes.
type fleet struct {
	run      *run
	cfg      app.Config  // what all are told, but for the name
	stores   *app.Stores // the bench's own; they wait longer for Redis than an instance does
	dir      string
	file     string // the operator's configuration
	programs []*devstack.Program
	urls     []string
}

// The timings of the fleet that are not the defaults. A migration dwells for
// days where a measurement has seconds, and a difference between the stores must
// outlive the longest call before it counts: each is as short as the rules let it
// be. No deadline of a buyer's call to a store is touched.
const (
	fleetCall    = time.Second
	fleetWindow  = fleetCall + 50*time.Millisecond
	fleetRecheck = fleetWindow + 50*time.Millisecond
	fleetDwell   = 50 * time.Millisecond
	fleetDrive   = 300 * time.Millisecond
	fleetPoll    = 200 * time.Millisecond // of the flag
)

// awaitLimit is how long the fleet may take for what has no time to hold.
const awaitLimit = 90 * time.Second

// startFleet empties the stores, fills the stock in, and starts n instances.
func (r *run) startFleet(n int) (f *fleet, err error) {
	if r.cfg.Program == "" {
		return nil, errors.New("no program to run as an instance is given: Config.Program")
	}
	if err := r.servers.empty(r.ctx); err != nil {
		return nil, err
	}
	r.fleets++
	f = &fleet{run: r, cfg: r.servers.podConfig(), dir: filepath.Join(r.servers.stack.Dir(), fmt.Sprintf("fleet-%d", r.fleets))}
	f.cfg.Instance = "operator"
	f.cfg.Flags = app.FlagsConfig{File: filepath.Join(f.dir, "stages.json"), Poll: fleetPoll}
	f.cfg.Timing.Call, f.cfg.Timing.GiveBackWindow, f.cfg.Timing.Recheck = fleetCall, fleetWindow, fleetRecheck
	f.cfg.Timing.Dwell, f.cfg.Timing.Drive = fleetDwell, fleetDrive
	f.cfg.Pool.Connections, f.cfg.Pool.Cap = r.cfg.Connections, int(r.cap())
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return nil, err
	}
	if err := f.want(holdover.StageRedis); err != nil {
		return nil, err
	}
	if f.file, err = f.configure("operator"); err != nil {
		return nil, err
	}
	patient := f.cfg
	patient.Timing.Redis = fleetCall
	if f.stores, err = app.OpenStores(r.ctx, patient, patient.Pods[0]); err != nil {
		return nil, err
	}
	r.report.Stock = ampleStock
	if err := importStock(r.ctx, f.stores, ample(stageItems)); err != nil {
		return nil, err
	}
	for i := range n {
		if err := f.start(fmt.Sprintf("checkout-%d", i+1)); err != nil {
			return nil, err
		}
	}
	for _, p := range f.programs {
		url, err := f.address(p)
		if err != nil {
			return nil, err
		}
		f.urls = append(f.urls, url)
	}
	return f, f.await(holdover.StageRedis)
}

// configure writes one process's configuration file, as a user would.
func (f *fleet) configure(instance string) (path string, err error) {
	c, p := f.cfg, f.cfg.Pods[0]
	text := fmt.Sprintf(`instance: %s
listen: 127.0.0.1:0
flags: {file: %q, poll: %s}
timing: {call: %s, give_back_window: %s, recheck: %s, dwell: %s, drive: %s}
pool: {connections: %d, cap: %d}
pods:
  - name: %s
    shops: [%q]
    redis: {addr: %q, prefix: %q, counter_template: %q}
    mysql: {dsn: %q}
`, instance, c.Flags.File, c.Flags.Poll, c.Timing.Call, c.Timing.GiveBackWindow, c.Timing.Recheck, c.Timing.Dwell, c.Timing.Drive,
		c.Pool.Connections, c.Pool.Cap, p.Name, p.Shops[0], p.Redis.Addr, p.Redis.Prefix, p.Redis.CounterTemplate, p.MySQL.DSN)
	path = filepath.Join(f.dir, instance+".yaml")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

func (f *fleet) start(instance string) error {
	file, err := f.configure(instance)
	if err != nil {
		return err
	}
	p, err := f.run.servers.stack.Launch(filepath.Base(f.dir)+"-"+instance, f.run.cfg.Program, "serve", "--config", file, "--log-level", "error")
	if err == nil {
		f.programs = append(f.programs, p)
	}
	return err
}

var listens = regexp.MustCompile(`http://[0-9.:]+[0-9]`)

// address is where an instance listens, as it says itself.
func (f *fleet) address(p *devstack.Program) (string, error) {
	for deadline := time.Now().Add(awaitLimit); time.Now().Before(deadline); {
		if url := listens.FindString(p.Log()); url != "" {
			return url, nil
		}
		select {
		case <-p.Ended():
			return "", fmt.Errorf("an instance ended while it started; the end of its log:\n%s", p.Log())
		default:
		}
		if err := pause(f.run.ctx, 5*time.Millisecond); err != nil {
			return "", err
		}
	}
	return "", fmt.Errorf("an instance has not listened within %s; the end of its log:\n%s", awaitLimit, p.Log())
}

// want sets the flag.
func (f *fleet) want(stage holdover.Stage) error {
	text := fmt.Sprintf(`{"flags": {"holdover-stage": {"state": "ENABLED", "variants": {%q: %[1]q}, "defaultVariant": %[1]q}}}`, stage.String())
	if err := os.WriteFile(f.cfg.Flags.File+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(f.cfg.Flags.File+".new", f.cfg.Flags.File)
}

// goTo sets the flag and waits until everybody is there.
func (f *fleet) goTo(stage holdover.Stage) error {
	if err := f.want(stage); err != nil {
		return err
	}
	return f.await(stage)
}

// await waits until both stores agree on the stage, unlatched, and every
// instance works with it.
func (f *fleet) await(stage holdover.Stage) error {
	ctx, cancel := context.WithTimeoutCause(f.run.ctx, awaitLimit, fmt.Errorf("the pod did not come to %s within %s", stage, awaitLimit))
	defer cancel()
	for {
		fence, err := f.stores.Redis.Fence(ctx)
		if err == nil && fence.Stage == stage && !fence.Latched {
			there, mysqlErr := f.stores.MySQL.Fence(ctx)
			n, instErr := f.acknowledged(ctx, fence.Epoch)
			if mysqlErr == nil && instErr == nil && there.Epoch == fence.Epoch && n == len(f.programs) {
				return nil
			}
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%w; %s%s", err, f.status(), f.logs())
		}
	}
}

// acknowledged counts the instances that work with an epoch or a later one.
func (f *fleet) acknowledged(ctx context.Context, epoch holdover.Epoch) (n int, err error) {
	live, err := f.stores.Redis.Instances(ctx, f.cfg.InstanceMaxAge())
	for _, i := range live {
		if i.Epoch >= epoch {
			n++
		}
	}
	return n, err
}

// status is what `holdover status` says, which is what on call would look at.
func (f *fleet) status() string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.run.ctx), 10*time.Second)
	defer cancel()
	text, _ := exec.CommandContext(ctx, f.run.cfg.Program, "status", "--config", f.file).CombinedOutput() // it may say no by its exit code
	return fmt.Sprintf("`holdover status`:\n%s\n", text)
}

// logs is what the instances have written, which is nothing but their addresses
// when all is well.
func (f *fleet) logs() string {
	var b strings.Builder
	for _, p := range f.programs {
		fmt.Fprintln(&b, p.Log())
	}
	return b.String()
}

// rssMiB is the memory that the first instance has in use now; zero where the
// kernel does not tell.
func (f *fleet) rssMiB() float64 {
	kb, _ := strconv.ParseFloat(strings.TrimSuffix(field(fmt.Sprintf("/proc/%d/status", f.programs[0].PID()), "VmRSS"), " kB"), 64)
	return kb / 1024
}

// sold is what both stores say of the stock when nobody buys any more: units
// that the ledger has lost, and that Redis's counters lack.
func (f *fleet) sold(ctx context.Context) (ledger, counters int64, err error) {
	left, err := f.run.servers.one(ctx, "SELECT SUM(available) FROM inventory_ledger")
	if err != nil {
		return 0, 0, err
	}
	items := make([]int64, stageItems)
	for i := range items {
		items[i] = int64(i + 1)
	}
	there, err := f.stores.Redis.Counters(ctx, 1, items)
	var sum int64
	for _, n := range there {
		sum += n
	}
	return ampleStock*stageItems - left, ampleStock*stageItems - sum, err
}

// close ends the instances as SIGTERM does, all at once.
func (f *fleet) close() error {
	errs := make(chan error, len(f.programs))
	for _, p := range f.programs {
		go func() { errs <- p.Stop() }()
	}
	var all []error
	for range f.programs {
		all = append(all, <-errs)
	}
	if f.stores != nil {
		all = append(all, f.stores.Close(context.Background()))
	}
	return errors.Join(all...)
}
