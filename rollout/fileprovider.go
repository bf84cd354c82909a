package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-feature/go-sdk/openfeature"
)

// PodAttribute is the attribute of the evaluation context that names the pod.
const PodAttribute = "pod"

// FileConfig configures a FileProvider. Zero fields mean the default.
type FileConfig struct {
	Path string // required
	// PollEvery is how often the file is read; 1 s. Its content is compared, so
	// that a swapped link or a restored older file counts like any change.
	PollEvery time.Duration
	// MaxBytes bounds the file; 1 MiB.
	MaxBytes int64
	// Logger hears once when the file turns bad, good, or changes.
	Logger *slog.Logger
}

// FileStatus says what the provider has.
type FileStatus struct {
	Path     string    `json:"path"`
	Loaded   bool      `json:"loaded"`             // a good file was read once
	LoadedAt time.Time `json:"loaded_at"`          // when what is used was read first
	Err      string    `json:"err,omitempty"`      // what is wrong with the file now; empty when it is what is used
	ErrSince time.Time `json:"err_since,omitzero"` // since when
}

// FileProvider is an OpenFeature provider over one flag file. It serves the
// last good content, also while the file is missing, half written or wrong.
type FileProvider struct {
	cfg    FileConfig
	log    *slog.Logger
	events chan openfeature.Event

	flags  atomic.Pointer[FlagSet]
	status atomic.Pointer[FileStatus]

	mu      sync.Mutex // guards what follows
	content []byte     // of the last read, good or not
	stop    context.CancelFunc
	stopped chan struct{}
	closed  bool
}

// NewFileProvider checks the configuration. The file is read by Init, which
// the flags' API calls; Shutdown stops the polling.
func NewFileProvider(cfg FileConfig) (*FileProvider, error) {
	if cfg.Path == "" {
		return nil, errors.New("rollout: the flag file has no path")
	}
	if cfg.PollEvery < 0 || cfg.MaxBytes < 0 {
		return nil, errors.New("rollout: PollEvery and MaxBytes can't be negative")
	}
	if cfg.PollEvery == 0 {
		cfg.PollEvery = time.Second
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 1 << 20
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p := &FileProvider{cfg: cfg, log: log.With("flag_file", cfg.Path), events: make(chan openfeature.Event, 1)}
	p.status.Store(&FileStatus{Path: cfg.Path, Err: "not read yet"})
	return p, nil
}

// Status says what the provider has and what is wrong with the file.
func (p *FileProvider) Status() FileStatus { return *p.status.Load() }

// Init reads the file and starts polling it. Its error says that there is no
// good file yet; the polling goes on and the provider gets ready when there is.
func (p *FileProvider) Init(openfeature.EvaluationContext) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed: // the API may shut a provider down before it got to initialize it
		return errors.New("rollout: this provider was shut down: make a new one")
	case p.stop != nil:
		return errors.New("rollout: the flag file is polled already")
	}
	err := p.load()
	ctx, cancel := context.WithCancel(context.Background())
	p.stop, p.stopped = cancel, make(chan struct{})
	go p.poll(ctx, p.stopped)
	return err
}

// Shutdown stops the polling and waits for it. It may be called more than once.
func (p *FileProvider) Shutdown() {
	p.mu.Lock()
	stop, stopped := p.stop, p.stopped
	p.stop, p.closed = nil, true
	p.mu.Unlock()
	if stop != nil {
		stop()
		<-stopped
	}
}

func (p *FileProvider) poll(ctx context.Context, stopped chan<- struct{}) {
	defer close(stopped)
	tick := time.NewTicker(p.cfg.PollEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.Reload()
		case <-ctx.Done():
			return
		}
	}
}

// Reload reads the file now, as the polling does.
func (p *FileProvider) Reload() {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.Status()
	set := p.flags.Load()
	err := p.load()
	switch {
	case err != nil && before.Err != err.Error():
		p.log.Warn("the flag file can't be used", "err", err, "last_good_kept", set != nil)
		if set != nil {
			p.emit(openfeature.ProviderStale, err.Error())
		}
	case err == nil && before.Err != "":
		p.log.Info("the flag file is good")
		p.emit(openfeature.ProviderReady, "the flag file is good")
	case err == nil && p.flags.Load() != set:
		p.log.Info("the flag file changed")
		p.emit(openfeature.ProviderConfigChange, "the flag file changed")
	}
}

// load takes the file over if it is good. The caller holds mu.
func (p *FileProvider) load() error {
	content, err := readFile(p.cfg.Path, p.cfg.MaxBytes)
	was := p.Status()
	if err == nil && was.Err == "" && bytes.Equal(content, p.content) {
		return nil // in use already
	}
	var set *FlagSet
	if err == nil {
		if set, err = ParseFlags(content); err != nil {
			err = fmt.Errorf("flag file %s: %w", p.cfg.Path, err)
		}
	}
	now := time.Now().UTC()
	if err != nil {
		next := was
		next.Err = err.Error()
		if was.ErrSince.IsZero() {
			next.ErrSince = now
		}
		p.status.Store(&next)
		return err
	}
	next := FileStatus{Path: p.cfg.Path, Loaded: true, LoadedAt: now}
	if was.Loaded && bytes.Equal(content, p.content) {
		next.LoadedAt = was.LoadedAt // bad for a while, and back to what is in use
	} else {
		p.content = content
		p.flags.Store(set)
	}
	p.status.Store(&next)
	return nil
}

