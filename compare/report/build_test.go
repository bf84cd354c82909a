package report_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

func TestVerdicts(t *testing.T) {
	for name, x := range map[string]struct {
		change  func(*report.Input)
		verdict report.Verdict
		gate    string
		reason  string
	}{
		"healthy":   {func(*report.Input) {}, report.Pass, "unexplained", "every difference is explained"},
		"oversell":  {func(in *report.Input) { unexplained(&in.Rollups[0], compare.DirectionOversell, 1) }, report.Fail, "unexplained", "1 oversell (2 units)"},
		"undersell": {func(in *report.Input) { unexplained(&in.Rollups[0], compare.DirectionUndersell, 1) }, report.Fail, "unexplained", "1 undersell"},
		"undersell allowed": {func(in *report.Input) {
			in.Limits.Unexplained = 5
			unexplained(&in.Rollups[0], compare.DirectionUndersell, 1)
		}, report.Pass, "unexplained", "within"},
		"oversell is never": {func(in *report.Input) {
			in.Limits.Unexplained = 5
			unexplained(&in.Rollups[0], compare.DirectionOversell, 1)
		}, report.Fail, "unexplained", "oversell"},
		"rate too high": {func(in *report.Input) {
			in.Limits.UnexplainedRate = 1e-6
			in.Limits.Unexplained = 500
			unexplained(&in.Rollups[0], compare.DirectionUndersell, 300)
		}, report.Fail, "unexplained-rate", "at least"},
		"too few to say":      {func(in *report.Input) { in.Limits.UnexplainedRate = 1e-6 }, report.NoVerdict, "unexplained-rate", "can't rule out"},
		"budget":              {func(in *report.Input) { in.Limits.Budgets = map[string]report.Budget{"last-unit-race": {Floor: 107}} }, report.Fail, "budget:last-unit-race", "oversell (180 units)"},
		"bypassed":            {bypassAll, report.NoVerdict, "coverage", "bypassed"},
		"one operation":       {func(in *report.Input) { shed(in, "expire") }, report.NoVerdict, "coverage:shadow/expire", "0 of 36000"},
		"never claimed":       {func(in *report.Input) { forget(in, "claim") }, report.NoVerdict, "exercised", "claim"},
		"verified long ago":   {func(in *report.Input) { in.Verified[0].At = began.Add(-25 * time.Hour) }, report.NoVerdict, "verification", "old"},
		"never verified":      {func(in *report.Input) { in.Verified = nil }, report.NoVerdict, "verification", "was not verified"},
		"verified unsettled":  {func(in *report.Input) { in.Verified[0].Clean, in.Verified[0].Unsettled = false, 3 }, report.NoVerdict, "verification", "3 unsettled"},
		"foreign write":       {func(in *report.Input) { in.Verified[0].Clean, in.Verified[0].Differences = false, 2 }, report.Fail, "verification", "2 differences"},
		"a later one is good": {func(in *report.Input) { verifiedAgain(in) }, report.Pass, "verification", "clean"},
		"planted and missed":  {func(in *report.Input) { in.Rollups[5].Planted[0].Got = compare.KindNone }, report.NoVerdict, "selftest", "missed 2 planted"},
		"taken for a match":   {func(in *report.Input) { in.Rollups[5].Planted[0].Got = compare.KindMatch }, report.Fail, "selftest", "took 2 for something else"},
		"nothing planted":     {func(in *report.Input) { unplant(in) }, report.NoVerdict, "selftest", "nothing was planted"},
		"that is waived":      {func(in *report.Input) { unplant(in); in.Limits.Waived = []string{"selftest"} }, report.Pass, "selftest", "nothing was planted"},
		"panic":               {func(in *report.Input) { in.Rollups[7].Panics = 1 }, report.Fail, "panics", "1 comparisons panicked"},
		"silent instance":     {func(in *report.Input) { in.Rollups = in.Rollups[:len(in.Rollups)-1] }, report.NoVerdict, "instances", "checkout-2 of pod-a"},
		"just ended":          {func(in *report.Input) { in.Rollups[len(in.Rollups)-1].Final = true }, report.Pass, "instances", "all 2 runs"},
		"ended, and is live":  {func(in *report.Input) { in.Rollups[1].Final = true; keepOnly(in, "checkout-2", 1) }, report.NoVerdict, "instances", "has not reported"},
		"live, no report":     {func(in *report.Input) { addLive(in, "checkout-3") }, report.NoVerdict, "instances", "checkout-3 of pod-a (run run-checkout-3) is live and has not reported"},
		"lost rollups":        {func(in *report.Input) { in.Rollups = slices.Delete(in.Rollups, 10, 11) }, report.NoVerdict, "gaps", "10m0s"},
		"said to be lost": {func(in *report.Input) {
			in.Rollups[10].Lost = 2
			in.Rollups[10].From = in.Rollups[10].From.Add(6 * time.Minute)
		}, report.NoVerdict, "gaps", "6m0s"},
		"closed early": {func(in *report.Input) { in.Rollups[1].Final = true; in.Instances = nil; keepOnly(in, "checkout-2", 1) }, report.Pass, "instances", "all 2 runs"},
		"killed":       {func(in *report.Input) { in.Rollups[1].Torn = true; in.Instances = nil; keepOnly(in, "checkout-2", 1) }, report.Pass, "instances", "1 of 2 runs reported to their end, or to the end of the period; killed, and known to the last second or so: checkout-2 of pod-a (run run-checkout-2) at about 2026-11-02 09:10:00Z"},
	} {
		in := healthy()
		x.change(&in)
		r := build(t, in)
		g := gate(t, r, x.gate)
		if r.Verdict != x.verdict {
			t.Errorf("%s: verdict %s, want %s: %+v", name, r.Verdict, x.verdict, r.Gates)
		}
		if !strings.Contains(g.Reason, x.reason) {
			t.Errorf("%s: gate %s says %q, want %q in it", name, x.gate, g.Reason, x.reason)
		}
		if x.verdict != report.Pass && (g.OK || g.Verdict != x.verdict) {
			t.Errorf("%s: gate %s is %s (ok %v), want %s", name, x.gate, g.Verdict, g.OK, x.verdict)
		}
		for _, other := range r.Gates { // the gate that is meant is the only one that objects
			if other.Name != x.gate && other.Name != x.gate+":instances" && !other.OK && !other.Waived && name != "silent instance" {
				t.Errorf("%s: gate %s objects too: %s", name, other.Name, other.Reason)
			}
		}
	}
}

