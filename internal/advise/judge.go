package advise

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Numbers are what a judgement is made of. Zero means unknown.
type Numbers struct {
	// PeakRate is the most reserves a second of one item.
	PeakRate float64
	// Rate is the reserves a second of all items; PeakRate when it is lower.
	Rate float64
	// RowHold is how long one reserve keeps the row locked when an item is one
	// row with a count: nothing else can be faster than one after the other.
	RowHold time.Duration
	// RowHoldIsBound: RowHold was not measured on a single row. It is what a
	// claim keeps a connection for, which may be longer.
	RowHoldIsBound bool
	// Conflicts is the measured share of attempts, 0 to 1, that a version
	// compare-and-set lost to somebody else; nil: worked out from the above.
	Conflicts *float64
	// ConnectionsNow are the connections that MySQL work takes now, measured at
	// RateNow reserves a second; zero: worked out for one row.
	ConnectionsNow, RateNow float64
	// OtherConnections is the part of ConnectionsNow that is not for reserving
	// and stays.
	OtherConnections float64
	// HoldAfter is how long a reserve of the unit pool takes a connection,
	// batches shared out over their calls.
	HoldAfter time.Duration
	// BatchedRow is the reserves a second that one row took when one process
	// combined its concurrent calls into one conditional UPDATE.
	BatchedRow float64
}

// Answer is what somebody said to a question that no metric answers.
type Answer string

const (
	Open Answer = ""
	Yes  Answer = "yes"
	No   Answer = "no"
)

// Answers are the three.
type Answers struct {
	LedgerHere      Answer `json:"ledger_here"`     // is the inventory ledger in the MySQL that would hold the units?
	Interchangeable Answer `json:"interchangeable"` // is one unit of an item as good as another?
	FIFO            Answer `json:"fifo"`            // must it be strictly first come, first served?
}

// Verdict is whether to migrate.
type Verdict string

const (
	Migrate Verdict = "yes"
	Dont    Verdict = "no"
	Depends Verdict = "depends" // on what Questions and the reasons name
)

// Advice is the judgement. Its JSON is what `holdover advise --json` prints.
type Advice struct {
	Verdict   Verdict  `json:"migrate"`
	Reasons   []string `json:"reasons"`   // a sentence or two each, with the numbers
	Questions []string `json:"questions"` // still open
	Answers   Answers  `json:"answers"`

	PeakRate         float64  `json:"peak_rate,omitempty"`         // reserves a second of the hottest item
	Rate             float64  `json:"rate,omitempty"`              // of all items
	RowHoldMS        float64  `json:"row_hold_ms,omitempty"`       // how long a reserve keeps a single row
	RowRate          float64  `json:"row_rate,omitempty"`          // what one row takes: 1 / hold
	RowBusy          float64  `json:"row_busy,omitempty"`          // share of the time that the peak keeps it locked; over 1: it can't
	ConflictRate     *float64 `json:"conflict_rate,omitempty"`     // of a version compare-and-set, 0 to 1
	ConflictBand     string   `json:"conflict_band,omitempty"`     // what to do at that rate
	ConflictMeasured bool     `json:"conflict_measured,omitempty"` // false: worked out from row_busy
	ConnectionsNow   *float64 `json:"connections_now,omitempty"`   // absent: unknown, or no number is enough
	ConnectionsAfter *float64 `json:"connections_after,omitempty"` // absent: unknown
	Sources          []string `json:"sources,omitempty"`           // where the numbers are from
}

const (
	// roomy: a row that is busy for less of its time leaves room for twice the peak.
	roomy = 0.5
	// crowded: a conflict rate from which on the row itself is the problem.
	crowded = 0.5
)

// Band is the way that suits a conflict rate (conflicts by attempts, 0 to 1).
func Band(rate float64) string {
	switch {
	case rate < 0.05:
		return "optimistic"
	case rate < 0.20:
		return "optimistic with bounded retry and backoff"
	case rate < crowded:
		return "pessimistic, or smooth the peak"
	default:
		return "remove the hot spot"
	}
}

// Judge says whether to migrate. It is a pure function: the same numbers and
// answers give the same advice.
func Judge(n Numbers, answers Answers) Advice {
	n.Rate = max(n.Rate, n.PeakRate)
	a := Advice{Answers: answers, PeakRate: n.PeakRate, Rate: n.Rate, Questions: questions(answers)}
	if a.Reasons = exclusions(answers); len(a.Reasons) > 0 && (n.PeakRate <= 0 || n.RowHold <= 0) {
		a.Verdict = Dont
		return a
	}
	excluded := len(a.Reasons) > 0
	a.Verdict = a.byRow(n)
	a.conflicts(n)
	if a.Verdict == Depends && a.RowBusy >= roomy && !n.RowHoldIsBound && *a.ConflictRate >= crowded {
		a.Verdict = Migrate
	}
	if a.Verdict == Migrate && n.BatchedRow*roomy >= n.PeakRate {
		a.Verdict = Depends
		a.say("It depends on what you would rather run: one row took %s reserves a second when the calls of one process were combined into one conditional UPDATE. That holds this peak too, with less to operate, if every instance combines its calls.", count(n.BatchedRow))
	}
	a.connections(n)
	switch {
	case excluded:
		a.Verdict = Dont
	case a.Verdict == Migrate && len(a.Questions) > 0:
		a.Verdict = Depends
		a.say("The numbers say yes; what they can't say is asked below.")
	}
	return a
}

