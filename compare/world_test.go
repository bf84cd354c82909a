package compare

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"holdover"
)

// world is both stores as tables in memory, with the two read interfaces.
type world struct {
	mu      sync.Mutex
	redis   map[holdover.Token]holdover.Hold
	mysql   map[holdover.Token]holdover.Hold
	counter map[itemKey]int64
	stock   map[rowKey]holdover.Stock
	journal []holdover.Journaled
	owed    []holdover.Adjusted
	lowered []holdover.Lowered
	calls   int
	read    func(what string) // called before each read, without the lock
	fail    error             // what every read of redis answers
	hang    bool              // reads of mysql wait for their context
	stuck   bool              // listings answer with the same page
}

type redisTable struct{ *world }

type mysqlTable struct{ *world }

// newWorld has two items at two locations, 100 units each.
func newWorld() *world {
	w := &world{
		redis: map[holdover.Token]holdover.Hold{}, mysql: map[holdover.Token]holdover.Hold{},
		counter: map[itemKey]int64{}, stock: map[rowKey]holdover.Stock{},
	}
	for item := int64(1); item <= 2; item++ {
		w.counter[itemKey{1, item}] = 200
		for group := int64(1); group <= 2; group++ {
			w.stock[rowKey{1, item, group}] = holdover.Stock{Shop: 1, Item: item, Group: group, Available: 100, Issued: 20, Pooled: 20}
		}
	}
	return w
}

func (w *world) enter(what string) {
	if w.read != nil {
		w.read(what)
	}
	w.mu.Lock()
	w.calls++
}

// reserve takes q units of an item in both stores.
func (w *world) reserve(item, q int64) holdover.Token {
	h := holdover.Hold{
		Token: holdover.NewToken(), Shop: 1, State: holdover.StateHeld, Firm: true, GrantedAt: time.Now(),
		Lines: []holdover.Line{{Item: item, Group: 1, Quantity: q}},
	}
	w.takeRedis(h)
	w.takeMySQL(h)
	return h.Token
}

func (w *world) takeRedis(h holdover.Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redis[h.Token] = h
	for _, l := range h.Lines {
		w.counter[itemKey{h.Shop, l.Item}] -= l.Quantity
	}
}

func (w *world) takeMySQL(h holdover.Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mysql[h.Token] = h
	for _, l := range h.Lines {
		k := rowKey{h.Shop, l.Item, l.Group}
		s := w.stock[k]
		s.Issued, s.Held = s.Issued+l.Quantity, s.Held+l.Quantity
		w.stock[k] = s
	}
}

// end changes a hold's state in both stores, with what that does to the stock.
func (w *world) end(token holdover.Token, how holdover.State) {
	w.endRedis(token, how)
	w.endMySQL(token, how)
}

func (w *world) endRedis(token holdover.Token, how holdover.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.redis[token]
	if how != holdover.StateClaimed && how != holdover.StateClaiming {
		for _, l := range h.Lines {
			w.counter[itemKey{h.Shop, l.Item}] += l.Quantity
		}
	}
	h.State = how
	w.redis[token] = h
}

func (w *world) endMySQL(token holdover.Token, how holdover.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.mysql[token]
	for _, l := range h.Lines {
		k := rowKey{h.Shop, l.Item, l.Group}
		s := w.stock[k]
		s.Issued, s.Held = s.Issued-l.Quantity, s.Held-l.Quantity
		if how == holdover.StateClaimed {
			s.Available -= l.Quantity
		}
		w.stock[k] = s
	}
	h.State = how
	w.mysql[token] = h
}

// forget drops end records whose retention is over.
func (w *world) forget(tokens []holdover.Token) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range tokens {
		delete(w.redis, t)
		delete(w.mysql, t)
	}
}

func (w *world) foreignWrite(item, units int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counter[itemKey{1, item}] += units
}

func (w *world) changeStock(k rowKey, change func(*holdover.Stock)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stock[k]
	change(&s)
	w.stock[k] = s
}

func byToken(a, b holdover.Hold) int { return strings.Compare(a.Token.String(), b.Token.String()) }

