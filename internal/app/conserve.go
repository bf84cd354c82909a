package app

import (
	"context"
	"math/rand/v2"
	"time"

	"holdover/mysqlpool"
)

// firstConserve bounds how long after its start an instance looks for the first time.
const firstConserve = time.Minute

// loggedViolations bounds the lines that one check writes to the log.
const loggedViolations = 10

// conserveLoop checks the conservation of the pod's stock on the clock until
// ctx ends: without Redis, in every stage. Of several instances that are at it
// at the same time, one does it.
func (p *Pod) conserveLoop(ctx context.Context) {
	every := p.cfg.Timing.Conserve
	timer := time.NewTimer(rand.N(min(every, firstConserve)))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := p.conserve(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("the conservation of stock could not be checked; the next round tries again", "err", Hinted(err))
		}
		timer.Reset(every)
	}
}

func (p *Pod) conserve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(p.cfg.Timing.Conserve, time.Minute))
	defer cancel()
	c, alone, err := p.MySQL.ConserveAlone(ctx, mysqlpool.ConserveConfig{})
	if err != nil {
		return err
	}
	if !alone {
		p.log.Debug("another instance checks the conservation of stock now")
		return nil
	}
	p.mu.Lock()
	p.conservation = &c
	p.mu.Unlock()
	if c.OK() {
		p.log.Info("stock is conserved", "rows", c.Rows, "took", c.Took)
		return nil
	}
	p.log.Error("stock is not conserved: see `holdover verify --store mysql`", "rows", c.Rows, "violating", c.Violating, "took", c.Took)
	for _, v := range c.Violations[:min(len(c.Violations), loggedViolations)] {
		p.log.Error("not conserved", "rule", v.Rule, "shop", v.Shop, "item", v.Item, "group", v.Group, "off_by", v.Units, "what", v.Text)
	}
	return nil
}

// LastConservation returns the last check this instance made, or nil.
func (p *Pod) LastConservation() *mysqlpool.Conservation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conservation
}
