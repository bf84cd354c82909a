package rollout_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/rollout"
)

// podStub is a pod with one fence in memory.
type podStub struct {
	mu    sync.Mutex
	name  string
	fence holdover.Fence
	err   error // of Agreed
	inits int
	steps []holdover.Stage // taken
	asked []holdover.Stage // by Ready
	ready func(to holdover.Stage) (rollout.Readiness, error)
	step  func(from holdover.Fence, to holdover.Stage) (holdover.Fence, error, bool) // true: instead of the step
}

func (p *podStub) Name() string { return p.name }

func (p *podStub) Agreed(context.Context) (holdover.Fence, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && p.fence.Epoch == 0 {
		return p.fence, holdover.ErrNoFence
	}
	return p.fence, p.err
}

func (p *podStub) Init(_ context.Context, by, reason string) (holdover.Fence, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inits++
	p.fence = holdover.Fence{Pod: p.name, Epoch: 1, Stage: holdover.StageRedis, By: by, Reason: reason}
	return p.fence, nil
}

func (p *podStub) Ready(_ context.Context, to holdover.Stage) (rollout.Readiness, error) {
	p.asked = append(p.asked, to)
	if p.ready != nil {
		return p.ready(to)
	}
	return rollout.Readiness{OK: true}, nil
}

