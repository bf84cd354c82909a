package advise

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

const ms = time.Millisecond

var settled = Answers{LedgerHere: Yes, Interchangeable: Yes, FIFO: No}

func share(v float64) *float64 { return &v }

// Every branch of the judgement. The sentences are in testdata, a file a case.
var cases = []struct {
	name    string
	numbers Numbers
	answers Answers
	want    Verdict
	band    string
}{
	{"nothing-known", Numbers{}, settled, Depends, ""},
	{"no-hold-time", Numbers{PeakRate: 900}, settled, Depends, ""},
	{"no-peak-rate", Numbers{RowHold: ms}, settled, Depends, ""},
	{"one-row-is-bored", Numbers{PeakRate: 12, RowHold: ms}, settled, Dont, "optimistic"},
	{"one-row-is-bored-and-nothing-is-answered", Numbers{PeakRate: 12, RowHold: ms}, Answers{}, Dont, "optimistic"},
	{"some-conflicts", Numbers{PeakRate: 150, Rate: 600, RowHold: ms}, settled, Dont, "optimistic with bounded retry and backoff"},
	{"conflicts-but-room", Numbers{PeakRate: 400, RowHold: ms}, settled, Dont, "pessimistic, or smooth the peak"},
	{"just-below-half", Numbers{PeakRate: 499, RowHold: ms}, settled, Dont, "pessimistic, or smooth the peak"},
	{"half", Numbers{PeakRate: 500, RowHold: ms}, settled, Depends, "pessimistic, or smooth the peak"},
	{"close-to-the-edge", Numbers{PeakRate: 690, RowHold: ms}, settled, Depends, "pessimistic, or smooth the peak"},
	{"half-of-all-attempts-lost", Numbers{PeakRate: 700, RowHold: ms, HoldAfter: 200 * time.Microsecond}, settled, Migrate, "remove the hot spot"},
	{"fewer-conflicts-measured", Numbers{PeakRate: 700, RowHold: ms, Conflicts: share(0.1)}, settled, Depends, "optimistic with bounded retry and backoff"},
	{"more-conflicts-measured", Numbers{PeakRate: 510, RowHold: ms, Conflicts: share(0.5)}, settled, Migrate, "remove the hot spot"},
	{"conflicts-measured-and-nothing-else", Numbers{Conflicts: share(0.3)}, settled, Depends, "pessimistic, or smooth the peak"},
	{"more-than-a-row-takes", Numbers{PeakRate: 2500, Rate: 3000, RowHold: ms, HoldAfter: 150 * time.Microsecond}, settled, Migrate, "remove the hot spot"},
	{"open-questions", Numbers{PeakRate: 2500, RowHold: ms}, Answers{LedgerHere: Yes}, Depends, "remove the hot spot"},
	{"ledger-elsewhere", Numbers{PeakRate: 2500, RowHold: ms}, Answers{LedgerHere: No, Interchangeable: Yes, FIFO: No}, Dont, "remove the hot spot"},
	{"seats", Numbers{PeakRate: 2500, RowHold: ms}, Answers{LedgerHere: Yes, Interchangeable: No, FIFO: No}, Dont, "remove the hot spot"},
	{"first-come-first-served", Numbers{PeakRate: 2500, RowHold: ms}, Answers{LedgerHere: Yes, Interchangeable: Yes, FIFO: Yes}, Dont, "remove the hot spot"},
	{"ruled-out-without-numbers", Numbers{}, Answers{LedgerHere: No, Interchangeable: No, FIFO: Yes}, Dont, ""},
	{"hold-time-is-a-bound", Numbers{PeakRate: 2500, RowHold: ms, RowHoldIsBound: true, ConnectionsNow: 3.4, RateNow: 2000, OtherConnections: 2.5, HoldAfter: 400 * time.Microsecond}, settled, Depends, "remove the hot spot"},
	{"hold-time-is-a-bound-and-room", Numbers{PeakRate: 25, RowHold: 2 * ms, RowHoldIsBound: true, ConnectionsNow: 0.2, RateNow: 20}, settled, Dont, "optimistic"},
	{"combined-updates-hold-it", Numbers{PeakRate: 2500, RowHold: ms, BatchedRow: 9000}, settled, Depends, "remove the hot spot"},
	{"combined-updates-do-not", Numbers{PeakRate: 5000, RowHold: ms, BatchedRow: 9000}, settled, Migrate, "remove the hot spot"},
	{"a-slow-row", Numbers{PeakRate: 3, RowHold: 1500 * ms}, settled, Migrate, "remove the hot spot"},
}

