package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdover"
	"holdover/internal/app"
)

const (
	wayCommand = "command"
	wayCall    = "call"
)

// mostPresses is how often one kill is pressed. Who is on call presses again
// when it fails, and its time runs from the first press.
const mostPresses = 5

// killRate is a moderate load for eight instances and both servers on two cores.
const killRate = 100

// kill: how long until a kill is in effect on every instance, under load and
// without. Each kill is followed by a restore and the way forward again, through
// joint to mysql, with buyers coming all the time.
func (r *run) kill() (err error) {
	n := r.cfg.Instances
	f, err := r.startFleet(n)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.goTo(holdover.StageMySQL); err != nil {
		return err
	}
	ways := []string{wayCommand, wayCall, wayCommand}
	windows := make([]window, 0, len(ways)*r.cfg.Rounds)
	var busy cpuTime // during the kills under load
	kills := func(load bool) error {
		for range r.cfg.Rounds {
			for _, way := range ways {
				one, w, err := f.kill(way, load)
				if err != nil {
					return err
				}
				r.report.Kills = append(r.report.Kills, one)
				if load {
					windows, busy = append(windows, w), busy.add(w.cpu)
				}
			}
		}
		return nil
	}
	if err := kills(false); err != nil {
		return err
	}
	rate := r.cfg.Rate
	if rate == 0 {
		rate = killRate
	}
	r.report.RatePerS = value(rate)
	buying, stop := context.WithCancel(r.ctx)
	defer stop()
	said := make(chan *tally, 1)
	began := time.Now()
	go func() { said <- newBuyers(f.urls, rate, 0.5).run(buying, 0, 0, false) }()
	err = pause(r.ctx, 2*time.Second) // connections and pools are warm then
	alone := cpuNow()
	if err == nil {
		err = pause(r.ctx, time.Second)
	}
	r.report.IdleBuyers = cpuNow().sub(alone).share()
	if err == nil {
		err = kills(true)
	}
	if err == nil {
		err = pause(r.ctx, time.Second)
	}
	stop()
	t := <-said
	took := time.Since(began)
	if err != nil {
		return err
	}
	r.report.IdleKills = busy.share()
	return f.judgeKills(t, took, windows)
}

// window is when a buyer's error may be a kill's doing: from the kill's
// beginning until a second after the last acknowledgement. cpu is what the cores
// did until that acknowledgement.
type window struct {
	from, to time.Time
	cpu      cpuTime
}

// kill presses the switch once, watches who has acknowledged, and brings the pod
// back to mysql.
func (f *fleet) kill(way string, load bool) (k Kill, w window, err error) {
	ctx, cancel := context.WithTimeoutCause(f.run.ctx, awaitLimit, fmt.Errorf("a kill took longer than %s", awaitLimit))
	defer cancel()
	k = Kill{Way: way, Load: load}
	before, err := f.stores.Redis.Fence(ctx)
	if err != nil {
		return k, w, err
	}
	acked := make(chan error, 1)
	var ackAt time.Time
	var busy cpuTime
	began, atBegin := time.Now(), cpuNow()
	go func() {
		err := f.watchAcks(ctx, before.Epoch+1, &ackAt)
		busy = cpuNow().sub(atBegin)
		acked <- err
	}()
	var killed app.Killed
	for k.Presses = 1; ; k.Presses++ {
		if way == wayCommand {
			killed, err = f.killCommand(ctx)
		} else {
			killed, err = app.Kill(ctx, f.stores, "bench", "measured", false)
		}
		if err == nil || k.Presses == mostPresses || ctx.Err() != nil {
			break
		}
		f.run.note("a kill by %s had to be pressed again: %v", way, err)
	}
	done := time.Now()
	if err != nil {
		cancel()
		<-acked
		return k, w, fmt.Errorf("kill by %s: %w", way, err)
	}
	if err := <-acked; err != nil {
		return k, w, err
	}
	if len(killed.Missing) > 0 {
		return k, w, fmt.Errorf("kill by %s: not in effect on %s", way, strings.Join(killed.Missing, ", "))
	}
	w = window{began, ackAt.Add(time.Second), busy}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	k.AckMs, k.DoneMs, k.Carried = ms(ackAt.Sub(began)), ms(done.Sub(began)), killed.Carried
	k.TripMs = ms(killed.Took)
	// To.At is the command's clock, this machine's, when its trip was put together;
	// the trip's first half is reading the fences.
	k.StartMs = max(0, ms(killed.To.At.Sub(began)-readsOf(killed)))
	k.Steps = map[string]float64{}
	for _, s := range killed.Steps {
		name, _, _ := strings.Cut(s.Name, " and ") // how many facts is not part of its name
		k.Steps[name] += ms(s.Took)
	}
	k.TripMs -= k.Steps[stepNoted] // the flip is done by then
	k.SpreadMs = k.AckMs - k.StartMs - k.TripMs
	restored := time.Now()
	// A restore is in no hurry, and needs both stores: on a machine that is too
	// busy for one answer in time it is asked for again, as its error says.
	for {
		if _, err = app.Restore(ctx, f.stores, "bench", "measured", false); err == nil {
			break
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return k, w, err
		}
	}
	err = f.await(holdover.StageMySQL)
	k.ForwardMs = ms(time.Since(restored))
	f.run.say("  %-8s load %-5v  acknowledged by all after %6.1f ms (start %.1f, trip %.1f, spread %.1f); forward again after %.0f ms", way, load, k.AckMs, k.StartMs, k.TripMs, k.SpreadMs, k.ForwardMs)
	return k, w, err
}

