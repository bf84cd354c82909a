package dualwrite_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/dualwrite"
	"holdover/killswitch"
)

// arena is a pod whose stores many cases share, one after the other, each with a
// shop of its own. It has one healthy instance.
type arena struct {
	*stores
	sw *killswitch.Switch
	b  *dualwrite.Facade
}

func newArena(t *testing.T) *arena {
	t.Helper()
	s := newStores(t)
	a := &arena{stores: s, sw: newSwitch(t, s)}
	a.b = newFacade(t, s, func(c *dualwrite.Config) {
		c.ClaimAge, c.ReaperGrace = time.Millisecond, time.Millisecond
		c.DrainEvery, c.RecheckEvery = time.Hour, time.Hour
	})
	if _, err := a.b.Init(t.Context(), "test", "set up"); err != nil {
		t.Fatal(err)
	}
	return a
}

// enter puts the settled pod straight into a stage.
func (a *arena) enter(t *testing.T, stage holdover.Stage) {
	t.Helper()
	if err := a.b.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	now, err := a.b.Agreed()
	if err != nil {
		t.Fatal(err)
	}
	if now.Stage == stage && !now.Latched {
		return
	}
	a.setFence(t, now.Epoch, holdover.Fence{Pod: pod, Epoch: now.Epoch + 1, Stage: stage, By: "test", Reason: "set up"})
}

