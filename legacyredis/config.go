package legacyredis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"holdover"
)

// Config says where a pod's Redis is and how to use it. A zero field means the
// default that its comment names.
type Config struct {
	// Pod names the pod. It is written into the fence: a Redis whose fence
	// names another pod is refused.
	Pod string

	// Addr is host:port of a standalone Redis. Either it or MasterName is set.
	Addr string
	// MasterName and SentinelAddrs find the primary through Sentinel.
	MasterName    string
	SentinelAddrs []string
	// SentinelUsername and SentinelPassword are for the sentinels themselves.
	SentinelUsername string
	SentinelPassword string

	// DB is the database number.
	DB int
	// Username and Password are Redis's own; empty for none.
	Username string
	Password string
	// TLS, when set, encrypts the connections.
	TLS *tls.Config

	// Prefix stands before every key but the counters; empty by default.
	Prefix string
	// CounterTemplate is the key of a stock counter, with <shop> and <item> in
	// it; "inventory:<shop>:<item>". Prefix is not put before it.
	CounterTemplate string

	// OpTimeout bounds one call; 250 ms. A shorter deadline of the caller wins.
	OpTimeout time.Duration
	// TripTimeout bounds the kill, which may carry a long journal; 2 s.
	TripTimeout time.Duration
	// PoolSize is how many connections the calls of buyers share; 64. The
	// fence, the kill and the heartbeat have four of their own, so that a pool
	// full of buyers does not delay them.
	PoolSize int

	// GiveBackWindow is how long a tentative grant can be given back, by
	// Redis's clock; older ones count as firm; 10 s.
	GiveBackWindow time.Duration
	// EndRetention is how long the end record of a token stays; 72 h. It must
	// be longer than the longest hold plus the oldest mirror work.
	EndRetention time.Duration
	// RebuildLease is how long a rebuild that shows no sign of life keeps others
	// from beginning one; 30 s.
	RebuildLease time.Duration
	// HistoryLimit is how many fences History can go back; 1,000.
	HistoryLimit int

	// StartUnreachable lets Open succeed while Redis gives no answer: a pod in
	// stage mysql must be able to start an instance during Redis's outage. A
	// wrong server (a cluster, a replica) is refused whenever it answers.
	StartUnreachable bool

	// LazyConnect lets Open ask nothing: the first call connects, and every new
	// connection is checked. For a kill, which has no time for two looks.
	LazyConnect bool

	// Logger gets what no caller can be told; nothing by default.
	Logger *slog.Logger
}

const (
	maxNumber     = 1 << 53 // Lua's numbers are exact up to here
	defaultRecord = "inventory:<shop>:<item>"
)

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&c.OpTimeout, 250*time.Millisecond)
	set(&c.TripTimeout, 2*time.Second)
	set(&c.GiveBackWindow, 10*time.Second)
	set(&c.EndRetention, 72*time.Hour)
	set(&c.RebuildLease, 30*time.Second)
	if c.CounterTemplate == "" {
		c.CounterTemplate = defaultRecord
	}
	if c.PoolSize == 0 {
		c.PoolSize = 64
	}
	if c.HistoryLimit == 0 {
		c.HistoryLimit = 1000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate checks the whole configuration and reports every problem at once.
// The errors match holdover.ErrInvalid.
func (c Config) Validate() error {
	var errs []error
	wrong := func(field string, value any, problem string) {
		errs = append(errs, &holdover.InvalidError{Field: "redis " + field, Value: fmt.Sprint(value), Problem: problem})
	}
	if c.Pod == "" {
		wrong("pod", "", "is missing: it names the pod in the fence")
	}
	if c.Addr != "" {
		if _, port, err := net.SplitHostPort(c.Addr); err != nil {
			wrong("addr", c.Addr, "must be host:port, like 127.0.0.1:6379")
		} else if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			wrong("addr", c.Addr, "has no port from 1 to 65535")
		}
	}
	switch {
	case c.Addr == "" && c.MasterName == "":
		wrong("addr", "", "is missing: give host:port, or master_name and sentinel_addrs")
	case c.Addr != "" && c.MasterName != "":
		wrong("addr", c.Addr, "can't be given together with master_name: choose one")
	case c.MasterName != "" && len(c.SentinelAddrs) == 0:
		wrong("sentinel_addrs", "", "is missing for master_name "+c.MasterName)
	case c.MasterName == "" && len(c.SentinelAddrs) > 0:
		wrong("master_name", "", "is missing: sentinels are asked for a primary by its name")
	}
	if c.DB < 0 {
		wrong("db", c.DB, "must be zero or more")
	}
	if c.PoolSize < 0 {
		wrong("pool_size", c.PoolSize, "must be positive")
	}
	if c.HistoryLimit < 0 {
		wrong("history_limit", c.HistoryLimit, "must be positive")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"op_timeout", c.OpTimeout}, {"trip_timeout", c.TripTimeout},
		{"give_back_window", c.GiveBackWindow}, {"end_retention", c.EndRetention}, {"rebuild_lease", c.RebuildLease},
	} {
		if d.value < time.Millisecond {
			wrong(d.field, d.value, "must be at least 1ms")
		}
	}
	if c.GiveBackWindow <= c.OpTimeout {
		wrong("give_back_window", c.GiveBackWindow, fmt.Sprintf("must be longer than op_timeout (%s): else a give-back always comes too late", c.OpTimeout))
	}
	if badKeyText(c.Prefix) {
		wrong("prefix", c.Prefix, "must be at most 200 printable characters without spaces")
	}
	if err := checkTemplate(c.CounterTemplate); err != "" {
		wrong("counter_template", c.CounterTemplate, err)
	}
	return errors.Join(errs...)
}

func badKeyText(s string) bool {
	return len(s) > 200 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

func checkTemplate(t string) string {
	if badKeyText(t) {
		return "must be at most 200 printable characters without spaces"
	}
	shop, item := strings.Index(t, "<shop>"), strings.Index(t, "<item>")
	if strings.Count(t, "<shop>") != 1 || strings.Count(t, "<item>") != 1 {
		return "must have <shop> and <item> in it, once each: else items share a counter"
	}
	between := t[min(shop, item)+len("<shop>") : max(shop, item)]
	if between == "" || strings.Trim(between, "0123456789") == "" {
		return "needs a character that is no digit between <shop> and <item>: else shop 1, item 23 and shop 12, item 3 share a counter"
	}
	return ""
}

// hashTag returns what a cluster hashes of a key: the text between the first
// "{" and the next "}", if there is any.
func hashTag(key string) string {
	_, rest, found := strings.Cut(key, "{")
	if !found {
		return ""
	}
	tag, _, found := strings.Cut(rest, "}")
	if !found {
		return ""
	}
	return tag
}

// oneSlot reports whether every key of the pod has the same hash tag.
func (c Config) oneSlot() bool {
	tag := hashTag(c.Prefix)
	return tag != "" && tag == hashTag(c.CounterTemplate) && !strings.ContainsAny(tag, "<>")
}
