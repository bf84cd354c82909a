package rollout_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/open-feature/go-sdk/openfeature"
	"go.uber.org/goleak"

	"holdover"
	"holdover/rollout"
)

// anyProvider is a provider of somebody else's.
type anyProvider struct {
	openfeature.NoopProvider
	mu     sync.Mutex
	answer func(fallback string, flat openfeature.FlattenedContext) openfeature.StringResolutionDetail
}

func (p *anyProvider) set(answer func(string, openfeature.FlattenedContext) openfeature.StringResolutionDetail) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *anyProvider) StringEvaluation(_ context.Context, _ string, fallback string, flat openfeature.FlattenedContext) openfeature.StringResolutionDetail {
	p.mu.Lock()
	answer := p.answer
	p.mu.Unlock()
	return answer(fallback, flat)
}

func value(v string) func(string, openfeature.FlattenedContext) openfeature.StringResolutionDetail {
	return func(string, openfeature.FlattenedContext) openfeature.StringResolutionDetail {
		return openfeature.StringResolutionDetail{Value: v, ProviderResolutionDetail: openfeature.ProviderResolutionDetail{
			Variant: v, Reason: openfeature.TargetingMatchReason}}
	}
}

// openFlags are flags that close with the test; nothing may be left running.
func openFlags(t *testing.T, cfg rollout.FlagsConfig) *rollout.Flags {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	f, err := rollout.OpenFlags(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 { // twice is no harm
			if err := f.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
		goleak.VerifyNone(t, leaks)
	})
	return f
}

// run runs the flags until the test ends.
func run(t *testing.T, do func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Error("it does not stop")
		}
	})
}

func TestFlagsFollowTheFilePodByPod(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stages.json")
	write(t, path, file(`{"if":[{"==":[{"var":"pod"},"a"]},"mysql"]}`))
	var changes atomic.Int64
	f := openFlags(t, rollout.FlagsConfig{Provider: newFile(t, path), Pods: []string{"a", "b"}, PollEvery: time.Hour, // events alone
		OnChange: func() { changes.Add(1) }})
	a, b := f.Desired("a"), f.Desired("b")
	if !a.Known || a.Stage != holdover.StageMySQL || a.Variant != "mysql" || a.Reason != "TARGETING_MATCH" || a.GoodAt.IsZero() {
		t.Errorf("a is %+v", a)
	}
	if !b.Known || b.Stage != holdover.StageRedis || b.Reason != "DEFAULT" {
		t.Errorf("b is %+v", b)
	}
	if c := f.Desired("c"); c.Known || c.Err == "" {
		t.Errorf("a pod nobody configured is %+v", c)
	}
	run(t, f.Run)
	write(t, path, only("joint"))
	until(t, "the change is followed", func() bool {
		return f.Desired("a").Stage == holdover.StageJoint && f.Desired("b").Stage == holdover.StageJoint
	})
	if f.Desired("a").Reason != "STATIC" || changes.Load() < 2 {
		t.Errorf("a is %+v after %d changes", f.Desired("a"), changes.Load())
	}
	// The file goes bad: what it said holds, and it is said that it is old.
	os.Remove(path)
	until(t, "staleness is told", func() bool { return f.Desired("a").Stale })
	if a := f.Desired("a"); !a.Known || a.Stage != holdover.StageJoint || f.Snapshot().ProviderState != "STALE" {
		t.Errorf("a is %+v, provider is %s", a, f.Snapshot().ProviderState)
	}
	write(t, path, only("joint"))
	until(t, "staleness ends", func() bool { return !f.Desired("a").Stale })
}

func TestFlagsStartWithABrokenFileAndRecover(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stages.json")
	f := openFlags(t, rollout.FlagsConfig{Provider: newFile(t, path), Pods: []string{"a"}, PollEvery: time.Hour})
	if a := f.Desired("a"); a.Known || a.Stage != holdover.StageUnknown || a.Err == "" {
		t.Errorf("a is %+v", a)
	}
	run(t, f.Run)
	write(t, path, only("shadow"))
	until(t, "the file is used", func() bool { a := f.Desired("a"); return a.Known && a.Stage == holdover.StageShadow })
}