func (p *podStub) Step(_ context.Context, from holdover.Fence, to holdover.Stage, by, reason string) (holdover.Fence, error) {
	if p.step != nil {
		if f, err, instead := p.step(from, to); instead {
			return f, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fence.Epoch != from.Epoch {
		return p.fence, &holdover.StaleError{Store: holdover.StoreRedis, Asked: from.Epoch, Fence: p.fence}
	}
	p.fence = holdover.Fence{Pod: p.name, Epoch: from.Epoch + 1, Stage: to, By: by, Reason: reason}
	p.steps = append(p.steps, to)
	return p.fence, nil
}

// world is a driver over one pod and one desired stage.
type world struct {
	t       *testing.T
	pod     *podStub
	desired rollout.Desired
	driver  *rollout.Driver
	log     bytes.Buffer
}

func newWorld(t *testing.T, agreed, desired holdover.Stage, change ...func(*rollout.DriverConfig)) *world {
	t.Helper()
	w := &world{t: t, pod: &podStub{name: "a", fence: holdover.Fence{Pod: "a", Epoch: 4, Stage: agreed, By: "setup", Reason: "test"}}}
	w.want(desired)
	cfg := rollout.DriverConfig{Pods: []rollout.Pod{w.pod}, Desired: func(string) rollout.Desired { return w.desired }, By: "instance-1", Dwell: -1,
		Logger: slog.New(slog.NewTextHandler(&w.log, nil))}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if w.driver, err = rollout.NewDriver(cfg); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) want(s holdover.Stage) {
	w.desired = rollout.Desired{Pod: "a", Known: true, Stage: s, Variant: s.String(), Reason: "STATIC", GoodAt: time.Now()}
}

func (w *world) round() rollout.PodStatus {
	w.t.Helper()
	w.driver.Round(w.t.Context())
	s, ok := w.driver.PodStatus("a")
	if !ok {
		w.t.Fatal("the driver does not know its pod")
	}
	return s
}

// waits fails unless the status waits for exactly this.
func waits(t *testing.T, s rollout.PodStatus, codes ...string) {
	t.Helper()
	got := []string{}
	for _, r := range s.Waiting {
		if r.Text == "" {
			t.Errorf("reason %s says nothing", r.Code)
		}
		got = append(got, r.Code)
	}
	if !slices.Equal(got, codes) {
		t.Errorf("waits for %v, want %v", s.Waiting, codes)
	}
}

func TestDriverTakesOneStageARoundEitherWay(t *testing.T) {
	w := newWorld(t, holdover.StageRedis, holdover.StageMySQL)
	for range 3 {
		waits(t, w.round())
	}
	s := w.round()
	if !slices.Equal(w.pod.steps, []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL}) {
		t.Fatalf("steps were %v", w.pod.steps)
	}
	if s.Agreed.Epoch != 7 || s.LastStep == nil || s.LastStep.To.Stage != holdover.StageMySQL || s.Next != holdover.StageMySQL {
		t.Errorf("status is %+v", s)
	}
	if f := w.pod.fence; f.By != "instance-1" || !strings.Contains(f.Reason, "flag wants mysql") {
		t.Errorf("the fence says %v", f)
	}
	w.want(holdover.StageRedis)
	for range 4 {
		w.round()
	}
	if !slices.Equal(w.pod.asked[3:], []holdover.Stage{holdover.StageJoint, holdover.StageShadow, holdover.StageRedis}) {
		t.Errorf("readiness was asked for %v", w.pod.asked)
	}
	if w.pod.fence.Stage != holdover.StageRedis || w.pod.fence.Epoch != 10 {
		t.Errorf("the fence says %v", w.pod.fence)
	}
}

func TestDriverLeavesALatchedPodAlone(t *testing.T) {
	w := newWorld(t, holdover.StageShadow, holdover.StageMySQL)
	w.pod.fence.Latched = true
	s := w.round()
	waits(t, s, rollout.CodeLatched)
	if !strings.Contains(s.Waiting[0].Do, "restore") || len(w.pod.steps)+len(w.pod.asked) != 0 {
		t.Errorf("status is %+v, steps %v", s, w.pod.steps)
	}
	w.pod.fence.Latched, w.pod.fence.Epoch = false, 5
	w.round()
	if w.pod.fence.Stage != holdover.StageJoint {
		t.Errorf("after the restore the fence says %v", w.pod.fence)
	}
}

func TestDriverStaysWhenTheFlagIsUnknown(t *testing.T) {
	w := newWorld(t, holdover.StageJoint, holdover.StageMySQL)
	w.desired.Known, w.desired.Err = false, "provider is away"
	s := w.round()
	waits(t, s, rollout.CodeFlagUnknown)
	if text := s.Waiting[0].Text; !strings.Contains(text, "provider is away") || !strings.Contains(text, "last good one was mysql") {
		t.Errorf("reason is %s", text)
	}
	if len(w.pod.steps) != 0 {
		t.Errorf("steps were %v", w.pod.steps)
	}
}

func TestDriverTakesAFlagThatIsNoLongerEvaluatedForUnknown(t *testing.T) {
	w := newWorld(t, holdover.StageShadow, holdover.StageJoint)
	w.desired.At = time.Now().Add(-2 * time.Minute)
	waits(t, w.round(), rollout.CodeFlagUnknown)
	w.desired.At = time.Now()
	waits(t, w.round())
	if w.pod.fence.Stage != holdover.StageJoint {
		t.Errorf("the fence says %v", w.pod.fence)
	}
}

func TestDriverNeverEntersMySQLOnlyByTheFlag(t *testing.T) {
	w := newWorld(t, holdover.StageJoint, holdover.StageMySQLOnly)
	w.round()
	waits(t, w.round(), rollout.CodeMySQLOnly)
	waits(t, w.round(), rollout.CodeMySQLOnly)
	if w.pod.fence.Stage != holdover.StageMySQL || slices.Contains(w.pod.asked, holdover.StageMySQLOnly) {
		t.Errorf("the fence says %v, asked %v", w.pod.fence, w.pod.asked)
	}
}

func TestDriverInitializesOnlyWithAFlag(t *testing.T) {
	w := newWorld(t, holdover.StageUnknown, holdover.StageMySQL)
	w.pod.fence = holdover.Fence{}
	w.desired.Known = false
	s := w.round()
	waits(t, s, rollout.CodeNotReady)
	if s.HasFence || w.pod.inits != 0 {
		t.Fatalf("status is %+v after %d inits", s, w.pod.inits)
	}
	w.desired.Known = true
	if s = w.round(); !s.HasFence || s.Agreed.Stage != holdover.StageRedis || w.pod.inits != 1 {
		t.Errorf("status is %+v after %d inits", s, w.pod.inits)
	}
	w.round()
	if w.pod.fence.Stage != holdover.StageShadow {
		t.Errorf("the fence says %v", w.pod.fence)
	}
}

func TestDriverShowsAllReasonsOfReadiness(t *testing.T) {
	w := newWorld(t, holdover.StageShadow, holdover.StageJoint)
	w.pod.ready = func(holdover.Stage) (rollout.Readiness, error) {
		return rollout.Readiness{Reasons: []rollout.Reason{{Code: "journal", Text: "3 rows", Number: 3, Do: "wait"}, {Code: "debts", Text: "1 debt", Number: 1}}}, nil
	}
	s := w.round()
	waits(t, s, "journal", "debts")
	if s.Next != holdover.StageJoint || s.LastErr != "" {
		t.Errorf("status is %+v", s)
	}
	w.pod.ready = func(holdover.Stage) (rollout.Readiness, error) { return rollout.Readiness{}, nil } // a no without a word
	waits(t, w.round(), rollout.CodeReadiness)
	w.pod.ready = func(holdover.Stage) (rollout.Readiness, error) {
		return rollout.Readiness{OK: true}, errors.New("verification broke off") // an error is never a yes
	}
	s = w.round()
	waits(t, s, rollout.CodeReadiness)
	if s.LastErr == "" || len(w.pod.steps) != 0 {
		t.Errorf("status is %+v, steps %v", s, w.pod.steps)
	}
	w.pod.ready = nil
	if s = w.round(); s.LastErr != "" || s.Agreed.Stage != holdover.StageJoint {
		t.Errorf("status is %+v", s)
	}
}

func TestDriverDwellsInEveryStageAndAfterARestart(t *testing.T) {
	w := newWorld(t, holdover.StageRedis, holdover.StageMySQL, func(c *rollout.DriverConfig) { c.Dwell = time.Hour })
	for range 3 {
		s := w.round()
		waits(t, s, rollout.CodeDwell)
		if s.Waiting[0].Number <= 0 || s.Since.IsZero() {
			t.Errorf("status is %+v", s)
		}
	}
	if len(w.pod.asked) != 0 {
		t.Error("readiness was asked before the dwell was over")
	}

	// A flag that goes to and fro moves the pod at most once per dwell.
	w = newWorld(t, holdover.StageRedis, holdover.StageShadow, func(c *rollout.DriverConfig) { c.Dwell = 20 * time.Millisecond })
	began := time.Now()
	until(t, "four steps", func() bool {
		if w.pod.fence.Stage == holdover.StageRedis {
			w.want(holdover.StageShadow)
		} else {
			w.want(holdover.StageRedis)
		}
		w.round()
		return len(w.pod.steps) >= 4
	})
	if took := time.Since(began); took < 4*20*time.Millisecond {
		t.Errorf("four steps within %s", took)
	}
}

func TestDriverTakesALostRaceCalmly(t *testing.T) {
	w := newWorld(t, holdover.StageRedis, holdover.StageJoint)
	w.pod.step = func(from holdover.Fence, _ holdover.Stage) (holdover.Fence, error, bool) {
		w.pod.fence = holdover.Fence{Pod: "a", Epoch: 5, Stage: holdover.StageShadow, By: "instance-2"}
		w.pod.step = nil
		return holdover.Fence{}, nil, false // and now the pod itself refuses
	}
	s := w.round()
	waits(t, s)
	if s.LastErr != "" || s.LastStep != nil {
		t.Errorf("status is %+v", s)
	}
	if s = w.round(); s.Agreed.Stage != holdover.StageJoint || s.Agreed.Epoch != 6 {
		t.Errorf("status is %+v", s)
	}
}

func TestDriverShowsAFailedStepAndOneThatIsOwed(t *testing.T) {
	w := newWorld(t, holdover.StageRedis, holdover.StageShadow)
	w.pod.step = func(from holdover.Fence, _ holdover.Stage) (holdover.Fence, error, bool) {
		return from, errors.New("redis is away"), true
	}
	s := w.round()
	waits(t, s, rollout.CodeStep)
	if s.LastErr != "redis is away" || s.LastStep != nil {
		t.Errorf("status is %+v", s)
	}
	w.pod.step = func(from holdover.Fence, to holdover.Stage) (holdover.Fence, error, bool) {
		w.pod.fence = holdover.Fence{Pod: "a", Epoch: from.Epoch + 1, Stage: to}
		return w.pod.fence, errors.New("mysql is owed the fence"), true
	}
	s = w.round()
	waits(t, s)
	if s.LastErr != "mysql is owed the fence" || s.LastStep == nil || s.Agreed.Stage != holdover.StageShadow {
		t.Errorf("status is %+v", s)
	}
}

func TestDriverKeepsTheLastFenceInSightWhenItCantBeRead(t *testing.T) {
	w := newWorld(t, holdover.StageShadow, holdover.StageShadow)
	w.round()
	w.pod.err = fmt.Errorf("both stores: %w", holdover.ErrUnavailable)
	s := w.round()
	waits(t, s, rollout.CodeFence)
	if !s.HasFence || s.Agreed.Stage != holdover.StageShadow || s.LastErr == "" || w.pod.inits != 0 {
		t.Errorf("status is %+v", s)
	}
}

func TestDriverWarnsOfFlappingAndStaleness(t *testing.T) {
	w := newWorld(t, holdover.StageShadow, holdover.StageShadow)
	w.desired.Changes, w.desired.Stale = 3, true
	s := w.round()
	waits(t, s)
	if len(s.Warnings) != 2 || s.Warnings[0].Code != rollout.CodeFlaps || s.Warnings[1].Code != rollout.CodeFlagStale {
		t.Errorf("warnings are %v", s.Warnings)
	}
}

func TestDriverLogsADecisionOncePerChange(t *testing.T) {
	w := newWorld(t, holdover.StageShadow, holdover.StageJoint)
	rows := 3
	w.pod.ready = func(holdover.Stage) (rollout.Readiness, error) {
		rows++
		return rollout.Readiness{Reasons: []rollout.Reason{{Code: "journal", Text: fmt.Sprintf("%d rows", rows)}}}, nil
	}
	for range 50 {
		w.round()
	}
	if n := strings.Count(w.log.String(), "pod waits"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, w.log.String())
	}
	w.pod.ready = nil
	for range 50 {
		w.round()
	}
	if n := strings.Count(w.log.String(), "\n"); n != 3 {
		t.Errorf("%d lines, want waits, changed, is there:\n%s", n, w.log.String())
	}
}

