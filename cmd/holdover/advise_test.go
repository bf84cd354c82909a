package main

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"holdover"
	"holdover/internal/advise"
	"holdover/internal/bench"
)

var answered = []string{"--ledger-here=yes", "--interchangeable=yes", "--fifo=no"}

func advised(t *testing.T, code int, args ...string) (advice advise.Advice, stderr string) {
	t.Helper()
	a := runArgs(t.Context(), "", append([]string{"advise", "--json"}, args...)...)
	if a.code != code {
		t.Fatalf("advise %v: exit %d, want %d\n%s%s", args, a.code, code, a.out, a.stderr)
	}
	oneObject(t, a.out, &advice)
	return advice, a.stderr
}

// A live pod, looked at as an operator would.
func TestAdviseOnALivePod(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	one, two := s.serve("checkout-1").ready(), s.serve("checkout-2").ready()
	for range 3 {
		token := holdover.NewToken().String()
		one.post(reservations, reserveBody(token, 1)).has(t, 201)
		one.post(reservations+"/"+token+"/claim", "").has(t, 200)
	}
	flags := append([]string{"--window=1s", "--hold-ms=1", "--url", one.url, "--url", strings.TrimPrefix(two.url, "http://")}, answered...)
	advice, stderr := advised(t, exitNotSatisfied, flags...)
	if advice.Verdict != advise.Dont || advice.PeakRate < 1 || advice.PeakRate > 3 || advice.RowRate != 1000 {
		t.Errorf("advice %+v", advice)
	}
	if !strings.Contains(stderr, "pod-a") || !strings.Contains(stderr, "not to migrate") {
		t.Errorf("stderr says %q", stderr)
	}
	// With a peak that one row can't take the same pod gets a yes.
	if advice, _ := advised(t, exitDone, append(flags, "--peak-rate=2000")...); advice.Verdict != advise.Migrate || advice.PeakRate != 2000 {
		t.Errorf("advice %+v", advice)
	}
	advised(t, exitUsage, append(flags, "--pod=pod-b")...)
	if nowhere, err := url.JoinPath(one.url, "v1"); err != nil {
		t.Fatal(err)
	} else if _, stderr := advised(t, exitFailed, "--url", nowhere); !strings.Contains(stderr, nowhere) {
		t.Errorf("an address that is none: %s", stderr)
	}
}

func TestAdviseFromABenchFile(t *testing.T) {
	text, err := json.Marshal(bench.Report{
		Scenario: "hot", MySQLVersion: "9.7.4", RTTus: 100, SingleRow: &bench.Threshold{HoldMs: 0.5},
		Competitors: []bench.Competitor{{Name: "holdover", HoldUs: 200}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: t.TempDir()}
	file := s.write("hot.json", string(text))
	advice, _ := advised(t, exitNothing, "--bench", file)
	if advice.RowRate != 2000 || len(advice.Questions) != 3 {
		t.Errorf("advice %+v", advice)
	}
	a := runArgs(t.Context(), "", append([]string{"advise", "--bench", file, "--peak-rate=5000"}, answered...)...)
	for _, want := range []string{"Migrate. The hottest item's peak is 5,000", "locked for 0.5 ms", "MySQL 9.7.4"} {
		if a.code != exitDone || !strings.Contains(a.out, want) {
			t.Errorf("exit %d, no %q in\n%s%s", a.code, want, a.out, a.stderr)
		}
	}
	advised(t, exitNotSatisfied, "--bench", file, "--peak-rate=50")
	advised(t, exitNotSatisfied, "--bench", file, "--peak-rate=5000", "--ledger-here=no")
	advised(t, exitNothing, "--bench", file, "--peak-rate=5000", "--ledger-here=yes")
	advised(t, exitNothing, "--bench", s.write("lone.json", `{"scenario": "lone"}`))
}

func TestAdviseUsage(t *testing.T) {
	s := &site{t: t, dir: t.TempDir()}
	for _, args := range [][]string{
		{},
		{"--fifo=maybe", "--peak-rate=1"},
		{"--peak-rate=-1"},
		{"--peak-rate=NaN"},
		{"--hold-ms=1e12"},
		{"--peak-rate=1", "--conflict-rate=2"},
		{"--peak-rate=1", "--window=1ms"},
		{"--bench", filepath.Join(s.dir, "missing.json")},
		{"--bench", s.write("other.json", `{"verdict": "ok"}`)},
		{"--bench", s.write("text.json", `no JSON`)},
	} {
		advised(t, exitUsage, args...)
	}
}
