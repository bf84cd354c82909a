package workload

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"holdover"
)

// ErrAccountFull: the account took as many tokens or lines as it may. Nothing
// was asked of the store, because a sale outside the book can't be judged.
var ErrAccountFull = errors.New("the account is full: end the run, or raise its limits")

// AccountConfig bounds an account. Zero fields mean the defaults.
type AccountConfig struct {
	MaxTokens   int // tokens that it follows; 1,000,000 (about 200 bytes each)
	MaxLines    int // lines of all their carts; 20,000,000 (8 bytes each)
	MaxRefusals int // refusals that it keeps for judging; 1,000,000
	MaxSamples  int // texts of unexpected errors; 20
}

// Account is the auditor's book: what buyers were told, and when, by a clock
// that never goes back. It is filled by the Reservers that Watch returns and
// knows nothing else of the product. It is safe for concurrent use.
type Account struct {
	cfg    AccountConfig
	opened time.Time

	mu       sync.Mutex
	records  map[holdover.Token]*record
	order    []*record // by their first question: what the judges sort is nearly sorted
	refusals []refusal
	keys     []stockKey
	keyOf    map[stockKey]uint32
	slab     []cartLine // the current piece of memory for lines
	lines    int
	counts   Counts
	samples  []string
}

// Counts are running totals of what buyers were told.
type Counts struct {
	Tokens   int64 `json:"tokens"`   // reservations asked for
	Calls    int64 `json:"calls"`    // repeats included
	Granted  int64 `json:"granted"`  // tokens
	Refused  int64 `json:"refused"`  // answers "out of stock"
	Claimed  int64 `json:"claimed"`  // tokens, pending ones included
	Pending  int64 `json:"pending"`  // tokens whose first answer to a claim was "pending"
	Released int64 `json:"released"` // tokens
	Expired  int64 `json:"expired"`  // tokens whose buyer came too late and was told so
	Denied   int64 `json:"denied"`   // tokens that were granted and then not known any more
	NotNow   int64 `json:"not_now"`  // answers that nothing was done: not ready, overloaded, try again
	NoAnswer int64 `json:"no_answer"`
	Errors   int64 `json:"errors"` // answers that no buyer of this workload may get
	Unkept   int64 `json:"unkept"` // refusals over MaxRefusals, which are not judged
}

// clockGrain is by how much the stores' clocks, which count milliseconds, may
// be coarser than the book's.
const clockGrain = int64(10 * time.Millisecond)

// stockKey is a shop's item at a location.
type stockKey struct{ shop, item, group int64 }

// cartLine is a line in the compact form of the book.
type cartLine struct{ key, quantity uint32 }

// promise is what a token's buyer knows of the reservation itself.
type promise uint8

const (
	promiseAsked   promise = iota // no call has been answered
	promiseNothing                // an answer that promised nothing
	promiseRefused                // out of stock
	promiseGranted
)

// ending is what the buyer knows of the hold's end.
type ending uint8

const (
	endOpen     ending = iota
	endDenied          // it was granted, and then not known, or ended by nobody
	endExpired         // told on a claim or a release
	endReleased        // told
	endPending         // the claim is certain
	endClaimed         // told
)

var endingNames = [...]string{"open", "denied", "expired", "released", "pending", "claimed"}

func (e ending) String() string { return endingNames[e] }

// record is all that buyers were told about one token. Times are nanoseconds
// since the account was opened; zero: it did not happen.
type record struct {
	token holdover.Token
	shop  int64
	lines []cartLine
	ttl   int64

	first   int64 // start of the first reserve
	last    int64 // end of the last reserve that ended, whatever its answer
	granted int64 // end of the first reserve that was granted
	expires int64 // as told, Unix milliseconds by the store's clock
	mayLive int64 // until then it may live, if an extension took effect that nobody was told of

	claimAsked, releaseAsked int64 // start of the first such call
	ended                    int64 // end of the call that told the ending

	part      []cartLine     // what a claim took, as told, when it was not all
	partAsked bool           // some claim asked for a part
	late      holdover.Token // under which it was claimed after it had expired, as told

	running uint16 // reserves without an end so far
	promise promise
	ending  ending
	loose   bool // some reserve got no clear answer: it may still take effect
	torn    bool // two answers contradict each other
}

// refusal is one answer "out of stock".
type refusal struct {
	rec        *record
	start, end int64
	store      holdover.Store
	stage      holdover.Stage
}

