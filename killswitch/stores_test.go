package killswitch_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"holdover"
	"holdover/internal/teststack"
	"holdover/killswitch"
	"holdover/legacyredis"
	"holdover/mysqlpool"
)

func TestMain(m *testing.M) { teststack.Main(m, "p") }

// pair is both real stores of a pod.
type pair struct {
	redis *legacyredis.Store
	mysql *mysqlpool.Store
	dsn   string
}

func (p pair) switchOf(t *testing.T, change ...func(*killswitch.Config)) *killswitch.Switch {
	t.Helper()
	// The budget is generous where it is not what is tested: the machine may be busy.
	cfg := killswitch.Config{Pod: "p", Redis: p.redis, MySQL: p.mysql, MySQLTimeout: 20 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	sw, err := killswitch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sw.Close(context.Background()) })
	return sw
}

// stores are fresh real stores with 10 units of item 1 and their fences at epoch 3.
func stores(t *testing.T, stage holdover.Stage) pair {
	t.Helper()
	ctx := t.Context()
	dsn := teststack.PreparedDSN(t, func(ctx context.Context, dsn string) error {
		_, err := mysqlpool.Migrate(ctx, dsn)
		return err
	})
	my, err := mysqlpool.Open(ctx, mysqlpool.Config{Pod: "p", DSN: dsn, OpTimeout: 8 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { my.Close() })
	addr, db := teststack.FreshRedis(t)
	re, err := legacyredis.Open(ctx, legacyredis.Config{Pod: "p", Addr: addr, DB: db, OpTimeout: 5 * time.Second, TripTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { re.Close() })
	f := fenceAt(stage, 3)
	if err := errors.Join(re.CompareAndSetFence(ctx, 0, f), my.CompareAndSetFence(ctx, 0, f)); err != nil {
		t.Fatal(err)
	}
	if _, err := my.ImportStock(ctx, []mysqlpool.StockRow{{Shop: 1, Item: 1, Group: 1, Available: 10}}); err != nil {
		t.Fatal(err)
	}
	if _, err := re.Load(ctx, 1, map[int64]int64{1: 10}, false); err != nil {
		t.Fatal(err)
	}
	return pair{re, my, dsn}
}

// agree fails unless both stores have this fence.
func (p pair) agree(t *testing.T, want string) {
	t.Helper()
	r, rerr := p.redis.Fence(t.Context())
	m, merr := p.mysql.Fence(t.Context())
	if err := errors.Join(rerr, merr); err != nil {
		t.Fatal(err)
	}
	if r.String() != want || m.String() != want {
		t.Errorf("redis has %v, mysql has %v, want %s", r, m, want)
	}
}

func request(quantity int64) holdover.Request {
	return holdover.Request{Shop: 1, Token: holdover.NewToken(), TTL: time.Hour, Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: quantity}}}
}

func TestRealTripCarriesWhatOnlyMySQLKnew(t *testing.T) {
	p := stores(t, holdover.StageMySQL)
	ctx := t.Context()
	// Redis was away: these are in MySQL and in its journal only.
	kept, claimed := request(2), request(3)
	for _, r := range []holdover.Request{kept, claimed} {
		if _, err := p.mysql.Vote(ctx, holdover.Ticket{Epoch: 3, Attempt: 1}, r, true); err != nil {
			t.Fatal(err)
		}
	}
	part := []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}
	if _, err := p.mysql.Claim(ctx, 3, 0, claimed.Token, part, true); err != nil {
		t.Fatal(err)
	}
	extended, err := p.mysql.Extend(ctx, 3, 0, kept.Token, 2*time.Hour, 48*time.Hour, true)
	if err != nil {
		t.Fatal(err)
	}

	got, err := p.switchOf(t).Trip(ctx, "alice", "drill")
	if err != nil {
		t.Fatal(err)
	}
	if got.Carried != 2 || got.Owed != "" {
		t.Errorf("got %+v", got)
	}
	p.agree(t, "shadow at epoch 5, latched (by alice: drill)")
	for token, want := range map[holdover.Token]holdover.State{kept.Token: holdover.StateHeld, claimed.Token: holdover.StateClaimed} {
		if h, err := p.redis.Lookup(ctx, token); err != nil || h.State != want {
			t.Errorf("redis has %v, %v; want %v", h.State, err, want)
		}
	}
	if h, err := p.redis.Lookup(ctx, kept.Token); err != nil || !h.ExpiresAt.Equal(extended.ExpiresAt) {
		t.Errorf("redis has it until %s, %v; mysql extended it to %s", h.ExpiresAt, err, extended.ExpiresAt)
	}
	if h, err := p.redis.Lookup(ctx, claimed.Token); err != nil || !holdover.SameLines(h.Claimed, part) {
		t.Errorf("redis has %v claimed, %v; want %v", h.Claimed, err, part)
	}

	// Nobody decides under the old epoch any more.
	if _, err := p.mysql.Vote(ctx, holdover.Ticket{Epoch: 3, Attempt: 2}, request(1), false); !errors.Is(err, holdover.ErrStale) {
		t.Errorf("mysql's vote under the old epoch: %v", err)
	}
	if _, err := p.redis.Vote(ctx, holdover.Ticket{Epoch: 3, Attempt: 2}, request(1)); !errors.Is(err, holdover.ErrStale) {
		t.Errorf("redis's vote under the old epoch: %v", err)
	}
	// Of 10 units 3 are gone: 7 are left, and not one more.
	ticket := holdover.Ticket{Epoch: 5, Attempt: 3}
	if _, err := p.redis.Vote(ctx, ticket, request(7)); err != nil {
		t.Errorf("the units that are left: %v", err)
	}
	if _, err := p.redis.Vote(ctx, ticket, request(1)); !errors.Is(err, holdover.ErrOutOfStock) {
		t.Errorf("one unit more than there is: %v", err)
	}
}

