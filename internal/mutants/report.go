package mutants

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// loseEvery is of how many facts one is lost.
const loseEvery = 5000

// lossyMirror tells some facts as written that it has not written. A claim is
// none of them: that would be the ledger's loss, and no mirror's.
type lossyMirror struct {
	dualwrite.MySQL
	every uint64
	facts atomic.Uint64
}

func (l *lossyMirror) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	if h.State != holdover.StateClaimed && l.facts.Add(1)%l.every == 0 {
		h.Firm, h.Again = true, false
		return h, nil
	}
	return l.MySQL.Apply(ctx, h)
}

// generousMySQL makes the units that its ledger does not have.
type generousMySQL struct {
	dualwrite.MySQL
	m *Mutant
}

func (g generousMySQL) Vote(ctx context.Context, t holdover.Ticket, r holdover.Request, journal bool) (holdover.Grant, error) {
	grant, err := g.MySQL.Vote(ctx, t, r, journal)
	if g.enlarge(ctx, r.Shop, err) {
		return g.MySQL.Vote(ctx, t, r, journal)
	}
	return grant, err
}

func (g generousMySQL) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	known, err := g.MySQL.Apply(ctx, h)
	if g.enlarge(ctx, h.Shop, err) {
		return g.MySQL.Apply(ctx, h)
	}
	return known, err
}

// generousUnits is what it would still give of an item that is sold out.
const generousUnits = 100

func (g generousMySQL) Probe(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, error) {
	stocks, err := g.MySQL.Probe(ctx, shop, items)
	for i := range stocks {
		if stocks[i].Free() <= 0 {
			stocks[i].Available += generousUnits
		}
	}
	return stocks, err
}

const sqlEnlarge = `UPDATE inventory_ledger SET available = available + ? WHERE shop_id = ? AND item_id = ? AND group_id = ?`

// enlarge adds what was short, and reports whether a repeat can be granted.
func (g generousMySQL) enlarge(ctx context.Context, shop int64, err error) bool {
	var short *holdover.OutOfStockError
	if !errors.As(err, &short) {
		return false
	}
	for _, s := range short.Short {
		if _, err := g.m.db.ExecContext(ctx, sqlEnlarge, s.Want-s.Left, shop, s.Item, s.Group); err != nil {
			return false
		}
	}
	return true
}

// slowTail makes the slowest grants slower, and leaves the others alone.
type slowTail struct {
	dualwrite.MySQL
	p99 runningP99
}

func (s *slowTail) Vote(ctx context.Context, t holdover.Ticket, r holdover.Request, journal bool) (holdover.Grant, error) {
	began := time.Now()
	grant, err := s.MySQL.Vote(ctx, t, r, journal)
	s.linger(ctx, time.Since(began))
	return grant, err
}

func (s *slowTail) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	began := time.Now()
	known, err := s.MySQL.Apply(ctx, h)
	if h.State == holdover.StateHeld {
		s.linger(ctx, time.Since(began))
	}
	return known, err
}

func (s *slowTail) linger(ctx context.Context, took time.Duration) {
	if !s.p99.above(took) {
		return
	}
	timer := time.NewTimer(took * 3 / 10)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// runningP99 follows the 99th percentile: each time above it lifts it by 99 small
// steps, each one below lowers it by one.
type runningP99 struct {
	mu   sync.Mutex
	at   float64
	seen int
}

const learnFor = 200 // times before the estimate is worth anything

// above reports whether d is above the percentile of the times before it.
func (p *runningP99) above(d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
	above := float64(d) > p.at
	if p.seen <= learnFor { // the largest is near enough
		p.at = max(p.at, float64(d))
		return false
	}
	step := p.at / 2000
	if above {
		p.at += 99 * step
	} else {
		p.at -= step
	}
	return above
}
