package app

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"holdover"
	"holdover/compare"
)

// Between looks at the spool, and between tries while MySQL does not take
// anything: the latter double, with full jitter.
const (
	shipEvery    = 2 * time.Second
	shipPause    = time.Second
	shipPauseMax = 30 * time.Second
	shipLast     = 2 * time.Second // for what is left at a shutdown
)

// shipper carries rollups from this instance's spool into the pod's MySQL, in
// order. A rollup leaves the spool after its commit: a process that dies in
// between sends it twice, and it is kept once.
type shipper struct {
	spool *compare.Spool
	keep  func(context.Context, holdover.Comparison) (again bool, err error)
	clock func(context.Context) (time.Time, error) // of MySQL
	log   *slog.Logger

	mu     sync.Mutex
	counts Shipped
}

// Shipped counts what the shipper did since its start.
type Shipped struct {
	Sent        uint64 // now in MySQL
	Again       uint64 // were in MySQL already
	Quarantined uint64 // MySQL will never take them
	Lost        uint64 // rollups that are in neither place, found by their numbers
}

// Counts returns what was done so far.
func (s *shipper) Counts() Shipped {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

func (s *shipper) count(add func(*Shipped)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.counts)
}

// run ships until ctx ends.
func (s *shipper) run(ctx context.Context) {
	timer := time.NewTimer(rand.N(shipEvery))
	defer timer.Stop()
	pause := shipPause
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		err := s.ship(ctx)
		if ctx.Err() != nil {
			return
		}
		if (err != nil) != failing {
			failing = err != nil
			files, oldest := s.spool.Backlog()
			s.log.Warn("comparison records to MySQL", "failing", failing, "waiting", files, "oldest", oldest, "err", err)
		}
		if err != nil {
			timer.Reset(pause/2 + rand.N(pause/2+1))
			pause = min(2*pause, shipPauseMax)
			continue
		}
		pause = shipPause
		timer.Reset(shipEvery)
	}
}

// last tries once more, when nothing is written into the spool any longer. What
// stays is sent by the next process of this name.
func (s *shipper) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shipLast)
	defer cancel()
	if err := s.ship(ctx); err != nil {
		files, _ := s.spool.Backlog()
		s.log.Warn("comparison records wait on disk for the next process of this name", "waiting", files, "err", err)
	}
}

// ship sends all that waits. Its error says why it stopped before the end.
func (s *shipper) ship(ctx context.Context) error {
	for ctx.Err() == nil {
		r, name, ok, err := s.spool.Next()
		switch {
		case err != nil && name == "":
			return err
		case err != nil:
			if err := s.quarantine(name, err); err != nil {
				return err
			}
			continue
		case !ok:
			return nil
		}
		if err := s.send(ctx, r, name); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func (s *shipper) send(ctx context.Context, r compare.Rollup, name string) error {
	now, err := s.clock(ctx)
	if err != nil {
		return Hinted(err)
	}
	c, err := comparisonAt(r, now)
	if err != nil {
		return s.quarantine(name, err)
	}
	again, err := s.keep(ctx, c)
	var hole *holdover.SequenceError
	if errors.As(err, &hole) {
		// This is the oldest that waits: those between are nowhere.
		c.Lost = hole.Seq - hole.Last - 1
		s.log.Error("comparison records are lost: the report counts them as not covered", "run", r.Run, "from", hole.Last+1, "to", hole.Seq-1)
		s.count(func(n *Shipped) { n.Lost += c.Lost })
		again, err = s.keep(ctx, c)
	}
	switch {
	case errors.Is(err, holdover.ErrInvalid):
		return s.quarantine(name, err)
	case err != nil:
		return Hinted(err)
	}
	s.count(func(n *Shipped) {
		if again {
			n.Again++
		} else {
			n.Sent++
		}
	})
	return s.spool.Done(name)
}

// clock is the time of the pod's MySQL, which the clocks of instances are held to.
func (s *Stores) clock(ctx context.Context) (time.Time, error) {
	now, _, err := s.MySQL.ComparisonsAhead(ctx)
	return now, err
}

// quarantine puts a rollup aside that MySQL will never take: those behind it go on.
func (s *shipper) quarantine(name string, why error) error {
	s.log.Error("a comparison record can't be kept and is put aside", "file", name, "err", why)
	if err := s.spool.Quarantine(name, why.Error()); err != nil {
		return err // it stays where it is, and is tried again
	}
	s.count(func(n *Shipped) { n.Quarantined++ })
	return nil
}
