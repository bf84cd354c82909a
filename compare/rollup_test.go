package compare

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"holdover"
)

// wantSum fails unless the rollups add up to what the comparator counted.
func wantSum(t *testing.T, rollups []Rollup, whole Rollup) Total {
	t.Helper()
	sum, err := Sum(rollups)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Sum([]Rollup{whole})
	if err != nil {
		t.Fatal(err)
	}
	for what, pair := range map[string][2]any{
		"cells": {untimed(sum.Cells), untimed(want.Cells)}, "strata": {sum.Strata, want.Strata}, "planted": {sum.Planted, want.Planted},
		"times": {pairsOf(sum.Cells), pairsOf(want.Cells)},
		"rest":  {[]uint64{sum.Ignored, sum.Panics, sum.Untimed, sum.Bypassed}, []uint64{want.Ignored, want.Panics, want.Untimed, want.Bypassed}},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s differ (- rollups, + counted):\n%s", what, cmp.Diff(pair[0], pair[1]))
		}
	}
	return sum
}

func untimed(cells []Cell) []Cell {
	out := make([]Cell, len(cells))
	for i, c := range cells {
		c.Times = nil
		out[i] = c
	}
	return out
}

func pairsOf(cells []Cell) (n []uint64) {
	for _, c := range cells {
		for _, t := range c.Times {
			n = append(n, t.Pairs, uint64(t.Delta.Min), uint64(t.Delta.Max))
		}
	}
	return n
}

// wantRun fails unless the rollups are one run's, without gaps in numbers and times.
func wantRun(t *testing.T, rollups []Rollup) {
	t.Helper()
	for i, r := range rollups {
		if r.Run != rollups[0].Run || r.Seq != uint64(i+1) || i > 0 && !r.From.Equal(rollups[i-1].To) || r.Final != (i == len(rollups)-1) {
			t.Errorf("rollup %d: run %s, number %d, from %s to %s, final %v", i, r.Run, r.Seq, r.From, r.To, r.Final)
		}
	}
}

func TestEachMinuteIsARollup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(17 * time.Second) // a run begins at any time
		sink, spool := &buffer{}, t.TempDir()
		var bypassed atomic.Uint64
		times := &ConnectionTimes{}
		c := start(t, Config{
			Events: sink, Spool: spool, Instance: "a", Version: "v1", ConfigHash: "c0ffee",
			Bypassed: bypassed.Load, Connections: times.Take, FlushEvery: 10 * time.Second,
		})
		for range 3 {
			plant(c)
			c.Observe(seen(holdover.StageRedis, holdover.OpReserve, granted, granted))
			bypassed.Add(2)
			times.Held("mysql", "reserve", time.Millisecond)
			time.Sleep(time.Minute)
		}
		plant(c)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		fromLines, notes, err := readRollupsFrom(Source{"events", strings.NewReader(sink.String())})
		if err != nil || len(notes) > 0 {
			t.Fatalf("%v, notes %q", err, notes)
		}
		fromSpool, notes, err := ReadRollups(spool)
		if err != nil || len(notes) > 0 {
			t.Fatalf("%v, notes %q", err, notes)
		}
		if !reflect.DeepEqual(fromLines, fromSpool) {
			t.Errorf("lines and files differ:\n%s", cmp.Diff(fromLines, fromSpool))
		}
		wantRun(t, fromLines)
		if len(fromLines) != 4 {
			t.Fatalf("%d rollups", len(fromLines))
		}
		for i, r := range fromLines[:3] {
			if r.To.Second() != 0 || r.Version != "v1" || r.Config != "c0ffee" || r.Bypassed != 2 || r.Ignored != 1 || r.Torn {
				t.Errorf("rollup %d: %+v", i, r)
			}
			if len(r.Connections) != 1 || r.Connections[0].Holds != 1 || r.Connections[0].Held.Max != 1000 {
				t.Errorf("rollup %d: connections %+v", i, r.Connections)
			}
		}
		sum := wantSum(t, fromLines, c.Total())
		if sum.Bypassed != 6 || sum.Rollups != 4 || sum.Connections[0].Holds != 3 {
			t.Errorf("%d bypassed, %d rollups, connections %+v", sum.Bypassed, sum.Rollups, sum.Connections)
		}
	})
}

