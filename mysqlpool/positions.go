package mysqlpool

import (
	"math"
	"sync"
	"time"
)

// positions is what this process remembers of each location's pool, so that a
// scan starts where the last one ended and a pool is refilled before it is
// empty. It is bounded; what is forgotten costs one longer scan and one count.
type positions struct {
	mu   sync.Mutex
	at   map[key]*position
	full int
	now  func() time.Time
}

type position struct {
	from  int64  // the next scan begins at this unit; zero is at the first one
	floor int64  // no row has a smaller number: numbers only grow
	next  int64  // the next unit's number when this process refilled last
	left  int64  // never fewer than the rows that nobody has locked, if nobody else has refilled since
	out   int64  // rows that transactions of this process have locked
	count uint64 // how often the rows were counted
	fills uint64 // how often this process has added rows

	shared time.Time // until then units are not listed: somebody else has taken some
	search time.Time // a scan of all rows that came short is not repeated before
	low    int64     // a refill is due below this

	sold  int64 // units taken since the rate was last worked out
	since time.Time
	rate  float64 // units a second, smoothed
	dry   time.Time
	stock bool // the ledger had more than was issued, at the last refill
}

const maxPositions = 100_000

// hintFrom is the unit from which on scans use a hint: before, there is little
// to skip.
const hintFrom = 1000

// sharedFor is how long a location counts as sold by others, too.
const sharedFor = 10 * time.Second

func newPositions() *positions {
	return &positions{at: make(map[key]*position), full: maxPositions, now: time.Now}
}

func (p *positions) get(k key) *position {
	pos := p.at[k]
	if pos == nil {
		if len(p.at) >= p.full {
			for other := range p.at { // any one
				delete(p.at, other)
				break
			}
		}
		pos = &position{since: p.now()}
		p.at[k] = pos
	}
	return pos
}

// place is where a location's units are looked for.
type place struct {
	from   int64 // the first number; zero is the first row
	listed bool  // the numbers from there on, as many as are wanted, and no others
}

// places returns where these locations' units are looked for. While nobody else
// sells them the next ones are known by their numbers: each transaction gets
// numbers of its own, and looks for nothing.
func (p *positions) places(wants []amount) []place {
	p.mu.Lock()
	defer p.mu.Unlock()
	places := make([]place, len(wants))
	for i, w := range wants {
		pos := p.at[w.key]
		switch {
		case pos == nil || pos.from < hintFrom:
		case pos.from+w.n <= pos.next && w.n <= maxList && p.now().After(pos.shared):
			places[i] = place{pos.from, true}
			pos.from += w.n
		default:
			places[i] = place{from: pos.from}
		}
	}
	return places
}

func (p *positions) floor(k key) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pos := p.at[k]; pos != nil {
		return pos.floor
	}
	return 0
}

// notAlone notes that units with numbers of this process were not there.
func (p *positions) notAlone(k key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.get(k).shared = p.now().Add(sharedFor)
}

// grabbed notes what a look found and where it ended.
func (p *positions) grabbed(w amount, n, last int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pos := p.get(w.key)
	pos.left -= n
	pos.out += n
	pos.from = max(pos.from, last+1)
}

// counted is how often the rows were counted, for back.
func (p *positions) counted(k key) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pos := p.at[k]; pos != nil {
		return pos.count
	}
	return 0
}

// rows is how many rows there are at most, when it is certain without a count:
// nobody but this process has made any since it counted.
func (p *positions) rows(k key, next int64) (rows int64, certain bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pos := p.at[k]
	switch {
	case pos == nil || pos.next == 0 || pos.next < next:
		return 0, false
	case pos.next > next: // the database was set back: nothing that is remembered holds
		delete(p.at, k)
		return 0, false
	}
	return max(0, pos.left+pos.out), true
}

// hasStock reports whether the ledger had more for all of these locations when
// their pools were filled last.
func (p *positions) hasStock(all []amount) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range all {
		if pos := p.at[a.key]; pos == nil || !pos.stock {
			return false
		}
	}
	return true
}

// filled is how often this process has added rows to the pool.
func (p *positions) filled(k key) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pos := p.at[k]; pos != nil {
		return pos.fills
	}
	return 0
}

// A scan of all rows that came short is repeated after searchEvery at the
// earliest, and after searchShare times as long as it took: with a blocked purge
// it reads every row that was ever sold.
const (
	searchEvery = time.Second
	searchShare = 200
)

// more reports whether there may be rows beyond the n that a hint led to.
func (p *positions) more(k key, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	pos := p.at[k]
	return pos == nil || pos.next == 0 || pos.left > n && p.now().After(pos.search)
}

// searched notes that a scan of all rows came short too, and what it cost.
func (p *positions) searched(k key, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.get(k).search = p.now().Add(max(searchEvery, searchShare*took))
}

// back notes the end of a transaction that had rows locked and sold some. If
// they were counted while it was being committed, it is not certain that the
// count had the sold ones in it: then they stay in the bound, which may be too
// high and never too low.
func (p *positions) back(locked amount, sold int64, count uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pos := p.get(locked.key)
	if pos.count != count {
		sold = 0
	}
	pos.out = max(0, pos.out-locked.n)
	pos.left += locked.n - sold
}

// took notes units that were sold and reports whether a refill is due. The rows
// left are counted by grabbed and back.
func (p *positions) took(k key, n int64) (low bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pos := p.get(k)
	pos.sold += n
	return pos.left < max(pos.low, 1) && p.now().After(pos.dry)
}

// found is what a refill has seen and made of a pool.
type found struct {
	floor    int64 // no row is before it; zero when they were not counted
	rows     int64
	counted  bool
	added    int64
	next     int64 // the next unit's number afterwards
	low      int64
	headroom bool // the ledger has more
}

// refilled notes a refill.
func (p *positions) refilled(k key, f found, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pos := p.get(k)
	pos.floor = max(pos.floor, f.floor)
	if f.counted {
		pos.from = max(pos.from, f.floor) // over what other instances have sold
	}
	if pos.from == 0 && f.added > 0 {
		pos.from = f.next - f.added
	}
	if f.counted {
		pos.count++
	}
	if f.added > 0 {
		pos.fills++
	}
	pos.left, pos.low, pos.next = f.rows-pos.out, f.low, f.next
	pos.stock = f.headroom
	if !f.headroom { // nothing more to give: not asked again at once
		pos.dry = p.now().Add(pause)
	}
}

// rateWindow is the shortest time over which a rate is worked out.
const rateWindow = 200 * time.Millisecond

// ahead is how many units the location will probably sell within d.
func (p *positions) ahead(k key, d time.Duration) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	pos := p.get(k)
	if passed := p.now().Sub(pos.since); passed >= rateWindow {
		measured := float64(pos.sold) / passed.Seconds()
		weight := 1 - math.Exp(-passed.Seconds()) // a second's memory
		if pos.rate == 0 {
			weight = 1
		}
		pos.rate += weight * (measured - pos.rate)
		pos.sold, pos.since = 0, p.now()
	}
	early := 0.0 // what a burst has sold since, at its own pace
	if passed := p.now().Sub(pos.since).Seconds(); passed > 0.01 {
		early = float64(pos.sold) / passed
	}
	return int64(max(pos.rate, early) * d.Seconds())
}
