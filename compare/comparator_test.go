package compare

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"holdover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buffer is a sink in memory.
type buffer struct {
	mu     sync.Mutex
	b      bytes.Buffer
	closed bool
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) Close() error { b.closed = true; return nil }

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func start(t testing.TB, cfg Config) *Comparator {
	t.Helper()
	if cfg.Pod == "" {
		cfg.Pod = "p"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// plant observes everything in the table, and planted counters.
func plant(c *Comparator) {
	for _, tc := range pairs {
		c.Observe(tc.obs)
	}
}

func TestPlantedDivergencesAreCounted(t *testing.T) {
	c := start(t, Config{})
	plant(c)
	c.RecordVerification(Verification{Pod: "p", Items: 1, Count: 1, ForeignWrites: []Tally{foreignWrite(Difference{Units: 2})}})
	want := map[Tally]amount{{Kind: KindForeignWrite, Direction: DirectionOversell}: {1, 2}}
	for _, tc := range pairs {
		key := Tally{Kind: tc.kind, Direction: tc.direction}
		want[key] = amount{want[key].count + 1, want[key].units + tc.units}
	}
	got := map[Tally]amount{}
	for _, k := range c.Counts().Kinds {
		got[Tally{Kind: k.Kind, Direction: k.Direction}] = amount{k.Count, k.Units}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	r := c.Total()
	if err := r.check(); err != nil {
		t.Error(err)
	}
	kinds := map[Kind]bool{}
	for _, e := range r.Samples {
		kinds[e.Kind] = true
		if e.Kind.Divergence() && (!strings.Contains(e.Diff, "-") || e.Next == "") {
			t.Errorf("sample of %s has no text: %q, or no next step: %q", e.Kind, e.Diff, e.Next)
		}
		if e.Kind.Explained() && e.Proof == nil {
			t.Errorf("sample of %s has no proof", e.Kind)
		}
	}
	for _, k := range Kinds() {
		if !kinds[k] && k != KindForeignWrite {
			t.Errorf("no sample of %s", k)
		}
	}

	// What the newest verification found is what there is.
	c.RecordVerification(Verification{Pod: "p", Items: 1, Clean: true})
	if n, _ := c.Counts().Count(KindForeignWrite); n != 0 {
		t.Errorf("%d foreign writes after the repair", n)
	}
}

func TestObserveSurvivesPanics(t *testing.T) {
	sink := &buffer{}
	c := start(t, Config{Events: sink})
	c.cfg.Reserved = func(int64) bool { panic("broken comparison") }
	c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
	c.cfg.Reserved = nil
	c.cfg.SamplesPerKind = 0
	c.pick = func(uint64) uint64 { panic("broken sampling") }
	c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
	c.pick = func(uint64) uint64 { return 1 }
	c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
	n := c.Counts()
	bad, _ := n.Count(KindNotComparable)
	good, _ := n.Count(KindMatch)
	if bad != 1 || good != 2 || n.Eligible != 3 || n.Panics != 2 {
		t.Errorf("%d not comparable, %d matches, %d eligible, %d panics; want 1, 2, 3, 2", bad, good, n.Eligible, n.Panics)
	}
	if r := c.Total(); r.Panics != 2 || r.check() != nil {
		t.Errorf("%d panics in the rollup, %v", r.Panics, r.check())
	}
}

type badSink struct {
	panics bool
	calls  int
}

func (s *badSink) Write([]byte) (int, error) {
	s.calls++
	if s.panics {
		panic("broken sink")
	}
	return 0, errors.New("disk full")
}

func (s *badSink) Close() error { return nil }

func TestBadSinkIsCountedAndLoggedOnce(t *testing.T) {
	for _, panics := range []bool{false, true} {
		var log buffer
		sink := &badSink{panics: panics}
		c := start(t, Config{Events: sink, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 5 {
			c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, refused))
		}
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), "pod p") {
			t.Errorf("panics %v: Close says %v", panics, err)
		}
		n := c.Counts()
		if n.EventsFailed != 6 || sink.calls != 6 || n.Eligible != 5 { // five events and the rollup
			t.Errorf("panics %v: %d failed, %d calls, %d eligible", panics, n.EventsFailed, sink.calls, n.Eligible)
		}
		if got := strings.Count(log.String(), "could not be written"); got != 1 {
			t.Errorf("panics %v: logged %d times", panics, got)
		}
	}
}

// stuckSink takes nothing until it is closed.
type stuckSink struct {
	entered, freed chan struct{}
	once           sync.Once
}

func (s *stuckSink) Write([]byte) (int, error) {
	s.once.Do(func() { close(s.entered) })
	<-s.freed
	return 0, io.ErrClosedPipe
}

func (s *stuckSink) Close() error {
	select {
	case <-s.freed:
	default:
		close(s.freed)
	}
	return nil
}

func TestFullQueueDropsEventsNotCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &stuckSink{entered: make(chan struct{}), freed: make(chan struct{})}
		c := start(t, Config{Events: sink, QueueLen: 4, CloseTimeout: time.Second})
		c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, refused))
		<-sink.entered // the writer holds the first
		for range 99 {
			c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, refused))
		}
		n := c.Counts()
		if got, units := n.Count(KindUnexplained); got != 100 || units != 300 || n.Eligible != 100 {
			t.Errorf("%d counted (%d units), %d eligible", got, units, n.Eligible)
		}
		if n.EventsDropped != 95 {
			t.Errorf("%d dropped, want 95: one being written, four queued", n.EventsDropped)
		}
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), "last counts are missing") {
			t.Errorf("Close of a stuck sink says %v", err)
		}
		synctest.Wait()
	})
}

