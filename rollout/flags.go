package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-feature/go-sdk/openfeature"
	"github.com/open-feature/go-sdk/openfeature/isolated"

	"holdover"
)

// Desired is what the flag says about one pod.
type Desired struct {
	Pod     string         `json:"pod"`
	Known   bool           `json:"known"`   // the last evaluation gave a stage
	Stage   holdover.Stage `json:"stage"`   // the last good one; unknown if there never was one
	Variant string         `json:"variant"` // of the last good one
	Reason  string         `json:"reason"`  // OpenFeature's reason of the last good one: STATIC, DEFAULT, TARGETING_MATCH, ...
	Err     string         `json:"err,omitempty"`
	Stale   bool           `json:"stale"` // the provider says that it serves old content
	At      time.Time      `json:"at"`    // when it was evaluated last
	GoodAt  time.Time      `json:"good_at,omitzero"`
	Changes int            `json:"changes"` // how often the desired stage changed lately, within FlagsConfig.FlapWindow
}

// Snapshot is what the flag says about all pods. It is never changed.
type Snapshot struct {
	At            time.Time
	Provider      string // its name
	ProviderState string // OpenFeature's: READY, NOT_READY, ERROR, STALE, FATAL
	pods          map[string]Desired
}

// Pods lists the pods' desired stages by name.
func (s *Snapshot) Pods() []Desired {
	list := make([]Desired, 0, len(s.pods))
	for _, d := range s.pods {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Desired) int {
		if a.Pod < b.Pod {
			return -1
		}
		return 1
	})
	return list
}

// FlagsConfig configures Flags. Zero durations mean the default.
type FlagsConfig struct {
	// Provider is a FileProvider or any other. Flags initializes it and shuts
	// it down; it must not be bound to another API. Required.
	Provider openfeature.FeatureProvider
	Pods     []string // required
	// PollEvery is how often the flag is evaluated without an event; 1 s.
	PollEvery time.Duration
	// InitTimeout is how long OpenFlags waits for the provider; 2 s. It goes
	// on initializing afterwards.
	InitTimeout time.Duration
	// EvaluateTimeout bounds one evaluation; 2 s.
	EvaluateTimeout time.Duration
	// FlapWindow is the time over which changes of a desired stage are
	// counted; 1 min.
	FlapWindow time.Duration
	// OnChange, when set, is called after an evaluation that changed a pod's
	// desired stage or whether it is known. It must not block.
	OnChange func()
	// Logger hears once when the provider can't be initialized, and when a pod's
	// desired stage becomes unknown or known.
	Logger *slog.Logger
}

// Flags keeps the desired stages of the pods.
type Flags struct {
	cfg      FlagsConfig
	log      *slog.Logger
	api      *openfeature.EvaluationAPI
	client   *openfeature.Client
	snapshot atomic.Pointer[Snapshot]
	wake     chan struct{}
	cancel   context.CancelFunc // ends the provider's initialization

	mu      sync.Mutex // one evaluation at a time; guards what follows
	changes map[string][]time.Time

	closing sync.Once
	closed  error
}

