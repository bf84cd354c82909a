package reservertest_test

import (
	"context"
	"errors"

	"holdover"
	"holdover/internal/model"
	"holdover/internal/reservertest"
)

// claiming is a mutant that changes how a claim is answered.
func claiming(claim func(ctx context.Context, m *model.Model, shop int64, token holdover.Token, lines []holdover.Line) (holdover.Result, error)) func(*reservertest.Fixture, *model.Model) {
	return func(f *reservertest.Fixture, m *model.Model) {
		f.Reserver = broken{Model: m, claim: func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
			return claim(ctx, m, shop, token, lines)
		}}
	}
}

// lateMutants are faults of claims of holds that have expired.
var lateMutants = map[string]mutant{
	"nothing is claimed late": {[]string{"LateClaims/TakenAgain", "LateClaims/Part", "LateClaims/AtOnce", "RandomAgainstModel"},
		claiming(func(ctx context.Context, m *model.Model, shop int64, token holdover.Token, lines []holdover.Line) (holdover.Result, error) {
			seen, err := m.Lookup(ctx, shop, token)
			if err == nil && seen.Hold.State == holdover.StateExpired {
				return seen, holdover.EndError(token, holdover.StateExpired)
			}
			return m.Claim(ctx, shop, token, lines...)
		})},
	"a late claim takes units that are gone": {[]string{"LateClaims/Gone", "LateClaims/Cart", "LateClaims/AgainstABuyer", "ExpiryWithoutReaper"},
		claiming(func(ctx context.Context, m *model.Model, shop int64, token holdover.Token, lines []holdover.Line) (holdover.Result, error) {
			res, err := m.Claim(ctx, shop, token, lines...)
			var late *holdover.LateClaimError
			if errors.As(err, &late) {
				put(m, shop, res.Hold.Lines, -1)
				res.Hold.State, res.Hold.Late = holdover.StateClaimed, token.Late()
				return res, nil
			}
			return res, err
		})},
	"a late claim deducts at each repeat": {[]string{"LateClaims/TakenAgain", "LateClaims/AtOnce"},
		claiming(func(ctx context.Context, m *model.Model, shop int64, token holdover.Token, lines []holdover.Line) (holdover.Result, error) {
			res, err := m.Claim(ctx, shop, token, lines...)
			if err == nil && res.Replayed && res.Hold.Late != (holdover.Token{}) {
				put(m, shop, res.Hold.Part(), -1)
			}
			return res, err
		})},
	"a late claim takes all of the hold": {[]string{"LateClaims/Part", "LateClaims/Cart"},
		claiming(func(ctx context.Context, m *model.Model, shop int64, token holdover.Token, lines []holdover.Line) (holdover.Result, error) {
			seen, err := m.Lookup(ctx, shop, token)
			if err == nil && seen.Hold.State == holdover.StateExpired {
				lines = nil
			}
			return m.Claim(ctx, shop, token, lines...)
		})},
	"a late refusal is an ordinary one": {[]string{"LateClaims/Gone", "ClaimAgainstExpiry"},
		claiming(func(ctx context.Context, m *model.Model, shop int64, token holdover.Token, lines []holdover.Line) (holdover.Result, error) {
			res, err := m.Claim(ctx, shop, token, lines...)
			var late *holdover.LateClaimError
			if errors.As(err, &late) {
				err = &holdover.EndedError{Token: token, State: holdover.StateExpired}
			}
			return res, err
		})},
	"a released hold is claimed late": {[]string{"LateClaims/ReleasedNever", "Ends", "ClaimAgainstRelease"},
		claiming(func(ctx context.Context, m *model.Model, shop int64, token holdover.Token, lines []holdover.Line) (holdover.Result, error) {
			res, err := m.Claim(ctx, shop, token, lines...)
			var ended *holdover.EndedError
			if errors.As(err, &ended) && ended.State == holdover.StateReleased {
				put(m, shop, res.Hold.Lines, -1)
				res.Hold.State = holdover.StateClaimed
				return res, nil
			}
			return res, err
		})},
	"a late claim starts anew instead of finishing": {[]string{"LateClaims/Interrupted"},
		claiming(func(ctx context.Context, m *model.Model, shop int64, token holdover.Token, lines []holdover.Line) (holdover.Result, error) {
			if seen, err := m.Lookup(ctx, shop, token); err == nil && seen.Hold.State == holdover.StateExpired {
				short := func() bool {
					for _, l := range seen.Hold.Lines {
						if units, _ := m.Free(shop, l.Item, l.Group); units < l.Quantity {
							return true
						}
					}
					return false
				}
				if begun, err := m.Lookup(ctx, shop, token.Late()); err == nil && begun.Hold.State.Live() && short() {
					return seen, &holdover.LateClaimError{Token: token, Store: seen.Decision.Store, Shop: shop,
						Short: []holdover.Shortage{{Item: seen.Hold.Lines[0].Item, Group: 1, Want: 1}}}
				}
			}
			return m.Claim(ctx, shop, token, lines...)
		})},
	"a late claim is forgotten": {[]string{"LateClaims/TakenAgain", "LateClaims/AtOnce", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, lookup: func(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
				res, err := m.Lookup(ctx, shop, token)
				if res.Hold.Late != (holdover.Token{}) {
					res.Hold.State, res.Hold.Late, res.Hold.Claimed = holdover.StateExpired, holdover.Token{}, nil
				}
				return res, err
			}}
		}},
	"a late claim can be released": {[]string{"LateClaims/TakenAgain"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, release: func(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
				res, err := m.Release(ctx, shop, token)
				if errors.Is(err, holdover.ErrAlreadyClaimed) && res.Hold.Late != (holdover.Token{}) {
					err = &holdover.EndedError{Token: token, State: holdover.StateExpired}
				}
				return res, err
			}}
		}},
}
