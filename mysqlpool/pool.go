package mysqlpool

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdover"
)

// Pool is the unit pool on its own: a holdover.Reserver without Redis and
// without a fence. It is what a user keeps after the migration.
type Pool struct {
	store  *Store
	cfg    PoolConfig
	placer holdover.Placer
	late   holdover.LateClaims
}

var _ holdover.Reserver = (*Pool)(nil)

// PoolConfig bounds requests and paces the reaper. A zero field means its default.
type PoolConfig struct {
	// Limits bound a request.
	Limits holdover.Limits
	// ReapEvery is how often Run ends holds whose expiry has passed; 1 s.
	ReapEvery time.Duration
	// ReapBatch is how many due holds are listed at a time; 200.
	ReapBatch int
}

// NewPool makes a Reserver of a Store. The Store stays the caller's to close.
func NewPool(store *Store, cfg PoolConfig) *Pool {
	def(&cfg.ReapEvery, time.Second)
	def(&cfg.ReapBatch, 200)
	p := &Pool{store: store, cfg: cfg}
	p.placer = holdover.Placer{Vote: p.vote, Lookup: store.Lookup, Probe: store.Probe}
	p.late = holdover.LateClaims{Off: cfg.Limits.NoLateClaims, Reserve: p.reserve, Claim: p.claim, Lookup: store.Lookup}
	return p
}

// Reserve takes all lines and choices or nothing. When an item is out of stock,
// holds of it whose expiry has passed are ended first, and the request is tried
// once more. A commit whose answer was lost is repeated once: the token makes it
// safe.
func (p *Pool) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	r, err := r.Normalize(p.cfg.Limits)
	if err != nil {
		return p.result(holdover.Hold{Token: r.Token}, "invalid request"), err
	}
	res, err := p.reserve(ctx, r)
	return p.late.AfterEnded(ctx, r.Shop, r.Token, res, err)
}

// reserve answers a normalized request.
func (p *Pool) reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	g, _, err := p.placer.Place(ctx, r)
	if err != nil {
		return p.result(holdover.Hold{Token: r.Token, Shop: r.Shop}, reason(err)), err
	}
	res := p.result(g.Hold, "granted by the unit pool")
	if res.Replayed = g.Replayed; g.Replayed {
		res.Decision.Reason = "the hold was there already"
	}
	return res, nil
}

// vote asks for concrete lines.
func (p *Pool) vote(ctx context.Context, r holdover.Request) (holdover.Grant, error) {
	g, err := p.store.Vote(ctx, holdover.Ticket{}, r, false)
	var short *holdover.OutOfStockError
	switch {
	case errors.As(err, &short):
		again, reapErr := p.freed(ctx, short)
		switch {
		case reapErr != nil:
			return g, reapErr
		case again:
			return p.store.Vote(ctx, holdover.Ticket{}, r, false)
		}
	case errors.Is(err, holdover.ErrUnknownOutcome) && ctx.Err() == nil:
		return p.store.Vote(ctx, holdover.Ticket{}, r, false)
	}
	return g, err
}

// Claim makes the deduction permanent, exactly once; with lines, of a part of
// the hold, and the rest is given back with it. A hold that has expired is
// claimed late: its units are taken again, if there are any.
func (p *Pool) Claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	res, err := p.claim(ctx, shop, token, lines...)
	return p.late.AfterClaim(ctx, shop, token, lines, res, err)
}

func (p *Pool) claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	return p.finish(ctx, ending{op: "claim", token: token, how: holdover.StateClaimed, shop: shop, strict: true, part: lines})
}

// Extend makes the hold live for at least ttl from now.
func (p *Pool) Extend(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
	life, err := p.cfg.Limits.CheckExtension(ttl)
	if err != nil {
		return p.result(holdover.Hold{Token: token}, "invalid request"), err
	}
	h, err := p.store.Extend(ctx, 0, shop, token, ttl, life, false)
	if errors.Is(err, holdover.ErrUnknownOutcome) && ctx.Err() == nil {
		h, err = p.store.Extend(ctx, 0, shop, token, ttl, life, false)
	}
	if err != nil {
		return p.late.AfterEnded(ctx, shop, token, p.result(h, reason(err)), err)
	}
	res := p.result(h, "extended in the unit pool")
	if res.Replayed = h.Again; res.Replayed {
		res.Decision.Reason = "it lives that long already"
	}
	return res, nil
}

// Release gives the units back.
func (p *Pool) Release(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	res, err := p.finish(ctx, ending{op: "release", token: token, how: holdover.StateReleased, shop: shop, strict: true})
	return p.late.AfterEnded(ctx, shop, token, res, err)
}

