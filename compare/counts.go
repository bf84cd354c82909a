package compare

import "holdover"

// Tally counts one kind in one direction.
type Tally struct {
	Kind      Kind      `json:"kind"`
	Direction Direction `json:"direction"`
	Count     uint64    `json:"count"`
	Units     int64     `json:"units"`
}

// OperationCount counts one operation in one stage.
type OperationCount struct {
	Stage    holdover.Stage `json:"stage"`
	Op       string         `json:"op"`
	Eligible uint64         `json:"eligible"`
	Compared uint64         `json:"compared"`
	Differed uint64         `json:"differed"`
}

// Unanswered counts one pair of outcomes that could not be compared.
type Unanswered struct {
	Redis string `json:"redis"`
	MySQL string `json:"mysql"`
	Count uint64 `json:"count"`
}

// Counts are the exact figures of a run: every observation is in them,
// whatever happened to its event.
type Counts struct {
	// Eligible is every observation of a dual stage. It is the sum of all
	// kinds but foreign-write, and of the operations.
	Eligible uint64 `json:"eligible"`
	// Compared is how many of them had an answer from both sides.
	Compared uint64 `json:"compared"`
	// Ignored is observations outside a dual stage, or of another pod.
	Ignored uint64 `json:"ignored"`
	// Kinds has a row for each kind and direction that occurred.
	Kinds []Tally `json:"kinds,omitempty"`
	// Operations has a row for each stage and operation that occurred.
	Operations []OperationCount `json:"operations,omitempty"`
	// NotComparable splits that kind by what the two sides said.
	NotComparable []Unanswered `json:"not_comparable,omitempty"`
	// Planted is on reserved shops, and in no other figure.
	Planted []Planted `json:"planted,omitempty"`
	// EventsDropped is events that found the queue full; their counts stand.
	EventsDropped uint64 `json:"events_dropped"`
	// EventsFailed is events and rollups that could not be written.
	EventsFailed uint64 `json:"events_failed"`
	// Panics is observations whose comparison panicked; they count as not comparable.
	Panics uint64 `json:"panics"`
	// Untimed is compared observations without a time on both sides.
	Untimed uint64 `json:"untimed"`
}

// Count adds up one kind over its directions.
func (c Counts) Count(k Kind) (count uint64, units int64) {
	for _, t := range c.Kinds {
		if t.Kind == k {
			count += t.Count
			units = addUnits(units, t.Units)
		}
	}
	return count, units
}

// Coverage is compared over eligible; zero when nothing was eligible.
func (c Counts) Coverage() float64 {
	if c.Eligible == 0 {
		return 0
	}
	return float64(c.Compared) / float64(c.Eligible)
}

// public puts the figures into rows.
func (c *counts) public() Counts {
	n := Counts{
		Ignored: c.ignored, EventsDropped: c.dropped, EventsFailed: c.failed, Panics: c.panics, Untimed: c.untimed,
		Planted: c.plants(),
	}
	var all cell
	for stage := range c.cells {
		for op := range c.cells[stage] {
			from := &c.cells[stage][op]
			if from.eligible == 0 {
				continue
			}
			all.add(from)
			n.Operations = append(n.Operations, OperationCount{
				Stage: firstDual + holdover.Stage(stage), Op: holdover.Op(op).String(),
				Eligible: from.eligible, Compared: from.compared, Differed: from.differed,
			})
		}
	}
	n.Eligible, n.Compared, n.Kinds = all.eligible, all.compared, rows(&all.kinds)
	for redis := range all.outcomes {
		for mysql, count := range all.outcomes[redis] {
			if count > 0 && !(isAnswer(redis) && isAnswer(mysql)) {
				n.NotComparable = append(n.NotComparable, Unanswered{
					Redis: holdover.Outcome(redis).String(), MySQL: holdover.Outcome(mysql).String(), Count: count,
				})
			}
		}
	}
	return n
}

func rows(from *[numKinds][numDirections]amount) (rows []Tally) {
	for k := range from {
		for d, a := range from[k] {
			if a.count > 0 {
				rows = append(rows, Tally{Kind: Kind(k), Direction: Direction(d), Count: a.count, Units: a.units})
			}
		}
	}
	return rows
}

func (c *counts) plants() (rows []Planted) {
	for want := range c.planted {
		for got, n := range c.planted[want] {
			if n > 0 {
				rows = append(rows, Planted{Want: Kind(want), Got: Kind(got), Count: n})
			}
		}
	}
	return rows
}

// isAnswer reports whether the outcome of this number can be compared.
func isAnswer(outcome int) bool {
	return answered(&holdover.Answer{Outcome: holdover.Outcome(outcome)})
}
