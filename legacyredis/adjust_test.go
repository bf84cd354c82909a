package legacyredis_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/legacyredis"
)

func adjustment(delta int64) holdover.Adjustment {
	return holdover.Adjustment{Token: holdover.NewToken(), Shop: shop, Item: item, Group: group, Delta: delta, Reason: "test", By: "ada"}
}

func settled(a holdover.Adjustment, changed int64) holdover.Adjusted {
	return holdover.Adjusted{Adjustment: a, Changed: changed}
}

func TestLowerAndSettle(t *testing.T) {
	for _, c := range []struct {
		name           string
		counter, units int64
		clamp, sells   bool
		lowered        int64
		changed        int64 // as MySQL decides
	}{
		{"exactly", 10, 4, false, true, 4, -4},
		{"all that is free", 10, 10, false, true, 10, -10},
		{"too many", 10, 11, false, true, 0, 0},
		{"too many, clamped", 10, 11, true, true, 10, -10},
		{"nothing free, clamped", 0, 5, true, true, 0, 0},
		{"overbooked, clamped", -3, 5, true, true, 0, 0},
		{"where mysql sells", 10, 14, false, false, 14, -14},
		{"mysql took a part", 10, 8, true, false, 8, -3},
		{"mysql refused", 10, 8, false, true, 8, 0},
		{"the ledger shrank meanwhile", 10, 2, false, true, 2, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			if c.counter >= 0 {
				r.load(map[int64]int64{item: c.counter})
			} else if _, err := r.Load(t.Context(), shop, map[int64]int64{item: c.counter}, true); err != nil {
				t.Fatal(err)
			}
			a := adjustment(-c.units)
			a.Clamp = c.clamp
			free := c.counter
			if !c.sells {
				free = math.MaxInt64
			}
			for range 2 { // the same answer again, and once only
				l := must[holdover.Lowered](t)(r.LowerFor(t.Context(), 0, a, c.units, c.sells))
				if l.Units != c.lowered || c.lowered == 0 && l.Free != free || l.Content() != a.Content() {
					t.Fatalf("%+v", l)
				}
				r.wantCounter(item, c.counter-c.lowered)
			}
			pending := must[[]holdover.Lowered](t)(r.LoweredAdjustments(t.Context(), 0, 10))
			if c.lowered == 0 && len(pending) != 0 || c.lowered > 0 && (len(pending) != 1 || pending[0].Units != c.lowered || pending[0].Adjustment != a) {
				t.Errorf("pending: %+v", pending)
			}
			for range 2 {
				if loaded, err := r.SettleAdjustment(t.Context(), settled(a, c.changed)); err != nil || !loaded {
					t.Fatal(loaded, err)
				}
				r.wantCounter(item, c.counter+c.changed)
			}
			if pending := must[[]holdover.Lowered](t)(r.LoweredAdjustments(t.Context(), 0, 10)); len(pending) != 0 {
				t.Errorf("still pending: %+v", pending)
			}
			// A step that comes late finds it decided.
			must[holdover.Lowered](t)(r.LowerFor(t.Context(), 0, a, c.units, c.sells))
			r.wantCounter(item, c.counter+c.changed)
			if ttl := r.raw.PTTL(t.Context(), "adjust:"+a.Token.String()).Val(); ttl <= 0 || ttl > 72*time.Hour {
				t.Errorf("the record stays for %s", ttl)
			}
		})
	}
}

// TestUndoLowered: what MySQL can't make is as if it had never been asked for.
func TestUndoLowered(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 10})
	a, made, other := adjustment(-4), adjustment(-1), adjustment(-4)
	must[holdover.Lowered](t)(r.LowerFor(t.Context(), 0, made, 1, true))
	if _, err := r.SettleAdjustment(t.Context(), settled(made, -1)); err != nil {
		t.Fatal(err)
	}
	keys := func() []string {
		all := must[[]string](t)(r.raw.Keys(t.Context(), "*").Result())
		slices.Sort(all)
		return all
	}
	before := keys()
	must[holdover.Lowered](t)(r.LowerFor(t.Context(), 0, a, 4, true))
	other.Token, other.Item = a.Token, item2
	for _, undo := range []holdover.Adjustment{other, made, a, a} {
		if err := r.UndoLowered(t.Context(), undo); err != nil {
			t.Fatal(err)
		}
	}
	if after := keys(); !slices.Equal(before, after) {
		t.Errorf("%q before, %q after", before, after)
	}
	r.wantCounter(item, 9)
	if l := must[holdover.Lowered](t)(r.LowerFor(t.Context(), 0, a, 3, true)); l.Units != 3 {
		t.Errorf("asked for anew: %+v", l)
	}
}

// TestRaise: nothing is given up; the counter follows once.
func TestRaise(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 5})
	a := adjustment(30_000)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := r.SettleAdjustment(t.Context(), settled(a, 30_000)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	r.wantCounter(item, 30_005)
}

