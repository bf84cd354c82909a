package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"holdover"
	"holdover/internal/app"
	"holdover/internal/mutants"
	"holdover/internal/workload"
)

// Config says how long and how hard. Zero fields mean the default.
type Config struct {
	Schedules int           // how many; 100
	Seed      uint64        // of the campaign; what is drawn follows from it
	Replay    uint64        // one schedule by its own seed, instead of a campaign
	Limit     time.Duration // no new schedule begins after it; 0: none
	Mutate    string        // the protection that is switched off; empty: none
	Aim       string        // schedules aimed at this mutant, with the protection on; Mutate when not set
	Program   string        // the holdover binary of the instances; this one
	Era       int           // schedules on one set of servers; 40
	Keep      bool          // leave the servers' folder in place
	Progress  io.Writer     // a line for each schedule; nil: discard
	Verbose   io.Writer     // what the servers say at their start; nil: discard
}

func (c Config) withDefaults() (Config, error) {
	if c.Schedules == 0 {
		c.Schedules = 100
	}
	if c.Era == 0 {
		c.Era = 40
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	switch {
	case c.Schedules < 0 || c.Era < 0 || c.Limit < 0:
		return c, &holdover.InvalidError{Field: "schedules", Problem: "and the time must not be negative"}
	case c.Mutate != "" && !mutants.Known(c.Mutate):
		return c, &holdover.InvalidError{Field: "mutate", Value: c.Mutate, Problem: "is no mutant: " + strings.Join(mutants.Names(), ", ")}
	}
	if c.Aim == "" {
		c.Aim = c.Mutate
	}
	if c.Program == "" {
		var err error
		if c.Program, err = os.Executable(); err != nil {
			return c, fmt.Errorf("where is this program? %w", err)
		}
	}
	return c, nil
}

// Run makes the campaign.
func Run(ctx context.Context, cfg Config) (Report, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Report{}, err
	}
	app.RouteDriverLogs(discard)
	c := &campaign{cfg: cfg, report: newReport(cfg), began: time.Now()}
	err = c.run(ctx)
	if c.world != nil {
		err = errors.Join(err, c.world.close(ctx))
	}
	c.report.Seconds = time.Since(c.began).Seconds()
	c.report.conclude()
	return c.report, err
}

// campaign is a run of many schedules.
type campaign struct {
	cfg    Config
	report Report
	began  time.Time
	world  *world
	age    int // schedules that this world has seen
}

func (c *campaign) run(ctx context.Context) error {
	seeds := func(n int) uint64 { return seedOf(c.cfg.Seed, n) }
	if c.cfg.Replay != 0 {
		c.cfg.Schedules = 1
		seeds = func(int) uint64 { return c.cfg.Replay }
	}
	for n := range c.cfg.Schedules {
		if c.cfg.Limit > 0 && time.Since(c.began) > c.cfg.Limit {
			return nil
		}
		s := Draw(seeds(n), c.cfg.Aim)
		t := newTrail()
		found, err := c.one(ctx, s, t)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted after %d schedules: %w", n, ctx.Err())
		}
		if err != nil {
			return fmt.Errorf("schedule %d: %w", s.Seed, err)
		}
		c.tell(n, s, t, found)
		if found.faulty() && c.cfg.Mutate != "" {
			return nil // caught
		}
	}
	return nil
}

// one runs a schedule, on a new world when there is none or it is old.
func (c *campaign) one(ctx context.Context, s Schedule, t *trail) (Found, error) {
	if c.world != nil && c.age >= c.cfg.Era {
		if err := c.renew(ctx); err != nil {
			return Found{}, err
		}
	}
	if c.world == nil {
		w, err := newWorld(ctx, c.cfg)
		if err != nil {
			return Found{}, err
		}
		c.world, c.age = w, 0
	}
	c.age++
	found, err := c.world.try(ctx, s, t)
	c.report.add(s, t, found)
	c.report.retired += c.world.retired.Swap(0)
	// A world that broke, or lost a store, is no place for the next one; nor is one
	// in which MySQL was left alone with holds that end in Redis.
	if err == nil && (found.faulty() || s.fault().Fault == LoseRedis || s.leavesMySQL()) && ctx.Err() == nil && !c.cfg.Keep {
		err = c.renew(ctx)
	}
	return found, err
}

