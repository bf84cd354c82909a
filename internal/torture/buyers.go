package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"holdover"
)

// The buyers of one schedule.
const (
	callLimit    = 2500 * time.Millisecond // a buyer's patience with one call, longer than an instance's
	maxTries     = 12
	longTTL      = 10 * time.Minute
	finishTime   = 20 * time.Second // buyers may finish for so long
	historyCalls = 480              // of a short history, with room for the repeats under way
)

// crowd is the buyers of one shop.
type crowd struct {
	front  shopFront
	s      Schedule
	at     []holdover.Reserver // instances, each watched by the book
	trail  *trail
	buyers int
	pause  time.Duration // between two calls of a buyer, at most
}

func newCrowd(f shopFront, s Schedule, at []holdover.Reserver, t *trail) *crowd {
	c := &crowd{front: f, s: s, at: at, trail: t, buyers: 12, pause: 40 * time.Millisecond}
	if s.Linear {
		c.buyers, c.pause = 6, 70*time.Millisecond
	}
	return c
}

// run lets buyers buy for the schedule's time; who is there then finishes.
func (c *crowd) run(ctx context.Context) {
	buying, stop := context.WithTimeout(ctx, c.s.Lasts)
	defer stop()
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.s.Lasts+finishTime)
	defer cancel()
	var wg sync.WaitGroup
	for n := range c.buyers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(c.s.Seed, uint64(n)))
			for buying.Err() == nil && !c.full() {
				c.buy(finishing, rng)
				wait(buying, c.think(rng))
			}
		})
	}
	wg.Wait()
}

// full: a history for the checker is bounded.
func (c *crowd) full() bool { return c.s.Linear && c.trail.count() >= historyCalls-c.buyers*4 }

func (c *crowd) think(rng *rand.Rand) time.Duration {
	return c.pause/4 + time.Duration(rng.Int64N(int64(c.pause)))
}

// consider is the time between a grant and what becomes of it. Where units are
// few they are held for long: that one was sold twice can be told only while
// both buyers have it.
func (c *crowd) consider(rng *rand.Rand) time.Duration {
	if c.s.Stock == scarceStock {
		return between(rng, 250, 600)
	}
	return c.think(rng)
}

// buy is one buyer: a cart, and what becomes of it.
func (c *crowd) buy(ctx context.Context, rng *rand.Rand) {
	shop, token := c.front.shop, holdover.NewToken()
	lines, ttl := c.cart(rng), longTTL
	abandons := !c.s.Linear && rng.IntN(10) == 0
	if abandons {
		ttl = time.Second
	}
	err := c.persist(ctx, rng, func(ctx context.Context, at holdover.Reserver) error {
		_, err := at.Reserve(ctx, holdover.Request{Shop: shop, Token: token, Lines: lines, TTL: ttl})
		return err
	})
	if err != nil || abandons || !wait(ctx, c.consider(rng)) {
		return
	}
	if rng.IntN(8) == 0 { // a repeat after the answer, from another tab
		_, _ = c.one(ctx, rng, func(ctx context.Context, at holdover.Reserver) (holdover.Result, error) {
			return at.Reserve(ctx, holdover.Request{Shop: shop, Token: token, Lines: lines, TTL: ttl})
		})
	}
	claim := func(ctx context.Context, at holdover.Reserver) error {
		_, err := at.Claim(ctx, shop, token)
		return err
	}
	release := func(ctx context.Context, at holdover.Reserver) error {
		_, err := at.Release(ctx, shop, token)
		return err
	}
	// Units come back more often than they are sold, so that the last ones are
	// wanted to the end.
	n := rng.IntN(100)
	if c.s.Stock == scarceStock {
		n = pick(rng, []weighted[int]{{0, 4}, {50, 90}, {90, 6}}) // what is sold is wanted by nobody any more
	}
	switch {
	case n < 20:
		_ = c.twice(ctx, rng, claim)
	case n < 26 && !c.s.Linear: // a part of the cart
		part := []holdover.Line{{Item: lines[0].Item, Group: lines[0].Group, Quantity: 1}}
		_ = c.persist(ctx, rng, func(ctx context.Context, at holdover.Reserver) error {
			_, err := at.Claim(ctx, shop, token, part...)
			return err
		})
	case n < 80:
		_ = c.twice(ctx, rng, release)
	case n < 86 && !c.s.Linear:
		_ = c.persist(ctx, rng, func(ctx context.Context, at holdover.Reserver) error {
			_, err := at.Extend(ctx, shop, token, longTTL)
			return err
		})
	case n < 94: // two tabs: one pays, one gives up
		var both sync.WaitGroup
		pays, gives := rand.New(rand.NewPCG(rng.Uint64(), 1)), rand.New(rand.NewPCG(rng.Uint64(), 2))
		both.Go(func() { _ = c.persist(ctx, pays, claim) })
		both.Go(func() { _ = c.persist(ctx, gives, release) })
		both.Wait()
	} // the rest keep their carts
}

// twice makes a call, and now and then once more after it was answered.
func (c *crowd) twice(ctx context.Context, rng *rand.Rand, call func(context.Context, holdover.Reserver) error) error {
	err := c.persist(ctx, rng, call)
	if err == nil && rng.IntN(5) == 0 {
		err = c.persist(ctx, rng, call)
	}
	return err
}

func (c *crowd) cart(rng *rand.Rand) []holdover.Line {
	line := func() holdover.Line {
		return holdover.Line{Item: c.front.items[rng.IntN(len(c.front.items))], Group: 1 + rng.Int64N(c.front.groups), Quantity: 1}
	}
	l := line()
	if rng.IntN(4) == 0 {
		l.Quantity = 2
	}
	lines := []holdover.Line{l}
	if !c.s.Linear && rng.IntN(3) == 0 {
		if other := line(); other.Item != l.Item {
			lines = append(lines, other)
		}
	}
	return lines
}

// persist repeats a call, at another instance each time, until it is answered.
func (c *crowd) persist(ctx context.Context, rng *rand.Rand, call func(context.Context, holdover.Reserver) error) error {
	for try := 1; ; try++ {
		_, err := c.one(ctx, rng, func(ctx context.Context, at holdover.Reserver) (holdover.Result, error) {
			return holdover.Result{}, call(ctx, at)
		})
		if err == nil || !unclear(err) || try == maxTries {
			return err
		}
		pause := time.Duration(10+rng.IntN(30*try)) * time.Millisecond
		if c.s.Linear { // each try without an answer may take effect at any time: the checker needs few of them
			pause = max(5*pause, c.s.calm()-time.Since(c.trail.began))
		}
		if !wait(ctx, pause) {
			return err
		}
	}
}

// one makes one call at an instance chosen at random.
func (c *crowd) one(ctx context.Context, rng *rand.Rand, ask func(context.Context, holdover.Reserver) (holdover.Result, error)) (holdover.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return ask(ctx, c.at[rng.IntN(len(c.at))])
}

// unclear: the buyer can't know, or was told to come again.
func unclear(err error) bool {
	return !call{err: err}.clear() || errors.Is(err, holdover.ErrClaimPending)
}

func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
