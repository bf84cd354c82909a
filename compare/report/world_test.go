package report_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
)

// began is the begin of every period here.
var began = time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)

const accuracy = 0.01

// quantilesOf makes what a comparator makes of times in microseconds.
func quantilesOf(values []float64) compare.Quantiles {
	gamma := (1 + accuracy) / (1 - accuracy)
	k := &compare.Sketch{Accuracy: accuracy}
	q := compare.Quantiles{Min: math.Inf(1), Max: math.Inf(-1), Sketch: k}
	add := func(bins *[]compare.Bin, v float64) {
		index := int64(math.Floor(math.Log(v) / math.Log(gamma)))
		for i := range *bins {
			if (*bins)[i][0] == index {
				(*bins)[i][1]++
				return
			}
		}
		*bins = append(*bins, compare.Bin{index, 1})
	}
	for _, v := range values {
		q.Min, q.Max = min(q.Min, v), max(q.Max, v)
		switch {
		case v > 0:
			add(&k.Positive, v)
		case v < 0:
			add(&k.Negative, -v)
		default:
			k.Zeros++
		}
	}
	return q
}

// timesOf are n pairs whose MySQL time slower changes.
func timesOf(source *rand.Rand, n int, slower func(rank, us float64) float64) compare.Times {
	var redis, mysql, delta []float64
	for range n {
		u := source.Float64()
		r := 150 * math.Exp(0.2*source.NormFloat64())
		m := 1800 * math.Exp(0.5*math.Sqrt2*math.Erfinv(2*u-1))
		if slower != nil {
			m = slower(u, m)
		}
		redis, mysql, delta = append(redis, r), append(mysql, m), append(delta, m-r)
	}
	return compare.Times{Pairs: uint64(n), Redis: quantilesOf(redis), MySQL: quantilesOf(mysql), Delta: quantilesOf(delta)}
}

// rollup is ten minutes of one instance in which everything that must occur did.
func rollup(pod, instance, run string, seq uint64, stage holdover.Stage) compare.Rollup {
	source := rand.New(rand.NewPCG(seq, uint64(len(instance))+uint64(instance[len(instance)-1])))
	r := compare.Rollup{
		Pod: pod, Instance: instance, Run: run, Seq: seq, Version: "v0.5.0", Config: "c0ffee", Started: began,
		From: began.Add(time.Duration(seq-1) * 10 * time.Minute), To: began.Add(time.Duration(seq) * 10 * time.Minute),
	}
	for op := holdover.OpReserve; op <= holdover.OpExtend; op++ {
		c := compare.Cell{
			Stage: stage, Op: op.String(), Eligible: 1000, Compared: 990, Differed: 0,
			Outcomes: []compare.OutcomeCount{{Redis: "granted", MySQL: "granted", Count: 990}, {Redis: "granted", MySQL: "shed", Count: 10}},
			Kinds:    []compare.Tally{{Kind: compare.KindMatch, Count: 990}, {Kind: compare.KindNotComparable, Count: 10}},
		}
		if op == holdover.OpReserve {
			c.Differed = 4
			c.Outcomes = []compare.OutcomeCount{{Redis: "granted", MySQL: "granted", Count: 986}, {Redis: "granted", MySQL: "refused", Count: 3}, {Redis: "refused", MySQL: "granted", Count: 1}, {Redis: "granted", MySQL: "shed", Count: 10}}
			c.Kinds = []compare.Tally{
				{Kind: compare.KindMatch, Count: 986}, {Kind: compare.KindNotComparable, Count: 10},
				{Kind: compare.KindLastUnitRace, Direction: compare.DirectionOversell, Count: 3, Units: 5},
				{Kind: compare.KindLocation, Direction: compare.DirectionUndersell, Count: 1, Units: 2},
			}
			c.Times = []compare.Times{timesOf(source, 60, nil)}
			r.Samples = append(r.Samples, event(r, c.Stage, 17, compare.KindLastUnitRace, compare.DirectionOversell, 2, "both stores were within the units of 3 operations in flight"))
		}
		r.Cells = append(r.Cells, c)
	}
	for _, name := range compare.StratumNames() {
		if name != "moved" && name != "extend" && name != compare.StratumUndecided {
			s := compare.Stratum{Name: name, Eligible: 200, Compared: 198, Differed: 1}
			if strings.HasSuffix(name, "-away") { // single calls, no outage
				s = compare.Stratum{Name: name, Eligible: 20, Compared: 18}
			}
			r.Strata = append(r.Strata, s)
		}
	}
	r.Connections = []compare.Connection{{Store: "mysql", Tag: "reserve", Holds: 20, Held: quantilesOf(hold(source, 20))}}
	for _, kind := range compare.Kinds() {
		if kind.Divergence() {
			r.Planted = append(r.Planted, compare.Planted{Want: kind, Got: kind, Count: 2})
		}
	}
	return r
}

func hold(source *rand.Rand, n int) (values []float64) {
	for range n {
		values = append(values, 900*math.Exp(0.3*source.NormFloat64()))
	}
	return values
}

func event(r compare.Rollup, stage holdover.Stage, place uint64, kind compare.Kind, direction compare.Direction, units int64, why string) compare.Event {
	return compare.Event{
		Seq: place, Kind: kind, Direction: direction, Units: units, Why: why, Diff: "- granted\n+ refused\n", Run: r.Run, Pod: r.Pod, Instance: r.Instance,
		At: r.From.Add(time.Duration(place) * time.Second), Epoch: 3, Stage: stage, Op: "reserve", Shop: 12,
		Token: fmt.Sprintf("0b5e7f3a-0000-4000-8000-%012d", r.Seq*100+place), Lines: []holdover.Line{{Item: 7, Group: 1, Quantity: units}},
		Redis: compare.Side{Outcome: "granted", State: holdover.StateHeld, LatencyNS: 151_000}, MySQL: compare.Side{Outcome: "refused", LatencyNS: 1_900_000, Probe: true},
		Evidence: []string{"last-units"}, Reason: "redis decides",
	}
}

