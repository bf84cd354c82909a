package legacyredis_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/internal/teststack"
	"holdover/legacyredis"
)

// ownRedis is the address of pod B's Redis, empty, for a test that changes the
// server itself.
func ownRedis(t *testing.T) string {
	t.Helper()
	stack := teststack.MustStack(t)
	restart := func(ctx context.Context) error {
		if err := stack.StopRedis(podB, syscall.SIGKILL); err != nil {
			t.Logf("stop: %v", err) // it may be stopped already
		}
		return stack.StartRedis(ctx, podB, false)
	}
	if err := restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := restart(ctx); err != nil {
			t.Errorf("bring pod B's Redis back: %v", err)
		}
	})
	return stack.RedisAddr(podB)
}

// Pitfall 35: an answer is lost after the script ran. The outcome is unknown,
// the call is not repeated inside, and repeating it with the token takes nothing
// twice. The control: the client's defaults repeat a plain DECRBY.
func TestLostAnswer(t *testing.T) {
	addr, db := teststack.FreshRedis(t)
	p := newProxy(t, addr, nil)
	r := rigAt(t, p.addr(), db)
	r.load(map[int64]int64{item: 10})
	ctx := t.Context()
	token := holdover.NewToken()
	// Connections and scripts are there already, so that the next answer is the step's.
	must[holdover.Grant](t)(r.Vote(ctx, holdover.Ticket{}, request(holdover.NewToken(), line(item, 1))))

	lose := func(what string, call func() error) {
		t.Helper()
		p.losing.Store(1)
		err := call()
		var failed *holdover.StoreError
		if !errors.As(err, &failed) || !failed.Unknown || failed.Store != holdover.StoreRedis || failed.Pod != podA || failed.Token != token {
			t.Errorf("%s: error is %v, want unknown outcome of hold %s", what, err, token)
		}
		if left := p.losing.Load(); left != 0 {
			t.Fatalf("%s: no answer was lost", what)
		}
	}
	vote := func() error {
		_, err := r.Vote(ctx, holdover.Ticket{Attempt: 1}, request(token, line(item, 4)))
		return err
	}
	lose("vote", vote)
	if err := vote(); err != nil {
		t.Errorf("the repeated vote: %v", err)
	}
	if n := r.counter(item); n != 5 {
		t.Errorf("counter is %d, want 10 - 1 - 4: the lost vote counts once", n)
	}
	release := func() error {
		_, err := r.End(ctx, 0, 0, token, holdover.StateReleased)
		return err
	}
	lose("release", release)
	if err := release(); err != nil {
		t.Errorf("the repeated release: %v", err)
	}
	if n := r.counter(item); n != 9 {
		t.Errorf("counter is %d, want 9: the lost release counts once", n)
	}

	t.Run("look-ups are never of unknown outcome", func(t *testing.T) {
		p.losing.Store(1)
		_, err := r.Lookup(ctx, token)
		wantErr(t, "look up", err, holdover.ErrUnavailable)
	})
	t.Run("control: the client's defaults take twice", func(t *testing.T) {
		plain := redis.NewClient(&redis.Options{Addr: p.addr(), DB: db})
		defer plain.Close()
		if err := plain.Set(ctx, "plain", 10, 0).Err(); err != nil {
			t.Fatal(err)
		}
		p.losing.Store(1)
		if n, err := plain.Decr(ctx, "plain").Result(); err != nil || n != 8 {
			t.Errorf("one DECR gives %d, %v; want 8: this control shows the fault that retries cause", n, err)
		}
	})
}

