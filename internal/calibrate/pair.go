package calibrate

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdover"
)

// Pair gives each call to two Reservers, the first of which answers.
type Pair struct {
	first, second holdover.Reserver
	observe       func(holdover.Observation)

	mu    sync.Mutex
	shops map[int64]*sync.Mutex // a shop's calls come in one order to both
}

var _ holdover.Reserver = (*Pair)(nil)

// NewPair makes a pair; observe is given both answers to each call.
func NewPair(first, second holdover.Reserver, observe func(holdover.Observation)) *Pair {
	return &Pair{first: first, second: second, observe: observe, shops: make(map[int64]*sync.Mutex)}
}

// Reserve asks both.
func (p *Pair) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	return p.both(ctx, holdover.OpReserve, r.Shop, r.Token, r.Lines, func(s holdover.Reserver) (holdover.Result, error) { return s.Reserve(ctx, r) })
}

// Claim asks both.
func (p *Pair) Claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	return p.both(ctx, holdover.OpClaim, shop, token, nil, func(s holdover.Reserver) (holdover.Result, error) { return s.Claim(ctx, shop, token, lines...) })
}

// Extend asks both.
func (p *Pair) Extend(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
	return p.both(ctx, holdover.OpExtend, shop, token, nil, func(s holdover.Reserver) (holdover.Result, error) { return s.Extend(ctx, shop, token, ttl) })
}

// Release asks both.
func (p *Pair) Release(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	return p.both(ctx, holdover.OpRelease, shop, token, nil, func(s holdover.Reserver) (holdover.Result, error) { return s.Release(ctx, shop, token) })
}

// Lookup asks the first one: it changes nothing that could differ.
func (p *Pair) Lookup(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	return p.first.Lookup(ctx, shop, token)
}

func (p *Pair) both(ctx context.Context, op holdover.Op, shop int64, token holdover.Token, lines []holdover.Line, ask func(holdover.Reserver) (holdover.Result, error)) (holdover.Result, error) {
	order := p.shop(shop)
	order.Lock()
	defer order.Unlock()
	o := holdover.Observation{Pod: Pod, Instance: instance, Epoch: 1, Stage: holdover.StageShadow, Op: op, Shop: shop, Token: token, Lines: lines, At: time.Now()}
	res, err := timed(&o.Redis, func() (holdover.Result, error) { return ask(p.first) })
	_, _ = timed(&o.MySQL, func() (holdover.Result, error) { return ask(p.second) })
	if len(o.Lines) == 0 {
		o.Lines = res.Hold.Lines
	}
	if res.Replayed {
		o.Marks |= holdover.MarkReplayed
	}
	o.Reason = "old against old"
	p.observe(o)
	return res, err
}

func (p *Pair) shop(shop int64) *sync.Mutex {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shops[shop] == nil {
		p.shops[shop] = new(sync.Mutex)
	}
	return p.shops[shop]
}

func timed(to *holdover.Answer, ask func() (holdover.Result, error)) (holdover.Result, error) {
	began := time.Now()
	res, err := ask()
	to.Latency = time.Since(began)
	to.State = res.Hold.State
	var short *holdover.OutOfStockError
	switch {
	case err == nil:
		to.Outcome = holdover.OutcomeGranted
	case errors.Is(err, holdover.ErrUnknownOutcome):
		to.Outcome = holdover.OutcomeUnknown
	case holdover.NoAnswer(err):
		to.Outcome = holdover.OutcomeError
	default: // it answered, and its answer is no
		to.Outcome = holdover.OutcomeRefused
	}
	if errors.As(err, &short) {
		for _, s := range short.Short {
			to.Remaining = append(to.Remaining, s.Left)
		}
	}
	if err != nil {
		to.Err = err.Error()
	}
	return res, err
}
