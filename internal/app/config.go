package app

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"holdover"
)

// Config is everything that a holdover process is told. The YAML names are the
// configuration file's; a zero field means the default in its comment.
type Config struct {
	// Instance names this process in fences, reports and status; the host name.
	Instance string `yaml:"instance"`
	// Listen is the address of the HTTP API; 127.0.0.1:8377. Nothing listens
	// beyond loopback unless it is told to here.
	Listen string `yaml:"listen"`
	// OperatorToken is the bearer token of the operator routes. Better given in
	// the environment, as HOLDOVER_OPERATOR_TOKEN. Empty: those routes are closed.
	OperatorToken string `yaml:"operator_token"`
	// Flags says where the desired stages come from. Paths here and in Events are
	// relative to the working directory.
	Flags FlagsConfig `yaml:"flags"`
	// Events is the folder of the divergence events, one file per pod and
	// instance, rotated; its folder spool holds what waits for MySQL. Empty: nothing
	// is written, and what was compared ends with the process.
	Events string `yaml:"events"`
	// Compare paces what is written of the comparison, and the planted divergences.
	Compare CompareConfig `yaml:"compare"`
	// Rollout says what a step needs beside the flag and readiness.
	Rollout RolloutConfig `yaml:"rollout"`
	// DefaultTTL is the time to live of a reservation that names none; 15 min.
	DefaultTTL time.Duration `yaml:"default_ttl"`
	// MaxTTL is the longest time to live that may be asked for; 24 h, at most a week.
	MaxTTL time.Duration `yaml:"max_ttl"`
	// NoLateClaims refuses the claim of a hold that has expired even if its units
	// are still there; false: they are taken again.
	NoLateClaims bool `yaml:"no_late_claims"`
	// MaxLife is the longest life of a hold from its grant, extensions included;
	// 48 h, at least MaxTTL.
	MaxLife time.Duration `yaml:"max_life"`
	// Timing bounds the calls and paces the background work.
	Timing Timing `yaml:"timing"`
	// Retention says how long MySQL keeps what is over.
	Retention Retention `yaml:"retention"`
	// Pool shapes the unit pool.
	Pool PoolConfig `yaml:"pool"`
	// Pods are the pods that this process serves.
	Pods []PodConfig `yaml:"pods"`

	Logger  *slog.Logger `yaml:"-"`
	Version string       `yaml:"-"`
	// Mutate switches a protection off, for `holdover torture` to miss; see
	// internal/mutants. No file can set it.
	Mutate string `yaml:"-"`
}

// CompareConfig paces the comparison's records. Zero means the default.
type CompareConfig struct {
	RollupEvery   time.Duration `yaml:"rollup_every"`   // the period of one record of counts, per instance; 1 min
	FlushEvery    time.Duration `yaml:"flush_every"`    // between writes of the open one to disk: a killed process loses no more; 1 s
	SpoolMax      int           `yaml:"spool_max"`      // records that wait on disk for MySQL; 20,160, two weeks of minutes; over it the oldest are lost, and counted
	SelftestEvery time.Duration `yaml:"selftest_every"` // between planted divergences on a pod's reserved_shop; 1 min, negative: none
}

// RolloutConfig says what a step needs beside the flag and readiness.
type RolloutConfig struct {
	// RequireSignoff makes each step forward from shadow on wait for a go
	// (`holdover report sign`) at the pod's present epoch; false.
	RequireSignoff bool `yaml:"require_signoff"`
	// SignoffMaxAge is how long ago the period of the report that it is about may have
	// ended: what counts is what was seen, not when it was signed; 24 h.
	SignoffMaxAge time.Duration `yaml:"signoff_max_age"`
	// DrillMaxAge makes each step forward wait for a drill (`holdover drill`) that
	// passed and is younger than this; zero: none is asked for.
	DrillMaxAge time.Duration `yaml:"drill_max_age"`
}

// FlagsConfig says where the desired stage comes from.
type FlagsConfig struct {
	// File is a flag file in flagd's JSON schema. Empty: no flags, the fence rules.
	File string `yaml:"file"`
	// Poll is how often it is read; 1 s.
	Poll time.Duration `yaml:"poll"`
}

