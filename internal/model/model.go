package model

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"holdover"
)

// Locations says what one stock counter counts.
type Locations uint8

// The two ways to count.
const (
	ByLocation       Locations = iota // as in MySQL: every (item, group) has its own stock
	SumOverLocations                  // as in Redis: one counter for an item, all its locations together
)

// Config makes a Model. The zero Config is a model by location, with default
// limits and a clock that stands still at the start of the year 2030.
type Config struct {
	Locations Locations
	Limits    holdover.Limits
	Now       func() time.Time // the clock that Advance adds to; nil: one that stands still
}

// place is where units are counted; group is 0 when locations are summed.
type place struct{ shop, item, group int64 }

// Model is the specification. Use New.
type Model struct {
	cfg Config

	mu     sync.Mutex
	ahead  time.Duration                     // what Advance has added to the clock
	ledger map[place]int64                   // sellable and not yet claimed, always by location
	holds  map[holdover.Token]*holdover.Hold // live and ended
}

var _ holdover.Reserver = (*Model)(nil)

// New returns a model without stock.
func New(cfg Config) *Model {
	if cfg.Now == nil {
		still := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		cfg.Now = func() time.Time { return still }
	}
	return &Model{cfg: cfg, ledger: map[place]int64{}, holds: map[holdover.Token]*holdover.Hold{}}
}

// Clone returns an independent copy, to try a step on.
func (m *Model) Clone() *Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &Model{cfg: m.cfg, ahead: m.ahead, ledger: maps.Clone(m.ledger), holds: map[holdover.Token]*holdover.Hold{}}
	for token, h := range m.holds {
		h := *h // its lines are never written to, only replaced
		c.holds[token] = &h
	}
	return c
}

// Reserve grants all lines or nothing.
func (m *Model) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	r, err := r.Normalize(m.cfg.Limits)
	if err != nil {
		return m.result(nil, false, "the request is wrong"), err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return m.result(nil, false, "the call was over before it began"), m.gone("reserve", r.Token, err)
	}
	wanted := r
	if r, err = m.located(wanted); err != nil {
		return m.result(nil, false, "an item has no stock record"), err
	}
	if h := m.holds[r.Token]; h != nil {
		switch {
		case h.Shop != r.Shop || !holdover.SameLines(h.Lines, r.Lines):
			return m.result(nil, false, "the token stands for other lines"), fmt.Errorf("hold %s: %w", r.Token, holdover.ErrTokenReused)
		case h.State.Ended():
			return m.result(h, false, "the hold is "+h.State.String()), holdover.EndError(r.Token, h.State)
		default:
			return m.result(h, true, "the token has a live hold"), nil
		}
	}
	for _, line := range r.Lines {
		if _, loaded := m.free(r.Shop, line.Item, line.Group); !loaded {
			return m.result(nil, false, "an item has no stock record"),
				fmt.Errorf("shop %d, item %d at group %d: %w", r.Shop, line.Item, line.Group, holdover.ErrNotLoaded)
		}
	}
	short := m.short(r)
	if len(short) > 0 && m.expireDue(r.Shop, r.Lines) > 0 {
		r, _ = m.located(wanted)
		short = m.short(r)
	}
	if len(short) > 0 {
		return m.result(nil, false, "fewer units than asked for"),
			&holdover.OutOfStockError{Store: m.store(), Shop: r.Shop, Short: m.told(wanted, short)}
	}
	now := m.now()
	h := &holdover.Hold{
		Token: r.Token, Shop: r.Shop, Lines: r.Lines, State: holdover.StateHeld,
		GrantedAt: now, ExpiresAt: now.Add(r.TTL).Truncate(time.Millisecond), Firm: true,
	}
	m.holds[r.Token] = h
	return m.result(h, false, "every line has its units"), nil
}

