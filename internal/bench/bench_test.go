package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"holdover/internal/teststack"
)

func TestMain(m *testing.M) { teststack.Main(m) }

// small runs a scenario for a moment on the test's servers, as on a user's own.
func small(t *testing.T, scenario string, change func(*Config)) Report {
	t.Helper()
	stack := teststack.MustStack(t)
	cfg := Config{
		Scenario: scenario, Clients: 8, Duration: 300 * time.Millisecond, Rounds: 1,
		MySQLDSN: stack.AdminDSN(), RedisAddr: stack.RedisAddr(teststack.Pod()),
	}
	if change != nil {
		change(&cfg)
	}
	report, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK {
		t.Errorf("broken: %s", strings.Join(report.Broken, "; "))
	}
	for _, c := range report.Competitors {
		if c.Granted == 0 {
			t.Errorf("%s %s granted nothing", c.Name, c.Case)
		}
		if c.Honest && (c.Oversold != 0 || c.FalseSoldOut != 0 || c.LostHolds != 0) {
			t.Errorf("%s %s: oversold %d, refused while stock remained %d, lost %d", c.Name, c.Case, c.Oversold, c.FalseSoldOut, c.LostHolds)
		}
	}
	return report
}

// find returns the one competitor of that name in that case.
func (r Report) find(t *testing.T, name, inCase string) Competitor {
	t.Helper()
	for _, c := range r.Competitors {
		if c.Name == name && c.Case == inCase {
			return c
		}
	}
	t.Fatalf("no %s %q in %s", name, inCase, r.Scenario)
	return Competitor{}
}

func TestHot(t *testing.T) {
	r := small(t, "hot", func(c *Config) { c.Duration = time.Second })
	for name, v := range map[string]*float64{
		"vs_usual": r.VsUsual, "vs_conditional": r.VsConditional, "vs_redis": r.VsRedis, "vs_batched_row": r.VsBatchedRow,
		"vs_redis_bare": r.VsRedisBare, "vs_uncapped": r.VsUncapped,
	} {
		if v == nil {
			t.Errorf("%s was not measured", name)
		}
	}
	h := r.find(t, wayHoldover, "")
	if h.Connections < 1 || h.Connections > 8 || h.Connections != *r.Connections {
		t.Errorf("the server saw %d connections of holdover, the report says %d: want 1 to 8", h.Connections, *r.Connections)
	}
	if h.ConnHoldS <= 0 {
		t.Error("no connection was taken for holdover's reserves")
	}
	if redis := r.find(t, wayRedis, ""); redis.ConnHoldS != 0 || redis.Connections != 0 || redis.RedisConns < 1 {
		t.Errorf("the Redis path: %g s on %d connections to MySQL, %d to Redis", redis.ConnHoldS, redis.Connections, redis.RedisConns)
	}
	if uncapped := r.find(t, wayUncapped, ""); uncapped.Connections != 9 {
		t.Errorf("8 callers with a connection each and one for refills: the server saw %d", uncapped.Connections)
	}
	if first := r.find(t, wayFirst, ""); first.LockWaits == 0 {
		t.Error("8 callers of one row never waited for its lock: the server's count is not read")
	}
	if r.SingleRow == nil || r.SingleRow.PeakRate <= 0 || math.Abs(r.SingleRow.HoldMs*r.SingleRow.PeakRate-1000) > 1 {
		t.Errorf("single row: %+v", r.SingleRow)
	}
	checkOutputs(t, r)
}

// checkOutputs: what comes out is complete in each of its forms.
func checkOutputs(t *testing.T, r Report) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r, again) {
		t.Error("the report is another one after JSON")
	}
	var out bytes.Buffer
	if err := r.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{wayHoldover, "MySQL " + r.MySQLVersion, "conn hold"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text has no %q", want)
		}
	}
	out.Reset()
	if err := r.WriteHTML(&out); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if plots := strings.Count(page, "<svg"); plots != 2*len(r.Curves) || plots == 0 {
		t.Errorf("%d plots for %d curves", plots, len(r.Curves))
	}
	// Names of XML vocabularies are no addresses to fetch.
	page = strings.NewReplacer(`xmlns="http://www.w3.org/2000/svg"`, "", `xmlns:xlink="http://www.w3.org/1999/xlink"`, "").Replace(page)
	for _, outside := range []string{`https?:`, `//[a-z]`, `<script`, `<link`, `<img`, `<iframe`, `@import`, `url\(`, `\bsrc=`, `\bhref=`} {
		if found := regexp.MustCompile(outside).FindString(page); found != "" {
			t.Errorf("the page refers to something outside: %q", found)
		}
	}
}

func TestUniform(t *testing.T) { small(t, "uniform", func(c *Config) { c.Cap = 50 }) }

func TestDrain(t *testing.T) {
	r := small(t, "drain", func(c *Config) { c.Clients, c.Stock = 40, 60 })
	if *r.Granted != 60 {
		t.Errorf("granted %d of 60", *r.Granted)
	}
	for _, inCase := range []string{"cap=10", "cap=100", "cap=1000"} {
		if c := r.find(t, wayHoldover, inCase); c.Refused < 40*drainRefusals {
			t.Errorf("%s: %d refusals: want %d of each of 40 callers", inCase, c.Refused, drainRefusals)
		}
	}
	if c := r.find(t, wayHoldover, "one line of 1500, cap=1000"); c.Granted != 1 {
		t.Errorf("a line larger than the pool: granted %d", c.Granted)
	}
}

func TestCarts(t *testing.T) {
	r := small(t, "carts", func(c *Config) { c.Duration, c.Cap = time.Second, 200 })
	if *r.Deadlocks != 0 {
		t.Errorf("%d deadlocks", *r.Deadlocks)
	}
	unsorted := r.find(t, wayUnsorted, "")
	if unsorted.Deadlocks == 0 || !r.Shown[0].OK {
		t.Errorf("carts that lock in any order lost no deadlock: %+v", r.Shown)
	}
}

