package mysqlpool

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover"
)

// noon is when the rollups of these tests begin.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func comparison(run string, seq uint64) holdover.Comparison {
	from := noon.Add(time.Duration(seq-1) * time.Minute)
	return holdover.Comparison{
		Pod: "pod-test", Instance: "it's \"one\" ✓", Run: run, Seq: seq, From: from, To: from.Add(time.Minute), Head: fmt.Appendf(nil, `{"seq":%d}`, seq),
		Cells: []holdover.ComparisonCell{
			{Stage: holdover.StageShadow, Op: holdover.OpReserve, Eligible: 10, Compared: 9, Differed: 2, Unexplained: 1, Payload: []byte(`{"a":1}`)},
			{Stage: holdover.StageShadow, Op: holdover.OpClaim, Eligible: 3, Compared: 3, Payload: bytes.Repeat([]byte("x"), 100_000)},
		},
		Divergences: []holdover.DivergenceRow{
			{Place: 7, Kind: "last-unit-race", At: from.Add(time.Second), Shop: 7, Token: holdover.NewToken(), Payload: []byte(`{"why":"'); DROP TABLE holdover_rollups; --"}`)},
			{Place: 7, Kind: "unexplained", At: from.Add(2 * time.Second), Shop: 8, Token: holdover.NewToken()},
		},
	}
}

func (f *fixture) append(t *testing.T, c holdover.Comparison, want bool) {
	t.Helper()
	if again, err := f.AppendComparison(t.Context(), c); err != nil || again != want {
		t.Fatalf("rollup %s: again %v, %v", rollupName(c), again, err)
	}
}