// byRow holds the hottest item's peak against what one row takes.
func (a *Advice) byRow(n Numbers) Verdict {
	switch {
	case n.PeakRate <= 0 && n.RowHold <= 0:
		a.say("Neither the hottest item's peak rate nor the hold time of a single row is known: give --peak-rate and --hold-ms, or --url of a pod under load and --bench with the file of `holdover bench hot --json`.")
		return Depends
	case n.RowHold <= 0:
		a.say("The hottest item's peak is %s reserves a second, but the hold time of a single row is not known: give --hold-ms, or --bench with the file of `holdover bench hot --json`.", count(n.PeakRate))
		return Depends
	}
	a.RowHoldMS, a.RowRate = n.RowHold.Seconds()*1000, 1/n.RowHold.Seconds()
	if n.PeakRate <= 0 {
		a.say("One row takes up to %s reserves a second (one keeps it locked for %s); the hottest item's peak rate is not known: give --peak-rate, or --url of a pod under load. Below about %s a second a conditional UPDATE is enough.", count(a.RowRate), span(n.RowHold), count(roomy*a.RowRate))
		return Depends
	}
	a.RowBusy = n.PeakRate / a.RowRate
	a.say("The hottest item's peak is %s reserves a second; a reserve keeps a single row locked for %s%s, so one row takes %s a second and the peak fills %s of that.", count(n.PeakRate), bound(n), span(n.RowHold), count(a.RowRate), percent(a.RowBusy))
	if a.RowBusy < roomy {
		a.say("A conditional UPDATE of that row is enough, up to about %s reserves a second of one item.", count(roomy*a.RowRate))
		return Dont
	}
	if n.RowHoldIsBound {
		a.say("That hold time is what a claim keeps a connection, waiting included, so the row may take more: measure it with `holdover bench hot --json` and give the file with --bench.")
		return Depends
	}
	if a.RowBusy >= 1 {
		a.say("One row can't take that, however many connections wait for it.")
		return Migrate
	}
	a.say("One row takes that, but a reserve waits %s for it on average, and twice the peak would not fit: smooth the peak, or migrate before it grows.", span(queue(n.RowHold, a.RowBusy)))
	return Depends
}

func bound(n Numbers) string {
	if n.RowHoldIsBound {
		return "at most "
	}
	return ""
}

// queue is the average wait for the row when reserves come by chance and each
// keeps it for about the same time again and again (M/M/1).
func queue(hold time.Duration, busy float64) time.Duration {
	return time.Duration(float64(hold) * busy / (1 - busy))
}

// conflicts names the band: from the measured rate, or else from how often
// another reserve comes by chance while one is between its read and its write.
func (a *Advice) conflicts(n Numbers) {
	rate, how := 1-math.Exp(-a.RowBusy), "would lose about"
	switch {
	case n.Conflicts != nil:
		rate, how, a.ConflictMeasured = *n.Conflicts, "loses", true
	case a.RowBusy == 0:
		return
	}
	a.ConflictRate, a.ConflictBand = &rate, Band(rate)
	instead := ""
	if rate >= 0.20 && a.RowBusy < roomy {
		instead = " A conditional UPDATE waits its turn instead."
	}
	a.say("A version compare-and-set %s %s of its attempts; advised at that rate: %s.%s", how, percent(rate), a.ConflictBand, instead)
}

// connections is Little's law: rate times hold time. Waiting for the row is
// part of the hold, for the hottest item.
func (a *Advice) connections(n Numbers) {
	now, after := n.ConnectionsNow, 0.0
	if now == 0 && a.RowBusy > 0 && a.RowBusy < 1 {
		now = n.Rate*n.RowHold.Seconds() + n.PeakRate*queue(n.RowHold, a.RowBusy).Seconds()
	}
	if n.HoldAfter > 0 && n.Rate > 0 {
		after = n.OtherConnections + n.Rate*n.HoldAfter.Seconds()
	}
	if now > 0 {
		a.ConnectionsNow = &now
	}
	if after > 0 {
		a.ConnectionsAfter = &after
	}
	var words []string
	switch {
	case n.ConnectionsNow > 0:
		words = append(words, fmt.Sprintf("%s now, measured at %s reserves a second", connections(now), count(n.RateNow)))
	case a.RowBusy >= 1:
		words = append(words, fmt.Sprintf("no number is enough with a single row at %s reserves a second", count(n.Rate)))
	case now > 0:
		words = append(words, fmt.Sprintf("%s with a single row at %s reserves a second", connections(now), count(n.Rate)))
	}
	switch {
	case after > 0:
		words = append(words, fmt.Sprintf("%s with the unit pool at %s", connections(after), count(n.Rate)))
	case len(words) > 0:
		words = append(words, "not known with the unit pool (a file of `holdover bench hot --json` tells)")
	default:
		return
	}
	a.say("Connections to MySQL by Little's law, rate x hold time: %s.", strings.Join(words, "; "))
}

// exclusions are the answers that rule the unit pool out, whatever the numbers.
func exclusions(a Answers) []string {
	why := []string{}
	if a.LedgerHere == No {
		why = append(why, "The ledger is in another database: reservation and deduction can't be one transaction there, and that is what the move is for.")
	}
	if a.Interchangeable == No {
		why = append(why, "The units are not interchangeable: a buyer who wants one of them has nothing from a pool that hands out any. A conditional UPDATE of that unit's own row is the way.")
	}
	if a.FIFO == Yes {
		why = append(why, "It must be first come, first served: the pool gives rows to whoever finds them unlocked, in no order. That needs a queue.")
	}
	return why
}

func questions(a Answers) []string {
	open := []string{}
	if a.LedgerHere == Open {
		open = append(open, "Is the inventory ledger in this MySQL database? (--ledger-here=yes|no; no rules it out)")
	}
	if a.Interchangeable == Open {
		open = append(open, "Is one unit of an item as good as any other? (--interchangeable=yes|no; no rules it out)")
	}
	if a.FIFO == Open {
		open = append(open, "Must it be strictly first come, first served? (--fifo=yes|no; yes rules it out)")
	}
	return open
}
