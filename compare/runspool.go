package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// runSpool is the side of a spool that one run writes to. It belongs to the
// writer's goroutine.
type runSpool struct {
	*Spool
	run  string
	max  int
	lock *os.File // tells other processes that this run lives

	pending []Rollup // closed periods that the disk has not taken, in their order
}

func openRunSpool(dir, pod, instance, run string, most int) (*runSpool, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("pod %s: the spool of its comparison can't be made: %w", pod, err)
	}
	s := &runSpool{Spool: OpenSpool(dir, pod, instance), run: run, max: most}
	var err error
	if s.lock, err = lockFile(s.path(run + lockEnd)); err != nil {
		return nil, fmt.Errorf("pod %s: the spool of its comparison can't be used: %w", pod, err)
	}
	return s, nil
}

func (s *runSpool) path(rest string) string { return filepath.Join(s.dir, s.prefix+rest) }

func (s *runSpool) pathOf(r *Rollup, end string) string {
	return filepath.Join(s.dir, spoolName(s.prefix, r.Run, r.Seq)+end)
}

// maxPending is how many closed periods wait in memory for a disk that takes none.
const maxPending = 30

// flush replaces the file of the open period. It is not synced: a process that
// is killed leaves it whole, a machine that loses its power may not.
func (s *runSpool) flush(r Rollup) (lost uint64, err error) {
	if err := s.relock(); err != nil {
		return 0, err
	}
	lost, err = s.store()
	r.Torn = true // unless it is closed after all
	return lost, errors.Join(err, s.replace(s.pathOf(&r, openEnd), r, false))
}

// close turns the open period's file into one that waits, and those before it that
// the disk did not take. One that it does not take now stays in memory for the next
// flush. lost is what the next rollup has to tell of.
func (s *runSpool) close(r Rollup) (lost uint64, err error) {
	s.pending = append(s.pending, r)
	if lost, err = s.store(); len(s.pending) > maxPending {
		gone := s.pending[0]
		s.pending[1].Lost += gone.Lost + 1
		s.pending = slices.Delete(s.pending, 0, 1)
		err = fmt.Errorf("rollup %d is lost: the disk has taken none for %d periods: %w", gone.Seq, maxPending, err)
		_ = s.disk.Remove(s.pathOf(&gone, openEnd)) // what a flush left of it is told as lost
	}
	return lost, err
}

// store writes the closed periods that wait for it, in their order, up to the first
// that the disk does not take. Each step can be repeated.
func (s *runSpool) store() (lost uint64, err error) {
	for len(s.pending) > 0 {
		r := s.pending[0]
		open := s.pathOf(&r, openEnd)
		if err := s.replace(open, r, true); err != nil {
			return lost, err
		}
		if err := s.disk.Rename(open, s.pathOf(&r, closedEnd)); err != nil {
			return lost, err
		}
		s.pending = slices.Delete(s.pending, 0, 1)
		gone, err := s.trim()
		if lost += gone; err != nil {
			return lost, err
		}
	}
	return lost, nil
}

// replace writes a file whole or not at all.
func (s *runSpool) replace(path string, r Rollup, sync bool) error {
	b, err := json.Marshal(line{V: lineVersion, Rollup: &r})
	if err != nil {
		return err
	}
	if err := s.write(path+newEnd, append(b, '\n'), sync); err != nil {
		return errors.Join(err, ignoreMissing(s.disk.Remove(path+newEnd)))
	}
	return s.disk.Rename(path+newEnd, path)
}

// trim drops the oldest that wait above the bound. The next one of the same run
// says so; where there is none, the caller does.
func (s *runSpool) trim() (lost uint64, err error) {
	names, err := s.list(closedEnd)
	if err != nil {
		return 0, err
	}
	for len(names) > s.max {
		oldest := filepath.Join(s.dir, names[0])
		gone := uint64(1)
		r, err := readFrom(s.disk, oldest)
		switch {
		case err == nil:
			gone += r.Lost
		case passing(err):
			return lost, err
		}
		switch err := s.disk.Remove(oldest); {
		case errors.Is(err, fs.ErrNotExist): // it was sent meanwhile
		case err != nil:
			return lost, err
		case !s.tell(names, gone):
			lost += gone
		}
		names = names[1:]
	}
	return lost, nil
}

