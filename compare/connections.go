package compare

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// maxTags bounds the stores and tags that ConnectionTimes keeps apart; holds
// under any further one count under the tag other.
const maxTags = 64

// ConnectionTimes collects how long connections were taken, by store and by
// what for. The zero value is ready for use, by many goroutines.
type ConnectionTimes struct {
	mu sync.Mutex
	by map[connectionKey]*series
}

type connectionKey struct{ store, tag string }

// Held adds one hold. It is quick, and keeps nothing but figures.
func (c *ConnectionTimes) Held(store, tag string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := connectionKey{store, tag}
	s := c.by[key]
	if s == nil && len(c.by) >= maxTags {
		key.tag = "other"
		s = c.by[key]
	}
	if s == nil {
		if c.by == nil {
			c.by = make(map[connectionKey]*series)
		}
		s, _ = newSeries(defaultAccuracy) // a constant that fits
		c.by[key] = s
	}
	_ = s.add(float64(max(d, 0)) / 1e3) // never NaN
}

// Take returns what was added since the last Take: for Config.Connections.
func (c *ConnectionTimes) Take() []Connection {
	c.mu.Lock()
	taken := c.by
	c.by = nil
	c.mu.Unlock()
	rows := make([]Connection, 0, len(taken))
	for key, s := range taken {
		rows = append(rows, Connection{Store: key.store, Tag: key.tag, Holds: s.n, Held: s.quantiles()})
	}
	sortConnections(rows)
	return rows
}

func sortConnections(rows []Connection) {
	slices.SortFunc(rows, func(a, b Connection) int {
		return cmp.Or(cmp.Compare(a.Store, b.Store), cmp.Compare(a.Tag, b.Tag))
	})
}
