package holdover

import (
	"context"
	"time"
)

// Reserver is the contract of a checkout reservation, kept by the Redis path,
// the unit pool, the facade in each of its stages, and the model that the
// tests compare them with. All methods are idempotent by token, safe for
// concurrent use, and bounded by the context and by a deadline of their own.
//
// On an error Result still carries the Decision: who said so and why.
type Reserver interface {
	// Reserve takes all lines and choices or nothing. A repeat with the same
	// lines and choices returns the same hold with Replayed set. Errors: ErrOutOfStock (an
	// *OutOfStockError), ErrTokenReused, ErrAlreadyClaimed, ErrEnded,
	// ErrInvalid, ErrNotLoaded, ErrUnavailable, ErrUnknownOutcome, ErrNotReady,
	// ErrOverloaded, ErrTryAgain (others were faster at each location of a
	// choice, and stock is there). A refusal is not remembered: the same token
	// asks anew.
	Reserve(ctx context.Context, r Request) (Result, error)

	// Claim makes the deduction from the ledger permanent, exactly once. With
	// Result.Pending the claim is certain but not yet in the ledger. With lines,
	// a part of the hold's, only those are claimed and the rest is given back in
	// the same step; a repeat must name the same part. A hold that has expired
	// is claimed all the same if its units are still there (see Hold.Late), and
	// is claimed for every operation from then on. Errors: ErrUnknownHold,
	// ErrEnded (released, or expired with its units gone: a *LateClaimError),
	// ErrTokenReused (claimed before, but another part), ErrInvalid
	// (lines that are no part of the hold), ErrUnavailable, ErrUnknownOutcome,
	// ErrNotReady.
	Claim(ctx context.Context, shop int64, token Token, lines ...Line) (Result, error)

	// Extend makes the hold live for at least ttl from now, by the store's
	// clock, and never longer than Limits.MaxLife from its grant; an expiry
	// never moves back. A hold whose expiry has passed and that nobody has
	// expired yet is extended like any other. Errors: ErrUnknownHold, ErrEnded,
	// ErrAlreadyClaimed, ErrClaimPending, ErrInvalid, ErrUnavailable,
	// ErrUnknownOutcome, ErrNotReady.
	Extend(ctx context.Context, shop int64, token Token, ttl time.Duration) (Result, error)

	// Release gives the units back. Errors: as Claim, and ErrAlreadyClaimed,
	// ErrClaimPending.
	Release(ctx context.Context, shop int64, token Token) (Result, error)

	// Lookup says what the deciding store knows. Errors: ErrUnknownHold,
	// ErrUnavailable, ErrNotReady.
	Lookup(ctx context.Context, shop int64, token Token) (Result, error)
}
