package compare

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"holdover"
)

func same(t *testing.T, got, want Report) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the reports differ (- got, + want):\n%s", cmp.Diff(got, want))
	}
}

// sums fails when a report's parts don't add up to its totals.
func sums(t *testing.T, r Report) {
	t.Helper()
	if err := r.check(); err != nil {
		t.Error(err)
	}
	var unanswered uint64
	for _, u := range r.NotComparable {
		unanswered += u.Count
	}
	if n, _ := r.Count(KindNotComparable); n != unanswered || r.Eligible-r.Compared != n {
		t.Errorf("%d not comparable, %d by outcome, %d eligible less compared", n, unanswered, r.Eligible-r.Compared)
	}
	var differed, divergent, timed uint64
	for _, o := range r.Operations {
		differed += o.Differed
	}
	for _, k := range r.Kinds {
		if k.Kind.Divergence() && k.Kind != KindForeignWrite {
			divergent += k.Count
		}
	}
	for _, l := range r.Latency {
		timed += l.Pairs
	}
	if differed != divergent || timed+r.Untimed != r.Compared {
		t.Errorf("%d differed by operation, %d by kind; %d pairs and %d untimed of %d compared", differed, divergent, timed, r.Untimed, r.Compared)
	}
}

func TestNothingComparedIsNoVerdict(t *testing.T) {
	c := start(t, Config{})
	if r := c.Report(); r.Verdict != NoVerdict || r.Reasons[0] != "nothing was compared" {
		t.Errorf("nothing observed: %s %q", r.Verdict, r.Reasons)
	}
	c.Observe(seen(holdover.StageRedis, holdover.OpReserve, granted, granted)) // not dual
	o := seen(holdover.StageShadow, holdover.OpReserve, granted, granted)
	o.Pod = "q"
	c.Observe(o)
	if r := c.Report(); r.Verdict != NoVerdict || r.Eligible != 0 || r.Ignored != 2 {
		t.Errorf("nothing eligible: %s, %d eligible, %d ignored", r.Verdict, r.Eligible, r.Ignored)
	}
	for range 100 {
		c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, holdover.OutcomeError))
	}
	if r := c.Report(); r.Verdict != NoVerdict || r.Coverage != 0 || r.Eligible != 100 {
		t.Errorf("only failures: %s, coverage %v of %d", r.Verdict, r.Coverage, r.Eligible)
	}
	for range 100 {
		c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
	}
	if r := c.Report(); r.Verdict != NoVerdict || r.Coverage != 0.5 {
		t.Errorf("half failures: %s, coverage %v", r.Verdict, r.Coverage)
	}
	for range 1000 {
		c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
	}
	if r := c.Report(); r.Verdict != VerdictOK || len(r.Reasons) != 0 {
		t.Errorf("mostly matches: %s %q", r.Verdict, r.Reasons)
	}
	c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, refused))
	if r := c.Report(); r.Verdict != VerdictNotOK {
		t.Errorf("one unexplained: %s", r.Verdict)
	}
}

func TestUncleanVerificationIsNeverOK(t *testing.T) {
	c := start(t, Config{})
	c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
	for _, tc := range []struct {
		v    Verification
		want Verdict
	}{
		{Verification{Pod: "p", Items: 3, Clean: true}, VerdictOK},
		{Verification{Pod: "p", Items: 3, Count: 1}, VerdictNotOK},
		{Verification{Pod: "p", Items: 3, UnsettledCount: 1}, NoVerdict},
		{Verification{Pod: "p"}, NoVerdict},
		{Verification{Pod: "p", Items: 3, Clean: true}, VerdictOK},
	} {
		c.RecordVerification(tc.v)
		if r := c.Report(); r.Verdict != tc.want {
			t.Errorf("%+v: %s %q, want %s", tc.v, r.Verdict, r.Reasons, tc.want)
		}
	}
}

