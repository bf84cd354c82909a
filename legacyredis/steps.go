package legacyredis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"holdover"
)

// Vote asks for a grant under t.Epoch: all lines or nothing, never below zero,
// for r.TTL from now by Redis's clock. The same token with the same lines is
// replayed; a replay by another attempt makes the hold firm. A grant of attempt
// zero is firm at once. Refusals: *OutOfStockError, ErrTokenReused, *EndedError,
// ErrAlreadyClaimed, ErrNotLoaded, ErrTryAgain when a counter of the cart is
// below zero, *StaleError, ErrNoFence.
func (s *Store) Vote(ctx context.Context, t holdover.Ticket, r holdover.Request) (holdover.Grant, error) {
	if err := checkLines(r.Shop, r.Lines); err != nil {
		return holdover.Grant{}, err
	}
	if r.TTL < time.Millisecond {
		return holdover.Grant{}, &holdover.InvalidError{Field: "ttl", Value: r.TTL.String(), Problem: "must be at least 1ms"}
	}
	answer, err := s.run(ctx, step{op: "vote", script: s.scripts.vote, token: r.Token, shop: r.Shop, asked: t.Epoch, writes: true},
		epochText(t.Epoch), attemptText(t.Attempt), r.Token.String(), r.Shop, encodeLines(r.Lines), r.TTL.Milliseconds())
	if err != nil {
		return holdover.Grant{}, err
	}
	grant := holdover.Grant{Replayed: answer.number() == 1}
	grant.Hold, err = answer.hold()
	grant.Remaining = answer.numbers()
	return grant, s.readable("vote", r.Token, &answer, err)
}

// Copied is Redis's side of a copy.
type Copied = holdover.Copied

// Copy writes a grant of MySQL's under the epoch: firm, with its expiry, and
// counters may go below zero. Copied.WouldGrant says what a vote would have
// answered; a repeated copy says the same again. A live hold is made firm, also
// one that is claiming. Errors: ErrTokenReused, *EndedError, ErrAlreadyClaimed,
// ErrNotLoaded, *StaleError, ErrNoFence.
func (s *Store) Copy(ctx context.Context, e holdover.Epoch, h holdover.Hold) (c Copied, err error) {
	h.State = holdover.StateHeld
	if err := checkFact(h); err != nil {
		return Copied{}, err
	}
	answer, err := s.run(ctx, step{op: "copy", script: s.scripts.copy, token: h.Token, shop: h.Shop, asked: e, writes: true},
		epochText(e), h.Token.String(), h.Shop, encodeLines(h.Lines), millis(h.ExpiresAt), millis(h.GrantedAt), attemptText(h.Attempt))
	if err != nil {
		return Copied{}, err
	}
	c.Replayed = answer.number() == 1
	c.Hold, err = answer.hold()
	c.Remaining = answer.numbers()
	c.WouldGrant = answer.number() == 1
	return c, s.readable("copy", h.Token, &answer, err)
}

// Mark begins a claim: a held hold becomes claiming, which neither expires nor
// can be released. With part, lines of the hold in any order, only those are
// claimed, and the units of the rest go back to the counters in the same step.
// A hold that is claiming or claimed is returned as it is, when it is so with
// the same part. A hold of another shop is unknown; shop zero is any. Errors:
// ErrUnknownHold, *EndedError, ErrTokenReused (another part), *InvalidError (no
// part of the hold), ErrNotLoaded when a counter that gets units back is
// missing, *StaleError, ErrNoFence.
func (s *Store) Mark(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, part []holdover.Line) (holdover.Hold, error) {
	if len(part) > 0 {
		if err := checkLines(max(shop, 1), part); err != nil {
			return holdover.Hold{}, err
		}
	}
	answer, err := s.run(ctx, step{op: "mark", script: s.scripts.mark, token: token, asked: e, writes: true},
		epochText(e), token.String(), shop, encodeLines(part))
	if err != nil {
		return holdover.Hold{}, err
	}
	_, h, err := s.changed("mark", token, &answer)
	return h, err
}

// Extend makes a held hold live for at least ttl from now by Redis's clock, and
// at most life from its grant; an expiry never moves back. Again says that it
// lived that long before. A hold of another shop is unknown; shop zero is any.
// Errors: ErrUnknownHold, *EndedError, ErrAlreadyClaimed, ErrClaimPending,
// *StaleError, ErrNoFence.
func (s *Store) Extend(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, ttl, life time.Duration) (holdover.Hold, error) {
	answer, err := s.run(ctx, step{op: "extend", script: s.scripts.extend, token: token, asked: e, writes: true},
		epochText(e), token.String(), shop, ttl.Milliseconds(), life.Milliseconds())
	if err != nil {
		return holdover.Hold{}, err
	}
	_, h, err := s.changed("extend", token, &answer)
	return h, err
}

