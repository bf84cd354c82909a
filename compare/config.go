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

// defaultAccuracy is the relative accuracy of quantiles.
const defaultAccuracy = 0.01

// defaultSamples is how many divergences of each kind and direction are shown.
const defaultSamples = 10

// Config says what to compare and where to write it. Zero fields mean the default.
type Config struct {
	// Pod is required: observations of other pods are ignored and counted.
	Pod string
	// Instance names this process in reports.
	Instance string
	// Version of the build, for reports.
	Version string
	// ConfigHash is a hash of the configuration, without its secrets, for reports.
	ConfigHash string

	// Reserved says which shops are for planted divergences only: observations of
	// them count as Planted and in nothing else. None when nil. It is called in
	// each Observe, by many goroutines at a time.
	Reserved func(shop int64) bool
	// Bypassed says how many dual operations were never handed to Observe so far.
	// It is asked at each flush; none when nil.
	Bypassed func() uint64
	// Connections says how long connections were taken since it was called last;
	// [ConnectionTimes.Take] does. It is asked when a rollup is closed; none when nil.
	Connections func() []Connection

	// Events takes the event lines, and is closed by Close. It excludes Path.
	// With neither, and without a Spool, events are only counted and sampled.
	Events io.WriteCloser
	// Path is the event file, rotated by the three fields that follow.
	Path string
	// MaxSizeMB is the size at which the file is rotated; 100.
	MaxSizeMB int
	// MaxBackups is how many rotated files are kept; 10.
	MaxBackups int
	// MaxAgeDays is how long rotated files are kept; 90.
	MaxAgeDays int

	// Spool is the folder where rollups wait until they are sent to MySQL: one file
	// for each, and one for the period that is open. It is made when it is missing.
	// Without one, a process that is killed loses the counts of its open period.
	Spool string
	// SpoolMax is how many closed rollups of this pod and instance may wait; 20,160,
	// two weeks of minutes. Over it the oldest is dropped, and the next one says so.
	SpoolMax int
	// RollupEvery is the length of a period; 1 min. Periods begin at its multiples.
	RollupEvery time.Duration
	// FlushEvery is how often the open period is rewritten in the spool; 1 s. A
	// process that is killed loses no more than that.
	FlushEvery time.Duration

	// QueueLen is how many divergences may wait for the writer; 4096. Over it their
	// events are dropped and counted.
	QueueLen int
	// CloseTimeout is how long Close waits for a sink that hangs; 5 s.
	CloseTimeout time.Duration

	// SamplesPerKind is how many divergences of each kind and direction a rollup
	// shows, drawn evenly over the whole period; 10. Of what is no divergence it
	// shows 2.
	SamplesPerKind int
	// LastUnitWindow is the most units that may be left, beyond those asked
	// for, where last-units evidence is believed; 64.
	LastUnitWindow int64
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
	setDefault(&c.SpoolMax, 14*24*60)
	setDefault(&c.RollupEvery, time.Minute)
	setDefault(&c.FlushEvery, time.Second)
	setDefault(&c.QueueLen, 4096)
	setDefault(&c.CloseTimeout, 5*time.Second)
	setDefault(&c.SamplesPerKind, defaultSamples)
	setDefault(&c.LastUnitWindow, 64)
	setDefault(&c.SketchAccuracy, defaultAccuracy)
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
		"queue_len": c.QueueLen, "samples_per_kind": c.SamplesPerKind, "spool_max": c.SpoolMax,
	} {
		if v < 0 {
			errs = append(errs, bad(field, v, "is negative"))
		}
	}
	for field, v := range map[string]time.Duration{
		"close_timeout": c.CloseTimeout, "rollup_every": c.RollupEvery, "flush_every": c.FlushEvery,
	} {
		if v < 0 {
			errs = append(errs, bad(field, v, "is negative"))
		}
	}
	if c.LastUnitWindow < 0 {
		errs = append(errs, bad("last_unit_window", c.LastUnitWindow, "is negative"))
	}
	if !(c.SketchAccuracy >= minAccuracy && c.SketchAccuracy <= maxAccuracy) {
		errs = append(errs, bad("sketch_accuracy", c.SketchAccuracy, fmt.Sprintf("must be between %v and %v", minAccuracy, maxAccuracy)))
	}
	return c, errors.Join(errs...)
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
			Compression: "none", // ReadRollups reads lines
		}
	default:
		return nil
	}
}
