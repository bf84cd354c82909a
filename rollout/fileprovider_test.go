package rollout_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-feature/go-sdk/openfeature"
	"go.uber.org/goleak"

	"holdover/rollout"
)

// only is a good file that wants one stage for every pod.
func only(stage string) string {
	return `{"flags":{"holdover-stage":{"state":"ENABLED",` + variants + `,"defaultVariant":"` + stage + `"}}}`
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// until polls for a condition that another goroutine brings about.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("did not happen: %s", what)
		}
	}
}

func newFile(t *testing.T, path string) *rollout.FileProvider {
	t.Helper()
	p, err := rollout.NewFileProvider(rollout.FileConfig{Path: path, PollEvery: time.Millisecond, MaxBytes: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// polled is a provider that polls until the test ends.
func polled(t *testing.T, path string) (*rollout.FileProvider, error) {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	p := newFile(t, path)
	err := p.Init(openfeature.EvaluationContext{})
	t.Cleanup(func() {
		p.Shutdown()
		p.Shutdown() // twice is no harm
		goleak.VerifyNone(t, leaks)
	})
	return p, err
}

// says is the provider's value for the pod, or its error code.
func says(p *rollout.FileProvider, pod string) string {
	got := p.StringEvaluation(context.Background(), rollout.StageFlag, "", openfeature.FlattenedContext{"pod": pod})
	if err := got.Error(); err != nil {
		return strings.SplitN(err.Error(), ":", 2)[0]
	}
	return got.Value
}

func TestFileIsTakenOverWholeAndTheLastGoodOneKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stages.json")
	write(t, path, only("shadow"))
	p, err := polled(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if got := says(p, "a"); got != "shadow" {
		t.Fatalf("says %s", got)
	}
	loaded := p.Status().LoadedAt
	for _, c := range []struct {
		name string
		make func()
		want string // of the error
	}{
		{"half written", func() { write(t, path, only("mysql")[:80]) }, "half written"},
		{"empty", func() { write(t, path, "") }, "empty"},
		{"unknown operator", func() { write(t, path, file(`{"if":[{"starts":[{"var":"pod"},"a"]},"mysql"]}`)) }, "targeting.if[0].starts"},
		{"too large", func() { write(t, path, strings.Repeat(" ", 10_000)+only("mysql")) }, "larger than"},
		{"deleted", func() { os.Remove(path) }, "no such file"},
		{"a folder", func() { os.Mkdir(path, 0o700) }, "not a regular file"},
	} {
		c.make()
		until(t, c.name+" is noticed", func() bool { return strings.Contains(p.Status().Err, c.want) })
		if got := says(p, "a"); got != "shadow" {
			t.Errorf("%s: says %s, not the last good", c.name, got)
		}
		if s := p.Status(); s.ErrSince.IsZero() || !s.LoadedAt.Equal(loaded) {
			t.Errorf("%s: status is %+v", c.name, s)
		}
	}
	os.Remove(path)
	write(t, path, only("joint"))
	until(t, "the new file is used", func() bool { return says(p, "a") == "joint" })
	if s := p.Status(); s.Err != "" || !s.ErrSince.IsZero() {
		t.Errorf("status is %+v", s)
	}
}

func TestFileSwappedAsALinkOrRestoredWithAnOlderTimeIsSeen(t *testing.T) {
	dir := t.TempDir()
	for _, stage := range []string{"redis", "shadow"} {
		write(t, filepath.Join(dir, stage), only(stage))
	}
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "shadow"), old, old); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "stages.json")
	if err := os.Symlink("redis", path); err != nil {
		t.Fatal(err)
	}
	p, err := polled(t, path)
	if err != nil || says(p, "a") != "redis" {
		t.Fatalf("says %s, %v", says(p, "a"), err)
	}
	// A ConfigMap: a new link is renamed over the old one; what it points to is older.
	next := filepath.Join(dir, "next")
	if err := os.Symlink("shadow", next); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
	until(t, "the link is followed", func() bool { return says(p, "a") == "shadow" })

	// The same size and the same time, another content.
	target := filepath.Join(dir, "shadow")
	write(t, target, strings.Replace(only("shadow"), `"defaultVariant":"shadow"`, `"defaultVariant":"joint" `, 1))
	if err := os.Chtimes(target, old, old); err != nil {
		t.Fatal(err)
	}
	until(t, "the content is compared", func() bool { return says(p, "a") == "joint" })
}

func TestFileThatIsBrokenAtTheStartIsNotReadyAndRecovers(t *testing.T) {
	for name, content := range map[string]string{"missing": "", "wrong": `{"flags":{}}`} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "stages.json")
			if content != "" {
				write(t, path, content)
			}
			p, err := polled(t, path)
			if err == nil {
				t.Error("Init reports nothing")
			}
			if got := says(p, "a"); got != string(openfeature.ProviderNotReadyCode) {
				t.Errorf("says %s", got)
			}
			write(t, path, only("redis"))
			until(t, "the file is used", func() bool { return says(p, "a") == "redis" })
		})
	}
}

func TestFileProviderAnswersNothingButTheStageOfAPod(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stages.json")
	write(t, path, file(`{"if":[{"==":[{"var":"pod"},"a"]},"mysql"]}`))
	p, err := polled(t, path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, pod := t.Context(), openfeature.FlattenedContext{"pod": "a"}
	for what, c := range map[string]struct {
		got  error
		code openfeature.ErrorCode
	}{
		"another flag":  {p.StringEvaluation(ctx, "x", "", pod).Error(), openfeature.FlagNotFoundCode},
		"no pod":        {p.StringEvaluation(ctx, rollout.StageFlag, "", openfeature.FlattenedContext{"targetingKey": "a"}).Error(), openfeature.InvalidContextCode},
		"a boolean":     {p.BooleanEvaluation(ctx, rollout.StageFlag, true, pod).Error(), openfeature.TypeMismatchCode},
		"a float":       {p.FloatEvaluation(ctx, rollout.StageFlag, 1, pod).Error(), openfeature.TypeMismatchCode},
		"an integer":    {p.IntEvaluation(ctx, rollout.StageFlag, 1, pod).Error(), openfeature.TypeMismatchCode},
		"an object":     {p.ObjectEvaluation(ctx, rollout.StageFlag, nil, pod).Error(), openfeature.TypeMismatchCode},
		"other boolean": {p.BooleanEvaluation(ctx, "x", true, pod).Error(), openfeature.FlagNotFoundCode},
	} {
		if c.got == nil || !strings.HasPrefix(c.got.Error(), string(c.code)) {
			t.Errorf("%s: error is %v, want %s", what, c.got, c.code)
		}
	}
	for pod, want := range map[string]openfeature.Reason{"a": openfeature.TargetingMatchReason, "b": openfeature.DefaultReason} {
		if got := p.StringEvaluation(ctx, rollout.StageFlag, "", openfeature.FlattenedContext{"pod": pod}); got.Reason != want {
			t.Errorf("pod %s: reason %s, want %s", pod, got.Reason, want)
		}
	}
}

func TestFileProviderInitAfterShutdownStartsNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	path := filepath.Join(t.TempDir(), "stages.json")
	write(t, path, only("redis"))
	p := newFile(t, path)
	p.Shutdown()
	if err := p.Init(openfeature.EvaluationContext{}); err == nil {
		p.Shutdown()
		t.Error("it was initialized")
	}
}