// NewAccount opens an empty book.
func NewAccount(cfg AccountConfig) *Account {
	set(&cfg.MaxTokens, 1_000_000)
	set(&cfg.MaxLines, 20_000_000)
	set(&cfg.MaxRefusals, 1_000_000)
	set(&cfg.MaxSamples, 20)
	return &Account{
		cfg: cfg,
		// One nanosecond back, so that no event is at zero.
		opened:  time.Now().Add(-1),
		records: map[holdover.Token]*record{},
		keyOf:   map[stockKey]uint32{},
	}
}

// Counts returns the totals so far.
func (a *Account) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts
}

// Samples returns the texts of the first unexpected errors.
func (a *Account) Samples() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.samples...)
}

func (a *Account) now() int64 { return int64(time.Since(a.opened)) }

// begin notes that a reserve is about to be asked for. r is normalized.
func (a *Account) begin(r holdover.Request) (*record, int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	rec := a.records[r.Token]
	if rec == nil {
		if len(a.records) >= a.cfg.MaxTokens || a.lines+len(r.Lines) > a.cfg.MaxLines {
			return nil, 0, ErrAccountFull
		}
		rec = &record{token: r.Token, shop: r.Shop, lines: a.compact(r), ttl: int64(r.TTL), first: now}
		a.add(rec)
	} else if rec.shop != r.Shop || !a.sameLines(rec, r.Lines) {
		return nil, now, nil // another reservation's token: the book has nothing to add
	}
	rec.ttl = max(rec.ttl, int64(r.TTL))
	rec.running++
	a.counts.Calls++
	return rec, now, nil
}

func (a *Account) add(rec *record) {
	a.records[rec.token] = rec
	a.order = append(a.order, rec)
	a.counts.Tokens++
}

// find returns the record of a token, or nil, and counts the call.
func (a *Account) find(token holdover.Token) (*record, int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counts.Calls++
	return a.records[token], a.now()
}

const slabSize = 1 << 14

func (a *Account) compact(r holdover.Request) []cartLine {
	if cap(a.slab)-len(a.slab) < len(r.Lines) {
		a.slab = make([]cartLine, 0, max(slabSize, len(r.Lines)))
	}
	from := len(a.slab)
	for _, l := range r.Lines {
		k := stockKey{r.Shop, l.Item, l.Group}
		id, ok := a.keyOf[k]
		if !ok {
			id = uint32(len(a.keys))
			a.keys = append(a.keys, k)
			a.keyOf[k] = id
		}
		a.slab = append(a.slab, cartLine{key: id, quantity: uint32(l.Quantity)})
	}
	a.lines += len(r.Lines)
	return a.slab[from:len(a.slab):len(a.slab)]
}

func (a *Account) sameLines(rec *record, lines []holdover.Line) bool {
	if len(rec.lines) != len(lines) {
		return false
	}
	for i, l := range rec.lines {
		k := a.keys[l.key]
		if lines[i] != (holdover.Line{Item: k.item, Group: k.group, Quantity: int64(l.quantity)}) {
			return false
		}
	}
	return true
}

// unexpected counts an answer that nobody may get, and keeps its text.
func (a *Account) unexpected(format string, args ...any) {
	a.counts.Errors++
	if len(a.samples) < a.cfg.MaxSamples {
		a.samples = append(a.samples, fmt.Sprintf(format, args...))
	}
}

// end notes what the buyer was told about the hold's end. A later word may
// only sharpen an earlier one; anything else is torn.
func (a *Account) end(rec *record, how ending, at int64) {
	switch {
	case rec.ending == how && how == endReleased:
		// Another call of the buyer's may have heard of it before the release itself
		// was answered: until then its units may be on their way back.
		rec.ended = max(rec.ended, at)
		return
	case rec.ending == how || rec.ending == endDenied:
		return
	case rec.ending == endOpen || rec.ending == endPending && how == endClaimed:
	case rec.ending == endExpired && rec.late != (holdover.Token{}) && (how == endClaimed || how == endPending):
		rec.ended = at // its units were gone at first, and could be taken later
	case rec.ending == endClaimed && how == endPending:
		return // a slower answer to an earlier call
	default:
		rec.torn = true
		a.unexpected("hold %s: told %s after %s", rec.token, how, rec.ending)
		return
	}
	switch how {
	case endPending:
		a.counts.Pending++
		a.counts.Claimed++
	case endClaimed:
		if rec.ending != endPending {
			a.counts.Claimed++
		}
	case endReleased:
		a.counts.Released++
	case endExpired:
		a.counts.Expired++
	case endDenied:
		a.counts.Denied++
	}
	if rec.ending == endOpen {
		rec.ended = at
	}
	rec.ending = how
}
