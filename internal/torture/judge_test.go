package torture

import (
	"testing"
	"time"

	"holdover"
	"holdover/internal/httpapi"
	"holdover/internal/workload"
)

// Every counter of the report can fire.
func TestVerdictsBecomeFaults(t *testing.T) {
	for name, c := range map[string]struct {
		v    workload.Verdict
		want func(Found) int64
	}{
		"oversold":       {workload.Verdict{Oversold: 1}, func(f Found) int64 { return f.Oversold }},
		"lost":           {workload.Verdict{LostHolds: 1}, func(f Found) int64 { return f.LostHolds }},
		"deducted twice": {workload.Verdict{DoubleClaims: 1}, func(f Found) int64 { return f.DoubleClaims }},
		"ended twice":    {workload.Verdict{WrongEnds: 1}, func(f Found) int64 { return f.DoubleClaims }},
		"refused":        {workload.Verdict{FalseSoldOut: 1}, func(f Found) int64 { return f.FalseSoldOut }},
		"an odd answer":  {workload.Verdict{UnexpectedTold: 1}, func(f Found) int64 { return f.LostHolds }},
		"never applied":  {workload.Verdict{StillPending: 1}, func(f Found) int64 { return f.Unmirrored }},
	} {
		var f Found
		f.take(c.v)
		if c.want(f) != 1 || !f.faulty() {
			t.Errorf("%s: %+v", name, f)
		}
		r := newReport(Config{})
		r.add(Schedule{}, newTrail(), f)
		r.Operations = 1
		if r.conclude(); r.OK {
			t.Errorf("%s: the report is ok", name)
		}
	}
	for _, f := range []Found{{ReadinessLied: 1}, {NotLinear: 1}, {Unmirrored: 1}} {
		if !f.faulty() {
			t.Errorf("%+v is no fault", f)
		}
	}
	r := newReport(Config{})
	if r.conclude(); r.OK {
		t.Error("a campaign of nothing is ok")
	}
	r.add(Schedule{}, newTrail(), Found{UnknownResolved: 3})
	r.Operations = 1
	if r.conclude(); !r.OK {
		t.Error("a campaign without a fault is not ok")
	}
}

func TestSums(t *testing.T) {
	place := holdover.Stock{Shop: 1, Item: 7, Group: 1}
	item := holdover.Stock{Shop: 1, Item: 7}
	held, claimed := holdover.NewToken(), holdover.NewToken()
	reading := func() workload.Reading {
		return workload.Reading{
			HasRedis: true, Ledger: map[holdover.Stock]int64{place: 8}, Counters: map[holdover.Stock]int64{item: 5},
			Redis:   map[holdover.Token]workload.StoredHold{held: {Shop: 1, State: holdover.StateHeld, Lines: []holdover.Line{{Item: 7, Group: 1, Quantity: 3}}}},
			Entries: []workload.Entry{{Token: claimed, Shop: 1, Item: 7, Group: 1, Delta: -2, Kind: "claim"}},
		}
	}
	stock := []holdover.Stock{{Shop: 1, Item: 7, Group: 1, Available: 10}}
	for name, c := range map[string]struct {
		spoil func(*workload.Reading)
		want  Found
	}{
		"right":                  {func(*workload.Reading) {}, Found{}},
		"counter too low":        {func(r *workload.Reading) { r.Counters[item] = 4 }, Found{FalseSoldOut: 1}},
		"counter too high":       {func(r *workload.Reading) { r.Counters[item] = 6 }, Found{Oversold: 1}},
		"counter gone":           {func(r *workload.Reading) { delete(r.Counters, item) }, Found{FalseSoldOut: 1}},
		"ledger without entries": {func(r *workload.Reading) { r.Ledger[place] = 7; r.Counters[item] = 4 }, Found{DoubleClaims: 1}},
		"entries without ledger": {func(r *workload.Reading) { r.Ledger[place] = 10; r.Counters[item] = 7 }, Found{DoubleClaims: 1}},
	} {
		r := reading()
		c.spoil(&r)
		var f Found
		f.sums(r, stock, holdover.StageShadow)
		f.Details = nil
		if f.Oversold != c.want.Oversold || f.FalseSoldOut != c.want.FalseSoldOut || f.DoubleClaims != c.want.DoubleClaims {
			t.Errorf("%s: %+v, want %+v", name, f, c.want)
		}
	}
}

// Whose hold is looked for when readiness says yes.
func TestAcknowledgedBefore(t *testing.T) {
	now := time.Now()
	calls := []call{}
	add := func(op string, token holdover.Token, end time.Duration, ttl time.Duration, err error) {
		calls = append(calls, call{op: op, token: token, start: end - time.Millisecond, end: end, err: err, res: holdover.Result{Hold: holdover.Hold{ExpiresAt: now.Add(ttl)}}})
	}
	told, late, short, ending, refused := holdover.NewToken(), holdover.NewToken(), holdover.NewToken(), holdover.NewToken(), holdover.NewToken()
	add("reserve", told, 10*time.Millisecond, longTTL, nil)
	add("reserve", told, 20*time.Millisecond, longTTL, nil) // once only
	add("reserve", late, 60*time.Millisecond, longTTL, nil)
	add("reserve", short, 10*time.Millisecond, time.Second, nil)
	add("reserve", ending, 10*time.Millisecond, longTTL, nil)
	add("release", ending, underWay, 0, errUnderWay)
	add("reserve", refused, 10*time.Millisecond, longTTL, holdover.ErrOutOfStock)
	if got := acknowledgedBefore(calls, 50*time.Millisecond, now); len(got) != 1 || got[0] != told {
		t.Errorf("%v, want %s alone", got, told)
	}
	if stillLive(calls, ending) || !stillLive(calls, told) {
		t.Error("a hold that is being released counts as live, or another does not")
	}
}

func TestYesToGoBack(t *testing.T) {
	yes := httpapi.Readiness{Back: httpapi.Verdict{OK: true}}
	for stage, want := range map[holdover.Stage]bool{holdover.StageMySQL: true, holdover.StageJoint: true, holdover.StageShadow: false} {
		if got := yesToGoBack(httpapi.PodStatus{Agreed: &holdover.Fence{Stage: stage}, Readiness: yes}); got != want {
			t.Errorf("%s: %t", stage, got)
		}
	}
	if yesToGoBack(httpapi.PodStatus{Readiness: yes}) || yesToGoBack(httpapi.PodStatus{Agreed: &holdover.Fence{Stage: holdover.StageMySQL}}) {
		t.Error("a no counts as a yes")
	}
}