// shed makes one operation incomparable, and all others compared.
func shed(in *report.Input, op string) {
	for i := range in.Rollups {
		for j := range in.Rollups[i].Cells {
			c := &in.Rollups[i].Cells[j]
			last := len(c.Outcomes) - 1
			if c.Op == op {
				c.Compared = 0
				c.Kinds = []compare.Tally{{Kind: compare.KindNotComparable, Count: c.Eligible}}
				c.Outcomes = []compare.OutcomeCount{{Redis: "granted", MySQL: "shed", Count: c.Eligible}}
				continue
			}
			c.Compared = c.Eligible
			c.Kinds[0].Count += c.Kinds[1].Count
			c.Kinds = slices.Delete(c.Kinds, 1, 2)
			c.Outcomes[0].Count += c.Outcomes[last].Count
			c.Outcomes = c.Outcomes[:last]
		}
	}
	in.Limits.MinCoverage = 0.75
}

// bypassAll: a seventh of the operations never reached the comparator.
func bypassAll(in *report.Input) {
	for i := range in.Rollups {
		in.Rollups[i].Bypassed = 834
	}
}

func forget(in *report.Input, stratum string) {
	for i := range in.Rollups {
		in.Rollups[i].Strata = slices.DeleteFunc(in.Rollups[i].Strata, func(s compare.Stratum) bool { return s.Name == stratum })
	}
}

func verifiedAgain(in *report.Input) {
	again := in.Verified[0]
	in.Verified[0].Clean, in.Verified[0].Differences = false, 2
	again.At = again.At.Add(time.Minute)
	in.Verified = slices.Insert(in.Verified, 0, again)
}

func unplant(in *report.Input) {
	for i := range in.Rollups {
		in.Rollups[i].Planted = nil
	}
}

func addLive(in *report.Input, name string) {
	in.Instances["pod-a"] = append(in.Instances["pod-a"], holdover.Instance{Name: name, ID: "run-" + name})
}

// keepOnly drops what an instance reported after its first rollups.
func keepOnly(in *report.Input, instance string, n uint64) {
	in.Rollups = slices.DeleteFunc(in.Rollups, func(r compare.Rollup) bool { return r.Instance == instance && r.Seq > n })
}

