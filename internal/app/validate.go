package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/go-sql-driver/mysql"

	"holdover/legacyredis"
	"holdover/mysqlpool"
)

// Bounds of the configuration. They catch a number without its unit ("5" is
// five nanoseconds) and a unit that was mistaken.
const (
	leastTime  = time.Millisecond
	longTiming = 10 * time.Minute
	maxTTL     = 7 * 24 * time.Hour // end records in Redis outlive it; see endRetention
	maxName    = 64                 // what a fence keeps of a name
)

// podName fits a URL path, a file name and a metric's label. It has no dot,
// so that the event files of one pod are never taken for another's.
var podName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// Validate checks everything across fields, after WithDefaults, and names all
// that is wrong at once. It asks no store.
func (c Config) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case c.Instance == "":
		wrong("instance: is missing: name this process")
	case len(c.Instance) > maxName || strings.ContainsAny(c.Instance, `/\*?[`) || strings.ContainsFunc(c.Instance, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }):
		wrong("instance: %q must have at most %d bytes, without spaces and none of / \\ * ? [", clip(c.Instance), maxName)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		wrong("listen: %q is not host:port, like 127.0.0.1:8377", clip(c.Listen))
	}
	if strings.TrimSpace(c.OperatorToken) != c.OperatorToken {
		wrong("operator_token: begins or ends with white space, which no client could send")
	}
	c.validateTimes(wrong)
	if c.Pool.Cap < 1 || c.Pool.Cap > 100_000 {
		wrong("pool.cap: %d must be from 1 to 100,000", c.Pool.Cap)
	}
	if c.Pool.BatchSize < 1 || c.Pool.BatchSize > 1000 || c.Pool.BatchTransactions < 1 || c.Pool.BatchQueue < 1 {
		wrong("pool: batch_size %d must be from 1 to 1,000, batch_transactions %d and batch_queue %d at least 1", c.Pool.BatchSize, c.Pool.BatchTransactions, c.Pool.BatchQueue)
	}
	if c.Compare.SpoolMax < 1 || c.Compare.SpoolMax > 1_000_000 {
		wrong("compare.spool_max: %d must be from 1 to 1,000,000", c.Compare.SpoolMax)
	}
	if c.Pool.RefillAhead < 0 {
		wrong("pool.refill_ahead: %s must not be negative", c.Pool.RefillAhead)
	}
	if c.MaxLife < c.MaxTTL {
		wrong("max_life: %s must not be shorter than max_ttl, %s", c.MaxLife, c.MaxTTL)
	}
	if c.Pool.Connections < 1 || c.Pool.Connections > 10_000 {
		wrong("pool.connections: %d must be from 1 to 10,000", c.Pool.Connections)
	}
	if len(c.Pods) == 0 {
		wrong("pods: none: configure at least one")
	}
	c.validatePods(wrong)
	return errors.Join(errs...)
}

