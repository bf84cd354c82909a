package app

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"database/sql"

	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/compare"
	"holdover/mysqlpool"
)

// repairRig is a pod in a stage with 1,000 units each of items 1 to 9 of shop 1,
// and clients that look behind the stores.
type repairRig struct {
	*Stores
	cfg   Config
	raw   *redis.Client
	db    *sql.DB
	epoch holdover.Epoch
}

func newRepairRig(t *testing.T, stage holdover.Stage) *repairRig {
	t.Helper()
	c := newConfig(t)
	c.Timing.Call = 10 * time.Second        // the machine may be busy
	c.Timing.Recheck = 5 * time.Millisecond // nothing is under way here but what a test starts
	r := &repairRig{Stores: newStores(t, c), cfg: c}
	var stages []holdover.Stage
	for _, s := range holdover.Stages() {
		if s <= stage {
			stages = append(stages, s)
		}
	}
	fences(t, r.Stores, stages...)
	r.epoch = holdover.Epoch(len(stages))
	r.raw = redis.NewClient(&redis.Options{Addr: c.Pods[0].Redis.Addr, DB: c.Pods[0].Redis.DB, MaxRetries: -1})
	t.Cleanup(func() { _ = r.raw.Close() })
	var err error
	if r.db, err = sql.Open("mysql", c.Pods[0].MySQL.DSN); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.db.Close() })
	var rows []mysqlpool.StockRow
	for item := int64(1); item <= 9; item++ {
		rows = append(rows, mysqlpool.StockRow{Shop: 1, Item: item, Group: 1, Available: 1000})
	}
	if _, err := ImportStock(t.Context(), r.Stores, rows); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *repairRig) exec(t *testing.T, q string, args ...any) {
	t.Helper()
	if _, err := r.db.ExecContext(t.Context(), q, args...); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

func (r *repairRig) number(t *testing.T, q string, args ...any) int64 {
	t.Helper()
	var n sql.NullInt64
	if err := r.db.QueryRowContext(t.Context(), q, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	return n.Int64
}

// in applies a fact to the stores named.
func (r *repairRig) in(t *testing.T, h holdover.Hold, stores ...holdover.Store) {
	t.Helper()
	for _, s := range stores {
		var err error
		if s == holdover.StoreRedis {
			_, err = r.Redis.Apply(t.Context(), h)
		} else {
			_, err = r.MySQL.Apply(t.Context(), h)
		}
		if err != nil {
			t.Fatalf("%s in %s: %v", h.State, s, err)
		}
	}
}

const (
	inRedis = holdover.StoreRedis
	inMySQL = holdover.StoreMySQL
)

// hold is a firm hold of units of an item in the stores named.
func (r *repairRig) hold(t *testing.T, item, units int64, stores ...holdover.Store) holdover.Hold {
	t.Helper()
	h := holdover.Hold{
		Token: holdover.NewToken(), Shop: 1, Lines: []holdover.Line{{Item: item, Group: 1, Quantity: units}}, State: holdover.StateHeld, Firm: true,
		GrantedAt: time.Now().Add(-time.Minute), ExpiresAt: time.Now().Add(time.Hour).Truncate(time.Millisecond),
	}
	r.in(t, h, stores...)
	return h
}

func as(h holdover.Hold, s holdover.State) holdover.Hold {
	h.State = s
	return h
}

func (r *repairRig) repair(t *testing.T, dry, counters bool) RepairedPod {
	t.Helper()
	done, err := Repair(t.Context(), r.cfg, r.Stores, RepairOptions{By: "ada", Reason: "a test", DryRun: dry, Counters: counters})
	if err != nil {
		t.Fatalf("%v: %v", err, done.Repairs)
	}
	return done
}

// sums checks every item in SQL and Redis: the counter is the ledger less Redis's
// live holds, and MySQL's pool keeps its own sum.
func (r *repairRig) sums(t *testing.T) {
	t.Helper()
	held := map[int64]int64{}
	for cursor := uint64(0); ; {
		page, next, err := r.Redis.LiveHolds(t.Context(), cursor, 500)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[holdover.Token]bool{}
		for _, h := range page {
			if !seen[h.Token] {
				for _, l := range h.Part() {
					held[l.Item] += l.Quantity
				}
			}
			seen[h.Token] = true
		}
		if cursor = next; next == 0 {
			break
		}
	}
	for item := int64(1); item <= 9; item++ {
		counter, err := r.raw.Get(t.Context(), fmt.Sprintf("inventory:1:%d", item)).Int64()
		if err != nil {
			t.Fatal(err)
		}
		ledger := r.number(t, "SELECT available FROM inventory_ledger WHERE item_id=?", item)
		if counter != ledger-held[item] {
			t.Errorf("item %d: the counter is %d, the ledger %d and redis's holds %d", item, counter, ledger, held[item])
		}
		live := r.number(t, "SELECT SUM(quantity) FROM reserved_quantities WHERE state='held' AND item_id=?", item)
		if live != held[item] {
			t.Errorf("item %d: %d units held in mysql, %d in redis", item, live, held[item])
		}
		if issued := r.number(t, "SELECT issued FROM pool_state WHERE item_id=?", item); issued != live+r.number(t, "SELECT COUNT(*) FROM reservation_units WHERE item_id=?", item) || issued > ledger {
			t.Errorf("item %d: %d issued", item, issued)
		}
	}
}

// TestRepair plants every kind of difference that can stand still, in every stage
// that compares, and repairs it by token: a dry run changes nothing, everything is
// recorded, and the second repair finds nothing.
func TestRepair(t *testing.T) {
	for _, stage := range []holdover.Stage{holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL} {
		t.Run(stage.String(), func(t *testing.T) {
			r := newRepairRig(t, stage)
			mysqlDecides := stage == holdover.StageMySQL
			untouched := r.hold(t, 1, 3, inRedis, inMySQL)
			onlyRedis := r.hold(t, 1, 2, inRedis)
			onlyMySQL := r.hold(t, 2, 2, inMySQL)
			endedInRedis := r.hold(t, 3, 2, inRedis, inMySQL)
			r.in(t, as(endedInRedis, holdover.StateReleased), inRedis)
			claimedInMySQL := r.hold(t, 3, 4, inRedis, inMySQL)
			r.in(t, as(claimedInMySQL, holdover.StateClaimed), inMySQL)
			releasedInMySQL := r.hold(t, 4, 5, inRedis, inMySQL)
			r.in(t, as(releasedInMySQL, holdover.StateReleased), inMySQL)
			tentative := r.hold(t, 4, 1, inRedis, inMySQL)
			r.exec(t, "UPDATE reserved_quantities SET firm = 0, granted_at = UTC_TIMESTAMP(3) + INTERVAL 1 HOUR WHERE token = ?", tentative.Token[:])
			short := r.hold(t, 5, 1, inRedis, inMySQL)
			r.exec(t, "UPDATE reserved_quantities SET expires_at = expires_at - INTERVAL 10 MINUTE WHERE token = ?", short.Token[:])
			shortInRedis := r.hold(t, 5, 1, inRedis, inMySQL)
			if err := r.raw.HSet(t.Context(), "hold:"+shortInRedis.Token.String(), "expires_ms", shortInRedis.ExpiresAt.Add(-10*time.Minute).UnixMilli()).Err(); err != nil {
				t.Fatal(err)
			}
			claiming := r.hold(t, 6, 2, inRedis)
			if _, err := r.Redis.Mark(t.Context(), r.epoch, 1, claiming.Token, nil); err != nil {
				t.Fatal(err)
			}
			for item, by := range map[int64]int64{7: -3, 8: 4} { // an old deployment still sells and takes back
				if err := r.raw.IncrBy(t.Context(), fmt.Sprintf("inventory:1:%d", item), by).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.raw.Del(t.Context(), "inventory:1:9").Err(); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{ // outcome by subject
				onlyRedis.Token.String(): compare.RepairDone, onlyMySQL.Token.String(): compare.RepairDone, endedInRedis.Token.String(): compare.RepairDone,
				claimedInMySQL.Token.String(): compare.RepairDone, releasedInMySQL.Token.String(): compare.RepairLeft, tentative.Token.String(): compare.RepairDone,
				short.Token.String(): compare.RepairDone, claiming.Token.String(): compare.RepairDone,
				"7": compare.RepairLeft, "8": compare.RepairLeft, "9": compare.RepairLeft,
			}
			if mysqlDecides {
				for _, subject := range []string{releasedInMySQL.Token.String(), "7", "8", "9"} {
					want[subject] = compare.RepairDone
				}
				want[shortInRedis.Token.String()] = compare.RepairDone
			}
			check := func(done RepairedPod, would bool) {
				t.Helper()
				got := map[string]string{}
				for _, d := range done.Repairs {
					subject := d.Token
					if subject == "" {
						subject = strconv.FormatInt(d.Item, 10)
					}
					got[subject] = d.Outcome
					if d.Outcome != compare.RepairLeft && (d.Action == "" || d.Before == "" || d.After == "") {
						t.Errorf("says too little: %+v", d)
					}
					if d.Outcome == compare.RepairLeft && d.Why == "" {
						t.Errorf("left without a reason: %+v", d)
					}
				}
				if len(got) != len(want) || len(done.Repairs) != len(want) {
					t.Errorf("%d repairs, want %d: %v", len(done.Repairs), len(want), done.Repairs)
				}
				for subject, outcome := range want {
					if would && outcome == compare.RepairDone {
						outcome = compare.RepairWould
					}
					if got[subject] != outcome {
						t.Errorf("%s: %q, want %q: %v", subject, got[subject], outcome, done.Repairs)
					}
				}
			}
			before := r.image(t)
			dry := r.repair(t, true, false)
			check(dry, true)
			if after := r.image(t); after != before {
				t.Error("a dry run changed something")
			}
			if dry.Clean || dry.After != nil || r.number(t, "SELECT COUNT(*) FROM holdover_repairs") != 0 {
				t.Errorf("a dry run: %+v", dry)
			}

			done := r.repair(t, false, false)
			check(done, false)
			recorded := 0
			for _, d := range done.Repairs {
				if d.Outcome == compare.RepairDone {
					recorded++
				}
			}
			if n := r.number(t, "SELECT COUNT(*) FROM holdover_repairs WHERE repaired_by='ada' AND reason='a test' AND outcome='done' AND before_it<>'' AND after_it<>''"); int(n) != recorded {
				t.Errorf("%d repairs recorded, want %d", n, recorded)
			}
			if mysqlDecides != done.Clean {
				t.Errorf("clean %t: %s", done.Clean, done.After.Summary())
			}
			if !mysqlDecides { // what is left: a hold that mysql ended, and counters that somebody has to look at first
				r.in(t, as(releasedInMySQL, holdover.StateReleased), inRedis)
				if more := r.repair(t, false, true); !more.Clean || len(more.Repairs) != 3 {
					t.Errorf("with --counters: %v", more.Repairs)
				}
			}
			if again := r.repair(t, false, false); !again.Clean || len(again.Repairs) != 0 || again.After != nil {
				t.Errorf("again: %+v", again)
			}
			r.sums(t)
			// Nobody lost a hold, and what was claimed was claimed once.
			for _, h := range []holdover.Hold{untouched, onlyMySQL, short, shortInRedis, tentative} {
				if n := r.number(t, "SELECT COUNT(*) FROM reserved_quantities WHERE token=? AND state='held'", h.Token[:]); n != 1 {
					t.Errorf("hold %s is gone in mysql", h.Token)
				}
				if n := r.raw.HGet(t.Context(), "hold:"+h.Token.String(), "state").Val(); n != "held" {
					t.Errorf("hold %s is %q in redis", h.Token, n)
				}
			}
			if n := r.number(t, "SELECT SUM(delta) FROM ledger_entries WHERE kind='claim'"); n != -4-2 {
				t.Errorf("the ledger was changed by %d", n)
			}
		})
	}
}

// image is all that a dry run must not change.
func (r *repairRig) image(t *testing.T) string {
	t.Helper()
	var all string
	keys, err := r.raw.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	dumps := map[string]string{}
	for _, key := range keys {
		dumps[key] = r.raw.Dump(t.Context(), key).Val()
	}
	for _, table := range []string{"reserved_quantities", "inventory_ledger", "pool_state", "ledger_entries", "holdover_unmirrored"} {
		var name string
		var sum sql.NullInt64
		if err := r.db.QueryRowContext(t.Context(), "CHECKSUM TABLE "+table).Scan(&name, &sum); err != nil {
			t.Fatal(err)
		}
		all += fmt.Sprint(table, sum.Int64, " ")
	}
	return all + fmt.Sprint(dumps)
}

// TestRepairInRedis: MySQL is left alone, and counters are set on request only.
func TestRepairInRedis(t *testing.T) {
	r := newRepairRig(t, holdover.StageRedis)
	r.hold(t, 1, 2, inRedis)
	if err := r.raw.IncrBy(t.Context(), "inventory:1:2", 5).Err(); err != nil {
		t.Fatal(err)
	}
	if done := r.repair(t, false, false); done.Clean || done.Rule == "" || len(done.Repairs) != 2 || done.Repairs[0].Outcome != compare.RepairLeft || done.Repairs[1].Outcome != compare.RepairLeft {
		t.Errorf("%+v", done)
	}
	r.repair(t, false, true)
	if n := r.raw.Get(t.Context(), "inventory:1:2").Val(); n != "1000" {
		t.Errorf("the counter is %s", n)
	}
	if n := r.number(t, "SELECT COUNT(*) FROM reserved_quantities"); n != 0 {
		t.Errorf("mysql got %d rows", n)
	}
}

// TestRepairRefuses: without a name or a reason, in mysql-only, and while another
// one is under way.
func TestRepairRefuses(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	if _, err := Repair(t.Context(), r.cfg, r.Stores, RepairOptions{By: "ada"}); !errors.Is(err, holdover.ErrInvalid) {
		t.Errorf("without a reason: %v", err)
	}
	if _, err := r.MySQL.Alone(t.Context(), "repair", func(ctx context.Context) error {
		_, err := Repair(ctx, r.cfg, r.Stores, RepairOptions{By: "ada", Reason: "two at once"})
		return err
	}); !errors.Is(err, holdover.ErrTryAgain) {
		t.Errorf("two at once: %v", err)
	}
	if _, err := r.MySQL.RaiseFence(t.Context(), holdover.Fence{Pod: r.Name, Epoch: r.epoch + 1, Stage: holdover.StageMySQLOnly, By: "test", Reason: "retired"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(t.Context(), r.cfg, r.Stores, RepairOptions{By: "ada", Reason: "retired"}); !errors.Is(err, ErrNothingToVerify) {
		t.Errorf("in mysql-only: %v", err)
	}
}

// TestRepairUnderTraffic: a Redis that loses its data in mysql while buyers come,
// and gets it back while they go on; then a kill. Nothing that a buyer was told is
// lost, and nothing is sold twice.
func TestRepairUnderTraffic(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	c := r.cfg
	c.Timing.Dwell, c.Timing.Drive = time.Hour, time.Hour
	pod, err := OpenPod(t.Context(), c, c.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { defer close(ran); _ = pod.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ran
		if err := pod.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	await := func(what string, met func() bool) {
		t.Helper()
		deadline := time.After(time.Minute)
		for !met() {
			select {
			case <-deadline:
				t.Fatalf("waited in vain until %s", what)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	await("the pod serves", func() bool { _, err := pod.Facade.Agreed(); return err == nil })

	type told struct {
		token holdover.Token
		item  int64
		units int64
	}
	var (
		mu            sync.Mutex
		held, claimed []told
		failed        atomic.Int64
		buyers        sync.WaitGroup
	)
	quit := make(chan struct{})
	for range 6 {
		buyers.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
				}
				x := told{holdover.NewToken(), 1 + rand.Int64N(9), 1 + rand.Int64N(2)}
				_, err := pod.Facade.Reserve(t.Context(), holdover.Request{Shop: 1, Token: x.token, TTL: time.Hour, Lines: []holdover.Line{{Item: x.item, Group: 1, Quantity: x.units}}})
				if errors.Is(err, holdover.ErrOutOfStock) {
					continue
				}
				if err == nil {
					switch rand.IntN(12) { // most let go again: the stock must outlast the repair
					case 0:
						if _, err = pod.Facade.Claim(t.Context(), 1, x.token); err == nil {
							mu.Lock()
							claimed = append(claimed, x)
							mu.Unlock()
						}
					case 1:
						mu.Lock()
						held = append(held, x)
						mu.Unlock()
					default:
						_, err = pod.Facade.Release(t.Context(), 1, x.token)
					}
				}
				if err != nil {
					failed.Add(1)
					t.Errorf("a buyer was told %v", err)
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(held) + len(claimed) }
	await("buyers come", func() bool { return count() > 50 })
	if err := r.raw.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	await("buyers are served without Redis", func() bool { return count() > 150 })
	if dry := r.repair(t, true, false); dry.Rebuild == "" || dry.Rebuilt != nil {
		t.Errorf("a dry run: %+v", dry)
	}
	r.cfg.Timing.Recheck = 300 * time.Millisecond // buyers are under way
	done, err := Repair(t.Context(), r.cfg, r.Stores, RepairOptions{By: "ada", Reason: "Redis lost its data"})
	if err != nil || done.Rebuilt == nil || done.Rebuilt.Holds == 0 {
		t.Fatalf("%+v, %v", done, err)
	}
	if n := r.number(t, "SELECT COUNT(*) FROM holdover_repairs WHERE action='rebuild from mysql' AND outcome LIKE 'done%'"); n != 1 {
		t.Errorf("%d rebuilds recorded", n)
	}
	before := count()
	await("buyers go on", func() bool { return count() > before+50 })
	if _, err := Kill(t.Context(), r.Stores, "ada", "right after the rebuild", false); err != nil {
		t.Fatal(err)
	}
	before = count()
	await("buyers go on in Redis", func() bool { return count() > before+50 || failed.Load() > 0 })
	close(quit)
	buyers.Wait()
	await("nothing is left to carry over", func() bool {
		s := pod.Facade.Stats()
		return s.LaneJobs == 0 && s.Unmirrored+s.Debts+s.GiveBacks == 0 && r.number(t, "SELECT COUNT(*) FROM holdover_unmirrored") == 0
	})
	r.exec(t, "UPDATE reserved_quantities SET firm = 1")
	r.sums(t)
	for _, x := range held {
		if s := r.raw.HGet(t.Context(), "hold:"+x.token.String(), "state").Val(); s != "held" {
			t.Errorf("a hold that a buyer has is %q in redis", s)
		}
	}
	sold := map[int64]int64{}
	for _, x := range claimed {
		sold[x.item] += x.units
	}
	for item := int64(1); item <= 9; item++ {
		if ledger := r.number(t, "SELECT available FROM inventory_ledger WHERE item_id=?", item); ledger != 1000-sold[item] {
			t.Errorf("item %d: %d in the ledger, %d sold", item, ledger, sold[item])
		}
	}
	if v, err := Verify(t.Context(), r.cfg, r.Stores); err != nil || !v.Clean {
		t.Errorf("%s: %v %v", v.Summary(), v.Differences, err)
	}
}

// TestVerifyOnTheClock: one of several instances verifies and records it; the
// others leave it at that, until it is old.
func TestVerifyOnTheClock(t *testing.T) {
	r := newRepairRig(t, holdover.StageShadow)
	pod, err := OpenPod(t.Context(), r.cfg, r.cfg.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pod.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if err := pod.Facade.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if word, _ := pod.verifyOnce(t.Context(), time.Hour); word != "clean" {
		t.Errorf("the first: %q", word)
	}
	if word, _ := pod.verifyOnce(t.Context(), time.Hour); word != "" {
		t.Errorf("one that is not due: %q", word)
	}
	last, clean, err := r.MySQL.LastVerified(t.Context())
	id, idErr := r.Redis.Identity(t.Context())
	if err != nil || idErr != nil || !last.Clean || last != clean || last.RedisID != id || last.Epoch != r.epoch || last.By != r.cfg.Instance || last.Summary == "" {
		t.Errorf("%+v, %+v, %v, %v", last, clean, err, idErr)
	}
	r.exec(t, "UPDATE holdover_verifications SET at = at - INTERVAL 1 HOUR")
	if err := r.raw.IncrBy(t.Context(), "inventory:1:1", 2).Err(); err != nil {
		t.Fatal(err)
	}
	if alone, err := r.MySQL.Alone(t.Context(), "verify", func(ctx context.Context) error {
		if word, _ := pod.verifyOnce(ctx, time.Hour); word != "" {
			t.Errorf("while another one is at it: %q", word)
		}
		return nil
	}); err != nil || !alone {
		t.Fatal(alone, err)
	}
	if word, _ := pod.verifyOnce(t.Context(), time.Hour); word == "" || word == "clean" {
		t.Errorf("a foreign write: %q", word)
	}
	v := pod.LastVerification()
	if v == nil || len(v.ForeignWrites) != 1 || len(v.Strangers) == 0 {
		t.Fatalf("who wrote? %+v", v)
	}
}
