package trial

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"holdover/compare/report"
)

var duration = flag.Duration("duration", 12*time.Second, "traffic of each case")

// The report passes the new path while it is right, and fails it with the right
// reason while it has a bug. (`holdover selftest --verdicts` tries more, for longer.)
func TestTrial(t *testing.T) {
	for _, name := range cases() {
		r := attempt(t, name, 0)
		// More buyers than a busy machine can serve are not compared. Fewer must be.
		for rate := 50.0; rate > 10 && tooMany(r.Cases[0]); rate /= 2 {
			r = attempt(t, name, rate)
		}
		for _, line := range r.Wrong {
			t.Error(line)
		}
		if !r.OK {
			t.Errorf("case %s is not ok", name)
		}
		if c := r.Cases[0]; c.Compared == 0 || c.Granted == 0 || c.Refused == 0 {
			t.Errorf("case %s: %d compared, %d granted, %d refused: nothing was tried", c.Name, c.Compared, c.Granted, c.Refused)
		}
	}
}

func attempt(t *testing.T, name string, rate float64) Result {
	t.Helper()
	// A few seconds can't rule out 0.1 %, don't plant every kind, and show no tail.
	limits := report.Limits{UnexplainedRate: 0.02, Waived: []string{"selftest"}}
	r, err := Run(t.Context(), Config{Duration: *duration, Rate: rate, Seed: 1, Cases: []string{name}, Limits: limits, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 1 || r.Cases[0].Name != name {
		t.Fatalf("%d cases", len(r.Cases))
	}
	return r
}

// tooMany: a case without a bug has no verdict, and has failed nothing, and too little of it could be compared.
func tooMany(c Tried) bool {
	few := func(b Broken) bool {
		gate, _, _ := strings.Cut(b.Gate, ":")
		return gate == "coverage" || gate == "undecided"
	}
	return c.Mutant == "" && c.Verdict == report.NoVerdict && c.Unexplained == 0 && slices.ContainsFunc(c.Broken, few)
}

var only = flag.String("case", "", "one case instead of those that a short run can show")

func cases() []string {
	if *only == "" {
		return []string{"healthy", "lost-mirrors", "past-stock"}
	}
	return []string{*only}
}
