package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteText writes the report as tables and small plots.
func (r Report) WriteText(w io.Writer) error {
	out := &printer{to: w}
	r.header(out)
	if len(r.Reports) > 0 {
		for _, part := range r.Reports {
			out.printf("\n== %s ==\n", part.Scenario)
			part.body(out)
		}
		out.printf("\n%s\n", verdict(r))
		return out.err
	}
	out.printf("\n")
	r.body(out)
	return out.err
}

// printer keeps the first error.
type printer struct {
	to  io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.to, format, args...)
	}
}

func (r Report) header(out *printer) {
	m := r.Machine
	out.printf("%s: MySQL %s (sync_binlog=%s, innodb_flush_log_at_trx_commit=%s), Redis %s (appendonly %s, appendfsync %s)\n",
		r.Scenario, r.MySQLVersion, r.Durability.SyncBinlog, r.Durability.FlushLog, r.RedisVersion, r.Durability.AppendOnly, r.Durability.AppendFsync)
	where := "the servers' machine is not this one"
	if m.OwnServer {
		where = "servers and callers share it"
	}
	out.printf("%s, %d cores, %d MB, %s, %s; %s; round trip to MySQL %.0f µs, to Redis %.0f µs; %.0f s\n",
		m.CPU, m.Cores, m.MemoryMB, m.Kernel, m.Go, where, r.RTTus, r.RedisRTTus, r.Seconds)
}

func (r Report) body(out *printer) {
	if len(r.Competitors) > 0 {
		r.table(out)
	}
	for _, c := range r.Curves {
		out.printf("\n")
		c.writeText(out)
	}
	out.printf("\n")
	r.sentences(out)
}

