package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover/internal/teststack"
)

// asProgram makes the test's binary be the program, for tests that kill it.
const asProgram = "HOLDOVER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	teststack.Main(m)
}

const operatorToken = "operators-only"

// place is where one pod's stores are.
type place struct {
	name, shops string
	redis       string
	db          int
	dsn         string
	reserved    int64 // the shop for plants; 0: none
}

// site is an installation as a user has it: a folder with configuration and
// flags, and stores of its own.
type site struct {
	t    *testing.T
	dir  string
	pods []place
	file string // the configuration of commands
	more string // lines of further configuration
}

// newSite makes stores for pods with shops 1-99, 100-199, ...
func newSite(t *testing.T, pods ...string) *site {
	t.Helper()
	var places []place
	for i, name := range pods {
		addr, db := teststack.FreshRedis(t)
		places = append(places, place{name: name, shops: fmt.Sprintf("%d-%d", max(1, 100*i), 100*i+99), redis: addr, db: db, dsn: teststack.MySQLDSN(t)})
	}
	return siteAt(t, places...)
}

func siteAt(t *testing.T, pods ...place) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), pods: pods}
	s.flag("redis")
	s.file = s.configure("operator")
	t.Setenv("HOLDOVER_OPERATOR_TOKEN", "")
	t.Setenv("HOLDOVER_CONFIG", "")
	return s
}

// configure writes a configuration file with timings that tests can wait for.
func (s *site) configure(instance string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `instance: %s
listen: 127.0.0.1:0
operator_token: %s
events: %s
compare:
  rollup_every: 300ms
  flush_every: 30ms
%sflags:
  file: %s
  poll: 50ms
timing:
  call: 1200ms
  redis: 1s
  mirror: 800ms
  give_back_window: 1300ms
  recheck: 1400ms
  sweep: 100ms
  reaper_grace: 1s
  heartbeat: 100ms
  dwell: 50ms
  drive: 50ms
pods:
`, instance, operatorToken, filepath.Join(s.dir, "events"), s.more, filepath.Join(s.dir, "stages.json"))
	for _, p := range s.pods {
		fmt.Fprintf(&b, "  - name: %s\n    shops: [%q]\n    reserved_shop: %d\n    redis: {addr: %q, db: %d}\n    mysql: {dsn: %q}\n", p.name, p.shops, p.reserved, p.redis, p.db, p.dsn)
	}
	return s.write("holdover-"+instance+".yaml", b.String())
}

func (s *site) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// flag wants the stage for every pod.
func (s *site) flag(stage string) {
	s.t.Helper()
	s.write("stages.json", fmt.Sprintf(`{"flags": {"holdover-stage": {"state": "ENABLED",
	"variants": {"redis": "redis", "shadow": "shadow", "joint": "joint", "mysql": "mysql", "mysql-only": "mysql-only"}, "defaultVariant": %q}}}`, stage))
}

// answer is what a command did.
type answer struct {
	code        int
	out, stderr string
}

func runArgs(ctx context.Context, in string, args ...string) answer {
	var out, stderr bytes.Buffer
	code := run(ctx, args, strings.NewReader(in), &out, &stderr)
	return answer{code, out.String(), stderr.String()}
}

// run runs a command of the site.
func (s *site) run(args ...string) answer {
	s.t.Helper()
	return runArgs(s.t.Context(), "", append(args, "--config", s.file)...)
}

// want runs a command and checks its exit code and what stdout and stderr say.
func (s *site) want(code int, texts []string, args ...string) answer {
	s.t.Helper()
	a := s.run(args...)
	check := strings.Join(args, " ")
	if a.code != code {
		s.t.Fatalf("%s: exit %d, want %d\nstdout:\n%s\nstderr:\n%s", check, a.code, code, a.out, a.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(a.out+a.stderr, text) {
			s.t.Errorf("%s says nothing of %q\nstdout:\n%s\nstderr:\n%s", check, text, a.out, a.stderr)
		}
	}
	return a
}

// object runs a command with --json: exactly one object on stdout.
func (s *site) object(code int, into any, args ...string) {
	s.t.Helper()
	oneObject(s.t, s.want(code, nil, append(args, "--json")...).out, into)
}

func oneObject(t *testing.T, out string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(out))
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil || raw[0] != '{' {
		t.Fatalf("stdout is no JSON object (%v):\n%s", err, out)
	}
	if rest, _ := d.Token(); rest != nil {
		t.Fatalf("stdout has more than one JSON value: %v follows", rest)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%v in\n%s", err, raw)
	}
}

// stocked makes the tables of every pod, and stock of item 7 (10 units at
// group 1, 5 at group 2) and item 8 (3 at group 1) in shop 1 of the first.
func (s *site) stocked() *site {
	s.t.Helper()
	s.want(0, []string{"applied"}, "migrate", "up", "--all")
	file := s.write("stock.csv", "shop_id,item_id,group_id,available\n1,7,1,10\n1,7,2,5\n1,8,1,3\n")
	s.want(0, []string{"3 rows, 3 new in the ledger, 2 counters made"}, "stock", "import", file)
	return s
}

// eventually waits for an event. The bound is wide: a slow machine is no fault.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
