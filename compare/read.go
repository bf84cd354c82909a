package compare

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"holdover"
)

// ReadFiles rebuilds a report from event files. Give it all files of a run,
// rotated ones too; the order does not matter.
func ReadFiles(paths ...string) (Report, error) {
	var sources []Source
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return Report{}, err
		}
		defer f.Close()
		sources = append(sources, Source{Name: path, R: f})
	}
	return ReadEvents(sources...)
}

// ReadEvents rebuilds a report from event lines. The figures are those of the
// newest snapshot of each run; divergences written after it are added. A line
// that can't be read is an error that names its file and line; half a line at
// the end of a file, which a killed process leaves, is a note in the report.
func ReadEvents(sources ...Source) (Report, error) {
	runs := map[string]*readRun{}
	var notes []string
	for _, s := range sources {
		note, err := readSource(s, runs)
		if err != nil {
			return Report{}, err
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	var reports []Report
	for _, id := range slices.Sorted(maps.Keys(runs)) {
		reports = append(reports, runs[id].report(id))
	}
	r, err := Merge(reports...)
	if err != nil {
		return Report{}, err
	}
	r.Notes = append(r.Notes, notes...)
	return r, nil
}

// readRun is what was read of one run.
type readRun struct {
	snapshot *Report
	final    bool
	later    map[uint64]Event // by place, not in the snapshot
}

func readSource(s Source, runs map[string]*readRun) (note string, err error) {
	in := bufio.NewReaderSize(s.R, 1<<16)
	for n := 1; ; n++ {
		b, err := readLine(in)
		torn := errors.Is(err, io.EOF)
		if err != nil && !torn {
			return "", fmt.Errorf("%s:%d: %w", s.Name, n, err)
		}
		if b = bytes.TrimSpace(b); len(b) > 0 {
			if err := readOne(b, runs); err != nil && torn {
				return fmt.Sprintf("%s:%d: the last line is cut off and was left out", s.Name, n), nil
			} else if err != nil {
				return "", fmt.Errorf("%s:%d: %w: take the line out, or use another copy of the file", s.Name, n, err)
			}
		}
		if torn {
			return "", nil
		}
	}
}

func readOne(b []byte, runs map[string]*readRun) error {
	l, err := decodeLine(b)
	if err != nil {
		return err
	}
	of := func(id string) *readRun {
		if runs[id] == nil {
			runs[id] = &readRun{later: map[uint64]Event{}}
		}
		return runs[id]
	}
	switch {
	case l.Snapshot != nil:
		if len(l.Snapshot.Runs) != 1 || len(l.Snapshot.Pods) != 1 {
			return errors.New("a snapshot without its run or pod")
		}
		if err := l.Snapshot.check(); err != nil {
			return err
		}
		of(l.Snapshot.Runs[0]).take(l.Snapshot, l.Final)
	case l.Event != nil:
		of(l.Event.Run).later[l.Event.Seq] = *l.Event
	}
	return nil
}

// take keeps the newest snapshot, and forgets the events that it includes.
func (r *readRun) take(s *Report, final bool) {
	if r.snapshot != nil && (s.Eligible < r.snapshot.Eligible || r.final) {
		return
	}
	r.snapshot, r.final = s, final
	maps.DeleteFunc(r.later, func(seq uint64, _ Event) bool { return seq <= s.Eligible })
}

func (r *readRun) report(id string) Report {
	var out Report
	if r.snapshot != nil {
		out = *r.snapshot
	} else {
		d, _ := Config{Pod: "none"}.withDefaults()
		out = Report{Runs: []string{id}, Need: d.MinCoverage, Keep: d.SamplesPerKind}
	}
	snapshot := out.Eligible
	added := 0
	for _, seq := range slices.Sorted(maps.Keys(r.later)) {
		if seq > snapshot {
			out.addEvent(r.later[seq])
			added++
		}
	}
	if !r.final {
		out.Notes = append(out.Notes, fmt.Sprintf(
			"run %s (pod %s, instance %s) has no last counts: it is running, or was killed; %d events after its newest counts are added, later matches are not known",
			id, strings.Join(out.Pods, ","), strings.Join(out.Instances, ","), added))
	}
	return out
}

// addEvent counts an event that no snapshot has counted.
func (r *Report) addEvent(e Event) {
	r.Pods = union(r.Pods, []string{e.Pod})
	if e.Instance != "" {
		r.Instances = union(r.Instances, []string{e.Instance})
	}
	r.Eligible++
	row := OperationCount{Stage: e.Stage, Op: e.Op, Eligible: 1}
	if e.Kind == KindNotComparable {
		r.addUnanswered(Unanswered{Redis: e.Redis.Outcome, MySQL: e.MySQL.Outcome, Count: 1})
	} else {
		r.Compared++
		row.Compared = 1
	}
	if e.Kind.Divergence() {
		row.Differed = 1
	}
	r.addOperation(row)
	r.Kinds = addTallies(r.Kinds, []Tally{{Kind: e.Kind, Direction: e.Direction, Count: 1, Units: e.Units}})
	if !e.At.IsZero() {
		r.From = earlier(r.From, e.At)
		if e.At.After(r.To) {
			r.To = e.At
		}
	}
	kept := 0
	for _, s := range r.Samples {
		if s.Kind == e.Kind {
			kept++
		}
	}
	if kept < r.Keep {
		r.Samples = append(slices.Clip(r.Samples), e)
	}
}

// check holds a snapshot to its own sums: a report whose parts disagree is
// worth nothing.
func (r *Report) check() error {
	var kinds, operations, compared uint64
	for _, t := range r.Kinds {
		if t.Kind != KindForeignWrite {
			kinds += t.Count
		}
	}
	for _, o := range r.Operations {
		operations += o.Eligible
		compared += o.Compared
		if o.Stage == holdover.StageUnknown {
			return errors.New("a count without a stage")
		}
	}
	if kinds != r.Eligible || operations != r.Eligible || compared != r.Compared || compared > operations {
		return fmt.Errorf("the counts don't add up: %d eligible and %d compared, but %d by kind, %d and %d by operation",
			r.Eligible, r.Compared, kinds, operations, compared)
	}
	return nil
}