func (c *campaign) renew(ctx context.Context) error {
	err := c.world.close(ctx)
	c.world = nil
	return err
}

// leavesMySQL: the flag may take the pod from shadow back to redis.
func (s Schedule) leavesMySQL() bool {
	return slices.ContainsFunc(s.Actions, func(a Action) bool { return a.Do == doFlag && a.Stage == holdover.StageRedis })
}

// tell prints a schedule's line, and all about it when it failed.
func (c *campaign) tell(n int, s Schedule, t *trail, found Found) {
	out := c.cfg.Progress
	verdict := "ok"
	if found.faulty() {
		verdict = "FAILED"
	}
	f := s.fault()
	where := ""
	if f.Store != holdover.StoreNone {
		where = " " + f.Store.String()
	}
	if f.Who >= 0 {
		where += fmt.Sprintf(" at %d", f.Who+1)
	}
	var steps []string
	for _, a := range s.Actions {
		if a.Do != "" {
			steps = append(steps, a.Do)
		}
	}
	fmt.Fprintf(out, "%6.1fs  %3d  %-16d  from %-6s  %s%s, %s: %d calls, %s\n", time.Since(c.began).Seconds(), n+1, s.Seed, s.Start, f.Fault, where, strings.Join(steps, "+"), t.count(), verdict)
	if !found.faulty() {
		return
	}
	fmt.Fprintf(out, "%s", s)
	for _, d := range found.Details {
		fmt.Fprintf(out, "  ! %s\n", d)
	}
	tokens := found.tokens()
	t.print(out, tokens[:min(len(tokens), 4)], len(tokens) < 3)
	fmt.Fprintf(out, "  replay: %s\n", c.replay(s))
}

func (c *campaign) replay(s Schedule) string {
	text := fmt.Sprintf("holdover torture --replay %d", s.Seed)
	if c.cfg.Mutate != "" {
		text += " --mutate " + c.cfg.Mutate
	}
	return text
}

// try runs one schedule: to its stage, a new shop, buyers and faults, then
// silence, and the count.
func (w *world) try(ctx context.Context, s Schedule, t *trail) (Found, error) {
	var found Found
	w.shops++
	front := newShop(w.shops, s)
	if err := w.open(ctx, front); err != nil {
		return found, fmt.Errorf("opening shop %d: %w", front.shop, err)
	}
	err := error(nil)
	if s.isRetiring() {
		err = w.drilled(ctx)
	}
	if err = errors.Join(err, w.goTo(ctx, s.Start)); err != nil {
		if ctx.Err() != nil {
			return found, err
		}
		found.Unmirrored++
		found.say("before the schedule: %v", err)
		return found, nil
	}
	book := workload.NewAccount(workload.AccountConfig{})
	*t = trail{began: time.Now()}
	var at []holdover.Reserver
	for _, in := range w.instances {
		at = append(at, book.Watch(&httpBuyer{base: "http://" + in.addr, name: in.name, http: in.client, trail: t}))
	}
	x := &watch{w: w, s: s, trail: t}
	watching, stopWatching := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { x.run(watching) })

	var acting sync.WaitGroup
	failed := make([]error, len(s.Actions))
	for i, a := range s.Actions {
		acting.Go(func() {
			wait(ctx, a.At-t.now())
			if err := w.happen(ctx, a, front, t); err != nil {
				failed[i] = fmt.Errorf("action %q, fault %s: %w", a.Do, a.Fault, err)
			}
		})
	}
	stock := &stocker{w: w, front: front, seed: s.Seed, trail: t, changed: map[int64]int64{}}
	acting.Go(func() { stock.run(ctx, s) })
	newCrowd(front, s, at, t).run(ctx)
	acting.Wait()
	t.note("the buyers are gone, the faults are over")
	err = errors.Join(failed...)
	if healErr := w.heal(ctx, s.fault().Fault); healErr != nil {
		err = errors.Join(err, fmt.Errorf("healing %s: %w", s.fault().Fault, healErr))
	}
	if err == nil {
		err = w.conclude(ctx, s, stock, book, at[0], t, x, &found)
	}
	stopWatching()
	watchers.Wait()
	found.ReadinessLied += x.lied
	found.Details = append(found.Details, x.details...)
	return found, err
}

