package workload

import (
	"strings"
	"testing"
	"time"

	"holdover"
)

// A reading that fits one claimed cart of two units, and what each fault in it
// must be called.
func TestJudgeStores(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	stock := []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 10}, {Shop: 1, Item: 5, Group: 2, Available: 10}}
	k1, k2 := holdover.Stock{Shop: 1, Item: 5, Group: 1}, holdover.Stock{Shop: 1, Item: 5, Group: 2}
	counter := holdover.Stock{Shop: 1, Item: 5}
	claimed, released, live := holdover.Token{1}, holdover.Token{2}, holdover.Token{3}
	lines := []holdover.Line{one(5, 1, 2)}

	write := func() *history {
		h := newHistory()
		h.granted(1, 2, 1000, lines...).told(endClaimed, 3, 4)
		h.granted(1, 2, 1000, lines...).told(endReleased, 3, 4)
		h.granted(1, 2, 10_000, lines...).expires = now.Add(time.Minute).UnixMilli()
		return h
	}
	read := func() Reading {
		return Reading{
			Now: now, HasRedis: true,
			Ledger: map[holdover.Stock]int64{k1: 8, k2: 10},
			MySQL: map[holdover.Token]StoredHold{
				claimed: {1, holdover.StateClaimed, lines}, released: {1, holdover.StateReleased, lines}, live: {1, holdover.StateHeld, lines},
			},
			Redis: map[holdover.Token]StoredHold{
				claimed: {1, holdover.StateClaimed, lines}, released: {1, holdover.StateReleased, lines}, live: {1, holdover.StateHeld, lines},
			},
			Entries:  []Entry{{Token: claimed, Shop: 1, Item: 5, Group: 1, Delta: -2, Kind: "claim"}},
			Counters: map[holdover.Stock]int64{counter: 16},
		}
	}
	type pick func(v Verdict) int64
	var (
		lost     pick = func(v Verdict) int64 { return v.LostHolds }
		double   pick = func(v Verdict) int64 { return v.DoubleClaims }
		wrong    pick = func(v Verdict) int64 { return v.WrongEnds }
		ledger   pick = func(v Verdict) int64 { return v.LedgerOff }
		counters pick = func(v Verdict) int64 { return v.CountersOff }
		oversold pick = func(v Verdict) int64 { return v.Oversold }
	)
	drop := func(m map[holdover.Token]StoredHold, token holdover.Token) { delete(m, token) }
	tests := []struct {
		name   string
		stage  holdover.Stage
		fault  func(h *history, r *Reading)
		counts pick // nil: no fault at all
	}{
		{"as it should be", holdover.StageMySQL, func(*history, *Reading) {}, nil},
		{"as it should be, redis deciding", holdover.StageShadow, func(*history, *Reading) {}, nil},
		{"as it should be, both deciding", holdover.StageJoint, func(*history, *Reading) {}, nil},
		{"a claim at another location of the item", holdover.StageShadow, func(_ *history, r *Reading) {
			r.Entries = []Entry{{claimed, 1, 5, 1, -1, "claim"}, {claimed, 1, 5, 2, -1, "claim"}}
			r.Ledger[k1], r.Ledger[k2] = 9, 9
		}, nil},
		{"another book's deduction", holdover.StageMySQL, func(_ *history, r *Reading) {
			r.Entries = append(r.Entries, Entry{holdover.Token{99}, 1, 5, 2, -4, "claim"})
			r.Ledger[k2] -= 4
			r.Counters[counter] -= 4
		}, nil},
		{"the live hold is lost in mysql", holdover.StageMySQL, func(_ *history, r *Reading) { drop(r.MySQL, live) }, lost},
		{"the live hold is lost in mysql, redis deciding", holdover.StageShadow, func(_ *history, r *Reading) { drop(r.MySQL, live) }, nil},
		{"the live hold is lost in mysql, both deciding", holdover.StageJoint, func(_ *history, r *Reading) { drop(r.MySQL, live) }, lost},
		{"the live hold is lost in redis", holdover.StageShadow, func(_ *history, r *Reading) {
			drop(r.Redis, live)
			r.Counters[counter] += 2
		}, lost},
		{"the live hold is lost in redis, both deciding", holdover.StageJoint, func(_ *history, r *Reading) {
			drop(r.Redis, live)
			r.Counters[counter] += 2
		}, lost},
		{"the live hold was released by nobody", holdover.StageMySQL, func(_ *history, r *Reading) {
			r.MySQL[live] = StoredHold{1, holdover.StateReleased, lines}
		}, lost},
		{"a release without an answer", holdover.StageMySQL, func(h *history, r *Reading) {
			h.a.records[live].releaseAsked = ms(5)
			r.MySQL[live] = StoredHold{1, holdover.StateReleased, lines}
		}, nil},
		{"a lost hold past its expiry", holdover.StageMySQL, func(h *history, r *Reading) {
			h.a.records[live].expires = now.Add(time.Second / 2).UnixMilli()
			drop(r.MySQL, live)
		}, nil},
		{"a claim without an answer that happened", holdover.StageMySQL, func(h *history, r *Reading) {
			h.a.records[live].claimAsked = ms(5)
			r.MySQL[live] = StoredHold{1, holdover.StateClaimed, lines}
			r.Redis[live] = StoredHold{1, holdover.StateClaimed, lines}
			r.Entries = append(r.Entries, Entry{live, 1, 5, 1, -2, "claim"})
			r.Ledger[k1] -= 2
		}, nil},
		{"a claim that nobody asked for", holdover.StageMySQL, func(_ *history, r *Reading) {
			r.MySQL[live] = StoredHold{1, holdover.StateClaimed, lines}
			r.Redis[live] = StoredHold{1, holdover.StateClaimed, lines}
			r.Entries = append(r.Entries, Entry{live, 1, 5, 1, -2, "claim"})
			r.Ledger[k1] -= 2
		}, wrong},
		{"denied", holdover.StageMySQL, func(h *history, _ *Reading) { h.a.records[live].ending = endDenied }, lost},
		{"the claim is not in the ledger", holdover.StageMySQL, func(_ *history, r *Reading) {
			r.Entries = nil
			r.Ledger[k1] = 10
			r.Counters[counter] = 18
		}, lost},
		{"half of the claim is in the ledger", holdover.StageMySQL, func(_ *history, r *Reading) {
			r.Entries[0].Delta = -1
			r.Ledger[k1] = 9
			r.Counters[counter] = 17
		}, lost},
		{"the claim is in the ledger twice", holdover.StageMySQL, func(_ *history, r *Reading) {
			r.Entries = append(r.Entries, r.Entries[0])
			r.Ledger[k1] = 6
			r.Counters[counter] = 14
		}, double},
		{"the claim was pending and still is", holdover.StageShadow, func(h *history, r *Reading) {
			h.a.records[claimed].ending = endPending
			r.Entries = nil
			r.Ledger[k1] = 10
			r.Redis[claimed] = StoredHold{1, holdover.StateClaiming, lines}
		}, nil},
		{"the claim was pending and is lost", holdover.StageShadow, func(h *history, r *Reading) {
			h.a.records[claimed].ending = endPending
			r.Entries = nil
			r.Ledger[k1] = 10
			r.Counters[counter] = 18
			r.Redis[claimed] = StoredHold{1, holdover.StateExpired, lines}
		}, lost},
		{"told claimed, and ended otherwise", holdover.StageMySQL, func(_ *history, r *Reading) {
			r.MySQL[claimed] = StoredHold{1, holdover.StateExpired, lines}
		}, wrong},
		{"told released, and deducted", holdover.StageMySQL, func(_ *history, r *Reading) {
			r.Entries = append(r.Entries, Entry{released, 1, 5, 1, -2, "claim"})
			r.Ledger[k1] -= 2
			r.Counters[counter] -= 2
		}, wrong},
		{"told released, and live", holdover.StageMySQL, func(_ *history, r *Reading) {
			r.MySQL[released] = StoredHold{1, holdover.StateHeld, lines}
		}, wrong},
		{"the ledger lost a unit", holdover.StageMySQLOnly, func(_ *history, r *Reading) { r.Ledger[k2]-- }, ledger},
		{"the ledger is missing", holdover.StageMySQLOnly, func(_ *history, r *Reading) { delete(r.Ledger, k2) }, ledger},
		{"the ledger is below zero", holdover.StageMySQLOnly, func(_ *history, r *Reading) {
			r.Entries = append(r.Entries, Entry{holdover.Token{99}, 1, 5, 2, -11, "claim"})
			r.Ledger[k2] = -1
		}, ledger},
		{"an entry without a ledger behind it", holdover.StageMySQL, func(_ *history, r *Reading) {
			r.Entries = append(r.Entries, Entry{holdover.Token{99}, 1, 5, 2, -3, kindOversold})
		}, oversold},
		{"the counter has a unit too many", holdover.StageMySQL, func(_ *history, r *Reading) { r.Counters[counter]++ }, counters},
		{"the counter is missing", holdover.StageRedis, func(_ *history, r *Reading) { delete(r.Counters, counter) }, counters},
		{"the counter after redis is gone", holdover.StageMySQLOnly, func(_ *history, r *Reading) { delete(r.Counters, counter) }, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h, r := write(), read()
			test.fault(h, &r)
			v, err := Judge(h.a, r, AuditConfig{Stock: stock, Stage: test.stage})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case test.counts == nil && !v.OK:
				t.Errorf("not OK: %+v", v)
			case test.counts == nil:
			case v.OK:
				t.Errorf("OK in spite of the fault: %+v", v)
			case test.counts(v) == 0 || test.counts(v) != v.faults():
				t.Errorf("the fault has another name: %+v", v)
			case len(v.Details) == 0:
				t.Error("the fault has no details")
			}
		})
	}
}

