package legacyredis

import (
	"context"
	"errors"
	"time"

	"holdover"
)

// Swept says what one sweep did.
type Swept struct {
	Expired int // holds ended because their time was over
	Claimed int // marked claims carried into the ledger
	Failed  int // holds that could not be ended or carried: see the error
}

// maxSweepErrors bounds how many failures of one sweep its error names.
const maxSweepErrors = 10

// Sweep expires all holds that are due and rolls marked claims forward, in
// batches, oldest first, until none is left or ctx ends. One hold that fails
// does not stop the others: the error joins the first ten failures.
func (p *Path) Sweep(ctx context.Context) (Swept, error) {
	var swept Swept
	var errs []error
	failed := func(err error) {
		swept.Failed++
		if len(errs) < maxSweepErrors {
			errs = append(errs, err)
		}
	}

	// The failed ones stay in the index, so the next batch begins behind them.
	for skip := 0; ctx.Err() == nil; {
		due, err := p.store.listPage(ctx, "list due holds", "holds", 0, 0, nil, skip, p.cfg.SweepBatch)
		if err != nil {
			failed(err)
			break
		}
		for _, h := range due {
			switch ended, err := p.expire(ctx, []holdover.Hold{h}); {
			case err != nil:
				skip++
				failed(err)
			default:
				swept.Expired += ended
			}
		}
		if len(due) < p.cfg.SweepBatch {
			break
		}
	}

	for skip := 0; ctx.Err() == nil; {
		marked, err := p.store.listPage(ctx, "list marked holds", "claiming", p.cfg.ClaimAge, 0, nil, skip, p.cfg.SweepBatch)
		if err != nil {
			failed(err)
			break
		}
		for _, h := range marked {
			if _, err := p.rollForward(ctx, h); err != nil {
				skip++
				failed(err)
				continue
			}
			swept.Claimed++
		}
		if len(marked) < p.cfg.SweepBatch {
			break
		}
	}
	return swept, errors.Join(append(errs, ctx.Err())...)
}

// expire ends holds whose time is over and says how many. A hold that ended in
// another way meanwhile is no error.
func (p *Path) expire(ctx context.Context, due []holdover.Hold) (ended int, err error) {
	var errs []error
	for _, h := range due {
		changed, _, err := p.store.end(ctx, 0, h.Token, holdover.StateExpired, h.Shop, true)
		switch {
		case errors.Is(err, holdover.ErrClaimPending), errors.Is(err, holdover.ErrAlreadyClaimed), errors.Is(err, holdover.ErrUnknownHold):
		case err != nil:
			errs = append(errs, err)
		case changed:
			ended++
		}
	}
	return ended, errors.Join(errs...)
}

// Run sweeps every Config.SweepEvery until ctx ends, and returns then. Failures
// are logged and tried again.
func (p *Path) Run(ctx context.Context) {
	tick := time.NewTicker(p.cfg.SweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sweepCtx, cancel := context.WithTimeout(ctx, p.cfg.SweepTimeout)
		swept, err := p.Sweep(sweepCtx)
		cancel()
		if err != nil && ctx.Err() == nil {
			p.log.Error("a sweep left something undone; the next one tries again", "expired", swept.Expired, "claimed", swept.Claimed, "failed", swept.Failed, "error", err)
		}
	}
}