// stepNoted is the step of a trip that comes after the flip: MySQL is told that
// Redis has followed.
const stepNoted = "mysql: redis followed"

// readsOf is how long the trip took to read the fences.
func readsOf(k app.Killed) time.Duration {
	var longest time.Duration
	for _, s := range k.Steps {
		if strings.HasSuffix(s.Name, "read fence") {
			longest = max(longest, s.Took)
		}
	}
	return longest
}

// ackLook is how often it is looked for acknowledgements. It is an observer of
// its own: the command looks less often.
const ackLook = 2 * time.Millisecond

// watchAcks notes when the last instance had acknowledged.
func (f *fleet) watchAcks(ctx context.Context, epoch holdover.Epoch, at *time.Time) error {
	for {
		n, err := f.acknowledged(ctx, epoch) // a list that did not come in time is asked for again
		if *at = time.Now(); err == nil && n >= len(f.programs) {
			return nil
		}
		if ended := pause(ctx, ackLook); ended != nil {
			return fmt.Errorf("%d of %d instances have acknowledged: %w", n, len(f.programs), errors.Join(ended, err))
		}
	}
}

// killCommand is `holdover kill` as on call would type it: in a session of its
// own, like every shell. Where the kernel shares the cores between sessions (or,
// under systemd, between services and people) the load does not take the command's.
func (f *fleet) killCommand(ctx context.Context) (k app.Killed, err error) {
	command := exec.CommandContext(ctx, f.run.cfg.Program, "kill", "--config", f.file, "--pod", pod, "--by", "bench", "--reason", "measured", "--json")
	var out, problem bytes.Buffer
	command.Stdout, command.Stderr = &out, &problem
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Run(); err != nil {
		return k, fmt.Errorf("%w: %s", err, strings.TrimSpace(problem.String()))
	}
	var said struct {
		Pods []struct{ Result app.Killed }
	}
	if err := json.Unmarshal(out.Bytes(), &said); err != nil || len(said.Pods) != 1 {
		return k, fmt.Errorf("its answer can't be read (%w): %s", err, &out)
	}
	return said.Pods[0].Result, nil
}

