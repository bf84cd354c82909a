package calibrate

import (
	"bytes"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/compare/report"
	"holdover/internal/teststack"
	"holdover/legacyredis"
)

func TestMain(m *testing.M) { teststack.Main(m) }

// Old against old: the same answers, and times that can be a baseline.
func TestRun(t *testing.T) {
	var progress bytes.Buffer
	r, err := Run(t.Context(), Config{Duration: 4 * time.Second, Rate: 50, Progress: &progress})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	if !r.OK || r.Pairs < 20 || r.Divergences != 0 || r.Unexplained != 0 || r.Coverage < 0.5 {
		t.Errorf("%+v", r)
	}
	if r.Delta.P50 > r.Delta.P99 || r.Delta.P99 > r.Delta.P999 || r.Delta == (Quantiles{}) {
		t.Errorf("delta %+v", r.Delta)
	}
	if b, err := report.NoiseOf(r.Report); err != nil || len(b.Rows) == 0 || b.Digest == "" {
		t.Errorf("no noise: %+v, %v", b, err)
	}
	var fields map[string]any
	encoded, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(encoded, &fields)
	}
	for _, name := range []string{"pairs", "divergences", "unexplained", "delta"} {
		if _, ok := fields[name]; !ok || err != nil {
			t.Errorf("the JSON has no %q: %v", name, err)
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !bytes.Contains(text.Bytes(), []byte("\nOK: ")) {
		t.Errorf("%v\n%s", err, &text)
	}
}

// A difference that is really there is seen, and only there.
func TestPairSeesADifference(t *testing.T) {
	var stores []*legacyredis.Store
	var paths []holdover.Reserver
	for range 2 {
		addr, number := teststack.FreshRedis(t)
		s, err := legacyredis.Open(t.Context(), legacyredis.Config{Pod: Pod, Addr: addr, DB: number})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		path, err := legacyredis.NewPath(s, noLedger{}, legacyredis.PathConfig{})
		if err != nil {
			t.Fatal(err)
		}
		stores, paths = append(stores, s), append(paths, path)
	}
	for i, units := range []int64{1, 2} {
		if _, err := stores[i].Load(t.Context(), 7, map[int64]int64{1: units}, true); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	var seen []holdover.Observation
	pair := NewPair(paths[0], paths[1], func(o holdover.Observation) { mu.Lock(); defer mu.Unlock(); seen = append(seen, o) })
	ask := func(token holdover.Token) error {
		_, err := pair.Reserve(t.Context(), holdover.Request{Shop: 7, Token: token, Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}, TTL: time.Minute})
		return err
	}
	first := holdover.NewToken()
	if err := ask(first); err != nil {
		t.Fatal(err)
	}
	if err := ask(holdover.NewToken()); !errors.Is(err, holdover.ErrOutOfStock) {
		t.Fatalf("the first server has no unit left: %v", err)
	}
	if _, err := pair.Claim(t.Context(), 7, first); err != nil {
		t.Fatal(err)
	}
	want := []struct {
		op    holdover.Op
		a, b  holdover.Outcome
		state holdover.State
	}{
		{holdover.OpReserve, holdover.OutcomeGranted, holdover.OutcomeGranted, holdover.StateHeld},
		{holdover.OpReserve, holdover.OutcomeRefused, holdover.OutcomeGranted, holdover.StateNone},
		{holdover.OpClaim, holdover.OutcomeGranted, holdover.OutcomeGranted, holdover.StateClaimed},
	}
	if len(seen) != len(want) {
		t.Fatalf("%d observations: %+v", len(seen), seen)
	}
	for i, w := range want {
		o := seen[i]
		if o.Op != w.op || o.Redis.Outcome != w.a || o.MySQL.Outcome != w.b || o.Redis.State != w.state || o.Redis.Latency <= 0 || o.MySQL.Latency <= 0 {
			t.Errorf("%d: %+v", i, o)
		}
	}
}

// One address alone is refused before anything is started.
func TestBadConfig(t *testing.T) {
	if _, err := Run(t.Context(), Config{First: "127.0.0.1:1"}); !errors.Is(err, holdover.ErrInvalid) {
		t.Error(err)
	}
}
