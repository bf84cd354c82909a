package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"holdover"
)

// Pod is what the driver asks of one pod. Every call has a deadline.
type Pod interface {
	// Name is the pod's name, as the flag knows it.
	Name() string
	// Agreed is the larger of both stores' fences; holdover.ErrNoFence when
	// both answered and neither has one.
	Agreed(ctx context.Context) (holdover.Fence, error)
	// Init writes the first fence, stage redis, if both stores are reachable
	// and neither has one.
	Init(ctx context.Context, by, reason string) (holdover.Fence, error)
	// Ready says whether the pod may go to this neighbouring stage now. The
	// error is for a question that could not be answered, which is a no.
	Ready(ctx context.Context, to holdover.Stage) (Readiness, error)
	// Step takes both fences from from to stage to at the next epoch, Redis
	// first by compare-and-set. A *holdover.StaleError says that somebody was
	// faster. A newer fence together with an error: the step is agreed, and the
	// error says which store does not have it yet.
	Step(ctx context.Context, from holdover.Fence, to holdover.Stage, by, reason string) (holdover.Fence, error)
}

// Readiness answers whether a pod may take a step; when not, why.
type Readiness struct {
	OK      bool
	Reasons []Reason
}

// Reason is one thing that a pod waits for.
type Reason struct {
	Code   string  `json:"code"`             // stable, for programs: "latched", "dwell", "journal", ...
	Text   string  `json:"text"`             // one sentence
	Number float64 `json:"number,omitempty"` // how many or how long (seconds), where that says something
	Do     string  `json:"do,omitempty"`     // what to do about it, if anything
}

// The codes of the driver's own reasons.
const (
	CodeFence       = "fence-unreadable" // the agreed fence can't be read
	CodeNotReady    = "not-initialized"  // no fence and no flag
	CodeLatched     = "latched"
	CodeFlagUnknown = "flag-unknown"
	CodeMySQLOnly   = "needs-confirmation" // mysql-only is neither entered nor left by the flag alone
	CodeDwell       = "dwell"
	CodeReadiness   = "readiness-unknown" // readiness could not be computed
	CodeStep        = "step-failed"
	CodeFlaps       = "flag-flaps" // a warning: the desired stage keeps changing
	CodeFlagStale   = "flag-stale" // a warning: the provider serves old content
)

// PodStatus is where one pod stands. Waiting is empty when the pod is where
// it should be, or has just taken a step.
type PodStatus struct {
	Pod       string         `json:"pod"`
	HasFence  bool           `json:"has_fence"`
	Agreed    holdover.Fence `json:"agreed"` // the last one read
	Desired   Desired        `json:"desired"`
	Next      holdover.Stage `json:"next"` // the step under way or waited for; the agreed stage when there is none
	Waiting   []Reason       `json:"waiting"`
	Warnings  []Reason       `json:"warnings"`
	LastStep  *StepRecord    `json:"last_step,omitempty"` // of this process
	LastErr   string         `json:"last_err,omitempty"`  // of the last round; empty when it went well
	CheckedAt time.Time      `json:"checked_at"`          // when the last round ended
	Since     time.Time      `json:"since,omitzero"`      // when this process first saw the agreed epoch
}

// StepRecord is a step that this driver took.
type StepRecord struct {
	From holdover.Fence `json:"from"`
	To   holdover.Fence `json:"to"`
	At   time.Time      `json:"at"`
	Took time.Duration  `json:"took_ns"`
}

// DriverConfig configures a Driver. Zero fields mean the default.
type DriverConfig struct {
	Pods []Pod // required
	// Desired is asked in every round; Flags.Desired. Required.
	Desired func(pod string) Desired
	// By is kept with each fence that the driver writes: which instance. Required.
	By string
	// Interval is the time between two rounds of a pod; 1 s.
	Interval time.Duration
	// Dwell is the least time in a stage before the next step, counted from
	// when this process first saw it, so that a restart waits anew; 30 s.
	// Negative: none, as in tests and the demo.
	Dwell time.Duration
	// CallTimeout bounds each call to a pod; 5 s.
	CallTimeout time.Duration
	// StepTimeout bounds a step and what readiness looks at; 15 s.
	StepTimeout time.Duration
	// MaxFlagAge: a desired stage that was evaluated longer ago counts as
	// unknown, as when a provider hangs; 1 min.
	MaxFlagAge time.Duration
	// FlapsAt: this many changes of the desired stage within FlagsConfig's
	// FlapWindow are reported as a warning; 3.
	FlapsAt int
	// OnStep, when set, is called after each step that was taken. It must not block.
	OnStep func(StepRecord)
	// Logger gets each decision once per change.
	Logger *slog.Logger
}