// killed returns a copy of a spool as a killed process would leave it: nobody
// holds the locks of the copy.
func killed(t *testing.T, spool string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(spool)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestKilledRunLosesOneFlushAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spool := t.TempDir()
		lines := &buffer{}
		c := start(t, Config{Events: lines, Spool: spool, Instance: "a"})
		plant(c)
		time.Sleep(time.Minute) // one rollup is closed
		synctest.Wait()
		plant(c)
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		flushed := c.Total()
		plant(c) // within the second in which it is killed
		dir, before := killed(t, spool), lines.String()

		// From a machine that only reads: the open period counts, with a note.
		got, notes, err := ReadRollups(dir)
		if err != nil || len(got) != 2 || len(notes) != 1 || !strings.Contains(notes[0], "open period") {
			t.Fatalf("%d rollups, notes %q, %v", len(got), notes, err)
		}
		wantSum(t, got, flushed)

		// The next process of this name closes it as torn.
		sink := &buffer{}
		next := start(t, Config{Events: sink, Spool: dir, Instance: "a"})
		synctest.Wait()
		s := OpenSpool(dir, "p", "a")
		for seq := uint64(1); seq <= 2; seq++ {
			r, name, ok, err := s.Next()
			if !ok || err != nil || r.Seq != seq || r.Torn != (seq == 2) || r.Final {
				t.Fatalf("number %d, torn %v, final %v, %v, %v", r.Seq, r.Torn, r.Final, ok, err)
			}
			if seq == 1 {
				if err := s.Done(name); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := next.Close(); err != nil {
			t.Fatal(err)
		}
		// Lines, files and the next run's lines have it twice and three times: once it counts.
		path := filepath.Join(dir, "events.jsonl")
		if err := os.WriteFile(path, []byte(before+sink.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		all, notes, err := ReadRollups(dir, path)
		if err != nil || len(notes) > 0 {
			t.Fatalf("notes %q, %v", notes, err)
		}
		if len(all) != 3 || all[1].Run != all[0].Run || !all[1].Torn || all[2].Run == all[0].Run {
			t.Errorf("%d rollups", len(all))
		}
		wantSum(t, all, flushed)
		left, err := filepath.Glob(filepath.Join(dir, "*.lock"))
		if err != nil || len(left) > 0 {
			t.Errorf("locks are left: %q, %v", left, err)
		}
	})
}

// A process of the same name that lives is let alone.
func TestNamesakeIsNotTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spool := t.TempDir()
		one := start(t, Config{Spool: spool, Instance: "a"})
		plant(one)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		two := start(t, Config{Spool: spool, Instance: "a"})
		synctest.Wait()
		if files, _ := OpenSpool(spool, "p", "a").Backlog(); files != 0 {
			t.Errorf("%d files wait though both live", files)
		}
		if n := two.Counts().EventsFailed; n > 0 {
			t.Errorf("%d failures: a living namesake is none", n)
		}
		plant(two)
		for _, c := range []*Comparator{one, two} {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		got, _, err := ReadRollups(spool)
		if err != nil || len(got) != 2 || got[0].Torn || got[1].Torn || got[0].Run == got[1].Run {
			t.Errorf("%d rollups, %v", len(got), err)
		}
	})
}

// Observing while periods are flushed, closed and read loses nothing.
func TestRollupsUnderTraffic(t *testing.T) {
	spool := t.TempDir()
	c := start(t, Config{Events: &buffer{}, Spool: spool, FlushEvery: time.Millisecond, RollupEvery: 5 * time.Millisecond, QueueLen: 64})
	const workers, rounds = 8, 100
	var last uint64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				plant(c)
				_ = c.Counts()
			}
		})
	}
	wg.Go(func() {
		for range rounds {
			if n := c.Counts().Eligible; n < last {
				t.Errorf("the count went back from %d to %d", last, n)
			} else {
				last = n
			}
			_ = c.Total()
		}
	})
	wg.Wait()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	got, notes, err := ReadRollups(spool)
	if err != nil || len(notes) > 0 {
		t.Fatalf("notes %q, %v", notes, err)
	}
	wantRun(t, got)
	wantSum(t, got, c.Total())
	if n := c.Counts(); n.Eligible != uint64(workers*rounds*len(pairs)) {
		t.Errorf("%d eligible", n.Eligible)
	}
}