// OpenFlags binds the provider to an API of its own, waits for it a while and
// evaluates once. A provider that is not ready is no error: its pods' desired
// stages are unknown until it is. Run keeps them fresh; Close ends it all.
func OpenFlags(ctx context.Context, cfg FlagsConfig) (*Flags, error) {
	if cfg.Provider == nil || len(cfg.Pods) == 0 {
		return nil, errors.New("rollout: flags need a provider and at least one pod")
	}
	for i, pod := range cfg.Pods {
		if pod == "" || slices.Contains(cfg.Pods[:i], pod) {
			return nil, fmt.Errorf("rollout: pod %q is empty or there twice", pod)
		}
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"PollEvery", &cfg.PollEvery, time.Second},
		{"InitTimeout", &cfg.InitTimeout, 2 * time.Second},
		{"EvaluateTimeout", &cfg.EvaluateTimeout, 2 * time.Second},
		{"FlapWindow", &cfg.FlapWindow, time.Minute},
	} {
		if *d.value < 0 {
			return nil, fmt.Errorf("rollout: %s is negative: %s", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	f := &Flags{cfg: cfg, log: log, api: isolated.NewAPI(), wake: make(chan struct{}, 1), changes: map[string][]time.Time{}}
	f.snapshot.Store(&Snapshot{})
	f.client = f.api.NewClient()

	// Handlers are added before the provider is set and never from inside a
	// handler, and they do nothing but wake Run: the SDK calls them under its
	// lock, and its events may be lost or come in any order.
	var message atomic.Pointer[string]
	nudge := func(details openfeature.EventDetails) {
		message.Store(&details.Message)
		f.Nudge()
	}
	for _, t := range []openfeature.EventType{openfeature.ProviderReady, openfeature.ProviderConfigChange, openfeature.ProviderStale, openfeature.ProviderError} {
		f.client.AddHandler(t, &nudge)
	}

	// The provider's initialization may outlive the wait here, so that it has
	// a context of its own, ended by Close. It is set here and not in a goroutine:
	// setting one after the API's shutdown would panic.
	initCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	if err := f.api.SetProvider(initCtx, cfg.Provider); err != nil {
		cancel()
		return nil, fmt.Errorf("rollout: the flag provider can't be used: %w", err)
	}
	wait := time.NewTimer(cfg.InitTimeout)
	defer wait.Stop()
	for waiting := true; waiting && f.client.State() == openfeature.NotReadyState; {
		select {
		case <-f.wake:
		case <-wait.C:
			waiting = false
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close(context.WithoutCancel(ctx)))
		}
	}
	if state := f.client.State(); state != openfeature.ReadyState {
		var said string
		if m := message.Load(); m != nil {
			said = *m
		}
		log.Warn("the flag provider is not ready: desired stages are unknown until it is", "state", string(state), "err", said)
	}
	f.Evaluate(ctx)
	return f, nil
}

// Close shuts the provider down. Desired keeps answering with what was known.
// Stop Run first.
func (f *Flags) Close(ctx context.Context) error {
	f.closing.Do(func() {
		f.cancel()
		f.closed = f.api.Shutdown(ctx)
	})
	return f.closed
}

// Nudge asks Run for an evaluation soon. It never blocks.
func (f *Flags) Nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run evaluates on every event and on a clock until ctx ends; it returns nil.
func (f *Flags) Run(ctx context.Context) error {
	tick := time.NewTicker(f.cfg.PollEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.wake:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		f.Evaluate(ctx)
	}
}

// Desired is what the flag says about pod: one atomic load. A pod that was not
// configured is not known.
func (f *Flags) Desired(pod string) Desired {
	if d, ok := f.snapshot.Load().pods[pod]; ok {
		return d
	}
	return Desired{Pod: pod, Err: "the flag was not evaluated for this pod"}
}

// Snapshot is what the flag says about all pods: one atomic load.
func (f *Flags) Snapshot() *Snapshot { return f.snapshot.Load() }

// Evaluate evaluates the flag for every pod now, as Run does.
func (f *Flags) Evaluate(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return // an evaluation cut short says nothing about the flag
	}
	before := f.snapshot.Load()
	now := time.Now().UTC()
	state := f.client.State()
	next := &Snapshot{At: now, Provider: f.cfg.Provider.Metadata().Name, ProviderState: string(state), pods: make(map[string]Desired, len(f.cfg.Pods))}
	var changed bool
	for _, pod := range f.cfg.Pods {
		was := before.pods[pod]
		d := f.evaluatePod(ctx, pod, was, now)
		if ctx.Err() != nil {
			return
		}
		d.Stale = state == openfeature.StaleState
		if d.Known && was.Stage != holdover.StageUnknown && d.Stage != was.Stage {
			f.changes[pod] = append(f.changes[pod], now)
		}
		f.changes[pod] = slices.DeleteFunc(f.changes[pod], func(t time.Time) bool { return now.Sub(t) > f.cfg.FlapWindow })
		d.Changes = len(f.changes[pod])
		if d.Known != was.Known || d.Stage != was.Stage {
			changed = true
			f.logChange(was, d, before.At.IsZero())
		}
		next.pods[pod] = d
	}
	f.snapshot.Store(next)
	if changed && f.cfg.OnChange != nil {
		f.cfg.OnChange()
	}
}

func (f *Flags) logChange(was, d Desired, first bool) {
	log := f.log.With("pod", d.Pod)
	switch {
	case d.Known:
		log.Info("desired stage", "stage", d.Stage.String(), "variant", d.Variant, "flag_reason", d.Reason, "was", was.Stage.String())
	case was.Known || first:
		log.Warn("desired stage is unknown: the pod stays where it is", "err", d.Err, "last_good", d.Stage.String())
	}
}

// evaluatePod asks the provider; what is no stage keeps the last good one.
func (f *Flags) evaluatePod(ctx context.Context, pod string, was Desired, now time.Time) (d Desired) {
	unknown := func(problem string) Desired {
		kept := was
		kept.Pod, kept.Known, kept.Err, kept.At = pod, false, problem, now
		return kept
	}
	defer func() {
		if p := recover(); p != nil {
			d = unknown(fmt.Sprintf("the provider panicked: %v", p))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, f.cfg.EvaluateTimeout)
	defer cancel()
	// The default that OpenFeature wants is no stage on purpose: a provider
	// that has no configuration can't choose one by giving it back.
	got, err := f.client.StringValueDetails(ctx, StageFlag, "", openfeature.NewEvaluationContext(pod, map[string]any{PodAttribute: pod}))
	if err != nil {
		return unknown(fmt.Sprintf("flag %s: %v", StageFlag, err))
	}
	stage, err := holdover.ParseStage(got.Value)
	if err != nil {
		if got.Value == "" {
			return unknown(fmt.Sprintf("flag %s has no value (reason %s): the provider has no configuration for it", StageFlag, got.Reason))
		}
		return unknown(fmt.Sprintf("flag %s, variant %s: %v", StageFlag, quote(got.Variant), err))
	}
	return Desired{Pod: pod, Known: true, Stage: stage, Variant: got.Variant, Reason: string(got.Reason), At: now, GoodAt: now}
}
