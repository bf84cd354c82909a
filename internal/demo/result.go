package demo

import (
	"context"
	"fmt"
	"io"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
	"holdover/internal/app"
	"holdover/internal/workload"
)

// Result is what came of it. OK is true only when nothing was oversold, lost,
// refused without need, left unexplained, or otherwise wrong by the audit.
type Result struct {
	OK           bool     `json:"ok"`
	Pods         []string `json:"pods"`
	Reservations int64    `json:"reservations"`
	Claims       int64    `json:"claims"`
	Releases     int64    `json:"releases"`
	Expired      int64    `json:"expired"`
	Refused      int64    `json:"refused"`
	Oversold     int64    `json:"oversold"`
	LostHolds    int64    `json:"lost_holds"`
	FalseSoldOut int64    `json:"false_sold_out"`
	Unexplained  int64    `json:"unexplained"`
	Coverage     float64  `json:"coverage"`
	Flips        int      `json:"flips"`
	KillMS       float64  `json:"kill_ms"`
	BuyerErrors  int64    `json:"buyer_errors_during_flips"`
	RedisVersion string   `json:"redis_version"`
	MySQLVersion string   `json:"mysql_version"`
	Seconds      float64  `json:"seconds"`

	OtherFaults int64                       `json:"other_faults"` // wrong ends, double claims, ledger or counters off
	Audits      map[string]workload.Verdict `json:"audits"`       // by pod
	Verdict     report.Verdict              `json:"verdict"`      // of the divergence report, from what MySQL keeps of it
	Digest      string                      `json:"digest"`       // of its data
	Report      report.Report               `json:"-"`
	Folder      string                      `json:"folder,omitempty"` // with Keep
}

// judge counts stock, holds and ledger in SQL and Redis, and takes the
// comparator's report.
func (s *story) judge(ctx context.Context) (Result, error) {
	v := s.stack.Versions()
	r := Result{Pods: PodNames(), Flips: s.flips, KillMS: s.killMS, BuyerErrors: s.errors, RedisVersion: v.Redis, MySQLVersion: v.MySQL, Audits: map[string]workload.Verdict{}}
	if s.cfg.Keep {
		r.Folder = s.stack.Dir()
	}
	s.say("traffic is over: an auditor counts in SQL and Redis what buyers were told")
	audited := true
	for _, p := range podStories {
		verdict, err := s.audit(ctx, p)
		if err != nil {
			return r, fmt.Errorf("audit of %s: %w", p.name, err)
		}
		r.Audits[p.name] = verdict
		counts := s.accounts[p.name].Counts()
		r.Reservations += counts.Granted
		r.Claims += counts.Claimed
		r.Releases += counts.Released
		r.Refused += counts.Refused
		r.Expired += verdict.Expired
		r.Oversold += verdict.Oversold
		r.LostHolds += verdict.LostHolds
		r.FalseSoldOut += verdict.FalseSoldOut
		r.OtherFaults += verdict.DoubleClaims + verdict.WrongEnds + verdict.LedgerOff + verdict.CountersOff + verdict.UnexpectedTold + verdict.Unjudged
		audited = audited && verdict.OK
	}
	if err := s.closeApps(ctx); err != nil { // their last counts are in MySQL then
		return r, err
	}
	c, stores := s.config("operator"), make([]*app.Stores, len(podStories))
	for i, p := range podStories {
		stores[i] = s.stores[p.name]
	}
	var err error
	if r.Report, err = app.Report(ctx, c, stores, app.ReportOptions{Since: s.began, Until: time.Now()}); err != nil {
		return r, err
	}
	r.Verdict, r.Digest = r.Report.Verdict, r.Report.Digest
	r.Unexplained = int64(r.Report.Divergences.Unexplained)
	for _, k := range r.Report.Divergences.Kinds {
		if k.Kind == compare.KindForeignWrite.String() {
			r.Unexplained += int64(k.Count)
		}
	}
	r.Coverage = r.Report.Coverage.Share
	r.OK = audited && r.Oversold == 0 && r.LostHolds == 0 && r.FalseSoldOut == 0 && r.Unexplained == 0 && r.OtherFaults == 0
	r.Seconds = time.Since(s.began).Seconds()
	return r, nil
}

func (s *story) audit(ctx context.Context, p podStory) (workload.Verdict, error) {
	db, redis, closeBoth, err := s.auditor(p.name)
	if err != nil {
		return workload.Verdict{}, err
	}
	defer closeBoth()
	return workload.Audit(ctx, s.accounts[p.name], db, redis, workload.AuditConfig{Stock: s.stock[p.name], Stage: holdover.StageMySQL})
}

// WriteText prints the result for people.
func (r Result) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "the report of all instances, from what MySQL keeps: %s\n", r.Verdict)
	for _, g := range r.Report.Gates {
		if !g.OK {
			fmt.Fprintf(w, "  %s: %s\n", g.Name, g.Reason)
		}
	}
	for _, k := range r.Report.Divergences.Kinds {
		fmt.Fprintf(w, "  %-16s %6d, %d units\n", k.Kind, k.Count, k.Units)
	}
	fmt.Fprintln(w)
	for _, pod := range r.Pods {
		for _, d := range r.Audits[pod].Details {
			fmt.Fprintf(w, "audit of %s: %s\n", pod, d)
		}
	}
	word := "NOT OK"
	if r.OK {
		word = "OK"
	}
	_, err := fmt.Fprintf(w, `%s after %.0f s on MySQL %s and Redis %s
  buyers were told   %d reservations, %d claims, %d releases, %d refusals; %d holds expired
  counted in stores  oversold %d, lost holds %d, refused while stock remained %d, other faults %d
  compared           coverage %.1f %%, unexplained %d; the report's verdict is %s
  the kill           %d flip under load, in effect everywhere after %.0f ms, %d buyers saw an error
`, word, r.Seconds, r.MySQLVersion, r.RedisVersion, r.Reservations, r.Claims, r.Releases, r.Refused, r.Expired,
		r.Oversold, r.LostHolds, r.FalseSoldOut, r.OtherFaults, 100*r.Coverage, r.Unexplained, r.Verdict, r.Flips, r.KillMS, r.BuyerErrors)
	return err
}