func TestSamplesAreDrawnOverTheWholePeriod(t *testing.T) {
	c := start(t, Config{SamplesPerKind: 10})
	const n = 10_000
	for range n {
		c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, refused))
	}
	r := c.Total()
	late := 0
	for _, e := range r.Samples {
		if e.Seq > n/2 {
			late++
		}
	}
	// All ten from one half: about two in a thousand by chance for each side;
	// none beyond the first hundred: impossible in practice.
	if len(r.Samples) != 10 || late == 0 {
		t.Errorf("%d samples, %d of the later half", len(r.Samples), late)
	}
}

func TestTimesAreNotRoundedAway(t *testing.T) {
	c := start(t, Config{})
	o := seen(holdover.StageShadow, holdover.OpReserve, granted, granted)
	o.Redis.Latency, o.MySQL.Latency = 400*time.Nanosecond, 150*time.Nanosecond
	c.Observe(o)
	o.MySQL.Probe = true
	o.MySQL.Latency = 3 * time.Millisecond
	c.Observe(o)
	o.MySQL.Latency = 0
	c.Observe(o)
	r := c.Total()
	times := r.Cells[0].Times
	if len(times) != 2 || r.Untimed != 1 {
		t.Fatalf("%d rows, %d untimed; want votes and probes apart, and 1", len(times), r.Untimed)
	}
	vote, probe := times[0], times[1]
	if vote.Probe || !probe.Probe || vote.Pairs != 1 || probe.Pairs != 1 {
		t.Errorf("vote %+v\nprobe %+v", vote, probe)
	}
	if vote.Redis.P50 != 0.4 || vote.Delta.P50 != -0.25 || vote.Delta.Max != -0.25 || probe.Delta.P999 != 2999.6 {
		t.Errorf("redis %v, delta %v, probe's delta %v", vote.Redis.P50, vote.Delta.P50, probe.Delta.P999)
	}
}

// Each MySQL answer is slower than its own Redis answer by 1 ms, or faster by
// 1 ms in one of a hundred: what the difference of two medians can't show.
func TestDeltaIsOfPairs(t *testing.T) {
	c := start(t, Config{})
	o := seen(holdover.StageJoint, holdover.OpReserve, granted, granted)
	for i := range 10_000 {
		o.Redis.Latency = time.Duration(2+i%7) * time.Millisecond
		o.MySQL.Latency = o.Redis.Latency + time.Millisecond
		if i%100 == 0 {
			o.MySQL.Latency = o.Redis.Latency - time.Millisecond
		}
		c.Observe(o)
	}
	d := c.Total().Cells[0].Times[0].Delta
	if d.Min != -1000 || d.Max != 1000 || d.P50 < 980 || d.P50 > 1020 || d.P999 < 980 {
		t.Errorf("delta %+v", d)
	}
}

func TestObservationMayBeReused(t *testing.T) {
	c := start(t, Config{})
	o := left(seen(holdover.StageShadow, holdover.OpReserve, granted, refused, holdover.EvidencePoolShort), []int64{5}, []int64{0})
	c.Observe(o)
	o.Lines[0].Item, o.Evidence[0], o.Redis.Remaining[0] = 99, 0, 99
	o.Proof.Sides[0].Redis, o.Proof.Sides[1].MySQL[0].Available = 99, 99
	e := c.Total().Samples[0]
	if e.Lines[0].Item != 1 || e.Evidence[0] != "pool-short" || e.Redis.Remaining[0] != 5 ||
		e.Proof.Sides[0].Redis != 9 || e.Proof.Sides[1].MySQL[0].Available != 9 {
		t.Errorf("the sample changed with the caller's slices: %+v", e)
	}
}

func TestCloseTwiceAndObserveAfter(t *testing.T) {
	sink := &buffer{}
	c := start(t, Config{Events: sink})
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, refused))
	n := c.Counts()
	if !sink.closed || n.Eligible != 1 || n.EventsDropped != 1 {
		t.Errorf("closed %v, %d eligible, %d dropped", sink.closed, n.Eligible, n.EventsDropped)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no pod":         {},
		"two sinks":      {Pod: "p", Path: "x", Events: &buffer{}},
		"negative queue": {Pod: "p", QueueLen: -1},
		"accuracy":       {Pod: "p", SketchAccuracy: 0.5},
		"flushes":        {Pod: "p", FlushEvery: -1},
		"rollups":        {Pod: "p", RollupEvery: -1},
		"spool":          {Pod: "p", SpoolMax: -1},
	} {
		if _, err := New(cfg); !errors.Is(err, holdover.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRotatedFilesAreReadTogether(t *testing.T) {
	dir := t.TempDir()
	c := start(t, Config{Path: filepath.Join(dir, "events.jsonl"), MaxSizeMB: 1, QueueLen: 1 << 16, CloseTimeout: time.Minute})
	o := seen(holdover.StageShadow, holdover.OpReserve, granted, refused)
	o.Redis.Err = strings.Repeat("x", 250)
	for range 3000 { // more than 1 MB of events
		c.Observe(o)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "events*"))
	if err != nil || len(files) < 2 {
		t.Fatalf("files %q, %v: want a rotated one", files, err)
	}
	back, notes, err := ReadRollups(files...)
	if err != nil || len(notes) > 0 {
		t.Fatalf("%v, notes %q", err, notes)
	}
	wantSum(t, back, c.Total())
}
