package report_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

// timed is a healthy period with many paired times.
func timed(seed uint64, slower func(rank, us float64) float64) report.Input {
	in := healthy()
	source := rand.New(rand.NewPCG(seed, 1))
	for i := range in.Rollups {
		c := &in.Rollups[i].Cells[0]
		c.Times = []compare.Times{timesOf(source, 900, slower)}
	}
	return in
}

func tailOnly(rank, us float64) float64 {
	if rank > 0.99 {
		return 1.3 * us
	}
	return us
}

func all(_, us float64) float64 { return 1.3 * us }

func TestSlowerThanTheBaseline(t *testing.T) {
	baseline := report.BaselineOf(build(t, timed(1, nil)))
	for name, x := range map[string]struct {
		in      report.Input
		noise   *report.Baseline
		verdict report.Verdict
		reason  string
	}{
		"the same":         {timed(2, nil), nil, report.Pass, "no quantile is slower"},
		"the tail alone":   {timed(3, tailOnly), nil, report.Fail, "(the tail alone)"},
		"everything":       {timed(4, all), nil, report.Fail, "p50: "},
		"nothing to judge": {healthyWithout(), nil, report.NoVerdict, "no operation in common"},
		"within the noise": {timed(4, all), noisy(t), report.Pass, "no quantile is slower"},
	} {
		in := x.in
		in.Baseline, in.Noise = baseline, x.noise
		r := build(t, in)
		g := gate(t, r, "latency")
		if g.Verdict != x.verdict || r.Verdict != x.verdict || !strings.Contains(g.Reason, x.reason) {
			t.Errorf("%s: the gate is %s (%s), the report %s; want %s and %q", name, g.Verdict, g.Reason, r.Verdict, x.verdict, x.reason)
		}
		if r.Latency.Baseline != baseline.Digest || g.Verdict == report.Fail && len(r.Latency.Shifts) == 0 {
			t.Errorf("%s: the report does not name the baseline and what moved: %+v", name, r.Latency.Shifts)
		}
	}
	for _, g := range build(t, timed(3, tailOnly)).Gates {
		if g.Name == "latency" {
			t.Error("latency is a gate without a baseline")
		}
	}
}

func healthyWithout() report.Input {
	in := healthy()
	for i := range in.Rollups {
		in.Rollups[i].Cells[0].Times = nil
	}
	return in
}

// noisy is a calibration in which two equal stores differed by seconds.
func noisy(t *testing.T) *report.Baseline {
	in := healthy()
	source := rand.New(rand.NewPCG(9, 9))
	for i := range in.Rollups {
		var redis, second, delta []float64
		for range 200 {
			d := 4e6 * (source.Float64() - 0.5)
			redis, second, delta = append(redis, 100), append(second, 100), append(delta, d)
		}
		in.Rollups[i].Cells[0].Times = []compare.Times{{Pairs: 200, Redis: quantilesOf(redis), MySQL: quantilesOf(second), Delta: quantilesOf(delta)}}
	}
	return report.BaselineOf(build(t, in))
}

// The baseline of a report that was written and read again is the same.
func TestBaselineFromAFile(t *testing.T) {
	var b bytes.Buffer
	if err := build(t, timed(1, nil)).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	read, err := report.ReadJSON(&b)
	if err != nil {
		t.Fatal(err)
	}
	in := timed(3, tailOnly)
	in.Baseline = report.BaselineOf(read)
	if g := gate(t, build(t, in), "latency"); g.Verdict != report.Fail {
		t.Errorf("with a baseline from a file the gate is %s: %s", g.Verdict, g.Reason)
	}
}