// unexplained puts differences without evidence into the first cell.
func unexplained(r *compare.Rollup, direction compare.Direction, n uint64) {
	c := &r.Cells[0]
	for i := range c.Kinds {
		if c.Kinds[i].Kind == compare.KindMatch {
			c.Kinds[i].Count -= n
		}
	}
	c.Outcomes[0].Count -= n
	c.Outcomes[1].Count += n
	c.Differed += n
	c.Kinds = append(c.Kinds, compare.Tally{Kind: compare.KindUnexplained, Direction: direction, Count: n, Units: int64(2 * n)})
	r.Strata[0].Eligible += n
	r.Strata[0].Compared += n
	r.Strata[0].Differed += n
	r.Strata[0].Unexplained += n
	r.Samples = append(r.Samples, event(*r, c.Stage, 99, compare.KindUnexplained, direction, 2, "no evidence was recorded"))
}

func fence(pod string, after time.Duration, epoch holdover.Epoch, stage holdover.Stage, latched bool, by, reason string) holdover.Fence {
	return holdover.Fence{Pod: pod, Epoch: epoch, Stage: stage, Latched: latched, By: by, Reason: reason, At: began.Add(after)}
}

// healthy is three hours of two instances of one pod, all well.
func healthy() report.Input {
	in := report.Input{
		Pods: []string{"pod-a"}, Since: began, Until: began.Add(3 * time.Hour),
		Fences: []holdover.Fence{
			fence("pod-a", -time.Hour, 1, holdover.StageRedis, false, "migrate", "first start"),
			fence("pod-a", -30*time.Minute, 2, holdover.StageShadow, false, "flag", "flag says shadow"),
		},
		Verified: []holdover.Verified{
			{Pod: "pod-a", At: began.Add(2 * time.Hour), Epoch: 2, RedisID: "r1", Clean: true, Summary: "812 items, 40 holds: no difference", By: "checkout-1"},
		},
		Instances: map[string][]holdover.Instance{"pod-a": {{Name: "checkout-1", ID: "run-checkout-1"}, {Name: "checkout-2", ID: "run-checkout-2"}}},
		Notes:     []string{"read from MySQL of pod-a"},
	}
	for seq := uint64(1); seq <= 18; seq++ {
		for _, instance := range []string{"checkout-1", "checkout-2"} {
			in.Rollups = append(in.Rollups, rollup("pod-a", instance, "run-"+instance, seq, holdover.StageShadow))
		}
	}
	return in
}

func build(t testing.TB, in report.Input) report.Report {
	t.Helper()
	r, err := report.Build(in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func gate(t testing.TB, r report.Report, name string) report.Gate {
	t.Helper()
	for _, g := range r.Gates {
		if g.Name == name {
			return g
		}
	}
	t.Fatalf("the report has no gate %s: %v", name, r.Gates)
	return report.Gate{}
}

// scenarios are the reports that the golden files show.
func scenarios() map[string]report.Input {
	oversell := healthy()
	unexplained(&oversell.Rollups[20], compare.DirectionOversell, 3)

	empty := healthy()
	empty.Rollups, empty.Verified, empty.Instances, empty.Notes = nil, nil, nil, nil

	unknown := healthy()
	unknown.Pods = []string{"pod-a", "pod-z"}

	missing := healthy()
	missing.Rollups = nil
	for _, r := range healthy().Rollups {
		if r.Instance == "checkout-1" || r.Seq <= 9 {
			missing.Rollups = append(missing.Rollups, r)
		}
	}

	flip := healthy()
	flip.Fences = append(flip.Fences,
		fence("pod-a", 50*time.Minute, 3, holdover.StageJoint, false, "flag", "flag says mysql"),
		fence("pod-a", 60*time.Minute, 4, holdover.StageMySQL, false, "flag", "flag says mysql"),
		fence("pod-a", 100*time.Minute, 5, holdover.StageShadow, true, "anna", "checkout is slow <script>alert(1)</script>"),
		fence("pod-a", 120*time.Minute, 6, holdover.StageShadow, false, "ben", "it was the proxy's fault, \"fixed\""),
		fence("pod-a", 150*time.Minute, 7, holdover.StageJoint, false, "flag", "flag says mysql"),
		fence("pod-a", 160*time.Minute, 8, holdover.StageMySQL, false, "flag", "flag says mysql"))
	for i := range flip.Rollups {
		r := &flip.Rollups[i]
		stage := map[uint64]holdover.Stage{6: holdover.StageJoint, 7: holdover.StageMySQL, 8: holdover.StageMySQL, 9: holdover.StageMySQL, 10: holdover.StageMySQL, 16: holdover.StageJoint, 17: holdover.StageMySQL, 18: holdover.StageMySQL}[r.Seq]
		if stage == 0 {
			continue
		}
		for j := range r.Cells {
			r.Cells[j].Stage = stage
		}
	}
	flip.SignOffs = []holdover.SignOff{{Pod: "pod-a", Stage: holdover.StageShadow, Epoch: 2, Digest: "0000", Verdict: "pass", Decision: "go", As: "anna", Note: "go | on", From: began.Add(-time.Hour), To: began, At: began.Add(time.Minute)}}

	return map[string]report.Input{
		"pass": healthy(), "oversell": oversell, "empty": empty, "unknown-pod": unknown, "flip-and-kill": flip, "instance-missing": missing,
	}
}