// A connection that is refused can't have carried anything.
func TestRefusedConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	cfg := legacyredis.Config{Pod: podA, Addr: addr, OpTimeout: 5 * time.Second}
	_, err = legacyredis.Open(t.Context(), cfg)
	wantErr(t, "open", err, holdover.ErrUnavailable)

	cfg.LazyConnect = true // asks nothing
	lazy, err := legacyredis.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer lazy.Close()
	_, err = lazy.Fence(t.Context())
	wantErr(t, "the first call", err, holdover.ErrUnavailable)

	cfg.LazyConnect, cfg.StartUnreachable = false, true
	store, err := legacyredis.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	_, err = store.Vote(t.Context(), holdover.Ticket{}, request(holdover.NewToken(), line(item, 1)))
	var failed *holdover.StoreError
	if !errors.As(err, &failed) || failed.Unknown {
		t.Errorf("vote: error is %v, want unavailable and not unknown", err)
	}
	_, err = store.Fence(t.Context())
	wantErr(t, "fence", err, holdover.ErrUnavailable)

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = store.Vote(cancelled, holdover.Ticket{}, request(holdover.NewToken(), line(item, 1)))
	wantErr(t, "vote of a caller who left", err, context.Canceled)
	wantErr(t, "vote of a caller who left", err, holdover.ErrUnavailable)
}

// A Redis that hangs costs a call its own deadline and no more, the write is of
// unknown outcome, and afterwards the same Store goes on.
func TestHungRedis(t *testing.T) {
	stack := teststack.MustStack(t)
	r := rigAt(t, ownRedis(t), 0, func(c *legacyredis.Config) { c.OpTimeout = 200 * time.Millisecond })
	r.load(map[int64]int64{item: 10})
	must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{}, request(holdover.NewToken(), line(item, 1))))
	if err := stack.SignalRedis(podB, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	token := holdover.NewToken()
	_, err := r.Vote(t.Context(), holdover.Ticket{}, request(token, line(item, 2)))
	wantErr(t, "vote", err, holdover.ErrUnknownOutcome)
	wantErr(t, "ping", r.Ping(t.Context()), holdover.ErrUnavailable)
	if err := stack.SignalRedis(podB, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// The late vote was or was not executed: repeated with the token it counts once.
	eventually(t, "the vote is granted", func() bool {
		_, err := r.Vote(t.Context(), holdover.Ticket{}, request(token, line(item, 2)))
		return err == nil
	})
	r.wantCounter(item, 7)
}

// A restart with its data keeps everything, changes the identity, and the Store
// goes on without being opened anew. A restart without data is named.
func TestRestart(t *testing.T) {
	stack := teststack.MustStack(t)
	r := rigAt(t, ownRedis(t), 0)
	r.setFence(3, holdover.StageShadow)
	r.load(map[int64]int64{item: 10})
	token := holdover.NewToken()
	must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{Epoch: 3}, request(token, line(item, 2))))
	before := must[string](t)(r.Identity(t.Context()))
	if v := must[string](t)(r.Version(t.Context())); !strings.Contains(v, ".") {
		t.Errorf("version is %q", v)
	}
	restart := func(keep bool) {
		t.Helper()
		if err := stack.StopRedis(podB, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "ping while it is down", r.Ping(t.Context()), holdover.ErrUnavailable)
		if err := stack.StartRedis(t.Context(), podB, keep); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it answers", func() bool {
			_, err := r.Lookup(t.Context(), token)
			return err == nil && r.Ping(t.Context()) == nil
		})
	}
	restart(true)
	if h := must[holdover.Hold](t)(r.Lookup(t.Context(), token)); h.State != holdover.StateHeld {
		t.Errorf("after a restart with data the hold is %s", h.State)
	}
	if after := must[string](t)(r.Identity(t.Context())); after == before {
		t.Error("the identity did not change with the restart")
	}
	restart(false)
	_, err := r.Vote(t.Context(), holdover.Ticket{Epoch: 3}, request(token, line(item, 2)))
	wantErr(t, "vote after the loss", err, holdover.ErrNoFence)
}