func (p *Pool) finish(ctx context.Context, e ending) (holdover.Result, error) {
	if e.shop <= 0 || e.token == (holdover.Token{}) {
		err := &holdover.InvalidError{Field: "shop_id and token", Problem: "must be there"}
		return p.result(holdover.Hold{Token: e.token}, "invalid request"), err
	}
	h, did, err := p.store.end(ctx, e)
	if errors.Is(err, holdover.ErrUnknownOutcome) && ctx.Err() == nil {
		h, did, err = p.store.end(ctx, e)
	}
	if err == nil && h.State != e.how {
		err = holdover.EndError(e.token, h.State)
	}
	if err != nil {
		if h.Token == (holdover.Token{}) {
			h.Token = e.token
		}
		return p.result(h, reason(err)), err
	}
	res := p.result(h, h.State.String()+" in the unit pool")
	if res.Replayed = !did; res.Replayed {
		res.Decision.Reason = "it was " + h.State.String() + " already"
	}
	return res, nil
}

// Lookup says what the pool knows.
func (p *Pool) Lookup(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	h, err := p.store.Lookup(ctx, token)
	if err == nil && (h.State == holdover.StateNone || h.Shop != 0 && h.Shop != shop) {
		h, err = holdover.Hold{Token: token}, unknownHold(token)
	}
	if err != nil {
		return p.result(h, reason(err)), err
	}
	return p.late.AfterLookup(ctx, p.result(h, "looked up in the unit pool"), nil)
}

func (p *Pool) result(h holdover.Hold, why string) holdover.Result {
	return holdover.Result{Hold: h, Decision: holdover.Decision{
		Pod: p.store.cfg.Pod, Stage: holdover.StageMySQLOnly, Store: holdover.StoreMySQL, Reason: why,
	}}
}

// reason is the decision's reason for an error: what kind it is, in few words.
func reason(err error) string {
	for _, known := range []error{
		holdover.ErrOutOfStock, holdover.ErrTokenReused, holdover.ErrAlreadyClaimed, holdover.ErrEnded, holdover.ErrUnknownHold,
		holdover.ErrNotLoaded, holdover.ErrTryAgain, holdover.ErrInvalid, holdover.ErrUnknownOutcome, holdover.ErrUnavailable,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "failed"
}

// freed ends the due holds of what is short, and reports whether it may be there
// now: by one of these, or because somebody else was faster since the refusal.
func (p *Pool) freed(ctx context.Context, short *holdover.OutOfStockError) (freed bool, err error) {
	due, err := p.store.Due(ctx, 0, short.Shop, short.Items(), p.cfg.ReapBatch)
	if err != nil {
		return false, err
	}
	for _, h := range due {
		did, err := p.expire(ctx, h)
		if err != nil {
			return freed, err
		}
		freed = freed || did
	}
	if freed {
		return true, nil
	}
	stocks, err := p.store.Probe(ctx, short.Shop, short.Items())
	return err == nil && short.IsOutdated(stocks), err
}

func (p *Pool) expire(ctx context.Context, h holdover.Hold) (bool, error) {
	after, did, err := p.store.end(ctx, ending{op: "expire", token: h.Token, how: holdover.StateExpired, shop: h.Shop, strict: true})
	if errors.Is(err, holdover.ErrUnknownHold) {
		return false, nil
	}
	return did && after.State == holdover.StateExpired, err
}

// Reap ends all holds whose expiry has passed, one transaction each, and
// returns how many. One that can't be ended does not stop the others: the
// errors come back together.
func (p *Pool) Reap(ctx context.Context) (ended int, err error) {
	var failed []error
	var after holdover.Hold
	for ctx.Err() == nil {
		due, err := p.store.dueAfter(ctx, 0, after, p.cfg.ReapBatch)
		if err != nil {
			return ended, errors.Join(append(failed, err)...)
		}
		for _, h := range due {
			did, err := p.expire(ctx, h)
			if err != nil && len(failed) < 10 {
				failed = append(failed, err)
			}
			if did {
				ended++
			}
		}
		if len(due) < p.cfg.ReapBatch {
			break
		}
		after = due[len(due)-1]
	}
	return ended, errors.Join(failed...)
}

// Run refills pools, reaps expired holds and purges ended ones until ctx ends;
// it returns when all of that has stopped.
func (p *Pool) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = p.store.Run(ctx) })
	tick := time.NewTicker(p.cfg.ReapEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if _, err := p.Reap(ctx); err != nil && ctx.Err() == nil {
				p.store.log.Warn("expired holds were not all ended; the next round tries again", "err", err)
			}
		}
	}
}
