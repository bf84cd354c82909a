package legacyredis_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"holdover"
)

func TestDrop(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.load(map[int64]int64{item: 10})
	token := holdover.NewToken()
	h := must[holdover.Hold](t)(r.Apply(ctx, fact(token, holdover.StateHeld, line(item, 3))))
	moved := h
	moved.ExpiresAt = h.ExpiresAt.Add(1)
	moved.ExpiresAt = moved.ExpiresAt.Add(1e6)
	r.unchanged("a drop of what has moved", func() {
		if done, err := r.Drop(ctx, 0, moved); done || err != nil {
			t.Error(done, err)
		}
	})
	if done, err := r.Drop(ctx, 0, h); !done || err != nil {
		t.Fatal(done, err)
	}
	r.wantCounter(item, 10)
	if now := must[holdover.Hold](t)(r.Lookup(ctx, token)); now.State != holdover.StateNone {
		t.Errorf("it is %s: the token may be granted anew", now.State)
	}
	if n := r.raw.ZCard(ctx, "holds").Val(); n != 0 {
		t.Errorf("%d tokens in the index", n)
	}
	r.unchanged("a second drop", func() {
		if done, err := r.Drop(ctx, 0, h); done || err != nil {
			t.Error(done, err)
		}
	})
}

func TestShiftCounter(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.load(map[int64]int64{item: 10})
	r.unchanged("a counter that moved, or is there", func() {
		if done, err := r.ShiftCounter(ctx, 0, shop, item, false, 9, 5); done || err != nil {
			t.Error(done, err)
		}
		if done, err := r.ShiftCounter(ctx, 0, shop, item2, false, 0, 5); done || err != nil {
			t.Error("a missing one is no zero", done, err)
		}
	})
	if done, err := r.ShiftCounter(ctx, 0, shop, item, false, 10, -13); !done || err != nil {
		t.Fatal(done, err)
	}
	r.wantCounter(item, -3)
	if done, err := r.ShiftCounter(ctx, 0, shop, item2, true, 0, 6); !done || err != nil {
		t.Fatal(done, err)
	}
	r.wantCounter(item2, 6)
	if done, err := r.ShiftCounter(ctx, 0, shop, item2, true, 0, 6); done || err != nil {
		t.Error("made twice", done, err)
	}
}

// TestRepairSteps: what was planned for another epoch changes nothing.
func TestRepairSteps(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.setFence(5, holdover.StageMySQL)
	r.load(map[int64]int64{item: 10})
	h := must[holdover.Hold](t)(r.ApplyAt(ctx, 5, fact(holdover.NewToken(), holdover.StateHeld, line(item, 3))))
	steps := map[string]func(e holdover.Epoch) error{
		"a fact": func(e holdover.Epoch) error {
			_, err := r.ApplyAt(ctx, e, fact(h.Token, holdover.StateReleased, line(item, 3)))
			return err
		},
		"a drop":    func(e holdover.Epoch) error { _, err := r.Drop(ctx, e, h); return err },
		"a shift":   func(e holdover.Epoch) error { _, err := r.ShiftCounter(ctx, e, shop, item, false, 7, 1); return err },
		"a counter": func(e holdover.Epoch) error { _, err := r.ShiftCounter(ctx, e, shop, item2, true, 0, 1); return err },
	}
	r.unchanged("another epoch", func() {
		for what, do := range steps {
			wantErr(t, what+" of before", do(4), holdover.ErrStale)
			wantErr(t, what+" of later", do(6), holdover.ErrStale)
		}
	})
	if done, err := r.ShiftCounter(ctx, 5, shop, item, false, 7, 1); !done || err != nil {
		t.Error(done, err)
	}
	if done, err := r.Drop(ctx, 5, h); !done || err != nil {
		t.Error(done, err)
	}
	if err := r.DropFence(ctx, 5); err != nil {
		t.Fatal(err)
	}
	r.unchanged("without a fence", func() {
		for what, do := range steps {
			wantErr(t, what, do(5), holdover.ErrNoFence)
		}
	})
}

// TestStrangers: holdover's own connections are told from others'.
func TestStrangers(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	other := redis.NewClient(&redis.Options{Addr: r.cfg.Addr, DB: r.cfg.DB, ClientName: "old-shop"})
	defer other.Close()
	if err := other.Set(ctx, "x", 1, 0).Err(); err != nil {
		t.Fatal(err)
	}
	found, err := r.Strangers(ctx)
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	named := 0
	for _, who := range found {
		if strings.Contains(who, "holdover:") {
			t.Errorf("one of ours: %s", who)
		}
		if strings.HasPrefix(who, "old-shop at ") && strings.Contains(who, "last command set") {
			named++
		}
	}
	if named != 1 {
		t.Errorf("the other one is not named: %v", found)
	}
}

// TestBeingRebuilt: nobody writes but the rebuild.
func TestBeingRebuilt(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.setFence(5, holdover.StageMySQL)
	r.load(map[int64]int64{item: 10})
	token := holdover.NewToken()
	h := must[holdover.Hold](t)(r.Apply(ctx, fact(token, holdover.StateHeld, line(item, 3))))
	if _, err := r.BeginRebuild(ctx, "me", 5); !errors.Is(err, holdover.ErrStale) {
		t.Errorf("a fence that is as new: %v", err)
	}
	if _, err := r.BeginRebuild(ctx, "me", 0); !errors.Is(err, holdover.ErrStale) {
		t.Errorf("going on with nothing: %v", err)
	}
	if began, err := r.BeginRebuild(ctx, "me", 6); err != nil || began != 6 {
		t.Fatal(began, err)
	}
	adjusted := holdover.Adjusted{Adjustment: holdover.Adjustment{Token: holdover.NewToken(), Shop: shop, Item: item, Group: group, Delta: 4}, Changed: 4}
	r.unchanged("what is refused", func() {
		for what, do := range map[string]func() error{
			"a fact":         func() error { _, err := r.Apply(ctx, fact(token, holdover.StateReleased, line(item, 3))); return err },
			"a give-back":    func() error { _, err := r.GiveBack(ctx, token, 99); return err },
			"a settlement":   func() error { _, err := r.SettleAdjustment(ctx, adjusted); return err },
			"an undo":        func() error { return r.UndoLowered(ctx, adjusted.Adjustment) },
			"a drop":         func() error { _, err := r.Drop(ctx, 0, h); return err },
			"a shift":        func() error { _, err := r.ShiftCounter(ctx, 0, shop, item, false, 7, 1); return err },
			"a kill":         func() error { return r.Trip(ctx, fence(8, holdover.StageShadow), nil) },
			"a first fence":  func() error { return r.CompareAndSetFence(ctx, 0, fence(1, holdover.StageRedis)) },
			"a raised fence": func() error { _, err := r.RaiseFence(ctx, fence(9, holdover.StageRedis)); return err },
		} {
			wantErr(t, what, do(), holdover.ErrNoFence)
		}
		wantErr(t, "another rebuild", func() error { _, err := r.BeginRebuild(ctx, "you", 6); return err }(), holdover.ErrTryAgain)
		wantErr(t, "another's step", r.FillHolds(ctx, "you", 1, nil), holdover.ErrTryAgain)
		wantErr(t, "a step too far", r.FillHolds(ctx, "me", 2, nil), holdover.ErrTryAgain)
	})
	next, err := r.ClearForRebuild(ctx, "me", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.ClearForRebuild(ctx, "me", 1, 0); err != nil || again != next { // its answer was lost
		t.Errorf("a step once more: %d, %v, want %d", again, err, next)
	}
}
