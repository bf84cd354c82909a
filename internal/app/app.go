package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"holdover"
	"holdover/internal/httpapi"
	"holdover/rollout"
)

// App is one process: pods, flags, the driver of their stages, and the API.
type App struct {
	Pods   []*Pod
	Flags  *rollout.Flags // nil without a flag source: the fence rules
	Driver *rollout.Driver

	cfg     Config
	handler http.Handler

	reporting sync.Mutex // one report at a time is made here
}

// New validates c and builds everything. Nothing runs yet. Close it, whether or
// not it was run.
func New(ctx context.Context, c Config) (_ *App, err error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("configuration:\n%w", err)
	}
	a := &App{cfg: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close(ctx))
		}
	}()
	var names []string
	for _, p := range c.Pods {
		pod, err := OpenPod(ctx, c, p)
		if err != nil {
			return nil, err
		}
		a.Pods, names = append(a.Pods, pod), append(names, p.Name)
	}
	desired := func(pod string) rollout.Desired {
		return rollout.Desired{Pod: pod, Err: "no flag source is configured: the fence rules"}
	}
	if c.Flags.File != "" {
		provider, err := rollout.NewFileProvider(rollout.FileConfig{Path: c.Flags.File, PollEvery: c.Flags.Poll, Logger: c.Logger})
		if err != nil {
			return nil, err
		}
		if a.Flags, err = rollout.OpenFlags(ctx, rollout.FlagsConfig{Provider: provider, Pods: names, PollEvery: c.Flags.Poll, Logger: c.Logger}); err != nil {
			return nil, err
		}
		desired = a.Flags.Desired
	}
	driven := make([]rollout.Pod, len(a.Pods))
	for i, pod := range a.Pods {
		driven[i] = drivenPod{pod}
	}
	a.Driver, err = rollout.NewDriver(rollout.DriverConfig{
		Pods: driven, Desired: desired, By: c.Instance, Interval: c.Timing.Drive, Dwell: c.Timing.Dwell, StepTimeout: 15*time.Second + 10*c.Timing.Recheck, Logger: c.Logger,
	})
	if err != nil {
		return nil, err
	}
	a.handler, err = a.api()
	return a, err
}

func (a *App) api() (http.Handler, error) {
	registry := prometheus.NewRegistry()
	panics := prometheus.NewCounter(prometheus.CounterOpts{Name: "holdover_http_panics_total", Help: "Panics of HTTP handlers, contained."})
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), panics, newMetrics(a))
	pods := make([]httpapi.Pod, len(a.Pods))
	for i, pod := range a.Pods {
		pods[i] = httpapi.Pod{Name: pod.Name, Shops: pod.Serves, Reserver: pod.withoutReserved(counted{pod.Facade, pod.hottest}), Operator: operator{app: a, pod: pod}}
	}
	return httpapi.New(httpapi.Config{
		Pods: pods, OperatorToken: a.cfg.OperatorToken, Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		Ready: a.Ready, Version: a.cfg.Version, Limits: a.cfg.Limits(), DefaultTTL: a.cfg.DefaultTTL,
		OnPanic: panics.Inc, Logger: a.cfg.Logger,
	})
}

// Handler is the HTTP API.
func (a *App) Handler() http.Handler { return a.handler }

// Ready reports whether this instance should get traffic: every pod works with
// an agreed stage.
func (a *App) Ready() (bool, []string) {
	var why []string
	for _, pod := range a.Pods {
		if _, err := pod.Facade.Agreed(); err != nil {
			reason := err.Error()
			if d := a.desired(pod.Name); d.Err != "" {
				reason += "; flag: " + d.Err
			}
			why = append(why, reason)
		}
	}
	return len(why) == 0, why
}

func (a *App) desired(pod string) rollout.Desired {
	if a.Flags == nil {
		return rollout.Desired{Pod: pod, Err: "no flag source is configured: the fence rules"}
	}
	return a.Flags.Desired(pod)
}

// Pod finds a pod by its name.
func (a *App) Pod(name string) (*Pod, error) {
	for _, p := range a.Pods {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, &holdover.InvalidError{Field: "pod", Value: name, Problem: "is not configured"}
}

// Run runs everything but the listener until ctx ends.
func (a *App) Run(ctx context.Context) error {
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		errs    []error
	)
	start := func(run func(context.Context) error) {
		running.Go(func() {
			if err := run(ctx); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	for _, pod := range a.Pods {
		start(pod.Run)
	}
	if a.Flags != nil {
		start(a.Flags.Run)
	}
	start(a.Driver.Run)
	running.Wait()
	return errors.Join(errs...)
}

// Serve listens on the configured address and runs until ctx ends; then it
// stops taking calls, lets those under way finish, and returns.
func (a *App) Serve(ctx context.Context, listening func(addr string)) error {
	listener, err := net.Listen("tcp", a.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", a.cfg.Listen, err)
	}
	server := httpapi.Server(a.cfg.Listen, a.handler)
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- a.Run(background) }()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if listening != nil {
		listening(listener.Addr().String())
	}
	select {
	case err = <-served: // the listener broke
	case <-ctx.Done():
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Timing.Call+3*time.Second)
		defer cancel()
		if err = server.Shutdown(drain); err != nil {
			err = fmt.Errorf("calls were still under way after the drain and were cut off: %w", errors.Join(err, server.Close()))
		}
		<-served
	}
	stop()
	return errors.Join(err, <-ran)
}

// Close closes flags and pods, in reverse order.
func (a *App) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var errs []error
	if a.Flags != nil {
		errs = append(errs, a.Flags.Close(ctx))
	}
	for i := len(a.Pods) - 1; i >= 0; i-- {
		errs = append(errs, a.Pods[i].Close(ctx))
	}
	return errors.Join(errs...)
}