func (f *fixture) comparisons(t *testing.T, since, until time.Time) (all []holdover.Comparison) {
	t.Helper()
	err := f.Comparisons(t.Context(), since, until, func(c holdover.Comparison) error {
		all = append(all, c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestComparisonKeptOnce: what was appended is read back as it was, and again
// and again is once.
func TestComparisonKeptOnce(t *testing.T) {
	f := newFixture(t)
	first, second := comparison("run-1", 1), comparison("run-1", 2)
	f.append(t, first, false)
	f.append(t, first, true)
	f.append(t, second, false)
	f.append(t, first, true)
	f.append(t, second, true)
	got := f.comparisons(t, noon, noon.Add(time.Hour))
	// Cells come back by name.
	for _, c := range []*holdover.Comparison{&first, &second} {
		c.Cells[0], c.Cells[1] = c.Cells[1], c.Cells[0]
	}
	if !reflect.DeepEqual(got, []holdover.Comparison{first, second}) {
		t.Errorf("%+v", got)
	}
	if n := f.number(t, "SELECT SUM(eligible) FROM holdover_rollup_cells WHERE op = 'reserve' AND minute >= ?", noon.Add(time.Minute)); n != 10 {
		t.Errorf("%d eligible in the second minute", n)
	}
	var text string
	if err := f.db.QueryRowContext(t.Context(), "SELECT CAST(UNCOMPRESS(payload) AS CHAR) FROM holdover_rollups WHERE seq = 2").Scan(&text); err != nil || text != `{"seq":2}` {
		t.Errorf("the server reads %q, %v", text, err)
	}
	for _, period := range [][2]time.Time{{noon.Add(time.Second), noon.Add(time.Minute)}, {noon.Add(-time.Hour), noon}} {
		if got := f.comparisons(t, period[0], period[1]); len(got) != 0 {
			t.Errorf("%v: %d rollups that did not begin in it", period, len(got))
		}
	}
}

// TestComparisonOrder: a run's rollups come in order; a hole is refused unless it
// is said that those between are lost; and another run has its own order.
func TestComparisonOrder(t *testing.T) {
	f := newFixture(t)
	f.append(t, comparison("run-1", 1), false)
	var hole *holdover.SequenceError
	if _, err := f.AppendComparison(t.Context(), comparison("run-1", 4)); !errors.As(err, &hole) || hole.Last != 1 || hole.Seq != 4 {
		t.Fatalf("a hole: %v", err)
	}
	lost := comparison("run-1", 4)
	lost.Lost = 1
	if _, err := f.AppendComparison(t.Context(), lost); !errors.As(err, &hole) {
		t.Fatalf("one of two is accounted for: %v", err)
	}
	lost.Lost = 2
	f.append(t, lost, false)
	f.append(t, comparison("run-1", 5), false)
	f.append(t, comparison("run-2", 1), false)
	if _, err := f.AppendComparison(t.Context(), comparison("run-3", 2)); !errors.As(err, &hole) || hole.Last != 0 {
		t.Fatalf("a run's first: %v", err)
	}
	if got := f.comparisons(t, noon, noon.Add(time.Hour)); len(got) != 4 || got[2].Lost != 2 {
		t.Errorf("%+v", got)
	}
}

// TestComparisonConcurrent: two senders of one run keep each rollup once.
func TestComparisonConcurrent(t *testing.T) {
	f := newFixture(t)
	const rollups = 20
	var sending sync.WaitGroup
	var mu sync.Mutex
	kept := 0
	for range 4 {
		sending.Go(func() {
			for seq := uint64(1); seq <= rollups; seq++ {
				again, err := f.AppendComparison(t.Context(), comparison("run-1", seq))
				if err != nil {
					t.Error(err)
					return
				}
				if !again {
					mu.Lock()
					kept++
					mu.Unlock()
				}
			}
		})
	}
	sending.Wait()
	if n := f.number(t, "SELECT COUNT(*) FROM holdover_rollups"); n != rollups || kept != rollups {
		t.Errorf("%d rollups, %d said to be new, want %d", n, kept, rollups)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM holdover_divergences"); n != 2*rollups {
		t.Errorf("%d divergences", n)
	}
}

// TestComparisonRefused: what can never be kept is said to be invalid, and
// leaves nothing behind.
func TestComparisonRefused(t *testing.T) {
	f := newFixture(t)
	for name, spoil := range map[string]func(*holdover.Comparison){
		"another pod":   func(c *holdover.Comparison) { c.Pod = "pod-other" },
		"no run":        func(c *holdover.Comparison) { c.Run = "" },
		"a long run":    func(c *holdover.Comparison) { c.Run = strings.Repeat("r", 65) },
		"number zero":   func(c *holdover.Comparison) { c.Seq = 0 },
		"no time":       func(c *holdover.Comparison) { c.From = time.Time{} },
		"backwards":     func(c *holdover.Comparison) { c.To = c.From.Add(-time.Second) },
		"all lost":      func(c *holdover.Comparison) { c.Lost = 1 },
		"a cell twice":  func(c *holdover.Comparison) { c.Cells[1].Op = c.Cells[0].Op },
		"a long kind":   func(c *holdover.Comparison) { c.Divergences[1].Kind = strings.Repeat("k", 33) },
		"a wrong kind":  func(c *holdover.Comparison) { c.Divergences[1].Kind = "✓" },
		"a time of old": func(c *holdover.Comparison) { c.Divergences[0].At = time.Time{} },
		"many cells":    func(c *holdover.Comparison) { c.Cells = make([]holdover.ComparisonCell, maxRollupCells+1) },
	} {
		c := comparison("run-1", 1)
		spoil(&c)
		if again, err := f.AppendComparison(t.Context(), c); !errors.Is(err, holdover.ErrInvalid) || again {
			t.Errorf("%s: %v, %v", name, again, err)
		}
	}
	big := comparison("run-1", 1)
	random := rand.NewChaCha8([32]byte{1})
	for range 400 {
		payload := make([]byte, 20_000) // which don't shrink
		_, _ = random.Read(payload)
		big.Divergences = append(big.Divergences, holdover.DivergenceRow{Kind: "location", At: noon, Payload: payload})
	}
	if _, err := f.AppendComparison(t.Context(), big); !errors.Is(err, holdover.ErrInvalid) {
		t.Errorf("too large: %v", err)
	}
	for _, table := range []string{"holdover_rollups", "holdover_rollup_cells", "holdover_divergences"} {
		if n := f.number(t, "SELECT COUNT(*) FROM "+table); n != 0 {
			t.Errorf("%d rows in %s", n, table)
		}
	}
}

// TestComparisonLostAnswer: a COMMIT without an answer is unknown, and sending
// the same once more is right whatever became of it.
func TestComparisonLostAnswer(t *testing.T) {
	f := newFixture(t)
	s, cable := f.overCable(t)
	commit := "COMMIT"
	cable.cut.Store(&commit)
	if _, err := s.AppendComparison(t.Context(), comparison("run-1", 1)); !errors.Is(err, holdover.ErrUnknownOutcome) {
		t.Fatalf("a lost COMMIT: %v", err)
	}
	f.append(t, comparison("run-1", 1), true)
	head := "step='cells'"
	cable.cut.Store(&head)
	if again, err := s.AppendComparison(t.Context(), comparison("run-1", 2)); again || err != nil {
		t.Fatalf("a lost answer before it: %v, %v", again, err)
	}
	if got := f.comparisons(t, noon, noon.Add(time.Hour)); len(got) != 2 || len(got[1].Cells) != 2 {
		t.Errorf("%+v", got)
	}
}

// TestComparisonPages: a long period comes in pages, in order, and each rollup
// once, however many begin at the same time.
func TestComparisonPages(t *testing.T) {
	f := newFixture(t)
	const runs, each = 5, 50
	for run := range runs {
		for seq := uint64(1); seq <= each; seq++ {
			c := comparison(fmt.Sprint("run-", run), seq)
			c.From, c.To, c.Cells, c.Divergences = noon.Add(time.Duration(seq/25)*time.Minute), noon.Add(time.Hour), c.Cells[:1], nil
			f.append(t, c, false)
		}
	}
	seen := map[string]bool{}
	var last time.Time
	for _, c := range f.comparisons(t, noon, noon.Add(time.Hour)) {
		if seen[rollupName(c)] || c.From.Before(last) || len(c.Cells) != 1 {
			t.Fatalf("%s at %s with %d cells after %s", rollupName(c), c.From, len(c.Cells), last)
		}
		seen[rollupName(c)], last = true, c.From
	}
	if len(seen) != runs*each {
		t.Errorf("%d rollups, want %d", len(seen), runs*each)
	}
	stop := errors.New("enough")
	n := 0
	err := f.Comparisons(t.Context(), noon, noon.Add(time.Hour), func(holdover.Comparison) error { n++; return stop })
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

// TestComparisonRetention: old rollups go with all their rows, in batches, and
// nothing else does.
func TestComparisonRetention(t *testing.T) {
	f := newFixture(t)
	const old = 2*retainRollupBatch + 3
	for seq := uint64(1); seq <= old; seq++ {
		f.append(t, comparison("run-old", seq), false)
	}
	f.exec(t, "UPDATE holdover_rollups SET from_at = UTC_TIMESTAMP(3) - INTERVAL 401 DAY")
	young := comparison("run-young", 1)
	young.From = time.Now()
	young.To = young.From
	f.append(t, young, false)
	forever := f.open(t, func(c *Config) { c.ComparisonRetention = -1 })
	if done, err := forever.Retain(t.Context()); err != nil || done.Rollups != 0 {
		t.Fatalf("kept for ever: %+v, %v", done, err)
	}
	other := begin(t, plain(t, f.dsn, dialect(committed)))
	if _, err := other.ExecContext(t.Context(), "UPDATE holdover_rollups SET lost = 0, seq = seq WHERE run = 'run-old' AND seq = 5"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.ExecContext(t.Context(), "SELECT 1 FROM holdover_rollups WHERE run = 'run-old' AND seq = 5 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if done, err := f.Retain(t.Context()); err != nil || done.Rollups != old-1 {
		t.Errorf("beside a lock: %+v, %v", done, err)
	}
	_ = other.Rollback()
	if done, err := f.Retain(t.Context()); err != nil || done.Rollups != 1 {
		t.Errorf("the rest: %+v, %v", done, err)
	}
	for table, want := range map[string]int64{"holdover_rollups": 1, "holdover_rollup_cells": 2, "holdover_divergences": 2} {
		if n := f.number(t, "SELECT COUNT(*) FROM "+table); n != want {
			t.Errorf("%d rows in %s, want %d", n, table, want)
		}
	}
}

// TestComparisonPlans: every statement finds its rows by a key, in its order.
func TestComparisonPlans(t *testing.T) {
	f := newFixture(t)
	for _, size := range []int64{20, 1000} {
		for _, table := range []string{"holdover_rollups", "holdover_rollup_cells", "holdover_divergences", "holdover_signoffs"} {
			f.exec(t, "DELETE FROM "+table)
		}
		f.exec(t, "INSERT INTO holdover_rollups SELECT i, CONCAT('run-', i % 5), i, 0, 'p', 'i', ? + INTERVAL i MINUTE, ?, '' FROM "+numbers+" n", noon, noon, size)
		f.exec(t, "INSERT INTO holdover_rollup_cells SELECT i, 'shadow', 'reserve', ?, 1, 1, 1, 1, '' FROM "+numbers+" n", noon, size)
		f.exec(t, "INSERT INTO holdover_divergences SELECT i, 1, 1, 'location', ?, 1, UNHEX(REPLACE(UUID(), '-', '')), '' FROM "+numbers+" n", noon, size)
		f.exec(t, "INSERT INTO holdover_signoffs SELECT i, 'p', 'shadow', i, 'd', 'pass', 'go', 'a', 'n', ?, ?, ? FROM "+numbers+" n", noon, noon, noon, size)
		f.exec(t, "ANALYZE TABLE holdover_rollups, holdover_rollup_cells, holdover_divergences, holdover_signoffs")
		ids := make([]int64, rollupPage)
		for i := range ids {
			ids[i] = int64(i)
		}
		page := &statement{args: []any{noon, noon.Add(time.Hour), noon, 3, rollupPage}}
		page.WriteString(stmtRollupPage)
		last := &statement{args: []any{[]byte("run-1")}}
		last.WriteString(stmtRollupLast)
		signed := &statement{args: []any{3}}
		signed.WriteString(stmtSignOffLast)
		compared := &statement{args: []any{"shadow", noon.Add(5 * time.Minute), noon.Add(10 * time.Minute)}} // of all rows a range is the whole index
		compared.WriteString(stmtCompared)
		f.plans(t, fmt.Sprintf("%d rows", size), map[string]*statement{
			"page": page, "last": last, "signed": signed, "compared": compared,
			"cells":              new(statement).add(rollupCellsOf).in(ids).add(rollupCellsOfTail),
			"divergences":        new(statement).add(divergencesOf).in(ids).add(divergencesOfTail),
			"old":                new(statement).add(stmtRetainRollups, 1, retainRollupBatch),
			"delete heads":       retainedRollups(ids[:retainRollupBatch], retainRollupsTail),
			"delete cells":       retainedRollups(ids[:retainRollupBatch], retainCellsTail),
			"delete divergences": retainedRollups(ids[:retainRollupBatch], retainDivergencesTail),
		}, "holdover_rollups_run", "holdover_rollups_from", "holdover_signoffs_epoch")
	}
}

// TestUnpack: a payload that is not one of ours is an error, and allocates no
// more than it may.
func TestUnpack(t *testing.T) {
	for name, bad := range map[string][]byte{
		"short": {1, 2}, "no zlib": {4, 0, 0, 0, 1, 2, 3}, "huge": {255, 255, 255, 255}, "cut": pack([]byte("some text"))[:12],
	} {
		if got, err := unpack(bad); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got, err := unpack(pack([]byte("text"))); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestTwoRunsOfOneName: two processes of one instance name send what both have
// written, at once: each rollup is kept once, and a gap in one run is seen whatever
// the other has.
func TestTwoRunsOfOneName(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for seq := uint64(1); seq <= 3; seq++ {
				for _, run := range []string{"name-a", "name-b"} {
					c := comparison(run, seq)
					if _, err := f.AppendComparison(t.Context(), c); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	var hole *holdover.SequenceError
	if _, err := f.AppendComparison(t.Context(), comparison("name-b", 6)); !errors.As(err, &hole) || hole.Run != "name-b" || hole.Last != 3 {
		t.Errorf("a gap of two: %v", err)
	}
	f.append(t, comparison("name-a", 4), false)
	c := comparison("name-b", 6)
	c.Lost = 2
	f.append(t, c, false)
	kept := map[string]int{}
	for _, c := range f.comparisons(t, noon, noon.Add(time.Hour)) {
		kept[fmt.Sprint(c.Run, c.Seq)]++
	}
	if len(kept) != 8 {
		t.Errorf("kept %v", kept)
	}
	for name, n := range kept {
		if n != 1 {
			t.Errorf("%s is kept %d times", name, n)
		}
	}
}