// tell adds to what was lost before the second of these files, if it is of the
// run of the first.
func (s *runSpool) tell(names []string, gone uint64) bool {
	if len(names) < 2 {
		return false
	}
	run, _, _ := parseSpoolName(s.prefix, names[0], closedEnd)
	next, _, _ := parseSpoolName(s.prefix, names[1], closedEnd)
	if run != next {
		return false
	}
	path := filepath.Join(s.dir, names[1])
	r, err := readFrom(s.disk, path)
	if err != nil {
		return true // the gap in the numbers of its run tells
	}
	r.Lost += gone
	_ = s.replace(path, r, true) // else the gap does
	return true
}

// adopt closes what this instance's dead runs left open, and returns those
// periods that could be read.
func (s *runSpool) adopt() (torn []Rollup, err error) {
	entries, err := s.disk.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	left := map[string][]string{} // by run
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), s.prefix)
		run, _, _ := strings.Cut(strings.TrimSuffix(rest, lockEnd), "-")
		for _, end := range []string{openEnd, lockEnd, newEnd} {
			if ok && run != s.run && strings.HasSuffix(rest, end) {
				left[run] = append(left[run], e.Name())
			}
		}
	}
	var errs []error
	for _, run := range slices.Sorted(maps.Keys(left)) {
		lock, err := lockFile(s.path(run + lockEnd))
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue // a process of the same name lives
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		whole := true
		for _, name := range left[run] {
			switch {
			case strings.HasSuffix(name, newEnd):
				errs = append(errs, ignoreMissing(s.disk.Remove(filepath.Join(s.dir, name))))
			case strings.HasSuffix(name, openEnd):
				r, err := s.closeTorn(name)
				if err == nil {
					torn = append(torn, r)
				}
				errs = append(errs, ignoreMissing(err))
				whole = whole && !passing(err)
			}
		}
		if whole { // else the next pass goes on with it
			errs = append(errs, ignoreMissing(s.disk.Remove(s.path(run+lockEnd))))
		}
		errs = append(errs, lock.Close())
	}
	return torn, errors.Join(errs...)
}

// closeTorn lets an open period wait to be sent; one that can't be read is put
// aside.
func (s *runSpool) closeTorn(name string) (Rollup, error) {
	open := filepath.Join(s.dir, name)
	closed := strings.TrimSuffix(open, openEnd) + closedEnd
	r, err := readFrom(s.disk, open)
	if err != nil {
		if ignoreMissing(err) == nil || passing(err) {
			return r, err
		}
		bad := strings.TrimSuffix(open, openEnd) + badEnd
		return r, fmt.Errorf("the open period of a killed process can't be read and is put aside: %w", errors.Join(err, s.disk.Rename(open, bad)))
	}
	return r, s.disk.Rename(open, closed)
}

// relock takes the lock anew when somebody has removed its file: a process of the
// same name would take this run for a dead one.
func (s *runSpool) relock() error {
	mine, err := s.lock.Stat()
	if err != nil {
		return err
	}
	path := s.path(s.run + lockEnd)
	if there, err := s.disk.Stat(path); err == nil && os.SameFile(mine, there) {
		return nil
	}
	lock, err := lockFile(path)
	if err != nil {
		return err
	}
	old := s.lock
	s.lock = lock
	return old.Close()
}

// end gives the run's lock up. The process has closed its last period.
func (s *runSpool) end() error {
	return errors.Join(ignoreMissing(s.disk.Remove(s.path(s.run+lockEnd))), s.lock.Close())
}

// lockFile opens a file and locks it until it is closed, or its process ends.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}