// Pitfall 40, and the other servers that can't be a pod's Redis. The proxy makes
// a real one look like them.
func TestWrongServerRefused(t *testing.T) {
	addr, db := teststack.FreshRedis(t)
	looksLike := func(old, new string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(old), []byte(new)) }
	}
	cluster := looksLike("cluster_enabled:0", "cluster_enabled:1")
	oldVersion := func(b []byte) []byte {
		if _, version, ok := bytes.Cut(b, []byte("redis_version:")); ok {
			version[0] = '4'
		}
		return b
	}
	for _, test := range []struct {
		name    string
		rewrite func([]byte) []byte
		change  func(*legacyredis.Config)
		want    string // in the error; empty: accepted
	}{
		{"cluster", cluster, func(*legacyredis.Config) {}, "hash slot"},
		{"cluster, tag in the prefix only", cluster, func(c *legacyredis.Config) { c.Prefix = "{pod}" }, "hash slot"},
		{"cluster, two tags", cluster, func(c *legacyredis.Config) { c.Prefix, c.CounterTemplate = "{a}", "{b}:<shop>:<item>" }, "hash slot"},
		{"cluster, a tag per shop", cluster, func(c *legacyredis.Config) { c.Prefix, c.CounterTemplate = "{<shop>}", "{<shop>}:<item>" }, "hash slot"},
		{"cluster, one tag", cluster, func(c *legacyredis.Config) { c.Prefix, c.CounterTemplate = "{pod}:", "{pod}:<shop>:<item>" }, ""},
		{"replica", looksLike("role:master", "role:slave "), func(*legacyredis.Config) {}, "replica"},
		{"old version", oldVersion, func(*legacyredis.Config) {}, "version is 4"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := legacyredis.Config{Pod: podA, Addr: newProxy(t, addr, test.rewrite).addr(), DB: db, OpTimeout: 10 * time.Second, GiveBackWindow: time.Minute, StartUnreachable: true}
			test.change(&cfg)
			store, err := legacyredis.Open(t.Context(), cfg)
			if err == nil {
				defer store.Close()
			}
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !errors.Is(err, holdover.ErrUnavailable) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error is %v, want one about a %s", err, test.want)
			}
			if err == nil {
				must[int](t)(store.Load(t.Context(), shop, map[int64]int64{item: 1}, false))
				must[holdover.Grant](t)(store.Vote(t.Context(), holdover.Ticket{}, request(holdover.NewToken(), line(item, 1))))
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]legacyredis.Config{
		"pod":                                {Addr: "x:1"},
		"addr":                               {Pod: podA},
		"choose one":                         {Pod: podA, Addr: "x:1", MasterName: "m", SentinelAddrs: []string{"y:1"}},
		"sentinel_addrs":                     {Pod: podA, MasterName: "m"},
		"master_name":                        {Pod: podA, Addr: "x:1", SentinelAddrs: []string{"y:1"}},
		"db":                                 {Pod: podA, Addr: "x:1", DB: -1},
		"op_timeout":                         {Pod: podA, Addr: "x:1", OpTimeout: -1},
		"end_retention":                      {Pod: podA, Addr: "x:1", EndRetention: time.Microsecond},
		"give_back_window":                   {Pod: podA, Addr: "x:1", OpTimeout: time.Minute},
		"prefix":                             {Pod: podA, Addr: "x:1", Prefix: "a b"},
		"<shop> and <item>":                  {Pod: podA, Addr: "x:1", CounterTemplate: "stock:<item>"},
		"once each":                          {Pod: podA, Addr: "x:1", CounterTemplate: "<shop>:<item>:<item>"},
		"no digit between <shop> and":        {Pod: podA, Addr: "x:1", CounterTemplate: "s<shop><item>"},
		"character that is no digit between": {Pod: podA, Addr: "x:1", CounterTemplate: "s<item>0<shop>"},
	} {
		_, err := legacyredis.Open(t.Context(), cfg)
		wantErr(t, name, err, holdover.ErrInvalid)
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not say %q", err, name)
		}
	}
}

// Prefix and template are used for every key, and nothing else is written.
func TestPrefixAndTemplate(t *testing.T) {
	r := newRig(t, func(c *legacyredis.Config) { c.Prefix, c.CounterTemplate = "{p}%1:", "{p}%0:<item>@<shop>" })
	r.setFence(1, holdover.StageRedis)
	r.load(map[int64]int64{item: 3})
	token := holdover.NewToken()
	must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{Epoch: 1}, request(token, line(item, 1))))
	if err := r.Heartbeat(t.Context(), holdover.Instance{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if n := r.raw.Get(t.Context(), "{p}%0:41@7").Val(); n != "2" {
		t.Errorf("the counter is %q, want 2", n)
	}
	for _, key := range r.raw.Keys(t.Context(), "*").Val() {
		if !strings.HasPrefix(key, "{p}%") {
			t.Errorf("key %s has no prefix", key)
		}
	}
}