func TestDiffSeesWhatMoved(t *testing.T) {
	before, after := timed(1, nil), timed(3, tailOnly)
	unexplained(&after.Rollups[0], compare.DirectionOversell, 200)
	forget(&after, "claim-late")
	after.Rollups[0].Version = "v0.6.0"
	d, err := report.Diff(build(t, before), build(t, after))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := d.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"verdict    fail, was pass", "v0.6.0", "(the tail alone)", "higher", "claim-late", "3 oversell"[2:]} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the comparison does not say %q:\n%s", want, text.String())
		}
	}
	if len(d.Slower) == 0 || len(d.Faster) > 0 || !d.Slower[0].Tail {
		t.Errorf("slower %+v, faster %+v, want the tail alone", d.Slower, d.Faster)
	}
	back, err := report.Diff(build(t, after), build(t, before))
	if err != nil {
		t.Fatal(err)
	}
	if len(back.Faster) == 0 || len(back.Slower) > 0 || back.Faster[0].After > back.Faster[0].Before {
		t.Errorf("the other way: slower %+v, faster %+v", back.Slower, back.Faster)
	}
	if same, err := report.Diff(build(t, before), build(t, before)); err != nil || !same.SameData || len(same.Gates)+len(same.Slower)+len(same.Faster) > 0 {
		t.Errorf("a report and itself: %+v, %v", same, err)
	}
}

// A comparator's own rollup is enough for a report, and its quantiles are the
// report's.
func TestLiveComparator(t *testing.T) {
	c, err := compare.New(compare.Config{Pod: "pod-a", Instance: "one"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	source := rand.New(rand.NewPCG(5, 5))
	for i := range 9000 {
		c.Observe(holdover.Observation{
			Pod: "pod-a", Instance: "one", Epoch: 2, Stage: holdover.StageShadow, Op: holdover.OpReserve, Shop: 1, Token: holdover.NewToken(),
			Lines: []holdover.Line{{Item: int64(i%7 + 1), Group: 1, Quantity: 1}}, At: time.Now(),
			Redis: holdover.Answer{Outcome: holdover.OutcomeGranted, State: holdover.StateHeld, Latency: time.Duration(1e5 + 5e4*source.Float64())},
			MySQL: holdover.Answer{Outcome: holdover.OutcomeGranted, State: holdover.StateHeld, Latency: time.Duration(1e6 + 3e6*source.Float64())},
		})
	}
	total := c.Total()
	r := build(t, report.Input{Pods: []string{"pod-a"}, Rollups: []compare.Rollup{total},
		Limits: report.Limits{Waived: []string{"selftest", "verification"}, MustSee: []string{""}}})
	if r.Verdict != report.Pass || r.Coverage.Compared != 9000 {
		t.Errorf("verdict %s of %d compared: %+v", r.Verdict, r.Coverage.Compared, r.Gates)
	}
	got, want := r.Latency.Operations[0].MySQL, total.Cells[0].Times[0].MySQL
	for _, q := range [][2]float64{{got.P50.Value, want.P50}, {got.P90.Value, want.P90}, {got.P99.Value, want.P99}, {got.P999.Value, want.P999}} {
		if q[0] < 0.98*q[1] || q[0] > 1.02*q[1] {
			t.Errorf("the report's quantile is %v, the comparator's %v: bins are read at the wrong values", q[0], q[1])
		}
	}
}

// A week of four instances, a rollup a minute.
func BenchmarkWeek(b *testing.B) {
	var in report.Input
	source := rand.New(rand.NewPCG(1, 1))
	times := timesOf(source, 500, nil)
	for _, instance := range []string{"a", "b", "c", "d"} {
		for seq := uint64(1); seq <= 7*24*60; seq++ {
			r := rollup("pod-a", instance, "run-"+instance, 1, holdover.StageShadow)
			r.Seq, r.From = seq, began.Add(time.Duration(seq-1)*time.Minute)
			r.To = r.From.Add(time.Minute)
			for i := range r.Cells {
				r.Cells[i].Times = []compare.Times{times}
			}
			in.Rollups = append(in.Rollups, r)
		}
	}
	for b.Loop() {
		build(b, in)
	}
}