// Claim deducts the ledger, once; with lines, of a part of the hold, and the rest
// is free again.
func (m *Model) Claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, res, err := m.known(ctx, "claim", shop, token)
	if err != nil {
		return res, err
	}
	if h.State == holdover.StateExpired && !m.cfg.Limits.NoLateClaims {
		return m.claimLate(h, lines)
	}
	if h.State == holdover.StateReleased || h.State == holdover.StateExpired {
		return m.result(h, false, "the hold is "+h.State.String()), holdover.EndError(token, h.State)
	}
	part, err := h.PartOf(lines)
	switch {
	case err != nil:
		return m.result(h, false, "the lines are no part of the hold"), err
	case h.State == holdover.StateClaimed && !holdover.SameLines(part, h.Claimed):
		return m.result(h, false, "another part was claimed"), fmt.Errorf("hold %s: %w", token, holdover.ErrTokenReused)
	case h.State == holdover.StateClaimed:
		return m.result(h, true, "claimed before"), nil
	}
	h.State, h.Claimed = holdover.StateClaimed, part
	for _, line := range h.Part() {
		m.deduct(shop, line)
	}
	return m.result(h, false, "the ledger is deducted"), nil
}

// Extend moves the expiry of a live hold forward.
func (m *Model) Extend(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	life, err := m.cfg.Limits.CheckExtension(ttl)
	if err != nil {
		return m.result(nil, false, "the request is wrong"), err
	}
	h, res, err := m.known(ctx, "extend", shop, token)
	if err != nil {
		return res, err
	}
	if h.State.Ended() {
		return m.result(h, false, "the hold is "+h.State.String()), holdover.EndError(token, h.State)
	}
	expires := m.now().Add(ttl)
	if last := h.GrantedAt.Add(life); expires.After(last) {
		expires = last
	}
	if expires = expires.Truncate(time.Millisecond); !expires.After(h.ExpiresAt) {
		return m.result(h, true, "it lives that long already"), nil
	}
	h.ExpiresAt = expires
	return m.result(h, false, "its expiry is later now"), nil
}

// Release gives the units back, once.
func (m *Model) Release(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, res, err := m.known(ctx, "release", shop, token)
	if err != nil {
		return res, err
	}
	switch h.State {
	case holdover.StateReleased:
		return m.result(h, true, "released before"), nil
	case holdover.StateClaimed, holdover.StateExpired:
		return m.result(h, false, "the hold is "+h.State.String()), holdover.EndError(token, h.State)
	}
	h.State = holdover.StateReleased
	return m.result(h, false, "the units are free again"), nil
}

// Lookup says what the model knows of the token.
func (m *Model) Lookup(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, res, err := m.known(ctx, "look-up", shop, token)
	if err != nil {
		return res, err
	}
	return m.result(h, false, "the hold is "+h.State.String()), nil
}

// known finds the hold of token in shop, or the answer that there is none.
func (m *Model) known(ctx context.Context, op string, shop int64, token holdover.Token) (*holdover.Hold, holdover.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, m.result(nil, false, "the call was over before it began"), m.gone(op, token, err)
	}
	h := m.holds[token]
	if h == nil || h.Shop != shop {
		return nil, m.result(nil, false, "the token is not known in this shop"), fmt.Errorf("shop %d, hold %s: %w", shop, token, holdover.ErrUnknownHold)
	}
	return h, holdover.Result{}, nil
}

func (m *Model) gone(op string, token holdover.Token, err error) error {
	return &holdover.StoreError{Store: m.store(), Pod: "model", Op: op, Token: token, Err: err}
}

func (m *Model) result(h *holdover.Hold, replayed bool, reason string) holdover.Result {
	res := holdover.Result{Replayed: replayed, Decision: holdover.Decision{Pod: "model", Store: m.store(), Reason: reason}}
	if h != nil {
		res.Hold = *h
		res.Hold.Lines, res.Hold.Claimed = slices.Clone(h.Lines), slices.Clone(h.Claimed)
	}
	return res
}

// store is the one whose way of counting the model has.
func (m *Model) store() holdover.Store {
	if m.cfg.Locations == SumOverLocations {
		return holdover.StoreRedis
	}
	return holdover.StoreMySQL
}
