package mysqlpool

import (
	"fmt"
	"testing"
	"time"
)

// TestComparisonsAhead: what ends after now is listed, and kept like the rest.
func TestComparisonsAhead(t *testing.T) {
	f := newFixture(t)
	if now, all, err := f.ComparisonsAhead(t.Context()); err != nil || len(all) != 0 || now.IsZero() {
		t.Fatalf("empty: %s, %v, %v", now, all, err)
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	for run, ends := range map[string]time.Duration{"past": -time.Minute, "open": 10 * time.Minute, "ahead": 2 * time.Hour} {
		c := comparison(run, 1)
		c.To = now.Add(ends)
		c.From = c.To.Add(-30 * time.Minute)
		f.append(t, c, false)
	}
	read, all, err := f.ComparisonsAhead(t.Context())
	if err != nil || len(all) != 2 || all[0].Run != "ahead" || all[1].Run != "open" || read.Before(now.Add(-time.Minute)) {
		t.Fatalf("%s, %+v, %v", read, all, err)
	}
	if c := all[0]; c.Pod != "pod-test" || c.Seq != 1 || c.Instance != comparison("", 1).Instance || !c.To.Equal(now.Add(2*time.Hour)) || !c.From.Equal(now.Add(90*time.Minute)) {
		t.Errorf("%+v", c)
	}
	if got := f.comparisons(t, now.Add(time.Hour), now.Add(3*time.Hour)); len(got) != 1 || got[0].Run != "ahead" || len(got[0].Cells) != 2 {
		t.Errorf("it is not kept: %+v", got)
	}
}

// TestComparisonsAheadPlan: it reads by the key of the beginning, in its order.
func TestComparisonsAheadPlan(t *testing.T) {
	f := newFixture(t)
	for _, size := range []int64{20, 1000} {
		f.exec(t, "DELETE FROM holdover_rollups")
		f.exec(t, "INSERT INTO holdover_rollups SELECT i, CONCAT('run-', i % 5), i, 0, 'p', 'i', ? + INTERVAL i MINUTE, ?, '' FROM "+numbers+" n", noon, noon, size)
		f.exec(t, "ANALYZE TABLE holdover_rollups")
		ahead := new(statement).add(stmtRollupsAhead, noon, noon, maxRollupsAhead)
		f.plans(t, fmt.Sprintf("%d rows", size), map[string]*statement{"ahead": ahead}, "holdover_rollups_from")
	}
}
