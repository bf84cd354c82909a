package bench

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// mustProgram builds holdover as a user would.
func mustProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdover")
	if out, err := exec.Command("go", "build", "-o", path, "holdover/cmd/holdover").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return path
}

func TestMySQLStage(t *testing.T) {
	r := small(t, "mysql", func(c *Config) { c.Rate, c.Duration = 100, 2*time.Second })
	if r.MySQLP50 == nil || r.MySQLP99 == nil || *r.MySQLP50 <= 0 || *r.MySQLP99 <= 0 {
		t.Errorf("ratios: %v %v", r.MySQLP50, r.MySQLP99)
	}
	for _, name := range []string{wayHoldover, wayStageMySQL} {
		if c := r.find(t, name, "reserve"); c.ConnHoldS <= 0 {
			t.Errorf("%s took no connection", name)
		}
	}
}

// One turn of each stage and a hang, on servers of the run's own: only those
// may be hung.
func TestShadow(t *testing.T) {
	r, err := Run(context.Background(), Config{Scenario: "shadow", Program: mustProgram(t), Rounds: 1, Rate: 30, Duration: 2 * time.Second, Hang: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK {
		t.Errorf("broken: %v", r.Broken)
	}
	for name, v := range map[string]*float64{
		"p50_ratio": r.P50Ratio, "p99_ratio": r.P99Ratio, "aa_p50_ratio": r.AAP50Ratio, "aa_p99_ratio": r.AAP99Ratio,
		"hung_p50_ratio": r.HungP50Ratio, "hung_p99_ratio": r.HungP99Ratio, "hung_open_p99_ratio": r.HungOpenP99,
	} {
		if v == nil || *v <= 0 {
			t.Errorf("%s was not measured", name)
		}
	}
	// MySQL has hung in both stages: no claim reached the ledger, and each did
	// when it was back.
	if len(r.HungClaims) != 2 {
		t.Fatalf("claims of %d stages", len(r.HungClaims))
	}
	for _, c := range r.HungClaims {
		if c.Answers["200"] != 0 || c.Answers["202"] == 0 || c.Finally["202 claimed"] != c.Answers["202"] {
			t.Errorf("stage %s: %v, in the end %v", c.Stage, c.Answers, c.Finally)
		}
	}
	for _, s := range r.Curves[0].Series {
		if len(s.Points) == 0 || s.Points[0].Y < 1 {
			t.Errorf("memory of the process in %s: %v", s.Name, s.Points)
		}
	}
	for _, op := range []string{opReserve, opRelease, opClaim} {
		if c := r.find(t, wayStageShadow, op); c.P99us <= 0 {
			t.Errorf("%s has no latency", op)
		}
	}
}

func TestKill(t *testing.T) {
	r := small(t, "kill", func(c *Config) { c.Program, c.Instances, c.Rate = mustProgram(t), 2, 10 })
	if len(r.Kills) != 6 || *r.Instances != 2 || *r.BuyerCalls == 0 || r.BuyerErrorsAtKills == nil {
		t.Fatalf("%d kills of %d instances, %d calls of buyers", len(r.Kills), *r.Instances, *r.BuyerCalls)
	}
	for i, k := range r.Kills {
		if k.Load != (i >= 3) || k.AckMs <= 0 || k.TripMs <= 0 || k.ForwardMs <= 0 || k.Presses < 1 {
			t.Errorf("kill %d: %+v", i, k)
		}
		// The flip itself is behind the first of both stores' writes.
		if k.AckMs < k.StartMs {
			t.Errorf("kill %d was acknowledged before its trip began: %+v", i, k)
		}
	}
	if *r.KillMax < *r.KillP50 || *r.KillIdleP50 <= 0 || *r.KillCallP99 <= 0 {
		t.Errorf("%v %v %v %v", *r.KillP50, *r.KillMax, *r.KillIdleP50, *r.KillCallP99)
	}
}

// The schedule is a matter of the seed alone, and comes at the rate that was asked for.
func TestOpenLoopIsFixedBeforehand(t *testing.T) {
	a, b, other := newOpenLoop(1, 500), newOpenLoop(1, 500), newOpenLoop(2, 500)
	const n = 20_000
	var last, otherLast time.Duration
	for range n {
		at := a.next()
		if at != b.next() {
			t.Fatal("the same seed made another schedule")
		}
		if at < last {
			t.Fatal("the schedule goes back in time")
		}
		last, otherLast = at, other.next()
	}
	if last == otherLast {
		t.Error("another seed made the same schedule")
	}
	if rate := n / last.Seconds(); rate < 480 || rate > 520 {
		t.Errorf("%.0f arrivals a second, want 500", rate)
	}
}

// stalling is a way that stops for a while, once, as a server does.
type stalling struct {
	mu    sync.Mutex
	calls int
	stall time.Duration
}

func (w *stalling) reserve(ctx context.Context, _ *call) (bool, error) {
	w.mu.Lock() // everybody behind it waits
	defer w.mu.Unlock()
	if w.calls++; w.calls == 10 {
		return true, pause(ctx, w.stall)
	}
	return true, nil
}
func (w *stalling) count(context.Context) (truth, error) { return truth{}, nil }
func (w *stalling) close() error                         { return nil }

// A stall makes everybody late who meant to come meanwhile. With one caller a
// closed loop sees one slow call, an open one sees all of them.
func TestOpenLoopSeesWhoWaited(t *testing.T) {
	const stall = 300 * time.Millisecond
	slow := func(l load) (slow, all int64) {
		w := &stalling{stall: stall}
		s := &session{run: &run{ctx: t.Context()}, way: w, set: setting{stock: ample(1), held: new(holdTime)}, began: time.Now(), told: newTold(1)}
		l.measure, l.pick = time.Second, oneUnit(1)
		one, err := s.drive(l)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range one.latency.counts {
			if middleOf(i) > float64(stall/10) {
				slow += int64(n)
			}
		}
		return slow, one.latency.n
	}
	if n, all := slow(load{clients: 1, rate: 200}); n < 20 || all < 100 {
		t.Errorf("open loop: %d of %d calls were late: about 60 were meant to come during the stall", n, all)
	}
}

// A buyer's end comes after its reserve, in one order of times.
func TestScheduleOfBuyers(t *testing.T) {
	b := newBuyers([]string{"http://one", "http://two"}, 1000, 0.5)
	next := b.schedule(t.Context(), time.Second, true)
	began, claims := map[*buyer]time.Duration{}, 0
	var last time.Duration
	ends := 0
	for a, more := next(); more; a, more = next() {
		if a.at < last {
			t.Fatal("out of order")
		}
		last = a.at
		if !a.end {
			if a.at >= time.Second {
				t.Errorf("a buyer comes after the end, at %s", a.at)
			}
			began[a.who] = a.at
			continue
		}
		ends++
		if at, ok := began[a.who]; !ok || a.at != at+thinkTime {
			t.Fatalf("an end at %s of a buyer who came at %s", a.at, at)
		}
		if a.who.claims {
			claims++
		}
	}
	if len(began) < 800 || ends != len(began) || claims < len(began)/3 || claims > 2*len(began)/3 {
		t.Errorf("%d buyers, %d ends, %d of them claims", len(began), ends, claims)
	}
}

// An error counts for a kill when its call was under way during it.
func TestErrorsDuringAKill(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	said := &tally{calls: map[string]*callTally{}}
	said.add(opReserve, "201", at(0), at(500))
	said.add(opReserve, "409 out-of-stock", at(0), at(500))
	said.add(opReserve, "503 unavailable", at(0), at(90))    // over before
	said.add(opRelease, "503 unavailable", at(0), at(110))   // runs into it
	said.add(opClaim, "202", at(120), at(130))               // within
	said.add(opReserve, noAnswer, at(190), at(400))          // begins in it
	said.add(opReserve, "503 unavailable", at(201), at(400)) // begins after
	if n := said.errors(); n != 5 {
		t.Errorf("%d errors, want 5", n)
	}
	if near := said.during(at(100), at(200)); len(near) != 3 {
		t.Errorf("%d of them at the kill, want 3: %+v", len(near), near)
	}
}

func TestQuantileOfFew(t *testing.T) {
	values := rand.Perm(9) // 0 to 8
	var v []float64
	for _, n := range values {
		v = append(v, float64(n))
	}
	if a, b, c := quantile(v, 0.5), quantile(v, 0.99), quantile(v, 1); a != 4 || b != 8 || c != 8 {
		t.Errorf("%v %v %v", a, b, c)
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("of none")
	}
}
