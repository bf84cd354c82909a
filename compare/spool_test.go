package compare

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// spooled writes n closed rollups of a run and returns their spool.
func spooled(t *testing.T, dir, run string, most, n int) *runSpool {
	t.Helper()
	s, err := openRunSpool(dir, "p", "a", run, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.end() })
	at := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for seq := 1; seq <= n; seq++ {
		r := Rollup{Pod: "p", Instance: "a", Run: run, Seq: uint64(seq), From: at, To: at.Add(time.Minute)}
		if _, err := s.flush(r); err != nil {
			t.Fatal(err)
		}
		if lost, err := s.close(r); err != nil || lost != 0 {
			t.Fatalf("%d lost, %v", lost, err)
		}
	}
	return s
}

// numbers takes everything out of a spool and returns what was lost before each.
func numbers(t *testing.T, s *Spool) (seqs, lost []uint64) {
	t.Helper()
	for {
		r, name, ok, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return seqs, lost
		}
		seqs, lost = append(seqs, r.Seq), append(lost, r.Lost)
		if err := s.Done(name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSpoolIsInOrder(t *testing.T) {
	dir := t.TempDir()
	spooled(t, dir, "00000000000b01", 100, 2)
	spooled(t, dir, "00000000000a02", 100, 11)
	s := OpenSpool(dir, "p", "a")
	if files, oldest := s.Backlog(); files != 13 || time.Since(oldest) > time.Hour {
		t.Errorf("%d files since %s", files, oldest)
	}
	if r, _, ok, err := OpenSpool(dir, "p", "b").Next(); ok || err != nil {
		t.Errorf("another instance's spool has %+v, %v", r, err)
	}
	if r, _, ok, err := OpenSpool(filepath.Join(dir, "none"), "p", "a").Next(); ok || err != nil {
		t.Errorf("no folder: %+v, %v", r, err)
	}
	again := OpenSpool(dir, "p", "a") // another process that sends the same
	if _, _, ok, err := again.Next(); !ok || err != nil {
		t.Fatal(err)
	}
	seqs, _ := numbers(t, s)
	for i, seq := range seqs {
		want := uint64(i + 1)
		if i >= 11 {
			want = uint64(i - 10)
		}
		if seq != want {
			t.Errorf("the %d. is number %d, want %d: %v", i, seq, want, seqs)
		}
	}
	if _, _, ok, err := again.Next(); ok || err != nil || len(seqs) != 13 {
		t.Errorf("%v were sent by the other; this one still has some, or %v", seqs, err)
	}
}

func TestFullSpoolDropsTheOldestAndSaysSo(t *testing.T) {
	dir := t.TempDir()
	spooled(t, dir, "00000000000a01", 3, 10)
	seqs, lost := numbers(t, OpenSpool(dir, "p", "a"))
	if len(seqs) != 3 || seqs[0] != 8 || lost[0] != 7 || lost[1] != 0 {
		t.Errorf("numbers %v, lost before them %v", seqs, lost)
	}
	// The last of a dead run: the living one has to tell.
	spooled(t, dir, "00000000000a02", 100, 1)
	s := spooled(t, dir, "00000000000b01", 100, 2)
	s.max = 2
	r := Rollup{Pod: "p", Instance: "a", Run: "00000000000b01", Seq: 3, To: time.Now()}
	if n, err := s.close(r); err != nil || n != 1 {
		t.Errorf("%d lost, %v: want the other run's one, and the own one told by its next", n, err)
	}
	seqs, lost = numbers(t, OpenSpool(dir, "p", "a"))
	if len(seqs) != 2 || seqs[0] != 2 || lost[0] != 1 {
		t.Errorf("numbers %v, lost before them %v", seqs, lost)
	}
}

func TestSpoolFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	spooled(t, dir, "00000000000a01", 100, 3)
	first := filepath.Join(dir, spoolName(spoolPrefix("p", "a"), "00000000000a01", 1)+closedEnd)
	whole, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", string(whole[:len(whole)/2]), "{}", `{"v":1}`, strings.Replace(string(whole), `"seq":1`, `"seq":0`, 1)} {
		if err := os.WriteFile(first, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, name, ok, err := OpenSpool(dir, "p", "a").Next()
		if ok || err == nil || !strings.Contains(err.Error(), name) || name != filepath.Base(first) {
			t.Errorf("%q is read as %q, %v, %v", text, name, ok, err)
		}
		if _, _, err := ReadRollups(first); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, foreign := range []string{"notes.txt", "p.a.json", "p.a.x-y.json", "p.a.b.1-000000000001.json"} {
		if err := os.WriteFile(filepath.Join(dir, foreign), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := OpenSpool(dir, "p", "a")
	_, name, _, _ := s.Next()
	if err := s.Quarantine(name, "it is half a file"); err != nil {
		t.Fatal(err)
	}
	if seqs, _ := numbers(t, s); len(seqs) != 2 || seqs[0] != 2 {
		t.Errorf("after the bad one: %v", seqs)
	}
	why, err := os.ReadFile(strings.TrimSuffix(first, closedEnd) + whyEnd)
	if err != nil || string(why) != "it is half a file\n" {
		t.Errorf("why: %q, %v", why, err)
	}
	if _, err := os.Stat(strings.TrimSuffix(first, closedEnd) + badEnd); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"../x", "", "notes.txt"} {
		if err := s.Done(name); err == nil {
			t.Errorf("%q was taken out", name)
		}
	}
}

// What a killed process leaves can be half a file: it is put aside, and the rest
// goes on.
func TestTornFilesDoNotStopTheNextRun(t *testing.T) {
	dir := t.TempDir()
	prefix := spoolPrefix("p", "a")
	for name, text := range map[string]string{
		spoolName(prefix, "00000000000a01", 1) + openEnd:          "",
		spoolName(prefix, "00000000000a02", 1) + openEnd:          `{"v":1,"rollup":{"pod":"p","run":"00000000000a02","seq":1,"torn":true}}`,
		spoolName(prefix, "00000000000a03", 1) + openEnd + newEnd: `{"v":1,"ro`,
		prefix + "00000000000a04" + lockEnd:                       "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, notes, err := ReadRollups(dir)
	if err != nil || len(got) != 1 || len(notes) != 2 {
		t.Errorf("%d rollups, notes %q, %v", len(got), notes, err)
	}
	c := start(t, Config{Spool: dir, Instance: "a"})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := c.Counts().EventsFailed; n != 1 {
		t.Errorf("%d failures, want that of the unreadable one", n)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimPrefix(e.Name(), prefix))
	}
	want := []string{"00000000000a01-000000000001.bad", "00000000000a02-000000000001.json", c.run + "-000000000001.json"}
	if strings.Join(names, " ") != strings.Join(want, " ") {
		t.Errorf("left %q, want %q", names, want)
	}
}

func TestNamesOfFilesSurviveAnyName(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 300)
	names := [][2]string{ // pod, instance
		{"a", "b"}, {"a", ""}, {"a.b", "c"}, {"a", "b.c"}, {"a%2Eb", "c"}, {"../../etc", "../x"}, {"a/b", "c"}, {"ä", "\n"},
		{"-", "~"}, {"a-b", "c-1"}, {long, long}, {long + "y", long}, {long, "b"}, {"a\x00b", "c"},
	}
	for _, n := range names {
		c := start(t, Config{Pod: n[0], Instance: n[1], Spool: dir})
		if err := c.Close(); err != nil {
			t.Fatalf("%q: %v", n, err)
		}
	}
	for _, n := range names {
		s := OpenSpool(dir, n[0], n[1])
		r, name, ok, err := s.Next()
		if !ok || err != nil || r.Pod != n[0] || r.Instance != n[1] {
			t.Fatalf("%q: %q %q in %s, %v", n, r.Pod, r.Instance, name, err)
		}
		if files, _ := s.Backlog(); files != 1 {
			t.Errorf("%q has %d files", n, files)
		}
	}
}

// A rollup that the disk does not take waits in memory. When too many wait the oldest
// are lost, and the next one says so.
func TestRollupsOutliveAFullDisk(t *testing.T) {
	for _, c := range []struct {
		minutes     int
		first, lost uint64 // after the first minute's
	}{{2, 2, 0}, {maxPending + 2, 4, 2}} {
		testFullDisk(t, c.minutes, c.first, c.lost)
	}
}

func testFullDisk(t *testing.T, minutes int, first, before uint64) {
	synctest.Test(t, func(t *testing.T) {
		spool := t.TempDir()
		c := start(t, Config{Spool: spool, Instance: "a"})
		plant(c)
		time.Sleep(time.Minute + time.Millisecond)
		synctest.Wait()
		if err := os.Rename(spool, spool+".away"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(minutes) * time.Minute) // as many that can't be written
		synctest.Wait()
		if err := os.Rename(spool+".away", spool); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		seqs, lost := numbers(t, OpenSpool(spool, "p", "a"))
		if len(seqs) != minutes+2-int(before) || seqs[0] != 1 || seqs[1] != first || seqs[len(seqs)-1] != uint64(minutes+2) || lost[1] != before || slices.Max(lost) != before {
			t.Errorf("%d minutes: numbers %v, lost before them %v", minutes, seqs, lost)
		}
		if n := c.Counts().EventsFailed; n < 2 {
			t.Errorf("%d failures counted", n)
		}
	})
}
