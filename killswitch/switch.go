package killswitch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"holdover"
)

// The longest name and reason, in bytes. Both stores keep them with the fence.
const (
	MaxBy     = 64
	MaxReason = 500
)

// ErrRefused: the switch can't do this from the pod's stage, and says what can.
var ErrRefused = errors.New("the switch refuses")

// Redis is what the switch asks of the pod's Redis.
type Redis interface {
	// Fence reads the fence; holdover.ErrNoFence when there is none.
	Fence(ctx context.Context) (holdover.Fence, error)
	// Trip applies the facts and sets f in one atomic step if f.Epoch is larger
	// than the store's, else a *holdover.StaleError with the fence that is there.
	Trip(ctx context.Context, f holdover.Fence, facts []holdover.Hold) error
	// CompareAndSetFence writes f if the store's epoch is still from.
	CompareAndSetFence(ctx context.Context, from holdover.Epoch, f holdover.Fence) error
	// Instances lists the processes whose last heartbeat is at most maxAge old.
	Instances(ctx context.Context, maxAge time.Duration) ([]holdover.Instance, error)
	// History lists fences ever set, newest first.
	History(ctx context.Context, limit int) ([]holdover.Fence, error)
}

// MySQL is what the switch asks of the pod's MySQL.
type MySQL interface {
	// Fence reads the fence; holdover.ErrNoFence when there is none.
	Fence(ctx context.Context) (holdover.Fence, error)
	// TripFence raises the fence to f and reads the whole journal in one
	// transaction. A store that is at a later epoch already may answer with its
	// journal or with a *holdover.StaleError.
	TripFence(ctx context.Context, f holdover.Fence) ([]holdover.Journaled, error)
	// RaiseFence writes f if its epoch is larger, and returns the fence that is
	// there afterwards.
	RaiseFence(ctx context.Context, f holdover.Fence) (holdover.Fence, error)
	// Followed is the largest epoch at which Redis was seen, as NoteFollowed has
	// recorded it.
	Followed(ctx context.Context) (holdover.Epoch, error)
	NoteFollowed(ctx context.Context, epoch holdover.Epoch) error
}

// Config configures a Switch. Zero durations and counts mean the default.
type Config struct {
	Pod   string // required
	Redis Redis  // required
	MySQL MySQL  // required

	// MySQLTimeout is how long MySQL may keep one trip waiting, all its calls
	// together; 500 ms.
	MySQLTimeout time.Duration
	// RedisTimeout bounds each call to Redis; 2 s.
	RedisTimeout time.Duration
	// RestoreTimeout bounds each call to MySQL in a restore, which is in no
	// hurry; 3 s.
	RestoreTimeout time.Duration
	// Attempts is how often a trip starts again because somebody moved the
	// fence meanwhile; 5.
	Attempts int
	// InstanceMaxAge: an instance without a heartbeat for longer is not
	// waited for; 5 s.
	InstanceMaxAge time.Duration
	// AckEvery is how often WaitAcknowledged looks; 20 ms.
	AckEvery time.Duration
	// Logger gets one record per trip and restore; nothing is logged without.
	Logger *slog.Logger
}

// Switch trips and restores one pod.
type Switch struct {
	cfg Config
	log *slog.Logger

	mysql chan struct{} // holds one token while a MySQL call of a trip runs
	calls sync.WaitGroup
}

// New checks the configuration and returns a switch. It asks no store.
func New(cfg Config) (*Switch, error) {
	if cfg.Pod == "" || cfg.Redis == nil || cfg.MySQL == nil {
		return nil, errors.New("killswitch: pod, Redis and MySQL are required")
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"MySQLTimeout", &cfg.MySQLTimeout, 500 * time.Millisecond},
		{"RedisTimeout", &cfg.RedisTimeout, 2 * time.Second},
		{"RestoreTimeout", &cfg.RestoreTimeout, 3 * time.Second},
		{"InstanceMaxAge", &cfg.InstanceMaxAge, 5 * time.Second},
		{"AckEvery", &cfg.AckEvery, 20 * time.Millisecond},
	} {
		if *d.value < 0 {
			return nil, fmt.Errorf("killswitch: %s is negative: %s", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if cfg.Attempts < 0 {
		return nil, fmt.Errorf("killswitch: Attempts is negative: %d", cfg.Attempts)
	}
	if cfg.Attempts == 0 {
		cfg.Attempts = 5
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Switch{cfg: cfg, log: log.With("pod", cfg.Pod), mysql: make(chan struct{}, 1)}, nil
}

// Pod is the pod's name.
func (s *Switch) Pod() string { return s.cfg.Pod }

// Close waits until a MySQL call that a trip left behind has returned, or for ctx.
func (s *Switch) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() { // ends with the calls: each has a deadline
		s.calls.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pod %s: a MySQL call of a trip still runs: %w", s.cfg.Pod, ctx.Err())
	}
}

// History lists the fences that the pod's Redis remembers, newest first: who
// changed what, when and why.
func (s *Switch) History(ctx context.Context, limit int) ([]holdover.Fence, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RedisTimeout)
	defer cancel()
	return s.cfg.Redis.History(ctx, limit)
}

// Step is one call that a trip or restore made.
type Step struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
	Err  string        `json:"err,omitempty"`
}

// CheckWho checks the name and the reason that every change of a fence needs.
// The error is a *holdover.InvalidError.
func CheckWho(by, reason string) error {
	if err := checkText("by", by, MaxBy, "who does this"); err != nil {
		return err
	}
	return checkText("reason", reason, MaxReason, "why, for whoever reads the history")
}

func checkText(field, text string, limit int, what string) error {
	bad := func(problem string) error {
		short := text
		if len(short) > 40 {
			short = strings.ToValidUTF8(short[:40], "") + "..."
		}
		return &holdover.InvalidError{Field: field, Value: short, Problem: problem}
	}
	switch {
	case strings.TrimSpace(text) == "":
		return bad("is required: say " + what)
	case len(text) > limit:
		return bad("is longer than " + strconv.Itoa(limit) + " bytes")
	case !utf8.ValidString(text):
		return bad("is not valid UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		return bad("has a control character: it must be one line of text")
	}
	return nil
}
