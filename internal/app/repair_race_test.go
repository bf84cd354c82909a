package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
)

// found verifies and wants n differences.
func (r *repairRig) found(t *testing.T, n uint64) (compare.Verification, compare.RepairConfig) {
	t.Helper()
	cfg, fence, err := verifyConfig(t.Context(), r.cfg, r.Stores, VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := compare.Verify(t.Context(), r.Redis, r.MySQL, cfg)
	if err != nil || v.Count != n || v.UnsettledCount != 0 {
		t.Fatalf("%s, %v %v, %v", v.Summary(), v.Differences, v.Unsettled, err)
	}
	return v, compare.RepairConfig{Verify: cfg, Fence: fence, Counters: true}
}

func (r *repairRig) counter(t *testing.T, item int64) string {
	t.Helper()
	return r.raw.Get(t.Context(), fmt.Sprintf("inventory:1:%d", item)).Val()
}

// movingRedis calls before and after once each, around a listing of the live holds.
type movingRedis struct {
	compare.RedisRepair
	mu            sync.Mutex
	before, after func()
}

func (m *movingRedis) LiveHolds(ctx context.Context, cursor uint64, count int) ([]holdover.Hold, uint64, error) {
	m.once(&m.before)
	page, next, err := m.RedisRepair.LiveHolds(ctx, cursor, count)
	if next == 0 {
		m.once(&m.after)
	}
	return page, next, err
}

func (m *movingRedis) once(f *func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if do := *f; do != nil {
		*f = nil
		do()
	}
}

// TestRepairCounterWhileBuyersChange: one buyer leaves before the live holds are read
// and another one comes after. The counter is the same at both readings, and the holds
// in between are one too few: it is moved by what it is off, and by nothing else.
func TestRepairCounterWhileBuyersChange(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRepairRig(t, stage)
			leaves := r.hold(t, 7, 1, inRedis, inMySQL)
			if err := r.raw.DecrBy(t.Context(), "inventory:1:7", 3).Err(); err != nil { // somebody else's
				t.Fatal(err)
			}
			found, cfg := r.found(t, 1)
			if found.Differences[0].Units != -3 {
				t.Fatal(found.Differences)
			}
			moving := &movingRedis{RedisRepair: r.Redis,
				before: func() { r.in(t, as(leaves, holdover.StateReleased), inRedis, inMySQL) },
				after:  func() { r.hold(t, 7, 1, inRedis, inMySQL) },
			}
			done, err := compare.Repair(t.Context(), moving, r.MySQL, found, cfg)
			if err != nil || moving.after != nil || len(done) != 1 || done[0].Outcome != compare.RepairDone {
				t.Errorf("%v, %v", done, err)
			}
			r.sums(t)
		})
	}
}

