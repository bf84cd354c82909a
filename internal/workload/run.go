package workload

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"holdover"
)

// Stats is what a run did, beside what the account has.
type Stats struct {
	Arrivals int64         `json:"arrivals"` // buyers who came
	Shed     int64         `json:"shed"`     // buyers sent away: too many at a time, or the account is full
	GaveUp   int64         `json:"gave_up"`  // buyers whose repeats were used up without an answer
	Seconds  float64       `json:"seconds"`
	Elapsed  time.Duration `json:"-"`
}

// Run sends buyers to the instances of one pod, an instance at random for each
// call, until ctx ends or MaxBuyers have come. Then no more arrive, and those
// who are there finish what they began, within Config.Finish. Everything that
// they are told goes into account. It returns when the last one is gone. The
// error is about the configuration, or ErrAccountFull, at which a run ends
// early; what buyers meet is in the account.
func Run(ctx context.Context, cfg Config, instances []holdover.Reserver, account *Account) (Stats, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return Stats{}, err
	}
	if len(instances) == 0 || account == nil {
		return Stats{}, errors.New("workload: a run needs an instance to buy at and an account to write to")
	}
	watched := make([]holdover.Reserver, len(instances))
	for i, r := range instances {
		if r == nil {
			return Stats{}, errors.New("workload: an instance is nil")
		}
		watched[i] = account.Watch(r)
	}

	// Buyers outlive ctx, by Finish at most.
	buying, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var clock sync.WaitGroup
	clock.Go(func() {
		select {
		case <-ctx.Done():
			if wait(buying, c.Finish) {
				stop(errOverrun)
			}
		case <-buying.Done():
		}
	})
	defer clock.Wait()
	defer stop(nil)

	s := &shop{cfg: c, instances: watched, account: account, basket: basketSource(c)}
	began := time.Now()
	if c.Rate > 0 {
		s.openLoop(ctx, buying)
	} else {
		s.closedLoop(ctx, buying)
	}
	elapsed := time.Since(began)
	stats := Stats{
		Arrivals: s.arrivals.Load(), Shed: s.shed.Load(), GaveUp: s.gaveUp.Load(),
		Seconds: elapsed.Seconds(), Elapsed: elapsed,
	}
	if s.full.Load() {
		return stats, ErrAccountFull
	}
	return stats, nil
}

var errOverrun = errors.New("the buyers did not finish in time")

// shop is one run.
type shop struct {
	cfg       Config
	instances []holdover.Reserver
	account   *Account
	basket    func(n uint64) Basket

	arrivals, shed, gaveUp atomic.Int64
	full                   atomic.Bool // the account is
}

func basketSource(c Config) func(uint64) Basket {
	if n := uint64(len(c.Baskets)); n > 0 {
		return func(i uint64) Basket { return c.Baskets[i%n] }
	}
	return NewGenerator(GeneratorConfig{Seed: c.Seed, Items: c.Items, Small: c.SmallCarts}).Basket
}

// arrive numbers an arrival; false when there are no more.
func (s *shop) arrive() (uint64, bool) {
	if s.full.Load() {
		return 0, false
	}
	n := s.arrivals.Add(1)
	if s.cfg.MaxBuyers > 0 && n > s.cfg.MaxBuyers {
		s.arrivals.Add(-1)
		return 0, false
	}
	return uint64(n - 1), true
}

// closedLoop has Clients buyers at a time, each followed by the next.
func (s *shop) closedLoop(ctx, buying context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for range s.cfg.Clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				n, ok := s.arrive()
				if !ok {
					return
				}
				s.buy(buying, n)
			}
		})
	}
}

// openLoop lets buyers arrive at the configured rate, whether or not the
// earlier ones are done, up to MaxInFlight at a time.
func (s *shop) openLoop(ctx, buying context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, s.cfg.MaxInFlight)
	gap := max(time.Millisecond, time.Duration(float64(time.Second)/s.cfg.Rate))
	tick := time.NewTicker(gap)
	defer tick.Stop()
	began := time.Now()
	for came := int64(0); ; {
		// As many as are due by now: a late tick does not lower the rate.
		for due := int64(time.Since(began).Seconds() * s.cfg.Rate); came < due; came++ {
			n, ok := s.arrive()
			if !ok {
				return
			}
			select {
			case places <- struct{}{}:
				wg.Go(func() {
					defer func() { <-places }()
					s.buy(buying, n)
				})
			default:
				s.shed.Add(1)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
