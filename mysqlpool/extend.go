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

// extendShare is the run of the extend batcher. A hold that somebody else has
// locked is waited for without the slot, alone.
func (s *Store) extendShare(ctx context.Context, calls []*extendCall, done func(*extendCall)) func(context.Context, func(*extendCall)) {
	blocked := s.extendTogether(ctx, calls, done)
	if len(blocked) == 0 {
		return nil
	}
	return func(ctx context.Context, done func(*extendCall)) {
		apart(groupsOf(nil, nil, blocked), func(group []*extendCall) { s.extendTogether(ctx, group, done) })
	}
}

func (s *Store) extendTogether(ctx context.Context, calls []*extendCall, done func(*extendCall)) (blocked []*extendCall) {
	err := s.transactWith(ctx, s.main, "extend", calls[0].token, len(calls) == 1, func(ctx context.Context, t *tx) error {
		return t.extendAll(ctx, calls)
	})
	switch {
	case len(calls) > 1 && number(err) == errLockWait:
		s.stats.split.Add(1)
		return calls
	case len(calls) > 1 && err != nil && divisible(err):
		s.stats.split.Add(1)
		half := len(calls) / 2
		return append(s.extendTogether(ctx, calls[:half], done), s.extendTogether(ctx, calls[half:], done)...)
	}
	for _, c := range calls {
		switch {
		case number(err) == errMismatch: // it ended since it was read, or lives longer already
			c.err = errChanged
		case err != nil:
			c.err = forCall(err, "extend", c.token)
		}
		done(c)
	}
	return nil
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
