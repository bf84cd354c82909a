package legacyredis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
	"holdover/internal/teststack"
	"holdover/legacyredis"
)

func fence(e holdover.Epoch, s holdover.Stage) holdover.Fence {
	return holdover.Fence{Pod: podA, Epoch: e, Stage: s, By: "anna", Reason: "because \"it\" |\nhad to, über"}
}

func sameFence(got, want holdover.Fence) bool {
	got.At, want.At = time.Time{}, time.Time{}
	return got == want
}

func TestFenceCompareAndSet(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	_, err := r.Fence(ctx)
	wantErr(t, "no fence yet", err, holdover.ErrNoFence)
	wantErr(t, "from a fence that is not there", r.CompareAndSetFence(ctx, 3, fence(4, holdover.StageRedis)), holdover.ErrNoFence)

	before := r.redisNow()
	if err := r.CompareAndSetFence(ctx, 0, fence(1, holdover.StageRedis)); err != nil {
		t.Fatal(err)
	}
	got := must[holdover.Fence](t)(r.Fence(ctx))
	if !sameFence(got, fence(1, holdover.StageRedis)) || got.At.UnixMilli() < before || got.At.UnixMilli() > r.redisNow() {
		t.Errorf("fence is %+v", got)
	}

	for _, from := range []holdover.Epoch{0, 2, 7} {
		r.unchanged(fmt.Sprintf("a set from epoch %d", from), func() {
			err := r.CompareAndSetFence(ctx, from, fence(8, holdover.StageShadow))
			var stale *holdover.StaleError
			if !errors.As(err, &stale) || stale.Asked != from || stale.Fence.Epoch != 1 {
				t.Errorf("from %d: error is %v, want stale at epoch 1", from, err)
			}
		})
	}
	r.unchanged("bad fences", func() {
		other := fence(2, holdover.StageShadow)
		other.Pod = podB
		for name, f := range map[string]holdover.Fence{"same epoch": fence(1, holdover.StageShadow), "no stage": fence(2, 0), "too large": fence(1<<54, holdover.StageShadow), "another pod": other} {
			wantErr(t, name, r.CompareAndSetFence(ctx, 1, f), holdover.ErrInvalid)
		}
	})
	latched := fence(2, holdover.StageShadow)
	latched.Latched = true
	if err := r.CompareAndSetFence(ctx, 1, latched); err != nil {
		t.Fatal(err)
	}
	if got := must[holdover.Fence](t)(r.Fence(ctx)); !sameFence(got, latched) {
		t.Errorf("fence is %+v, want %+v", got, latched)
	}
}