// End begins an end: a held hold becomes how (released or expired) and its
// units go back to the counters; an unknown token gets an end record when the
// shop is zero, and is refused with ErrUnknownHold otherwise. A hold
// that has ended is returned as it is, and so is, for StateExpired, one whose
// expiry has not passed. A hold of another shop: ErrUnknownHold; shop zero is
// any. Errors: ErrClaimPending, ErrAlreadyClaimed, ErrNotLoaded, *StaleError,
// ErrNoFence.
func (s *Store) End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State) (holdover.Hold, error) {
	_, h, err := s.end(ctx, e, token, how, shop, shop != 0)
	return h, err
}

// end is End for a hold of this shop only (zero: any); with known, an unknown
// token is refused instead of remembered. It reports whether it changed anything.
func (s *Store) end(ctx context.Context, e holdover.Epoch, token holdover.Token, how holdover.State, shop int64, known bool) (bool, holdover.Hold, error) {
	if how != holdover.StateReleased && how != holdover.StateExpired {
		return false, holdover.Hold{}, &holdover.InvalidError{Field: "state", Value: how.String(), Problem: "is no way to end a hold: want released or expired"}
	}
	answer, err := s.run(ctx, step{op: "end as " + how.String(), script: s.scripts.end, token: token, asked: e, writes: true},
		epochText(e), token.String(), how.String(), shop, flag(known))
	if err != nil {
		return false, holdover.Hold{}, err
	}
	kept, h, err := s.changed("end as "+how.String(), token, &answer)
	return !kept, h, err
}

// GiveBack undoes a tentative grant of this attempt and reports whether it did.
// A hold that is firm, another attempt's, ended, claiming or older than the
// give-back window stays.
func (s *Store) GiveBack(ctx context.Context, token holdover.Token, a holdover.Attempt) (bool, error) {
	answer, err := s.run(ctx, step{op: "give back", script: s.scripts.giveBack, token: token, writes: true}, token.String(), attemptText(a))
	if err != nil {
		return false, err
	}
	done := answer.number() == 1
	return done, s.readable("give back", token, &answer, nil)
}

// Apply carries a fact: h.State is held, claimed, released or expired. It has
// no epoch, is idempotent by token and never gives units to a token that ended
// here, with one exception: a claim is in the ledger, so it wins over an end,
// and takes the units of its part again. A held fact of a hold that is there
// moves its expiry forward, never back. It returns the hold as it is afterwards. A counter
// may go below zero. Errors: ErrTokenReused, ErrNotLoaded when a counter that
// would have to change is missing (nothing is written then).
func (s *Store) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	return s.apply(ctx, 0, h)
}

func (s *Store) apply(ctx context.Context, e holdover.Epoch, h holdover.Hold) (holdover.Hold, error) {
	if err := checkFact(h); err != nil {
		return holdover.Hold{}, err
	}
	op := "apply " + h.State.String()
	answer, err := s.run(ctx, step{op: op, script: s.scripts.apply, token: h.Token, shop: h.Shop, asked: e, writes: true},
		h.Token.String(), h.Shop, encodeLines(h.Lines), h.State.String(), millis(h.ExpiresAt), millis(h.GrantedAt), attemptText(h.Attempt), encodeLines(h.Claimed), epochText(e))
	if err != nil {
		return holdover.Hold{}, err
	}
	_, after, err := s.changed(op, h.Token, &answer)
	return after, err
}

// checkFact: a held fact needs its lines and expiry, the others may be an end
// record of a hold that was never known.
func checkFact(h holdover.Hold) error {
	switch h.State {
	case holdover.StateHeld:
		if h.ExpiresAt.IsZero() {
			return &holdover.InvalidError{Field: "expires_at", Problem: "is missing: the fact of hold " + h.Token.String() + " carries the expiry of the store that granted it"}
		}
		return checkLines(h.Shop, h.Lines)
	case holdover.StateClaimed, holdover.StateReleased, holdover.StateExpired:
		if len(h.Lines) == 0 {
			return nil
		}
		if len(h.Claimed) > 0 {
			if err := checkLines(h.Shop, h.Claimed); err != nil {
				return err
			}
		}
		return checkLines(h.Shop, h.Lines)
	default:
		return &holdover.InvalidError{Field: "state", Value: h.State.String(), Problem: "is no fact: want held, claimed, released or expired"}
	}
}

