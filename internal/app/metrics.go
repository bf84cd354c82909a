package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdover"
	"holdover/dualwrite"
)

// metrics is the scrape: counts are read from the parts when asked, so that
// nothing on the data path touches a metrics library.
type metrics struct {
	app *App

	stage, epoch, latched, desired, redisAway          *prometheus.Desc
	answers, stale, journaled, drained, reconciled     *prometheus.Desc
	lanes, laneShed, laneFailed, unmirrored, debts     *prometheus.Desc
	compared, eligible, kinds, eventsDropped, verified *prometheus.Desc
	hottest, hottestPeak, holds, holdSeconds           *prometheus.Desc
	conserveBad, conserveRows, conserveAt              *prometheus.Desc
	verifiedAge, verifiedDiffs                         *prometheus.Desc
	drillAge, drillTook                                *prometheus.Desc
	ready, readyReason, readyAt                        *prometheus.Desc
	records, recordsWaiting, recordsSince              *prometheus.Desc
}

func newMetrics(a *App) *metrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("holdover_"+name, help, append([]string{"pod"}, labels...), nil)
	}
	return &metrics{
		app:            a,
		stage:          desc("stage", "The agreed stage this instance works in: 1 on the stage's name.", "stage"),
		epoch:          desc("epoch", "The agreed epoch this instance works with; 0 before the first."),
		latched:        desc("latched", "1 while the kill switch is latched."),
		desired:        desc("desired_stage", "The stage the flag wants: 1 on its name.", "stage"),
		redisAway:      desc("redis_away", "1 while Redis gives no answer and MySQL journals at once."),
		answers:        desc("answers_total", "What buyers were told.", "answer"),
		stale:          desc("stale_epochs_total", "Epochs that a store refused, and the call followed."),
		journaled:      desc("journaled_total", "Grants that Redis did not take in time and MySQL journaled."),
		drained:        desc("drained_total", "Journal rows carried into Redis."),
		reconciled:     desc("reconciled_total", "Unmirrored tokens carried into MySQL."),
		lanes:          desc("lane_jobs", "Mirror work waiting or running."),
		laneShed:       desc("lane_shed_total", "Mirror work dropped at the bound; its tokens are unmirrored."),
		laneFailed:     desc("lane_failed_total", "Mirror work that failed."),
		unmirrored:     desc("unmirrored_tokens", "Tokens in memory that the other store may not have."),
		debts:          desc("debts", "Facts that the other store could not take."),
		eligible:       desc("compare_eligible_total", "Dual operations."),
		compared:       desc("compare_compared_total", "Dual operations with an answer from both stores."),
		kinds:          desc("compare_kinds_total", "Observations by kind and direction.", "kind", "direction"),
		eventsDropped:  desc("compare_events_dropped_total", "Events that found the queue full; their counts stand."),
		verified:       desc("verification_clean", "1 when the pod's last verification was clean, whoever made it, 0 when not; absent before the first."),
		verifiedAge:    desc("verification_age_seconds", "How long ago it ended."),
		verifiedDiffs:  desc("verification_differences", "What it found to differ, and what never stood still."),
		drillAge:       desc("drill_age_seconds", "How long ago the pod's last drill that passed was, whoever made it; absent before the first."),
		drillTook:      desc("drill_milliseconds", "From the kill to its last acknowledgement in that drill."),
		conserveBad:    desc("conservation_violating_rows", "Locations that break a rule of conservation, by this instance's last check; absent before the first."),
		conserveRows:   desc("conservation_rows", "Locations that this instance's last check looked at."),
		conserveAt:     desc("conservation_timestamp_seconds", "When this instance's last check ended."),
		hottest:        desc("hottest_item_rate", "Reserves of the item asked for most, in the last full second; this instance's."),
		hottestPeak:    desc("hottest_item_peak_rate", "The highest hottest_item_rate since this instance began."),
		ready:          desc("ready", "1 when the pod may move in the direction, forward or back, by this instance's last look; absent before the first.", "direction"),
		readyReason:    desc("ready_reason", "1 for each code of what speaks against it.", "direction", "code"),
		readyAt:        desc("ready_timestamp_seconds", "When this instance's last look at readiness ended."),
		records:        desc("compare_records_total", "Records of what was compared: shipped to MySQL, there already, put aside because MySQL refuses them, or lost.", "outcome"),
		recordsWaiting: desc("compare_records_waiting", "Records that wait on this instance's disk for MySQL."),
		recordsSince:   desc("compare_records_waiting_since_timestamp_seconds", "Since when the oldest of them waits; absent when none does."),
		holds:          desc("mysql_connection_holds_total", "How often a MySQL connection was taken and given back, by what for.", "tag"),
		holdSeconds:    desc("mysql_connection_hold_seconds_total", "How long MySQL connections were taken, from taking to giving back.", "tag"),
	}
}

