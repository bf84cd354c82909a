package mysqlpool

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"holdover"
)

// extendCall is an extension that is made together with those of other calls.
type extendCall struct {
	token     holdover.Token
	epoch     holdover.Epoch
	shop      int64
	ttl, life time.Duration
	journal   bool

	record
	err error
}

// Extend moves a held hold's expiry to at least ttl from now, by the server's
// clock, at most life from its grant, and never back; the hold is firm from
// then on. With journal it records that Redis does not know, and a hold whose
// expiry has passed is left alone: ErrTryAgain. A hold of another shop is
// unknown; shop zero is any. Errors: ErrUnknownHold, *EndedError,
// ErrAlreadyClaimed.
func (s *Store) Extend(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, ttl, life time.Duration, journal bool) (holdover.Hold, error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	for range maxReread {
		c := &extendCall{token: token, epoch: e, shop: shop, ttl: ttl, life: life, journal: journal}
		if err := s.extends.do(ctx, key{shop: shop}, c); err != nil {
			return holdover.Hold{}, s.notDone(ctx, "extend", token, err)
		}
		if is(c.err, errChanged) {
			continue
		}
		return c.Hold, c.err
	}
	return holdover.Hold{}, s.fail("extend", token, errChanged)
}

// extendTogether is the run of the extend batcher.
func (s *Store) extendTogether(ctx context.Context, calls []*extendCall) {
	err := s.transact(ctx, s.main, "extend", calls[0].token, func(ctx context.Context, t *tx) error {
		return t.extendAll(ctx, calls)
	})
	switch {
	case err == nil:
		return
	case number(err) == errMismatch && len(calls) == 1: // it ended since it was read
		calls[0].err = errChanged
		return
	case len(calls) > 1 && divisible(err):
		s.stats.split.Add(1)
		half := len(calls) / 2
		s.extendTogether(ctx, calls[:half])
		s.extendTogether(ctx, calls[half:])
		return
	}
	for _, c := range calls {
		c.err = forCall(err, "extend", c.token)
	}
}

func (t *tx) extendAll(ctx context.Context, calls []*extendCall) error {
	fence, found, err := t.readHolds(ctx, len(calls), func(i int) (holdover.Token, holdover.Epoch) { return calls[i].token, calls[i].epoch })
	if err != nil {
		return err
	}
	var holds []holdRef
	var journal []holdover.Token
	seen := map[holdover.Token]bool{}
	for _, c := range calls {
		c.record, c.err = found[c.token], t.s.refuse(fence, c.epoch)
		c.Token = c.token
		switch {
		case c.err != nil:
		case seen[c.token]:
			c.err = errChanged
		case c.State == holdover.StateNone, c.shop != 0 && c.Shop != c.shop:
			c.err = unknownHold(c.token)
		case c.State.Ended():
			c.err = holdover.EndError(c.token, c.State)
		case c.journal && c.due: // an expiry begins in redis, which may have begun it and does not say
			c.err = fmt.Errorf("mysql of pod %s: hold %s: its time has passed, and redis may have ended it: extend it when redis answers: %w", t.s.cfg.Pod, c.token, holdover.ErrTryAgain)
		default:
			expires := c.now.Add(c.ttl)
			if most := c.GrantedAt.Add(c.life); expires.After(most) {
				expires = most
			}
			expires = rounded(expires)
			if c.journal {
				journal = append(journal, c.token)
			}
			if c.Again = !expires.After(c.ExpiresAt); c.Again && c.Firm {
				continue
			}
			if c.Again {
				expires = c.ExpiresAt
			}
			seen[c.token] = true
			holds = append(holds, holdRef{c.Hold, holdover.StateHeld, expires})
			c.ExpiresAt, c.Firm = expires, true
		}
	}
	if len(holds) == 0 && len(journal) == 0 {
		return nil
	}
	slices.SortFunc(holds, func(a, b holdRef) int { return bytes.Compare(a.Token[:], b.Token[:]) })
	b := new(statement).holds(holds, extendHoldsTail)
	for _, token := range journal {
		b.journal(token)
	}
	_, err = t.send(ctx, b.commit())
	return err
}
