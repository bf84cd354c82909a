package mysqlpool

import (
	"context"

	"holdover"
)

// ending is the end of a hold that somebody wants: a deciding step under an
// epoch, or a fact.
type ending struct {
	op      string
	epoch   holdover.Epoch
	token   holdover.Token
	how     holdover.State // claimed, released or expired
	shop    int64          // zero: any
	journal bool
	fact    bool
	strict  bool // an unknown token is an error and leaves no end record
}

// maxReread bounds how often a step starts again because the hold changed
// between its read and its write. Every change is an end, a give-back or a
// grant, so more than a few in one call mean a caller that misbehaves.
const maxReread = 16

// Claim deducts the ledger and ends the hold, under the epoch; with journal it
// records that Redis does not know. Claimed already: no error. A hold of
// another shop is unknown; shop zero is any. Errors:
// ErrUnknownHold, *EndedError.
func (s *Store) Claim(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, journal bool) (holdover.Hold, error) {
	h, _, err := s.end(ctx, ending{op: "claim", epoch: e, shop: shop, token: token, how: holdover.StateClaimed, journal: journal, strict: true})
	if err == nil && h.State != holdover.StateClaimed {
		return h, holdover.EndError(token, h.State)
	}
	return h, err
}

// End ends the hold in MySQL alone, under the epoch: how is released or
// expired. Ended already: no error, the hold says how. An unknown token gets an
// end record. StateExpired leaves a hold whose expiry has not passed. A hold of
// another shop: ErrUnknownHold; shop zero is any. Errors: ErrAlreadyClaimed.
func (s *Store) End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State, journal bool) (holdover.Hold, error) {
	if how != holdover.StateReleased && how != holdover.StateExpired {
		return holdover.Hold{}, &holdover.InvalidError{Field: "state", Value: how.String(), Problem: "is not an end: want released or expired"}
	}
	h, _, err := s.end(ctx, ending{op: "end " + how.String(), epoch: e, shop: shop, token: token, how: how, journal: journal, strict: shop != 0})
	if err == nil && h.State == holdover.StateClaimed {
		return h, holdover.EndError(token, h.State)
	}
	return h, err
}

// end reads the hold, then ends it in one transaction that takes its locks in
// order and is written only if the hold is still the one that was read. did is
// false when it had ended before; the hold then says how.
func (s *Store) end(ctx context.Context, e ending) (h holdover.Hold, did bool, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	for range maxReread {
		r, err := s.look(ctx, e.token)
		if err != nil {
			return holdover.Hold{}, false, err
		}
		if r.State == holdover.StateHeld && (e.shop == 0 || e.shop == r.Shop) && (e.how != holdover.StateExpired || r.due || e.fact) {
			if e.how == holdover.StateClaimed {
				err = s.claimHeld(ctx, e, r.Hold)
			} else {
				err = s.endHeld(ctx, e, r.Hold)
			}
			r.State, did = e.how, true
		} else {
			err = s.endOther(ctx, e, &r)
		}
		if is(err, errChanged, errTaken) {
			did = false
			continue
		}
		if err != nil {
			return holdover.Hold{}, false, err
		}
		r.Hold.Again = !did
		return r.Hold, did, nil
	}
	return holdover.Hold{}, false, s.fail(e.op, e.token, errChanged)
}

// endHeld gives the units back to the ledger's headroom: no row of the pool is
// made, a refill does that when it is needed.
func (s *Store) endHeld(ctx context.Context, e ending, h holdover.Hold) error {
	return s.transact(ctx, s.main, e.op, e.token, func(ctx context.Context, t *tx) error {
		if err := t.checkFence(ctx, e.epoch); err != nil {
			return err
		}
		if err := t.moveIssued(ctx, h.Shop, h.Lines, -1); err != nil {
			return err
		}
		if err := t.endRows(ctx, h, e.how); err != nil {
			return err
		}
		if e.journal {
			return t.journal(ctx, e.token)
		}
		return nil
	})
}

// endRows marks the hold's rows as ended, if it is the hold that was read:
// attempt and time of the grant tell it from a later one with its token.
func (t *tx) endRows(ctx context.Context, h holdover.Hold, how holdover.State) error {
	n, err := t.exec(ctx, stmtEndHold, how.String(), h.Token[:], uint64(h.Attempt), h.GrantedAt)
	if err != nil {
		return err
	}
	if n != int64(len(h.Lines)) {
		return errChanged
	}
	return nil
}

// endOther answers, under the fence, for a token that is not held: unknown,
// ended before, or not to be ended.
func (s *Store) endOther(ctx context.Context, e ending, r *record) error {
	return s.transact(ctx, s.main, e.op, e.token, func(ctx context.Context, t *tx) error {
		if err := t.checkFence(ctx, e.epoch); err != nil {
			return err
		}
		now, err := t.look(ctx, stmtHold, e.token)
		if err != nil {
			return err
		}
		if now.State != r.State {
			return errChanged
		}
		*r = now
		foreign := e.shop != 0 && r.Shop != 0 && e.shop != r.Shop
		switch {
		case foreign, e.strict && r.State == holdover.StateNone:
			return unknownHold(e.token)
		case r.State == holdover.StateNone:
			if _, err := t.exec(ctx, stmtEndRecord, e.token[:], e.how.String()); err != nil {
				if number(err) == errDuplicateKey {
					return errTaken
				}
				return err
			}
			r.Hold = holdover.Hold{Token: e.token, State: e.how}
		case r.State == holdover.StateHeld, r.State == holdover.StateClaimed:
			return nil // not due yet, or not to be undone: nothing that Redis has to learn from here
		case e.how == holdover.StateClaimed:
			return nil
		}
		if e.journal {
			return t.journal(ctx, e.token)
		}
		return nil
	})
}

// GiveBack undoes a tentative grant of this attempt and reports whether it did.
// Firm holds, other attempts' holds, ended holds and holds older than the
// give-back window stay. It reads no fence: what it undoes, nobody was told.
func (s *Store) GiveBack(ctx context.Context, token holdover.Token, a holdover.Attempt) (bool, error) {
	if a == 0 {
		return false, nil // no attempt of anybody's
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	r, err := s.look(ctx, token)
	if err != nil || r.State != holdover.StateHeld || r.Attempt != a || r.Firm {
		return false, err
	}
	err = s.transact(ctx, s.main, "give back", token, func(ctx context.Context, t *tx) error {
		if err := t.moveIssued(ctx, r.Shop, r.Lines, -1); err != nil {
			return err
		}
		n, err := t.exec(ctx, stmtGiveBack, token[:], uint64(a), r.GrantedAt, s.window())
		if err != nil {
			return err
		}
		if n != int64(len(r.Lines)) {
			return errChanged
		}
		return nil
	})
	if is(err, errChanged) {
		return false, nil // it became firm, or ended, in the meantime
	}
	return err == nil, err
}
