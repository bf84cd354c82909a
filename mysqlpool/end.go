package mysqlpool

import (
	"context"
	"fmt"
	"time"

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

	part []holdover.Line // of a claim: what is claimed; nil is all
}

// never is later than any expiry.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// latest is the expiry up to which the hold may be ended: an expiry that this
// store decides ends what it has read, and not what was extended since.
func (e ending) latest(h holdover.Hold) time.Time {
	if e.how == holdover.StateExpired && !e.fact {
		return h.ExpiresAt
	}
	return never
}

// maxReread bounds how often a step starts again because the hold changed
// between its read and its write. Every change is an end, a give-back or a
// grant, so more than a few in one call mean a caller that misbehaves.
const maxReread = 16

// Claim deducts the ledger and ends the hold, under the epoch; with journal it
// records that Redis does not know. Claimed already: no error. A hold of
// another shop is unknown; shop zero is any. Errors:
// ErrUnknownHold, *EndedError.
func (s *Store) Claim(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, part []holdover.Line, journal bool) (holdover.Hold, error) {
	h, _, err := s.end(ctx, ending{op: "claim", epoch: e, shop: shop, token: token, how: holdover.StateClaimed, journal: journal, strict: true, part: part})
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

// end ends the hold in one transaction that takes its locks in order and is
// written only if the hold is still the one that was read, together with other
// calls of this process. did is false when it had ended before; the hold then
// says how.
func (s *Store) end(ctx context.Context, e ending) (h holdover.Hold, did bool, err error) {
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	for range maxReread {
		c, err := s.endShared(ctx, e)
		if is(err, errAlone) { // not held: unknown, ended before, or not to be ended
			err = s.endOther(ctx, e, &c.record)
		}
		if is(err, errChanged, errTaken) {
			continue
		}
		if err != nil {
			return holdover.Hold{}, false, err
		}
		c.Hold.Again = !c.did
		return c.Hold, c.did, nil
	}
	return holdover.Hold{}, false, s.fail(e.op, e.token, errChanged)
}

// endShared is one turn of end: errAlone says that the hold is not there to be
// ended, and the call's record how it was read; errChanged that it has to be
// read again.
func (s *Store) endShared(ctx context.Context, e ending) (*endCall, error) {
	c := &endCall{ending: e}
	queue := s.ends
	if e.how == holdover.StateClaimed {
		queue = s.claims
	}
	if err := queue.do(ctx, key{shop: e.shop}, c); err != nil {
		return &endCall{}, s.notDone(ctx, e.op, e.token, err)
	}
	if !c.apart {
		return c, c.err
	}
	// The transaction of all changed another number of rows than it should have:
	// step by step it is seen which.
	c.did, c.err = true, s.endSteps(ctx, e, c.record)
	c.State = e.how
	return c, c.err
}

// endSteps ends one hold statement by statement, each with its own check.
func (s *Store) endSteps(ctx context.Context, e ending, r record) error {
	err := s.transact(ctx, s.main, e.op, e.token, func(ctx context.Context, t *tx) error {
		if err := t.checkFence(ctx, e.epoch); err != nil {
			return err
		}
		if err := t.moveIssued(ctx, sum(amounts(r.Shop, r.Lines, 1)...), -1); err != nil {
			return err
		}
		if e.how == holdover.StateClaimed {
			if err := t.deduct(ctx, sum(amounts(r.Shop, r.Part(), 1)...)); err != nil {
				return err
			}
		}
		if err := t.endRows(ctx, r.Hold, e); err != nil {
			return err
		}
		if e.how == holdover.StateClaimed {
			if err := t.writeEntries(ctx, e.token, claimEntries(r.Shop, r.Part())); err != nil {
				return err
			}
		}
		if e.journal {
			return t.journal(ctx, e.token)
		}
		return nil
	})
	if checkFailed(err) {
		return errChanged
	}
	if is(err, errOverdrawn) {
		// A claim without a hold, or a correction, took what this hold stood for.
		return s.consume(ctx, e, r.Hold, true)
	}
	return err
}

// endRows marks the hold's rows as ended, if it is the hold that was read:
// attempt and time of the grant tell it from a later one with its token.
func (t *tx) endRows(ctx context.Context, h holdover.Hold, e ending) error {
	n, err := t.exec(ctx, stmtEndHold, e.how.String(), h.Token[:], uint64(h.Attempt), h.GrantedAt, e.latest(h))
	if err != nil {
		return err
	}
	if n != int64(len(h.Lines)) {
		return errChanged
	}
	return t.claimedPart(ctx, h)
}

// claimedPart writes what a claim took of each line when it was not all.
func (t *tx) claimedPart(ctx context.Context, h holdover.Hold) error {
	if h.Claimed == nil {
		return nil
	}
	_, err := t.send(ctx, new(statement).claimedPart(h))
	return err
}

func (b *statement) claimedPart(h holdover.Hold) *statement {
	if h.Claimed == nil {
		return b
	}
	for i, n := range claimedOf(h) {
		b.next().add(stmtClaimedPart, n, h.Token[:], i)
	}
	return b
}

// claimedOf is what a claim of a part took of each line.
func claimedOf(h holdover.Hold) []int64 {
	claimed := make([]int64, len(h.Lines))
	for i, l := range h.Lines {
		for _, c := range h.Claimed {
			if c.Item == l.Item && c.Group == l.Group {
				claimed[i] = c.Quantity
			}
		}
	}
	return claimed
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
			r.Hold = holdover.Hold{Token: e.token, State: e.how, Missing: true}
		case r.State == holdover.StateHeld:
			return nil // not due yet: nothing that Redis has to learn from here
		case r.State == holdover.StateClaimed && e.how == holdover.StateClaimed && !e.fact:
			return samePart(r.Hold, e.part)
		case r.State == holdover.StateClaimed, e.how == holdover.StateClaimed:
			return nil // not to be undone
		}
		if e.journal {
			return t.journal(ctx, e.token)
		}
		return nil
	})
}

// samePart refuses a claim that names another part than the one that was claimed.
func samePart(h holdover.Hold, lines []holdover.Line) error {
	part, err := h.PartOf(lines)
	if err == nil && !holdover.SameLines(part, h.Claimed) {
		err = fmt.Errorf("%w; it was claimed with %v", reused(h.Token), h.Part())
	}
	return err
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
		if err := t.moveIssued(ctx, sum(amounts(r.Shop, r.Lines, 1)...), -1); err != nil {
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
	if is(err, errChanged) || checkFailed(err) {
		return false, nil // it became firm, or ended, in the meantime
	}
	return err == nil, err
}
