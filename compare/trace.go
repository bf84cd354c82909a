package compare

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"holdover"
)

const (
	traceLen    = 4096            // operations that are remembered
	traceChunk  = 256             // looked through at a time: an observer waits for no more
	traceItems  = 4               // items of one of them that are remembered
	traceWithin = 2 * time.Second // of the divergence
	traceMost   = 20              // operations of one trace, the nearest in time
	traceAfter  = time.Second     // how long a divergence waits for what comes after it
)

// Traced is an operation around a divergence: of its token, or of one of its
// items.
type Traced struct {
	Seq   uint64         `json:"seq"` // place among the eligible observations of its run
	At    time.Time      `json:"at"`
	Stage holdover.Stage `json:"stage"`
	Epoch holdover.Epoch `json:"epoch"`
	Op    string         `json:"op"`
	Token string         `json:"token"`
	Units int64          `json:"units"` // of its lines
	Redis string         `json:"redis"`
	MySQL string         `json:"mysql"`
	Kind  Kind           `json:"kind"`
}

// step is an operation as the ring remembers it.
type step struct {
	seq          uint64
	at           int64 // Unix nanoseconds, of the call's begin
	shop         int64
	items        [traceItems]int64
	units        int64
	epoch        holdover.Epoch
	token        holdover.Token
	numItems     uint8
	stage        holdover.Stage
	op           holdover.Op
	redis, mysql holdover.Outcome
	kind         Kind
}

// ring remembers the newest operations. It has a lock of its own: looking
// through it stops no count.
type ring struct {
	mu    sync.Mutex
	steps []step // traceLen
	next  uint64 // how many were put in
}

func newRing() *ring { return &ring{steps: make([]step, traceLen)} }

func (r *ring) put(seq uint64, o *holdover.Observation, f *finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.steps[r.next%traceLen]
	r.next++
	s.seq, s.at, s.shop, s.units, s.epoch, s.token = seq, o.At.UnixNano(), o.Shop, unitsOf(o.Lines), o.Epoch, o.Token
	s.stage, s.op, s.redis, s.mysql, s.kind = o.Stage, o.Op, o.Redis.Outcome, o.MySQL.Outcome, f.kind
	s.numItems = uint8(min(len(o.Lines), traceItems))
	for i := range s.numItems {
		s.items[i] = o.Lines[i].Item
	}
}

// around returns the remembered operations nearest to o, which is not among them.
func (r *ring) around(seq uint64, o *holdover.Observation) []step {
	at := o.At.UnixNano()
	near := make([]step, 0, traceMost)
	for from := 0; from < traceLen; from += traceChunk {
		r.mu.Lock()
		for i := range r.steps[from : from+traceChunk] {
			s := &r.steps[from+i]
			if s.seq != 0 && s.seq != seq && distance(s.at, at) <= int64(traceWithin) && s.concerns(o) {
				near = insert(near, s, at)
			}
		}
		r.mu.Unlock()
	}
	return near
}

// insert keeps the traceMost steps that are nearest to a time, the nearest first,
// each once.
func insert(near []step, s *step, at int64) []step {
	d := distance(s.at, at)
	if len(near) == traceMost && d >= distance(near[traceMost-1].at, at) {
		return near
	}
	i := len(near)
	for i > 0 && d < distance(near[i-1].at, at) {
		i--
	}
	if slices.ContainsFunc(near, func(n step) bool { return n.seq == s.seq }) {
		return near
	}
	if len(near) == traceMost {
		near = near[:traceMost-1]
	}
	return slices.Insert(near, i, *s)
}

func (s *step) concerns(o *holdover.Observation) bool {
	if s.token == o.Token {
		return true
	}
	if s.shop != o.Shop {
		return false
	}
	for _, item := range s.items[:s.numItems] {
		for i := range o.Lines {
			if o.Lines[i].Item == item {
				return true
			}
		}
	}
	return false
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// traced puts steps into their public form, in the order they were observed.
func traced(steps []step) (rows []Traced) {
	for _, s := range slices.SortedFunc(slices.Values(steps), func(a, b step) int { return cmp.Compare(a.seq, b.seq) }) {
		rows = append(rows, Traced{
			Seq: s.seq, At: plain(time.Unix(0, s.at)), Stage: s.stage, Epoch: s.epoch, Op: s.op.String(), Token: s.token.String(),
			Units: s.units, Redis: s.redis.String(), MySQL: s.mysql.String(), Kind: s.kind,
		})
	}
	return rows
}