// Rule 3: of two who set the fence from the same epoch one wins.
func TestFenceHasOneWinner(t *testing.T) {
	r := newRig(t)
	r.setFence(1, holdover.StageRedis)
	results := make(chan error, 16)
	for range 16 {
		go func() { results <- r.CompareAndSetFence(t.Context(), 1, fence(2, holdover.StageShadow)) }()
	}
	won := 0
	for range 16 {
		switch err := <-results; {
		case err == nil:
			won++
		case !errors.Is(err, holdover.ErrStale):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

func TestRaiseFenceOnlyUpwards(t *testing.T) {
	r := newRig(t)
	r.setFence(5, holdover.StageJoint)
	for _, e := range []holdover.Epoch{4, 5} {
		r.unchanged("a raise that is none", func() {
			if got := must[holdover.Fence](t)(r.RaiseFence(t.Context(), fence(e, holdover.StageRedis))); got.Epoch != 5 || got.Stage != holdover.StageJoint {
				t.Errorf("raised to %s", got)
			}
		})
	}
	if got := must[holdover.Fence](t)(r.RaiseFence(t.Context(), fence(10, holdover.StageShadow))); !sameFence(got, fence(10, holdover.StageShadow)) {
		t.Errorf("raised to %+v", got)
	}
}

func TestHistoryIsNewestFirstAndBounded(t *testing.T) {
	r := newRig(t, func(c *legacyredis.Config) { c.HistoryLimit = 3 })
	for e := holdover.Epoch(1); e <= 5; e++ {
		if err := r.CompareAndSetFence(t.Context(), e-1, fence(e, holdover.StageShadow)); err != nil {
			t.Fatal(err)
		}
	}
	got := must[[]holdover.Fence](t)(r.History(t.Context(), 100))
	if len(got) != 3 || !sameFence(got[0], fence(5, holdover.StageShadow)) || got[2].Epoch != 3 || got[0].At.IsZero() {
		t.Errorf("history is %+v", got)
	}
	if got := must[[]holdover.Fence](t)(r.History(t.Context(), 1)); len(got) != 1 || got[0].Epoch != 5 {
		t.Errorf("the last one is %+v", got)
	}
}

// A Redis that belongs to another pod is refused by whoever looks at it.
func TestAnotherPodsRedis(t *testing.T) {
	r := newRig(t)
	r.setFence(1, holdover.StageRedis)
	other := rigAt(t, r.cfg.Addr, r.cfg.DB, func(c *legacyredis.Config) { c.Pod = podB })
	theirs := holdover.Fence{Epoch: 9, Stage: holdover.StageShadow}
	r.unchanged("the other pod", func() {
		_, err := other.Fence(t.Context())
		wantErr(t, "read", err, holdover.ErrUnavailable)
		wantErr(t, "set", other.CompareAndSetFence(t.Context(), 1, theirs), holdover.ErrUnavailable)
		_, err = other.RaiseFence(t.Context(), theirs)
		wantErr(t, "raise", err, holdover.ErrUnavailable)
		wantErr(t, "trip", other.Trip(t.Context(), theirs, nil), holdover.ErrUnavailable)
	})
}

// Rule 4: the facts and the fence are one step.
func TestTripCarriesFactsWithTheFence(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.setFence(5, holdover.StageMySQL)
	r.load(map[int64]int64{item: 20, item2: 20})
	held, claimed, released := holdover.NewToken(), holdover.NewToken(), holdover.NewToken()
	r.prepare(claimed, "claiming", 5)
	r.prepare(released, "held~", 5)
	facts := []holdover.Hold{
		fact(held, holdover.StateHeld, line(item, 2), line(item2, 1)),
		fact(claimed, holdover.StateClaimed, line(item, 3)),
		fact(released, holdover.StateReleased, line(item, 3)),
	}
	kill := fence(7, holdover.StageShadow)
	kill.Latched = true

	for _, e := range []holdover.Epoch{4, 5} {
		r.unchanged("a kill that comes too late", func() {
			late := kill
			late.Epoch = e
			var stale *holdover.StaleError
			if err := r.Trip(ctx, late, facts); !errors.As(err, &stale) || stale.Fence.Epoch != 5 {
				t.Errorf("error is %v, want stale at epoch 5", err)
			}
		})
	}
	if err := r.Trip(ctx, kill, facts); err != nil {
		t.Fatal(err)
	}
	if got := must[holdover.Fence](t)(r.Fence(ctx)); !sameFence(got, kill) {
		t.Errorf("fence is %+v", got)
	}
	for token, want := range map[holdover.Token]holdover.State{held: holdover.StateHeld, claimed: holdover.StateClaimed, released: holdover.StateReleased} {
		if h := must[holdover.Hold](t)(r.Lookup(ctx, token)); h.State != want || !h.Firm {
			t.Errorf("%s is %+v, want firm and %s", token, h, want)
		}
	}
	r.wantCounter(item, 20-2-3)
	r.wantCounter(item2, 19)
	if got := must[[]holdover.Fence](t)(r.History(ctx, 1)); !sameFence(got[0], kill) {
		t.Errorf("history has %+v", got)
	}
}

// One lost counter, or one token that stands for something else, must not stop
// the kill; and nothing can be sold from a counter that is not there.
func TestTripGoesOnWithoutACounter(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.setFence(5, holdover.StageMySQL)
	r.load(map[int64]int64{item: 20})
	lost, reused, fine := holdover.NewToken(), holdover.NewToken(), holdover.NewToken()
	r.prepare(reused, "held", 5)
	facts := []holdover.Hold{
		fact(lost, holdover.StateHeld, line(item, 1), line(item2, 1)),
		fact(reused, holdover.StateClaimed, line(item, 9)),
		fact(fine, holdover.StateHeld, line(item, 2)),
		{Token: holdover.NewToken(), State: holdover.StateNone},
	}
	if err := r.Trip(ctx, fence(7, holdover.StageShadow), facts); err != nil {
		t.Fatal(err)
	}
	if h := must[holdover.Hold](t)(r.Lookup(ctx, lost)); h.State != holdover.StateHeld {
		t.Errorf("the fact without a counter is %s, want held", h.State)
	}
	if h := must[holdover.Hold](t)(r.Lookup(ctx, reused)); h.State != holdover.StateHeld {
		t.Errorf("the reused token is %s, want it left alone", h.State)
	}
	r.wantCounter(item, 20-3-2)
	if n := r.raw.Exists(ctx, "inventory:"+itoa(shop)+":"+itoa(item2)).Val(); n != 0 {
		t.Error("the kill made a counter from nothing")
	}
}

// A Redis that lost everything can't be tripped: the kill's fence would hide the
// loss, and MySQL's journal is not all that it lacks.
func TestTripAfterDataLoss(t *testing.T) {
	r := newRig(t)
	token := holdover.NewToken()
	err := r.Trip(t.Context(), fence(7, holdover.StageShadow), []holdover.Hold{fact(token, holdover.StateHeld, line(item, 1))})
	wantErr(t, "trip", err, holdover.ErrNoFence)
	if n := r.raw.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("the refused trip wrote %d keys", n)
	}
	_, err = r.Vote(t.Context(), holdover.Ticket{Epoch: 7}, request(holdover.NewToken(), line(item, 1)))
	wantErr(t, "vote", err, holdover.ErrNoFence)
}

func TestTripCarriesALongJournal(t *testing.T) {
	r := newRig(t)
	r.setFence(5, holdover.StageMySQL)
	r.load(map[int64]int64{item: 100_000})
	facts := make([]holdover.Hold, 20_000)
	for i := range facts {
		facts[i] = fact(holdover.NewToken(), holdover.StateHeld, line(item, 2))
	}
	if err := r.Trip(t.Context(), fence(7, holdover.StageShadow), facts); err != nil {
		t.Fatal(err)
	}
	r.wantCounter(item, 60_000)
}

// Every write of the fence reaches the followers, and so does the end of an
// interruption; and the follower ends with its context.
func TestFollowFence(t *testing.T) {
	teststack.NoLeaks(t)
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	var seen atomic.Int64
	ended := make(chan error, 1)
	go func() { ended <- r.FollowFence(ctx, func() { seen.Add(1) }) }()
	eventually(t, "the follower has subscribed", func() bool { return seen.Load() >= 1 })

	moved := func(what string, change func() error) {
		t.Helper()
		before := seen.Load()
		if err := change(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		eventually(t, "the follower has seen "+what, func() bool { return seen.Load() > before })
	}
	moved("the first fence", func() error { return r.CompareAndSetFence(ctx, 0, fence(1, holdover.StageRedis)) })
	moved("a raise", func() error { _, err := r.RaiseFence(ctx, fence(2, holdover.StageShadow)); return err })
	moved("the kill", func() error { return r.Trip(ctx, fence(4, holdover.StageShadow), nil) })
	// Pitfall 41: what is published while nobody listens is lost, so a new
	// subscription counts as a change.
	moved("the interruption", func() error { return r.raw.ClientKillByFilter(ctx, "TYPE", "pubsub").Err() })
	moved("the next fence", func() error { return r.CompareAndSetFence(ctx, 4, fence(5, holdover.StageShadow)) })

	// Databases of one server don't hear of each other.
	other := newRig(t)
	quiet := seen.Load()
	other.setFence(1, holdover.StageRedis)
	moved("its own fence", func() error { return r.CompareAndSetFence(ctx, 5, fence(6, holdover.StageShadow)) })
	if got := seen.Load(); got != quiet+1 {
		t.Errorf("the follower was called %d times for one change", got-quiet)
	}

	cancel()
	select {
	case err := <-ended:
		wantErr(t, "the follower's end", err, context.Canceled)
	case <-time.After(30 * time.Second):
		t.Fatal("the follower does not end with its context")
	}
}

func TestInstances(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	beat := func(id string, epoch holdover.Epoch, busy int64) {
		if err := r.Heartbeat(ctx, holdover.Instance{Name: "checkout-1", ID: id, Epoch: epoch, Busy: busy, Seen: time.Unix(1, 0), Age: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	beat("a", 3, 0)
	beat("b", 4, 17)
	before := r.redisNow()
	beat("a", 5, 2)
	got := must[[]holdover.Instance](t)(r.Instances(ctx, time.Minute))
	slices.SortFunc(got, func(x, y holdover.Instance) int { return int(x.ID[0]) - int(y.ID[0]) })
	if len(got) != 2 {
		t.Fatalf("instances are %+v, want a and b", got)
	}
	if a := got[0]; a.Name != "checkout-1" || a.ID != "a" || a.Epoch != 5 || a.Busy != 2 || a.Seen.UnixMilli() < before || a.Age < 0 || a.Age > time.Minute {
		t.Errorf("a is %+v", a)
	}
	if b := got[1]; b.Epoch != 4 || b.Busy != 17 {
		t.Errorf("b is %+v", b)
	}

	// b falls silent: instead of waiting, its heartbeat becomes older.
	r.raw.ZAdd(ctx, "instances:seen", zMember(float64(r.redisNow()-90_000), "b"))
	if got := must[[]holdover.Instance](t)(r.Instances(ctx, time.Minute)); len(got) != 1 || got[0].ID != "a" {
		t.Errorf("instances of the last minute are %+v, want a", got)
	}
	if got := must[[]holdover.Instance](t)(r.Instances(ctx, time.Hour)); len(got) != 2 || got[1].ID != "b" || got[1].Age < 90*time.Second {
		t.Errorf("instances of the last hour are %+v, want a and then b, 90 s ago", got)
	}
	if err := r.Forget(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if got := must[[]holdover.Instance](t)(r.Instances(ctx, time.Hour)); len(got) != 1 {
		t.Errorf("instances are %+v, want a", got)
	}
	// Those silent for days leave with the next heartbeat.
	r.raw.ZAdd(ctx, "instances:seen", zMember(1, "a"))
	beat("c", 1, 0)
	if n := r.raw.HLen(ctx, "instances").Val(); n != 1 {
		t.Errorf("%d records are kept, want c's", n)
	}
	wantErr(t, "a heartbeat without id", r.Heartbeat(ctx, holdover.Instance{Name: "x"}), holdover.ErrInvalid)
}
