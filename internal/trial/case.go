package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
	"holdover/internal/app"
	"holdover/internal/workload"
	"holdover/mysqlpool"
)

// The shops of a case's pod: buyers', and the one in which divergences are planted.
const (
	firstShop, lastShop = 1, 2
	reservedShop        = 99
)

// Short lives, so that a minute sees holds expire and periods end.
const (
	holdTTL  = 4 * time.Second
	callTime = 1500 * time.Millisecond
	window   = 1800 * time.Millisecond
	recheck  = 2 * time.Second
)

// pod is a case's pod under way.
type pod struct {
	run     *run
	of      Case
	stores  *app.Stores // the operator's own
	apps    []*app.App
	account *workload.Account
	running sync.WaitGroup
	stop    context.CancelFunc
}

// config is one instance's configuration.
func (r *run) config(c Case, instance, mutant string) app.Config {
	cfg := app.Config{
		Instance: instance, Logger: r.cfg.Logger, Events: r.folder(c, mutant != ""), DefaultTTL: holdTTL, Mutate: mutant, Version: "trial",
		Flags: app.FlagsConfig{File: r.flags(c), Poll: 100 * time.Millisecond},
		Timing: app.Timing{
			Call: callTime, Mirror: 250 * time.Millisecond, GiveBackWindow: window, Recheck: recheck, Sweep: 250 * time.Millisecond,
			ReaperGrace: time.Second, Heartbeat: 200 * time.Millisecond, Dwell: 500 * time.Millisecond, Drive: 200 * time.Millisecond,
			VerifyEvery: -1, // at the end, by the trial
		},
		Compare: app.CompareConfig{RollupEvery: 5 * time.Second, FlushEvery: time.Second, SelftestEvery: max(r.cfg.Duration/100, 200*time.Millisecond)},
		Pool:    app.PoolConfig{Cap: 200, LockWait: time.Second},
		Pods: []app.PodConfig{{
			Name: c.Name, Shops: []string{fmt.Sprintf("%d-%d", firstShop, lastShop), fmt.Sprint(reservedShop)}, ReservedShop: reservedShop,
			Redis: app.RedisConfig{Addr: r.stack.RedisAddr(c.Name)}, MySQL: app.MySQLConfig{DSN: r.stack.MySQLDSN(c.Name)},
		}},
	}
	return cfg.WithDefaults()
}

// shownSamples bounds the unexplained divergences that the progress prints.
const shownSamples = 3

// tailRate: a tail shows in tens of thousands of calls.
const tailRate = 6

// duration is how long buyers come in a case.
func (r *run) duration(c Case) time.Duration {
	if c.Half {
		return 2 * r.cfg.Duration
	}
	return r.cfg.Duration
}

// traffic is the buyers of a case: two locations that Redis can't tell apart,
// and items that run out at one and then at both.
func (r *run) traffic(c Case) workload.Config {
	rate, duration := r.cfg.Rate, r.duration(c)
	if c.Half {
		return workload.Config{
			Seed: r.cfg.Seed, Shops: []int64{firstShop, lastShop}, SmallCarts: true, ScarceRate: -1,
			Rate: tailRate * rate, MaxInFlight: int(tailRate * rate), ThinkMin: 50 * time.Millisecond, ThinkMax: 100 * time.Millisecond,
			PaymentFail: 0.9, TTL: holdTTL, CallTimeout: 5 * time.Second,
		}
	}
	return workload.Config{
		Seed: r.cfg.Seed, Shops: []int64{firstShop, lastShop}, Baskets: r.cfg.Baskets, SmallCarts: len(r.cfg.Baskets) == 0,
		Groups: 2, HotItem: 7777, HotShare: 0.3, HotStock: int64(rate * duration.Seconds() * 0.03), ScarceRate: 0.1, Scarce: 10,
		Rate: rate, MaxInFlight: max(1, int(rate)), ThinkMin: 50 * time.Millisecond, ThinkMax: 400 * time.Millisecond,
		PaymentFail: 0.15, Abandon: 0.05, TTL: holdTTL, CallTimeout: 5 * time.Second,
	}
}

// try plays one case and reads its report.
func (r *run) try(ctx context.Context, c Case) (Tried, error) {
	r.say("case %s: %s", c.Name, describe(c))
	since := time.Now().UTC()
	p := &pod{run: r, of: c, account: workload.NewAccount(workload.AccountConfig{})}
	err := p.play(ctx)
	if err = errors.Join(err, p.close(ctx)); err != nil {
		return Tried{}, errors.Join(err, p.stores.Close(context.WithoutCancel(ctx)))
	}
	rep, err := r.report(ctx, c, p.stores, since)
	if err = errors.Join(err, p.stores.Close(context.WithoutCancel(ctx))); err != nil {
		return Tried{}, err
	}
	t := judged(c, rep, p.account.Counts())
	r.say("case %s: %s; %d of %d compared, %d unexplained, kinds %v", c.Name, t.Verdict, t.Compared, t.Eligible, t.Unexplained, t.Kinds)
	for _, b := range t.Broken {
		r.say("  %s: %s", b.Gate, b.Reason)
	}
	for _, k := range rep.Divergences.Kinds {
		if k.Kind == compare.KindUnexplained.String() {
			for _, e := range k.Samples[:min(shownSamples, len(k.Samples))] {
				b, _ := json.Marshal(e) // plain values: it can't fail
				r.say("  unexplained: %s", b)
			}
		}
	}
	return t, nil
}

