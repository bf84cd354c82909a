package connhold

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// MaxTags bounds the tags that Totals keeps apart. Holds under any further one
// are counted under Other.
const MaxTags = 64

// The names under which holds are counted that have no tag of their own.
const (
	Untagged = "untagged"
	Other    = "other"
)

// Buckets is the size of a Total's histogram: bucket i counts the holds of at
// most 2^i µs that are in none before it; the last, from 17 s on, is open.
const Buckets = 26

// Totals is a Recorder that sums hold time by tag: which business process
// occupies the connections. The zero value is ready for use. It is safe for
// concurrent use, and a known tag costs no lock.
type Totals struct {
	mu   sync.Mutex                      // taken by a tag's first hold
	tags atomic.Pointer[map[string]*sum] // replaced, never changed
}

type sum struct {
	nanos   atomic.Int64
	buckets [Buckets]atomic.Int64
}

// Total is one tag's share.
type Total struct {
	Tag     string
	Count   int64
	Held    time.Duration // summed over all holds
	Buckets [Buckets]int64
}

// Held adds one hold. A Recorder's method.
func (t *Totals) Held(tag string, d time.Duration) {
	d = max(d, 0)
	s := t.sum(tag)
	s.nanos.Add(int64(d))
	s.buckets[bucket(d)].Add(1)
}

// bucket: the smallest i with d <= 2^i µs.
func bucket(d time.Duration) int {
	micros := (max(d, 1) - 1) / time.Microsecond
	return min(bits.Len64(uint64(micros)), Buckets-1)
}

func (t *Totals) sum(tag string) *sum {
	if tag == "" {
		tag = Untagged
	}
	if tags := t.tags.Load(); tags != nil {
		if s := (*tags)[tag]; s != nil {
			return s
		}
		if len(*tags) > MaxTags {
			return (*tags)[Other]
		}
	}
	return t.add(tag)
}

func (t *Totals) add(tag string) *sum {
	t.mu.Lock()
	defer t.mu.Unlock()
	tags := map[string]*sum{Other: {}}
	if old := t.tags.Load(); old != nil {
		tags = maps.Clone(*old)
	}
	if s := tags[tag]; s != nil { // somebody else's first
		return s
	}
	if len(tags) > MaxTags {
		return tags[Other]
	}
	tags[tag] = new(sum)
	t.tags.Store(&tags)
	return tags[tag]
}

// Snapshot returns the tags that held a connection, the longest total first.
// Holds that end meanwhile may be in it in part.
func (t *Totals) Snapshot() []Total {
	tags := t.tags.Load()
	if tags == nil {
		return nil
	}
	var all []Total
	for tag, s := range *tags {
		total := Total{Tag: tag, Held: time.Duration(s.nanos.Load())}
		for i := range s.buckets {
			total.Buckets[i] = s.buckets[i].Load()
			total.Count += total.Buckets[i]
		}
		if total.Count > 0 {
			all = append(all, total)
		}
	}
	slices.SortFunc(all, func(a, b Total) int {
		return cmp.Or(cmp.Compare(b.Held, a.Held), cmp.Compare(a.Tag, b.Tag))
	})
	return all
}

// Mean is the hold time of one hold, 0 when there was none.
func (t Total) Mean() time.Duration { return t.Held / time.Duration(max(t.Count, 1)) }

// Quantile returns a bound that the share q of all holds does not exceed: the
// upper end of a bucket, so at most twice the true value. It is 0 when there
// was no hold, and the open bucket's lower end when it falls in there.
func (t Total) Quantile(q float64) time.Duration {
	if t.Count == 0 {
		return 0
	}
	rank, seen := int64(math.Ceil(q*float64(t.Count))), int64(0)
	for i, n := range t.Buckets {
		if seen += n; seen >= rank && n > 0 {
			return time.Microsecond << min(i, Buckets-2)
		}
	}
	return time.Microsecond << (Buckets - 2)
}