// Driver takes pods to their desired stages.
type Driver struct {
	cfg  DriverConfig
	pods []*drivenPod
}

type drivenPod struct {
	pod    Pod
	log    *slog.Logger
	wake   chan struct{}
	status atomic.Pointer[PodStatus]

	mu    sync.Mutex // one round at a time; guards what follows
	said  string     // the last decision logged
	epoch holdover.Epoch
	since time.Time // with its monotonic part
}

// maxBy is the longest name that a fence keeps.
const maxBy = 64

// NewDriver checks the configuration; Run does the work.
func NewDriver(cfg DriverConfig) (*Driver, error) {
	switch {
	case len(cfg.Pods) == 0 || cfg.Desired == nil || cfg.By == "":
		return nil, errors.New("rollout: a driver needs pods, Desired and By")
	case len(cfg.By) > maxBy:
		return nil, fmt.Errorf("rollout: By is longer than %d bytes", maxBy)
	case cfg.Interval < 0 || cfg.CallTimeout < 0 || cfg.StepTimeout < 0 || cfg.MaxFlagAge < 0 || cfg.FlapsAt < 0:
		return nil, errors.New("rollout: only Dwell can be negative")
	}
	if cfg.Interval == 0 {
		cfg.Interval = time.Second
	}
	if cfg.Dwell == 0 {
		cfg.Dwell = 30 * time.Second
	}
	cfg.Dwell = max(cfg.Dwell, 0)
	if cfg.CallTimeout == 0 {
		cfg.CallTimeout = 5 * time.Second
	}
	if cfg.StepTimeout == 0 {
		cfg.StepTimeout = 15 * time.Second
	}
	if cfg.MaxFlagAge == 0 {
		cfg.MaxFlagAge = time.Minute
	}
	if cfg.FlapsAt == 0 {
		cfg.FlapsAt = 3
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &Driver{cfg: cfg}
	names := map[string]bool{}
	for _, pod := range cfg.Pods {
		name := pod.Name()
		if names[name] {
			return nil, fmt.Errorf("rollout: pod %q is there twice", name)
		}
		names[name] = true
		p := &drivenPod{pod: pod, log: log.With("pod", name), wake: make(chan struct{}, 1)}
		p.status.Store(&PodStatus{Pod: name, Waiting: []Reason{{Code: CodeNotReady, Text: "the driver has not looked at this pod yet"}}, Warnings: []Reason{}})
		d.pods = append(d.pods, p)
	}
	return d, nil
}

// Run does rounds until ctx ends, each pod on its own so that a slow one holds
// up no other; it returns nil when all have stopped.
func (d *Driver) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, p := range d.pods {
		running.Go(func() {
			tick := time.NewTicker(d.cfg.Interval)
			defer tick.Stop()
			for {
				d.round(ctx, p)
				select {
				case <-tick.C:
				case <-p.wake:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	running.Wait()
	return nil
}

// Nudge asks for a round of every pod soon, as when a flag has changed. It
// never blocks.
func (d *Driver) Nudge() {
	for _, p := range d.pods {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// Round does one round of every pod and returns when all are done.
func (d *Driver) Round(ctx context.Context) {
	var rounds sync.WaitGroup
	for _, p := range d.pods {
		rounds.Go(func() { d.round(ctx, p) })
	}
	rounds.Wait()
}

// Status says where every pod stands, in the order of the configuration.
func (d *Driver) Status() []PodStatus {
	all := make([]PodStatus, len(d.pods))
	for i, p := range d.pods {
		all[i] = *p.status.Load()
	}
	return all
}

// PodStatus says where one pod stands: one atomic load. False for a pod that
// the driver does not have.
func (d *Driver) PodStatus(pod string) (PodStatus, bool) {
	for _, p := range d.pods {
		if s := p.status.Load(); s.Pod == pod {
			return *s, true
		}
	}
	return PodStatus{}, false
}

// round looks at one pod, takes at most one step, and publishes what came of it.
func (d *Driver) round(ctx context.Context, p *drivenPod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.status.Load()
	now := PodStatus{Pod: was.Pod, HasFence: was.HasFence, Agreed: was.Agreed, LastStep: was.LastStep, Waiting: []Reason{}, Warnings: []Reason{}}
	decision := d.decide(ctx, p, &now)
	if ctx.Err() != nil {
		return // a round cut short says nothing about the pod
	}
	now.CheckedAt, now.Since = time.Now().UTC(), p.since.UTC()
	p.status.Store(&now)
	p.say(now, decision)
}
