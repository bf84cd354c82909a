package advise

import (
	"strings"
	"testing"
	"time"

	"holdover/internal/bench"
)

func report() bench.Report {
	return bench.Report{
		Scenario: "hot", MySQLVersion: "9.7.4", RTTus: 120, SingleRow: &bench.Threshold{HoldMs: 0.5},
		Competitors: []bench.Competitor{{Name: "usual", HoldUs: 9000}, {Name: "holdover", HoldUs: 250}, {Name: "conditional_batched", OpsPerS: 9000}},
	}
}

func TestAddABenchRun(t *testing.T) {
	n := Numbers{PeakRate: 40, RowHold: 4 * ms, RowHoldIsBound: true}
	took := n.Add(report())
	want := Numbers{PeakRate: 40, RowHold: 500 * time.Microsecond, HoldAfter: 250 * time.Microsecond, BatchedRow: 9000}
	if n != want {
		t.Errorf("numbers %+v, want %+v", n, want)
	}
	if !strings.Contains(took, "hot") || !strings.Contains(took, "9.7.4") || !strings.Contains(took, "0.12 ms") {
		t.Errorf("the source does not say where it was measured: %q", took)
	}
}

func TestAddOfAllScenarios(t *testing.T) {
	var n Numbers
	locks := report()
	locks.Scenario, locks.SingleRow, locks.Competitors[1].HoldUs = "locks", nil, 1
	if took := n.Add(bench.Report{Scenario: "all", Reports: []bench.Report{locks, report()}}); took == "" || n.HoldAfter != 250*time.Microsecond || n.RowHold != 500*time.Microsecond {
		t.Errorf("of a run of all: %+v, from %q", n, took)
	}
}

func TestAddLeavesWhatIsKnown(t *testing.T) {
	known := Numbers{RowHold: 3 * ms, HoldAfter: ms, BatchedRow: 1}
	n := known
	if took := n.Add(report()); took != "" || n != known {
		t.Errorf("known numbers became %+v, from %q", n, took)
	}
	if took := n.Add(bench.Report{Scenario: "lone"}); took != "" {
		t.Errorf("a run without such figures gave %q", took)
	}
}
