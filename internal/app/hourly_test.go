package app

import (
	"fmt"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

// minute is a rollup with matches and unexplained differences, in cells as they
// come out of a comparator.
func minute(t *testing.T, run string, seq uint64, from time.Time) compare.Rollup {
	t.Helper()
	c, err := compare.New(compare.Config{Pod: "pod-a", Instance: "one"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		o := matched()
		o.Redis.Latency = time.Duration(seq*100+uint64(i)) * time.Microsecond
		if i%7 == 0 {
			o.MySQL = holdover.Answer{Outcome: holdover.OutcomeRefused, Remaining: []int64{0}, Latency: time.Millisecond}
		}
		c.Observe(o)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r := c.Total()
	r.Run, r.Seq, r.Started, r.From, r.To, r.Bypassed, r.Torn = run, seq, from, from, from.Add(time.Minute), seq, seq == 40
	for i := range r.Samples {
		r.Samples[i].Run = run
	}
	return r
}

// TestHourly: a report of hours is the report of their minutes, and holds a
// fraction of them.
func TestHourly(t *testing.T) {
	var minutes []compare.Rollup
	var h hourly
	start := time.Date(2026, 3, 1, 10, 30, 0, 0, time.UTC)
	for seq := uint64(1); seq <= 40; seq++ {
		for run := range 2 {
			if run == 1 && seq > 20 && seq < 25 {
				continue // a hole
			}
			r := minute(t, fmt.Sprint("run-", run), seq, start.Add(time.Duration(seq-1)*time.Minute))
			minutes = append(minutes, r)
			if err := h.add(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	hours, err := h.rollups()
	if err != nil || len(hours) != len(minutes) {
		t.Fatalf("%d of %d: %v", len(hours), len(minutes), err)
	}
	carrying := 0
	for _, r := range hours {
		if len(r.Cells) > 0 {
			carrying++
		}
	}
	if carrying != 4 { // two hours of two runs
		t.Errorf("%d rollups carry counts", carrying)
	}
	pulse := new(report.Pulse) // of the minutes, for both
	for _, r := range minutes {
		pulse.Add(r)
	}
	build := func(rollups []compare.Rollup) string {
		r, err := report.Build(report.Input{Pods: []string{"pod-a"}, Since: start, Until: start.Add(time.Hour), Rollups: rollups, Pulse: pulse})
		if err != nil {
			t.Fatal(err)
		}
		if r.Coverage.Eligible != uint64(20*len(minutes)) || r.Divergences.Unexplained == 0 {
			t.Errorf("%d eligible, %d unexplained", r.Coverage.Eligible, r.Divergences.Unexplained)
		}
		r.Digest = ""
		for i := range r.Divergences.Kinds {
			r.Divergences.Kinds[i].Samples = nil // drawn anew
		}
		return asJSON(t, r)
	}
	if got, want := build(hours), build(minutes); got != want {
		t.Errorf("hours:\n%s\nminutes:\n%s", got, want)
	}
}