// Timing holds the deadlines and intervals. Zero means the default.
type Timing struct {
	Call           time.Duration `yaml:"call"`             // longest stay of one call; 2 s
	Redis          time.Duration `yaml:"redis"`            // longest wait for one call of Redis; 250 ms
	Mirror         time.Duration `yaml:"mirror"`           // longest wait for Redis while MySQL decides; 50 ms
	MirrorLinger   time.Duration `yaml:"mirror_linger"`    // how long a fact may wait in shadow for others, to share a transaction of MySQL's; 10 ms, negative: not
	GiveBackWindow time.Duration `yaml:"give_back_window"` // how long a tentative grant can be undone; call + 1 s
	Recheck        time.Duration `yaml:"recheck"`          // a state difference must outlive this; give_back_window + 500 ms
	Sweep          time.Duration `yaml:"sweep"`            // between passes over expired holds; 1 s
	ReaperGrace    time.Duration `yaml:"reaper_grace"`     // how long the other store's expired holds wait; 5 s
	Heartbeat      time.Duration `yaml:"heartbeat"`        // between an instance's signs of life; 500 ms
	Dwell          time.Duration `yaml:"dwell"`            // shortest stay in a stage on the way; 30 s
	Drive          time.Duration `yaml:"drive"`            // between looks at the desired stage; 1 s
	Conserve       time.Duration `yaml:"conserve"`         // between checks of the stock's sums in MySQL; 1 h
	Readiness      time.Duration `yaml:"readiness"`        // between looks at whether the pod could move; 500 ms
	VerifyEvery    time.Duration `yaml:"verify_every"`     // between complete comparisons of the two stores; 10 min, negative: never
	VerifiedMaxAge time.Duration `yaml:"verified_max_age"` // a clean verification older than this is a reason against a step; 1 h
}

// Retention says how long MySQL keeps what is over. Zero means the default.
type Retention struct {
	Ends    time.Duration `yaml:"ends"`    // holds that ended, whose tokens stay ended; 720h (30 days)
	Entries time.Duration `yaml:"entries"` // ledger entries and adjustments; 9600h (400 days), negative: for ever
	// Comparisons is how long what was compared is kept, for reports; 9600h (400
	// days), negative: for ever. Sign-offs are never removed.
	Comparisons time.Duration `yaml:"comparisons"`
}

// PoolConfig shapes the unit pool of each pod. Zero means the default.
type PoolConfig struct {
	Cap         int           `yaml:"cap"`         // rows per item and location; 1,000
	Connections int           `yaml:"connections"` // to MySQL for buyers, per pod; 32
	LockWait    time.Duration `yaml:"lock_wait"`   // innodb_lock_wait_timeout, whole seconds; 1 s, better shorter than timing.call

	BatchSize         int           `yaml:"batch_size"`         // concurrent calls of one shared transaction; 128; 1: every call has its own
	BatchTransactions int           `yaml:"batch_transactions"` // shared transactions of reserves under way; 2
	BatchQueue        int           `yaml:"batch_queue"`        // calls of one kind that may wait, half of them for one item; 10,000; over it: overloaded
	RefillAhead       time.Duration `yaml:"refill_ahead"`       // a pool is filled for what its item sells in this time, never over cap; 1 s
}

// PodConfig is one pod: its shops and its two stores.
type PodConfig struct {
	Name string `yaml:"name"`
	// Shops are shop ids or ranges of them: "7", "100-199".
	Shops []string `yaml:"shops"`
	// ReservedShop is one of Shops that no buyer uses: divergences are planted
	// there, to show that the comparison sees them. Zero: none are, and a report
	// says that nothing was proved.
	ReservedShop int64       `yaml:"reserved_shop"`
	Redis        RedisConfig `yaml:"redis"`
	MySQL        MySQLConfig `yaml:"mysql"`
}

// RedisConfig is a pod's Redis: an address, or a Sentinel's primary.
type RedisConfig struct {
	Addr            string   `yaml:"addr"`
	MasterName      string   `yaml:"master_name"`
	SentinelAddrs   []string `yaml:"sentinel_addrs"`
	DB              int      `yaml:"db"`
	Username        string   `yaml:"username"`
	Password        string   `yaml:"password"`
	Prefix          string   `yaml:"prefix"`           // before holdover's own keys
	CounterTemplate string   `yaml:"counter_template"` // inventory:<shop>:<item>
}

