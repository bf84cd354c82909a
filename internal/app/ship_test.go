package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"holdover"
	"holdover/compare"
	"holdover/internal/faults"
)

// matched is an observation without a difference.
func matched() holdover.Observation {
	answer := holdover.Answer{Outcome: holdover.OutcomeGranted, State: holdover.StateHeld, Remaining: []int64{50}, Latency: time.Millisecond}
	return holdover.Observation{Pod: "pod-a", Epoch: 2, Stage: holdover.StageShadow, Op: holdover.OpReserve, Shop: 1, Token: holdover.NewToken(),
		Lines: []holdover.Line{{Item: 7, Group: 1, Quantity: 1}}, At: time.Now(), Redis: answer, MySQL: answer}
}

// spooled is an instance that compares into a spool, and ships it when told to.
type spooled struct {
	*compare.Comparator
	*shipper
	dir string
}

// newSpooled makes an instance with periods of 20 ms.
func newSpooled(t *testing.T, s *Stores, dir, instance string) *spooled {
	t.Helper()
	c, err := compare.New(compare.Config{Pod: s.Name, Instance: instance, Spool: dir, RollupEvery: 20 * time.Millisecond, FlushEvery: 5 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &spooled{c, &shipper{spool: compare.OpenSpool(dir, s.Name, instance), keep: s.MySQL.AppendComparison, clock: s.clock, log: slog.New(slog.DiscardHandler)}, dir}
}

// waiting waits until so many records wait on disk, with an observation in each
// period.
func (s *spooled) waiting(t *testing.T, n int) (observed uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d records wait", n), func() bool {
		s.Observe(matched())
		observed++
		files, _ := s.spool.Backlog()
		return files >= n
	})
	return observed
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// kept is what MySQL has: rollups by run, in the order of their arrival.
func kept(t *testing.T, s *Stores) (eligible uint64, runs map[string][]compare.Rollup) {
	t.Helper()
	runs = map[string][]compare.Rollup{}
	err := s.MySQL.Comparisons(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour), func(c holdover.Comparison) error {
		r, err := rollupOf(c)
		runs[r.Run] = append(runs[r.Run], r.Rollup)
		for _, cell := range r.Cells {
			eligible += cell.Eligible
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return eligible, runs
}

// gapless checks that the numbers of a run are 1, 2, 3 ...
func gapless(t *testing.T, rollups []compare.Rollup) {
	t.Helper()
	for i, r := range rollups {
		if r.Seq != uint64(i+1) || r.Lost != 0 {
			t.Errorf("record %d has number %d and %d lost before it", i+1, r.Seq, r.Lost)
		}
	}
}

// TestShipInOrder: everything that was counted arrives, in order and once, and
// the spool is empty then.
func TestShipInOrder(t *testing.T) {
	s := newStores(t, newConfig(t))
	one := newSpooled(t, s, t.TempDir(), "one")
	observed := one.waiting(t, 5)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	one.last(t.Context())
	eligible, runs := kept(t, s)
	if eligible != observed || len(runs) != 1 {
		t.Errorf("%d of %d observations in %d runs", eligible, observed, len(runs))
	}
	for _, rollups := range runs {
		gapless(t, rollups)
		if last := rollups[len(rollups)-1]; !last.Final || last.Instance != "one" || one.shipper.Counts() != (Shipped{Sent: uint64(len(rollups))}) {
			t.Errorf("the last of %d: %+v; %+v", len(rollups), last, one.shipper.Counts())
		}
	}
	if files, _ := one.spool.Backlog(); files != 0 {
		t.Errorf("%d records still wait", files)
	}
}

// TestShipDiesAfterCommit: a process that dies between the commit and the end of
// the file sends twice, and MySQL has it once.
func TestShipDiesAfterCommit(t *testing.T) {
	s := newStores(t, newConfig(t))
	one := newSpooled(t, s, t.TempDir(), "one")
	observed := one.waiting(t, 3)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	died := errors.New("killed")
	sent := 0
	dying := &shipper{spool: compare.OpenSpool(one.dir, s.Name, "one"), clock: s.clock, log: one.log}
	dying.keep = func(ctx context.Context, c holdover.Comparison) (bool, error) {
		if again, err := s.MySQL.AppendComparison(ctx, c); err != nil || again {
			t.Errorf("again %v, %v", again, err)
		}
		if sent++; sent == 2 {
			return false, died
		}
		return false, nil
	}
	if err := dying.ship(t.Context()); !errors.Is(err, died) {
		t.Fatal(err)
	}
	if err := one.ship(t.Context()); err != nil {
		t.Fatal(err)
	}
	eligible, runs := kept(t, s)
	for _, rollups := range runs {
		gapless(t, rollups)
		if eligible != observed || one.shipper.Counts() != (Shipped{Sent: uint64(len(rollups)) - 2, Again: 1}) {
			t.Errorf("%d of %d observations, %+v of %d", eligible, observed, one.shipper.Counts(), len(rollups))
		}
	}
}

// TestShipWithoutMySQL: while MySQL is away records wait on disk; when it is back
// everything follows in order, once, by itself.
func TestShipWithoutMySQL(t *testing.T) {
	c := newConfig(t)
	direct := newStores(t, c)
	dsn, err := mysql.ParseDSN(c.Pods[0].MySQL.DSN)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faults.Listen(dsn.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	dsn.Net, dsn.Addr = "tcp", proxy.Addr()
	far := c
	far.Pods = []PodConfig{c.Pods[0]}
	far.Pods[0].MySQL.DSN = dsn.FormatDSN()
	far.Timing.Call = time.Second
	s := newStores(t, far)
	one := newSpooled(t, s, t.TempDir(), "one")
	observed := one.waiting(t, 1)
	if err := one.ship(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Set(faults.Mode{Refuse: true})
	proxy.Cut()
	observed += one.waiting(t, 4)
	if err := one.ship(t.Context()); !errors.Is(err, holdover.ErrUnavailable) {
		t.Fatalf("without MySQL: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { one.run(ctx) })
	observed += one.waiting(t, 6)
	proxy.Heal()
	eventually(t, "the backlog is gone", func() bool { files, _ := one.spool.Backlog(); return files == 0 })
	stop()
	running.Wait()
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	one.last(t.Context())
	eligible, runs := kept(t, direct)
	if eligible != observed || len(runs) != 1 {
		t.Errorf("%d of %d observations in %d runs", eligible, observed, len(runs))
	}
	for _, rollups := range runs {
		gapless(t, rollups)
	}
	if n := one.shipper.Counts(); n.Lost != 0 || n.Quarantined != 0 {
		t.Errorf("%+v", n)
	}
}

// TestShipTogether: instances with one folder send their own, and two processes
// of one name send each record once between them.
func TestShipTogether(t *testing.T) {
	s := newStores(t, newConfig(t))
	dir := t.TempDir()
	instances := []*spooled{newSpooled(t, s, dir, "one"), newSpooled(t, s, dir, "one"), newSpooled(t, s, dir, "two")}
	var observed uint64
	for _, i := range instances {
		observed += i.waiting(t, 3)
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var sending sync.WaitGroup
	for _, i := range instances {
		sending.Go(func() {
			if err := i.ship(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	sending.Wait()
	eligible, runs := kept(t, s)
	if eligible != observed || len(runs) != 3 {
		t.Errorf("%d of %d observations in %d runs", eligible, observed, len(runs))
	}
	sent, all := uint64(0), 0
	for _, rollups := range runs {
		gapless(t, rollups)
		all += len(rollups)
	}
	for _, i := range instances {
		sent += i.shipper.Counts().Sent
		if n := i.shipper.Counts(); n.Lost != 0 || n.Quarantined != 0 {
			t.Errorf("%+v", n)
		}
	}
	if sent != uint64(all) {
		t.Errorf("%d of %d sent", sent, all)
	}
}

// TestShipBadRecords: a record that can't be read and one that MySQL refuses for
// good are put aside; those behind them arrive, and the holes are known.
func TestShipBadRecords(t *testing.T) {
	s := newStores(t, newConfig(t))
	one := newSpooled(t, s, t.TempDir(), "one")
	one.waiting(t, 5)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(one.dir, "*.json"))
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[3])
	if err != nil {
		t.Fatal(err)
	}
	unkeepable := strings.ReplaceAll(string(text), `"op":"reserve"`, `"op":"barter"`)
	for file, text := range map[string]string{files[1]: "{", files[3]: unkeepable} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.ship(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, runs := kept(t, s)
	for _, rollups := range runs {
		if len(rollups) != len(files)-2 || rollups[1].Seq != 3 || rollups[1].Lost != 1 || rollups[2].Seq != 5 || rollups[2].Lost != 1 {
			t.Errorf("%d of %d arrived: %+v", len(rollups), len(files), rollups)
		}
	}
	if n := one.shipper.Counts(); n.Quarantined != 2 || n.Lost != 2 || n.Sent != uint64(len(files)-2) {
		t.Errorf("%+v", n)
	}
	if bad, err := filepath.Glob(filepath.Join(one.dir, "*.bad")); err != nil || len(bad) != 2 {
		t.Errorf("put aside: %v, %v", bad, err)
	}
}

// TestComparisonRoundTrip: what goes into MySQL comes out as it was.
func TestComparisonRoundTrip(t *testing.T) {
	s := newStores(t, newConfig(t))
	one := newSpooled(t, s, t.TempDir(), "one")
	differs := matched()
	differs.MySQL = holdover.Answer{Outcome: holdover.OutcomeRefused, Remaining: []int64{0}, Latency: time.Millisecond}
	differs.Reason = "it's \"odd\" ✓"
	one.Observe(matched())
	one.Observe(differs)
	one.waiting(t, 1)
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	r, _, ok, err := one.spool.Next()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := one.ship(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, runs := kept(t, s)
	got := runs[r.Run][0]
	if want, got := asJSON(t, r), asJSON(t, got); got != want || !strings.Contains(got, `unexplained`) || !strings.Contains(got, "odd") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