// A pod that hangs holds up no other, and the driver stops all the same.
func TestDriverRunsPodsApart(t *testing.T) {
	quick := &podStub{name: "quick", fence: holdover.Fence{Pod: "quick", Epoch: 1, Stage: holdover.StageRedis}}
	hung := &hungPod{podStub{name: "hung"}, make(chan struct{}, 100)}
	d, err := rollout.NewDriver(rollout.DriverConfig{Pods: []rollout.Pod{hung, quick}, By: "i", Dwell: -1, Interval: time.Millisecond, CallTimeout: time.Hour,
		Desired: func(pod string) rollout.Desired {
			return rollout.Desired{Pod: pod, Known: true, Stage: holdover.StageMySQL}
		}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, d.Run)
	<-hung.entered
	until(t, "the other pod arrives", func() bool { s, _ := d.PodStatus("quick"); return s.Agreed.Stage == holdover.StageMySQL })
}

type hungPod struct {
	podStub
	entered chan struct{}
}

func (p *hungPod) Agreed(ctx context.Context) (holdover.Fence, error) {
	p.entered <- struct{}{}
	<-ctx.Done()
	return holdover.Fence{}, ctx.Err()
}

func TestDriverGivesCallsADeadline(t *testing.T) {
	hung := &hungPod{podStub{name: "a"}, make(chan struct{}, 100)}
	d, err := rollout.NewDriver(rollout.DriverConfig{Pods: []rollout.Pod{hung}, By: "i", CallTimeout: time.Millisecond,
		Desired: func(pod string) rollout.Desired { return rollout.Desired{Pod: pod} }})
	if err != nil {
		t.Fatal(err)
	}
	d.Round(t.Context())
	s, _ := d.PodStatus("a")
	waits(t, s, rollout.CodeFence)
}
