package killswitch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/killswitch"
)

func TestRestoreTakesTheLatchOffAtTheSameStage(t *testing.T) {
	sw, r, m := stubs(t, latchedAt(holdover.StageShadow, 7), latchedAt(holdover.StageShadow, 7))
	got, err := sw.Restore(t.Context(), "alice", "fixed")
	if err != nil {
		t.Fatal(err)
	}
	if r.fence.Latched || r.fence.Epoch != 8 || r.fence.Stage != holdover.StageShadow || m.fence != r.fence || got.Already || got.Owed != "" {
		t.Errorf("got %+v; redis has %v, mysql has %v", got, r.fence, m.fence)
	}
	again, err := sw.Restore(t.Context(), "alice", "fixed")
	if err != nil || !again.Already || r.fence.Epoch != 8 || !strings.Contains(again.Message, "not latched") {
		t.Errorf("a second restore gave %+v, %v; redis has %v", again, err, r.fence)
	}
}

// A kill without MySQL is a fault that lasts until MySQL has the fence.
func TestRestoreNeedsMySQLToHaveTheLatchedFence(t *testing.T) {
	sw, r, m := stubs(t, latchedAt(holdover.StageShadow, 7), fenceAt(holdover.StageMySQL, 5))
	m.err = away(holdover.StoreMySQL, false)
	if _, err := sw.Restore(t.Context(), "alice", "fixed"); !errors.Is(err, holdover.ErrUnavailable) {
		t.Errorf("error is %v", err)
	}
	if !r.fence.Latched {
		t.Error("the latch is off")
	}
	m.err = nil
	if _, err := sw.Restore(t.Context(), "alice", "fixed"); err != nil {
		t.Fatal(err)
	}
	if r.fence.Epoch != 8 || m.fence != r.fence {
		t.Errorf("redis has %v, mysql has %v", r.fence, m.fence)
	}
}

func TestRestoreSaysWhatMySQLIsOwed(t *testing.T) {
	sw, r, m := stubs(t, latchedAt(holdover.StageShadow, 7), latchedAt(holdover.StageShadow, 7))
	m.failing = func(call int) error {
		if call == 2 {
			return away(holdover.StoreMySQL, true)
		}
		return nil
	}
	got, err := sw.Restore(t.Context(), "alice", "fixed")
	if err != nil {
		t.Fatal(err)
	}
	if r.fence.Epoch != 8 || m.fence.Epoch != 7 || !strings.Contains(got.Owed, "is owed fence 8") {
		t.Errorf("got %+v; redis has %v, mysql has %v", got, r.fence, m.fence)
	}
}

func TestRestoreGivesUpWhenRedisMoved(t *testing.T) {
	sw, r, m := stubs(t, latchedAt(holdover.StageShadow, 7), latchedAt(holdover.StageShadow, 7))
	moved := latchedAt(holdover.StageShadow, 9)
	m.onRaise = func() { r.mu.Lock(); r.fence = moved; r.mu.Unlock() }
	if _, err := sw.Restore(t.Context(), "alice", "fixed"); !errors.Is(err, holdover.ErrStale) {
		t.Errorf("error is %v", err)
	}
	if r.fence != moved {
		t.Errorf("redis has %v", r.fence)
	}
}

func TestWaitAcknowledged(t *testing.T) {
	sw, r, _ := stubs(t, latchedAt(holdover.StageShadow, 7), latchedAt(holdover.StageShadow, 7))
	set := func(list ...holdover.Instance) { r.mu.Lock(); r.instances = list; r.mu.Unlock() }
	one, two := holdover.Instance{Name: "a", ID: "1", Epoch: 7}, holdover.Instance{Name: "a", ID: "2", Epoch: 5}

	set(one, two)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	acks, missing, _, err := sw.WaitAcknowledged(ctx, 7)
	if !errors.Is(err, context.DeadlineExceeded) || len(acks) != 1 || len(missing) != 1 || missing[0].ID != "2" {
		t.Fatalf("acks %v, missing %v, error %v", acks, missing, err)
	}

	type result struct {
		acks int
		err  error
	}
	done := make(chan result)
	go func() {
		acks, _, _, err := sw.WaitAcknowledged(t.Context(), 7)
		done <- result{len(acks), err}
	}()
	two.Epoch = 8 // later is as good
	set(one, two)
	if got := <-done; got.err != nil || got.acks != 2 {
		t.Fatalf("%d acks, error %v", got.acks, got.err)
	}

	// An instance that is gone is not waited for.
	set(one)
	if acks, _, _, err := sw.WaitAcknowledged(t.Context(), 7); err != nil || len(acks) != 1 {
		t.Fatalf("acks %v, error %v", acks, err)
	}

	r.err = away(holdover.StoreRedis, false)
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, _, err := sw.WaitAcknowledged(ctx, 7); !errors.Is(err, holdover.ErrUnavailable) {
		t.Errorf("error is %v", err)
	}
}

// TestRestoreNamesARedisWithOlderData: of a fence that is open, or of a kill that it
// had followed; it is not told to wait, nor to trip again.
func TestRestoreNamesARedisWithOlderData(t *testing.T) {
	for name, m := range map[string]holdover.Fence{
		"open":    fenceAt(holdover.StageShadow, 6),
		"latched": {Pod: "p", Epoch: 6, Stage: holdover.StageShadow, Latched: true, By: "bob", Reason: "errors"},
	} {
		t.Run(name, func(t *testing.T) {
			older := fenceAt(holdover.StageShadow, 3)
			older.Latched = true
			sw, r, my := stubs(t, older, m)
			my.followed = 6
			for what, do := range map[string]func() error{
				"restore": func() error { _, err := sw.Restore(t.Context(), "alice", "fixed"); return err },
				"trip":    func() error { _, err := sw.Trip(t.Context(), "alice", "again"); return err },
			} {
				if err := do(); !errors.Is(err, killswitch.ErrRefused) || !strings.Contains(err.Error(), "older data") || !strings.Contains(err.Error(), "bring back its own data") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if r.fence.Epoch != 3 {
				t.Errorf("redis was moved to %s", r.fence)
			}
		})
	}
}