func (a *arena) setFence(t *testing.T, from holdover.Epoch, fence holdover.Fence) {
	t.Helper()
	err := a.redis.CompareAndSetFence(t.Context(), from, fence)
	if err == nil {
		_, err = a.mysql.RaiseFence(t.Context(), fence)
	}
	if err == nil {
		err = a.b.Refresh(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wipe empties both stores, after a case that left something behind.
func (a *arena) wipe(t *testing.T) {
	t.Helper()
	if err := a.b.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	now, err := a.b.Agreed()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"holdover_unmirrored", "holdover_adjustments", "reserved_quantities"} {
		if _, err := a.db.ExecContext(t.Context(), "DELETE FROM "+table); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.raw.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	a.setFence(t, 0, holdover.Fence{Pod: pod, Epoch: now.Epoch + 1, Stage: holdover.StageRedis, By: "test", Reason: "wiped"})
}

// world is one case: a shop, an instance that a fault happens to, and what its
// buyer was told.
type world struct {
	*arena
	a        *instance
	op       matrixOp
	stage    holdover.Stage
	shop     int64
	token    holdover.Token   // of the operation
	others   []holdover.Token // of other buyers
	problems []string
}

func (w *world) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

// stock brings in units of item 1 at locations 1 and 2.
func (w *world) stock(t *testing.T, units [2]int64) {
	t.Helper()
	if _, err := w.db.ExecContext(t.Context(), "INSERT INTO inventory_ledger (shop_id, item_id, group_id, available) VALUES (?, 1, 1, ?), (?, 1, 2, ?)",
		w.shop, units[0], w.shop, units[1]); err != nil {
		t.Fatal(err)
	}
	if err := w.raw.Set(t.Context(), fmt.Sprintf("inventory:%d:1", w.shop), units[0]+units[1], 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// hold lets another call, on the healthy instance, reserve units of item 1.
func (w *world) hold(t *testing.T, token holdover.Token, units int64) {
	t.Helper()
	if got := reserveOn(w.b, request(w.shop, token, line(1, units))); got.err != nil {
		t.Fatalf("set up: %v", got)
	}
	eventually(t, "the grant is mirrored", func() bool { return w.b.Stats().LaneJobs == 0 })
}

// tokens are all that the case may have made holds of.
func (w *world) tokens() []holdover.Token {
	all := append([]holdover.Token{w.token}, w.others...)
	if w.op.late {
		all = append(all, w.token.Late(), w.token.Late().Late())
	}
	return all
}

// later moves the clock on for all holds of the case, in both stores.
func (w *world) later(t *testing.T, by time.Duration) {
	t.Helper()
	for _, token := range w.tokens() {
		ms, err := w.raw.HGet(t.Context(), "hold:"+token.String(), "expires_ms").Int64()
		if errors.Is(err, redis.Nil) || err == nil && !strings.Contains("held claiming", w.redisState(t, token)) {
			continue
		}
		ms -= by.Milliseconds()
		_, err = w.raw.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			p.HSet(t.Context(), "hold:"+token.String(), "expires_ms", ms)
			p.ZAddXX(t.Context(), "holds", redis.Z{Score: float64(ms), Member: token.String()})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.db.ExecContext(t.Context(), "UPDATE reserved_quantities SET expires_at = expires_at - INTERVAL ? SECOND WHERE state='held' AND shop_id=?", int64(by.Seconds()), w.shop); err != nil {
		t.Fatal(err)
	}
}

// blind: Redis decides and knows no locations, so that MySQL may owe what it
// granted until the hold ends.
func (w *world) blind() bool {
	fence, err := w.b.Agreed()
	return err == nil && w.op.blind != [2]int64{} && fence.Stage <= holdover.StageShadow && w.stage > holdover.StageShadow
}

// settle lets the living instances do what they do all the time, until nothing is
// left to carry over. Before the end a token may stay of which nobody knows
// whether its buyer will come back: its store decides that when its time is over.
func (w *world) settle(t *testing.T, all bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		if w.a != nil && !w.a.isDead() {
			w.pass(t, w.a.Facade, false)
		}
		w.pass(t, w.b, true)
		left := w.left(t, all)
		if left == "" || len(w.problems) > 0 {
			return
		}
		if time.Now().After(deadline) {
			w.problem("after 20 s still left: %s", left)
			return
		}
	}
}

// heal lets the living instances read the agreement, as they do all the time.
func (w *world) heal(t *testing.T) {
	t.Helper()
	err := w.b.Refresh(t.Context())
	if !w.a.isDead() {
		err = errors.Join(err, w.a.Refresh(t.Context()))
	}
	if err != nil {
		w.problem("refresh: %v", err)
	}
}

// pass is what an instance does in the background. What it does for all is left
// to one of them.
func (w *world) pass(t *testing.T, f *dualwrite.Facade, forAll bool) {
	t.Helper()
	var err error
	if fence, _ := f.Agreed(); forAll {
		err = f.SweepOnce(t.Context())
		if w.op.adjusts && fence.Stage != holdover.StageMySQLOnly {
			err = errors.Join(err, f.SettleAdjustments(t.Context()))
		}
	}
	err = errors.Join(err, f.DrainOnce(t.Context()))
	if err != nil {
		w.problem("settling: %v", err)
	}
	eventually(t, "the lane is empty", func() bool { return f.Stats().LaneJobs == 0 })
}

// left says what is still to be carried over.
func (w *world) left(t *testing.T, all bool) string {
	t.Helper()
	living := []*dualwrite.Facade{w.b}
	if w.a != nil && !w.a.isDead() {
		living = append(living, w.a.Facade)
	}
	for _, f := range living {
		if st := f.Stats(); st.LaneJobs+st.GiveBacks > 0 || all && st.Unmirrored > 0 || all && st.Debts > 0 && !w.blind() {
			return fmt.Sprintf("%d in the lanes, %d give-backs, %d unmirrored, %d debts", st.LaneJobs, st.GiveBacks, st.Unmirrored, st.Debts)
		}
	}
	if fence, _ := w.b.Agreed(); fence.Stage == holdover.StageMySQLOnly {
		return ""
	}
	if journal := w.journal(t); journal > 0 {
		return fmt.Sprintf("%d rows in the journal", journal)
	}
	marks, err := w.raw.ZCard(t.Context(), "claiming").Result()
	if err != nil || marks > 0 {
		return fmt.Sprintf("%d marks, %v", marks, err)
	}
	if !w.op.adjusts {
		return ""
	}
	lowered, err := w.raw.ZCard(t.Context(), "adjusting").Result()
	owed := w.count(t, "SELECT COUNT(*) FROM holdover_adjustments WHERE owed")
	if err != nil || lowered+owed > 0 {
		return fmt.Sprintf("%d adjustments given up for and %d owed, %v", lowered, owed, err)
	}
	return ""
}
