package workload

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"holdover"
)

// intent is what one buyer wants and will do; it follows from the seed and the
// buyer's number.
type intent struct {
	shop  int64
	lines []holdover.Line
	think time.Duration
	pay   payment
}

type payment uint8

const (
	pays payment = iota
	paymentFails
	walksAway
)

// intend decides for buyer n. The generator for it is not the basket's.
func (s *shop) intend(n uint64) (intent, *rand.Rand) {
	c := s.cfg
	rng := rand.New(rand.NewPCG(c.Seed^0x9e3779b97f4a7c15, n))
	in := intent{shop: c.Shops[rng.IntN(len(c.Shops))]}
	items := s.basket(n).Items
	if rng.Float64() < c.HotShare {
		if rng.IntN(2) == 0 {
			items = nil
		}
		in.lines = append(in.lines, holdover.Line{Item: c.HotItem, Group: s.group(rng), Quantity: 1})
	}
	for _, item := range items {
		q := int64(1)
		if rng.IntN(8) == 0 {
			q = 1 + rng.Int64N(c.MaxUnits)
		}
		in.lines = append(in.lines, holdover.Line{Item: item, Group: s.group(rng), Quantity: q})
	}
	in.think = c.ThinkMin
	if span := c.ThinkMax - c.ThinkMin; span > 0 {
		in.think += time.Duration(rng.Int64N(int64(span)))
	}
	switch p := rng.Float64(); {
	case p < c.PaymentFail:
		in.pay = paymentFails
	case p < c.PaymentFail+c.Abandon:
		in.pay = walksAway
	}
	return in, rng
}

func (s *shop) group(rng *rand.Rand) int64 { return 1 + rng.Int64N(int64(s.cfg.Groups)) }

// buy is one buyer, from the cart to the payment.
func (s *shop) buy(ctx context.Context, n uint64) {
	in, rng := s.intend(n)
	token := holdover.NewToken()
	err := s.persist(ctx, rng, func(ctx context.Context, at holdover.Reserver) error {
		_, err := at.Reserve(ctx, holdover.Request{Shop: in.shop, Token: token, Lines: in.lines, TTL: s.cfg.TTL})
		return err
	})
	switch {
	case errors.Is(err, ErrAccountFull):
		s.full.Store(true)
		s.shed.Add(1)
		return
	case err != nil:
		return // the account has the refusal, the error or that nothing is known
	case in.pay == walksAway:
		return
	}
	if !wait(ctx, in.think) {
		return
	}
	_ = s.persist(ctx, rng, func(ctx context.Context, at holdover.Reserver) error {
		var err error
		if in.pay == paymentFails {
			_, err = at.Release(ctx, in.shop, token)
		} else {
			_, err = at.Claim(ctx, in.shop, token)
		}
		return err // the account has the answer
	})
}

// persist makes a call at an instance chosen at random, and repeats it
// elsewhere while no answer comes, up to the bound.
func (s *shop) persist(ctx context.Context, rng *rand.Rand, call func(context.Context, holdover.Reserver) error) error {
	pause := s.cfg.Backoff
	for try := 0; ; try++ {
		at := s.instances[rng.IntN(len(s.instances))]
		once, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
		err := call(once, at)
		cancel()
		if err == nil || errors.Is(err, ErrAccountFull) || !repeatable(err) {
			return err
		}
		if try == s.cfg.Retries || !wait(ctx, pause/2+time.Duration(rng.Int64N(int64(pause/2)+1))) {
			s.gaveUp.Add(1)
			return err
		}
		pause = min(2*pause, time.Second)
	}
}

// repeatable reports whether a buyer asks again with the same token.
func repeatable(err error) bool {
	return holdover.NoAnswer(err) || notNow(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// notNow reports whether the answer was that nothing was done, for now.
func notNow(err error) bool {
	return errors.Is(err, holdover.ErrNotReady) || errors.Is(err, holdover.ErrOverloaded) ||
		errors.Is(err, holdover.ErrTryAgain) || errors.Is(err, holdover.ErrStale)
}

func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