func TestJudgeWantsSomethingToJudge(t *testing.T) {
	stock := []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 10}}
	r := Reading{Ledger: map[holdover.Stock]int64{{Shop: 1, Item: 5, Group: 1}: 10}}
	v, err := Judge(NewAccount(AccountConfig{}), r, AuditConfig{Stock: stock, Stage: holdover.StageMySQLOnly})
	if err != nil || v.OK || v.faults() != 0 {
		t.Errorf("an empty book: %+v, %v", v, err)
	}
	for want, c := range map[string]AuditConfig{
		"no initial stock":   {Stage: holdover.StageMySQL},
		"is not a stage":     {Stock: stock},
		"number of the conf": {Stock: stock, Stage: holdover.StageMySQL, ReapGrace: -1},
	} {
		if _, err := Judge(NewAccount(AccountConfig{}), r, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestVerdictCapsItsDetails(t *testing.T) {
	h := newHistory()
	for range 5 {
		h.refused(100, 110, holdover.StoreMySQL, one(6, 1, 1))
	}
	stock := []holdover.Stock{{Shop: 1, Item: 6, Group: 1, Available: 1000}}
	r := Reading{Ledger: map[holdover.Stock]int64{stock[0]: 1000}}
	r.Ledger = map[holdover.Stock]int64{{Shop: 1, Item: 6, Group: 1}: 1000}
	v, err := Judge(h.a, r, AuditConfig{Stock: stock, Stage: holdover.StageMySQLOnly, MaxDetails: 2})
	if err != nil || v.FalseSoldOut != 5 || len(v.Details) != 2 || v.More != 3 {
		t.Errorf("%+v, %v", v, err)
	}
}