func (f *fleet) judgeKills(t *tally, took time.Duration, windows []window) error {
	r := f.run
	of := func(way string, load bool) (ms []float64) {
		for _, k := range r.report.Kills {
			if k.Way == way && k.Load == load {
				ms = append(ms, k.AckMs)
			}
		}
		return ms
	}
	under, idle, call := of(wayCommand, true), of(wayCommand, false), of(wayCall, true)
	r.report.KillP50, r.report.KillP99, r.report.KillMax = value(quantile(under, 0.5)), value(quantile(under, 0.99)), value(quantile(under, 1))
	r.report.KillCallP50, r.report.KillCallP99 = value(quantile(call, 0.5)), value(quantile(call, 0.99))
	r.report.KillIdleP50, r.report.KillIdleP99 = value(quantile(idle, 0.5)), value(quantile(idle, 0.99))
	var carried, calls int64
	var start, trip, spread, forward []float64
	steps := map[string][]float64{}
	for _, k := range r.report.Kills {
		carried += int64(k.Carried)
		if k.Load && k.Way == wayCommand {
			start, trip, spread, forward = append(start, k.StartMs), append(trip, k.TripMs), append(spread, k.SpreadMs), append(forward, k.ForwardMs)
			for name, ms := range k.Steps {
				steps[name] = append(steps[name], ms)
			}
		}
	}
	for _, c := range t.calls {
		calls += c.latency.n
	}
	errs, instances := t.errors(), int64(len(f.programs))
	r.report.BuyerErrors, r.report.BuyerCalls, r.report.Instances, r.report.Carried = &errs, &calls, &instances, &carried
	r.note("%d kills by the command under load and %d without, %d by the call under load: with so few, p99 is the longest", len(under), len(idle), len(call))
	r.note("under load the command's time is, in medians: %.1f ms until its trip begins (the process starts and connects), %.1f ms for the trip, %.1f ms until the last instance had acknowledged; then %.0f ms from the restore to mysql again",
		median(start), median(trip), median(spread), median(forward))
	var each []string
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		each = append(each, fmt.Sprintf("%s %.1f", name, median(steps[name])))
	}
	r.note("the trip's steps under load, medians in ms: %s; the fences are read at once, and the last step comes after the flip", strings.Join(each, ", "))
	if r.report.IdleBuyers != nil && r.report.IdleKills != nil {
		r.note("the cores were idle for %.0f %% of the time with buyers alone, and for %.0f %% of it during the kills under load: %d instances, both servers, the buyers and the command share %d cores",
			100**r.report.IdleBuyers, 100**r.report.IdleKills, len(f.programs), r.report.Machine.Cores)
	}
	r.note("buyers over HTTP in an open loop: %.0f calls/s for %.0f s, p50 %.1f ms, p99 %.1f ms; told: %s", float64(calls)/took.Seconds(), took.Seconds(),
		t.of(opReserve, opRelease, opClaim).quantileUs(0.5)/1000, t.of(opReserve, opRelease, opClaim).quantileUs(0.99)/1000, t.said())
	r.killCurve()
	var near int64
	for _, w := range windows {
		for _, b := range t.during(w.from, w.to) {
			near++
			r.note("an error at a kill: %s was told %s after %d ms, %d ms after the kill began", b.op, b.answer, b.to.Sub(b.from).Milliseconds(), b.to.Sub(w.from).Milliseconds())
		}
	}
	r.report.BuyerErrorsAtKills = &near
	if near > 0 {
		r.broken("%d of %d calls were told an error while a kill was on its way: %s", near, calls, t.said())
	}
	if err := f.judgeStock(t); err != nil {
		return err
	}
	r.target("kill_p99_ms", *r.report.KillP99, "<=", 100, 0)
	r.target("buyer_errors", float64(errs), "<=", 0, 0)
	return nil
}

// judgeStock counts in both stores what buyers have bought, once nothing is
// under way. Every hold has been ended by its buyer.
func (f *fleet) judgeStock(t *tally) error {
	ctx, cancel := context.WithTimeoutCause(f.run.ctx, awaitLimit, nil)
	defer cancel()
	var claimed, unclear, held int64
	if c := t.calls[opClaim]; c != nil {
		claimed = c.answers["200"] + c.answers["202"]
		unclear = c.latency.n - claimed
	}
	// Units in holds whose buyers were not told of them, or could not end them,
	// are not back yet.
	for _, op := range []string{opReserve, opRelease, opClaim} {
		if c := t.calls[op]; c != nil {
			held += c.latency.n - c.answers["200"] - c.answers["201"] - c.answers["202"] - c.answers["409 out-of-stock"]
		}
	}
	for {
		ledger, counters, err := f.sold(ctx)
		if err == nil && ledger >= claimed && ledger <= claimed+unclear && counters >= ledger && counters <= ledger+held {
			return nil
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			f.run.broken("buyers were told of %d claims (%d more without a clear answer): the ledger has lost %d units, the counters lack %d (%v)", claimed, unclear, ledger, counters, err)
			return f.run.ctx.Err()
		}
	}
}

// quantile of a few values, the higher one where it falls between two.
func quantile(values []float64, q float64) float64 {
	h := slices.Sorted(slices.Values(values))
	if len(h) == 0 {
		return 0
	}
	return h[min(int(q*float64(len(h))), len(h)-1)]
}

func (r *run) killCurve() {
	c := Curve{Name: "kills: until the last instance had acknowledged", X: "kill", Y: "ms"}
	for _, s := range []struct {
		name, way string
		load      bool
	}{{"command, under load", wayCommand, true}, {"call, under load", wayCall, true}, {"command, idle", wayCommand, false}, {"call, idle", wayCall, false}} {
		line := Series{Name: s.name}
		for _, k := range r.report.Kills {
			if k.Way == s.way && k.Load == s.load {
				line.Points = append(line.Points, Point{X: float64(len(line.Points) + 1), Y: k.AckMs})
			}
		}
		c.Series = append(c.Series, line)
	}
	r.report.Curves = append(r.report.Curves, c)
}
