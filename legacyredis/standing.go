package legacyredis

import (
	"context"

	"holdover"
)

// maxStanding and maxStandingLines bound the live holds of the pod that Standing
// reads in one step, and their lines: Redis serves nobody else meanwhile. At both
// bounds, 500 holds of two lines, that was 2.5 to 3.3 ms (SLOWLOG, Redis 7.0 on a
// core that is shared), and with 50 holds of 20 lines 0.6 to 1.3 ms; what is over a
// bound is given up within the same time.
const (
	maxStanding      = 500
	maxStandingLines = 1000
)

// Standing is what is here of a shop's items at one moment, hold by hold. It is an
// error when the pod has more than 500 live holds, of whatever items, or these have
// more than 1,000 lines.
func (s *Store) Standing(ctx context.Context, shop int64, items []int64) (holdover.Standing, error) {
	const op = "read hold by hold"
	args := []any{shop, maxStanding, maxStandingLines}
	for _, item := range items {
		args = append(args, item)
	}
	answer, err := s.run(ctx, step{op: op, script: s.scripts.standing, shop: shop}, args...)
	if err != nil {
		return holdover.Standing{}, err
	}
	all := holdover.Standing{Counters: answer.numbers()}
	for _, into := range []*[]holdover.StandingHold{&all.Held, &all.Claiming} {
		list := answer.list()
		for len(list.values) > 0 {
			token, err := holdover.ParseToken(list.text())
			if err != nil {
				return holdover.Standing{}, s.failure(op, holdover.Token{}, false, err)
			}
			*into = append(*into, holdover.StandingHold{Token: token, Item: list.number(), Units: list.number()})
		}
		if err := s.readable(op, holdover.Token{}, &answer, list.err); err != nil {
			return holdover.Standing{}, err
		}
	}
	return all, nil
}