// Describe sends nothing: the collector is unchecked, because kinds come and go.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads every pod.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, p := range m.app.Pods {
		count := func(d *prometheus.Desc, v float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, append([]string{p.Name}, labels...)...)
		}
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{p.Name}, labels...)...)
		}
		fence, _ := p.Facade.Agreed()
		desired := m.app.desired(p.Name)
		for _, stage := range holdover.Stages() {
			gauge(m.stage, flag(stage == fence.Stage), stage.String())
			gauge(m.desired, flag(desired.Known && stage == desired.Stage), stage.String())
		}
		gauge(m.epoch, float64(fence.Epoch))
		gauge(m.latched, flag(fence.Latched))
		s := p.Facade.Stats()
		for answer, n := range map[string]int64{
			"granted": s.Granted, "refused": s.Refused, "claimed": s.Claimed, "released": s.Released,
			"expired": s.Expired, "pending": s.Pending, "no-answer": s.NoAnswer,
		} {
			count(m.answers, float64(n), answer)
		}
		gauge(m.redisAway, flag(s.RedisAway))
		count(m.stale, float64(s.Stale))
		count(m.journaled, float64(s.Journaled))
		count(m.drained, float64(s.Drained))
		count(m.reconciled, float64(s.Reconciled))
		gauge(m.lanes, float64(s.LaneJobs))
		count(m.laneShed, float64(s.LaneShed))
		count(m.laneFailed, float64(s.LaneFailed))
		gauge(m.unmirrored, float64(s.Unmirrored))
		gauge(m.debts, float64(s.Debts))
		counts := p.Comparator.Counts()
		count(m.eligible, float64(counts.Eligible))
		count(m.compared, float64(counts.Compared))
		count(m.eventsDropped, float64(counts.EventsDropped))
		for _, t := range counts.Kinds {
			count(m.kinds, float64(t.Count), t.Kind.String(), t.Direction.String())
		}
		if a, ok := p.Facade.Readiness(); ok && !a.Last.At.IsZero() {
			gauge(m.verified, flag(a.Last.Clean))
			gauge(m.verifiedAge, max(0, time.Since(a.Last.At).Seconds()))
			gauge(m.verifiedDiffs, float64(a.Last.Differences+a.Last.Unsettled))
		}
		if a, ok := p.Facade.Readiness(); ok && !a.PassedDrill.At.IsZero() {
			gauge(m.drillAge, max(0, time.Since(a.PassedDrill.At).Seconds()))
			gauge(m.drillTook, float64(a.PassedDrill.KillMS))
		}
		if c := p.LastConservation(); c != nil {
			gauge(m.conserveBad, float64(c.Violating))
			gauge(m.conserveRows, float64(c.Rows))
			gauge(m.conserveAt, float64(c.At.UnixMilli())/1000)
		}
		if a, ok := p.Facade.Readiness(); ok {
			for direction, r := range map[string]dualwrite.Readiness{"forward": a.Forward, "back": a.Back} {
				gauge(m.ready, flag(r.OK()), direction)
				for _, code := range r.Codes() {
					gauge(m.readyReason, 1, direction, code)
				}
			}
			gauge(m.readyAt, float64(a.At.UnixMilli())/1000)
		}
		if p.shipper != nil {
			n := p.shipper.Counts()
			for outcome, v := range map[string]uint64{"shipped": n.Sent, "again": n.Again, "quarantined": n.Quarantined, "lost": n.Lost} {
				count(m.records, float64(v), outcome)
			}
			files, oldest := p.shipper.spool.Backlog()
			gauge(m.recordsWaiting, float64(files))
			if !oldest.IsZero() {
				gauge(m.recordsSince, float64(oldest.UnixMilli())/1000)
			}
		}
		now, peak := p.hottest.rates()
		gauge(m.hottest, float64(now))
		gauge(m.hottestPeak, float64(peak))
		for _, t := range p.Holds.Snapshot() {
			count(m.holds, float64(t.Count), t.Tag)
			count(m.holdSeconds, t.Held.Seconds(), t.Tag)
		}
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
