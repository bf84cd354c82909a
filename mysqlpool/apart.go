package mysqlpool

import (
	"sync"
	"time"
)

// maxApart bounds the groups of one rest that are under way at a time.
const maxApart = 8

// groupsOf puts calls of one key together, and each of the others alone.
func groupsOf[C any](calls []*C, of func(*C) key, alone []*C) [][]*C {
	var groups [][]*C
	place := map[key]int{}
	for _, c := range calls {
		k := of(c)
		i, there := place[k]
		if !there {
			i = len(groups)
			place[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	for _, c := range alone {
		groups = append(groups, []*C{c})
	}
	return groups
}

// apart carries out groups of calls at the same time: one that waits for a lock
// does not make the others wait. A panic of one is the caller's to have.
func apart[C any](groups [][]*C, run func([]*C)) {
	if len(groups) == 1 {
		run(groups[0])
		return
	}
	var wg sync.WaitGroup
	var once sync.Once
	var broken any
	slots := make(chan struct{}, maxApart)
	for _, group := range groups {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					once.Do(func() { broken = p })
				}
				<-slots
			}()
			run(group)
		})
	}
	wg.Wait()
	if broken != nil {
		panic(broken)
	}
}

// contended remembers the locations where somebody else has kept a lock: their
// calls go apart at once, instead of making others wait to find out again. It is
// bounded: what does not fit in is found out again.
type contended struct {
	mu    sync.Mutex
	until map[key]time.Time
}

const (
	maxContended = 10_000
	contendedFor = 2 * time.Second
)

func (c *contended) mark(keys []key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.until == nil {
		c.until = make(map[key]time.Time)
	}
	for k, until := range c.until {
		if now.After(until) {
			delete(c.until, k)
		}
	}
	for _, k := range keys {
		if len(c.until) < maxContended {
			c.until[k] = now.Add(contendedFor)
		}
	}
}

func (c *contended) any(keys []key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.until) == 0 {
		return false
	}
	now := time.Now()
	for _, k := range keys {
		if now.Before(c.until[k]) {
			return true
		}
	}
	return false
}
