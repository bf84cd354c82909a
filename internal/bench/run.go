package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// run is one scenario under way.
type run struct {
	ctx            context.Context
	cfg            Config
	servers        *servers
	maxConnections int
	seed           uint64 // of the next turn
	fleets         int    // started until now
	report         Report
}

// Run measures one scenario, or all, and returns what it found. A broken
// invariant is no error: Report.OK is false then.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return Report{}, err
	}
	began := time.Now()
	s, err := startServers(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	base, maxConnections, err := describe(ctx, s, cfg)
	if err != nil {
		return Report{}, err
	}
	one := func(name string, f func(*run) error) (Report, error) {
		r := &run{ctx: ctx, cfg: cfg, servers: s, maxConnections: maxConnections, report: base}
		r.report.Scenario, r.report.Rounds = name, cfg.Rounds
		r.say("%s", name)
		began := time.Now()
		if err := f(r); err != nil {
			if ctx.Err() != nil {
				return r.report, fmt.Errorf("bench: interrupted in %s: %w", name, context.Cause(ctx))
			}
			return r.report, fmt.Errorf("bench: %s: %w", name, err)
		}
		r.finish()
		r.report.Seconds = time.Since(began).Seconds()
		return r.report, nil
	}
	if cfg.Scenario != "all" {
		i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == cfg.Scenario })
		report, err = one(cfg.Scenario, scenarios[i].run)
		report.Seconds = time.Since(began).Seconds()
		return report, err
	}
	report = base
	report.Scenario, report.OK, report.Rounds = "all", true, cfg.Rounds
	for _, s := range scenarios {
		part, err := one(s.name, s.run)
		if err != nil {
			return report, err
		}
		report.OK = report.OK && part.OK
		report.Reports = append(report.Reports, part)
		for _, b := range part.Broken {
			report.Broken = append(report.Broken, s.name+": "+b)
		}
		for _, l := range part.Loses {
			report.Loses = append(report.Loses, s.name+": "+l)
		}
		for _, t := range part.Targets {
			t.Name = s.name + "." + t.Name
			report.Targets = append(report.Targets, t)
		}
	}
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

// describe fills in what is the same for every scenario of a run.
func describe(ctx context.Context, s *servers, cfg Config) (r Report, maxConnections int, err error) {
	v := s.stack.Versions()
	r = Report{MySQLVersion: v.MySQL, RedisVersion: v.Redis, Machine: describeMachine(), Clients: cfg.Clients, Loses: []string{}}
	r.Machine.OwnServer = cfg.MySQLDSN == "" && cfg.RedisAddr == ""
	if r.Durability, maxConnections, err = s.durability(ctx); err != nil {
		return r, 0, err
	}
	r.RTTus, r.RedisRTTus, err = s.roundTrips(ctx)
	return r, maxConnections, err
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.cfg.Progress, "bench: "+format+"\n", args...)
}

// note is something that a reader of the figures must know.
func (r *run) note(format string, args ...any) {
	r.report.Notes = append(r.report.Notes, fmt.Sprintf(format, args...))
}

// contender is a way with the setting that it competes with.
type contender struct {
	name   string // in the report
	open   opener
	conns  int
	wrong  bool // on purpose: it is not judged
	choose bool // conns is the best of a few, tried out beforehand
}

// match is a contest in one case: what everybody has to do.
type match struct {
	name  string // the case; empty where there is only one
	stock []int64
	cap   int64
	load  load
	turns int // of each contender; zero: Config.Rounds

	proxy, redisProxy string // addresses to use instead of the servers' own
}

// standing is a contender's samples, a sample for each round.
type standing struct {
	contender
	match   match
	samples []*sample
}

func (s *standing) ops() float64 {
	return s.median(func(s *sample) float64 { return s.opsPerS() })
}

func (s *standing) median(f func(*sample) float64) float64 {
	values := make([]float64, len(s.samples))
	for i, one := range s.samples {
		values[i] = f(one)
	}
	return median(values)
}

// ratio is the median over the rounds of a's figure by b's in the same round:
// what disturbed both at once cancels out.
func ratio(a, b *standing, f func(*sample) float64) float64 {
	var ratios []float64
	for i := range min(len(a.samples), len(b.samples)) {
		if under := f(b.samples[i]); under > 0 {
			ratios = append(ratios, f(a.samples[i])/under)
		}
	}
	return median(ratios)
}

