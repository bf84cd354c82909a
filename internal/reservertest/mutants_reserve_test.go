package reservertest_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"holdover"
	"holdover/internal/model"
	"holdover/internal/reservertest"
)

// reserveMutants are faults of granting.
var reserveMutants = map[string]mutant{
	"a replay takes again": {[]string{"Replay", "OneTokenAtOnce", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				res, err := m.Reserve(ctx, r)
				if res.Replayed {
					r.Token = holdover.NewToken()
					_, _ = m.Reserve(ctx, r)
				}
				return res, err
			}}
		}},
	"a replay renews the expiry": {[]string{"Replay"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				res, err := m.Reserve(ctx, r)
				if res.Replayed {
					res.Hold.ExpiresAt = m.Now().Add(r.TTL)
				}
				return res, err
			}}
		}},
	"a replay is not called one": {[]string{"Replay", "LateEnds", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				res, err := m.Reserve(ctx, r)
				res.Replayed = false
				return res, err
			}}
		}},
	"the lines of a known token are not looked at": {[]string{"TokenReused", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				res, err := m.Reserve(ctx, r)
				if errors.Is(err, holdover.ErrTokenReused) {
					if found, lookErr := m.Lookup(ctx, r.Shop, r.Token); lookErr == nil && found.Hold.State.Live() {
						found.Replayed = true
						return found, nil
					}
				}
				return res, err
			}}
		}},
	"the shop is not looked at": {[]string{"OtherShop"},
		func(f *reservertest.Fixture, m *model.Model) {
			shop := f.Shop
			f.Reserver = broken{Model: m,
				claim: func(ctx context.Context, _ int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
					return m.Claim(ctx, shop, token, lines...)
				}}
		}},
	"one unit is oversold": {[]string{"SoldOut", "Carts", "Locations", "HundredBuyersTenUnits", "CartsAtOnce", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Load = func(_ *testing.T, stock map[[2]int64]int64) {
				more := map[[2]int64]int64{}
				for place, units := range stock {
					more[place] = units + 1
				}
				m.Load(f.Shop, more)
			}
			free, ledger, each := f.Free, f.Ledger, int64(1)
			f.Free = func(t *testing.T, item, group int64) int64 { return free(t, item, group) - each }
			f.Ledger = func(t *testing.T, item int64) int64 { return ledger(t, item) - each }
		}},
	"check and take are two steps": {[]string{"HundredBuyersTenUnits"},
		func(f *reservertest.Fixture, m *model.Model) {
			var mu sync.Mutex
			extra := map[int64]int64{}
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				enough := true
				for _, l := range r.Lines {
					units, loaded := m.Free(r.Shop, l.Item, l.Group)
					enough = enough && loaded && units >= l.Quantity
				}
				if enough {
					pause()
				}
				res, err := m.Reserve(ctx, r)
				if enough && errors.Is(err, holdover.ErrOutOfStock) {
					mu.Lock()
					defer mu.Unlock()
					put(m, r.Shop, r.Lines, 1) // the counter goes below zero
					for _, l := range r.Lines {
						extra[l.Item] += l.Quantity
					}
					return m.Reserve(ctx, r)
				}
				return res, err
			}}
			free := f.Free
			f.Free = func(t *testing.T, item, group int64) int64 { return free(t, item, group) - extra[item] }
		}},
	"the last unit is never sold": {[]string{"SoldOut", "HundredBuyersTenUnits", "CartsAtOnce", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				trial := m.Clone()
				if res, err := trial.Reserve(ctx, r); err == nil && !res.Replayed {
					for _, l := range r.Lines {
						if units, _ := trial.Free(r.Shop, l.Item, l.Group); units == 0 {
							return holdover.Result{Decision: res.Decision}, &holdover.OutOfStockError{Store: res.Decision.Store, Shop: r.Shop,
								Short: []holdover.Shortage{{Item: l.Item, Group: l.Group, Want: l.Quantity, Left: l.Quantity - 1}}}
						}
					}
				}
				return m.Reserve(ctx, r)
			}}
		}},
	"a refused cart keeps its first line": {[]string{"Carts", "NotLoaded", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				res, err := m.Reserve(ctx, r)
				if len(r.Lines) > 1 && (errors.Is(err, holdover.ErrOutOfStock) || errors.Is(err, holdover.ErrNotLoaded)) {
					r.Token, r.Lines = holdover.NewToken(), r.Lines[:1]
					_, _ = m.Reserve(ctx, r)
				}
				return res, err
			}}
		}},
	"two lines of an item are checked one by one": {[]string{"Carts"},
		func(f *reservertest.Fixture, m *model.Model) {
			extra := map[int64]int64{}
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				res, err := m.Reserve(ctx, r)
				if len(r.Lines) == 2 && r.Lines[0].Item == r.Lines[1].Item && errors.Is(err, holdover.ErrOutOfStock) {
					units, _ := m.Free(r.Shop, r.Lines[0].Item, r.Lines[0].Group)
					if r.Lines[0].Quantity <= units && r.Lines[1].Quantity <= units {
						put(m, r.Shop, r.Lines[:1], 1)
						extra[r.Lines[0].Item] += r.Lines[0].Quantity
						return m.Reserve(ctx, r)
					}
				}
				return res, err
			}}
			free := f.Free
			f.Free = func(t *testing.T, item, group int64) int64 { return free(t, item, group) - extra[item] }
		}},
	"a missing record is a zero": {[]string{"NotLoaded"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				res, err := m.Reserve(ctx, r)
				if errors.Is(err, holdover.ErrNotLoaded) && len(r.Lines) > 0 {
					err = &holdover.OutOfStockError{Store: res.Decision.Store, Shop: r.Shop,
						Short: []holdover.Shortage{{Item: r.Lines[0].Item, Group: r.Lines[0].Group, Want: r.Lines[0].Quantity}}}
				}
				return res, err
			}}
		}},
	"a refusal is remembered": {[]string{"RefusalNotRemembered", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			refused := map[holdover.Token]error{}
			var mu sync.Mutex
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				if err := refused[r.Token]; err != nil {
					return holdover.Result{Decision: holdover.Decision{Store: holdover.StoreMySQL, Reason: "refused before"}}, err
				}
				res, err := m.Reserve(ctx, r)
				if errors.Is(err, holdover.ErrOutOfStock) {
					refused[r.Token] = err
				}
				return res, err
			}}
		}},
}