func describe(c Case) string {
	switch {
	case c.Mutant == "":
		return "no bug"
	case c.Half:
		return "half of the instances have bug " + c.Mutant
	default:
		return "bug " + c.Mutant
	}
}

// report is the pod's, from MySQL; of instances with a bug beside others that
// have none, from their files, against the others.
func (r *run) report(ctx context.Context, c Case, stores *app.Stores, since time.Time) (report.Report, error) {
	until := time.Now().UTC()
	if !c.Half {
		return app.Report(ctx, r.config(c, "operator", ""), []*app.Stores{stores}, app.ReportOptions{Since: since, Until: until, Limits: r.cfg.Limits})
	}
	base, err := app.ReportOffline([]string{r.folder(c, false)}, []string{c.Name}, app.ReportOptions{Since: since, Until: until})
	if err != nil {
		return base, err
	}
	return app.ReportOffline([]string{r.folder(c, true)}, []string{c.Name}, app.ReportOptions{
		Since: since, Until: until, Baseline: report.BaselineOf(base), Limits: r.cfg.Limits,
	})
}

// play sets the pod up, takes it to shadow, lets buyers come, and verifies.
func (p *pod) play(ctx context.Context) (err error) {
	r, c := p.run, p.of
	operator := r.config(c, "operator", "")
	if _, err := mysqlpool.Migrate(ctx, operator.Pods[0].MySQL.DSN); err != nil {
		return err
	}
	if p.stores, err = app.OpenStores(ctx, operator, operator.Pods[0]); err != nil {
		return err
	}
	stock, err := workload.Stock(r.traffic(c))
	if err != nil {
		return err
	}
	rows := make([]mysqlpool.StockRow, len(stock))
	for i, s := range stock {
		rows[i] = mysqlpool.StockRow{Shop: s.Shop, Item: s.Item, Group: s.Group, Available: s.Available}
	}
	if _, err := app.ImportStock(ctx, p.stores, rows); err != nil {
		return err
	}
	if err := r.want(c, holdover.StageShadow); err != nil {
		return err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	ran := make(chan error, r.cfg.Instances)
	for i := range r.cfg.Instances {
		mutant := c.Mutant
		if c.Half && i%2 == 1 {
			mutant = ""
		}
		a, err := app.New(ctx, r.config(c, fmt.Sprintf("checkout-%d", i+1), mutant))
		if err != nil {
			return err
		}
		p.apps = append(p.apps, a)
		p.running.Go(func() { ran <- a.Run(background) })
	}
	if err := p.await(ctx, "every instance works in shadow", p.inShadow); err != nil {
		return err
	}
	var instances []holdover.Reserver
	for _, a := range p.apps {
		instances = append(instances, a.Pods[0].Facade)
	}
	buying, stopBuying := context.WithTimeout(ctx, r.duration(c))
	defer stopBuying()
	if _, err := workload.Run(buying, r.traffic(c), instances, p.account); err != nil {
		return err
	}
	if err := p.await(ctx, "every hold has ended and nothing is left to carry over", p.settled); err != nil {
		return err
	}
	if _, err := app.VerifyFor(ctx, operator, p.stores, app.VerifyOptions{By: "trial"}); err != nil {
		return err
	}
	p.stop()
	p.running.Wait()
	close(ran)
	for err := range ran {
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *pod) inShadow(context.Context) bool {
	for _, a := range p.apps {
		if ok, _ := a.Ready(); !ok {
			return false
		}
		if fence, err := a.Pods[0].Facade.Agreed(); err != nil || fence.Stage != holdover.StageShadow {
			return false
		}
	}
	return true
}

// settled: no hold lives any more, lanes and memories are empty, and no difference waits for its re-check. What a bug
// keeps from ending is given the time of a hold.
func (p *pod) settled(ctx context.Context) bool {
	for _, a := range p.apps {
		if s := a.Pods[0].Facade.Stats(); s.LaneJobs > 0 || s.Unmirrored > 0 || s.Rechecks > 0 {
			return false
		}
	}
	rows, _, err := p.stores.MySQL.JournalSize(ctx)
	return err == nil && rows == 0
}

// settleLimit bounds how long a case may take for what has no time to hold: a
// slow machine is no fault, and a bug may keep something from settling for ever.
const settleLimit = time.Minute

func (p *pod) await(ctx context.Context, what string, ok func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok(ctx) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited for %s until %s", settleLimit, what)
		case <-tick.C:
		}
	}
	return nil
}

// close ends the instances, which writes and ships what they counted.
func (p *pod) close(ctx context.Context) error {
	if p.stop != nil {
		p.stop()
	}
	p.running.Wait()
	var errs []error
	for _, a := range p.apps {
		errs = append(errs, a.Close(ctx))
	}
	return errors.Join(errs...)
}