func TestSameInputSameBytes(t *testing.T) {
	in := scenarios()["flip-and-kill"]
	shuffled := scenarios()["flip-and-kill"]
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled.Rollups), func(i, j int) {
		shuffled.Rollups[i], shuffled.Rollups[j] = shuffled.Rollups[j], shuffled.Rollups[i]
	})
	local := time.FixedZone("somewhere", 3600)
	for i := range shuffled.Rollups {
		r := &shuffled.Rollups[i]
		r.From, r.To, r.Started = r.From.In(local), r.To.In(local), r.Started.In(local)
	}
	for format, write := range formats() {
		var a, b bytes.Buffer
		if err := write(build(t, in), &a); err != nil {
			t.Fatal(err)
		}
		if err := write(build(t, shuffled), &b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: the same rollups in another order and zone give another page", format)
		}
	}
}

func TestDigest(t *testing.T) {
	base := build(t, healthy()).Digest
	for name, x := range map[string]struct {
		change func(*report.Input)
		same   bool
	}{
		"a sign-off":     {func(in *report.Input) { in.SignOffs = []holdover.SignOff{{Digest: base, Decision: "go"}} }, true},
		"who is live":    {func(in *report.Input) { in.Instances = nil }, true},
		"a note":         {func(in *report.Input) { in.Notes = nil }, true},
		"twice the same": {func(in *report.Input) { in.Rollups = append(in.Rollups, in.Rollups[4]) }, true},
		"a count":        {func(in *report.Input) { in.Rollups[2].Ignored++ }, false},
		"a sample":       {func(in *report.Input) { in.Rollups[2].Samples[0].Why = "else" }, false},
		"a fence":        {func(in *report.Input) { in.Fences[1].Reason = "else" }, false},
		"a verification": {func(in *report.Input) { in.Verified[0].Summary = "else" }, false},
		"a limit":        {func(in *report.Input) { in.Limits.MinCoverage = 0.8 }, false},
		"the period":     {func(in *report.Input) { in.Until = in.Until.Add(time.Second) }, false},
		"a rollup less":  {func(in *report.Input) { in.Rollups = in.Rollups[1:] }, false},
		"another pod's": {func(in *report.Input) {
			in.Rollups = append(in.Rollups, rollup("pod-b", "x", "y", 1, holdover.StageShadow))
		}, true},
		"before the time": {func(in *report.Input) { in.Rollups = append(in.Rollups, early()) }, true},
	} {
		in := healthy()
		x.change(&in)
		if got := build(t, in).Digest == base; got != x.same {
			t.Errorf("%s: the digest is the same: %v, want %v", name, got, x.same)
		}
	}
	signed := healthy()
	signed.SignOffs = []holdover.SignOff{{Digest: base}, {Digest: "other"}}
	if r := build(t, signed); !r.SignOffs[0].SameData || r.SignOffs[1].SameData {
		t.Errorf("which sign-offs are of this data: %+v", r.SignOffs)
	}
}

func early() compare.Rollup {
	r := rollup("pod-a", "old", "old", 1, holdover.StageShadow)
	r.From, r.To = began.Add(-time.Hour), began.Add(-time.Minute)
	return r
}

// An open rollup is written again as it grows: the last copy is what counts.
func TestOpenRollupIsCountedOnce(t *testing.T) {
	in := healthy()
	half := in.Rollups[0]
	half.To = half.To.Add(-5 * time.Minute)
	half.Cells = half.Cells[:1]
	in.Rollups = slices.Insert(in.Rollups, 0, half)
	r := build(t, in)
	if want := build(t, healthy()); r.Coverage.Eligible != want.Coverage.Eligible || r.Divergences.Differed != want.Divergences.Differed {
		t.Errorf("%d eligible, %d differed, want %d and %d", r.Coverage.Eligible, r.Divergences.Differed, want.Coverage.Eligible, want.Divergences.Differed)
	}
}

