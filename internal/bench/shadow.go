package bench

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdover"
)

// rssMost is what the serving process may grow by while MySQL hangs, in MiB.
const rssMost = 32

// shadow: what following into MySQL costs a buyer whom Redis answers, in an open
// loop over HTTP against one `serve` process; then the same with MySQL hung.
func (r *run) shadow() (err error) {
	f, err := r.startFleet(1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	s := &shadowRun{f: f, buyers: newBuyers(f.urls, r.cfg.Rate, 0.2), slot: r.slot(4*r.cfg.Rounds, 36*time.Second)}
	r.report.Clients = openCallers
	if err := s.moderate(); err != nil {
		return err
	}
	rate := s.buyers.rate
	r.report.RatePerS = value(rate)
	if err := s.rounds(); err != nil {
		return err
	}
	r.note("open loop of %.0f buyers a second over HTTP against one process: a reserve, and %s later a release, or of one in five a claim; latency is from the intended start, and the ratios are of reserves and releases", rate, thinkTime)
	if !r.report.Machine.OwnServer {
		r.note("MySQL is not this run's own server: it was not hung")
		return nil
	}
	return s.hangs()
}

type shadowRun struct {
	f      *fleet
	buyers *buyers
	slot   time.Duration
	shadow []*tally // of stage shadow with MySQL well
}

// moderate sets the buyers' rate: a share of what the process can serve over HTTP
// in the slower of the two stages, or what the user says. What a store can do for
// callers in one process, who share transactions, is many times that: a tenth of it
// keeps this machine's cores half busy, and then a queue is measured.
func (s *shadowRun) moderate() error {
	r := s.f.run
	if s.buyers.rate > 0 {
		return nil
	}
	for _, stage := range []holdover.Stage{holdover.StageRedis, holdover.StageShadow} {
		if err := s.f.goTo(stage); err != nil {
			return err
		}
		most := s.buyers.saturate(r.ctx, 64, min(s.slot, 2*time.Second))
		r.say("  saturation of %s: %.0f buyers/s over HTTP with 64 callers", stage, most)
		r.note("saturation of stage %s: %.0f buyers/s over HTTP with 64 callers in a closed loop, two calls each", stage, most)
		if rate := max(moderate*most, 1); s.buyers.rate == 0 || rate < s.buyers.rate {
			s.buyers.rate = rate
		}
	}
	return r.ctx.Err()
}

// play is one turn of a stage.
func (s *shadowRun) play(stage holdover.Stage) (*tally, error) {
	if err := s.f.goTo(stage); err != nil {
		return nil, err
	}
	if err := s.f.run.servers.rest(s.f.run.ctx, time.Second); err != nil {
		return nil, err
	}
	t := s.buyers.run(s.f.run.ctx, warmUp(s.slot), s.slot, false)
	h := t.of(opReserve, opRelease)
	s.f.run.say("  %-8s p50 %6.0f µs  p99 %6.0f µs  %s", stage, h.quantileUs(0.5), h.quantileUs(0.99), t.said())
	return t, s.f.run.ctx.Err()
}

// rounds plays redis and shadow, and redis and redis, in one order and then in
// the other.
func (s *shadowRun) rounds() error {
	r := s.f.run
	var ab50, ab99, aa50, aa99 []float64
	var redis []*tally
	for round := range r.cfg.Rounds {
		order := []holdover.Stage{holdover.StageRedis, holdover.StageShadow, holdover.StageRedis, holdover.StageRedis}
		base, other, first, second := 0, 1, 2, 3
		if round%2 == 1 {
			order[0], order[1] = order[1], order[0]
			base, other, first, second = 1, 0, 3, 2
		}
		s.buyers.turn++ // what is compared is met by the same arrivals
		turns := make([]*tally, len(order))
		for i, stage := range order {
			var err error
			if turns[i], err = s.play(stage); err != nil {
				return err
			}
		}
		by := func(q float64, a, b int) float64 {
			return turns[a].of(opReserve, opRelease).quantileUs(q) / max(turns[b].of(opReserve, opRelease).quantileUs(q), 1e-9)
		}
		ab50, ab99 = append(ab50, by(0.5, other, base)), append(ab99, by(0.99, other, base))
		aa50, aa99 = append(aa50, by(0.5, second, first)), append(aa99, by(0.99, second, first))
		s.shadow = append(s.shadow, turns[other])
		redis = append(redis, turns[base], turns[first], turns[second])
	}
	for _, t := range append(append([]*tally{}, redis...), s.shadow...) {
		if n := t.errors(); n > 0 {
			r.broken("%d calls were told an error with both stores well: %s", n, t.said())
		}
	}
	s.record(wayStageRedis, "", redis)
	s.record(wayStageShadow, "", s.shadow)
	r.report.P50Ratio, r.report.P99Ratio = value(median(ab50)), value(median(ab99))
	r.report.AAP50Ratio, r.report.AAP99Ratio = value(median(aa50)), value(median(aa99))
	r.note("by round: shadow by redis p50 %.2f, p99 %.2f; redis by redis p50 %.2f, p99 %.2f", ab50, ab99, aa50, aa99)
	r.target("p99_ratio", *r.report.P99Ratio, "<=", max(1.05, *r.report.AAP99Ratio), 0)
	r.target("p50_ratio", *r.report.P50Ratio, "<=", 1.05, 0)
	return nil
}

// record writes a row for each kind of call.
func (s *shadowRun) record(name, inCase string, turns []*tally) {
	for _, op := range []string{opReserve, opRelease, opClaim} {
		c := Competitor{Name: name, Case: strings.TrimSpace(inCase + " " + op), Honest: true}
		var p50, p99, p999, rates []float64
		for _, t := range turns {
			h := t.of(op)
			if h.n == 0 {
				continue
			}
			p50, p99, p999 = append(p50, h.quantileUs(0.5)), append(p99, h.quantileUs(0.99)), append(p999, h.quantileUs(0.999))
			rates = append(rates, float64(h.n)/s.slot.Seconds())
			c.Calls += h.n
			c.Granted += t.calls[op].answers["201"] + t.calls[op].answers["200"]
			c.Failed = c.Calls - c.Granted
		}
		c.P50us, c.P99us, c.P999us, c.OpsPerS, c.Attempts = median(p50), median(p99), median(p999), median(rates), c.Calls
		s.f.run.report.Competitors = append(s.f.run.report.Competitors, c)
	}
}

// hung is a stage's turn with MySQL hung.
type hung struct {
	t      *tally
	growth float64 // of the serving process, in MiB
	rss    Series
	claims Claims
}

// hangs hangs MySQL in redis and in shadow, each for the same time.
func (s *shadowRun) hangs() error {
	r := s.f.run
	redis, err := s.hang(holdover.StageRedis)
	if err != nil {
		return err
	}
	shadow, err := s.hang(holdover.StageShadow)
	if err != nil {
		return err
	}
	s.slot = r.cfg.Hang // what the rows' rates are counted by
	s.record(wayStageRedis, "mysql hung", []*tally{redis.t})
	s.record(wayStageShadow, "mysql hung", []*tally{shadow.t})
	of := func(t *tally, q float64) float64 { return t.of(opReserve, opRelease).quantileUs(q) }
	open := make([]float64, len(s.shadow))
	for i, t := range s.shadow {
		open[i] = of(t, 0.99)
	}
	r.report.HangS = value(r.cfg.Hang.Seconds())
	r.report.HungP50Ratio, r.report.HungP99Ratio = value(of(shadow.t, 0.5)/of(redis.t, 0.5)), value(of(shadow.t, 0.99)/of(redis.t, 0.99))
	r.report.HungOpenP99 = value(of(shadow.t, 0.99) / median(open))
	r.report.RSSGrowth, r.report.RSSGrowthBase = value(shadow.growth), value(redis.growth)
	r.report.HungClaims = []Claims{redis.claims, shadow.claims}
	r.report.Curves = append(r.report.Curves, Curve{Name: "memory in use of the serving process while MySQL hangs", X: "s", Y: "MiB", Series: []Series{redis.rss, shadow.rss}})
	for _, h := range []hung{redis, shadow} {
		if n := h.claims.Answers["202"] - h.claims.Finally["202 claimed"]; n > 0 {
			r.broken("stage %s: %d claims were answered pending while MySQL hung, and are not claimed now that it is back: %s", h.claims.Stage, n, counts(h.claims.Finally))
		}
	}
	var unlike int64
	for answer, n := range shadow.claims.Answers {
		if answer != "202" && redis.claims.Answers[answer] == 0 {
			unlike += n
		}
	}
	if shadow.growth > rssMost {
		r.broken("the serving process grew by %.1f MiB while MySQL hung for %s", shadow.growth, r.cfg.Hang)
	}
	r.note("MySQL hung (SIGSTOP) for %s in each stage; reserves and releases then: redis %s, shadow %s", r.cfg.Hang, without(redis.t, opClaim).said(), without(shadow.t, opClaim).said())
	r.target("hung_p99_ratio", *r.report.HungP99Ratio, "<=", max(1.05, *r.report.AAP99Ratio), 0)
	r.target("rss_growth_mib", shadow.growth, "<=", rssMost, 0)
	r.target("hung_claims_unlike_redis", float64(unlike), "<=", 0, 0)
	return nil
}

// without is the tally less one kind of call.
func without(t *tally, op string) *tally {
	rest := &tally{calls: map[string]*callTally{}}
	for name, c := range t.calls {
		if name != op {
			rest.calls[name] = c
		}
	}
	return rest
}

// hang lets buyers come, stops mysqld under them for a while, and looks what
// became of the claims when it is back.
func (s *shadowRun) hang(stage holdover.Stage) (h hung, err error) {
	r := s.f.run
	if err := s.f.goTo(stage); err != nil {
		return h, err
	}
	stack := r.servers.stack
	warm := 2 * time.Second
	h.rss.Name = stage.String()
	var stopErr error
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		if !waits(over, warm-20*time.Millisecond) {
			return
		}
		before := s.f.rssMiB()
		stopErr = stack.SignalMySQL(syscall.SIGSTOP)
		for began := time.Now(); waits(over, 250*time.Millisecond); {
			now := s.f.rssMiB()
			h.growth = max(h.growth, now-before)
			h.rss.Points = append(h.rss.Points, Point{X: float64(time.Since(began).Milliseconds()/250) / 4, Y: now})
		}
	})
	h.t = s.buyers.run(r.ctx, warm, r.cfg.Hang, true)
	close(over)
	watching.Wait()
	if err := errors.Join(stopErr, stack.SignalMySQL(syscall.SIGCONT), r.ctx.Err()); err != nil {
		return h, err
	}
	latencies := h.t.of(opReserve, opRelease)
	r.say("  %-8s mysql hung for %s: p50 %6.0f µs  p99 %6.0f µs, memory +%.1f MiB; %s", stage, r.cfg.Hang, latencies.quantileUs(0.5), latencies.quantileUs(0.99), h.growth, h.t.said())
	h.claims = Claims{Stage: stage.String(), Answers: map[string]int64{}}
	if c := h.t.calls[opClaim]; c != nil {
		h.claims.Answers = c.answers
	}
	h.claims.Finally, err = s.finally(h.t.lasting)
	return h, err
}

// waits for d; false when over is closed first.
func waits(over <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-over:
		return false
	case <-timer.C:
		return true
	}
}

// finally looks the claimed holds up until none of them is under way any more.
func (s *shadowRun) finally(claims []claimTold) (map[string]int64, error) {
	r := s.f.run
	states := map[string]int64{}
	for deadline := time.Now().Add(awaitLimit); len(claims) > 0; {
		late := time.Now().After(deadline)
		var open []claimTold
		for _, c := range claims {
			answer, state := s.buyers.call(http.MethodGet, c.url+"/"+c.token.String(), "")
			if (state == "claiming" || state == "" || c.answer == "202" && state != "claimed") && !late {
				open = append(open, c)
				continue
			}
			states[fmt.Sprintf("%s %s", c.answer, cmp.Or(state, answer))]++
		}
		claims = open
		if len(claims) == 0 {
			break
		}
		if err := pause(r.ctx, 200*time.Millisecond); err != nil {
			return states, err
		}
	}
	return states, nil
}
