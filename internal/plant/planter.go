package plant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/dualwrite"
	"holdover/mysqlpool"
)

// Redis is the pod's Redis, where counters can be set.
type Redis interface {
	compare.RedisState
	Load(ctx context.Context, shop int64, counters map[int64]int64, overwrite bool) (loaded int, err error)
}

// MySQL is the pod's MySQL, where stock can be brought in and facts told.
type MySQL interface {
	compare.MySQLState
	ImportStock(ctx context.Context, rows []mysqlpool.StockRow) (added int, err error)
	Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error)
}

// Config says where to plant. Zero fields mean the default.
type Config struct {
	Pod        string              // required
	Instance   string              // of observations that are made up; required
	Shop       int64               // the reserved one; required
	Hand       *Hand               // of the facade; required
	Facade     *dualwrite.Facade   // required
	Comparator *compare.Comparator // required; it must know the shop as reserved
	Redis      Redis               // required; not through the hand
	MySQL      MySQL               // required
	Worker     int                 // among planters that are at work at the same time; each has items of its own; 0
	Every      time.Duration       // between two plants of Run; 1 min
	Timeout    time.Duration       // longest wait for one plant; 15 s
	// ShortLife is that of a hold which is to expire in MySQL: its release must have
	// begun in Redis before, and mirror work may take longer; 1 s.
	ShortLife time.Duration
	Logger    *slog.Logger                                                            // discards when nil
	Alone     func(ctx context.Context, do func(context.Context) error) (bool, error) // keeps other planters of the shop out; nil: there are none
}

// Planter plants on one reserved shop.
type Planter struct {
	cfg     Config
	next    int
	current *compare.Plant // the one that is being made; nil: none

	mu      sync.Mutex
	failing []error // of Next: why the last plant of each could not be made; nil: it was, or had no turn
}

// New makes a planter.
func New(cfg Config) (*Planter, error) {
	switch {
	case cfg.Hand == nil || cfg.Facade == nil || cfg.Comparator == nil || cfg.Redis == nil || cfg.MySQL == nil:
		return nil, errors.New("plant: Config lacks a hand, a facade, a comparator or a store")
	case cfg.Shop <= 0 || cfg.Shop != cfg.Hand.shop:
		return nil, fmt.Errorf("plant: pod %s: the reserved shop is %d, the hand's is %d: they must be one", cfg.Pod, cfg.Shop, cfg.Hand.shop)
	}
	if cfg.Every == 0 {
		cfg.Every = time.Minute
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 15 * time.Second
	}
	if cfg.ShortLife == 0 {
		cfg.ShortLife = time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Alone == nil {
		cfg.Alone = func(ctx context.Context, do func(context.Context) error) (bool, error) { return true, do(ctx) }
	}
	return &Planter{cfg: cfg, next: rand.IntN(len(plantings)), failing: make([]error, len(plantings))}, nil // instances don't all begin with the same
}

// firstPlant bounds how long after its start a planter waits for the first time.
const firstPlant = 5 * time.Second

// Run makes one plant each interval until ctx ends, kind after kind.
func (p *Planter) Run(ctx context.Context) {
	timer := time.NewTimer(min(p.cfg.Every, firstPlant))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(p.cfg.Every)
		_ = p.Next(ctx) // logged, once for each cause
	}
}

// Next plants the next kind, when the stage compares at all and nobody else is
// planting. One that can't be planted is passed over, and comes again in its turn.
func (p *Planter) Next(ctx context.Context) error {
	i := p.next % len(plantings)
	planted, err := p.plant(ctx, plantings[i])
	if (planted || err != nil) && ctx.Err() == nil {
		p.next++
		p.note(i, err)
	}
	return err
}

// note keeps why a plant could not be made, and logs a cause when it is new and
// when it is over.
func (p *Planter) note(i int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.failing[i]
	p.failing[i] = nil
	kind := plantings[i].kind.String()
	if err != nil && !p.fails(err) && (before == nil || cause(before) != cause(err)) {
		p.cfg.Logger.Warn("a kind of divergence can't be planted: the others are, and it comes again in its turn", "shop", p.cfg.Shop, "kind", kind, "cause", cause(err))
	}
	p.failing[i] = err
	if before != nil && !p.fails(before) {
		p.cfg.Logger.Info("what kept divergences from being planted is over", "shop", p.cfg.Shop, "kind", kind, "cause", cause(before))
	}
}

