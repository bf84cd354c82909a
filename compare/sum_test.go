package compare

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"holdover"
)

func sum(t *testing.T, rollups ...Rollup) Total {
	t.Helper()
	s, err := Sum(rollups)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Rollups of two instances are what one would have counted.
func TestSumIsWhatOneWouldHaveCounted(t *testing.T) {
	a, b, both := start(t, Config{Instance: "a", Version: "v1"}), start(t, Config{Pod: "q", Instance: "b", Version: "v2"}), start(t, Config{})
	for i := range 400 {
		o := seen(holdover.StageShadow, holdover.OpReserve, granted, granted)
		if i%3 == 0 {
			o = seen(holdover.StageJoint, holdover.OpClaim, granted, refused)
		}
		o.MySQL.Latency = time.Duration(i+1) * time.Millisecond
		both.Observe(o)
		if i%2 == 0 {
			a.Observe(o)
		} else {
			o.Pod = "q"
			b.Observe(o)
		}
	}
	got, want := sum(t, a.Total(), b.Total()), sum(t, both.Total())
	if diff := cmp.Diff(want.Cells, got.Cells); diff != "" {
		t.Errorf("cells differ (- one, + two):\n%s", diff)
	}
	if !reflect.DeepEqual(got.Pods, []string{"p", "q"}) || !reflect.DeepEqual(got.Instances, []string{"a", "b"}) ||
		!reflect.DeepEqual(got.Versions, []string{"v1", "v2"}) || len(got.Runs) != 2 {
		t.Errorf("%q %q %q %q", got.Pods, got.Instances, got.Versions, got.Runs)
	}
	if eligible, compared, differed, unexplained := got.Counts(); eligible != 400 || compared != 400 || differed != 134 || unexplained != 134 {
		t.Errorf("%d %d %d %d", eligible, compared, differed, unexplained)
	}
}

// Ten samples stand for ten in one rollup and for ten thousand in the other.
func TestSamplesOfASumAreDrawnEvenly(t *testing.T) {
	few, many := start(t, Config{Instance: "few"}), start(t, Config{Instance: "many"})
	for range 10 {
		few.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, refused))
	}
	for range 10_000 {
		many.Observe(seen(holdover.StageShadow, holdover.OpReserve, granted, refused))
	}
	// The other direction is rare, and stays.
	few.Observe(seen(holdover.StageShadow, holdover.OpReserve, refused, granted))
	rollups := []Rollup{few.Total(), many.Total()}
	got := sum(t, rollups...)
	fromMany, undersell := 0, 0
	for _, e := range got.Samples {
		if e.Run == many.run {
			fromMany++
		}
		if e.Direction == DirectionUndersell {
			undersell++
		}
	}
	// Drawn by the number of samples, five would be of each; two or more of the few
	// happen once in 20,000 times.
	if len(got.Samples) != 11 || fromMany < 9 || undersell != 1 {
		t.Errorf("%d samples, %d of the many, %d undersell", len(got.Samples), fromMany, undersell)
	}
	slices.Reverse(rollups)
	if again := sum(t, rollups...); !reflect.DeepEqual(got, again) {
		t.Errorf("another order, another sum:\n%s", cmp.Diff(got, again))
	}
}

// The reservoirs that a run is drawn from are merged by what they stand for.
func TestRunSamplesAreDrawnEvenlyOverFlushes(t *testing.T) {
	c := start(t, Config{})
	late, n := 0, 0
	for range 20 {
		c.whole = new(tally)
		for i := range 1000 {
			if i == 100 {
				_ = c.Total() // a tenth is in the first flush
			}
			o := seen(holdover.StageShadow, holdover.OpReserve, granted, refused)
			o.Shop = int64(i)
			c.Observe(o)
		}
		for _, e := range c.Total().Samples {
			n++
			if e.Shop >= 100 {
				late++
			}
		}
	}
	// 180 of 200 expected, a standard deviation of 4.2; by turns it would be 100.
	if n != 200 || late < 160 || late == n {
		t.Errorf("%d of %d are of the later nine tenths", late, n)
	}
}