func (r Report) table(out *printer) {
	out.printf("%d callers, %d rounds in turn, %.2f s each; medians\n\n", r.Clients, r.Rounds, r.SlotS)
	table := tabwriter.NewWriter(out.to, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := &printer{to: table}
	row.printf("way\tops/s\tp50 ms\tp99 ms\tp99.9 ms\tconn hold s\tconns\tattempts\tconflicts\tdeadlocks\tlock waits\tfalse sold out\toversold\t\n")
	for _, c := range r.Competitors {
		name := strings.TrimSpace(c.Name + " " + c.Case)
		if !c.Honest {
			name += " (wrong on purpose)"
		}
		row.printf("%s\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, c.OpsPerS, c.P50us/1000, c.P99us/1000, c.P999us/1000,
			c.ConnHoldS, c.Connections, c.Attempts, c.Conflicts, c.Deadlocks, c.LockWaits, c.FalseSoldOut, c.Oversold)
	}
	if row.err == nil {
		row.err = table.Flush()
	}
	if out.err == nil {
		out.err = row.err
	}
}

func (r Report) sentences(out *printer) {
	for _, ratio := range r.ratios() {
		out.printf("%-26s %s\n", ratio.name, ratio.Value())
	}
	for _, e := range r.Exponents {
		out.printf("%s over %s: exponent %.2f (R² %.2f)\n", e.Of, e.Over, e.Exponent, e.R2)
	}
	for _, c := range r.HungClaims {
		out.printf("claims while MySQL hung, stage %s: %s; in the end: %s\n", c.Stage, counts(c.Answers), counts(c.Finally))
	}
	for _, s := range r.Shown {
		mark := "shown"
		if !s.OK {
			mark = "NOT SHOWN"
		}
		out.printf("%s: %s: %s\n", mark, s.Fault, s.Observed)
	}
	if r.ConflictBand != "" {
		out.printf("conflict rate %.1f %%: %s\n", 100*deref(r.ConflictRate), r.ConflictBand)
	}
	if r.SingleRow != nil {
		out.printf("%s\n", r.SingleRow.InWords)
	}
	for _, l := range r.Loses {
		out.printf("a simpler way wins: %s\n", l)
	}
	for _, n := range r.Notes {
		out.printf("note: %s\n", n)
	}
	for _, t := range r.Targets {
		out.printf("%s\n", t)
	}
	out.printf("%s\n", verdict(r))
}

// counts lists counts by name.
func counts(of map[string]int64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s: %d", name, of[name]))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

func deref(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

// String says how the figure stands to its target.
func (t Target) String() string {
	s := fmt.Sprintf("target %s %s %.4g: %.4g", t.Name, t.Rule, t.Target, t.Value)
	switch {
	case !t.OK:
		s += ", short of target"
	case t.Aim != 0 && (t.Rule == ">=" && t.Value < t.Aim || t.Rule == "<=" && t.Value > t.Aim):
		s += fmt.Sprintf(", reached; the aim is %.4g", t.Aim)
	default:
		s += ", reached"
	}
	return s
}

func verdict(r Report) string {
	if r.OK {
		return "OK: no invariant is broken"
	}
	return "BROKEN: " + strings.Join(r.Broken, "; ")
}

// named is a top-level figure.
type named struct {
	name  string
	value float64
	whole bool // a count
}

// Name of the figure, as in JSON.
func (n named) Name() string { return n.name }

// Value is the figure in few digits.
func (n named) Value() string {
	if n.whole {
		return fmt.Sprintf("%.0f", n.value)
	}
	return fmt.Sprintf("%.3g", n.value)
}

// ratios lists what was measured of the top-level figures.
func (r Report) ratios() (all []named) {
	for _, f := range []struct {
		name  string
		value *float64
	}{
		{"vs_usual", r.VsUsual}, {"vs_uncapped", r.VsUncapped}, {"vs_conditional", r.VsConditional}, {"vs_batched_row", r.VsBatchedRow},
		{"vs_redis", r.VsRedis}, {"vs_redis_bare", r.VsRedisBare}, {"vs_legacy", r.VsLegacy}, {"p99_vs_legacy", r.P99VsLegacy},
		{"p50_vs_floor", r.P50VsFloor}, {"purge_blocked_ratio", r.PurgeBlocked}, {"purge_blocked_end_ratio", r.PurgeEnd},
		{"vs_per_line", r.VsPerLine}, {"vs_union", r.VsUnion},
		{"kill_p50_ms", r.KillP50}, {"kill_p99_ms", r.KillP99}, {"kill_max_ms", r.KillMax}, {"kill_call_p50_ms", r.KillCallP50}, {"kill_call_p99_ms", r.KillCallP99},
		{"kill_idle_p50_ms", r.KillIdleP50}, {"kill_idle_p99_ms", r.KillIdleP99},
		{"cpu_idle_buyers", r.IdleBuyers}, {"cpu_idle_kills", r.IdleKills},
		{"p50_ratio", r.P50Ratio}, {"p99_ratio", r.P99Ratio}, {"aa_p50_ratio", r.AAP50Ratio}, {"aa_p99_ratio", r.AAP99Ratio},
		{"hang_s", r.HangS}, {"hung_p50_ratio", r.HungP50Ratio}, {"hung_p99_ratio", r.HungP99Ratio}, {"hung_open_p99_ratio", r.HungOpenP99},
		{"rss_growth_mib", r.RSSGrowth}, {"rss_growth_redis_mib", r.RSSGrowthBase},
		{"mysql_p50_ratio", r.MySQLP50}, {"mysql_p99_ratio", r.MySQLP99},
		{"mysql_p99_ratio_low", r.MySQLP99Low}, {"mysql_p99_ratio_high", r.MySQLP99High}, {"rate_per_s", r.RatePerS},
	} {
		if f.value != nil {
			all = append(all, named{f.name, *f.value, false})
		}
	}
	for _, f := range []struct {
		name  string
		value *int64
	}{
		{"connections", r.Connections}, {"granted", r.Granted}, {"false_sold_out", r.FalseSoldOut}, {"oversold", r.Oversold}, {"deadlocks", r.Deadlocks},
		{"buyer_errors", r.BuyerErrors}, {"buyer_errors_at_kills", r.BuyerErrorsAtKills}, {"buyer_calls", r.BuyerCalls}, {"instances", r.Instances}, {"carried", r.Carried},
	} {
		if f.value != nil {
			all = append(all, named{f.name, float64(*f.value), true})
		}
	}
	return all
}
