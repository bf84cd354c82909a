package compare_test

import (
	"path/filepath"
	"testing"

	"holdover"
	"holdover/compare"
)

// TestNamesakesWriteFilesOfTheirOwn: two processes of one instance name never
// write to one file, and a report has what both saw. (A lock belongs to an open
// file, so that one process can stand for two.)
func TestNamesakesWriteFilesOfTheirOwn(t *testing.T) {
	dir := t.TempDir()
	claim := func(want int) *compare.EventFile {
		t.Helper()
		f, err := compare.ClaimEventFile(dir, "pod-a", "one")
		if err != nil {
			t.Fatal(err)
		}
		if f.Number != want {
			t.Errorf("number %d, want %d (%s)", f.Number, want, f.Path)
		}
		return f
	}
	write := func(f *compare.EventFile) {
		t.Helper()
		c, err := compare.New(compare.Config{Pod: "pod-a", Instance: "one", Path: f.Path})
		if err != nil {
			t.Fatal(err)
		}
		c.Observe(holdover.Observation{Pod: "pod-a", Stage: holdover.StageShadow, Op: holdover.OpReserve,
			Redis: holdover.Answer{Outcome: holdover.OutcomeGranted}, MySQL: holdover.Answer{Outcome: holdover.OutcomeGranted}})
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	first, second := claim(1), claim(2)
	if first.Path == second.Path {
		t.Fatalf("both write to %s", first.Path)
	}
	write(first)
	write(second)
	files, err := filepath.Glob(filepath.Join(dir, "pod-a.*.jsonl*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v %v", files, err)
	}
	rollups, notes, err := compare.ReadRollups(files...)
	if err != nil || len(notes) > 0 {
		t.Fatalf("%v, notes %q", err, notes)
	}
	sum, err := compare.Sum(rollups)
	if eligible, _, _, _ := sum.Counts(); err != nil || eligible != 2 || len(sum.Runs) != 2 {
		t.Errorf("%d operations of %d runs, %v", eligible, len(sum.Runs), err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again := claim(1) // the name is free again
	for _, f := range []*compare.EventFile{again, second} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
