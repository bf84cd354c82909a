package compare

import (
	"encoding/json"
	"errors"
	"fmt"
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

// flush replaces the file of the open period. It is not synced: a process that
// is killed leaves it whole, a machine that loses its power may not.
func (s *runSpool) flush(r Rollup) error {
	r.Torn = true // unless it is closed after all
	return s.replace(s.pathOf(&r, openEnd), r, false)
}

// close turns the open period's file into one that waits, and returns how many
// waiting ones it dropped that the next rollup has to tell of.
func (s *runSpool) close(r Rollup) (lost uint64, err error) {
	open := s.pathOf(&r, openEnd)
	if err := s.replace(open, r, true); err != nil {
		return 0, errors.Join(err, ignoreMissing(os.Remove(open)))
	}
	if err := os.Rename(open, s.pathOf(&r, closedEnd)); err != nil {
		return 0, err
	}
	return s.trim()
}

// replace writes a file whole or not at all.
func (s *runSpool) replace(path string, r Rollup, sync bool) error {
	b, err := json.Marshal(line{V: lineVersion, Rollup: &r})
	if err != nil {
		return err
	}
	f, err := os.Create(path + newEnd)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if sync {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path+newEnd))
	}
	return os.Rename(path+newEnd, path)
}

// trim drops the oldest that wait above the bound. The next one of the same run
// says so before its predecessor goes; where there is none, the caller does.
func (s *runSpool) trim() (lost uint64, err error) {
	names, err := s.list(closedEnd)
	if err != nil {
		return 0, err
	}
	for len(names) > s.max {
		oldest := filepath.Join(s.dir, names[0])
		gone := uint64(1)
		if r, err := readSpooled(oldest); err == nil {
			gone += r.Lost
		}
		if !s.tell(names, gone) {
			lost += gone
		}
		if err := ignoreMissing(os.Remove(oldest)); err != nil {
			return lost, err
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
	r, err := readSpooled(path)
	if err != nil {
		return false
	}
	r.Lost += gone
	return s.replace(path, r, true) == nil
}

// adopt closes what this instance's dead runs left open, and returns those
// periods that could be read.
func (s *runSpool) adopt() (torn []Rollup, err error) {
	entries, err := os.ReadDir(s.dir)
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
		for _, name := range left[run] {
			switch {
			case strings.HasSuffix(name, newEnd):
				errs = append(errs, ignoreMissing(os.Remove(filepath.Join(s.dir, name))))
			case strings.HasSuffix(name, openEnd):
				r, err := s.closeTorn(name)
				if err == nil {
					torn = append(torn, r)
				}
				errs = append(errs, ignoreMissing(err))
			}
		}
		errs = append(errs, ignoreMissing(os.Remove(s.path(run+lockEnd))), lock.Close())
	}
	return torn, errors.Join(errs...)
}

// closeTorn lets an open period wait to be sent; one that can't be read is put
// aside.
func (s *runSpool) closeTorn(name string) (Rollup, error) {
	open := filepath.Join(s.dir, name)
	closed := strings.TrimSuffix(open, openEnd) + closedEnd
	r, err := readSpooled(open)
	if err != nil {
		if ignoreMissing(err) == nil {
			return r, err
		}
		bad := strings.TrimSuffix(open, openEnd) + badEnd
		return r, fmt.Errorf("the open period of a killed process can't be read and is put aside: %w", errors.Join(err, os.Rename(open, bad)))
	}
	return r, os.Rename(open, closed)
}

// end gives the run's lock up. The process has closed its last period.
func (s *runSpool) end() error {
	return errors.Join(ignoreMissing(os.Remove(s.path(s.run+lockEnd))), s.lock.Close())
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
