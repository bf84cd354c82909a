package dualwrite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/dualwrite"
	"holdover/internal/teststack"
)

func (r *faultyRedis) BeginRebuild(ctx context.Context, owner string, truth holdover.Epoch) (holdover.Epoch, error) {
	return through(r.faults, ctx, r.call("BeginRebuild", holdover.Token{}), func(ctx context.Context) (holdover.Epoch, error) { return r.Redis.BeginRebuild(ctx, owner, truth) })
}

func (r *faultyRedis) ClearForRebuild(ctx context.Context, owner string, number int64, cursor uint64) (uint64, error) {
	return through(r.faults, ctx, r.call("ClearForRebuild", holdover.Token{}), func(ctx context.Context) (uint64, error) {
		return r.Redis.ClearForRebuild(ctx, owner, number, cursor)
	})
}

func (r *faultyRedis) FillHolds(ctx context.Context, owner string, number int64, holds []holdover.Hold) error {
	return r.run(ctx, r.call("FillHolds", holdover.Token{}), func(ctx context.Context) error { return r.Redis.FillHolds(ctx, owner, number, holds) })
}

func (r *faultyRedis) FillCounters(ctx context.Context, owner string, number int64, stocks []holdover.Stock) error {
	return r.run(ctx, r.call("FillCounters", holdover.Token{}), func(ctx context.Context) error { return r.Redis.FillCounters(ctx, owner, number, stocks) })
}

func (r *faultyRedis) FillAdjusted(ctx context.Context, owner string, number int64, adjusted []holdover.Adjusted) error {
	return r.run(ctx, r.call("FillAdjusted", holdover.Token{}), func(ctx context.Context) error { return r.Redis.FillAdjusted(ctx, owner, number, adjusted) })
}

func (r *faultyRedis) EndRebuild(ctx context.Context, owner string, number int64, fence holdover.Fence) error {
	return r.run(ctx, r.call("EndRebuild", holdover.Token{}), func(ctx context.Context) error { return r.Redis.EndRebuild(ctx, owner, number, fence) })
}

func (m *faultyMySQL) Snapshot(ctx context.Context, ended time.Duration, use func(context.Context, holdover.SnapshotPage) error) error {
	return m.run(ctx, m.call("Snapshot", holdover.Token{}), func(ctx context.Context) error { return m.MySQL.Snapshot(ctx, ended, use) })
}

func (m *faultyMySQL) ClearJournaled(ctx context.Context, rows []holdover.Journaled) error {
	return m.run(ctx, m.call("ClearJournaled", holdover.Token{}), func(ctx context.Context) error { return m.MySQL.ClearJournaled(ctx, rows) })
}

// atOnce leaves out the rebuild's pause: calls that knew the old Redis are the
// tests' own.
func atOnce(c *dualwrite.Config) { c.RebuildPause = time.Nanosecond }

// rebuildSteps are all of a rebuild's, in their order.
var rebuildSteps = []struct {
	name  string
	match func(call) bool
}{
	{"begin", redisOps("BeginRebuild")}, {"clear", redisOps("ClearForRebuild")}, {"snapshot", mysqlOps("Snapshot")},
	{"holds", redisOps("FillHolds")}, {"adjusted", redisOps("FillAdjusted")}, {"counters", redisOps("FillCounters")},
	{"journal", mysqlOps("ClearJournaled")}, {"end", redisOps("EndRebuild")},
}