// TestBoundedMemory: two seconds' worth of 50,000 observations a second, one of
// fifty a divergence, do not stay in memory.
func TestBoundedMemory(t *testing.T) {
	c := start(t, Config{Path: filepath.Join(t.TempDir(), "events.jsonl"), Spool: t.TempDir(), FlushEvery: 50 * time.Millisecond, CloseTimeout: time.Minute})
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const n, workers = 100_000, 4
	began := time.Now()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			match := seen(holdover.StageShadow, holdover.OpReserve, granted, granted)
			differs := seen(holdover.StageShadow, holdover.OpReserve, granted, refused)
			for i := range n / workers {
				o := match
				if i%50 == 0 {
					o = differs
				}
				o.At = time.Now()
				c.Observe(o)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	grown := int64(heap()) - int64(before)
	t.Logf("%d observations in %s, %d KiB more on the heap", n, took, grown>>10)
	if grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	if got := c.Counts(); got.Eligible != n {
		t.Errorf("%d eligible", got.Eligible)
	}
}

func TestReservedShopsAreInNoOtherFigure(t *testing.T) {
	c := start(t, Config{Reserved: func(shop int64) bool { return shop == 99 }})
	reserved := func(o holdover.Observation) holdover.Observation { o.Shop = 99; return o }
	c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
	c.Observe(reserved(seen(holdover.StageShadow, holdover.OpReserve, granted, refused))) // nobody expects it
	caught := reserved(seen(holdover.StageShadow, holdover.OpReserve, granted, refused))
	c.Expect(caught.Token, KindUnexplained)
	c.Observe(caught)
	c.Observe(caught) // once
	c.Missed(caught.Token)
	wrong := reserved(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
	c.Expect(wrong.Token, KindLocation)
	c.Observe(wrong)
	lost := holdover.NewToken()
	c.Expect(lost, KindMirrorLost)
	c.Missed(lost)
	total := c.Total()
	want := []Planted{{KindLocation, KindMatch, 1}, {KindMirrorLost, KindNone, 1}, {KindUnexplained, KindUnexplained, 1}}
	if !reflect.DeepEqual(total.Planted, want) || !reflect.DeepEqual(c.Counts().Planted, want) {
		t.Errorf("planted %v, want %v", total.Planted, want)
	}
	if n := c.Counts(); n.Eligible != 1 || len(total.Cells) != 1 || total.Cells[0].Eligible != 1 || len(total.Strata) != 1 {
		t.Errorf("%d eligible, cells %+v, strata %+v", n.Eligible, total.Cells, total.Strata)
	}
	for range maxExpected + 5 {
		c.Expect(holdover.NewToken(), KindMatch)
	}
	if got := c.Counts().Planted[0]; got != (Planted{KindMatch, KindNone, 5}) {
		t.Errorf("over the bound: %+v", got)
	}
}

func TestTraceHasWhatHappenedAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &buffer{}
		c := start(t, Config{Events: sink})
		observe := func(o holdover.Observation, token holdover.Token) {
			o.Token, o.At = token, time.Now()
			c.Observe(o)
		}
		match := seen(holdover.StageShadow, holdover.OpReserve, granted, granted)
		other, elsewhere := match, match
		other.Lines = []holdover.Line{{Item: 77, Group: 1, Quantity: 1}}
		elsewhere.Shop = 2
		early, late, own := holdover.NewToken(), holdover.NewToken(), holdover.NewToken()
		observe(match, holdover.NewToken()) // too long before
		time.Sleep(3 * time.Second)
		observe(match, early)
		observe(other, holdover.NewToken())     // another item
		observe(elsewhere, holdover.NewToken()) // another shop
		for range 2 * traceLen {
			observe(other, holdover.NewToken()) // pushes the early one out, once it was seen
			if c.Counts().Eligible == 100 {
				observe(seen(holdover.StageShadow, holdover.OpReserve, granted, refused), own)
				synctest.Wait()
			}
		}
		observe(other, own) // its own token, with other lines
		time.Sleep(traceAfter / 2)
		observe(match, late)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		var events []Event
		for l := range strings.Lines(sink.String()) {
			read, err := decodeLine([]byte(l))
			if err != nil {
				t.Fatal(err)
			}
			if read.Event != nil {
				events = append(events, *read.Event)
			}
		}
		if len(events) != 1 {
			t.Fatalf("%d events", len(events))
		}
		var tokens []string
		for _, step := range events[0].Trace {
			tokens = append(tokens, step.Token)
		}
		if want := []string{early.String(), own.String(), late.String()}; !reflect.DeepEqual(tokens, want) {
			t.Errorf("trace %q, want %q", tokens, want)
		}
		if events[0].Next == "" || events[0].Trace[0].Kind != KindMatch || events[0].Trace[0].Units != 3 {
			t.Errorf("%+v", events[0])
		}
	})
}

func TestTraceIsBounded(t *testing.T) {
	r := newRing()
	o := seen(holdover.StageShadow, holdover.OpReserve, granted, granted)
	f := finding{kind: KindMatch}
	at := o.At
	for i := range 100 {
		o.At = at.Add(time.Duration(i-50) * time.Millisecond)
		r.put(uint64(i+1), &o, &f)
	}
	o.At = at
	near := r.around(51, &o)
	if len(near) != traceMost {
		t.Fatalf("%d steps", len(near))
	}
	for _, s := range near {
		if s.seq < 41 || s.seq > 61 || s.seq == 51 {
			t.Errorf("step %d is not among the nearest of 51", s.seq)
		}
	}
}