// A transaction that holds MySQL's fence row is what a stuck MySQL looks like
// to the kill. It must be over in its budget, and pay the debt afterwards.
func TestRealTripWhileMySQLIsStuck(t *testing.T) {
	p := stores(t, holdover.StageMySQL)
	ctx := t.Context()
	db, err := sql.Open("mysql", p.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "SELECT * FROM holdover_fence FOR UPDATE"); err != nil {
		t.Fatal(err)
	}

	const budget = 200 * time.Millisecond
	sw := p.switchOf(t, func(c *killswitch.Config) { c.MySQLTimeout = budget })
	got, err := sw.Trip(ctx, "alice", "drill")
	if err != nil {
		t.Fatal(err)
	}
	if got.Owed == "" || got.Took > 50*budget {
		t.Errorf("got %+v", got)
	}
	if r, err := p.redis.Fence(ctx); err != nil || r.Stage != holdover.StageShadow || r.Epoch != 5 {
		t.Errorf("redis has %v, %v", r, err)
	}
	if m, err := p.mysql.Fence(ctx); err != nil || m.Epoch != 3 {
		t.Errorf("mysql has %v, %v", m, err)
	}

	tx.Rollback()
	if err := sw.Close(ctx); err != nil { // the call that was left behind is over
		t.Fatal(err)
	}
	patient := p.switchOf(t)
	if again, err := patient.Trip(ctx, "bob", "again"); err != nil || !again.Already || again.Owed != "" {
		t.Errorf("got %+v, %v", again, err)
	}
	p.agree(t, "shadow at epoch 5, latched (by alice: drill)")
	if _, err := patient.Restore(ctx, "bob", "fixed"); err != nil {
		t.Fatal(err)
	}
	p.agree(t, "shadow at epoch 6 (by bob: fixed)")

	history, err := patient.History(ctx, 10)
	if err != nil || len(history) != 3 || history[0].By != "bob" || !history[1].Latched || history[1].Reason != "drill" {
		t.Errorf("history is %v, %v", history, err)
	}
}