// TestAdjustRefusals: what Redis refuses changes nothing.
func TestAdjustRefusals(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 5, item2: 5})
	r.setFence(3, holdover.StageShadow)
	a := adjustment(-2)
	lower := func(e holdover.Epoch, a holdover.Adjustment, units int64) error {
		_, err := r.LowerFor(t.Context(), e, a, units, true)
		return err
	}
	r.unchanged("a refusal", func() {
		wantErr(t, "an old epoch", lower(2, a, 2), holdover.ErrStale)
		wantErr(t, "no units", lower(3, a, 0), holdover.ErrInvalid)
		wantErr(t, "too many units", lower(3, a, math.MaxInt64), holdover.ErrInvalid)
		absent := a
		absent.Item = 999
		wantErr(t, "an item that is not loaded", lower(3, absent, 2), holdover.ErrNotLoaded)
		anonymous := a
		anonymous.By = " "
		wantErr(t, "nobody", lower(3, anonymous, 2), holdover.ErrInvalid)
		if _, err := r.LoweredAdjustments(t.Context(), 0, 0); err == nil {
			t.Error("a list of nothing")
		}
	})
	if err := lower(3, a, 2); err != nil {
		t.Fatal(err)
	}
	other := a
	other.Item = item2
	// A long value makes Redis move the hash's fields about: they are compared as read.
	record := func() string { return fmt.Sprint(r.raw.HGetAll(t.Context(), "adjust:"+a.Token.String()).Val()) }
	before := record()
	wantErr(t, "lower with a token of another change", lower(3, other, 2), holdover.ErrTokenReused)
	_, err := r.SettleAdjustment(t.Context(), settled(other, -2))
	wantErr(t, "settle with a token of another change", err, holdover.ErrTokenReused)
	r.wantCounter(item, 3)
	r.wantCounter(item2, 5)
	r.raw.Set(t.Context(), "inventory:7:41", "many", 0)
	_, err = r.SettleAdjustment(t.Context(), settled(a, 0))
	wantErr(t, "settle on a broken counter", err, holdover.ErrUnavailable)
	wantErr(t, "lower a broken counter", lower(3, adjustment(-1), 1), holdover.ErrUnavailable)
	wantErr(t, "take back into a broken counter", r.UndoLowered(t.Context(), a), holdover.ErrUnavailable)
	if after := record(); after != before || len(before) < 50 {
		t.Errorf("the record was %s and is %s", before, after)
	}
}

// TestSettleWithoutCounter: an item that is not loaded stays so; whoever loads
// it takes it from the ledger.
func TestSettleWithoutCounter(t *testing.T) {
	r := newRig(t)
	a := adjustment(7)
	if loaded, err := r.SettleAdjustment(t.Context(), settled(a, 7)); err != nil || loaded {
		t.Fatal(loaded, err)
	}
	r.load(map[int64]int64{item: 7})
	if _, err := r.SettleAdjustment(t.Context(), settled(a, 7)); err != nil {
		t.Fatal(err)
	}
	r.wantCounter(item, 7)
}

// TestLoweredAge: only what has waited is listed, oldest first and bounded.
func TestLoweredAge(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 50})
	var made []holdover.Adjustment
	for range 3 {
		a := adjustment(-1)
		must[holdover.Lowered](t)(r.LowerFor(t.Context(), 0, a, 1, true))
		made = append(made, a)
		at := r.redisNow()
		eventually(t, "redis's clock has moved", func() bool { return r.redisNow() > at })
	}
	if young := must[[]holdover.Lowered](t)(r.LoweredAdjustments(t.Context(), time.Hour, 10)); len(young) != 0 {
		t.Errorf("%d are an hour old", len(young))
	}
	got := must[[]holdover.Lowered](t)(r.LoweredAdjustments(t.Context(), 0, 2))
	if len(got) != 2 || got[0].Adjustment != made[0] || got[1].Adjustment != made[1] {
		t.Errorf("%+v", got)
	}
	set := adjustment(0)
	n := int64(3)
	set.Set = &n
	set.Token = holdover.NewToken()
	must[holdover.Lowered](t)(r.LowerFor(t.Context(), 0, set, 5, true))
	got = must[[]holdover.Lowered](t)(r.LoweredAdjustments(t.Context(), 0, 10))
	if len(got) != 4 || got[3].Set == nil || got[3].Content() != set.Content() {
		t.Errorf("%+v", got)
	}
}

// TestLowerPrefix: the records are the pod's own keys.
func TestLowerPrefix(t *testing.T) {
	r := newRig(t, func(c *legacyredis.Config) { c.Prefix = "p:" })
	r.load(map[int64]int64{item: 5})
	a := adjustment(-1)
	must[holdover.Lowered](t)(r.LowerFor(t.Context(), 0, a, 1, true))
	if n := r.raw.Exists(t.Context(), "p:adjust:"+a.Token.String(), "p:adjusting").Val(); n != 2 {
		t.Errorf("%d of two keys", n)
	}
}
