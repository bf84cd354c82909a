package compare

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ReadRollups reads the rollups in event files, in files of a spool, and in all of
// those below folders, sorted by run and number. Each is taken once: a closed one
// rather than one that was still open, whole rather than torn. A line or file that
// can't be read is an error that names it. Notes say what a killed process leaves:
// half a line at the end of a file, an open period; and what in a folder is none of
// these files.
func ReadRollups(paths ...string) ([]Rollup, []string, error) {
	r := rollupReader{best: map[rollupKey]found{}}
	for _, path := range paths {
		if err := r.path(path); err != nil {
			return nil, nil, err
		}
	}
	return r.sorted()
}

// readRollupsFrom reads event lines.
func readRollupsFrom(sources ...Source) ([]Rollup, []string, error) {
	r := rollupReader{best: map[rollupKey]found{}}
	for _, s := range sources {
		if err := r.lines(s); err != nil {
			return nil, nil, err
		}
	}
	return r.sorted()
}

type rollupReader struct {
	best  map[rollupKey]found
	notes []string
}

type rollupKey struct {
	run string
	seq uint64
}

type found struct {
	Rollup
	open bool
}

func (r *rollupReader) path(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return r.file(path)
	}
	return filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return ignoreMissing(err)
		case d.IsDir():
			return nil
		}
		switch {
		case isEventFile(path), strings.HasSuffix(path, closedEnd), strings.HasSuffix(path, openEnd):
			return ignoreMissing(r.file(path)) // a live process sends and renames them meanwhile
		case strings.HasSuffix(path, lockEnd), strings.HasSuffix(path, newEnd):
			return nil
		}
		r.notes = append(r.notes, path+": neither an event file nor a waiting rollup: it was left out")
		return nil
	})
}

func isEventFile(path string) bool { return strings.HasSuffix(path, ".jsonl") }

func (r *rollupReader) file(path string) error {
	switch filepath.Ext(path) {
	case closedEnd:
		one, err := readSpooled(path)
		if err != nil {
			return err
		}
		r.take(one, false)
		return nil
	case openEnd:
		one, err := readSpooled(path)
		if errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err != nil {
			r.notes = append(r.notes, fmt.Sprintf("an open period was left out: %v", err))
			return nil
		}
		r.take(one, true)
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.lines(Source{Name: path, R: f})
}

func (r *rollupReader) lines(s Source) error {
	in := bufio.NewReaderSize(s.R, 1<<16)
	for n := 1; ; n++ {
		b, err := readLine(in)
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return fmt.Errorf("%s:%d: %w", s.Name, n, err)
		}
		if b = bytes.TrimSpace(b); len(b) > 0 {
			l, err := decodeLine(b)
			switch {
			case err != nil && last:
				r.notes = append(r.notes, fmt.Sprintf("%s:%d: the last line is cut off and was left out", s.Name, n))
			case err != nil:
				return fmt.Errorf("%s:%d: %w: take the line out, or use another copy of the file", s.Name, n, err)
			case l.Rollup != nil:
				r.take(*l.Rollup, false)
			}
		}
		if last {
			return nil
		}
	}
}

// take keeps the better one of two that have one number.
func (r *rollupReader) take(one Rollup, open bool) {
	key := rollupKey{one.Run, one.Seq}
	old, had := r.best[key]
	rank := func(f found) int {
		switch {
		case f.open:
			return 0
		case f.Torn:
			return 1
		}
		return 2
	}
	now := found{one, open}
	if !had || cmp.Or(cmp.Compare(rank(now), rank(old)), now.To.Compare(old.To)) > 0 {
		r.best[key] = now
	}
}

func (r *rollupReader) sorted() ([]Rollup, []string, error) {
	all := make([]Rollup, 0, len(r.best))
	for _, f := range r.best {
		if f.open {
			r.notes = append(r.notes, fmt.Sprintf("run %s (pod %s, instance %s) has an open period until %s: it is running, or was killed; what came later is not known",
				f.Run, f.Pod, f.Instance, f.To.Format("2006-01-02 15:04:05Z07:00")))
		}
		all = append(all, f.Rollup)
	}
	slices.SortFunc(all, func(a, b Rollup) int { return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(a.Seq, b.Seq)) })
	slices.Sort(r.notes)
	return all, slices.Compact(r.notes), nil
}