// conclude waits for silence and counts.
func (w *world) conclude(ctx context.Context, s Schedule, stock *stocker, book *workload.Account, at holdover.Reserver, t *trail, x *watch, found *Found) error {
	for _, in := range w.instances {
		if err := in.awaitReady(ctx); err != nil {
			return fmt.Errorf("%w\n%s", err, in.logTail(10))
		}
	}
	if s.fault().Fault == LoseRedis {
		return w.lostRedis(ctx, s, stock, book, found)
	}
	if s.isRetiring() {
		if err := w.wholeAgain(ctx); err != nil {
			if ctx.Err() != nil {
				return err
			}
			found.Unmirrored++
			found.say("%v", err)
			return nil
		}
	}
	unmirrored, err := w.quiet(ctx)
	switch {
	case errors.Is(err, errNotQuiet) && ctx.Err() == nil:
		found.Unmirrored += unmirrored
		found.say("%v", err)
	case err != nil:
		return err
	}
	front := stock.after(ctx, s, found)
	calls := t.all()
	r, m, err := w.fences(ctx)
	if err != nil {
		return fmt.Errorf("reading the fences: %w", err)
	}
	agreed := r
	if m.Epoch > r.Epoch {
		agreed = m
	}
	t.note("quiet in %s at epoch %d: the auditor counts", agreed.Stage, agreed.Epoch)
	judged, err := w.judge(ctx, front, book, agreed.Stage)
	if err != nil {
		return fmt.Errorf("counting: %w", err)
	}
	found.add(judged)
	if s.Stock == plentyStock && s.fault().Fault == NoFault {
		if err := w.inOrder(ctx, front, calls, agreed.Stage, found); err != nil {
			return err
		}
	}
	if s.keepsMemory() {
		if err := w.mirrored(ctx, front, calls, agreed.Stage, found); err != nil {
			return err
		}
	}
	if s.Linear {
		units := map[int64]int64{}
		for _, st := range front.stock {
			units[st.Item] += st.Available
		}
		x.mu.Lock()
		changes := append([]time.Duration(nil), x.changes...)
		x.mu.Unlock()
		if err := linear(calls, units, changes, checkerTime); err != nil {
			found.NotLinear++
			found.say("%v", err)
		}
	}
	w.resolve(ctx, front, calls, at, found)
	if err := w.closeShop(ctx, front, calls, at); err != nil {
		return fmt.Errorf("closing shop %d: %w", front.shop, err)
	}
	return nil
}

func (s Schedule) isRetiring() bool {
	return slices.ContainsFunc(s.Actions, func(a Action) bool { return a.Do == doRetire })
}

// wholeAgain comes back from mysql-only, should the schedule have ended there, or
// on the way.
func (w *world) wholeAgain(ctx context.Context) error {
	last := ""
	err := await(ctx, quietTime, "the pod has its Redis again", func() (bool, error) {
		r, m, err := w.fences(ctx)
		if err != nil {
			return false, err
		}
		if r == m && m.Stage != holdover.StageMySQLOnly {
			return true, nil
		}
		said, err := w.comeBack(ctx)
		last = fmt.Sprintf("%s, %v", said, err)
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, last)
	}
	return nil
}

// keepsMemory: no instance ended with mirror work in its memory, which only a
// verification finds again.
func (s Schedule) keepsMemory() bool { return s.fault().Fault != KillInstance }

