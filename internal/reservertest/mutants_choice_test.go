package reservertest_test

import (
	"context"
	"errors"
	"slices"

	"holdover"
	"holdover/internal/model"
	"holdover/internal/reservertest"
)

// choosing is a mutant that changes how a request with choices is answered.
func choosing(reserve func(ctx context.Context, m *model.Model, r holdover.Request) (holdover.Result, error)) func(*reservertest.Fixture, *model.Model) {
	return func(f *reservertest.Fixture, m *model.Model) {
		f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
			if _, err := r.Normalize(holdover.Limits{}); err != nil || len(r.Choices) == 0 {
				return m.Reserve(ctx, r)
			}
			r.Choices = slices.Clone(r.Choices)
			return reserve(ctx, m, r)
		}}
	}
}

// choiceMutants are faults of lines whose location the store picks.
var choiceMutants = map[string]mutant{
	"the order of preference is not kept": {[]string{"Choices/Preference", "Choices/RandomAgainstModel"},
		choosing(func(ctx context.Context, m *model.Model, r holdover.Request) (holdover.Result, error) {
			for i, c := range r.Choices {
				r.Choices[i].Groups = slices.Sorted(slices.Values(c.Groups))
			}
			return m.Reserve(ctx, r)
		})},
	"only the first choice is tried": {[]string{"Choices/Preference", "Choices/Replay", "Choices/Carts", "Choices/BuyersAtOnce", "Choices/DueHold", "Choices/RandomAgainstModel"},
		choosing(func(ctx context.Context, m *model.Model, r holdover.Request) (holdover.Result, error) {
			for i := range r.Choices {
				r.Choices[i].Groups = r.Choices[i].Groups[:1]
			}
			return m.Reserve(ctx, r)
		})},
	"every choice is split": {[]string{"Choices/Refused", "Choices/RandomAgainstModel"},
		choosing(func(ctx context.Context, m *model.Model, r holdover.Request) (holdover.Result, error) {
			for i := range r.Choices {
				r.Choices[i].Split = true
			}
			return m.Reserve(ctx, r)
		})},
	"no choice is split": {[]string{"Choices/Split", "Choices/RandomAgainstModel"},
		choosing(func(ctx context.Context, m *model.Model, r holdover.Request) (holdover.Result, error) {
			for i := range r.Choices {
				r.Choices[i].Split = false
			}
			return m.Reserve(ctx, r)
		})},
	"a location that is not listed helps out": {[]string{"Choices/Refused", "Choices/RandomAgainstModel"},
		choosing(func(ctx context.Context, m *model.Model, r holdover.Request) (holdover.Result, error) {
			res, err := m.Reserve(ctx, r)
			if errors.Is(err, holdover.ErrOutOfStock) {
				for i, c := range r.Choices {
					for _, group := range []int64{1, 2, 3} {
						if !slices.Contains(c.Groups, group) {
							r.Choices[i].Groups = append(slices.Clone(r.Choices[i].Groups), group)
						}
					}
				}
				return m.Reserve(ctx, r)
			}
			return res, err
		})},
	"a replay must be the first choice": {[]string{"Choices/Replay", "Choices/OneTokenAtOnce", "Choices/RandomAgainstModel"},
		choosing(func(ctx context.Context, m *model.Model, r holdover.Request) (holdover.Result, error) {
			res, err := m.Reserve(ctx, r)
			for _, l := range res.Hold.Lines {
				for _, c := range r.Choices {
					if res.Replayed && c.Item == l.Item && c.Groups[0] != l.Group {
						return holdover.Result{Decision: res.Decision}, holdover.ErrTokenReused
					}
				}
			}
			return res, err
		})},
	"a replay is at any location": {[]string{"Choices/Replay"},
		choosing(func(ctx context.Context, m *model.Model, r holdover.Request) (holdover.Result, error) {
			res, err := m.Reserve(ctx, r)
			if found, lookErr := m.Lookup(ctx, r.Shop, r.Token); errors.Is(err, holdover.ErrTokenReused) && lookErr == nil && found.Hold.State.Live() {
				found.Replayed = true
				return found, nil
			}
			return res, err
		})},
	"a refused choice keeps the rest of the cart": {[]string{"Choices/Carts", "Choices/RandomAgainstModel"},
		choosing(func(ctx context.Context, m *model.Model, r holdover.Request) (holdover.Result, error) {
			res, err := m.Reserve(ctx, r)
			if errors.Is(err, holdover.ErrOutOfStock) && len(r.Choices) > 1 {
				r.Token, r.Choices = holdover.NewToken(), r.Choices[:1]
				_, _ = m.Reserve(ctx, r)
			}
			return res, err
		})},
	"no location is known, so it is sold out": {[]string{"Choices/UnknownGroups"},
		choosing(func(ctx context.Context, m *model.Model, r holdover.Request) (holdover.Result, error) {
			res, err := m.Reserve(ctx, r)
			if errors.Is(err, holdover.ErrNotLoaded) {
				err = &holdover.OutOfStockError{Store: res.Decision.Store, Shop: r.Shop,
					Short: []holdover.Shortage{{Item: r.Choices[0].Item, Want: r.Choices[0].Quantity}}}
			}
			return res, err
		})},
	"a bad choice is repaired": {[]string{"Choices/BadInput"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				r.Choices = slices.Clone(r.Choices)
				for i, c := range r.Choices {
					r.Choices[i].Groups = slices.Compact(slices.Clone(c.Groups))
				}
				return m.Reserve(ctx, r)
			}}
		}},
}
