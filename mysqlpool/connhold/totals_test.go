package connhold

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestTotalsLongestFirst(t *testing.T) {
	var totals Totals
	if got := totals.Snapshot(); len(got) != 0 {
		t.Errorf("without a hold there is %v", got)
	}
	totals.Held("claim", 30*time.Millisecond)
	totals.Held("", time.Second)
	for range 99 {
		totals.Held("reserve", time.Millisecond)
	}
	totals.Held("reserve", 100*time.Millisecond)
	totals.Held("odd clock", -time.Second)
	var got []string
	for _, s := range totals.Snapshot() {
		got = append(got, fmt.Sprint(s.Tag, " ", s.Count, " ", s.Held, " ", s.Mean(), " ", s.Quantile(0.5), " ", s.Quantile(1)))
	}
	want := []string{
		"untagged 1 1s 1s 1.048576s 1.048576s",
		"reserve 100 199ms 1.99ms 1.024ms 131.072ms",
		"claim 1 30ms 30ms 32.768ms 32.768ms",
		"odd clock 1 0s 0s 1µs 1µs",
	}
	if !slices.Equal(got, want) {
		t.Errorf("totals\n%q, want\n%q", got, want)
	}
}

func TestQuantileBoundsTheTruth(t *testing.T) {
	for _, d := range []time.Duration{1, time.Microsecond, time.Microsecond + 1, 2 * time.Microsecond, 3 * time.Microsecond,
		999 * time.Microsecond, 1024 * time.Microsecond, 1025 * time.Microsecond, time.Second, 16 * time.Second} {
		var totals Totals
		totals.Held("t", d)
		if got := totals.Snapshot()[0].Quantile(0.99); got < d || got > max(2*d, time.Microsecond) {
			t.Errorf("of one hold of %v: %v", d, got)
		}
	}
	var totals Totals
	totals.Held("t", time.Hour)
	if got := totals.Snapshot()[0].Quantile(0.5); got < 16*time.Second {
		t.Errorf("of one hold of an hour: %v", got)
	}
	if got := (Total{}).Quantile(0.5) + (Total{}).Mean(); got != 0 {
		t.Errorf("of none: %v", got)
	}
}

func TestTagsAreBounded(t *testing.T) {
	var totals Totals
	var all sync.WaitGroup
	const workers, each = 8, 3 * MaxTags
	for range workers {
		all.Go(func() {
			for i := range each {
				totals.Held(fmt.Sprint("tag ", i), time.Millisecond)
			}
		})
	}
	all.Wait()
	snapshot := totals.Snapshot()
	if len(snapshot) != MaxTags+1 {
		t.Errorf("%d tags, want %d and %q", len(snapshot), MaxTags, Other)
	}
	var count, other int64
	for _, s := range snapshot {
		count += s.Count
		if s.Tag == Other {
			other = s.Count
		}
	}
	if count != workers*each || other != workers*(each-MaxTags) {
		t.Errorf("%d holds, %d of them under %q; want %d and %d", count, other, Other, workers*each, workers*(each-MaxTags))
	}
}
