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
	Marks     []string        `json:"marks,omitempty"` // what was special about the call
	Evidence  []string        `json:"evidence,omitempty"`
	Proof     *holdover.Proof `json:"proof,omitempty"`  // what was read with the evidence: both stores' state of the items
	Trace     []Traced        `json:"trace,omitempty"`  // operations around it, of its token or items
	Reason    string          `json:"reason,omitempty"` // the decision's reason
	Next      string          `json:"next,omitempty"`   // what to do about it
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

// kept is an observation that was chosen. Its event is made off the hot path.
type kept struct {
	seq  uint64
	find finding
	obs  holdover.Observation
	room room // what obs points to

	mu    sync.Mutex
	trace []step // found so far, the nearest first
	event *Event // once nothing more is added to it
}

// room is where the slices of a usual observation are copied to: keeping one
// takes one allocation.
type room struct {
	lines     [4]holdover.Line
	evidence  [2]holdover.Evidence
	remaining [2][4]int64
	proof     holdover.Proof
	sides     [3]holdover.ItemSides
	stocks    [3][2]holdover.Stock
}

// keep copies what the caller may reuse.
func keep(o *holdover.Observation, seq uint64, f *finding) *kept {
	k := &kept{seq: seq, find: *f, obs: *o}
	k.obs.Lines = into(k.room.lines[:], o.Lines)
	k.obs.Evidence = into(k.room.evidence[:], o.Evidence)
	k.obs.Redis.Remaining = into(k.room.remaining[0][:], o.Redis.Remaining)
	k.obs.MySQL.Remaining = into(k.room.remaining[1][:], o.MySQL.Remaining)
	if o.Proof == nil {
		return k
	}
	p := &k.room.proof
	*p = *o.Proof
	p.Sides = into(k.room.sides[:], p.Sides)
	for i := range p.Sides {
		stocks := []holdover.Stock(nil)
		if i < len(k.room.stocks) {
			stocks = k.room.stocks[i][:]
		}
		p.Sides[i].MySQL = into(stocks, p.Sides[i].MySQL)
	}
	p.GrantedAt, p.DualSince, p.AnsweredAt = plain(p.GrantedAt), plain(p.DualSince), plain(p.AnsweredAt)
	p.RedisExpires, p.MySQLExpires = plain(p.RedisExpires), plain(p.MySQLExpires)
	k.obs.Proof = p
	return k
}

// into copies a slice into room that is there, or elsewhere when it is too small.
func into[T any](room, from []T) []T {
	if len(from) == 0 {
		return nil
	}
	return append(room[:0], from...)
}

// look adds what the ring has of the operations around k.
func (k *kept) look(r *ring) {
	found := r.around(k.seq, &k.obs)
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range found {
		k.trace = insert(k.trace, &found[i], k.obs.At.UnixNano())
	}
}

// settle makes the event that stands from now on.
func (k *kept) settle(run string) Event {
	e := k.render(run)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.event = &e
	return e
}

// render returns the event, as far as it is known.
func (k *kept) render(run string) Event {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.event != nil {
		return *k.event
	}
	o := &k.obs
	e := Event{
		Seq: k.seq, Kind: k.find.kind, Direction: k.find.direction, Units: k.find.units,
		Why: why(k.find, o), Run: run, Pod: o.Pod, Instance: o.Instance, At: plain(o.At), Epoch: o.Epoch,
		Stage: o.Stage, Op: o.Op.String(), Shop: o.Shop, Token: o.Token.String(), Lines: o.Lines,
		Redis: sideOf(o.Redis), MySQL: sideOf(o.MySQL), Marks: markNames(o.Marks), Proof: o.Proof,
		Reason: strings.ToValidUTF8(o.Reason, "?"),
	}
	for _, ev := range o.Evidence {
		e.Evidence = append(e.Evidence, ev.String())
	}
	if e.Kind.Divergence() {
		e.Diff = explainDiff(e.Redis, e.MySQL)
		e.Trace = traced(k.trace)
		e.Next = Next(e.Kind, e.Stage)
	}
	return e
}

func markNames(m holdover.Marks) (names []string) {
	for i, name := range [...]string{"replayed", "late", "part", "choice", "split", "moved", "undecided"} {
		if m.Has(1 << i) {
			names = append(names, name)
		}
	}
	return names
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