func TestRealTripsAndRestoresAtOnceEndInAgreement(t *testing.T) {
	p := stores(t, holdover.StageMySQL)
	var busy sync.WaitGroup
	for i := range 6 {
		sw := p.switchOf(t, func(c *killswitch.Config) { c.Attempts = 100 })
		busy.Go(func() {
			for range 5 {
				if _, err := sw.Trip(t.Context(), fmt.Sprint("on-call ", i), "drill"); err != nil {
					t.Errorf("trip: %v", err)
				}
				// A restore may find that somebody was faster; nothing else may stop it.
				if _, err := sw.Restore(t.Context(), fmt.Sprint("on-call ", i), "over"); err != nil && !errors.Is(err, holdover.ErrStale) && !errors.Is(err, killswitch.ErrRefused) {
					t.Errorf("restore: %v", err)
				}
			}
		})
	}
	busy.Wait()
	got, err := p.switchOf(t).Trip(t.Context(), "alice", "last word")
	if err != nil {
		t.Fatal(err)
	}
	r, _ := p.redis.Fence(t.Context())
	p.agree(t, r.String())
	if r.Epoch != got.To.Epoch || !r.Latched || r.Stage != holdover.StageShadow {
		t.Errorf("redis has %v, the result says %v", r, got.To)
	}
	history, err := p.switchOf(t).History(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(history); i++ {
		if history[i].Epoch >= history[i-1].Epoch {
			t.Errorf("epoch %d was followed by %d", history[i].Epoch, history[i-1].Epoch)
		}
	}
}

func TestRealInstancesFollowAndAcknowledge(t *testing.T) {
	p := stores(t, holdover.StageMySQL)
	ctx := t.Context()
	for _, id := range []string{"1", "2"} {
		beat := func(ctx context.Context) error {
			f, err := p.redis.Fence(ctx)
			if err != nil {
				return err
			}
			return p.redis.Heartbeat(ctx, holdover.Instance{Name: "i" + id, ID: id, Epoch: f.Epoch})
		}
		if err := beat(ctx); err != nil {
			t.Fatal(err)
		}
		// Only the channel can tell them: nobody polls or nudges.
		follow(t, killswitch.FollowerConfig{Watch: p.redis, Refresh: beat, PollEvery: never, RefreshTimeout: 10 * time.Second})
	}
	sw := p.switchOf(t, func(c *killswitch.Config) { c.InstanceMaxAge = time.Hour })
	got, err := sw.Trip(ctx, "alice", "drill")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	acks, missing, _, err := sw.WaitAcknowledged(ctx, got.To.Epoch)
	if err != nil || len(acks) != 2 || len(missing) != 0 {
		t.Errorf("acks %v, missing %v, %v", acks, missing, err)
	}
}

func TestRealTripOfARedisThatWasFlushed(t *testing.T) {
	p := stores(t, holdover.StageMySQL)
	addr, db := teststack.FreshRedis(t) // an empty one in its place
	empty, err := legacyredis.Open(t.Context(), legacyredis.Config{Pod: "p", Addr: addr, DB: db})
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	sw := p.switchOf(t, func(c *killswitch.Config) { c.Redis = empty })
	if _, err := sw.Trip(t.Context(), "alice", "drill"); !errors.Is(err, holdover.ErrNoFence) {
		t.Errorf("error is %v", err)
	}
	if m, err := p.mysql.Fence(t.Context()); err != nil || m.Epoch != 3 {
		t.Errorf("mysql has %v, %v", m, err)
	}
}

// A MySQL whose process is stopped accepts connections and answers nothing.
func TestRealTripWhileMySQLIsFrozen(t *testing.T) {
	p := stores(t, holdover.StageMySQL)
	stack := teststack.MustStack(t)
	frozen := true
	thaw := func() {
		if frozen {
			frozen = false
			if err := stack.SignalMySQL(syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		}
	}
	if err := stack.SignalMySQL(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer thaw()
	const budget = 200 * time.Millisecond
	sw := p.switchOf(t, func(c *killswitch.Config) { c.MySQLTimeout = budget })
	got, err := sw.Trip(t.Context(), "alice", "drill")
	if err != nil {
		t.Fatal(err)
	}
	if got.Owed == "" || got.Took > 50*budget || got.To.Stage != holdover.StageShadow {
		t.Errorf("got %+v", got)
	}
	if r, err := p.redis.Fence(t.Context()); err != nil || r.Epoch != 5 || !r.Latched {
		t.Errorf("redis has %v, %v", r, err)
	}
	thaw()
	if err := sw.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.switchOf(t).Trip(t.Context(), "bob", "again"); err != nil {
		t.Fatal(err)
	}
	p.agree(t, "shadow at epoch 5, latched (by alice: drill)")
}

func TestRealTripWhileRedisIsFrozen(t *testing.T) {
	p := stores(t, holdover.StageMySQL)
	stack := teststack.MustStack(t)
	if err := stack.SignalRedis("p", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thawed := false
	thaw := func() {
		if !thawed {
			thawed = true
			if err := stack.SignalRedis("p", syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		}
	}
	defer thaw()
	sw := p.switchOf(t, func(c *killswitch.Config) { c.RedisTimeout = 100 * time.Millisecond })
	_, err := sw.Trip(t.Context(), "alice", "drill")
	if !holdover.NoAnswer(err) || !strings.Contains(err.Error(), "can't flip to a Redis that does not answer") {
		t.Errorf("error is %v", err)
	}
	thaw()
	p.agree(t, "mysql at epoch 3 (by setup: test)") // nothing was changed
}