func TestReportFromEventsEqualsTheLiveOne(t *testing.T) {
	sink := &buffer{}
	c := start(t, Config{Events: sink, Instance: "a"})
	plant(c)
	plant(c)
	c.RecordVerification(Verification{
		Pod: "p", Started: time.Now(), Items: 4, Count: 1, Differences: []Difference{{Kind: DiffCounter, Shop: 1, Item: 2, Units: -3, Text: "off"}},
		ForeignWrites: []Tally{foreignWrite(Difference{Units: -3})},
	})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	live := c.Report()
	if live.EventsDropped != 0 || live.EventsFailed != 0 {
		t.Fatalf("%d dropped, %d failed", live.EventsDropped, live.EventsFailed)
	}
	back, err := ReadEvents(Source{"events", strings.NewReader(sink.String())})
	if err != nil {
		t.Fatal(err)
	}
	same(t, back, live)

	// And through the report's own JSON.
	b, err := json.Marshal(live)
	if err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(b, &again); err != nil {
		t.Fatal(err)
	}
	same(t, again, live)

	// The details agree with the summary: each divergence has one event.
	events := map[Kind]uint64{}
	for l := range strings.Lines(sink.String()) {
		var read line
		if err := json.Unmarshal([]byte(l), &read); err != nil {
			t.Fatal(err)
		}
		if read.Event != nil {
			events[read.Event.Kind]++
		}
	}
	for _, k := range Kinds() {
		if n, _ := live.Count(k); k.Divergence() && k != KindForeignWrite && events[k] != n {
			t.Errorf("%d events of %s, %d counted", events[k], k, n)
		}
	}
}

func TestKilledProcessLeavesAReportWithANote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &buffer{}
		c := start(t, Config{Events: sink, SnapshotEvery: time.Minute})
		for range 10 {
			c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
		}
		c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, refused))
		time.Sleep(time.Minute) // the bubble's clock: one snapshot
		synctest.Wait()
		c.Observe(seen(holdover.StageJoint, holdover.OpClaim, granted, refused))
		time.Sleep(2 * traceAfter) // its trace is whole, and it is written
		synctest.Wait()
		live := c.Report()
		text := sink.String() + `{"v":1,"event":{"seq":`

		back, err := ReadEvents(Source{"events", strings.NewReader(text)})
		if err != nil {
			t.Fatal(err)
		}
		if len(back.Notes) != 2 || !strings.Contains(back.Notes[0], "no last counts") || !strings.Contains(back.Notes[1], "cut off") {
			t.Errorf("notes %q", back.Notes)
		}
		if !reflect.DeepEqual(back.Kinds, live.Kinds) || back.Eligible != 12 || back.Verdict != VerdictNotOK {
			t.Errorf("kinds %v, %d eligible, %s", back.Kinds, back.Eligible, back.Verdict)
		}
		if !reflect.DeepEqual(back.Operations, live.Operations) || !reflect.DeepEqual(back.Stages, live.Stages) {
			t.Errorf("operations %v\nlive %v", back.Operations, live.Operations)
		}
	})
}