// TestVerifyWhileBuyersChange: the same at each reading of a verification, at an item
// that is sold out but for who leaves, is no difference.
func TestVerifyWhileBuyersChange(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	here := []holdover.Hold{r.hold(t, 7, 1, inRedis, inMySQL), r.hold(t, 7, 1, inRedis, inMySQL)}
	cfg, _, err := verifyConfig(t.Context(), r.cfg, r.Stores, VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Rounds, cfg.Tries = 2, 1
	moving := &movingRedis{RedisRepair: r.Redis}
	var leave, come func()
	leave = func() {
		r.in(t, as(here[0], holdover.StateReleased), inRedis, inMySQL)
		moving.after = come
	}
	come = func() {
		here = append(here[1:], r.hold(t, 7, 1, inRedis, inMySQL))
		moving.before = leave
	}
	// The first listing compares the holds, and each one after it sums them up.
	moving.after = func() { moving.before = leave }
	v, err := compare.Verify(t.Context(), moving, r.MySQL, cfg)
	if err != nil || v.Rounds != 2 || v.Count != 0 || v.UnsettledCount != 1 {
		t.Errorf("%s: %v, %v", v.Summary(), v.Differences, err)
	}
}

// TestRepairLeavesWhatHasChanged: a counter that is off by something else than when it
// was found is not moved: who writes there is still at it.
func TestRepairLeavesWhatHasChanged(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	if err := r.raw.DecrBy(t.Context(), "inventory:1:7", 3).Err(); err != nil {
		t.Fatal(err)
	}
	found, cfg := r.found(t, 1)
	if err := r.raw.DecrBy(t.Context(), "inventory:1:7", 2).Err(); err != nil {
		t.Fatal(err)
	}
	done, err := compare.Repair(t.Context(), r.Redis, r.MySQL, found, cfg)
	if err != nil || len(done) != 1 || done[0].Outcome != compare.RepairLeft || r.counter(t, 7) != "995" {
		t.Errorf("%v, %v; the counter is %s", done, err, r.counter(t, 7))
	}
}

// TestRepairEndsWithAKill: a kill comes between the plan and its step. What was
// planned for mysql is not done where Redis decides, and the repair ends.
func TestRepairEndsWithAKill(t *testing.T) {
	plant := map[string]func(t *testing.T, r *repairRig){
		"drop a hold": func(t *testing.T, r *repairRig) { r.hold(t, 1, 1, inRedis) },
		"copy a hold": func(t *testing.T, r *repairRig) { r.hold(t, 1, 1, inMySQL) },
		"end a hold": func(t *testing.T, r *repairRig) {
			h := r.hold(t, 1, 1, inRedis, inMySQL)
			r.in(t, as(h, holdover.StateReleased), inMySQL)
		},
		"confirm a hold in mysql": func(t *testing.T, r *repairRig) {
			h := r.hold(t, 1, 1, inRedis, inMySQL)
			r.exec(t, "UPDATE reserved_quantities SET firm = 0, granted_at = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR WHERE token = ?", h.Token[:])
		},
		"set a counter": func(t *testing.T, r *repairRig) {
			if err := r.raw.DecrBy(t.Context(), "inventory:1:1", 3).Err(); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, planted := range plant {
		t.Run(name, func(t *testing.T) {
			r := newRepairRig(t, holdover.StageMySQL)
			planted(t, r)
			if err := r.raw.DecrBy(t.Context(), "inventory:1:7", 3).Err(); err != nil { // the step that would come after it
				t.Fatal(err)
			}
			found, cfg := r.found(t, 2)
			var before string
			var outcomes []string
			cfg.Audit = func(ctx context.Context, _ compare.Repaired) (func(context.Context, string) error, error) {
				if before == "" {
					if _, err := r.Switch.Trip(ctx, "ada", "now"); err != nil {
						t.Fatal(err)
					}
					before = r.image(t)
				}
				return func(_ context.Context, outcome string) error { outcomes = append(outcomes, outcome); return nil }, nil
			}
			done, err := compare.Repair(t.Context(), r.Redis, r.MySQL, found, cfg)
			if !errors.Is(err, holdover.ErrStale) || !strings.Contains(fmt.Sprint(err), "moved to shadow") || !strings.Contains(fmt.Sprint(err), "run it again") {
				t.Errorf("it ended with %v", err)
			}
			if len(done) != 1 || done[0].Outcome != compare.RepairLeft || len(outcomes) != 1 || !strings.HasPrefix(outcomes[0], compare.RepairLeft) {
				t.Errorf("%v, recorded %q", done, outcomes)
			}
			if after := r.image(t); after != before {
				t.Error("it went on after the kill")
			}
		})
	}
}

// TestRepairRefusesAStoreBehind: a killer died after its write to MySQL. Nothing is
// repaired until Redis has followed.
func TestRepairRefusesAStoreBehind(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	r.hold(t, 1, 1, inRedis)
	if _, err := r.MySQL.RaiseFence(t.Context(), holdover.Fence{Pod: r.Name, Epoch: r.epoch + 2, Stage: holdover.StageShadow, Latched: true, By: "ada", Reason: "now"}); err != nil {
		t.Fatal(err)
	}
	before := r.image(t)
	done, err := Repair(t.Context(), r.cfg, r.Stores, RepairOptions{By: "ada", Reason: "a test"})
	if !errors.Is(err, holdover.ErrStale) || len(done.Repairs) != 0 || done.Error == "" || done.Clean {
		t.Errorf("%+v, %v", done, err)
	}
	if r.image(t) != before {
		t.Error("something was changed")
	}
}

// TestRepairMakesACounterThatTheJournalWaitsFor: the counter is gone while MySQL
// decides (an eviction, a DEL, an item that is new in the ledger), and what buyers did
// since is journaled. The counter is made so that it is right when the journal has
// been carried over.
func TestRepairMakesACounterThatTheJournalWaitsFor(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	if err := r.Facade.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	reserve := func(units int64) holdover.Token {
		t.Helper()
		token := holdover.NewToken()
		if _, err := r.Facade.Reserve(t.Context(), holdover.Request{Shop: 1, Token: token, TTL: time.Hour, Lines: []holdover.Line{{Item: 9, Group: 1, Quantity: units}}}); err != nil {
			t.Fatal(err)
		}
		return token
	}
	stays, claimed, part, released := reserve(2), reserve(3), reserve(9), reserve(4)
	if err := r.raw.Del(t.Context(), "inventory:1:9").Err(); err != nil {
		t.Fatal(err)
	}
	reserve(1)
	// Redis does not answer for a while: MySQL ends these, and journals it.
	if _, err := r.MySQL.Claim(t.Context(), r.epoch, 1, claimed, nil, true); err != nil {
		t.Fatal(err)
	}
	if _, err := r.MySQL.Claim(t.Context(), r.epoch, 1, part, []holdover.Line{{Item: 9, Group: 1, Quantity: 5}}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := r.MySQL.End(t.Context(), r.epoch, 1, released, holdover.StateReleased, true); err != nil {
		t.Fatal(err)
	}
	if n := r.number(t, "SELECT COUNT(*) FROM holdover_unmirrored"); n != 4 {
		t.Fatalf("%d facts in the journal", n)
	}
	r.exec(t, "UPDATE reserved_quantities SET firm = 1")
	done := r.repair(t, false, false)
	if len(done.Repairs) != 1 || done.Repairs[0].Kind != compare.DiffCounterMissing || done.Repairs[0].Outcome != compare.RepairDone {
		t.Errorf("%v", done.Repairs)
	}
	if err := r.Facade.DrainOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.number(t, "SELECT COUNT(*) FROM holdover_unmirrored"); n != 0 {
		t.Errorf("%d facts still wait for a counter", n)
	}
	if got := r.counter(t, 9); got != "989" { // 1000 less 3 and 5 that were claimed, and 2 and 1 that are held
		t.Errorf("the counter is %s", got)
	}
	if s := r.raw.HGet(t.Context(), "hold:"+stays.String(), "state").Val(); s != "held" {
		t.Errorf("a hold is %q", s)
	}
	r.sums(t)
	r.found(t, 0)
}

// TestRepairLeavesAnOpenLowering: an instance died after Redis gave up the units of a
// lowering, before MySQL decided it. They are nobody's sale, and not put back.
func TestRepairLeavesAnOpenLowering(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	a := holdover.Adjustment{Token: holdover.NewToken(), Shop: 1, Item: 4, Group: 1, Delta: -200, Reason: "damaged", By: "ada"}
	if _, err := r.Redis.LowerFor(t.Context(), r.epoch, a, 200, false); err != nil {
		t.Fatal(err)
	}
	if done := r.repair(t, false, false); done.Clean || len(done.Repairs) != 0 || done.Found.UnsettledCount != 1 {
		t.Errorf("%+v, %v", done, done.Repairs)
	}
	deadline := time.After(30 * time.Second)
	for r.number(t, "SELECT available FROM inventory_ledger WHERE item_id=4") != 800 {
		if err := r.Facade.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.Facade.SettleAdjustments(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-deadline:
			t.Fatal("the lowering was not decided")
		case <-time.After(50 * time.Millisecond):
		}
	}
	if got := r.counter(t, 4); got != "800" {
		t.Errorf("the ledger has 800 units, and Redis would sell %s after a kill", got)
	}
	r.found(t, 0)
}
