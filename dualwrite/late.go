package dualwrite

import (
	"context"

	"holdover"
)

// lateClaims claims what has expired by the facade's own reserve and claim, so
// that every stage, mirror and journal sees two ordinary operations.
func (f *Facade) lateClaims() holdover.LateClaims {
	return holdover.LateClaims{
		Off: f.cfg.Limits.NoLateClaims,
		Reserve: func(ctx context.Context, r holdover.Request) (holdover.Result, error) {
			return f.reserveNormal(ctx, r, holdover.MarkLate)
		},
		Claim: func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
			return f.claimHold(ctx, shop, token, holdover.MarkLate, lines...)
		},
		Lookup: func(ctx context.Context, token holdover.Token) (h holdover.Hold, err error) {
			_, err = f.call(ctx, newAttempt(token), func(ctx context.Context, v *view) (holdover.Result, error) {
				var err error
				h, err = f.lookup(ctx, v, token)
				return holdover.Result{}, err
			})
			return h, err
		},
	}
}
