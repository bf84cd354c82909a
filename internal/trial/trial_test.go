package trial

import (
	"flag"
	"testing"
	"time"

	"holdover/compare/report"
	"holdover/internal/teststack"
)

var duration = flag.Duration("duration", 12*time.Second, "traffic of each case")

func TestMain(m *testing.M) { teststack.Main(m) }

// The report passes the new path while it is right, and fails it with the right
// reason while it has a bug. (`holdover selftest --verdicts` tries more, for longer.)
func TestTrial(t *testing.T) {
	// A few seconds can't rule out 0.1 %, don't plant every kind, and show no tail.
	r, err := Run(t.Context(), Config{Duration: *duration, Seed: 1, Cases: cases(), Limits: report.Limits{UnexplainedRate: 0.02, Waived: []string{"selftest"}}, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range r.Wrong {
		t.Error(line)
	}
	if !r.OK || len(r.Cases) != len(cases()) {
		t.Errorf("ok %t with %d cases", r.OK, len(r.Cases))
	}
	for _, c := range r.Cases {
		if c.Compared == 0 || c.Granted == 0 || c.Refused == 0 {
			t.Errorf("case %s: %d compared, %d granted, %d refused: nothing was tried", c.Name, c.Compared, c.Granted, c.Refused)
		}
	}
}

var only = flag.String("case", "", "one case instead of those that a short run can show")

func cases() []string {
	if *only == "" {
		return []string{"healthy", "lost-mirrors", "past-stock"}
	}
	return []string{*only}
}