func TestContradictionsAreRefused(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*report.Input)
		says   string
	}{
		"kinds":             {func(in *report.Input) { in.Rollups[3].Cells[0].Kinds[0].Count++ }, "don't add up"},
		"outcomes":          {func(in *report.Input) { in.Rollups[3].Cells[0].Outcomes[0].Count++ }, "don't add up"},
		"differed":          {func(in *report.Input) { in.Rollups[3].Cells[0].Differed++ }, "don't add up"},
		"two accuracies":    {func(in *report.Input) { in.Rollups[3].Cells[0].Times[0].Delta.Sketch.Accuracy = 0.02 }, "can't be merged"},
		"NaN":               {func(in *report.Input) { in.Rollups[3].Cells[0].Times[0].MySQL.Min = math.NaN() }, "NaN"},
		"no latency sketch": {func(in *report.Input) { in.Rollups[3].Cells[0].Times[0].MySQL.Sketch = nil }, "no latency sketch"},
		"fewer than pairs":  {func(in *report.Input) { in.Rollups[3].Cells[0].Times[0].Pairs++ }, "holds 60 values"},
		"negative bin":      {func(in *report.Input) { in.Rollups[3].Cells[0].Times[0].MySQL.Sketch.Positive[0][1] = -1 }, "can't be read"},
		"no run":            {func(in *report.Input) { in.Rollups[3].Run = "" }, "without its pod, run"},
		"limits":            {func(in *report.Input) { in.Limits.MustSee = []string{"clame"} }, "is not a stratum"},
		"budget":            {func(in *report.Input) { in.Limits.Budgets = map[string]report.Budget{"unexplained": {Floor: 9}} }, "not a kind that evidence explains"},
		"alpha":             {func(in *report.Input) { in.Limits.Alpha = 1 }, "below 1"},
	} {
		in := healthy()
		x.change(&in)
		if _, err := report.Build(in); err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: error %v, want %q in it", name, err, x.says)
		}
	}
}

func TestJSONComesBack(t *testing.T) {
	for name, in := range scenarios() {
		var first, second bytes.Buffer
		if err := build(t, in).WriteJSON(&first); err != nil {
			t.Fatal(err)
		}
		read, err := report.ReadJSON(bytes.NewReader(first.Bytes()))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := read.WriteJSON(&second); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%s: read and written again it is another report", name)
		}
	}
	if _, err := report.ReadJSON(strings.NewReader(`{"schema":2,"verdict":"pass"}`)); err == nil {
		t.Error("a report of another schema was read")
	}
}

// The keys that others rely on.
func TestSchema(t *testing.T) {
	var b bytes.Buffer
	if err := build(t, scenarios()["flip-and-kill"]).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	rate, times := "high low rate", "max_us min_us p50_us p90_us p999_us p99_us sketch"
	for path, want := range map[string]string{
		"": "configs coverage data digest divergences from gates incidents instances latency limits not_exercised notes pods schema selftest " +
			"sign_offs stages timeline to unknown_pods verdict verification versions",
		"data":                            "from s share to",
		"gates":                           "n name ok reason threshold unit value verdict waived",
		"instances":                       "config from gap_s instance lost missing_s pod rollups run started state to version",
		"timeline":                        "at before by epoch latched pod reason stage",
		"incidents":                       "by from open pod text to what",
		"divergences":                     "compared differed eligible kinds strata unexplained unexplained_rate",
		"divergences/unexplained_rate":    rate,
		"divergences/kinds":               "budget count directions kind rate samples units",
		"divergences/kinds/rate":          rate,
		"divergences/kinds/directions":    "count direction units",
		"divergences/strata":              "compared demanded differed eligible name unexplained unexplained_rate",
		"coverage":                        "bypassed compared eligible hours never_seen operations outcomes pods share",
		"coverage/operations":             "compared differed eligible op share stage",
		"coverage/outcomes":               "count mysql op redis",
		"coverage/pods":                   "bypassed compared eligible pod share",
		"coverage/hours":                  "compared eligible hour op share",
		"latency":                         "baseline connections operations shifts",
		"latency/operations":              "delta mysql op pairs probe redis stage",
		"latency/operations/delta":        times,
		"latency/operations/delta/p50_us": "high low value",
		"latency/connections":             "held holds store tag",
		"latency/connections/held":        times,
		"verification":                    "age_s at by clean clean_runs differences epoch pod redis_id runs summary unsettled",
		"selftest":                        "by_kind caught misclassified missed planted unjudged",
		"selftest/by_kind":                "caught kind planted seen_as unjudged",
		"sign_offs":                       "as at decision digest epoch from note pod same_data stage to verdict",
	} {
		var at any = all
		for _, key := range strings.FieldsFunc(path, func(c rune) bool { return c == '/' }) {
			at = first(at).(map[string]any)[key]
		}
		object, ok := first(at).(map[string]any)
		if !ok {
			t.Errorf("%s: no object to look at", path)
			continue
		}
		var keys []string
		for key := range object {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("%s has the keys\n  %s\nwant, as doc.go says,\n  %s", path, got, want)
		}
	}
}

// first is the first of a list, or the value itself.
func first(v any) any {
	if list, ok := v.([]any); ok && len(list) > 0 {
		return list[0]
	}
	return v
}
