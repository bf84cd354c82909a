package torture

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
)

var discard = slog.New(slog.DiscardHandler)

// Report is what a campaign found.
type Report struct {
	OK              bool           `json:"ok"`
	Schedules       int            `json:"schedules"`
	Seed            uint64         `json:"seed"`
	Operations      int            `json:"operations"`
	Faults          map[string]int `json:"faults"`
	Flips           int            `json:"flips"`
	retired         int64          // how often Redis was, for tests
	Oversold        int64          `json:"oversold"`
	LostHolds       int64          `json:"lost_holds"`
	FalseSoldOut    int64          `json:"false_sold_out"`
	DoubleClaims    int64          `json:"double_claims"`
	UnknownResolved int64          `json:"unknown_resolved"`
	Linearizable    bool           `json:"linearizable"`
	ReadinessLied   int64          `json:"readiness_lied"`
	UnmirroredAtEnd int64          `json:"unmirrored_at_end"`
	Seconds         float64        `json:"seconds"`

	Mutate string   `json:"mutate,omitempty"` // the protection that was switched off
	Failed []Failed `json:"failed,omitempty"` // schedules with a fault
	linear int      // histories that were checked
}

// Failed is a schedule that broke a promise.
type Failed struct {
	Seed    uint64   `json:"seed"`
	Details []string `json:"details"`
	Replay  string   `json:"replay"`
}

func newReport(cfg Config) Report {
	r := Report{Seed: cfg.Seed, Faults: map[string]int{}, Linearizable: true, Mutate: cfg.Mutate}
	if cfg.Replay != 0 {
		r.Seed = cfg.Replay
	}
	return r
}

// maxDetails bounds what the report says of one schedule.
const maxDetails = 10

func (r *Report) add(s Schedule, t *trail, f Found) {
	r.Schedules++
	r.Operations += t.count()
	for _, a := range s.Actions {
		if a.Do != "" {
			r.Flips++
		} else if a.Fault != NoFault {
			r.Faults[string(a.Fault)]++
		}
	}
	r.Oversold += f.Oversold
	r.LostHolds += f.LostHolds
	r.FalseSoldOut += f.FalseSoldOut
	r.DoubleClaims += f.DoubleClaims
	r.UnknownResolved += f.UnknownResolved
	r.ReadinessLied += f.ReadinessLied
	r.UnmirroredAtEnd += f.Unmirrored
	r.Linearizable = r.Linearizable && f.NotLinear == 0
	if s.Linear {
		r.linear++
	}
	if f.faulty() {
		replay := fmt.Sprintf("holdover torture --replay %d", s.Seed)
		if r.Mutate != "" {
			replay += " --mutate " + r.Mutate
		}
		r.Failed = append(r.Failed, Failed{Seed: s.Seed, Details: f.Details[:min(len(f.Details), maxDetails)], Replay: replay})
	}
}

func (r *Report) conclude() { r.OK = r.Schedules > 0 && r.Operations > 0 && len(r.Failed) == 0 }

func (f *Found) add(g Found) {
	f.Oversold += g.Oversold
	f.LostHolds += g.LostHolds
	f.FalseSoldOut += g.FalseSoldOut
	f.DoubleClaims += g.DoubleClaims
	f.ReadinessLied += g.ReadinessLied
	f.Unmirrored += g.Unmirrored
	f.NotLinear += g.NotLinear
	f.UnknownResolved += g.UnknownResolved
	f.Details = append(f.Details, g.Details...)
}

// WriteText prints the report for people.
func (r Report) WriteText(w io.Writer) error {
	verdict := "OK"
	if !r.OK {
		verdict = "NOT OK"
	}
	fmt.Fprintf(w, "%s after %d schedules of seed %d in %.0f s\n", verdict, r.Schedules, r.Seed, r.Seconds)
	fmt.Fprintf(w, "  buyers made      %d calls; %d tokens without a clear answer, and the fate of each could be told\n", r.Operations, r.UnknownResolved)
	fmt.Fprintf(w, "  operators made   %d flips, kills and restores\n", r.Flips)
	fmt.Fprint(w, "  faults          ")
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(w, " %s %d", name, r.Faults[name])
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "  counted          oversold %d, lost holds %d, refused while stock remained %d, double claims %d, unmirrored at the end %d\n",
		r.Oversold, r.LostHolds, r.FalseSoldOut, r.DoubleClaims, r.UnmirroredAtEnd)
	fmt.Fprintf(w, "  readiness lied   %d times\n", r.ReadinessLied)
	_, err := fmt.Fprintf(w, "  linearizable     %t (%d short histories)\n", r.Linearizable, r.linear)
	for _, f := range r.Failed {
		fmt.Fprintf(w, "  FAILED %d: replay with %s\n", f.Seed, f.Replay)
		for _, d := range f.Details {
			_, err = fmt.Fprintf(w, "    %s\n", d)
		}
	}
	return err
}