// Lookup returns what Redis knows of the token, end records included; State is
// StateNone, and no error, for an unknown one.
func (s *Store) Lookup(ctx context.Context, token holdover.Token) (holdover.Hold, error) {
	answer, err := s.run(ctx, step{op: "look up", script: s.scripts.lookup, token: token}, token.String())
	if err != nil {
		return holdover.Hold{}, err
	}
	_, h, err := s.changed("look up", token, &answer)
	return h, err
}

// changed reads an answer of a flag and a hold.
func (s *Store) changed(op string, token holdover.Token, r *reply) (kept bool, h holdover.Hold, err error) {
	kept = r.number() == 1
	h, err = r.hold()
	h.Again = kept
	return kept, h, s.readable(op, token, r, err)
}

// readable turns an answer that can't be read into a StoreError: the step
// itself was carried out, so the token can be looked up.
func (s *Store) readable(op string, token holdover.Token, r *reply, err error) error {
	if err == nil {
		err = r.err
	}
	if err == nil {
		return nil
	}
	return s.failure(op, token, true, fmt.Errorf("unreadable: %w", err))
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// narrowScan and wholeScan bound how many entries of an index one listing
// reads while it looks for matches.
const (
	narrowScan = 2000
	wholeScan  = 10000
	maxList    = 1000
)

// Due lists up to limit held holds whose expiry is at least
// grace past, oldest first. items, when not empty, narrows it to holds with one
// of these items of the shop; it then looks at the 2,000 oldest only.
func (s *Store) Due(ctx context.Context, grace time.Duration, shop int64, items []int64, limit int) ([]holdover.Hold, error) {
	return s.list(ctx, "list due holds", "holds", grace, shop, items, limit)
}

// Look looks again after a vote was short, at one moment: it lists up to limit held
// holds of r's items that are due, oldest first. When none is, and the units are
// still short, it is refused with the *OutOfStockError of that moment; neither means
// that units have come back. It changes nothing. Errors: as Vote's.
func (s *Store) Look(ctx context.Context, e holdover.Epoch, r holdover.Request, limit int) ([]holdover.Hold, error) {
	const op = "look before a refusal"
	if err := checkLines(r.Shop, r.Lines); err != nil {
		return nil, err
	}
	if limit <= 0 {
		return nil, &holdover.InvalidError{Field: "limit", Value: strconv.Itoa(limit), Problem: "must be positive"}
	}
	answer, err := s.run(ctx, step{op: op, script: s.scripts.look, token: r.Token, shop: r.Shop, asked: e},
		epochText(e), r.Shop, encodeLines(r.Lines), min(limit, maxList), narrowScan)
	if err != nil {
		return nil, err
	}
	due, err := answer.holds()
	return due, s.readable(op, r.Token, &answer, err)
}

// Marked lists up to limit holds that have been claiming for at least age, oldest
// first.
func (s *Store) Marked(ctx context.Context, age time.Duration, limit int) ([]holdover.Hold, error) {
	return s.list(ctx, "list marked holds", "claiming", age, 0, nil, limit)
}

// list reads maxList at a time: Redis serves nobody else meanwhile. What comes or
// goes between two pages may be missed.
func (s *Store) list(ctx context.Context, op, index string, age time.Duration, shop int64, items []int64, limit int) (all []holdover.Hold, err error) {
	if limit <= 0 {
		return nil, &holdover.InvalidError{Field: "limit", Value: strconv.Itoa(limit), Problem: "must be positive"}
	}
	for len(all) < limit {
		want := min(limit-len(all), maxList)
		page, err := s.listPage(ctx, op, index, age, shop, items, len(all), want)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); len(page) < want {
			break
		}
	}
	return all, nil
}

func (s *Store) listPage(ctx context.Context, op, index string, age time.Duration, shop int64, items []int64, skip, limit int) ([]holdover.Hold, error) {
	bound := wholeScan + skip
	if len(items) > 0 {
		bound = narrowScan
	}
	args := []any{index, age.Milliseconds(), shop, skip, limit, bound}
	for _, item := range items {
		args = append(args, item)
	}
	answer, err := s.run(ctx, step{op: op, script: s.scripts.list}, args...)
	if err != nil {
		return nil, err
	}
	holds, err := answer.holds()
	if err != nil {
		return nil, s.failure(op, holdover.Token{}, false, err)
	}
	return holds, nil
}