func TestJudge(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := Judge(c.numbers, c.answers)
			if got.Verdict != c.want || got.ConflictBand != c.band {
				t.Errorf("migrate: %s, band %q; want %s, %q", got.Verdict, got.ConflictBand, c.want, c.band)
			}
			if len(got.Reasons) == 0 {
				t.Error("no reason is given")
			}
			golden(t, c.name+".txt", got.Text())
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (renew it with -update)\n got %s\nwant %s", path, got, want)
	}
}

func TestGoldenFilesAreAllUsed(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(cases) {
		t.Errorf("%d golden files for %d cases", len(files), len(cases))
	}
}

func TestConnectionsByLittlesLaw(t *testing.T) {
	for _, c := range []struct {
		name       string
		numbers    Numbers
		now, after float64 // 0: not said
	}{
		{"one row, queue included", Numbers{PeakRate: 500, Rate: 1000, RowHold: ms, HoldAfter: 100 * time.Microsecond}, 1.5, 0.1},
		{"one row can't", Numbers{PeakRate: 2000, RowHold: ms, HoldAfter: ms}, 0, 2},
		{"measured", Numbers{PeakRate: 100, Rate: 1000, RowHold: ms, ConnectionsNow: 7, OtherConnections: 5, HoldAfter: ms}, 7, 6},
		{"the rate of all is at least one item's", Numbers{PeakRate: 100, Rate: 10, HoldAfter: 10 * ms}, 0, 1},
		{"unknown", Numbers{PeakRate: 100}, 0, 0},
	} {
		got := Judge(c.numbers, settled)
		for what, pair := range map[string]struct {
			got  *float64
			want float64
		}{"now": {got.ConnectionsNow, c.now}, "after": {got.ConnectionsAfter, c.after}} {
			switch {
			case (pair.got != nil) != (pair.want != 0):
				t.Errorf("%s: connections %s said: %t, want %v", c.name, what, pair.got != nil, pair.want)
			case pair.got != nil && (*pair.got < 0.999*pair.want || *pair.got > 1.001*pair.want):
				t.Errorf("%s: connections %s %v, want %v", c.name, what, *pair.got, pair.want)
			}
		}
	}
}

func TestBand(t *testing.T) {
	for rate, want := range map[float64]string{
		0: "optimistic", 0.049: "optimistic", 0.05: "optimistic with bounded retry and backoff", 0.199: "optimistic with bounded retry and backoff",
		0.2: "pessimistic, or smooth the peak", 0.499: "pessimistic, or smooth the peak", 0.5: "remove the hot spot", 1: "remove the hot spot",
	} {
		if got := Band(rate); got != want {
			t.Errorf("at %v: %q, want %q", rate, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	text, err := json.Marshal(Judge(Numbers{PeakRate: 2500, RowHold: ms, HoldAfter: ms}, Answers{FIFO: No}))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got["migrate"] != "depends" || got["row_busy"] != 2.5 || len(got["questions"].([]any)) != 2 || len(got["reasons"].([]any)) == 0 {
		t.Errorf("JSON %s", text)
	}
	text, err = json.Marshal(Judge(Numbers{}, settled))
	if err != nil || !strings.Contains(string(text), `"questions":[]`) {
		t.Errorf("without a question: %s, %v", text, err)
	}
	var back Advice
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, Judge(Numbers{}, settled)) {
		t.Errorf("it does not come back the same: %+v, %v", back, err)
	}
}

func TestNumbersAsText(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.04321: "0.0432", 12.345: "12.3", 99.96: "100", 1234.5: "1,230", 37_712: "37,700", 1_234_567: "1,230,000"} {
		if got := count(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}