// readFile reads a whole regular file, with a bound.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the flag file can't be opened: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("the flag file can't be read: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("flag file %s is not a regular file", path)
	}
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("the flag file can't be read: %w", err)
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("flag file %s is larger than %d bytes", path, limit)
	}
	return content, nil
}

// emit offers an event; one that is still waiting gives way to it, as the last
// one says how things are. The caller holds mu.
func (p *FileProvider) emit(t openfeature.EventType, message string) {
	e := openfeature.Event{ProviderName: p.Metadata().Name, EventType: t}
	e.Message = message
	if t == openfeature.ProviderConfigChange {
		e.FlagChanges = []string{StageFlag}
	}
	select {
	case <-p.events:
	default:
	}
	p.events <- e // there is room: nobody else sends
}

// EventChannel gives the provider's events.
func (p *FileProvider) EventChannel() <-chan openfeature.Event { return p.events }

// Metadata names the provider.
func (p *FileProvider) Metadata() openfeature.Metadata {
	return openfeature.Metadata{Name: "holdover-flag-file"}
}

// Hooks returns none.
func (p *FileProvider) Hooks() []openfeature.Hook { return nil }

// StringEvaluation evaluates the stage flag for the pod in the context.
func (p *FileProvider) StringEvaluation(_ context.Context, flag, fallback string, flat openfeature.FlattenedContext) openfeature.StringResolutionDetail {
	fail := func(e openfeature.ResolutionError) openfeature.StringResolutionDetail {
		return openfeature.StringResolutionDetail{Value: fallback, ProviderResolutionDetail: openfeature.ProviderResolutionDetail{
			ResolutionError: e, Reason: openfeature.ErrorReason}}
	}
	set := p.flags.Load()
	if set == nil {
		return fail(openfeature.NewProviderNotReadyResolutionError(p.Status().Err))
	}
	if flag != StageFlag {
		return fail(openfeature.NewFlagNotFoundResolutionError("the flag file has " + StageFlag + " only"))
	}
	pod, _ := flat[PodAttribute].(string)
	if pod == "" {
		// The default variant would be a guess.
		return fail(openfeature.NewInvalidContextResolutionError("the context has no attribute " + PodAttribute))
	}
	choice := set.For(pod)
	reason := openfeature.StaticReason
	switch {
	case choice.Targeted:
		reason = openfeature.TargetingMatchReason
	case choice.HasRules:
		reason = openfeature.DefaultReason
	}
	return openfeature.StringResolutionDetail{Value: choice.Stage.String(), ProviderResolutionDetail: openfeature.ProviderResolutionDetail{
		Variant: choice.Variant, Reason: reason}}
}

func wrongType(flag string) openfeature.ProviderResolutionDetail {
	e := openfeature.NewFlagNotFoundResolutionError("the flag file has " + StageFlag + " only")
	if flag == StageFlag {
		e = openfeature.NewTypeMismatchResolutionError(StageFlag + " is a string flag")
	}
	return openfeature.ProviderResolutionDetail{ResolutionError: e, Reason: openfeature.ErrorReason}
}

// BooleanEvaluation fails: the file has no boolean flag.
func (p *FileProvider) BooleanEvaluation(_ context.Context, flag string, fallback bool, _ openfeature.FlattenedContext) openfeature.BoolResolutionDetail {
	return openfeature.BoolResolutionDetail{Value: fallback, ProviderResolutionDetail: wrongType(flag)}
}

// FloatEvaluation fails: the file has no number flag.
func (p *FileProvider) FloatEvaluation(_ context.Context, flag string, fallback float64, _ openfeature.FlattenedContext) openfeature.FloatResolutionDetail {
	return openfeature.FloatResolutionDetail{Value: fallback, ProviderResolutionDetail: wrongType(flag)}
}

// IntEvaluation fails: the file has no number flag.
func (p *FileProvider) IntEvaluation(_ context.Context, flag string, fallback int64, _ openfeature.FlattenedContext) openfeature.IntResolutionDetail {
	return openfeature.IntResolutionDetail{Value: fallback, ProviderResolutionDetail: wrongType(flag)}
}

// ObjectEvaluation fails: the file has no object flag.
func (p *FileProvider) ObjectEvaluation(_ context.Context, flag string, fallback any, _ openfeature.FlattenedContext) openfeature.InterfaceResolutionDetail {
	return openfeature.InterfaceResolutionDetail{Value: fallback, ProviderResolutionDetail: wrongType(flag)}
}