func TestWhatDoesNotAddUpIsRefused(t *testing.T) {
	c := start(t, Config{Instance: "a"})
	plant(c)
	good := c.Total()
	other := start(t, Config{SketchAccuracy: 0.02})
	plant(other)
	for want, rollups := range map[string][]Rollup{
		"there twice":               {good, good},
		"accuracy 0.01 and 0.02":    {good, other.Total()},
		"run " + good.Run + ", pod": {good, good},
	} {
		if _, err := Sum(rollups); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	for name, tc := range map[string]struct {
		want  string
		spoil func(*Rollup)
	}{
		"eligible":       {"don't add up", func(r *Rollup) { r.Cells[0].Eligible++ }},
		"compared":       {"don't add up", func(r *Rollup) { r.Cells[0].Compared-- }},
		"differed":       {"don't add up", func(r *Rollup) { r.Cells[0].Differed++ }},
		"outcome":        {"don't add up", func(r *Rollup) { r.Cells[0].Outcomes[0].Count++ }},
		"outcome's name": {"not known", func(r *Rollup) { r.Cells[0].Outcomes[0].Redis = "maybe" }},
		"kind":           {"don't add up", func(r *Rollup) { r.Cells[0].Kinds[0].Count++ }},
		"operation":      {"not known", func(r *Rollup) { r.Cells[0].Op = "borrow" }},
		"cell twice":     {"twice", func(r *Rollup) { r.Cells = append(r.Cells, r.Cells[0]) }},
		"pairs":          {"don't add up", func(r *Rollup) { r.Cells[1].Times[0].Pairs += 1000 }},
		"sketch":         {"the report says", func(r *Rollup) { r.Cells[1].Times[0].Pairs-- }},
		"NaN":            {"NaN", func(r *Rollup) { r.Cells[1].Times[0].Delta.Min = math.NaN() }},
		"no sketch":      {"no latency sketch", func(r *Rollup) { r.Cells[1].Times[0].Redis.Sketch = nil }},
		"stratum":        {"stratum", func(r *Rollup) { r.Strata[0].Compared = r.Strata[0].Eligible + 1 }},
		"no run":         {"without its", func(r *Rollup) { r.Run = "" }},
		"no number":      {"without its", func(r *Rollup) { r.Seq = 0 }},
		"backwards":      {"before it begins", func(r *Rollup) { r.To = r.From.Add(-1) }},
	} {
		b, err := json.Marshal(good)
		if err != nil {
			t.Fatal(err)
		}
		var r Rollup
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		if _, err := Sum([]Rollup{r}); err != nil {
			t.Fatalf("as it is: %v", err)
		}
		tc.spoil(&r)
		if _, err := Sum([]Rollup{r}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: want %q, got %v", name, tc.want, err)
		}
	}
	if s := sum(t); s.Rollups != 0 || s.Cells != nil {
		t.Errorf("nothing adds up to %+v", s)
	}
}

func TestSketchValues(t *testing.T) {
	s, err := newSeries(0.01)
	if err != nil {
		t.Fatal(err)
	}
	values := []float64{-200, -3, 0, 0, 0.5, 70, 70}
	for _, v := range values {
		if err := s.add(v); err != nil {
			t.Fatal(err)
		}
	}
	var got []float64
	for v, n := range s.quantiles().Sketch.All() {
		for range n {
			got = append(got, v)
		}
	}
	if len(got) != len(values) {
		t.Fatalf("%v", got)
	}
	for i, v := range values {
		if math.Abs(got[i]-v) > 0.011*math.Abs(v) {
			t.Errorf("%v is %v", v, got[i])
		}
	}
	for range s.quantiles().Sketch.All() {
		break
	}
}

func TestConnectionTimesAreTakenOnce(t *testing.T) {
	var c ConnectionTimes
	for i := range 2 * maxTags {
		c.Held("mysql", strings.Repeat("x", i), time.Duration(i)*time.Microsecond)
	}
	rows := c.Take()
	var n uint64
	for _, r := range rows {
		n += r.Holds
	}
	if len(rows) != maxTags+1 || n != 2*maxTags || len(c.Take()) != 0 {
		t.Errorf("%d rows of %d holds", len(rows), n)
	}
}

func TestHotItem(t *testing.T) {
	var h hotItems
	line := func(item int64) []holdover.Line { return []holdover.Line{{Item: item, Quantity: 1}} }
	for i := range 19 {
		if h.note(1, line(7)) {
			t.Fatalf("hot after %d lines", i+1)
		}
	}
	if !h.note(1, line(7)) {
		t.Error("not hot with all 20 lines")
	}
	// A flood of items that come once each does not hide it while it has a fifth of
	// the lines, and it cools down when it has a hundredth.
	cold := int64(1000)
	run := func(every, n int) (hot, asked int) {
		for i := range n {
			if i%every == 0 {
				asked++
				if h.note(1, line(7)) {
					hot++
				}
				continue
			}
			cold++
			if h.note(1, line(cold)) {
				t.Fatalf("item %d came once and is hot", cold)
			}
		}
		return hot, asked
	}
	if hot, asked := run(5, 20_000); hot < asked*9/10 {
		t.Errorf("a fifth of the lines: hot %d of %d times", hot, asked)
	}
	run(100, 30_000)
	if hot, asked := run(100, 10_000); hot > 0 {
		t.Errorf("a hundredth of the lines: hot %d of %d times", hot, asked)
	}
	if h.note(2, line(7)) {
		t.Error("the same item of another shop is hot")
	}
}

func TestStrata(t *testing.T) {
	marked := func(m holdover.Marks, op holdover.Op) holdover.Observation {
		o := seen(holdover.StageShadow, op, granted, granted)
		o.Marks = m
		return o
	}
	one := seen(holdover.StageShadow, holdover.OpReserve, granted, granted)
	one.Lines = one.Lines[:1]
	many := left(one, []int64{5}, []int64{5})
	many.Lines = []holdover.Line{{Item: 1, Quantity: 10}}
	probed := left(one, []int64{5}, []int64{0})
	probed.MySQL.Probe = true
	seenNames := map[string]bool{}
	for name, tc := range map[string]struct {
		obs  holdover.Observation
		hot  bool
		want string
	}{
		"one line":      {one, false, "single-line"},
		"lines":         {seen(holdover.StageShadow, holdover.OpReserve, granted, granted), false, "multi-line"},
		"many":          {many, true, "single-line many-units hot-item"},
		"last unit":     {left(one, []int64{0}, []int64{3}), false, "single-line last-unit"},
		"probed":        {probed, false, "single-line"},
		"refused":       {seen(holdover.StageShadow, holdover.OpReserve, refused, granted), false, "multi-line refused"},
		"not the truth": {seen(holdover.StageMySQL, holdover.OpReserve, refused, granted), false, "multi-line"},
		"claim":         {marked(0, holdover.OpClaim), false, "claim"},
		"late":          {marked(holdover.MarkLate|holdover.MarkReplayed, holdover.OpClaim), false, "replayed claim claim-late"},
		"part":          {marked(holdover.MarkPart, holdover.OpClaim), false, "claim claim-part"},
		"release":       {marked(0, holdover.OpRelease), false, "release"},
		"expire":        {marked(0, holdover.OpExpire), false, "expire"},
		"extend":        {marked(holdover.MarkMoved, holdover.OpExtend), false, "extend moved"},
		"choice":        {marked(holdover.MarkChoice|holdover.MarkSplit, holdover.OpReserve), false, "multi-line choice split"},
		"undecided":     {marked(holdover.MarkUndecided, holdover.OpReserve), false, "multi-line undecided"},
		"redis away":    {seen(holdover.StageMySQL, holdover.OpRelease, holdover.OutcomeError, granted), false, "release redis-away"},
		"mysql away":    {seen(holdover.StageShadow, holdover.OpRelease, granted, holdover.OutcomeUnknown), false, "release mysql-away"},
		"shed":          {seen(holdover.StageShadow, holdover.OpRelease, granted, holdover.OutcomeShed), false, "release"},
	} {
		set := strataOf(&tc.obs, tc.hot)
		var names []string
		for i, s := range StratumNames() {
			if set&(1<<i) != 0 {
				names = append(names, s)
				seenNames[s] = true
			}
		}
		if got := strings.Join(names, " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	for _, name := range StratumNames() {
		if !seenNames[name] {
			t.Errorf("nothing is in stratum %s", name)
		}
	}
}

func FuzzReadRollups(f *testing.F) {
	c := start(f, Config{Instance: "a"})
	plant(c)
	r := c.Total()
	b, err := json.Marshal(line{V: lineVersion, Rollup: &r})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(b) + "\n")
	f.Add(string(b[:len(b)/2]))
	f.Add(`{"v":1,"rollup":{"pod":"p","run":"r","seq":1,"cells":[{"stage":"shadow","op":"reserve","eligible":1,"compared":1,"outcomes":[{"redis":"granted","mysql":"granted","count":1}],"kinds":[{"kind":"match","direction":"neutral","count":1}],"times":[{"pairs":1,"redis":{"sketch":{"accuracy":0.01,"positive":[[3,1]]}},"mysql":{"sketch":{"accuracy":0.01,"zeros":1}},"delta":{"sketch":{"accuracy":0.01,"negative":[[-3,1]]}}}]}]}}` + "\n")
	f.Add(`{"v":1,"event":{"seq":1,"kind":"match","run":"r","stage":"shadow"}}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		rollups, _, err := readRollupsFrom(Source{"f", strings.NewReader(text)})
		if err != nil {
			return
		}
		total, err := Sum(rollups)
		if err != nil {
			return
		}
		eligible, compared, differed, unexplained := total.Counts()
		if compared > eligible || differed > compared || unexplained > differed {
			t.Errorf("%d eligible, %d compared, %d differed, %d unexplained", eligible, compared, differed, unexplained)
		}
		// What was read can be written and read again.
		for i := range rollups {
			b, err := json.Marshal(line{V: lineVersion, Rollup: &rollups[i]})
			if err != nil {
				t.Fatal(err)
			}
			back, _, err := readRollupsFrom(Source{"again", bytes.NewReader(append(b, '\n'))})
			if err != nil || len(back) != 1 {
				t.Fatalf("%d read again, %v", len(back), err)
			}
		}
	})
}