func (c Config) validateTimes(wrong func(string, ...any)) {
	for _, d := range []struct {
		field string
		value time.Duration
		most  time.Duration
	}{
		{"timing.call", c.Timing.Call, longTiming}, {"timing.redis", c.Timing.Redis, longTiming}, {"timing.mirror", c.Timing.Mirror, longTiming},
		{"timing.give_back_window", c.Timing.GiveBackWindow, longTiming}, {"timing.recheck", c.Timing.Recheck, longTiming},
		{"timing.sweep", c.Timing.Sweep, longTiming}, {"timing.reaper_grace", c.Timing.ReaperGrace, longTiming},
		{"timing.heartbeat", c.Timing.Heartbeat, longTiming}, {"timing.drive", c.Timing.Drive, longTiming},
		{"timing.dwell", c.Timing.Dwell, 30 * 24 * time.Hour}, {"timing.conserve", c.Timing.Conserve, 7 * 24 * time.Hour},
		{"timing.readiness", c.Timing.Readiness, longTiming}, {"timing.verified_max_age", c.Timing.VerifiedMaxAge, 7 * 24 * time.Hour}, {"retention.ends", c.Retention.Ends, 10 * 365 * 24 * time.Hour}, {"flags.poll", c.Flags.Poll, longTiming},
		{"compare.rollup_every", c.Compare.RollupEvery, time.Hour}, {"compare.flush_every", c.Compare.FlushEvery, longTiming}, {"rollout.signoff_max_age", c.Rollout.SignoffMaxAge, 365 * 24 * time.Hour},
		{"pool.lock_wait", c.Pool.LockWait, longTiming}, {"max_ttl", c.MaxTTL, maxTTL}, {"default_ttl", c.DefaultTTL, maxTTL},
	} {
		switch {
		case d.value < 0:
			wrong("%s: %s is negative", d.field, d.value)
		case d.value < leastTime:
			wrong("%s: %s is too short: write the unit, like 5s", d.field, d.value)
		case d.value > d.most:
			wrong("%s: %s is longer than %s, the most that makes sense here", d.field, d.value, d.most)
		}
	}
	if every := c.Timing.VerifyEvery; every >= 0 && (every < leastTime || every > 7*24*time.Hour) {
		wrong("timing.verify_every: %s must be from %s to %s, or negative for never", every, leastTime, 7*24*time.Hour)
	}
	if every := c.Compare.SelftestEvery; every >= 0 && (every < leastTime || every > 24*time.Hour) {
		wrong("compare.selftest_every: %s must be from %s to 24h, or negative for never", every, leastTime)
	}
	if most, d := 365*24*time.Hour, c.Rollout.DrillMaxAge; d != 0 && (d < time.Minute || d > most) {
		wrong("rollout.drill_max_age: %s must be from 1m to %s, or 0 for none", d, most)
	}
	if c.Compare.FlushEvery > c.Compare.RollupEvery {
		wrong("compare.flush_every: %s must not be longer than compare.rollup_every (%s)", c.Compare.FlushEvery, c.Compare.RollupEvery)
	}
	if c.Retention.Comparisons >= 0 && c.Retention.Comparisons < 24*time.Hour {
		wrong("retention.comparisons: %s must be at least 24h, or negative for ever: reports are made from them", c.Retention.Comparisons)
	}
	if c.Timing.GiveBackWindow <= c.Timing.Call {
		wrong("timing.give_back_window: %s must be longer than timing.call (%s): a call may give back until its end", c.Timing.GiveBackWindow, c.Timing.Call)
	}
	if c.Timing.GiveBackWindow <= c.Timing.Redis {
		wrong("timing.give_back_window: %s must be longer than timing.redis (%s)", c.Timing.GiveBackWindow, c.Timing.Redis)
	}
	if c.Timing.Recheck <= c.Timing.GiveBackWindow {
		wrong("timing.recheck: %s must be longer than timing.give_back_window (%s)", c.Timing.Recheck, c.Timing.GiveBackWindow)
	}
	if least := c.MaxLife + 48*time.Hour; c.Retention.Ends >= leastTime && c.Retention.Ends < least {
		wrong("retention.ends: %s must be at least %s: 48h longer than max_life", c.Retention.Ends, least)
	}
	if c.Retention.Entries >= 0 && c.Retention.Entries < c.Retention.Ends {
		wrong("retention.entries: %s must not be shorter than retention.ends (%s); negative keeps them for ever", c.Retention.Entries, c.Retention.Ends)
	}
	if least := 100 * time.Millisecond; c.DefaultTTL >= leastTime && c.DefaultTTL < least {
		wrong("default_ttl: %s is shorter than %s, the shortest time to live", c.DefaultTTL, least)
	}
	if c.DefaultTTL > c.MaxTTL {
		wrong("default_ttl: %s is longer than max_ttl (%s)", c.DefaultTTL, c.MaxTTL)
	}
}

