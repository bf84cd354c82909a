package app

import (
	"context"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/mysqlpool"
)

// movingRedis lets a buyer go and another one come while the live holds are read.
type movingRedis struct {
	compare.RedisRepair
	mu            sync.Mutex
	before, after func()
}

func (m *movingRedis) LiveHolds(ctx context.Context, cursor uint64, count int) ([]holdover.Hold, uint64, error) {
	m.mu.Lock()
	if f := m.before; f != nil {
		m.before = nil
		f()
	}
	m.mu.Unlock()
	page, next, err := m.RedisRepair.LiveHolds(ctx, cursor, count)
	m.mu.Lock()
	if f := m.after; f != nil && next == 0 {
		m.after = nil
		f()
	}
	m.mu.Unlock()
	return page, next, err
}

// One buyer leaves before the live holds are read and another one comes after: the
// counter is the same at both readings, and the holds in between are one too few.
func TestBreakCounterIsRepairedByAMovingLook(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRepairRig(t, stage)
			leaves := r.hold(t, 7, 1, inRedis, inMySQL)
			if err := r.raw.DecrBy(t.Context(), "inventory:1:7", 3).Err(); err != nil { // somebody else's
				t.Fatal(err)
			}
			cfg, fence, err := verifyConfig(t.Context(), r.cfg, r.Stores, VerifyOptions{})
			if err != nil {
				t.Fatal(err)
			}
			found, err := compare.Verify(t.Context(), r.Redis, r.MySQL, cfg)
			if err != nil || found.Count != 1 || found.Differences[0].Units != -3 {
				t.Fatalf("%v %v", found, err)
			}
			moving := &movingRedis{RedisRepair: r.Redis,
				before: func() { r.in(t, as(leaves, holdover.StateReleased), inRedis, inMySQL) },
				after:  func() { r.hold(t, 7, 1, inRedis, inMySQL) },
			}
			done, err := compare.Repair(t.Context(), moving, r.MySQL, found, compare.RepairConfig{Verify: cfg, Fence: fence, Counters: true})
			if err != nil || moving.after != nil {
				t.Fatal(err)
			}
			t.Log(done)
			r.sums(t)
		})
	}
}

// A kill comes while a repair is under way: what was planned for mysql must not be
// done where Redis decides.
func TestBreakRepairGoesOnAfterAKill(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	only := r.hold(t, 1, 1, inRedis)
	if err := r.raw.DecrBy(t.Context(), "inventory:1:7", 3).Err(); err != nil { // sold by somebody else
		t.Fatal(err)
	}
	cfg, fence, err := verifyConfig(t.Context(), r.cfg, r.Stores, VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := compare.Verify(t.Context(), r.Redis, r.MySQL, cfg)
	if err != nil || found.Count != 2 {
		t.Fatalf("%v %v", found, err)
	}
	killed := false
	done, err := compare.Repair(t.Context(), r.Redis, r.MySQL, found, compare.RepairConfig{Verify: cfg, Fence: fence,
		Audit: func(ctx context.Context, _ compare.Repaired) (func(context.Context, string) error, error) {
			if !killed {
				killed = true
				tripped, err := r.Switch.Trip(ctx, "ada", "now")
				if err != nil {
					t.Fatal(err)
				}
				// The buyer repeats: in shadow Redis alone says yes, and MySQL follows later.
				g, err := r.Redis.Vote(ctx, holdover.Ticket{Epoch: tripped.To.Epoch, Attempt: 7}, holdover.Request{Shop: 1, Token: only.Token, Lines: only.Lines, TTL: time.Hour})
				if err != nil || g.Hold.State != holdover.StateHeld {
					t.Fatalf("%v %v", g, err)
				}
			}
			return func(context.Context, string) error { return nil }, nil
		}})
	t.Log(done, err)
	if got := r.raw.HGet(t.Context(), "hold:"+only.Token.String(), "state").Val(); got != "held" {
		t.Errorf("the buyer was told yes by Redis, which decides, and his hold is %q there", got)
	}
	if n := r.raw.Get(t.Context(), "inventory:1:7").Val(); n != "997" {
		t.Errorf("Redis decides, --counters was not given, and the counter was set to %s", n)
	}
}

// A counter is gone in mysql (an eviction, a DEL; or the item is new in the ledger).
// A grant of it is journaled, since Redis can't take it. Nothing makes the counter
// any more, so the journal is never empty again, and no step is ever ready.
func TestBreakMissingCounterAndJournalWaitForEachOther(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	if err := r.Facade.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.raw.Del(t.Context(), "inventory:1:9").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Facade.Reserve(t.Context(), holdover.Request{Shop: 1, Token: holdover.NewToken(), TTL: time.Hour, Lines: []holdover.Line{{Item: 9, Group: 1, Quantity: 1}}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Facade.DrainOnce(t.Context()); err != nil {
			t.Log("drain:", err)
		}
		done := r.repair(t, false, true)
		t.Log(done.Clean, done.Repairs)
	}
	if err := r.Facade.DrainOnce(t.Context()); err != nil {
		t.Log("drain:", err)
	}
	if n := r.number(t, "SELECT COUNT(*) FROM holdover_unmirrored"); n != 0 {
		t.Errorf("%d facts wait for a counter", n)
	}
	if n := r.raw.Exists(t.Context(), "inventory:1:9").Val(); n != 1 {
		t.Error("the counter was not made")
	}
	_, err := ImportStock(t.Context(), r.Stores, []mysqlpool.StockRow{{Shop: 1, Item: 9, Group: 1, Available: 1000}})
	t.Log("import:", err)
}