func TestMerge(t *testing.T) {
	a, b := start(t, Config{Instance: "a"}), start(t, Config{Pod: "q", Instance: "b", MinCoverage: 0.99})
	both := start(t, Config{SamplesPerKind: 10})
	for i := range 200 {
		o := seen(holdover.StageShadow, holdover.OpReserve, granted, granted)
		o.MySQL.Latency = time.Duration(i+1) * time.Millisecond
		both.Observe(o)
		if i%2 == 0 {
			a.Observe(o)
		} else {
			o.Pod = "q"
			b.Observe(o)
		}
	}
	for range 30 {
		o := seen(holdover.StageJoint, holdover.OpReserve, granted, refused)
		a.Observe(o)
		both.Observe(o)
	}
	v := Verification{Pod: "p", Items: 1, Started: time.Unix(100, 0), Count: 1, ForeignWrites: []Tally{foreignWrite(Difference{Units: 1})}}
	a.RecordVerification(v)
	both.RecordVerification(v)
	m, err := Merge(a.Report(), b.Report())
	if err != nil {
		t.Fatal(err)
	}
	sums(t, m)
	want := both.Report()
	if !reflect.DeepEqual(m.Counts, want.Counts) {
		t.Errorf("counts differ:\n%s", cmp.Diff(m.Counts, want.Counts))
	}
	if !reflect.DeepEqual(m.Pods, []string{"p", "q"}) || !reflect.DeepEqual(m.Instances, []string{"a", "b"}) || len(m.Runs) != 2 || m.Need != 0.99 {
		t.Errorf("pods %q, instances %q, runs %q, need %v", m.Pods, m.Instances, m.Runs, m.Need)
	}
	got, all := m.Latency[0], want.Latency[0]
	got.Redis.Sketch, got.MySQL.Sketch, got.Delta.Sketch, all.Redis.Sketch, all.MySQL.Sketch, all.Delta.Sketch = nil, nil, nil, nil, nil, nil
	if !reflect.DeepEqual(got, all) {
		t.Errorf("times differ:\n%s", cmp.Diff(got, all))
	}
	perKind := map[Kind]int{}
	for _, e := range m.Samples {
		perKind[e.Kind]++
	}
	if perKind[KindMatch] != 2 || perKind[KindUnexplained] != 10 {
		t.Errorf("samples %v, want 2 matches and 10 unexplained", perKind)
	}

	one, err := Merge(a.Report())
	if err != nil {
		t.Fatal(err)
	}
	same(t, one, a.Report())

	if _, err := Merge(a.Report(), a.Report()); err == nil || !strings.Contains(err.Error(), "two of the reports") {
		t.Errorf("one run twice: %v", err)
	}

	// A foreign write that two instances found is one foreign write.
	c := start(t, Config{Instance: "c"})
	v.Started = time.Unix(200, 0)
	c.RecordVerification(v)
	m, err = Merge(a.Report(), c.Report())
	if n, _ := m.Count(KindForeignWrite); err != nil || n != 1 || m.Verified.Runs != 2 {
		t.Errorf("%d foreign writes, %d verifications, %v", n, m.Verified.Runs, err)
	}
}

func TestSketchesThatDoNotMerge(t *testing.T) {
	a, b := start(t, Config{}), start(t, Config{SketchAccuracy: 0.02})
	a.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
	b.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
	if _, err := Merge(a.Report(), b.Report()); err == nil || !strings.Contains(err.Error(), "accuracy 0.01 and 0.02") {
		t.Errorf("other parameters: %v", err)
	}
	c := start(t, Config{})
	c.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, granted))
	for want, spoil := range map[string]func(*Latency){
		"NaN":             func(l *Latency) { l.Delta.Min = math.NaN() },
		"the report says": func(l *Latency) { l.Pairs = 5 },
		"can't be read":   func(l *Latency) { l.Delta.Sketch.Positive[0][0] = 1 << 60 },
		"of accuracy 0":   func(l *Latency) { l.Delta.Sketch.Accuracy = 0 },
	} {
		r := c.Report()
		spoil(&r.Latency[0])
		if _, err := Merge(a.Report(), r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := Merge(a.Report(), c.Report().Compact()); err == nil {
		t.Error("a compact report was merged")
	}
	s, err := newSeries(0.01)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.add(math.NaN()); err == nil || s.n != 0 {
		t.Errorf("NaN was added: %v, %d", err, s.n)
	}
}

func TestText(t *testing.T) {
	c := start(t, Config{Instance: "a"})
	plant(c)
	c.RecordVerification(Verification{Pod: "p", Items: 4, Count: 1, Differences: []Difference{{Kind: DiffCounter, Shop: 1, Item: 2, Units: -3, Text: "off"}}})
	r := c.Report()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"verdict   not-ok", "coverage  ", "stages    shadow, joint, mysql", "last-unit-race", "unexplained",
		"mysql - redis", "counter: shop 1, item 2: off (-3 units)", "samples:", "events dropped 0",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the text has no %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "MISSING") || strings.Contains(b.String(), "%!") {
		t.Errorf("bad formatting:\n%s", b.String())
	}
	for part, want := range map[uint64]string{0: "0 %", 1: "0.0010 %", 99_999: "> 99.99 %", 100_000: "100 %"} {
		if got := percent(part, 100_000); got != want {
			t.Errorf("%d of 100,000 is %q, want %q", part, got, want)
		}
	}
}
