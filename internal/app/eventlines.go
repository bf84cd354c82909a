package app

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdover/compare"
)

// maxEventLine bounds a line of an event file; the largest, a rollup, is far smaller.
const maxEventLine = 64 << 20

// eventIndex says where in event files and spooled records the rollups are that count,
// so that files of any size are read twice, a rollup at a time, and never kept.
type eventIndex struct {
	files []string
	best  map[rollupID]rollupPlace
	notes []string
}

type rollupID struct {
	run string
	seq uint64
}

// rollupPlace is one rollup in a file, and what makes it better than another of its
// number: closed rather than open, whole rather than torn, and the one that reaches further.
type rollupPlace struct {
	file, line int // line 0: the file is one spooled record
	rank       int
	to         int64
	note       string // where it is the one that counts
}

// headLine is what of an event line the index needs.
type headLine struct {
	V     int `json:"v"`
	Event *struct {
		Run string `json:"run"`
	} `json:"event"`
	Rollup *compare.Rollup `json:"rollup"`
}

// indexEvents reads files once.
func indexEvents(files []string) (*eventIndex, error) {
	x := &eventIndex{files: files, best: map[rollupID]rollupPlace{}}
	for i, path := range files {
		if spooledRecord(path) {
			all, notes, err := compare.ReadRollups(path)
			if err != nil {
				return nil, err
			}
			if len(all) == 0 {
				x.notes = append(x.notes, notes...)
			}
			for _, r := range all {
				rank := 2
				if filepath.Ext(path) == ".open" {
					rank = 0
				} else if r.Torn {
					rank = 1
				}
				x.offer(r, rollupPlace{file: i, rank: rank, note: strings.Join(notes, "; ")})
			}
			continue
		}
		err := eachLine(path, func(n int, b []byte, last bool) error {
			var l headLine
			err := json.Unmarshal(b, &l)
			switch {
			case err != nil && last:
				x.notes = append(x.notes, fmt.Sprintf("%s:%d: the last line is cut off and was left out", path, n))
				return nil
			case err != nil:
				err = fmt.Errorf("not an event line: %w", err)
			case l.V != 1:
				err = fmt.Errorf("an event line of version %d, this program reads version 1", l.V)
			case l.Rollup != nil && (l.Rollup.Run == "" || l.Rollup.Seq == 0 || l.Rollup.Pod == ""):
				err = errors.New("a rollup without its pod, run or number")
			case l.Rollup != nil:
				rank := 2
				if l.Rollup.Torn {
					rank = 1
				}
				x.offer(*l.Rollup, rollupPlace{file: i, line: n, rank: rank})
			case l.Event == nil || l.Event.Run == "":
				err = errors.New("neither an event nor a rollup")
			}
			if err != nil {
				return fmt.Errorf("%s:%d: %w: take the line out, or use another copy of the file", path, n, err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, p := range x.best {
		if p.note != "" {
			x.notes = append(x.notes, p.note)
		}
	}
	slices.Sort(x.notes)
	x.notes = slices.Compact(x.notes)
	return x, nil
}

// offer keeps the better one of two that have one number.
func (x *eventIndex) offer(r compare.Rollup, p rollupPlace) {
	p.to = r.To.UnixNano()
	id := rollupID{r.Run, r.Seq}
	if old, had := x.best[id]; !had || cmp.Or(cmp.Compare(p.rank, old.rank), cmp.Compare(p.to, old.to)) > 0 {
		x.best[id] = p
	}
}

// each calls yield with the rollups that count, in the order of the files.
func (x *eventIndex) each(yield func(compare.Rollup) error) error {
	left := len(x.best)
	take := func(r compare.Rollup, file, line int) error {
		if p, ok := x.best[rollupID{r.Run, r.Seq}]; !ok || p.file != file || p.line != line || p.to != r.To.UnixNano() {
			return nil
		}
		left--
		return yield(r)
	}
	wanted := make([]map[int]bool, len(x.files))
	for _, p := range x.best {
		if wanted[p.file] == nil {
			wanted[p.file] = map[int]bool{}
		}
		wanted[p.file][p.line] = true
	}
	for i, path := range x.files {
		if wanted[i] == nil {
			continue
		}
		if spooledRecord(path) {
			all, _, err := compare.ReadRollups(path)
			if err != nil {
				return err
			}
			for _, r := range all {
				if err := take(r, i, 0); err != nil {
					return err
				}
			}
			continue
		}
		err := eachLine(path, func(n int, b []byte, last bool) error {
			if !wanted[i][n] {
				return nil
			}
			var l headLine
			if err := json.Unmarshal(b, &l); err != nil || l.Rollup == nil {
				return nil // another file by now
			}
			if err := take(*l.Rollup, i, n); err != nil {
				return fmt.Errorf("%s:%d: %w", path, n, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if left > 0 {
		return fmt.Errorf("event files: %d rollups were moved while they were read, by a process that still writes: make the report again, or of a copy", left)
	}
	return nil
}

func spooledRecord(path string) bool {
	ext := filepath.Ext(path)
	return ext == ".json" || ext == ".open"
}

// eachLine calls yield for each line of a file that is not empty; last: it has no end.
// The bytes are the next line's afterwards.
func eachLine(path string, yield func(n int, b []byte, last bool) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<16)
	var b []byte
	for n := 1; ; n++ {
		b = b[:0]
		for {
			part, partErr := in.ReadSlice('\n')
			b, err = append(b, part...), partErr
			if len(b) > maxEventLine {
				return fmt.Errorf("%s:%d: the line is longer than %d bytes", path, n, maxEventLine)
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				break
			}
		}
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if line := bytes.TrimSpace(b); len(line) > 0 {
			if err := yield(n, line, last); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}