// MySQLConfig is a pod's MySQL.
type MySQLConfig struct {
	// DSN is go-sql-driver's: user:password@tcp(host:port)/schema. holdover adds
	// isolation, lock wait and deadlines itself.
	DSN string `yaml:"dsn"`
	// Ledger names a table that the application already has, and its columns;
	// without it holdover makes its own. See mysqlpool.Ledger.
	Ledger LedgerConfig `yaml:"ledger"`
}

// LedgerConfig names the ledger's table and columns. A field that is not set
// means the name in its comment.
type LedgerConfig struct {
	Table     string `yaml:"table"`     // inventory_ledger
	Shop      string `yaml:"shop"`      // shop_id
	Item      string `yaml:"item"`      // item_id
	Group     string `yaml:"group"`     // group_id
	Available string `yaml:"available"` // available
	Key       string `yaml:"key"`       // PRIMARY; the unique key over shop, item and group
}

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.Timing.Call, 2*time.Second)
	set(&c.Timing.Redis, 250*time.Millisecond)
	set(&c.Timing.Mirror, 50*time.Millisecond)
	set(&c.Timing.MirrorLinger, 10*time.Millisecond)
	set(&c.Timing.GiveBackWindow, c.Timing.Call+time.Second)
	set(&c.Timing.Recheck, c.Timing.GiveBackWindow+500*time.Millisecond)
	set(&c.Timing.Sweep, time.Second)
	set(&c.Timing.ReaperGrace, 5*time.Second)
	set(&c.Timing.Heartbeat, 500*time.Millisecond)
	set(&c.Timing.Dwell, 30*time.Second)
	set(&c.Timing.Drive, time.Second)
	set(&c.Timing.Conserve, time.Hour)
	set(&c.Timing.Readiness, 500*time.Millisecond)
	set(&c.Timing.VerifyEvery, 10*time.Minute)
	set(&c.Timing.VerifiedMaxAge, time.Hour)
	set(&c.Retention.Ends, 30*24*time.Hour)
	set(&c.Retention.Entries, max(400*24*time.Hour, c.Retention.Ends))
	set(&c.Retention.Comparisons, 400*24*time.Hour)
	set(&c.Compare.RollupEvery, time.Minute)
	set(&c.Compare.FlushEvery, time.Second)
	set(&c.Compare.SelftestEvery, time.Minute)
	set(&c.Rollout.SignoffMaxAge, 24*time.Hour)
	set(&c.Flags.Poll, time.Second)
	set(&c.DefaultTTL, 15*time.Minute)
	set(&c.MaxTTL, 24*time.Hour)
	set(&c.Pool.LockWait, time.Second)
	if c.Listen == "" {
		c.Listen = "127.0.0.1:8377"
	}
	if c.Pool.Connections == 0 {
		c.Pool.Connections = 32
	}
	if c.MaxLife == 0 {
		c.MaxLife = max(48*time.Hour, c.MaxTTL)
	}
	for field, value := range map[*int]int{&c.Pool.BatchSize: 128, &c.Pool.BatchTransactions: 2, &c.Pool.BatchQueue: 10_000, &c.Compare.SpoolMax: 20_160} {
		if *field == 0 {
			*field = value
		}
	}
	if c.Pool.RefillAhead == 0 {
		c.Pool.RefillAhead = time.Second
	}
	if c.Pool.Cap == 0 {
		c.Pool.Cap = 1000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Limits are the bounds of a reservation.
func (c Config) Limits() holdover.Limits {
	return holdover.Limits{MaxTTL: c.MaxTTL, MaxLife: c.MaxLife, NoLateClaims: c.NoLateClaims}
}

type shopRange struct{ from, to int64 }

func parseShops(shops []string) ([]shopRange, error) {
	if len(shops) == 0 {
		return nil, errors.New(`none: list shop ids or ranges, like ["7", "100-199"]`)
	}
	var ranges []shopRange
	for _, s := range shops {
		first, last, isRange := strings.Cut(s, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.ParseInt(strings.TrimSpace(first), 10, 64)
		to, err2 := strconv.ParseInt(strings.TrimSpace(last), 10, 64)
		if err1 != nil || err2 != nil || from <= 0 || to < from {
			return nil, fmt.Errorf(`%q is neither a shop id nor a range like "100-199"`, s)
		}
		ranges = append(ranges, shopRange{from, to})
	}
	return ranges, nil
}
