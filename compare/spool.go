package compare

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Spool is the rollups of one pod and instance that wait on disk to be sent, the
// oldest first. A [Comparator] with the same folder, pod and instance writes them.
// It is safe for concurrent use, also by several processes: who sends one twice
// must be told so by whoever keeps it.
type Spool struct {
	dir, prefix string
	disk        disk

	mu    sync.Mutex
	names []string // of the last listing, the oldest first
}

// OpenSpool looks into a folder, which need not exist yet.
func OpenSpool(dir, pod, instance string) *Spool {
	return &Spool{dir: dir, prefix: spoolPrefix(pod, instance), disk: osDisk{}}
}

// Next returns the oldest rollup and its name, for [Spool.Done]; not ok when none
// waits. With an error and a name, the file can't be read, now or later:
// [Spool.Quarantine] takes it out of the way. With an error alone, ask again later.
func (s *Spool) Next() (r Rollup, name string, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for fresh := false; ; {
		if len(s.names) == 0 {
			if fresh {
				return Rollup{}, "", false, nil
			}
			if s.names, err = s.list(closedEnd); err != nil {
				return Rollup{}, "", false, err
			}
			fresh = true
			continue
		}
		name = s.names[0]
		r, err = readFrom(s.disk, filepath.Join(s.dir, name))
		if errors.Is(err, fs.ErrNotExist) { // dropped, or sent by another process
			s.names = s.names[1:]
			continue
		}
		if passing(err) {
			return Rollup{}, "", false, fmt.Errorf("spool: %w", err)
		}
		return r, name, err == nil, err
	}
}

// Done takes a rollup out that has been kept elsewhere.
func (s *Spool) Done(name string) error { return s.leave(name, s.disk.Remove) }

// Quarantine puts a file aside that can't be read or that is refused for good, with
// the reason in a file beside it. The newest 100 are kept.
func (s *Spool) Quarantine(name, why string) error {
	return s.leave(name, func(path string) error {
		if err := s.disk.Rename(path, strings.TrimSuffix(path, closedEnd)+badEnd); err != nil {
			return err
		}
		// It is out of the way. Neither a reason that a full disk does not take nor an
		// older one that stays may hold up those behind it: the caller has logged why.
		_ = s.write(strings.TrimSuffix(path, closedEnd)+whyEnd, []byte(why+"\n"), false)
		for bad, _ := s.list(badEnd); len(bad) > maxQuarantined; bad = bad[1:] {
			old := filepath.Join(s.dir, bad[0])
			_, _ = s.disk.Remove(old), s.disk.Remove(strings.TrimSuffix(old, badEnd)+whyEnd)
		}
		return nil
	})
}

const maxQuarantined = 100

func (s *Spool) leave(name string, how func(path string) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if filepath.Base(name) != name || !strings.HasPrefix(name, s.prefix) {
		return fmt.Errorf("spool %s: %q is none of this instance's rollups", s.dir, name)
	}
	if err := ignoreMissing(how(filepath.Join(s.dir, name))); err != nil {
		return fmt.Errorf("spool: %w", err) // it stays the first one: those behind it would come out of turn
	}
	s.names = slices.DeleteFunc(s.names, func(n string) bool { return n == name })
	return nil
}

// write makes a file. One that could not be written whole may be there.
func (s *Spool) write(path string, b []byte, sync bool) error {
	f, err := s.disk.Create(path)
	if err != nil {
		return err
	}
	n, err := f.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if sync && err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Backlog returns how many rollups wait, and since when the oldest does.
func (s *Spool) Backlog() (files int, oldest time.Time) {
	names, err := s.list(closedEnd)
	if err != nil || len(names) == 0 {
		return 0, time.Time{}
	}
	if info, err := s.disk.Stat(filepath.Join(s.dir, names[0])); err == nil {
		oldest = info.ModTime()
	}
	return len(names), oldest
}

// list returns the names of this instance's files with an end, oldest first.
func (s *Spool) list(end string) ([]string, error) {
	entries, err := s.disk.ReadDir(s.dir)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	var names []string
	for _, e := range entries {
		if _, _, ok := parseSpoolName(s.prefix, e.Name(), end); ok && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// readSpooled reads one rollup's file.
func readSpooled(path string) (Rollup, error) { return readFrom(osDisk{}, path) }

func readFrom(disk disk, path string) (Rollup, error) {
	info, err := disk.Stat(path)
	if err != nil {
		return Rollup{}, err
	}
	if info.Size() > maxLine {
		return Rollup{}, fmt.Errorf("%s: it is longer than %d bytes", path, maxLine)
	}
	b, err := disk.ReadFile(path)
	if err != nil {
		return Rollup{}, err
	}
	l, err := decodeLine(b)
	switch {
	case err != nil:
		return Rollup{}, fmt.Errorf("%s: %w", path, err)
	case l.Rollup == nil:
		return Rollup{}, fmt.Errorf("%s: not a rollup", path)
	}
	return *l.Rollup, nil
}
