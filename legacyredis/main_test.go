package legacyredis_test

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/teststack"
	"holdover/legacyredis"
)

const (
	podA  = "pod-a" // shared by tests, each in a database of its own
	podB  = "pod-b" // for tests that stop the server
	shop  = int64(7)
	item  = int64(41)
	item2 = int64(42)
	group = int64(3)
)

func TestMain(m *testing.M) { teststack.Main(m, podA, podB) }

// What the facade and the embedding program ask for.
var (
	_ dualwrite.Redis   = (*legacyredis.Store)(nil)
	_ holdover.Reserver = (*legacyredis.Path)(nil)
)

// rig is a Store on an empty Redis, and a client that looks behind it.
type rig struct {
	*legacyredis.Store
	t   *testing.T
	raw *redis.Client
	cfg legacyredis.Config
}

func newRig(t *testing.T, change ...func(*legacyredis.Config)) *rig {
	t.Helper()
	addr, db := teststack.FreshRedis(t)
	return rigAt(t, addr, db, change...)
}

func rigAt(t *testing.T, addr string, db int, change ...func(*legacyredis.Config)) *rig {
	t.Helper()
	// The machine may be busy: deadlines are tested where they matter.
	cfg := legacyredis.Config{Pod: podA, Addr: addr, DB: db, OpTimeout: 10 * time.Second, TripTimeout: 20 * time.Second, GiveBackWindow: time.Minute}
	for _, c := range change {
		c(&cfg)
	}
	raw := redis.NewClient(&redis.Options{Addr: addr, DB: db, MaxRetries: -1})
	t.Cleanup(func() { _ = raw.Close() })
	store, err := legacyredis.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &rig{Store: store, t: t, raw: raw, cfg: cfg}
}

func (r *rig) load(counters map[int64]int64) {
	r.t.Helper()
	if _, err := r.Load(r.t.Context(), shop, counters, false); err != nil {
		r.t.Fatalf("load: %v", err)
	}
}

// counter reads a stock counter without the product's code.
func (r *rig) counter(item int64) int64 {
	r.t.Helper()
	n, err := r.raw.Get(r.t.Context(), fmt.Sprintf("inventory:%d:%d", shop, item)).Int64()
	if err != nil {
		r.t.Fatalf("counter of item %d: %v", item, err)
	}
	return n
}

func (r *rig) wantCounter(item, want int64) {
	r.t.Helper()
	if got := r.counter(item); got != want {
		r.t.Errorf("counter of item %d is %d, want %d", item, got, want)
	}
}

// dump is the whole database as Redis serializes it.
func (r *rig) dump() map[string]string {
	r.t.Helper()
	ctx := r.t.Context()
	keys, err := r.raw.Keys(ctx, "*").Result()
	if err != nil {
		r.t.Fatal(err)
	}
	all := make(map[string]string)
	for _, key := range keys {
		if all[key], err = r.raw.Dump(ctx, key).Result(); err != nil {
			r.t.Fatal(err)
		}
	}
	return all
}

// unchanged fails the test when do changes anything in Redis.
func (r *rig) unchanged(what string, do func()) {
	r.t.Helper()
	before := r.dump()
	do()
	if after := r.dump(); !maps.Equal(before, after) {
		r.t.Errorf("%s changed Redis", what)
	}
}

func (r *rig) setFence(e holdover.Epoch, s holdover.Stage) {
	r.t.Helper()
	from := holdover.Epoch(0)
	if f, err := r.Fence(r.t.Context()); err == nil {
		from = f.Epoch
	}
	if err := r.CompareAndSetFence(r.t.Context(), from, holdover.Fence{Pod: podA, Epoch: e, Stage: s, By: "test", Reason: "set up"}); err != nil {
		r.t.Fatalf("set the fence: %v", err)
	}
}

func request(token holdover.Token, lines ...holdover.Line) holdover.Request {
	return holdover.Request{Shop: shop, Token: token, Lines: lines, TTL: time.Hour}
}

func line(item, quantity int64) holdover.Line {
	return holdover.Line{Item: item, Group: group, Quantity: quantity}
}

func fact(token holdover.Token, s holdover.State, lines ...holdover.Line) holdover.Hold {
	return holdover.Hold{
		Token: token, Shop: shop, Lines: lines, State: s, Attempt: 99,
		ExpiresAt: time.UnixMilli(4_102_444_800_123).UTC(), GrantedAt: time.UnixMilli(1_700_000_000_456).UTC(),
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error is %v, want %v", what, err, want)
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// redisNow is Redis's clock in milliseconds.
func (r *rig) redisNow() int64 {
	r.t.Helper()
	now, err := r.raw.Time(r.t.Context()).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return now.UnixMilli()
}

// eventually waits for a condition with a wide bound.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !met() {
		select {
		case <-deadline:
			t.Fatalf("timed out waiting until %s", what)
		case <-tick.C:
		}
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