// closeShop releases what is still held, so that the next schedule's way is
// free. The count is over: what happens here is not judged.
func (w *world) closeShop(ctx context.Context, front shopFront, calls []call, at holdover.Reserver) error {
	tokens := map[holdover.Token]bool{}
	for _, c := range calls {
		if c.op == "reserve" && !errors.Is(c.err, holdover.ErrOutOfStock) {
			tokens[c.token] = true
		}
		if (c.op == "release" || c.op == "claim") && c.err == nil {
			delete(tokens, c.token)
		}
	}
	var releasing sync.WaitGroup
	places := make(chan struct{}, 16)
	for token := range tokens {
		places <- struct{}{}
		releasing.Go(func() {
			defer func() { <-places }()
			once, cancel := context.WithTimeout(ctx, callLimit)
			defer cancel()
			_, _ = at.Release(once, front.shop, token) // ended ones say so
		})
	}
	releasing.Wait()
	return ctx.Err()
}

// lostRedis judges a schedule in which Redis lost its data. The loss must be named,
// and speak against every way to Redis. Where MySQL was the truth, buyers lost
// nothing by it, and the pod can be made whole.
func (w *world) lostRedis(ctx context.Context, s Schedule, stock *stocker, book *workload.Account, found *Found) error {
	const code = "redis-lost-its-data"
	last := ""
	err := await(ctx, 10*time.Second, "the loss of Redis's data is named", func() (bool, error) {
		named := 0
		for _, in := range w.instances {
			look, cancel := context.WithTimeout(ctx, lookTime)
			s, err := in.operator().Pod(look, podName)
			cancel()
			if err != nil {
				last = err.Error()
				continue
			}
			last = fmt.Sprintf("back %v, kill %v", s.Readiness.Back, s.Readiness.Kill)
			for _, why := range s.Readiness.Back.Reasons {
				if why.Code == code && !s.Readiness.Back.OK && !s.Readiness.Kill.OK {
					named++
				}
			}
		}
		return named == len(w.instances), nil
	})
	if err != nil && ctx.Err() == nil {
		found.ReadinessLied++
		found.say("%v: %s", err, last)
		return nil
	}
	if err != nil {
		return err
	}
	_, m, err := w.fences(ctx)
	if err != nil {
		return err
	}
	if m.Stage != holdover.StageMySQL || m.Latched {
		return nil // G5: seen and named
	}
	return w.rebuilt(ctx, s, stock, book, found)
}

// rebuilt lets the product fill Redis anew, waits until each instance says that
// going back is safe, and goes back at once: nothing may be lost by it.
func (w *world) rebuilt(ctx context.Context, s Schedule, stock *stocker, book *workload.Account, found *Found) error {
	last := ""
	err := await(ctx, quietTime, "redis is rebuilt and going back is safe", func() (bool, error) {
		done, err := app.Repair(ctx, w.operatorConfig, w.operating, app.RepairOptions{By: "torture", Reason: "redis lost its data"})
		if err != nil || !done.Clean {
			last = fmt.Sprintf("the repair: clean %t, %v", done.Clean, err)
			return false, nil
		}
		for _, in := range w.instances {
			look, cancel := context.WithTimeout(ctx, lookTime)
			s, err := in.operator().Pod(look, podName)
			cancel()
			if err != nil || !s.Readiness.Back.OK {
				last = fmt.Sprintf("%s: back %v, %v", in.name, s.Readiness.Back, err)
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil && ctx.Err() == nil {
		found.Unmirrored++
		found.say("%v: %s", err, last)
		return nil
	}
	if err != nil {
		return err
	}
	front := stock.after(ctx, s, found)
	for _, stage := range []holdover.Stage{holdover.StageMySQL, holdover.StageShadow} {
		if stage == holdover.StageShadow {
			if _, err := app.Kill(ctx, w.operating, "torture", "right after the rebuild", false); err != nil {
				found.ReadinessLied++
				found.say("readiness said yes, and the kill failed: %v", err)
				return nil
			}
		}
		judged, err := w.judge(ctx, front, book, stage)
		found.add(judged)
		if err != nil || judged.faulty() {
			return err
		}
	}
	return nil
}
