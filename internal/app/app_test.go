package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/httpapi"
	"holdover/internal/teststack"
	"holdover/mysqlpool"
	"holdover/rollout"
)

func TestMain(m *testing.M) { teststack.Main(m) }

// newConfig is a pod with shops 1-9 on stores of its own, migrated.
func newConfig(t *testing.T) Config {
	t.Helper()
	addr, db := teststack.FreshRedis(t)
	dsn := teststack.PreparedDSN(t, func(ctx context.Context, dsn string) error {
		_, err := mysqlpool.Migrate(ctx, dsn)
		return err
	})
	c := Config{
		Instance: "one", OperatorToken: "token", Events: filepath.Join(t.TempDir(), "events"),
		Timing: Timing{Call: 2 * time.Second, Redis: 2 * time.Second, Heartbeat: 50 * time.Millisecond, Drive: 50 * time.Millisecond, Dwell: 50 * time.Millisecond},
		Pods:   []PodConfig{{Name: "pod-a", Shops: []string{"1-9"}, Redis: RedisConfig{Addr: addr, DB: db}, MySQL: MySQLConfig{DSN: dsn}}},
	}.WithDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

func newStores(t *testing.T, c Config) *Stores {
	t.Helper()
	s, err := OpenStores(t.Context(), c, c.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// fences writes stages one after the other into both stores, from epoch 1 on.
func fences(t *testing.T, s *Stores, stages ...holdover.Stage) {
	t.Helper()
	for i, stage := range stages {
		f := holdover.Fence{Pod: s.Name, Epoch: holdover.Epoch(i + 1), Stage: stage, By: "test", Reason: "planted"}
		if err := s.Redis.CompareAndSetFence(t.Context(), holdover.Epoch(i), f); err != nil {
			t.Fatal(err)
		}
		if _, err := s.MySQL.RaiseFence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDualSince: from the fences' history, the last unbroken run of dual stages.
func TestDualSince(t *testing.T) {
	const redisStage, shadow, joint = holdover.StageRedis, holdover.StageShadow, holdover.StageJoint
	for name, c := range map[string]struct {
		stages []holdover.Stage
		want   int // whose time it is: index into stages; -1 none
	}{
		"never begun":          {nil, -1},
		"redis":                {[]holdover.Stage{redisStage}, -1},
		"shadow":               {[]holdover.Stage{redisStage, shadow}, 1},
		"on to joint":          {[]holdover.Stage{redisStage, shadow, joint}, 1},
		"back and again":       {[]holdover.Stage{redisStage, shadow, redisStage, shadow, joint}, 3},
		"back":                 {[]holdover.Stage{redisStage, shadow, redisStage}, -1},
		"the beginning is cut": {[]holdover.Stage{shadow, joint}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStores(t, newConfig(t))
			fences(t, s, c.stages...)
			var want time.Time
			if c.want >= 0 {
				history, err := s.Redis.History(t.Context(), 100)
				if err != nil {
					t.Fatal(err)
				}
				want = history[len(history)-1-c.want].At
			}
			if got := s.DualSince(t.Context()); !got.Equal(want) {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestRefusedKill: in mysql-only the API answers 409 and says what to do; the
// command and the dry run say so too.
func TestRefusedKill(t *testing.T) {
	c := newConfig(t)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageMySQLOnly)
	a, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close(context.Background())
	server := httptest.NewServer(a.Handler())
	defer server.Close()
	client := &httpapi.Client{BaseURL: server.URL, Token: "token", HTTP: server.Client()}
	_, err = client.Kill(t.Context(), "pod-a", "ops", "because", false)
	var p *httpapi.Problem
	if !errors.As(err, &p) || p.Status != http.StatusConflict || p.Type != "urn:holdover:refused" || !strings.Contains(p.Detail, "mysql-only") || p.Do == "" {
		t.Errorf("%+v", err)
	}
	killed, err := Kill(t.Context(), s, "ops", "because", true)
	if err != nil || !strings.Contains(killed.Would, "be refused: in mysql-only Redis does not know the holds") || !strings.Contains(killed.Would, "holdover rollout return --pod pod-a") {
		t.Errorf("%+v %v", killed, err)
	}
	status := Status(t.Context(), s, rollout.Desired{Known: true, Stage: holdover.StageMySQL})
	if status.Readiness.Kill.OK || status.Readiness.Kill.Reasons[0].Code != "mysql-only" {
		t.Errorf("%+v", status.Readiness)
	}
	if fence, err := s.Redis.Fence(t.Context()); err != nil || fence.Epoch != 2 {
		t.Errorf("the fence moved: %+v %v", fence, err)
	}
}

// TestHalfKill: a kill that died between its two writes is named, and a restore
// refuses to build on it.
func TestHalfKill(t *testing.T) {
	c := newConfig(t)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow, holdover.StageJoint, holdover.StageMySQL)
	if _, err := s.MySQL.TripFence(t.Context(), holdover.Fence{Pod: "pod-a", Epoch: 6, Stage: holdover.StageShadow, Latched: true, By: "ops", Reason: "died"}); err != nil {
		t.Fatal(err)
	}
	_, err := operator{pod: &Pod{Stores: s}}.Restore(t.Context(), "ops", "go on", false)
	var refused *httpapi.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Detail, "a kill stopped half way") || !strings.Contains(refused.Do, "kill again") {
		t.Errorf("%v", err)
	}
	killed, err := Kill(t.Context(), s, "ops", "finish it", false)
	if err != nil || killed.From.Epoch != 6 || killed.To.Epoch <= 6 || killed.To.Stage != holdover.StageShadow || killed.Owed != "" {
		t.Errorf("%+v %v", killed, err)
	}
}

// TestImportOverLiveStock: counters and holds that are there already, as in a
// shop that is open.
func TestImportOverLiveStock(t *testing.T) {
	c := newConfig(t)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis)
	raw := redis.NewClient(&redis.Options{Addr: c.Pods[0].Redis.Addr, DB: c.Pods[0].Redis.DB})
	defer raw.Close()
	if err := raw.Set(t.Context(), "inventory:1:5", 8, 0).Err(); err != nil {
		t.Fatal(err)
	}
	hold := holdover.Request{Shop: 1, Token: holdover.NewToken(), Lines: []holdover.Line{{Item: 5, Group: 1, Quantity: 3}}, TTL: time.Hour}
	if _, err := s.Redis.Vote(t.Context(), holdover.Ticket{Epoch: 1, Attempt: 1}, hold); err != nil {
		t.Fatal(err)
	}
	rows := func(available int64) []mysqlpool.StockRow {
		return []mysqlpool.StockRow{{Shop: 1, Item: 5, Group: 1, Available: available}}
	}
	if _, err := ImportStock(t.Context(), s, rows(7)); !errors.Is(err, holdover.ErrInvalid) || !strings.Contains(err.Error(), "a counter of 5, the ledger would have 7 with 3 units held") {
		t.Errorf("%v", err)
	}
	done, err := ImportStock(t.Context(), s, rows(8))
	if err != nil || done.Added != 1 || done.Counters != 0 {
		t.Errorf("%+v %v", done, err)
	}
	// A counter that vanished comes back as the ledger less the holds.
	if err := raw.Del(t.Context(), "inventory:1:5").Err(); err != nil {
		t.Fatal(err)
	}
	if done, err = ImportStock(t.Context(), s, rows(8)); err != nil || done.Counters != 1 {
		t.Errorf("%+v %v", done, err)
	}
	if n, _ := raw.Get(t.Context(), "inventory:1:5").Int(); n != 5 {
		t.Errorf("counter %d, want 5", n)
	}
	// But not when MySQL knows holds that Redis has lost.
	other := holdover.Request{Shop: 1, Token: holdover.NewToken(), Lines: []holdover.Line{{Item: 5, Group: 1, Quantity: 4}}, TTL: time.Hour}
	if _, err := s.MySQL.Vote(t.Context(), holdover.Ticket{Epoch: 1, Attempt: 1}, other, false); err != nil {
		t.Fatal(err)
	}
	if err := raw.Del(t.Context(), "inventory:1:5").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := ImportStock(t.Context(), s, rows(8)); !errors.Is(err, holdover.ErrInvalid) || !strings.Contains(err.Error(), "it lost data") {
		t.Errorf("%v", err)
	}
}

// TestImportWaitsForAdjustments: a counter that is made from the ledger has
// every adjustment in it; one that reaches Redis afterwards would count twice.
func TestImportWaitsForAdjustments(t *testing.T) {
	c := newConfig(t)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis)
	raw := redis.NewClient(&redis.Options{Addr: c.Pods[0].Redis.Addr, DB: c.Pods[0].Redis.DB})
	defer raw.Close()
	row := func(item, available int64) mysqlpool.StockRow {
		return mysqlpool.StockRow{Shop: 1, Item: item, Group: 1, Available: available}
	}
	if _, err := ImportStock(t.Context(), s, []mysqlpool.StockRow{row(5, 10), row(6, 10)}); err != nil {
		t.Fatal(err)
	}
	change := func(item, delta int64) holdover.Adjustment {
		return holdover.Adjustment{Token: holdover.NewToken(), Shop: 1, Item: item, Group: 1, Delta: delta, Reason: "test", By: "ada"}
	}
	raise, lower := change(5, 5), change(6, -4)
	made, err := s.MySQL.Adjust(t.Context(), 0, raise, holdover.AdjustTerms{Redis: true})
	if err != nil || !made.Owed {
		t.Fatalf("%+v %v", made, err)
	}
	given, err := s.Redis.LowerFor(t.Context(), 1, lower, 4, true)
	if err != nil || given.Units != 4 {
		t.Fatalf("%+v %v", given, err)
	}
	if err := raw.Del(t.Context(), "inventory:1:5", "inventory:1:6").Err(); err != nil { // lost
		t.Fatal(err)
	}
	for want, rows := range map[string][]mysqlpool.StockRow{raise.Token.String(): {row(5, 15), row(7, 3)}, lower.Token.String(): {row(6, 10), row(7, 3)}} {
		_, err := ImportStock(t.Context(), s, rows)
		if !errors.Is(err, holdover.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "has settled it") {
			t.Errorf("%v", err)
		}
	}
	if stock, err := s.MySQL.Probe(t.Context(), 1, []int64{7}); err != nil && !errors.Is(err, holdover.ErrNotLoaded) || len(stock) != 0 {
		t.Errorf("something was written: %+v %v", stock, err)
	}
	// Others go on meanwhile.
	if done, err := ImportStock(t.Context(), s, []mysqlpool.StockRow{row(8, 3)}); err != nil || done.Counters != 1 {
		t.Errorf("%+v %v", done, err)
	}

	facade, err := dualwrite.New(dualwrite.Config{Pod: "pod-a", Instance: "settles", Redis: s.Redis, MySQL: s.MySQL, ClaimAge: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := facade.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for open, err := openAdjustments(t.Context(), s); len(open) > 0; open, err = openAdjustments(t.Context(), s) {
		if err = errors.Join(err, facade.SettleAdjustments(t.Context())); err != nil || time.Now().After(deadline) {
			t.Fatal(open, err)
		}
	}
	done, err := ImportStock(t.Context(), s, []mysqlpool.StockRow{row(5, 15), row(6, 6)})
	if err != nil || done.Counters != 2 {
		t.Fatalf("%+v %v", done, err)
	}
	for key, want := range map[string]int{"inventory:1:5": 15, "inventory:1:6": 6} {
		if n, err := raw.Get(t.Context(), key).Int(); err != nil || n != want {
			t.Errorf("%s is %d, want %d: %v", key, n, want, err)
		}
	}
}

// TestImportMany: more items than one question names, some with a counter.
func TestImportMany(t *testing.T) {
	c := newConfig(t)
	s := newStores(t, c)
	if _, err := s.Redis.Load(t.Context(), 2, map[int64]int64{17: 4, 230: 4}, false); err != nil {
		t.Fatal(err)
	}
	var rows []mysqlpool.StockRow
	for item := int64(1); item <= 250; item++ {
		rows = append(rows, mysqlpool.StockRow{Shop: 2, Item: item, Group: 1, Available: 3}, mysqlpool.StockRow{Shop: 2, Item: item, Group: 2, Available: 1})
	}
	done, err := ImportStock(t.Context(), s, rows)
	if err != nil || done.Added != 500 || done.Counters != 248 {
		t.Fatalf("%+v %v", done, err)
	}
	v, err := Verify(t.Context(), c, s)
	if err != nil || !v.Clean || v.Items != 250 || v.Rows != 500 {
		t.Errorf("%+v %v", v, err)
	}
}

// TestAppEndsClean: what New and Run start, Run and Close end.
func TestAppEndsClean(t *testing.T) {
	teststack.NoLeaks(t)
	c := newConfig(t)
	fences(t, newStores(t, c), holdover.StageRedis)
	a, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- a.Run(ctx) }()
	deadline := time.Now().Add(time.Minute)
	for ready := false; !ready; ready, _ = a.Ready() {
		if time.Now().After(deadline) {
			t.Fatal(a.Ready())
		}
		time.Sleep(5 * time.Millisecond)
	}
	status, err := operator{app: a, pod: a.Pods[0]}.Status(t.Context())
	if err != nil || status.Agreed == nil || status.Next == "" || status.Desired.Stage != "unknown" || !strings.Contains(status.Desired.Reason, "no flag source") {
		t.Errorf("%+v %v", status, err)
	}
	if text, err := json.Marshal(status); err != nil || strings.Contains(string(text), "null") {
		t.Errorf("a list is null, or it can't be written: %s %v", text, err)
	}
	stop()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if err := a.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