func (w *world) live(of map[holdover.Token]holdover.Hold) (holds []holdover.Hold) {
	for _, h := range slices.SortedFunc(maps.Values(of), byToken) {
		if h.State.Live() {
			holds = append(holds, h)
		}
	}
	return holds
}

func (r redisTable) LiveHolds(_ context.Context, cursor uint64, count int) ([]holdover.Hold, uint64, error) {
	r.enter("redis holds")
	defer r.mu.Unlock()
	if r.fail != nil {
		return nil, 0, r.fail
	}
	if r.stuck {
		return nil, 7, nil
	}
	holds := r.world.live(r.redis)
	page := holds[min(int(cursor), len(holds)):]
	if len(page) <= count {
		return page, 0, nil
	}
	return page[:count], cursor + uint64(count), nil
}

func (r redisTable) Counters(_ context.Context, shop int64, items []int64) ([]int64, error) {
	r.enter("counters")
	defer r.mu.Unlock()
	var values []int64
	for _, item := range items {
		n, ok := r.counter[itemKey{shop, item}]
		if !ok {
			return nil, fmt.Errorf("item %d: %w", item, holdover.ErrNotLoaded)
		}
		values = append(values, n)
	}
	return values, nil
}

func (r redisTable) Lookup(_ context.Context, token holdover.Token) (holdover.Hold, error) {
	r.enter("redis lookup")
	defer r.mu.Unlock()
	return r.redis[token], nil
}

func (m mysqlTable) LiveHolds(ctx context.Context, after holdover.Token, limit int) ([]holdover.Hold, error) {
	m.enter("mysql holds")
	defer m.mu.Unlock()
	if m.hang {
		<-ctx.Done()
		return nil, &holdover.StoreError{Store: holdover.StoreMySQL, Pod: "p", Op: "list holds", Err: ctx.Err()}
	}
	holds := slices.DeleteFunc(m.world.live(m.mysql), func(h holdover.Hold) bool {
		return !m.stuck && byToken(h, holdover.Hold{Token: after}) <= 0
	})
	return holds[:min(limit, len(holds))], nil
}

func (m mysqlTable) Stocks(_ context.Context, after holdover.Stock, limit int) ([]holdover.Stock, error) {
	m.enter("stocks")
	defer m.mu.Unlock()
	compare := func(a, b holdover.Stock) int {
		return cmp.Or(cmp.Compare(a.Shop, b.Shop), cmp.Compare(a.Item, b.Item), cmp.Compare(a.Group, b.Group))
	}
	rows := slices.SortedFunc(maps.Values(m.stock), compare)
	rows = slices.DeleteFunc(rows, func(s holdover.Stock) bool { return compare(s, after) <= 0 })
	return rows[:min(limit, len(rows))], nil
}

func (m mysqlTable) StocksOf(_ context.Context, shop int64, items []int64) ([]holdover.Stock, error) {
	m.enter("stocks")
	defer m.mu.Unlock()
	rows := slices.Collect(maps.Values(m.stock))
	return slices.DeleteFunc(rows, func(s holdover.Stock) bool { return s.Shop != shop || !slices.Contains(items, s.Item) }), nil
}

func (r redisTable) LoweredAdjustments(context.Context, time.Duration, int) ([]holdover.Lowered, error) {
	r.enter("lowered")
	defer r.mu.Unlock()
	return slices.Clone(r.lowered), r.fail
}

func (m mysqlTable) Lookup(_ context.Context, token holdover.Token) (holdover.Hold, error) {
	m.enter("mysql lookup")
	defer m.mu.Unlock()
	h, ok := m.mysql[token]
	if !ok {
		return h, holdover.ErrUnknownHold // both ways of saying so are understood
	}
	return h, nil
}

func (m mysqlTable) Journal(context.Context, int) ([]holdover.Journaled, error) {
	m.enter("journal")
	defer m.mu.Unlock()
	return slices.Clone(m.journal), nil
}

func (m mysqlTable) OwedAdjustments(context.Context, int) ([]holdover.Adjusted, error) {
	m.enter("owed")
	defer m.mu.Unlock()
	return slices.Clone(m.owed), nil
}
