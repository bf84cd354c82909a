package mysqlpool

import (
	"database/sql/driver"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover"
)

// Config says how to reach one pod's MySQL and how its pool behaves. A zero
// field means its default.
type Config struct {
	// Pod is the pod's name, for errors and logs. Required.
	Pod string
	// DSN names server, user and schema, like "user:password@tcp(host:3306)/schema".
	// The session settings that correctness depends on (isolation, lock wait,
	// time zone, SQL mode) are added here and replace those of the DSN. Required.
	DSN string
	// LazyConnect makes Open succeed while the server is away; it is then
	// looked at on the first use. Without it Open fails early.
	LazyConnect bool

	// MaxOpenConns bounds the connections of the main pool; 32. Four more, of a
	// pool of their own, do fence and journal work, so that a saturated main
	// pool never delays a kill.
	MaxOpenConns int
	// OpTimeout bounds every call, retries included; 2 s.
	OpTimeout time.Duration
	// LockWait bounds one wait for a row lock, in whole seconds, rounded up;
	// 1 s. Shorter than OpTimeout, so that it is the server that gives up: a
	// connection that is cut keeps its locks until the server notices.
	LockWait time.Duration
	// MaxRetries bounds how often a transaction that lost a deadlock or a lock
	// wait is run again; 4.
	MaxRetries int
	// RetryBackoff is the first pause before such a retry; it doubles, with
	// full jitter; 5 ms.
	RetryBackoff time.Duration

	// BatchSize bounds how many concurrent calls share one transaction; 128. A
	// call never waits for company: it goes at once unless BatchTransactions are
	// under way. 1 switches batching off.
	BatchSize int
	// BatchTransactions bounds the shared transactions of reserves that are under
	// way; 2.
	BatchTransactions int
	// EndTransactions bounds those of claims, of releases and expiries, and of
	// extensions, each; 1: claims of one item wait for each other at its ledger
	// row, and two smaller transactions cost more than one.
	EndTransactions int
	// BatchQueue bounds how many calls of one kind wait; 10,000, and half of them
	// for one item. Over it a call is refused at once: ErrOverloaded.
	BatchQueue int
	// WrapConnector, when not nil, goes around the connector of the main pool, to
	// measure or to trace; see connhold.
	WrapConnector func(driver.Connector) driver.Connector

	// PoolCap bounds the unit rows of one item at one location; 1,000. A larger
	// line is issued straight from the ledger.
	PoolCap int64
	// RefillBatch is how many unit rows an empty pool gets at once on a buyer's
	// path; 250, at most PoolCap.
	RefillBatch int64
	// RefillAhead is for how long a pool should last at the rate at which its
	// item sells; 1 s. Run fills a pool up to that, at least to RefillBatch and at
	// most to PoolCap, when half of it is gone.
	RefillAhead time.Duration
	// RefillEvery is how soon a pool is looked at again after a refill that found
	// nothing more in the ledger; 100 ms.
	RefillEvery time.Duration
	// Ledger names the table that is the ledger; holdover's own, inventory_ledger.
	Ledger Ledger
	// WarmItems bounds how many locations WarmUp fills; 1,000.
	WarmItems int

	// GiveBackWindow is how long a tentative grant can be given back, by the
	// server's clock; 10 s. Older ones count as firm.
	GiveBackWindow time.Duration
	// EndRetention is how long ended holds are kept; 30 days. It must be longer
	// than the longest hold plus the oldest mirror work.
	EndRetention time.Duration
	// EntryRetention is how long ledger entries and settled adjustments are kept;
	// 400 days, at least EndRetention. Older entries are added up in
	// holdover_balances. Negative: for ever.
	EntryRetention time.Duration
	// ComparisonRetention is how long what instances compared is kept; 400 days.
	// Negative: for ever. Sign-offs are never removed.
	ComparisonRetention time.Duration
	// PurgeEvery is how often Run removes what is past its retention; 1 minute.
	PurgeEvery time.Duration

	// JournalMax bounds how many unmirrored facts TripFence reads; 100,000.
	JournalMax int
	// MaxLines bounds the lines of one hold; 1,000, at most 10,000.
	MaxLines int

	// Logger gets what no caller is told: oversold claims, failed background
	// work. Nothing is logged when it is nil.
	Logger *slog.Logger
}

const controlConns = 4

