package compare

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"holdover"
)

// Event is one observation that was kept, with what was made of it. It is the
// record of the event file and of a report's samples; names are written out,
// so that a file outlives the numbers of a version.
type Event struct {
	Seq       uint64          `json:"seq"` // place among the eligible observations of its run, from 1
	Kind      Kind            `json:"kind"`
	Was       Kind            `json:"was,omitempty"` // the explanation, when its budget was used up
	Direction Direction       `json:"direction"`
	Units     int64           `json:"units"`
	Why       string          `json:"why,omitempty"`
	Diff      string          `json:"diff,omitempty"` // - redis, + mysql
	Run       string          `json:"run"`
	Pod       string          `json:"pod"`
	Instance  string          `json:"instance,omitempty"`
	At        time.Time       `json:"at"`
	Epoch     holdover.Epoch  `json:"epoch"`
	Stage     holdover.Stage  `json:"stage"`
	Op        string          `json:"op"`
	Shop      int64           `json:"shop_id"`
	Token     string          `json:"token"`
	Lines     []holdover.Line `json:"lines,omitempty"`
	Redis     Side            `json:"redis"`
	MySQL     Side            `json:"mysql"`
	Evidence  []string        `json:"evidence,omitempty"`
	Reason    string          `json:"reason,omitempty"` // the decision's reason
}

// Side is one store's answer in an event.
type Side struct {
	Outcome   string         `json:"outcome"`
	State     holdover.State `json:"state"`
	Remaining []int64        `json:"remaining,omitempty"`
	LatencyNS int64          `json:"latency_ns"`
	Probe     bool           `json:"probe,omitempty"`
	Err       string         `json:"err,omitempty"`
}

// maxErrText bounds a store's error text in an event.
const maxErrText = 300

// kept is an observation that was chosen: its event is made once, off the hot
// path, by whoever needs it first (the writer or a report).
type kept struct {
	seq  uint64
	was  Kind
	find finding
	obs  holdover.Observation
	over string // why its budget was used up

	once  sync.Once
	event Event
}

// keep copies what the caller may reuse.
func keep(o holdover.Observation) *kept {
	o.Lines = append([]holdover.Line(nil), o.Lines...)
	o.Evidence = append([]holdover.Evidence(nil), o.Evidence...)
	o.Redis.Remaining = append([]int64(nil), o.Redis.Remaining...)
	o.MySQL.Remaining = append([]int64(nil), o.MySQL.Remaining...)
	return &kept{obs: o}
}

func (k *kept) render(run string) Event {
	k.once.Do(func() { k.event = k.build(run) })
	return k.event
}

func (k *kept) build(run string) Event {
	o := k.obs
	e := Event{
		Seq: k.seq, Kind: k.find.kind, Was: k.was, Direction: k.find.direction, Units: k.find.units,
		Why: why(k.find, o), Run: run, Pod: o.Pod, Instance: o.Instance, At: plain(o.At), Epoch: o.Epoch,
		Stage: o.Stage, Op: o.Op.String(), Shop: o.Shop, Token: o.Token.String(), Lines: o.Lines,
		Redis: sideOf(o.Redis), MySQL: sideOf(o.MySQL), Reason: strings.ToValidUTF8(o.Reason, "?"),
	}
	if k.over != "" {
		e.Why = k.over
	}
	for _, ev := range o.Evidence {
		e.Evidence = append(e.Evidence, ev.String())
	}
	if e.Kind.Divergence() {
		e.Diff = explainDiff(e.Redis, e.MySQL)
	}
	return e
}

// explainDiff is the text of a mismatch. go-cmp panics on types that it can't
// look into, so its failure must never be the comparison's failure.
func explainDiff(redis, mysql Side) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprintf("no text: %v", r)
		}
	}()
	type said struct {
		Outcome   string
		State     string
		Remaining []int64
	}
	d := cmp.Diff(said{redis.Outcome, redis.State.String(), redis.Remaining}, said{mysql.Outcome, mysql.State.String(), mysql.Remaining})
	// go-cmp puts no-break spaces in at random so that nobody parses its text.
	return strings.ReplaceAll(d, "\u00a0", " ")
}

func sideOf(a holdover.Answer) Side {
	text := strings.ToValidUTF8(a.Err, "?")
	if len(text) > maxErrText {
		text = strings.ToValidUTF8(text[:maxErrText], "") + "..."
	}
	return Side{
		Outcome: a.Outcome.String(), State: a.State, Remaining: a.Remaining,
		LatencyNS: int64(a.Latency), Probe: a.Probe, Err: text,
	}
}

// plain drops the monotonic reading and the zone, which a file can't keep.
func plain(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Round(0).UTC()
}
