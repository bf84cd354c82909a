package compare

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/DeRuina/timberjack"

	"holdover"
)

// Budget bounds how many divergences of one kind evidence may explain: the
// larger of Floor and Share of the eligible observations so far. Those beyond
// it count as unexplained.
type Budget struct {
	Floor uint64
	Share float64 // 0.01 is 1 %
}

func (b Budget) allows(already, eligible uint64) bool {
	return already < max(b.Floor, uint64(b.Share*float64(eligible)))
}

// defaultBudget is generous at the start, where a share of little is nothing.
var defaultBudget = Budget{Floor: 100, Share: 0.05}

// Config says what to compare and where to write it. Zero fields mean the default.
type Config struct {
	// Pod is required: observations of other pods are ignored and counted.
	Pod string
	// Instance names this process in reports.
	Instance string

	// Events takes the event lines, and is closed by Close. It excludes Path.
	// With neither, events are only counted and sampled.
	Events io.WriteCloser
	// Path is the event file, rotated by the three fields that follow.
	Path string
	// MaxSizeMB is the size at which the file is rotated; 100.
	MaxSizeMB int
	// MaxBackups is how many rotated files are kept; 10.
	MaxBackups int
	// MaxAgeDays is how long rotated files are kept; 90.
	MaxAgeDays int

	// QueueLen is how many events may wait for the writer; 4096. Over it they
	// are dropped and counted.
	QueueLen int
	// SnapshotEvery is how often the exact counts are written to the events; 30 s.
	SnapshotEvery time.Duration
	// CloseTimeout is how long Close waits for a sink that hangs; 5 s.
	CloseTimeout time.Duration

	// SamplesPerKind is how many observations of each kind a report shows,
	// drawn evenly over the whole period; 10.
	SamplesPerKind int
	// Budget is the budget of each kind that ExplainBudget does not name; 100
	// or 5 % of the eligible observations.
	Budget Budget
	// ExplainBudget overrides Budget by kind.
	ExplainBudget map[Kind]Budget
	// LastUnitWindow is the most units that may be left, beyond those asked
	// for, where last-units evidence is believed; 64.
	LastUnitWindow int64
	// MinCoverage is the coverage below which a report has no verdict; 0.9.
	MinCoverage float64
	// SketchAccuracy is the relative accuracy of latency quantiles; 0.01.
	// Reports merge only when it is the same.
	SketchAccuracy float64

	// Logger; slog.Default when nil.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.MaxSizeMB, 100)
	setDefault(&c.MaxBackups, 10)
	setDefault(&c.MaxAgeDays, 90)
	setDefault(&c.QueueLen, 4096)
	setDefault(&c.SnapshotEvery, 30*time.Second)
	setDefault(&c.CloseTimeout, 5*time.Second)
	setDefault(&c.SamplesPerKind, 10)
	setDefault(&c.Budget, defaultBudget)
	setDefault(&c.LastUnitWindow, 64)
	setDefault(&c.MinCoverage, 0.9)
	setDefault(&c.SketchAccuracy, 0.01)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	bad := func(field string, value any, problem string) error {
		return &holdover.InvalidError{Field: "compare " + field, Value: fmt.Sprint(value), Problem: problem}
	}
	var errs []error
	if c.Pod == "" {
		errs = append(errs, bad("pod", "", "is missing"))
	}
	if c.Events != nil && c.Path != "" {
		errs = append(errs, bad("path", c.Path, "excludes a writer of your own: set one of them"))
	}
	for field, v := range map[string]int{
		"max_size_mb": c.MaxSizeMB, "max_backups": c.MaxBackups, "max_age_days": c.MaxAgeDays,
		"queue_len": c.QueueLen, "samples_per_kind": c.SamplesPerKind,
	} {
		if v < 0 {
			errs = append(errs, bad(field, v, "is negative"))
		}
	}
	for field, v := range map[string]time.Duration{"snapshot_every": c.SnapshotEvery, "close_timeout": c.CloseTimeout} {
		if v < 0 {
			errs = append(errs, bad(field, v, "is negative"))
		}
	}
	if c.LastUnitWindow < 0 {
		errs = append(errs, bad("last_unit_window", c.LastUnitWindow, "is negative"))
	}
	if !(c.MinCoverage > 0 && c.MinCoverage <= 1) {
		errs = append(errs, bad("min_coverage", c.MinCoverage, "must be above 0 and at most 1"))
	}
	if !(c.SketchAccuracy >= minAccuracy && c.SketchAccuracy <= maxAccuracy) {
		errs = append(errs, bad("sketch_accuracy", c.SketchAccuracy, fmt.Sprintf("must be between %v and %v", minAccuracy, maxAccuracy)))
	}
	for k, b := range c.ExplainBudget {
		if !k.Explained() {
			errs = append(errs, bad("explain_budget", k, "is not a kind that evidence explains"))
		}
		errs = append(errs, checkBudget(k.String(), b, bad))
	}
	errs = append(errs, checkBudget("budget", c.Budget, bad))
	return c, errors.Join(errs...)
}

func checkBudget(field string, b Budget, bad func(string, any, string) error) error {
	if !(b.Share >= 0 && b.Share <= 1) {
		return bad(field+" share", b.Share, "must be between 0 and 1")
	}
	return nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// sink is where event lines go; nil for nowhere.
func (c Config) sink() io.WriteCloser {
	switch {
	case c.Events != nil:
		return c.Events
	case c.Path != "":
		return &timberjack.Logger{
			Filename: c.Path, MaxSize: c.MaxSizeMB, MaxBackups: c.MaxBackups, MaxAge: c.MaxAgeDays,
			Compression: "none", // ReadFiles reads lines
		}
	default:
		return nil
	}
}
