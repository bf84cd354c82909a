package holdover

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"
)

// Late is the token under which the units of this token's hold are taken again
// when it is claimed after it has expired. An end record is final, so the hold
// itself stays expired; but it follows from the token, so that every repeat of
// the claim, on any instance, is one and the same. It is a UUID of version 8.
func (t Token) Late() Token {
	const label = "holdover: late claim"
	sum := sha256.Sum256(append(t[:], label...))
	late := Token(sum[:16])
	late[6] = late[6]&0x0f | 0x80
	late[8] = late[8]&0x3f | 0x80
	return late
}

// LateClaimError is the refusal of a claim that came after its hold had
// expired: the units are gone. Nothing was deducted, and nothing is remembered:
// a repeat tries anew. It matches ErrEnded and ErrOutOfStock.
type LateClaimError struct {
	Token Token
	Store Store
	Shop  int64
	Short []Shortage
}

func (e *LateClaimError) Error() string {
	return fmt.Sprintf("hold %s has expired, and its units can't be taken again: %v", e.Token, e.refusal())
}

func (e *LateClaimError) refusal() *OutOfStockError {
	return &OutOfStockError{Store: e.Store, Shop: e.Shop, Short: e.Short}
}

// Unwrap makes it match ErrEnded and ErrOutOfStock, by their types too.
func (e *LateClaimError) Unwrap() []error {
	return []error{&EndedError{Token: e.Token, State: StateExpired}, e.refusal()}
}

// LateClaims lets a claim of an expired hold take the units again if there are
// any. It works above a Reserver's own operations: the units are reserved under
// Token.Late, in the hold's lines, and claimed at once. To callers the hold is
// claimed from then on, with Hold.Late set. A released hold is never claimed
// late, nor one whose end record the store has forgotten.
//
// A crash between the two leaves a hold that expires after a minute; a repeat
// of the claim finishes it until then, and follows to the next token after it:
// the late token of the late token.
type LateClaims struct {
	// Off: nothing is taken late any more. What was claimed late before is still
	// told as claimed.
	Off bool
	// Reserve answers a normalized request.
	Reserve func(ctx context.Context, r Request) (Result, error)
	// Claim is the Reserver's own, without this.
	Claim func(ctx context.Context, shop int64, token Token, lines ...Line) (Result, error)
	// Lookup is the deciding store's; an unknown token has StateNone and no error.
	Lookup func(ctx context.Context, token Token) (Hold, error)
}

const (
	lateTTL = time.Minute // of a hold between its two steps
	maxLate = 16          // crashed late claims of one token that are followed
)

// AfterClaim is the answer to a claim that the Reserver itself has answered with
// res and err: unless the hold had expired, they stand.
func (l LateClaims) AfterClaim(ctx context.Context, shop int64, token Token, lines []Line, res Result, err error) (Result, error) {
	if !expired(err) {
		return res, err
	}
	h, lookErr := l.Lookup(ctx, token)
	switch {
	case lookErr != nil:
		return res, lookErr
	case h.State != StateExpired && h.State != StateHeld || h.Shop != shop || len(h.Lines) == 0:
		return res, err
	}
	h.State = StateExpired // the claim was told so; a store that still has it as held is about to follow
	res.Hold = h
	part, partErr := h.PartOf(lines)
	if partErr != nil {
		return res, partErr
	}
	h.Claimed = part
	late, lookErr := l.follow(ctx, token)
	switch {
	case lookErr != nil:
		return res, lookErr
	case late.State == StateNone && l.Off, late.State.Ended() && late.State != StateClaimed:
		return res, err
	case late.State != StateNone && !SameLines(late.Lines, h.Part()):
		return res, fmt.Errorf("hold %s is claimed late in other lines, as %s: %w", token, late.Token, ErrTokenReused)
	}
	if !taken(late) {
		got, err := l.Reserve(ctx, Request{Shop: shop, Token: late.Token, Lines: h.Part(), TTL: lateTTL})
		var short *OutOfStockError
		switch {
		case errors.As(err, &short):
			res.Decision = got.Decision
			return res, &LateClaimError{Token: token, Store: short.Store, Shop: shop, Short: short.Short}
		case err != nil && !errors.Is(err, ErrAlreadyClaimed): // claimed by a twin of this call in the meantime
			res.Decision = got.Decision
			return res, fmt.Errorf("late claim of hold %s: %w", token, l.again(err))
		}
	}
	got, err := l.Claim(context.WithoutCancel(ctx), shop, late.Token) // once taken, it is finished
	if err != nil {
		res.Decision = got.Decision
		return res, fmt.Errorf("late claim of hold %s: %w", token, l.again(err))
	}
	h.State, h.Late = got.Hold.State, late.Token
	got.Hold = h
	got.Decision.Reason = "claimed late, as " + late.Token.String() + ": " + got.Decision.Reason
	return got, nil
}

// again is err, but never that the late token's hold has ended: it ended
// between two steps of this call, and a repeat goes on to the next token.
func (l LateClaims) again(err error) error {
	if errors.Is(err, ErrEnded) {
		return fmt.Errorf("%w: %v", ErrTryAgain, err)
	}
	return err
}

// AfterLookup is the answer to a look-up that found res: an expired hold that was
// claimed late is claimed.
func (l LateClaims) AfterLookup(ctx context.Context, res Result, err error) (Result, error) {
	if err != nil || res.Hold.State != StateExpired {
		return res, err
	}
	late, err := l.follow(ctx, res.Hold.Token)
	if err != nil || !taken(late) || late.Shop != res.Hold.Shop {
		return res, err
	}
	res.Hold.State, res.Hold.Late = late.State, late.Token
	if len(late.Lines) > 0 && !SameLines(late.Lines, res.Hold.Lines) {
		res.Hold.Claimed = late.Lines
	}
	res.Decision.Reason += "; claimed late, as " + late.Token.String()
	return res, nil
}

// AfterEnded is the answer to any other operation on token: a hold that was
// claimed late has not just expired.
func (l LateClaims) AfterEnded(ctx context.Context, shop int64, token Token, res Result, err error) (Result, error) {
	if !expired(err) {
		return res, err
	}
	late, lookErr := l.follow(ctx, token)
	switch {
	case lookErr != nil:
		return res, lookErr
	case !taken(late) || late.Shop != shop:
		return res, err
	}
	res.Decision.Reason += "; claimed late, as " + late.Token.String()
	return res, EndError(token, StateClaimed)
}

// follow finds the hold of token's late claim: the first one that has not
// expired itself.
func (l LateClaims) follow(ctx context.Context, token Token) (h Hold, err error) {
	for range maxLate {
		token = token.Late()
		if h, err = l.Lookup(ctx, token); err != nil || h.State != StateExpired {
			break
		}
	}
	h.Token = token
	return h, err
}

// taken reports that the late claim of h is certain.
func taken(h Hold) bool { return h.State == StateClaiming || h.State == StateClaimed }

func expired(err error) bool {
	var ended *EndedError
	return errors.As(err, &ended) && ended.State == StateExpired
}