// fails reports whether some kind fails for the same cause.
func (p *Planter) fails(err error) bool {
	for _, other := range p.failing {
		if other != nil && cause(other) == cause(err) {
			return true
		}
	}
	return false
}

// Failing is what Run can't plant at present, with its causes.
func (p *Planter) Failing() []Unplanted {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Group(p.failing)
}

// Kinds are what can be planted, unexplained once for each direction.
func Kinds() (kinds []compare.Kind) {
	for _, s := range plantings {
		kinds = append(kinds, s.kind)
	}
	return kinds
}

// PlantEach makes one plant of each kind, waiting for its turn, and returns what
// could not be made.
func (p *Planter) PlantEach(ctx context.Context) (failed []error) {
	for _, s := range plantings {
		planted, err := false, error(nil)
		for tries := 0; !planted && tries < turnTries && ctx.Err() == nil && !errors.Is(err, ErrForeignStock); tries++ {
			if tries > 0 {
				pause(ctx, turnPause)
			}
			planted, err = p.plant(ctx, s)
		}
		if err == nil && !planted {
			err = &NotPlanted{s.kind, holdover.StageUnknown, fmt.Errorf("another planter is at work, or the stage does not compare any more: %w", holdover.ErrTryAgain)}
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// A turn is waited for, and a plant tried, so often: another process plants one
// at a time, and a slow machine may miss a moment.
const (
	turnTries = 10
	turnPause = 500 * time.Millisecond
)

// errUnjudged: it counts as unjudged, and is to be planted again.
var errUnjudged = errors.New("mysql or redis did not answer the planted call (it failed, or was shed): nothing can be said of the comparator")

// Plant makes one plant of the kind; of unexplained one in each direction.
func (p *Planter) Plant(ctx context.Context, kind compare.Kind) error {
	for _, s := range plantings {
		if s.kind != kind {
			continue
		}
		planted, err := p.plant(ctx, s)
		switch {
		case err != nil:
			return err
		case !planted:
			return fmt.Errorf("pod %s: nothing was planted: the stage does not compare, or another planter is at work: %w", p.cfg.Pod, holdover.ErrTryAgain)
		}
	}
	return nil
}

// Prepare brings the shop's stock into both stores. Plant does it itself.
func (p *Planter) Prepare(ctx context.Context) error { return p.stock(ctx, 0) }

// Elsewhere asks for a unit that MySQL has at another location only: wherever
// Redis is asked too, the stores differ about it.
func (p *Planter) Elsewhere(token holdover.Token) holdover.Request {
	return p.request(token, itemOther, holdTime)
}

// Meet makes a call for Elsewhere's unit, whose observation is to be of this
// kind, for a reason that the caller has arranged. before, when not nil, runs
// once in the middle of it, before Redis votes. The hold is released afterwards.
func (p *Planter) Meet(ctx context.Context, kind compare.Kind, token holdover.Token, before func(context.Context)) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	g := p.cfg.Hand.follow(token)
	defer p.end(ctx, token, g)
	p.cfg.Hand.before(g, before)
	return p.expect(ctx, token, g, kind, holdover.OpReserve, func() error { return p.reserve(ctx, token, itemOther) })
}

func (p *Planter) plant(ctx context.Context, s planting) (planted bool, err error) {
	fence, err := p.cfg.Facade.Agreed()
	if err != nil || !fence.Stage.Dual() {
		return false, nil // there is nothing to compare
	}
	moved, stopping := false, ctx
	alone, err := p.cfg.Alone(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
		defer cancel()
		if err := p.stock(ctx, s.item); err != nil {
			return err
		}
		p.current = p.cfg.Comparator.Plant()
		defer func() { p.current = nil }()
		err := s.plant(p, ctx, fence)
		now, agreedErr := p.cfg.Facade.Agreed()
		// It was arranged for the stage before; or the process ends, and nobody waits for it.
		moved = agreedErr != nil || now.Epoch != fence.Epoch || stopping.Err() != nil
		judged := p.current.Take(!moved)
		switch {
		case moved:
			return nil
		case err == nil && !judged:
			return errUnjudged
		}
		return err
	})
	if err != nil {
		return false, &NotPlanted{s.kind, fence.Stage, err}
	}
	return alone && !moved, nil
}
