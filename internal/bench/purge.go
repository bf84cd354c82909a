package bench

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// purgeSlices is how many points a phase of purge has in its plot.
const purgeSlices = 10

// purge: one hot item, while another session keeps a snapshot open for the
// whole of a phase, so that purge removes nothing that was deleted since. The
// phases are open, blocked, open: each on fresh tables, so that an open phase
// does not pay for what the blocked one left. The blocked phase is the long
// one: it gets worse with time, if it does.
func (r *run) purge() error {
	clients := r.clients(64)
	whole := 44 * time.Second
	if r.cfg.Duration > 0 {
		whole = r.cfg.Duration
	}
	open, blocked := whole*3/20, whole*14/20
	r.report.SlotS, r.report.Rounds = blocked.Seconds(), 1
	s := &standing{contender: contender{name: wayHoldover, open: openHoldover, conns: r.cfg.Connections}}
	s.match = match{stock: ample(1), cap: r.cap(), load: load{clients: clients, pick: oneUnit(1)}}
	r.report.Stock = s.match.stock[0]
	curve := Curve{Name: "reserves of one hot item", X: "tenth of the phase", Y: "reserves/s"}
	var rates [3]float64
	var last float64 // of the blocked phase
	for i, phase := range []struct {
		name    string
		length  time.Duration
		blocked bool
	}{{"open", open, false}, {"blocked", blocked, true}, {"open again", open, false}} {
		one := *s
		one.match.name, one.samples = phase.name, nil
		line := Series{Name: phase.name}
		whole, err := r.session(one.open, one.setting(), func(ses *session) error {
			return r.purgePhase(ses, &one, phase.length, phase.blocked, &line)
		})
		if err != nil {
			return fmt.Errorf("phase %s: %w", phase.name, err)
		}
		one.samples[0].takeCounts(whole)
		rates[i] = one.ops()
		if phase.blocked {
			last = mean(line.Points[len(line.Points)*4/5:])
		}
		r.say("  %-22s %-22s %9.0f/s", one.name, phase.name, one.ops())
		r.record(&one)
		curve.Series = append(curve.Series, line)
	}
	unblocked := (rates[0] + rates[2]) / 2
	r.report.PurgeBlocked, r.report.PurgeEnd = value(rates[1]/unblocked), value(last/unblocked)
	r.report.Curves = append(r.report.Curves, curve)
	r.note("purge was blocked for %.0f s; the ratio is the mean rate of that phase by the mean of the two open ones of %.1f s each", blocked.Seconds(), open.Seconds())
	r.target("purge_blocked_ratio", *r.report.PurgeBlocked, ">=", 0.85, 0)
	return nil
}

func mean(points []Point) float64 {
	sum := 0.0
	for _, p := range points {
		sum += p.Y
	}
	return sum / float64(max(len(points), 1))
}

// purgePhase drives one phase in slices, and notes the history list at its end.
func (r *run) purgePhase(ses *session, s *standing, length time.Duration, blocked bool, line *Series) error {
	warm := s.match.load
	warm.measure = warmUp(length)
	if _, err := ses.drive(warm); err != nil {
		return err
	}
	if blocked {
		end, err := r.servers.snapshot(r.ctx)
		if err != nil {
			return err
		}
		defer end()
	}
	whole := &sample{}
	for i := range purgeSlices {
		l := s.match.load
		l.measure = length / purgeSlices
		one, err := ses.drive(l)
		if err != nil {
			return err
		}
		line.Points = append(line.Points, Point{X: float64(i + 1), Y: one.opsPerS()})
		whole.seconds += one.seconds
		whole.ops += one.ops
		whole.holdS += one.holdS
		whole.latency.merge(&one.latency)
	}
	s.samples = append(s.samples, whole)
	n, err := r.servers.history(r.ctx)
	r.report.HistoryList = append(r.report.HistoryList, n)
	return err
}

// snapshot opens a consistent snapshot in a session of its own, as a backup
// does; purge keeps everything that it could still see.
func (s *servers) snapshot(ctx context.Context) (end func(), err error) {
	conn, err := s.admin.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a snapshot: %w", err)
	}
	run := func(statement string) error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), statement)
		return err
	}
	for _, statement := range []string{"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"} {
		if err := run(statement); err != nil {
			conn.Close()
			return nil, fmt.Errorf("open a snapshot: %w", err)
		}
	}
	return func() {
		if run(rollbackTx) != nil {
			_ = conn.Raw(func(any) error { return sql.ErrConnDone }) // whatever it is, it must not go back into the pool
		}
		conn.Close()
	}, nil
}