func (c Config) withDefaults() (Config, *mysql.Config, error) {
	def(&c.MaxOpenConns, 32)
	def(&c.OpTimeout, 2*time.Second)
	def(&c.LockWait, time.Second)
	def(&c.MaxRetries, 4)
	def(&c.RetryBackoff, 5*time.Millisecond)
	def(&c.PoolCap, 1000)
	def(&c.RefillBatch, min(250, c.PoolCap))
	def(&c.RefillAhead, time.Second)
	def(&c.RefillEvery, 100*time.Millisecond)
	def(&c.BatchSize, 128)
	def(&c.BatchTransactions, 2)
	def(&c.EndTransactions, 1)
	def(&c.BatchQueue, 10_000)
	def(&c.WarmItems, 1000)
	c.Ledger.setDefaults()
	def(&c.GiveBackWindow, 10*time.Second)
	def(&c.EndRetention, 30*24*time.Hour)
	def(&c.EntryRetention, max(400*24*time.Hour, c.EndRetention))
	def(&c.ComparisonRetention, 400*24*time.Hour)
	def(&c.PurgeEvery, time.Minute)
	def(&c.JournalMax, 100_000)
	def(&c.MaxLines, 1000)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	bad := func(field string, value any, problem string) error {
		return &holdover.InvalidError{Field: "mysql " + field, Value: fmt.Sprint(value), Problem: problem}
	}
	switch {
	case c.Pod == "":
		return c, nil, &holdover.InvalidError{Field: "mysql pod", Problem: "is missing: give the pod's name"}
	case c.MaxOpenConns < 1:
		return c, nil, bad("max_open_conns", c.MaxOpenConns, "must be at least 1")
	case c.OpTimeout < time.Millisecond:
		return c, nil, bad("op_timeout", c.OpTimeout, "must be at least 1ms")
	case c.LockWait < 0:
		return c, nil, bad("lock_wait", c.LockWait, "must not be negative")
	case c.MaxRetries < 0 || c.RetryBackoff < 0:
		return c, nil, bad("max_retries", c.MaxRetries, "and its backoff must not be negative")
	case c.PoolCap < 1 || c.PoolCap > 100_000:
		return c, nil, bad("pool_cap", c.PoolCap, "must be from 1 to 100,000")
	case c.RefillBatch < 1 || c.RefillBatch > c.PoolCap:
		return c, nil, bad("refill_batch", c.RefillBatch, "must be from 1 to pool_cap")
	case c.BatchSize < 1 || c.BatchSize > 1000:
		return c, nil, bad("batch_size", c.BatchSize, "must be from 1 to 1,000")
	case c.BatchTransactions < 1 || c.EndTransactions < 1 || c.BatchQueue < 1:
		return c, nil, bad("batch_transactions", c.BatchTransactions, "end_transactions and batch_queue must be at least 1")
	case c.RefillAhead < 0:
		return c, nil, bad("refill_ahead", c.RefillAhead, "must not be negative")
	case c.RefillEvery <= 0 || c.PurgeEvery <= 0:
		return c, nil, bad("refill_every", c.RefillEvery, "and purge_every must be positive")
	case c.GiveBackWindow < 0 || c.EndRetention < c.GiveBackWindow:
		return c, nil, bad("end_retention", c.EndRetention, "must not be shorter than give_back_window")
	case c.EntryRetention >= 0 && c.EntryRetention < c.EndRetention:
		return c, nil, bad("entry_retention", c.EntryRetention, "must not be shorter than end_retention; negative is for ever")
	case c.JournalMax < 1 || c.WarmItems < 0:
		return c, nil, bad("journal_max", c.JournalMax, "must be at least 1, and warm_items not negative")
	case c.MaxLines < 1 || c.MaxLines > 10_000:
		return c, nil, bad("max_lines", c.MaxLines, "must be from 1 to 10,000")
	}
	if err := c.Ledger.validate(); err != nil {
		return c, nil, err
	}
	dsn, err := parseDSN(c.DSN)
	return c, dsn, err
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// parseDSN never repeats the DSN in an error: it may hold a password.
func parseDSN(dsn string) (*mysql.Config, error) {
	if dsn == "" {
		return nil, &holdover.InvalidError{Field: "mysql dsn", Problem: `is missing: want "user:password@tcp(host:3306)/schema"`}
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, &holdover.InvalidError{Field: "mysql dsn", Problem: "can't be read: " + err.Error()}
	}
	if cfg.DBName == "" {
		return nil, &holdover.InvalidError{Field: "mysql dsn", Problem: `names no schema: want ".../schema" at its end`}
	}
	return cfg, nil
}
