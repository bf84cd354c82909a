package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

func gateOf(t *testing.T, r report.Report, name string) report.Gate {
	t.Helper()
	i := slices.IndexFunc(r.Gates, func(g report.Gate) bool { return g.Name == name })
	if i < 0 {
		t.Fatalf("no gate %s", name)
	}
	return r.Gates[i]
}

// TestClockThatIsRightAgain: what was sent before it ended, by the clock of MySQL, takes
// the verdict when nothing is ahead any more.
func TestClockThatIsRightAgain(t *testing.T) {
	c := newConfig(t)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	now := time.Now().UTC().Truncate(time.Minute)
	spool := t.TempDir()
	sent := func(run string, to, at time.Time) {
		t.Helper()
		r := minute(t, run, 1, to.Add(-time.Minute))
		r.Instance = run
		ship := &shipper{spool: compare.OpenSpool(spool, s.Name, run), keep: s.MySQL.AppendComparison, log: slog.New(slog.DiscardHandler),
			clock: func(context.Context) (time.Time, error) { return at, nil }}
		_ = ship.send(t.Context(), r, "none") // it is in no spool to be taken out of
	}
	sent("fast", now.Add(-20*time.Minute), now.Add(-50*time.Minute))
	sent("late", now.Add(-20*time.Minute), now.Add(-5*time.Minute))
	r, err := Report(t.Context(), c, []*Stores{s}, ReportOptions{Since: now.Add(-time.Hour), Until: now.Add(-19 * time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	if g := gateOf(t, r, "instances"); g.OK || !strings.Contains(g.Reason, "the clock of fast (run fast) was wrong: it was ahead by 30m0s") || strings.Contains(g.Reason, "clock of late") {
		t.Errorf("%+v", g)
	}
	asked, err := s.clock(t.Context())
	if off := time.Since(asked); err != nil || off < -time.Minute || off > time.Minute {
		t.Errorf("the clock of MySQL on this machine: %s, %v", asked, err)
	}
}

// TestRemakeAsksWhoLivedThen: an instance that reported before and after a report's
// period and lost what is between is missing from what is signed.
func TestRemakeAsksWhoLivedThen(t *testing.T) {
	c := newConfig(t)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	now := time.Now().UTC().Truncate(time.Minute)
	start := now.Add(-30 * time.Minute)
	one := minute(t, "run-one", 1, start)
	one.To = start.Add(10 * time.Minute)
	keep(t, s, one)
	read := report.Report{Pods: []string{s.Name}, From: start, To: start.Add(10 * time.Minute)}
	remade := func() report.Gate {
		t.Helper()
		r, err := Remake(t.Context(), c, []*Stores{s}, read, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return gateOf(t, r, "instances")
	}
	if g := remade(); !g.OK || !strings.Contains(g.Reason, "the period has ended") {
		t.Fatalf("%+v", g)
	}
	keep(t, s, minute(t, "run-two", 1, start.Add(-5*time.Minute)))
	lost, err := comparisonOf(minute(t, "run-two", 9, start.Add(11*time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	lost.Lost = 7
	if _, err := s.MySQL.AppendComparison(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	if g := remade(); g.OK || !strings.Contains(g.Reason, "(run run-two)") || !strings.Contains(g.Reason, "of what it did in the period nothing is kept") {
		t.Errorf("%+v", g)
	}
	if err := s.Redis.Heartbeat(t.Context(), holdover.Instance{Name: "mute", ID: "run-mute", Epoch: 2}); err != nil {
		t.Fatal(err)
	}
	if g := remade(); !strings.Contains(g.Reason, "mute of pod-a (run run-mute) lives now and was not heard of") {
		t.Errorf("%+v", g)
	}
}

// TestReportSaysWhyNothingIsPlanted: of a pod without a reserved shop.
func TestReportSaysWhyNothingIsPlanted(t *testing.T) {
	c := newConfig(t)
	s := newStores(t, c)
	s.reserved = 0
	fences(t, s, holdover.StageRedis, holdover.StageShadow)
	now := time.Now()
	r, err := Report(t.Context(), c, []*Stores{s}, ReportOptions{Since: now.Add(-time.Hour), Until: now, Live: true})
	if err != nil {
		t.Fatal(err)
	}
	if g := gateOf(t, r, "selftest"); !strings.Contains(g.Reason, "nothing was planted (pod pod-a: no shop is reserved") {
		t.Errorf("%+v", g)
	}
}

// TestEventFilesAreStreamed: a report of files holds hours of them, not the files, and
// counts each rollup once.
func TestEventFilesAreStreamed(t *testing.T) {
	const rollups, most = 720, 24 << 20
	path := filepath.Join(t.TempDir(), "pod-a.jsonl")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	r := minute(t, "run-1", 1, start)
	for i := range r.Samples {
		r.Samples[i].Reason = strings.Repeat("x", 20<<10)
	}
	write := func(r compare.Rollup) {
		t.Helper()
		if err := json.NewEncoder(file).Encode(map[string]any{"v": 1, "rollup": r}); err != nil {
			t.Fatal(err)
		}
	}
	for seq := range uint64(rollups) {
		r.Seq, r.From, r.Torn = seq+1, start.Add(time.Duration(seq)*time.Minute), false
		r.To = r.From.Add(time.Minute)
		write(r)
		if seq == 100 { // half of it again, as what a killed process left
			r.Torn, r.To = true, r.From.Add(30*time.Second)
			write(r)
		}
	}
	size, err := file.Seek(0, 1)
	if err == nil {
		err = file.Close()
	}
	if err != nil || size < 2*most {
		t.Fatalf("%d bytes, %v", size, err)
	}

	defer debug.SetGCPercent(debug.SetGCPercent(10))
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	before := heap()
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				peak.Store(max(peak.Load(), heap()))
			}
		}
	}()
	made, err := ReportOffline([]string{path}, nil, ReportOptions{})
	close(stop)
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
	if more := int64(peak.Load()) - int64(before); more > most {
		t.Errorf("%d MiB more for a file of %d MiB", more>>20, size>>20)
	}
	if made.Coverage.Eligible != rollups*20 || len(made.Instances) != 1 || made.Instances[0].Rollups != rollups {
		t.Errorf("%d operations, %+v", made.Coverage.Eligible, made.Instances)
	}
	if !made.From.Equal(start) || !made.To.Equal(start.Add(rollups*time.Minute)) {
		t.Error(fmt.Sprint(made.From, made.To))
	}
}