func TestLifecycle(t *testing.T) {
	r := small(t, "lifecycle", nil)
	if r.VsLegacy == nil || r.P99VsLegacy == nil {
		t.Error("the ratios are missing")
	}
	if legacy := r.find(t, wayLegacy, ""); legacy.Connections < 1 || legacy.ConnHoldS <= 0 {
		t.Errorf("legacy's ledger was not used: %+v", legacy)
	}
}

func TestLone(t *testing.T) {
	if r := small(t, "lone", nil); r.P50VsFloor == nil || *r.P50VsFloor <= 0 {
		t.Error("p50_vs_floor is missing")
	}
}

func TestPurge(t *testing.T) {
	r := small(t, "purge", func(c *Config) { c.Duration = time.Second })
	if r.PurgeBlocked == nil || r.PurgeEnd == nil || len(r.HistoryList) != 3 || len(r.Curves[0].Series) != 3 {
		t.Errorf("ratio %v, history list %v: want three phases", r.PurgeBlocked, r.HistoryList)
	}
}

// While the snapshot is open purge removes nothing, and it goes on afterwards.
func TestSnapshotBlocksPurge(t *testing.T) {
	ctx := context.Background()
	stack := teststack.MustStack(t)
	cfg, err := Config{Scenario: "purge", MySQLDSN: stack.AdminDSN(), RedisAddr: stack.RedisAddr(teststack.Pod())}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s, err := startServers(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	history := func() int64 {
		t.Helper()
		n, err := s.history(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	change := func() {
		t.Helper()
		if _, err := s.scratch.ExecContext(ctx, "UPDATE bench_stock SET version = version + 1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.fillStock(ctx, []int64{1}); err != nil {
		t.Fatal(err)
	}
	end, err := s.snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const changes = 300
	for range changes {
		change()
	}
	if n := history(); n < changes {
		t.Errorf("the history list has %d entries after %d changes: the snapshot does not block purge", n, changes)
	}
	end()
	for deadline := time.Now().Add(20 * time.Second); history() >= changes; change() {
		if time.Now().After(deadline) {
			t.Fatalf("the history list has %d entries long after the snapshot ended", history())
		}
	}
}

func TestRTT(t *testing.T) {
	r := small(t, "rtt", func(c *Config) { c.Duration = 3 * time.Second })
	for _, name := range []string{wayRedis, wayHoldover, wayPipelined} { // a call is one round trip at least
		if far := r.find(t, name, "rtt=3ms"); far.P50us < 3000 {
			t.Errorf("%s: p50 of %g µs with 3 ms more: the delay is not there", name, far.P50us)
		}
	}
	if r.SingleRow == nil || !strings.Contains(r.SingleRow.InWords, "3 ms") {
		t.Errorf("single row: %+v", r.SingleRow)
	}
}

func TestGrowth(t *testing.T) {
	r := small(t, "growth", func(c *Config) { c.Cap = 20 })
	over := map[string]bool{}
	for _, e := range r.Exponents {
		over[e.Over] = true
	}
	if !over["items"] || !over["instances"] || !over["live holds"] {
		t.Errorf("exponents: %+v", r.Exponents)
	}
}

func TestLocks(t *testing.T) {
	r := small(t, "locks", func(c *Config) { c.Clients, c.Duration = 16, time.Second })
	check := r.find(t, wayCheck, "stock=100")
	if check.Oversold == 0 || check.Honest {
		t.Errorf("check-then-write did not oversell: %+v", check)
	}
	if last := r.find(t, wayLast, "stock=100"); last.Granted != 100 {
		t.Errorf("the conditional UPDATE sold %d of 100", last.Granted)
	}
	for _, s := range r.Shown {
		if !s.OK {
			t.Errorf("not shown: %s: %s", s.Fault, s.Observed)
		}
	}
	if len(r.Shown) != 7 || r.ConflictRate == nil || r.ConflictBand != Band(*r.ConflictRate) {
		t.Errorf("%d faults, band %q", len(r.Shown), r.ConflictBand)
	}
	checkOutputs(t, r)
}

func TestWrongConfigIsRefused(t *testing.T) {
	for _, cfg := range []Config{
		{}, {Scenario: "fast"}, {Scenario: "hot", Clients: -1}, {Scenario: "hot", Rounds: -1}, {Scenario: "hot", Duration: -1},
		{Scenario: "hot", Cap: -1}, {Scenario: "hot", Stock: -1}, {Scenario: "hot", Connections: -1},
		{Scenario: "mysql", Rate: -1}, {Scenario: "kill", Program: "holdover", Instances: -1}, {Scenario: "shadow", Program: "holdover", Hang: -1},
		{Scenario: "kill"}, {Scenario: "shadow"}, {Scenario: "all"},
	} {
		if _, err := Run(context.Background(), cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestInterruptedRunLeavesNothing(t *testing.T) {
	stack := teststack.MustStack(t)
	ctx, cancel := context.WithCancel(context.Background())
	progress := writer(func(p []byte) {
		if bytes.Contains(p, []byte("bench: hot")) {
			cancel()
		}
	})
	_, err := Run(ctx, Config{Scenario: "hot", Clients: 4, Progress: progress, MySQLDSN: stack.AdminDSN(), RedisAddr: stack.RedisAddr(teststack.Pod())})
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error: %v", err)
	}
	db, err := openPlain(parse(t, stack.AdminDSN()))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var left int
	if err := db.QueryRow("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 'holdover\\_bench%'").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d schemas are left (%v)", left, err)
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

var _ io.Writer = writer(nil)
