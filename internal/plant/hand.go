package plant

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// Hand is between a facade and its stores. It changes the answers to calls for
// tokens that were asked for, and to no others.
type Hand struct {
	shop   int64 // the reserved one
	active atomic.Int64
	mu     sync.Mutex
	tokens map[holdover.Token]*grip
	probes map[look]chan struct{} // told after such a read
}

// look is a read of an item's stock, of the reserved shop.
type look struct {
	item   int64
	levels bool // with its debts: the comparison's look after a refusal, and not the refused vote's own
}

// grip is what is asked for with one token.
type grip struct {
	step string                    // which one is changed
	do   trick                     // nil: nothing is changed
	once func(ctx context.Context) // runs before Redis's next vote; nil: nothing does
	aged time.Time                 // what Redis's votes say of when the hold was granted; zero: as it is
	seen chan holdover.Op
}

// trick is run instead of a store's step; do runs it.
type trick func(ctx context.Context, do func(context.Context) error) error

// The steps that can be changed.
const (
	mysqlVote  = "mysql vote"
	mysqlApply = "mysql apply"
)

// NewHand makes a hand for one reserved shop.
func NewHand(shop int64) *Hand {
	return &Hand{shop: shop, tokens: make(map[holdover.Token]*grip), probes: make(map[look]chan struct{})}
}

// follow begins to watch a token; drop ends it.
func (h *Hand) follow(token holdover.Token) *grip {
	g := &grip{seen: make(chan holdover.Op, 16)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tokens[token] = g
	h.active.Add(1)
	return g
}

func (h *Hand) drop(token holdover.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.tokens[token]; known {
		delete(h.tokens, token)
		h.active.Add(-1)
	}
}

// set changes what happens at one step of the token; nil: nothing any more.
func (h *Hand) set(g *grip, step string, do trick) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.step, g.do = step, do
}

// before runs something before Redis's next vote.
func (h *Hand) before(g *grip, do func(context.Context)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.once = do
}

// age makes Redis's votes say that the hold was granted then.
func (h *Hand) age(g *grip, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.aged = at
}

// probed returns a channel that hears after each such read.
func (h *Hand) probed(l look) (heard <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probes[l] = c
	h.active.Add(1)
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.probes, l)
		h.active.Add(-1)
	}
}

func (h *Hand) grip(token holdover.Token) *grip {
	if h.active.Load() == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tokens[token]
}

// Watch hands observations on, and notes those of the tokens that are followed.
func (h *Hand) Watch(next func(holdover.Observation)) func(holdover.Observation) {
	return func(o holdover.Observation) {
		next(o)
		if g := h.grip(o.Token); g != nil {
			select {
			case g.seen <- o.Op:
			default:
			}
		}
	}
}

// through runs a store's step, or the trick that was asked for.
func through[T any](ctx context.Context, h *Hand, step string, token holdover.Token, ask func(context.Context) (T, error)) (got T, err error) {
	g := h.grip(token)
	if g == nil {
		return ask(ctx)
	}
	h.mu.Lock()
	do := g.do
	if g.step != step {
		do = nil
	}
	h.mu.Unlock()
	if do == nil {
		return ask(ctx)
	}
	err = do(ctx, func(ctx context.Context) error {
		var err error
		got, err = ask(ctx)
		return err
	})
	return got, err
}

// Redis wraps the pod's Redis.
func (h *Hand) Redis(r dualwrite.Redis) dualwrite.Redis { return heldRedis{r, h} }

// MySQL wraps the pod's MySQL.
func (h *Hand) MySQL(m dualwrite.MySQL) dualwrite.MySQL { return heldMySQL{m, h} }

type heldRedis struct {
	dualwrite.Redis
	h *Hand
}

func (r heldRedis) Vote(ctx context.Context, t holdover.Ticket, q holdover.Request) (holdover.Grant, error) {
	g := r.h.grip(q.Token)
	if g != nil {
		r.h.mu.Lock()
		before := g.once
		g.once = nil
		r.h.mu.Unlock()
		if before != nil {
			before(ctx)
		}
	}
	grant, err := r.Redis.Vote(ctx, t, q)
	if g != nil && err == nil {
		r.h.mu.Lock()
		defer r.h.mu.Unlock()
		if !g.aged.IsZero() {
			grant.Hold.GrantedAt = g.aged
		}
	}
	return grant, err
}

type heldMySQL struct {
	dualwrite.MySQL
	h *Hand
}

func (m heldMySQL) Vote(ctx context.Context, t holdover.Ticket, q holdover.Request, journal bool) (holdover.Grant, error) {
	return through(ctx, m.h, mysqlVote, q.Token, func(ctx context.Context) (holdover.Grant, error) { return m.MySQL.Vote(ctx, t, q, journal) })
}

func (m heldMySQL) Apply(ctx context.Context, fact holdover.Hold) (holdover.Hold, error) {
	return through(ctx, m.h, mysqlApply, fact.Token, func(ctx context.Context) (holdover.Hold, error) { return m.MySQL.Apply(ctx, fact) })
}

func (m heldMySQL) Probe(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, error) {
	stocks, err := m.MySQL.Probe(ctx, shop, items)
	m.h.read(shop, items, false, err)
	return stocks, err
}

func (m heldMySQL) Levels(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, map[int64]int64, error) {
	stocks, owed, err := m.MySQL.Levels(ctx, shop, items)
	m.h.read(shop, items, true, err)
	return stocks, owed, err
}

// read tells who waits for it that the items' stock was read.
func (h *Hand) read(shop int64, items []int64, levels bool, err error) {
	if shop != h.shop || err != nil || h.active.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, item := range items {
		if c := h.probes[look{item, levels}]; c != nil {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}