func (c Config) validatePods(wrong func(string, ...any)) {
	// What is wrong with the times is said once, not again by each store.
	c.Timing.Call, c.Timing.Redis = max(c.Timing.Call, leastTime), max(c.Timing.Redis, leastTime)
	c.Timing.GiveBackWindow = max(c.Timing.GiveBackWindow, c.Timing.Redis+1, c.Timing.Call+1)
	c.Retention = Retention{}
	names := map[string]bool{}
	redis, mysqls := map[string]string{}, map[string]string{} // who uses a store
	type owned struct {
		shopRange
		pod string
	}
	var owners []owned
	for i, p := range c.Pods {
		at := fmt.Sprintf("pods[%d]", i)
		switch {
		case p.Name == "":
			wrong("%s.name: is missing", at)
		case len(p.Name) > maxName || !podName.MatchString(p.Name):
			wrong("%s.name: %q must be at most %d letters, digits, - and _, beginning with a letter or digit", at, clip(p.Name), maxName)
		case names[p.Name]:
			wrong("%s.name: %s is configured twice", at, p.Name)
		}
		names[p.Name] = true
		at = fmt.Sprintf("pods[%d] (%s)", i, clip(p.Name))
		named := p
		if named.Name == "" {
			named.Name = "?" // its absence is said already
		}
		if err := c.redis(named).Validate(); err != nil {
			for _, one := range unjoin(err) {
				wrong("%s: %w", at, one)
			}
		}
		place := fmt.Sprintf("%s%s db %d prefix %q", p.Redis.Addr, p.Redis.MasterName, p.Redis.DB, p.Redis.Prefix)
		if other, taken := redis[place]; taken && p.Redis.Addr+p.Redis.MasterName != "" {
			wrong("%s.redis: is the Redis of pod %s too: every pod needs one of its own, or a db or prefix", at, other)
		}
		redis[place] = p.Name
		if err := checkMySQL(c.mysql(named)); err != nil {
			wrong("%s: %w", at, err)
		} else if dsn, err := mysql.ParseDSN(p.MySQL.DSN); err == nil {
			place := dsn.Net + " " + dsn.Addr + " " + dsn.DBName
			if other, taken := mysqls[place]; taken {
				wrong("%s.mysql: is the schema of pod %s too: every pod needs one of its own", at, other)
			}
			mysqls[place] = p.Name
		}
		ranges, err := parseShops(p.Shops)
		if err != nil {
			wrong("%s.shops: %w", at, err)
		}
		if p.ReservedShop < 0 || p.ReservedShop > 0 && err == nil && !serves(ranges, p.ReservedShop) {
			wrong("%s.reserved_shop: %d is not one of the pod's shops", at, p.ReservedShop)
		}
		for _, r := range ranges {
			for _, o := range owners {
				if r.from <= o.to && o.from <= r.to {
					wrong("%s.shops: %s is also in pod %s: a shop belongs to one pod, and is listed once", at, shopRange{max(r.from, o.from), min(r.to, o.to)}, o.pod)
				}
			}
			owners = append(owners, owned{r, p.Name})
		}
	}
}

// checkMySQL looks at a pod's MySQL configuration without connecting.
func checkMySQL(c mysqlpool.Config) error {
	s, err := mysqlpool.Open(context.Background(), c)
	if err != nil {
		return err
	}
	return s.Close()
}

// Hinted adds to an error of a store what an operator can do about it, where
// only a command knows that.
func Hinted(err error) error {
	var e *mysql.MySQLError
	if errors.As(err, &e) && e.Number == 1146 { // no such table
		return fmt.Errorf("%w (run `holdover migrate up`)", err)
	}
	return err
}

// redis is what the pod's Redis store is told.
func (c Config) redis(p PodConfig) legacyredis.Config {
	template := p.Redis.CounterTemplate
	if template == "" {
		template = "inventory:<shop>:<item>"
	}
	return legacyredis.Config{
		Pod: p.Name, Addr: p.Redis.Addr, MasterName: p.Redis.MasterName, SentinelAddrs: p.Redis.SentinelAddrs,
		DB: p.Redis.DB, Username: p.Redis.Username, Password: p.Redis.Password, Prefix: p.Redis.Prefix, CounterTemplate: template,
		OpTimeout: c.Timing.Redis, TripTimeout: 2 * time.Second, RebuildLease: 30 * time.Second, GiveBackWindow: c.Timing.GiveBackWindow, EndRetention: c.endRetention(),
		StartUnreachable: true, Logger: c.Logger,
	}
}

// endRetention: an end record in Redis outlives the longest hold by two days,
// which is longer than any mirror work waits.
func (c Config) endRetention() time.Duration { return max(72*time.Hour, c.MaxLife+48*time.Hour) }

// mysql is what the pod's MySQL store is told.
func (c Config) mysql(p PodConfig) mysqlpool.Config {
	return mysqlpool.Config{
		Pod: p.Name, DSN: p.MySQL.DSN, LazyConnect: true, MaxOpenConns: c.Pool.Connections, OpTimeout: c.Timing.Call,
		BatchSize: c.Pool.BatchSize, BatchTransactions: c.Pool.BatchTransactions, BatchQueue: c.Pool.BatchQueue, RefillAhead: c.Pool.RefillAhead,
		LockWait: c.Pool.LockWait, PoolCap: int64(c.Pool.Cap), GiveBackWindow: c.Timing.GiveBackWindow,
		EndRetention: c.Retention.Ends, EntryRetention: c.Retention.Entries, ComparisonRetention: c.Retention.Comparisons, Ledger: mysqlpool.Ledger(p.MySQL.Ledger), Logger: c.Logger,
	}
}

// unjoin takes errors.Join apart.
func unjoin(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

func (r shopRange) String() string {
	if r.from == r.to {
		return fmt.Sprint("shop ", r.from)
	}
	return fmt.Sprintf("shops %d-%d", r.from, r.to)
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:61], "") + "..."
	}
	return s
}
