package compare

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fussyDisk refuses one operation on one kind of file, as often as it is told.
type fussyDisk struct {
	osDisk
	op    string // create, write, sync, close, rename, remove, read or list
	end   string // of the name
	err   error
	times int
}

func (d *fussyDisk) refuse(op, path string) error {
	if d.times > 0 && d.op == op && strings.HasSuffix(path, d.end) {
		d.times--
		return &fs.PathError{Op: op, Path: path, Err: d.err}
	}
	return nil
}

func (d *fussyDisk) Create(path string) (diskFile, error) {
	if err := d.refuse("create", path); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	return fussyFile{f, d}, err
}

func (d *fussyDisk) Rename(from, to string) error {
	return d.unless("rename", to, func() error { return os.Rename(from, to) })
}

func (d *fussyDisk) Remove(path string) error {
	return d.unless("remove", path, func() error { return os.Remove(path) })
}

func (d *fussyDisk) ReadFile(path string) ([]byte, error) {
	if err := d.refuse("read", path); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func (d *fussyDisk) ReadDir(path string) ([]fs.DirEntry, error) {
	if err := d.refuse("list", path); err != nil {
		return nil, err
	}
	return os.ReadDir(path)
}

func (d *fussyDisk) unless(op, path string, do func() error) error {
	if err := d.refuse(op, path); err != nil {
		return err
	}
	return do()
}

type fussyFile struct {
	*os.File
	disk *fussyDisk
}

func (f fussyFile) Write(b []byte) (int, error) {
	if err := f.disk.refuse("write", f.Name()); err != nil {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, err
	}
	return f.File.Write(b)
}

func (f fussyFile) Sync() error {
	return f.disk.unless("sync", f.Name(), f.File.Sync)
}

func (f fussyFile) Close() error {
	return errors.Join(f.disk.refuse("close", f.Name()), f.File.Close())
}

// A disk that fails at whichever step of keeping a period is asked again: nothing
// is lost, nothing comes twice, and none is told as lost.
func TestPeriodOutlivesEachFaultOfTheDisk(t *testing.T) {
	for _, c := range []struct {
		op, end string
		err     error
	}{
		{"create", newEnd, syscall.EMFILE}, {"write", newEnd, syscall.ENOSPC}, {"sync", newEnd, syscall.ENOSPC},
		{"close", newEnd, syscall.EDQUOT}, {"rename", openEnd, syscall.ENOSPC}, {"rename", closedEnd, syscall.EROFS},
		{"list", "", syscall.ENFILE},
	} {
		times := 2
		if c.op == "list" {
			times = 1 // it is listed once for a period that was kept
		}
		t.Run(c.op+c.end, func(t *testing.T) {
			dir, run := t.TempDir(), "00000000000a01"
			s := spooled(t, dir, run, 100, 1)
			at := time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
			r := func(seq uint64) Rollup {
				return Rollup{Pod: "p", Instance: "a", Run: run, Seq: seq, From: at, To: at.Add(time.Minute)}
			}
			s.disk = &fussyDisk{op: c.op, end: c.end, err: c.err, times: times}
			if _, err := s.close(r(2)); !errors.Is(err, c.err) {
				t.Fatalf("closed with %v, want the disk's error", err)
			}
			if _, err := s.flush(r(3)); times > 1 && !errors.Is(err, c.err) {
				t.Fatalf("flushed with %v, want the disk's error", err)
			}
			lost, err := s.flush(r(3))
			if err != nil || lost != 0 {
				t.Fatalf("%d lost, %v", lost, err)
			}
			if lost, err := s.close(r(3)); err != nil || lost != 0 {
				t.Fatalf("%d lost, %v", lost, err)
			}
			seqs, told := numbers(t, OpenSpool(dir, "p", "a"))
			if !slices.Equal(seqs, []uint64{1, 2, 3}) || slices.Max(told) != 0 {
				t.Errorf("numbers %v, lost before them %v", seqs, told)
			}
			left, err := filepath.Glob(filepath.Join(dir, "*"+newEnd))
			if err != nil || len(left) > 0 {
				t.Errorf("halves are left: %q, %v", left, err)
			}
		})
	}
}

// What the system can't read now is not bad: it is asked for again, and those behind
// it wait for their turn.
func TestFileThatCannotBeReadNowIsNotPutAside(t *testing.T) {
	dir := t.TempDir()
	spooled(t, dir, "00000000000a01", 100, 2)
	s := OpenSpool(dir, "p", "a")
	s.disk = &fussyDisk{op: "read", end: closedEnd, err: syscall.EMFILE, times: 1}
	if _, name, ok, err := s.Next(); ok || name != "" || !errors.Is(err, syscall.EMFILE) {
		t.Fatalf("name %q, ok %t, %v", name, ok, err)
	}
	if seqs, _ := numbers(t, s); !slices.Equal(seqs, []uint64{1, 2}) {
		t.Errorf("numbers %v", seqs)
	}
	// What can't be taken out stays the first one.
	spooled(t, dir, "00000000000a02", 100, 2)
	s = OpenSpool(dir, "p", "a")
	s.disk = &fussyDisk{op: "remove", end: closedEnd, err: syscall.EROFS, times: 1}
	_, name, _, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Done(name); !errors.Is(err, syscall.EROFS) {
		t.Fatal(err)
	}
	if _, again, _, err := s.Next(); err != nil || again != name {
		t.Errorf("%q comes after %q: out of turn, %v", again, name, err)
	}
}

// A bad file is put aside on a disk that takes no reason for it, and one that can't
// be moved now stays until it can.
func TestBadFileOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	spooled(t, dir, "00000000000a01", 100, 2)
	first := filepath.Join(dir, spoolName(spoolPrefix("p", "a"), "00000000000a01", 1)+closedEnd)
	if err := os.WriteFile(first, []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := OpenSpool(dir, "p", "a")
	for _, d := range []*fussyDisk{
		{op: "rename", end: badEnd, err: syscall.ENOSPC, times: 1},
		{op: "create", end: whyEnd, err: syscall.ENOSPC, times: 1},
	} {
		s.disk = d
		_, name, ok, err := s.Next()
		if ok || err == nil || filepath.Base(first) != name {
			t.Fatalf("%q, %t, %v", name, ok, err)
		}
		if err := s.Quarantine(name, "half"); (err != nil) != (d.op == "rename") {
			t.Fatalf("%s fails: %v", d.op, err)
		}
	}
	if seqs, _ := numbers(t, s); !slices.Equal(seqs, []uint64{2}) {
		t.Errorf("numbers %v", seqs)
	}
}

// One that can't be dropped from a full spool is neither gone nor told as lost.
func TestFullSpoolOnADiskThatRemovesNothing(t *testing.T) {
	dir, run := t.TempDir(), "00000000000a01"
	s := spooled(t, dir, run, 3, 3)
	s.disk = &fussyDisk{op: "remove", end: closedEnd, err: syscall.EROFS, times: 2}
	r := Rollup{Pod: "p", Instance: "a", Run: run, Seq: 4}
	for ; r.Seq <= 5; r.Seq++ {
		if _, err := s.close(r); !errors.Is(err, syscall.EROFS) {
			t.Fatal(err)
		}
	}
	if seqs, told := numbers(t, OpenSpool(dir, "p", "a")); !slices.Equal(seqs, []uint64{1, 2, 3, 4, 5}) || slices.Max(told) != 0 {
		t.Errorf("numbers %v, lost before them %v", seqs, told)
	}
}

// Somebody removes the file of a living run's lock: a process of its name does not
// take it for a dead one.
func TestRemovedLockIsTakenAnew(t *testing.T) {
	dir := t.TempDir()
	one := spooled(t, dir, "00000000000a01", 100, 0)
	r := Rollup{Pod: "p", Instance: "a", Run: "00000000000a01", Seq: 1}
	for range 2 {
		if _, err := one.flush(r); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(one.path(one.run + lockEnd)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := one.flush(r); err != nil {
		t.Fatal(err)
	}
	if torn, err := spooled(t, dir, "00000000000b01", 100, 0).adopt(); len(torn) != 0 || err != nil {
		t.Errorf("%d periods of a living run are closed as torn, %v", len(torn), err)
	}
}

// Two processes of one name and folder: each run keeps its own numbers, either one
// sends both, and what is missing in one shows as a gap in its numbers.
func TestGapOfANamesakeShows(t *testing.T) {
	dir := t.TempDir()
	spooled(t, dir, "00000000000a01", 100, 3)
	spooled(t, dir, "00000000000b01", 100, 3)
	if err := os.Remove(filepath.Join(dir, spoolName(spoolPrefix("p", "a"), "00000000000b01", 2)+closedEnd)); err != nil {
		t.Fatal(err)
	}
	one, two := OpenSpool(dir, "p", "a"), OpenSpool(dir, "p", "a")
	got := map[string][]uint64{}
	for i, s := 0, one; ; i++ { // they take turns
		r, name, ok, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		got[r.Run] = append(got[r.Run], r.Seq)
		if err := s.Done(name); err != nil {
			t.Fatal(err)
		}
		if s = one; i%2 == 0 {
			s = two
		}
	}
	if !slices.Equal(got["00000000000a01"], []uint64{1, 2, 3}) || !slices.Equal(got["00000000000b01"], []uint64{1, 3}) {
		t.Errorf("%v", got)
	}
}

// What a dead run left open is not put aside because the system is out of files: it
// is closed once it can be read.
func TestTornPeriodWaitsForTheSystem(t *testing.T) {
	dir := t.TempDir()
	prefix := spoolPrefix("p", "a")
	name := filepath.Join(dir, spoolName(prefix, "00000000000a02", 1)+openEnd)
	if err := os.WriteFile(name, []byte(`{"v":1,"rollup":{"pod":"p","run":"00000000000a02","seq":1,"torn":true}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	s := spooled(t, dir, "00000000000b01", 100, 0)
	s.disk = &fussyDisk{op: "read", end: openEnd, err: syscall.ENFILE, times: 1}
	if torn, err := s.adopt(); len(torn) != 0 || !passing(err) {
		t.Fatalf("%d closed, %v", len(torn), err)
	}
	if torn, err := s.adopt(); len(torn) != 1 || err != nil {
		t.Fatalf("%d closed, %v", len(torn), err)
	}
}
