package legacyredis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
)

// What is there is told at one moment: counters in the order of the items, holds
// that have one of them, and marked claims apart, with the part that they take.
func TestStanding(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.load(map[int64]int64{item: 100, item2: 50})
	held := func(lines ...holdover.Line) holdover.Token {
		h := fact(holdover.NewToken(), holdover.StateHeld, lines...)
		h.ExpiresAt = time.UnixMilli(r.redisNow()).Add(time.Hour)
		must[holdover.Hold](t)(r.Apply(ctx, h))
		return h.Token
	}
	both := held(line(item, 2), line(item2, 3))
	other := held(line(item2, 1))
	marked := held(line(item, 5))
	must[holdover.Hold](t)(r.Mark(ctx, 0, 0, marked, []holdover.Line{line(item, 4)}))

	got := must[holdover.Standing](t)(r.Standing(ctx, shop, []int64{item2, item}))
	if fmt.Sprint(got.Counters) != "[46 94]" {
		t.Errorf("counters %v", got.Counters)
	}
	want := map[holdover.StandingHold]bool{{Token: both, Item: item, Units: 2}: true, {Token: both, Item: item2, Units: 3}: true, {Token: other, Item: item2, Units: 1}: true}
	for _, h := range got.Held {
		if !want[h] {
			t.Errorf("held has %+v", h)
		}
		delete(want, h)
	}
	if len(want) > 0 {
		t.Errorf("held lacks %v", want)
	}
	if len(got.Claiming) != 1 || got.Claiming[0] != (holdover.StandingHold{Token: marked, Item: item, Units: 4}) {
		t.Errorf("claiming %+v", got.Claiming)
	}
	if got := must[holdover.Standing](t)(r.Standing(ctx, shop, []int64{item2})); len(got.Held) != 2 || len(got.Claiming) != 0 {
		t.Errorf("of one item: %+v", got)
	}
}

// Redis serves nobody else meanwhile: a crowd of holds is not read.
func TestStandingIsBounded(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 100})
	var many []redis.Z
	for i := range 501 {
		many = append(many, zMember(float64(i), holdover.NewToken().String()))
	}
	if err := r.raw.ZAdd(t.Context(), "holds", many...).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Standing(t.Context(), shop, []int64{item}); err == nil || !strings.Contains(err.Error(), "501 live holds") {
		t.Errorf("err %v", err)
	}
}

// So is one with few holds that have many lines: it stops at the bound, of whatever
// items the lines are.
func TestStandingIsBoundedInLines(t *testing.T) {
	r := newRig(t)
	counters, lines := map[int64]int64{item: 100}, []holdover.Line(nil)
	for i := range int64(100) {
		counters[1000+i] = 100
		lines = append(lines, line(1000+i, 1))
	}
	r.load(counters)
	add := func() {
		h := fact(holdover.NewToken(), holdover.StateHeld, lines...)
		h.ExpiresAt = time.UnixMilli(r.redisNow()).Add(time.Hour)
		must[holdover.Hold](t)(r.Apply(t.Context(), h))
	}
	for range 10 {
		add()
	}
	if got := must[holdover.Standing](t)(r.Standing(t.Context(), shop, []int64{1000})); len(got.Held) != 10 {
		t.Errorf("at the bound: %d holds, want 10", len(got.Held))
	}
	add()
	if _, err := r.Standing(t.Context(), shop, []int64{item}); err == nil || !strings.Contains(err.Error(), "1000 lines") {
		t.Errorf("err %v", err)
	}
}