// losses are the ways in which a Redis loses its view while MySQL decides.
var losses = []struct {
	name string
	lose func(t *testing.T, l *lost)
}{
	{"flushed", func(t *testing.T, l *lost) {
		if err := l.raw.FlushDB(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}},
	{"older data", func(t *testing.T, l *lost) { l.restore(t, l.older) }},
	{"closed", func(t *testing.T, l *lost) {
		if err := l.redis.DropFence(t.Context(), 1<<40); err != nil {
			t.Fatal(err)
		}
	}},
}

// lost is a pod in mysql with holds in every state, whose Redis has lost its view.
type lost struct {
	*rig
	held, held2, claimed, released, expired, part holdover.Token
	older                                         map[string]string // Redis as it was in joint
	units, live, sold                             int64
}

func (r *rig) dump(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	keys, err := r.raw.Keys(t.Context(), "*").Result()
	for _, key := range keys {
		if err == nil {
			all[key], err = r.raw.Dump(t.Context(), key).Result()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// restore makes Redis what it was at a dump.
func (r *rig) restore(t *testing.T, dump map[string]string) {
	t.Helper()
	err := r.raw.FlushDB(t.Context()).Err()
	for key, value := range dump {
		if err == nil {
			err = r.raw.Restore(t.Context(), key, 0, value).Err()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func newLost(t *testing.T, lose func(*testing.T, *lost)) *lost {
	t.Helper()
	l := &lost{rig: newRig(t, holdover.StageJoint, 1000, still, atOnce), units: 1000}
	l.hold(t) // lives in the older data and after
	l.older = l.dump(t)
	reach(t, l.f, holdover.StageMySQL)
	two := func() holdover.Token {
		q := request(l.shop, holdover.NewToken(), line(1, 2))
		wantOK(t, "reserve", reserveOn(l.f, q))
		return q.Token
	}
	l.held, l.held2, l.claimed, l.released, l.expired, l.part = two(), two(), two(), two(), two(), two()
	wantOK(t, "claim", claimOn(l.f, l.shop, l.claimed))
	wantOK(t, "release", releaseOn(l.f, l.shop, l.released))
	if _, err := l.f.Claim(t.Context(), l.shop, l.part, line(1, 1)); err != nil {
		t.Fatal(err)
	}
	l.expire(t, l.expired)
	l.calm(t)
	l.live, l.sold = 1+2+2, 2+1
	if lose != nil {
		l.lose(t, lose)
		wantOK(t, "claim", claimOn(l.f, l.shop, l.held2))
		l.live, l.sold = l.live-2, l.sold+2
	}
	return l
}

// lose lets Redis lose its view; what it does not hear of then is journaled.
func (l *lost) lose(t *testing.T, lose func(*testing.T, *lost)) {
	t.Helper()
	lose(t, l)
	late := l.two(t)
	if n := l.count(t, "SELECT COUNT(*) FROM holdover_unmirrored WHERE token=?", late[:]); n != 1 {
		t.Fatal("a grant that Redis did not hear of is not journaled")
	}
}

// expire lets a hold's time pass in both stores, and the sweep find it.
func (r *rig) expire(t *testing.T, token holdover.Token) {
	t.Helper()
	past := time.Now().Add(-time.Minute)
	if _, err := r.db.ExecContext(t.Context(), "UPDATE reserved_quantities SET expires_at=? WHERE token=?", past.UTC(), token[:]); err != nil {
		t.Fatal(err)
	}
	if r.redisState(t, token) != "none" {
		if err := r.raw.HSet(t.Context(), "hold:"+token.String(), "expires_ms", past.UnixMilli()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.f.SweepOnce(t.Context()); err != nil && !errors.Is(err, holdover.ErrNoFence) {
		t.Fatal(err)
	}
}

// whole fails unless both stores are complete and say the same: in SQL and Redis,
// and by a verification.
func (l *lost) whole(t *testing.T) {
	t.Helper()
	l.calm(t)
	// The give-back windows of these holds are over.
	if _, err := l.db.ExecContext(t.Context(), "UPDATE reserved_quantities SET firm = 1"); err != nil {
		t.Fatal(err)
	}
	if err := l.f.SettleAdjustments(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.conserved(t, l.shop, 1, l.units, l.live, l.sold)
	v, err := compare.Verify(t.Context(), l.redis, l.mysql, compare.VerifyConfig{Pod: pod, Recheck: time.Millisecond})
	if err != nil || !v.Clean {
		t.Errorf("verification: %s, %v: %v %v", v.Summary(), err, v.Differences, v.Unsettled)
	}
	if n, err := l.raw.Exists(t.Context(), "rebuild").Result(); err != nil || n != 0 {
		t.Errorf("the rebuild's marker is left over: %d, %v", n, err)
	}
}

// again rebuilds, and waits for the lease of one that died.
func (l *lost) again(t *testing.T) dualwrite.Rebuilt {
	t.Helper()
	var done dualwrite.Rebuilt
	eventually(t, "the rebuild is through", func() bool {
		var err error
		done, err = l.f.Rebuild(t.Context(), nil)
		if err != nil && !errors.Is(err, holdover.ErrTryAgain) {
			t.Fatal(err)
		}
		return err == nil
	})
	return done
}

func TestRebuild(t *testing.T) {
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			l := newLost(t, loss.lose)
			agreed, err := l.f.Agreed()
			if err != nil {
				t.Fatal(err)
			}
			last := [2]int{}
			done, err := l.f.Rebuild(t.Context(), func(holds, items int) { last = [2]int{holds, items} })
			if err != nil {
				t.Fatal(err)
			}
			if done.Holds != 3 || done.Ended != 5 || done.Items != 1 || done.Took <= 0 || last != [2]int{8, 1} {
				t.Errorf("%+v, progress %v", done, last)
			}
			there, err := l.redis.Fence(t.Context())
			if err != nil || there.Epoch != agreed.Epoch || there.Stage != holdover.StageMySQL {
				t.Errorf("the fence is %s, %v, want %s", there, err, agreed)
			}
			if n := l.journal(t); n != 0 {
				t.Errorf("%d rows in the journal: what they say is in Redis", n)
			}
			for token, state := range map[holdover.Token]string{l.held: "held", l.held2: "claimed", l.claimed: "claimed", l.part: "claimed", l.released: "released", l.expired: "expired"} {
				if got := l.redisState(t, token); got != state {
					t.Errorf("a hold is %s in redis, want %s", got, state)
				}
			}
			l.whole(t)
			// The end records stand: a late fact revives nothing.
			h, err := l.redis.Apply(t.Context(), holdover.Hold{Token: l.released, Shop: l.shop, Lines: []holdover.Line{line(1, 2)}, State: holdover.StateHeld, ExpiresAt: time.Now().Add(time.Hour)})
			if err != nil || h.State != holdover.StateReleased {
				t.Errorf("a late fact: %s, %v", h.State, err)
			}
			// And a kill right now loses nothing.
			trip(t, newSwitch(t, l.stores))
			wantOK(t, "claim after the kill", claimOn(l.f, l.shop, l.held))
			l.live, l.sold = l.live-2, l.sold+2
			wantErr(t, "more than there is", reserveOn(l.f, request(l.shop, holdover.NewToken(), line(1, l.units-l.live-l.sold+1))), holdover.ErrOutOfStock)
			q := request(l.shop, holdover.NewToken(), line(1, l.units-l.live-l.sold))
			wantOK(t, "all that is left", reserveOn(l.f, q))
			l.live += q.Lines[0].Quantity
			l.whole(t)
		})
	}
}

// TestRebuildRefuses: where nothing is to be rebuilt, or MySQL does not know all.
func TestRebuildRefuses(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 10, still, atOnce)
	r.hold(t)
	before := r.dump(t)
	if _, err := r.f.Rebuild(t.Context(), nil); !errors.Is(err, holdover.ErrStale) {
		t.Errorf("a Redis with the agreed fence: %v", err)
	}
	reach(t, r.f, holdover.StageJoint)
	if err := r.redis.DropFence(t.Context(), 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, err := r.f.Rebuild(t.Context(), nil); !errors.Is(err, holdover.ErrInvalid) {
		t.Errorf("where MySQL does not decide alone: %v", err)
	}
	after := r.dump(t)
	for _, key := range []string{"fence", "fence:history"} {
		delete(before, key)
		delete(after, key)
	}
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("a refused rebuild changed Redis")
	}
}

// TestRebuildUnderTraffic: buyers do everything before and after each step, and
// all of it is in both stores at the end.
func TestRebuildUnderTraffic(t *testing.T) {
	l := newLost(t, losses[0].lose)
	l.again(t)
	for _, step := range rebuildSteps {
		for when, hooked := range map[string]func(func()) fault{"before": before, "after": after} {
			l.lose(t, losses[0].lose)
			if _, err := l.f.Adjust(t.Context(), adjustment(l.shop, 7)); err != nil {
				t.Fatal(err)
			}
			l.units += 7
			// As if Redis had gone before it was asked to follow.
			if _, err := l.db.ExecContext(t.Context(), "UPDATE holdover_adjustments SET owed = 1"); err != nil {
				t.Fatal(err)
			}
			toClaim, toRelease, toExpire, toExtend := l.two(t), l.two(t), l.two(t), l.two(t)
			var extended time.Time
			l.faults.next(step.match, hooked(func() {
				wantOK(t, "claim", claimOn(l.f, l.shop, toClaim))
				wantOK(t, "release", releaseOn(l.f, l.shop, toRelease))
				l.expire(t, toExpire)
				res, err := l.f.Extend(t.Context(), l.shop, toExtend, 3*time.Hour)
				if err != nil {
					t.Errorf("extend: %v", err)
				}
				extended = res.Hold.ExpiresAt
				l.two(t)
				gone, sold := l.two(t), l.two(t)
				wantOK(t, "release at once", releaseOn(l.f, l.shop, gone))
				wantOK(t, "claim at once", claimOn(l.f, l.shop, sold))
				l.live, l.sold = l.live-2-2-2-2-2, l.sold+2+2
				if _, err := l.f.Adjust(t.Context(), adjustment(l.shop, 5)); err != nil {
					t.Errorf("adjust: %v", err)
				}
				l.units += 5
			}))
			l.again(t)
			if extended.IsZero() {
				t.Fatalf("%s %s never came", when, step.name)
			}
			l.whole(t)
			if n := l.count(t, "SELECT COUNT(*) FROM reserved_quantities WHERE token=? AND expires_at >= ?", toExtend[:], extended.Add(-time.Millisecond)); n != 1 {
				t.Error("the extension is lost in mysql")
			}
			if ms := number(t, l.raw.HGet(t.Context(), "hold:"+toExtend.String(), "expires_ms").Val()); ms < extended.UnixMilli()-1 {
				t.Error("the extension is lost in redis")
			}
			if t.Failed() {
				t.Fatalf("%s %s", when, step.name)
			}
		}
	}
}

func (l *lost) two(t *testing.T) holdover.Token {
	q := request(l.shop, holdover.NewToken(), line(1, 2))
	wantOK(t, "reserve", reserveOn(l.f, q))
	l.live += 2
	return q.Token
}

func adjustment(shop, delta int64) holdover.Adjustment {
	return holdover.Adjustment{Token: holdover.NewToken(), Shop: shop, Item: 1, Group: 1, Delta: delta, By: "test", Reason: "restock"}
}

// TestRebuildCrashes: one that dies before or after any step leaves a Redis that
// decides nothing, and the next one begins anew.
func TestRebuildCrashes(t *testing.T) {
	crashed := func(ctx context.Context, _ call, do func(context.Context) error) error {
		_ = do(ctx)
		return errInjected
	}
	for _, loss := range losses {
		t.Run(loss.name, func(t *testing.T) {
			l := newLost(t, loss.lose)
			sw := newSwitch(t, l.stores)
			for _, step := range rebuildSteps {
				for name, fault := range map[string]fault{"before": dropped, "after": crashed} {
					if step.name == "adjusted" || (step.name == "end" && name == "after") {
						continue // no such step here; it is done by then
					}
					l.faults.inject(step.match, fault)
					eventually(t, "the crash", func() bool {
						_, err := l.f.Rebuild(t.Context(), nil)
						if err == nil {
							t.Fatalf("%s %s: the crash went unnoticed", name, step.name)
						}
						return !errors.Is(err, holdover.ErrTryAgain)
					})
					l.faults.heal()
					if step.name != "begin" {
						if _, err := l.redis.Fence(t.Context()); !errors.Is(err, holdover.ErrNoFence) {
							t.Fatalf("%s %s: half a Redis has a fence: %v", name, step.name, err)
						}
						if _, err := sw.Trip(t.Context(), "test", "drill"); !errors.Is(err, holdover.ErrNoFence) {
							t.Fatalf("%s %s: a kill into half a Redis: %v", name, step.name, err)
						}
					}
					l.two(t)
				}
			}
			l.again(t)
			l.whole(t)
		})
	}
}

// TestRebuildLosesItsData: what the rebuild wrote goes away while it runs, with
// its marker or without: it ends without a fence.
func TestRebuildLosesItsData(t *testing.T) {
	l := newLost(t, losses[0].lose)
	for _, step := range rebuildSteps[2:] {
		for _, how := range []string{"flushed", "older data"} {
			if step.name == "adjusted" || (how == "older data" && slices.Contains([]string{"snapshot", "holds"}, step.name)) {
				continue // no such step, or nothing to lose yet
			}
			var early map[string]string
			l.faults.next(mysqlOps("Snapshot"), before(func() {
				if how == "older data" {
					early = l.dump(t)
				}
			}))
			l.faults.next(step.match, func(ctx context.Context, _ call, do func(context.Context) error) error {
				l.restore(t, early)
				return do(ctx)
			})
			if step.name == "snapshot" {
				l.faults.heal()
				l.faults.next(step.match, before(func() { l.restore(t, nil) }))
			}
			eventually(t, "the loss is noticed", func() bool {
				_, err := l.f.Rebuild(t.Context(), nil)
				if !errors.Is(err, holdover.ErrTryAgain) {
					t.Fatalf("%s before %s: rebuilt on what is gone: %v", how, step.name, err)
				}
				return len(l.faults.rules) == 0
			})
			if _, err := l.redis.Fence(t.Context()); !errors.Is(err, holdover.ErrNoFence) {
				t.Fatalf("%s before %s: half a Redis has a fence: %v", how, step.name, err)
			}
			l.two(t)
		}
	}
	l.again(t)
	l.whole(t)
}

// TestTwoRebuilders: the second is refused while the first lives, and takes over
// when it shows no sign of life; then the first can do nothing more.
func TestTwoRebuilders(t *testing.T) {
	l := newLost(t, losses[0].lose)
	other := l.another(t, still, atOnce)
	l.faults.next(redisOps("FillCounters"), before(func() {
		if _, err := other.Rebuild(t.Context(), nil); !errors.Is(err, holdover.ErrTryAgain) {
			t.Errorf("two at once: %v", err)
		}
	}))
	l.faults.next(redisOps("EndRebuild"), before(func() {
		eventually(t, "the second one takes over and ends", func() bool {
			_, err := other.Rebuild(t.Context(), nil)
			if err != nil && !errors.Is(err, holdover.ErrTryAgain) {
				t.Fatal(err)
			}
			return err == nil
		})
		l.two(t) // mirrored: a second ending of the first one must not undo it
	}))
	if _, err := l.f.Rebuild(t.Context(), nil); err != nil {
		t.Fatalf("redis is rebuilt, by the other one: %v", err)
	}
	l.whole(t)
	// In the middle of the second one's work the first one's late step is refused.
	m := newLost(t, losses[0].lose)
	rival := m.another(t, still, atOnce)
	m.faults.next(redisOps("FillHolds"), before(func() {
		eventually(t, "the lease is over", func() bool {
			_, err := m.redis.BeginRebuild(t.Context(), "rival", 1<<40)
			return err == nil
		})
	}))
	if _, err := m.f.Rebuild(t.Context(), nil); !errors.Is(err, holdover.ErrTryAgain) {
		t.Fatalf("the first one went on: %v", err)
	}
	if keys, err := m.raw.Keys(t.Context(), "hold:*").Result(); err != nil || len(keys) != 0 {
		t.Errorf("the first one wrote %v, %v", keys, err)
	}
	eventually(t, "the rival's lease is over", func() bool {
		_, err := rival.Rebuild(t.Context(), nil)
		return err == nil
	})
	m.whole(t)
}

// TestRebuildClaimInFlight: a claim was marked in the old Redis and reaches the
// ledger after the snapshot. Its clear finds a Redis that is being rebuilt, and
// is journaled; so does the sweep of another instance that saw the mark.
func TestRebuildClaimInFlight(t *testing.T) {
	for _, how := range []string{"call", "sweep"} {
		t.Run(how, func(t *testing.T) {
			l := newLost(t, nil)
			g := newGate(t)
			l.faults.next(mysqlOps("Apply"), g.hang)
			var claim <-chan outcome
			if how == "call" {
				claim = async(func() outcome { return claimOn(l.f, l.shop, l.held) })
			} else {
				agreed, err := l.f.Agreed()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := l.redis.Mark(t.Context(), agreed.Epoch, l.shop, l.held, nil); err != nil {
					t.Fatal(err)
				}
				claim = async(func() outcome { return outcome{err: l.f.SweepOnce(context.Background())} })
			}
			g.wait(t)
			losses[0].lose(t, l)
			other := l.another(t, still, atOnce, wrap(l.faults))
			l.faults.next(redisOps("FillCounters"), before(func() {
				g.open()
				got := await(t, claim, "the claim")
				if how == "call" {
					wantOK(t, "claim", got)
				}
				eventually(t, "the claim is journaled", func() bool {
					return l.count(t, "SELECT COUNT(*) FROM holdover_unmirrored WHERE token=?", l.held[:]) == 1
				})
			}))
			if _, err := other.Rebuild(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			l.live, l.sold = l.live-2, l.sold+2
			l.whole(t)
			l.states(t, l.held, "claimed", "claimed")
		})
	}
}

// TestRebuildIsBounded: many holds, in pages.
func TestRebuildIsBounded(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 10, still, atOnce)
	const holds = 20_000
	fill(t, r, holds)
	if err := r.raw.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	calls := 0
	done, err := r.f.Rebuild(t.Context(), func(int, int) { calls++ })
	if err != nil || done.Holds != holds || done.Items != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if pages := len(r.faults.made(redisOps("FillHolds"))); pages < holds/1000 || calls < pages {
		t.Errorf("%d pages, progress was told %d times", pages, calls)
	}
	if n, err := r.raw.ZCard(t.Context(), "holds").Result(); err != nil || n != holds {
		t.Errorf("%d holds in redis, %v", n, err)
	}
	if got := r.counter(t, r.shop, 1); got != 10 {
		t.Errorf("the counter is %d, want 10", got)
	}
	t.Logf("%d holds in %s", done.Holds, done.Took)
}

// fill puts held holds of one unit of item 1 into MySQL, in SQL.
func fill(t *testing.T, r *rig, holds int) {
	t.Helper()
	depth := "cte_max_recursion_depth"
	if teststack.MariaDB() {
		depth = "max_recursive_iterations"
	}
	for _, q := range []string{
		"SET SESSION " + depth + " = 10000000",
		fmt.Sprintf(`INSERT INTO reserved_quantities (token, line, shop_id, item_id, group_id, quantity, state, expires_at, granted_at, attempt, firm)
			WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < %d)
			SELECT UNHEX(LPAD(HEX(i), 32, '0')), 0, %d, 1, 1, 1, 'held', UTC_TIMESTAMP(3) + INTERVAL 1 HOUR + INTERVAL 1000 * (i DIV 7) MICROSECOND, UTC_TIMESTAMP(3), 1, 1 FROM n`, holds, r.shop),
		fmt.Sprintf("UPDATE inventory_ledger SET available = available + %d WHERE shop_id = %d", holds, r.shop),
		fmt.Sprintf("INSERT INTO pool_state (shop_id, item_id, group_id, issued, next_unit) VALUES (%d, 1, 1, %d, 1) ON DUPLICATE KEY UPDATE issued = issued + %d", r.shop, holds, holds),
	} {
		if _, err := r.db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
}