// What is no answer is unknown, whatever a provider calls it, and keeps the
// last good one in sight.
func TestWhatIsNoStageIsUnknown(t *testing.T) {
	p := &anyProvider{answer: value("joint")}
	f := openFlags(t, rollout.FlagsConfig{Provider: p, Pods: []string{"a"}})
	good := f.Desired("a")
	if !good.Known || good.Stage != holdover.StageJoint {
		t.Fatalf("a is %+v", good)
	}
	for name, answer := range map[string]func(string, openfeature.FlattenedContext) openfeature.StringResolutionDetail{
		"the default given back": func(fallback string, _ openfeature.FlattenedContext) openfeature.StringResolutionDetail {
			return openfeature.StringResolutionDetail{Value: fallback, ProviderResolutionDetail: openfeature.ProviderResolutionDetail{Reason: openfeature.DefaultReason}}
		},
		"a word":        value("on"),
		"another case":  value("MySQL"),
		"with a space":  value("mysql "),
		"the zero word": value("unknown"),
		"an error with a stage beside it": func(string, openfeature.FlattenedContext) openfeature.StringResolutionDetail {
			return openfeature.StringResolutionDetail{Value: "mysql", ProviderResolutionDetail: openfeature.ProviderResolutionDetail{
				ResolutionError: openfeature.NewGeneralResolutionError("timeout"), Reason: openfeature.CachedReason}}
		},
		"a panic": func(string, openfeature.FlattenedContext) openfeature.StringResolutionDetail {
			panic("broken provider")
		},
	} {
		p.set(answer)
		f.Evaluate(t.Context())
		a := f.Desired("a")
		if a.Known || a.Stage != holdover.StageJoint || a.Err == "" || !a.GoodAt.Equal(good.GoodAt) || a.Reason != good.Reason || !a.At.After(a.GoodAt) {
			t.Errorf("%s: a is %+v", name, a)
		}
	}
	p.set(value("mysql"))
	f.Evaluate(t.Context())
	if a := f.Desired("a"); !a.Known || a.Stage != holdover.StageMySQL || a.Err != "" {
		t.Errorf("a is %+v", a)
	}
}

func TestAProviderWithoutAnyConfigurationChoosesNothing(t *testing.T) {
	f := openFlags(t, rollout.FlagsConfig{Provider: openfeature.NoopProvider{}, Pods: []string{"a"}})
	if a := f.Desired("a"); a.Known || !strings.Contains(a.Err, "no value") {
		t.Errorf("a is %+v", a)
	}
}

func TestFlagsPassThePodAsKeyAndAttribute(t *testing.T) {
	seen := map[string]string{}
	p := &anyProvider{answer: func(_ string, flat openfeature.FlattenedContext) openfeature.StringResolutionDetail {
		seen[flat["targetingKey"].(string)] = flat["pod"].(string)
		return value("redis")("", flat)
	}}
	openFlags(t, rollout.FlagsConfig{Provider: p, Pods: []string{"a", "b"}})
	if len(seen) != 2 || seen["a"] != "a" || seen["b"] != "b" {
		t.Errorf("the provider saw %v", seen)
	}
}

func TestDisagreeingSourcesAreCounted(t *testing.T) {
	p := &anyProvider{answer: value("shadow")}
	f := openFlags(t, rollout.FlagsConfig{Provider: p, Pods: []string{"a"}, FlapWindow: time.Hour})
	for _, v := range []string{"joint", "shadow", "joint", "joint", "on", "joint"} {
		p.set(value(v))
		f.Evaluate(t.Context())
	}
	if a := f.Desired("a"); a.Changes != 3 {
		t.Errorf("%d changes, want 3", a.Changes)
	}
}

// slowProvider initializes when it is let.
type slowProvider struct {
	anyProvider
	begin   chan struct{}
	stopped chan struct{}
}

func (p *slowProvider) Init(openfeature.EvaluationContext) error { <-p.begin; return nil }
func (p *slowProvider) Shutdown()                                { close(p.stopped) }

func TestASlowProviderHoldsNothingUp(t *testing.T) {
	p := &slowProvider{begin: make(chan struct{}), stopped: make(chan struct{})}
	p.answer = value("shadow")
	leaks := goleak.IgnoreCurrent()
	f, err := rollout.OpenFlags(t.Context(), rollout.FlagsConfig{Provider: p, Pods: []string{"a"}, InitTimeout: time.Millisecond, PollEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if a := f.Desired("a"); a.Known {
		t.Errorf("a is %+v before the provider is there", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- f.Run(ctx) }()
	close(p.begin)
	until(t, "the provider is used", func() bool { return f.Desired("a").Known })
	cancel()
	<-done
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	<-p.stopped
	goleak.VerifyNone(t, leaks)
}

func TestOpenFlagsCancelledWhileTheProviderInitializes(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	p := &slowProvider{begin: make(chan struct{}), stopped: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rollout.OpenFlags(ctx, rollout.FlagsConfig{Provider: p, Pods: []string{"a"}}); err == nil {
		t.Error("no error")
	}
	<-p.stopped
	close(p.begin)
	goleak.VerifyNone(t, leaks)
}

func TestTwoFlagsCantShareAProvider(t *testing.T) {
	p := &anyProvider{answer: value("redis")}
	openFlags(t, rollout.FlagsConfig{Provider: p, Pods: []string{"a"}})
	if _, err := rollout.OpenFlags(t.Context(), rollout.FlagsConfig{Provider: p, Pods: []string{"a"}}); err == nil {
		t.Error("no error")
	}
}