// turns gives every contender its turn, round by round, in one order and then
// in the other.
func (r *run) turns(m match, contenders []contender) (map[string]*standing, error) {
	all := make(map[string]*standing, len(contenders))
	order := make([]*standing, len(contenders))
	for i, c := range contenders {
		c, err := r.best(m, c)
		if err != nil {
			return nil, err
		}
		order[i] = &standing{contender: c, match: m}
		all[c.name] = order[i]
	}
	rounds := cmp.Or(m.turns, r.cfg.Rounds)
	for round := range rounds {
		for i := range order {
			at := i
			if round%2 == 1 {
				at = len(order) - 1 - i
			}
			if err := r.play(order[at], round == rounds-1); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range order {
		r.record(s)
	}
	return all, nil
}

func (r *run) play(s *standing, last bool) error {
	profiled := last && s.name == wayHoldover && r.cfg.Profile != nil
	if profiled {
		if err := pprof.StartCPUProfile(r.cfg.Profile); err != nil {
			return fmt.Errorf("start the profile: %w", err)
		}
	}
	one, err := r.turn(s.open, s.setting(), s.match.load)
	if profiled {
		pprof.StopCPUProfile()
		r.cfg.Profile = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", strings.TrimSpace(s.name+" "+s.match.name), err)
	}
	s.samples = append(s.samples, &one)
	r.say("  %-22s %-22s %9.0f/s  p50 %8.2f ms  p99 %8.2f ms", s.name, s.match.name, one.opsPerS(), one.latency.quantileUs(0.5)/1000, one.latency.quantileUs(0.99)/1000)
	return nil
}

func (s *standing) setting() setting {
	return setting{conns: s.conns, stock: s.match.stock, cap: s.match.cap, proxy: s.match.proxy, redisProxy: s.match.redisProxy}
}

// best finds out how many connections serve the contender best: for the
// competitors it is not a choice, as it is for holdover.
func (r *run) best(m match, c contender) (contender, error) {
	if c.conns == 0 {
		c.conns = r.cfg.Connections
	}
	candidates := r.trialConns(m.load.clients)
	if !c.choose || len(candidates) == 1 {
		if c.choose {
			c.conns = candidates[0]
		}
		return c, nil
	}
	trial := m.load
	trial.measure = min(max(trial.measure/2, 20*time.Millisecond), 250*time.Millisecond)
	trial.warm, trial.calls, trial.refused = trial.measure/3, 0, 0
	most := 0.0
	for _, conns := range candidates {
		s := &standing{contender: c, match: m}
		s.match.load, s.match.stock = trial, ample(len(m.stock))
		s.conns = conns
		one, err := r.turn(s.open, s.setting(), trial)
		if err != nil {
			return c, fmt.Errorf("%s with %d connections: %w", c.name, conns, err)
		}
		if rate := one.opsPerS(); rate > most {
			most, c.conns = rate, conns
		}
	}
	return c, nil
}

// trialConns are the numbers of connections worth trying for so many clients.
func (r *run) trialConns(clients int) []int {
	var all []int
	for _, n := range []int{8, 64, clients} {
		if n <= clients && n <= r.maxConnections-20 && !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		all = []int{clients}
	}
	return all
}

// ampleStock is more than can be sold in a turn.
const ampleStock = 100_000_000

func ample(items int) []int64 { return level(items, ampleStock) }

func level(items int, units int64) []int64 {
	stock := make([]int64, items)
	for i := range stock {
		stock[i] = units
	}
	return stock
}

// slot is the measured time of one turn when the scenario has so many.
func (r *run) slot(turns int, whole time.Duration) time.Duration {
	if r.cfg.Duration > 0 {
		whole = r.cfg.Duration
	}
	d := max(whole/time.Duration(turns), 20*time.Millisecond)
	r.report.SlotS = d.Seconds()
	return d
}

// warmUp is how long a turn runs before it is measured.
func warmUp(measured time.Duration) time.Duration { return min(measured*2/3, 300*time.Millisecond) }

// clients is the number of callers, when the user did not say.
func (r *run) clients(otherwise int) int {
	n := r.cfg.Clients
	if n == 0 {
		n = otherwise
	}
	r.report.Clients = n
	return n
}

func (r *run) cap() int64 {
	r.report.PoolCap = cmp.Or(r.cfg.Cap, 1000)
	return r.report.PoolCap
}
