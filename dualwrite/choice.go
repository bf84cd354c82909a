package dualwrite

import (
	"context"
	"fmt"

	"holdover"
)

// Lines whose location the store picks (holdover.Choice) become concrete lines
// here, above the steps. Only MySQL knows locations: where it decides, alone or
// with Redis, it is planned with; where Redis decides alone the line is at the
// choice's first group, and the report's kind "location" shows what that costs.
// The lines that were asked for last stay with the attempt: a store may have
// granted them when the agreement moves, and then they are what the next turn
// asks for first.

// place finds r's lines; afterwards r has those that were asked for last.
func (a *attempt) place(ctx context.Context, r *holdover.Request, p holdover.Placer) (holdover.Grant, error) {
	p.Before = a.lines
	g, asked, err := p.Place(ctx, *r)
	a.lines, r.Lines, r.Choices = asked, asked, nil
	return g, err
}

func (f *Facade) placeInRedis(ctx context.Context, v *view, a *attempt, r *holdover.Request) (holdover.Grant, error) {
	return a.place(ctx, r, holdover.Placer{
		Vote: func(ctx context.Context, r holdover.Request) (holdover.Grant, error) {
			return f.voteRedis(ctx, v, a, r)
		},
		Lookup: f.redis.Lookup,
	})
}

func (f *Facade) placeInMySQL(ctx context.Context, v *view, a *attempt, r *holdover.Request, journal bool) (holdover.Grant, error) {
	return a.place(ctx, r, holdover.Placer{
		Vote: func(ctx context.Context, r holdover.Request) (holdover.Grant, error) {
			return f.voteMySQL(ctx, v, a, r, journal)
		},
		Lookup: f.lookupInMySQL(v),
		Probe:  f.probeLocations(v, r.Token),
	})
}

// placeInBoth asks Redis, then MySQL, for the same lines. When MySQL is short of
// them at their location, Redis's grant is given back before both are asked for
// others. A hold that a repeat of the call has made firm there can't be: then the
// answer is "try again", until the hold ends. So the lines are planned before the
// first try, which leaves that to a lost race. The observation has the answers to
// what was asked last.
func (f *Facade) placeInBoth(ctx context.Context, v *view, a *attempt, r *holdover.Request, o *record) (holdover.Grant, error) {
	var inRedis []holdover.Line // what Redis has granted to this attempt
	decider := f.redis.Lookup   // of the store that answered last
	vote := func(ctx context.Context, r holdover.Request) (holdover.Grant, error) {
		if inRedis != nil && !holdover.SameLines(inRedis, r.Lines) {
			if err := f.moveInRedis(ctx, a); err != nil {
				return holdover.Grant{}, err
			}
			inRedis = nil
		}
		o.Redis, o.MySQL, decider = holdover.Answer{}, holdover.Answer{}, f.redis.Lookup
		g, err := timed(&o.Redis, func() (holdover.Grant, error) { return f.voteRedis(ctx, v, a, r) })
		if err != nil {
			return g, err
		}
		inRedis, decider = r.Lines, f.lookupInMySQL(v)
		f.asked(o, r.Lines)
		v.noteAge(o, g.Hold)
		m, err := timed(&o.MySQL, func() (holdover.Grant, error) { return f.voteMySQL(ctx, v, a, r, false) })
		if err != nil {
			return m, err
		}
		g.Replayed = g.Replayed && m.Replayed
		return g, nil
	}
	return a.place(ctx, r, holdover.Placer{
		Vote: vote,
		Lookup: func(ctx context.Context, token holdover.Token) (holdover.Hold, error) {
			return decider(ctx, token)
		},
		Probe:      f.probeLocations(v, r.Token),
		ProbeFirst: true,
	})
}

// moveInRedis gives back what this attempt has in Redis, so that it may ask for
// other lines.
func (f *Facade) moveInRedis(ctx context.Context, a *attempt) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.GiveBackTimeout)
	defer cancel()
	did, err := f.redis.GiveBack(ctx, a.token, a.id)
	switch {
	case err != nil:
		return err
	case !did:
		return fmt.Errorf("pod %s, hold %s: redis holds it at a location where mysql is short, and can't give it back: %w", f.cfg.Pod, a.token, holdover.ErrTryAgain)
	}
	a.askedRedis = false
	return nil
}

func (f *Facade) lookupInMySQL(v *view) func(context.Context, holdover.Token) (holdover.Hold, error) {
	return func(ctx context.Context, token holdover.Token) (holdover.Hold, error) {
		return waitMySQL(ctx, f, v, "look up", token, func(ctx context.Context) (holdover.Hold, error) {
			return f.mysql.Lookup(ctx, token)
		})
	}
}

// probeLocations reads what MySQL has free, without a lock.
func (f *Facade) probeLocations(v *view, token holdover.Token) func(context.Context, int64, []int64) ([]holdover.Stock, error) {
	return func(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, error) {
		return waitMySQL(ctx, f, v, "probe locations", token, func(ctx context.Context) ([]holdover.Stock, error) {
			return f.mysql.Probe(ctx, shop, items)
		})
	}
}
