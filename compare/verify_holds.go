package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdover"
)

// holdLooks is a hold that differed at every look so far.
type holdLooks struct {
	seen       string // both sides of the last look; "" before the first
	stable     bool   // the last two looks, Recheck apart, saw the same
	difference Difference
}

func (v *verifier) redisHolds(ctx context.Context) (map[holdover.Token]holdover.Hold, error) {
	live := map[holdover.Token]holdover.Hold{}
	var cursor uint64
	for {
		var page []holdover.Hold
		var next uint64
		err := v.page(ctx, "list the live holds of redis", func(ctx context.Context) (_ int, err error) {
			page, next, err = v.redis.LiveHolds(ctx, cursor, v.cfg.PageSize)
			return len(page), err
		})
		if err != nil {
			return nil, err
		}
		for _, h := range page {
			if h.State.Live() {
				live[h.Token] = h
			}
		}
		if next == 0 {
			return live, nil
		}
		if next == cursor {
			return nil, fmt.Errorf("list the live holds of redis: %w", errStuck)
		}
		cursor = next
	}
}

func (v *verifier) mysqlHolds(ctx context.Context) (map[holdover.Token]holdover.Hold, error) {
	live := map[holdover.Token]holdover.Hold{}
	var after holdover.Token
	for {
		var page []holdover.Hold
		err := v.page(ctx, "list the live holds of mysql", func(ctx context.Context) (_ int, err error) {
			page, err = v.mysql.LiveHolds(ctx, after, v.cfg.PageSize)
			return len(page), err
		})
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return live, nil
		}
		for _, h := range page {
			if h.State.Live() {
				live[h.Token] = h
			}
		}
		last := page[len(page)-1].Token
		if last == after {
			return nil, fmt.Errorf("list the live holds of mysql: %w", errStuck)
		}
		after = last
	}
}

// suspect notes every token on which the two listings differ. They were not
// read at one moment, so that most of these are only in motion.
func (v *verifier) suspect(redis, mysql map[holdover.Token]holdover.Hold) {
	add := func(token holdover.Token) {
		if len(v.holds) >= v.cfg.MaxRechecks {
			v.out.UnsettledCount++
			return
		}
		v.holds[token] = &holdLooks{}
	}
	for token, r := range redis {
		if kind, _ := v.judge(r, mysql[token]); kind != "" {
			add(token)
		}
	}
	for token := range mysql {
		if _, ok := redis[token]; !ok {
			add(token)
		}
	}
}

// lookHolds reads both sides of each token in question.
func (v *verifier) lookHolds(ctx context.Context) error {
	for token, h := range v.holds {
		r, err := v.lookup(ctx, "redis", v.redis.Lookup, token)
		if err != nil {
			return err
		}
		m, err := v.lookup(ctx, "mysql", v.mysql.Lookup, token)
		if err != nil {
			return err
		}
		kind, text := v.judge(r, m)
		if kind == "" || v.lag.has(token) {
			delete(v.holds, token)
			continue
		}
		h.difference = holdDifference(kind, text, r, m)
		seen := fmt.Sprint(kind, r.State, r.Shop, r.Lines, r.Claimed, r.ExpiresAt, m.State, m.Shop, m.Lines, m.Claimed, m.ExpiresAt, m.Firm)
		h.stable = h.seen == seen
		h.seen = seen
	}
	return nil
}

func holdDifference(kind DifferenceKind, text string, r, m holdover.Hold) Difference {
	known := r
	if !r.State.Live() && m.State != holdover.StateNone {
		known = m
	}
	return Difference{
		Kind: kind, Token: known.Token.String(), Shop: known.Shop, Text: text, Units: unitsOf(known.Lines),
		Redis: r.State.String(), MySQL: m.State.String(),
	}
}

func (v *verifier) lookup(ctx context.Context, store string, lookup func(context.Context, holdover.Token) (holdover.Hold, error), token holdover.Token) (h holdover.Hold, err error) {
	if err := v.turn(ctx, 10); err != nil {
		return h, fmt.Errorf("look up hold %s in %s: %w", token, store, err)
	}
	err = v.call(ctx, fmt.Sprintf("look up hold %s in %s", token, store), func(ctx context.Context) (err error) {
		h, err = lookup(ctx, token)
		if errors.Is(err, holdover.ErrUnknownHold) {
			h, err = holdover.Hold{Token: token}, nil
		}
		return err
	})
	return h, err
}

// judge says how the two sides of one hold differ; "" when they don't, or
// when it has ended on both.
func (v *verifier) judge(r, m holdover.Hold) (DifferenceKind, string) {
	switch {
	case r.State.Live() && m.State.Live():
		if r.Shop != m.Shop || !slices.Equal(r.Lines, m.Lines) {
			return DiffLines, fmt.Sprintf("redis has shop %d %v, mysql has shop %d %v", r.Shop, r.Lines, m.Shop, m.Lines)
		}
		if !m.Firm {
			return DiffNotFirm, "live in both, tentative in mysql"
		}
		// Redis decides about expiries, and so has each extension first.
		if early := r.ExpiresAt.Sub(m.ExpiresAt); r.State == holdover.StateHeld && early > v.cfg.ExpirySkew {
			return DiffExpiry, fmt.Sprintf("mysql's expiry is %s before redis's: an extension is missing there; mysql's reaper takes it over", early.Round(time.Millisecond))
		} else if v.cfg.Truth == holdover.StoreMySQL && -early > v.cfg.ExpirySkew && r.State == holdover.StateHeld {
			return DiffExpiry, fmt.Sprintf("redis's expiry is %s before mysql's: an extension is missing there, and a kill would let the hold end too early", (-early).Round(time.Millisecond))
		}
	case r.State.Live():
		if r.State == holdover.StateClaiming && m.State == holdover.StateClaimed {
			break // Redis's mark is cleared after the ledger was written
		}
		if m.State == holdover.StateNone && r.GrantedAt.Before(v.cfg.DualSince) {
			return DiffPreDual, "granted before dual writing began; it leaves when it ends"
		}
		return DiffOnlyInRedis, fmt.Sprintf("%s in redis, %s in mysql", r.State, m.State)
	case m.State.Live():
		return DiffOnlyInMySQL, fmt.Sprintf("%s in redis, %s in mysql", r.State, m.State)
	case r.State.Ended() && m.State.Ended():
		if (r.State == holdover.StateClaimed) != (m.State == holdover.StateClaimed) {
			return DiffEndedDifferently, fmt.Sprintf("%s in redis, %s in mysql", r.State, m.State)
		}
		if r.State == holdover.StateClaimed && len(r.Lines) > 0 && !slices.Equal(r.Part(), m.Part()) {
			return DiffEndedDifferently, fmt.Sprintf("%v claimed in redis, %v in mysql", r.Part(), m.Part())
		}
	}
	return "", ""
}
