package reservertest_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"holdover"
	"holdover/internal/model"
	"holdover/internal/reservertest"
)

// endMutants are faults of ending, expiring, looking up and refusing input.
var endMutants = map[string]mutant{
	"an ended token is granted anew": {[]string{"Ends", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				res, err := m.Reserve(ctx, r)
				if errors.Is(err, holdover.ErrEnded) {
					again := r
					again.Token = holdover.NewToken()
					res, err = m.Reserve(ctx, again)
					res.Hold.Token = r.Token
				}
				return res, err
			}}
		}},
	"a release after the claim gives the stock back": {[]string{"Ends", "ClaimAgainstRelease", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, release: func(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
				res, err := m.Release(ctx, shop, token)
				if errors.Is(err, holdover.ErrAlreadyClaimed) {
					put(m, shop, res.Hold.Lines, 1)
				}
				return res, err
			}}
		}},
	"a second release gives the stock back again": {[]string{"Ends", "ReleasesAtOnce", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, release: func(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
				res, err := m.Release(ctx, shop, token)
				if res.Replayed {
					put(m, shop, res.Hold.Lines, 1)
				}
				return res, err
			}}
		}},
	"claims at once deduct twice": {[]string{"ClaimsAtOnce"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, claim: func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
				seen, err := m.Lookup(ctx, shop, token)
				held := err == nil && seen.Hold.State == holdover.StateHeld
				if held {
					pause()
				}
				res, err := m.Claim(ctx, shop, token, lines...)
				if held && res.Replayed {
					put(m, shop, res.Hold.Lines, -1)
				}
				return res, err
			}}
		}},
	"a late claim does not look again": {[]string{"ClaimAgainstExpiry"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, claim: func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
				seen, err := m.Lookup(ctx, shop, token)
				if err == nil && seen.Hold.State == holdover.StateHeld && !m.Now().Before(seen.Hold.ExpiresAt) {
					for range 5000 { // until the other buyer has the unit, or there is none
						if len(m.Due()) == 0 {
							break
						}
						runtime.Gosched()
					}
				}
				res, err := m.Claim(ctx, shop, token, lines...)
				if errors.Is(err, holdover.ErrEnded) && seen.Hold.State == holdover.StateHeld {
					put(m, shop, seen.Hold.Lines, -1)
					res.Hold.State = holdover.StateClaimed
					return res, nil
				}
				return res, err
			}}
		}},
	"a claim does not deduct": {[]string{"Ends", "ClaimsAtOnce", "LateEnds", "SoldOut", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, claim: func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
				res, err := m.Claim(ctx, shop, token, lines...)
				if err == nil && !res.Replayed {
					put(m, shop, res.Hold.Lines, 1)
				}
				return res, err
			}}
		}},
	"a claim ends as pending": {[]string{"Ends", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, claim: func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
				res, err := m.Claim(ctx, shop, token, lines...)
				res.Pending = err == nil
				return res, err
			}}
		}},
	"a claim takes only the line's own location": {[]string{"Locations"},
		func(f *reservertest.Fixture, m *model.Model) {
			own := map[[2]int64]int64{} // what the line's location had
			load := f.Load
			f.Load = func(t *testing.T, stock map[[2]int64]int64) {
				load(t, stock)
				for place, units := range stock {
					own[place] += units
				}
			}
			f.Reserver = broken{Model: m, claim: func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
				res, err := m.Claim(ctx, shop, token, lines...)
				if err == nil && !res.Replayed {
					for _, l := range res.Hold.Lines {
						if over := l.Quantity - own[[2]int64{l.Item, l.Group}]; over > 0 {
							put(m, shop, []holdover.Line{{Item: l.Item, Group: l.Group, Quantity: over}}, 1)
						}
					}
				}
				return res, err
			}}
		}},
	"holds never expire": {[]string{"ExpiryWithoutReaper", "ExpiryByReaper", "Ends", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				if r.TTL >= 100*time.Millisecond && r.TTL < time.Hour {
					r.TTL = time.Hour
				}
				return m.Reserve(ctx, r)
			}}
			f.WaitExpired = func(*testing.T, holdover.Token) {}
		}},
	"only the reaper expires": {[]string{"ExpiryWithoutReaper"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				if norm, err := r.Normalize(holdover.Limits{}); err == nil && len(m.Due()) > 0 {
					if _, err := m.Lookup(ctx, r.Shop, r.Token); err != nil {
						for _, l := range norm.Lines {
							if units, loaded := m.Free(r.Shop, l.Item, l.Group); loaded && units < l.Quantity {
								return holdover.Result{Decision: holdover.Decision{Store: holdover.StoreMySQL, Reason: "short"}},
									&holdover.OutOfStockError{Store: holdover.StoreMySQL, Shop: r.Shop,
										Short: []holdover.Shortage{{Item: l.Item, Group: l.Group, Want: l.Quantity, Left: max(units, 0)}}}
							}
						}
					}
				}
				return m.Reserve(ctx, r)
			}}
		}},
	"the clock alone ends a hold": {[]string{"ExpiryWithoutReaper", "LateEnds", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			wait := f.WaitExpired
			f.WaitExpired = func(t *testing.T, token holdover.Token) {
				wait(t, token)
				m.ExpireHold(token)
			}
		}},
	"the reaper takes every hold": {[]string{"ExpiryByReaper", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Expire = func(*testing.T) {
				m.Advance(2 * time.Hour)
				m.Expire()
				m.Advance(-2 * time.Hour)
			}
		}},
	"a look-up forgets the ended": {[]string{"Ends", "ExpiryByReaper", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, lookup: func(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
				res, err := m.Lookup(ctx, shop, token)
				if err == nil && res.Hold.State.Ended() {
					return holdover.Result{Decision: res.Decision}, holdover.ErrUnknownHold
				}
				return res, err
			}}
		}},
	"a release of an unknown token succeeds": {[]string{"UnknownToken", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, release: func(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
				res, err := m.Release(ctx, shop, token)
				if errors.Is(err, holdover.ErrUnknownHold) {
					res.Hold = holdover.Hold{Token: token, Shop: shop, State: holdover.StateReleased}
					err = nil
				}
				return res, err
			}}
		}},
	"expired is said to be released": {[]string{"Ends", "RandomAgainstModel"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, release: func(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
				res, err := m.Release(ctx, shop, token)
				if errors.Is(err, holdover.ErrEnded) {
					err = &holdover.EndedError{Token: token, State: holdover.StateReleased}
				}
				return res, err
			}}
		}},
	"bad lines are dropped": {[]string{"BadInput"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				var good []holdover.Line
				for _, l := range r.Lines {
					if l.Quantity > 0 {
						good = append(good, l)
					}
				}
				r.Lines = good
				return m.Reserve(ctx, r)
			}}
		}},
	"a cancelled context is not looked at": {[]string{"CancelledContext"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, claim: func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
				return m.Claim(context.WithoutCancel(ctx), shop, token, lines...)
			}}
		}},
	"a cancelled reserve takes under another token": {[]string{"CancelledContext"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				res, err := m.Reserve(ctx, r)
				if holdover.NoAnswer(err) {
					r.Token = holdover.NewToken()
					_, _ = m.Reserve(context.WithoutCancel(ctx), r)
				}
				return res, err
			}}
		}},
	"refusals carry no reason": {[]string{"SoldOut", "Carts"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				res, err := m.Reserve(ctx, r)
				if errors.Is(err, holdover.ErrOutOfStock) {
					res.Decision.Reason = ""
				}
				return res, err
			}}
		}},
	"what is left is wrong": {[]string{"SoldOut", "Carts"},
		func(f *reservertest.Fixture, m *model.Model) {
			f.Reserver = broken{Model: m, reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
				res, err := m.Reserve(ctx, r)
				var short *holdover.OutOfStockError
				if errors.As(err, &short) {
					short.Short[0].Left = 0
				}
				return res, err
			}}
		}},
}
