package reservertest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/internal/model"
	"holdover/internal/reservertest"
)

type claimFunc = func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error)

// claims is the mutant that claims with another function.
func claims(with func(m *model.Model, f *reservertest.Fixture) claimFunc, caughtBy ...string) mutant {
	return mutant{caughtBy, func(f *reservertest.Fixture, m *model.Model) {
		f.Reserver = broken{Model: m, claim: with(m, f)}
	}}
}

// partMutants are faults of claiming a part.
var partMutants = map[string]mutant{
	"a part claims everything": claims(func(m *model.Model, _ *reservertest.Fixture) claimFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, _ ...holdover.Line) (holdover.Result, error) {
			return m.Claim(ctx, shop, token)
		}
	}, "PartialClaim", "RandomAgainstModel"),
	"the rest is lost": claims(func(m *model.Model, _ *reservertest.Fixture) claimFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
			res, err := m.Claim(ctx, shop, token, lines...)
			if err == nil && !res.Replayed {
				put(m, shop, res.Hold.Rest(), -1)
			}
			return res, err
		}
	}, "PartialClaim", "PartialClaimsAtOnce", "RandomAgainstModel"),
	"the rest comes back later": claims(func(m *model.Model, f *reservertest.Fixture) claimFunc {
		var later []holdover.Line
		f.Settle = func(*testing.T) { put(m, f.Shop, later, 1); later = nil }
		return func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
			res, err := m.Claim(ctx, shop, token, lines...)
			if err == nil && !res.Replayed {
				put(m, shop, res.Hold.Rest(), -1)
				later = append(later, res.Hold.Rest()...)
			}
			return res, err
		}
	}, "PartialClaim"),
	"any repeat is a replay": claims(func(m *model.Model, _ *reservertest.Fixture) claimFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
			res, err := m.Claim(ctx, shop, token, lines...)
			if errors.Is(err, holdover.ErrTokenReused) {
				res.Replayed, err = true, nil
			}
			return res, err
		}
	}, "PartialClaim", "PartialClaimsAtOnce", "RandomAgainstModel"),
	"lines that are none of the hold's are left out": claims(func(m *model.Model, _ *reservertest.Fixture) claimFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
			if seen, err := m.Lookup(ctx, shop, token); err == nil && len(lines) > 0 {
				kept := slices.DeleteFunc(slices.Clone(lines), func(l holdover.Line) bool {
					return !slices.ContainsFunc(seen.Hold.Lines, func(h holdover.Line) bool { return h.Item == l.Item && h.Group == l.Group })
				})
				if len(kept) > 0 {
					lines = kept
				}
			}
			return m.Claim(ctx, shop, token, lines...)
		}
	}, "PartialClaim", "RandomAgainstModel"),
	"the answer keeps the part for itself": claims(func(m *model.Model, _ *reservertest.Fixture) claimFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
			res, err := m.Claim(ctx, shop, token, lines...)
			res.Hold.Claimed = nil
			return res, err
		}
	}, "PartialClaim"),
	"all lines are a part": claims(func(m *model.Model, _ *reservertest.Fixture) claimFunc {
		var mu sync.Mutex
		inLines := map[holdover.Token]bool{}
		return func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
			res, err := m.Claim(ctx, shop, token, lines...)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !res.Replayed {
				inLines[token] = len(lines) > 0
			} else if err == nil && inLines[token] != (len(lines) > 0) {
				return holdover.Result{Decision: res.Decision}, holdover.ErrTokenReused
			}
			return res, err
		}
	}, "PartialClaim"),
	"two parts win at once": claims(func(m *model.Model, _ *reservertest.Fixture) claimFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
			seen, err := m.Lookup(ctx, shop, token)
			held := err == nil && seen.Hold.State == holdover.StateHeld
			if held {
				pause()
			}
			res, err := m.Claim(ctx, shop, token, lines...)
			if held && errors.Is(err, holdover.ErrTokenReused) {
				put(m, shop, lines, -1)
				res.Hold.State, err = holdover.StateClaimed, nil
			}
			return res, err
		}
	}, "PartialClaimsAtOnce"),
}

type extendFunc = func(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error)

func extends(with func(m *model.Model) extendFunc, caughtBy ...string) mutant {
	return mutant{caughtBy, func(f *reservertest.Fixture, m *model.Model) {
		f.Reserver = broken{Model: m, extend: with(m)}
	}}
}

// extendMutants are faults of extending.
var extendMutants = map[string]mutant{
	"an extension is only an answer": extends(func(m *model.Model) extendFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
			return m.Clone().Extend(ctx, shop, token, ttl)
		}
	}, "Extend", "ExtendAgainstExpiry", "RandomAgainstModel"),
	"an extension counts from the expiry": extends(func(m *model.Model) extendFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
			if seen, err := m.Lookup(ctx, shop, token); err == nil && ttl > 0 {
				ttl += max(0, seen.Hold.ExpiresAt.Sub(m.Now()))
			}
			return m.Extend(ctx, shop, token, ttl)
		}
	}, "Extend"),
	"an extension moves back": extends(func(m *model.Model) extendFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
			res, err := m.Extend(ctx, shop, token, ttl)
			if err == nil && res.Replayed {
				res.Replayed, res.Hold.ExpiresAt = false, m.Now().Add(ttl)
			}
			return res, err
		}
	}, "Extend", "RandomAgainstModel"),
	"an extension has no maximum": extends(func(m *model.Model) extendFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
			res, err := m.Extend(ctx, shop, token, ttl)
			if err == nil {
				res.Hold.ExpiresAt = m.Now().Add(ttl)
			}
			return res, err
		}
	}, "Extend"),
	"an ended hold is extended": extends(func(m *model.Model) extendFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
			res, err := m.Extend(ctx, shop, token, ttl)
			if errors.Is(err, holdover.ErrEnded) || errors.Is(err, holdover.ErrAlreadyClaimed) {
				err = nil
			}
			return res, err
		}
	}, "Extend", "ExtendAgainstExpiry", "RandomAgainstModel"),
	"an extension past the expiry ends the hold": extends(func(m *model.Model) extendFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
			m.ExpireHold(token)
			return m.Extend(ctx, shop, token, ttl)
		}
	}, "Extend"),
	"any shop can extend": extends(func(m *model.Model) extendFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
			res, err := m.Extend(ctx, shop, token, ttl)
			if errors.Is(err, holdover.ErrUnknownHold) {
				return m.Extend(ctx, shop-1, token, ttl)
			}
			return res, err
		}
	}, "Extend"),
	"any time to live will do": extends(func(m *model.Model) extendFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
			return m.Extend(ctx, shop, token, min(max(ttl, time.Second), 24*time.Hour))
		}
	}, "Extend"),
	"an extension takes the units again": extends(func(m *model.Model) extendFunc {
		return func(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
			res, err := m.Extend(ctx, shop, token, ttl)
			if err == nil && !res.Replayed {
				put(m, shop, res.Hold.Lines, -1)
			}
			return res, err
		}
	}, "Extend", "RandomAgainstModel"),
}
