package legacyredis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"holdover"
)

// Ledger is where a claim becomes permanent: the stock ledger in MySQL.
type Ledger interface {
	// Apply carries a claimed hold: it deducts the lines exactly once by token
	// and returns the hold as the ledger knows it afterwards. A state other
	// than claimed says that the hold had ended there before.
	Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error)
}

// PathConfig says how a Path works. A zero field means the default that its
// comment names.
type PathConfig struct {
	// Limits bound a request; the root's defaults.
	Limits holdover.Limits
	// LedgerTimeout bounds one deduction from the ledger; 2 s.
	LedgerTimeout time.Duration
	// SweepEvery is the pause between two sweeps of Run; 1 s.
	SweepEvery time.Duration
	// SweepTimeout bounds one sweep of Run; 30 s.
	SweepTimeout time.Duration
	// SweepBatch is how many holds a sweep reads at once; 100, at most 1,000.
	SweepBatch int
	// ClaimAge is how old a mark must be before a sweep rolls it forward: the
	// claim's own call gets that long to do it; 5 s.
	ClaimAge time.Duration
	// Logger gets what no caller can be told; nothing by default.
	Logger *slog.Logger
}

func (c PathConfig) withDefaults() PathConfig {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.LedgerTimeout, 2 * time.Second}, {&c.SweepEvery, time.Second}, {&c.SweepTimeout, 30 * time.Second}, {&c.ClaimAge, 5 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.SweepBatch == 0 {
		c.SweepBatch = 100
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Path is reserving in Redis alone, with claims deducted from a ledger: the
// system before the migration, repaired where a claim was lost between the two.
// It implements holdover.Reserver and uses epoch zero: it must not run on a
// Redis that a facade uses too.
type Path struct {
	store  *Store
	ledger Ledger
	cfg    PathConfig
	log    *slog.Logger
	placer holdover.Placer
	late   holdover.LateClaims
}

// NewPath returns a Path over the store. The caller runs Run, or Sweep, and
// closes the store.
func NewPath(store *Store, ledger Ledger, cfg PathConfig) (*Path, error) {
	cfg = cfg.withDefaults()
	var errs []error
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"ledger_timeout", cfg.LedgerTimeout}, {"sweep_every", cfg.SweepEvery}, {"sweep_timeout", cfg.SweepTimeout}, {"claim_age", cfg.ClaimAge},
	} {
		if d.value < 0 {
			errs = append(errs, &holdover.InvalidError{Field: d.field, Value: d.value.String(), Problem: "must be positive"})
		}
	}
	if cfg.SweepBatch < 0 || cfg.SweepBatch > maxList {
		errs = append(errs, &holdover.InvalidError{Field: "sweep_batch", Value: fmt.Sprint(cfg.SweepBatch), Problem: "must be from 1 to 1000"})
	}
	if store == nil || ledger == nil {
		errs = append(errs, &holdover.InvalidError{Field: "store and ledger", Problem: "must be given"})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p := &Path{store: store, ledger: ledger, cfg: cfg, log: cfg.Logger.With("pod", store.cfg.Pod)}
	p.placer = holdover.Placer{Vote: p.vote, Lookup: store.Lookup}
	p.late = holdover.LateClaims{Off: cfg.Limits.NoLateClaims, Reserve: p.reserve, Claim: p.claim, Lookup: store.Lookup}
	return p, nil
}

// lazyRounds bounds how often one reserve expires due holds and asks again.
const lazyRounds = 3

// Reserve implements holdover.Reserver. When units are short it first ends the
// holds of these items that are due, so that nobody is refused for a hold that
// has run out.
func (p *Path) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	r, err := r.Normalize(p.cfg.Limits)
	if err != nil {
		return p.result(holdover.Hold{}, "the request is wrong"), err
	}
	result, err := p.reserve(ctx, r)
	return p.late.AfterEnded(ctx, r.Shop, r.Token, result, err)
}

// reserve answers a normalized request. Redis knows no locations: a choice is
// taken from its first group.
func (p *Path) reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	grant, _, err := p.placer.Place(ctx, r)
	switch {
	case err == nil:
		result := p.result(grant.Hold, "redis granted it")
		result.Replayed = grant.Replayed
		return result, nil
	case errors.Is(err, holdover.ErrOutOfStock):
		return p.result(holdover.Hold{}, "redis has too few units"), err
	default:
		return p.failed(err)
	}
}

// vote asks for concrete lines.
func (p *Path) vote(ctx context.Context, r holdover.Request) (holdover.Grant, error) {
	grant, err := p.store.Vote(ctx, holdover.Ticket{}, r)
	for round := 0; round < lazyRounds && errors.Is(err, holdover.ErrOutOfStock); round++ {
		due, lookErr := p.store.Look(ctx, 0, r, p.cfg.SweepBatch)
		if errors.Is(lookErr, holdover.ErrOutOfStock) {
			return grant, lookErr // nothing is due
		}
		if lookErr != nil {
			p.log.Warn("could not look for expired holds before a refusal", "token", r.Token, "error", lookErr)
		}
		ended, endErr := p.expire(ctx, due)
		if endErr != nil {
			p.log.Warn("could not expire every due hold before a refusal", "token", r.Token, "error", endErr)
		}
		grant, err = p.store.Vote(ctx, holdover.Ticket{}, r)
		if ended == 0 { // this vote tells what somebody else has ended meanwhile
			break
		}
	}
	return grant, err
}

// Claim implements holdover.Reserver: mark in Redis, deduct the ledger, end the
// hold in Redis. With lines, a part of the hold's, only those are claimed: the
// mark gives the rest back. Once marked the claim is certain; while the ledger
// gives no answer the result is pending, and a sweep rolls it forward. A hold
// that has expired is claimed late: its units are taken again, if there are any.
func (p *Path) Claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	result, err := p.claim(ctx, shop, token, lines...)
	return p.late.AfterClaim(ctx, shop, token, lines, result, err)
}

func (p *Path) claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	h, err := p.store.Mark(ctx, 0, shop, token, lines)
	if err != nil {
		return p.failed(err)
	}
	if h.State == holdover.StateClaimed {
		result := p.result(h, "it was claimed before")
		result.Replayed = true
		return result, nil
	}
	after, err := p.rollForward(ctx, h)
	switch {
	case err != nil && after.State == holdover.StateClaimed:
		// The ledger has it; that Redis is told later does not concern the buyer.
		p.log.Warn("a claim is in the ledger and still marked in redis; the sweep ends it", "token", token, "error", err)
		return p.result(after, "the ledger has it; redis is told later"), nil
	case err != nil:
		p.log.Error("a claim is marked and not yet in the ledger; the sweep rolls it forward", "token", token, "error", err)
		result := p.result(h, "marked; the ledger gave no yes yet: "+err.Error())
		result.Pending = true
		return result, nil
	case after.State != holdover.StateClaimed:
		return p.result(after, "the ledger has it as ended"), holdover.EndError(token, after.State)
	default:
		return p.result(after, "marked in redis, deducted from the ledger"), nil
	}
}

// Extend implements holdover.Reserver.
func (p *Path) Extend(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
	life, err := p.cfg.Limits.CheckExtension(ttl)
	if err != nil {
		return p.result(holdover.Hold{}, "the request is wrong"), err
	}
	h, err := p.store.Extend(ctx, 0, shop, token, ttl, life)
	if err != nil {
		result, err := p.failed(err)
		return p.late.AfterEnded(ctx, shop, token, result, err)
	}
	result := p.result(h, "redis moved its expiry")
	if result.Replayed = h.Again; result.Replayed {
		result.Decision.Reason = "it lives that long already"
	}
	return result, nil
}

// rollForward carries a marked claim into the ledger and ends it in Redis as
// the ledger says. With an error the hold's state says how far it came:
// claiming (not in the ledger, as far as known) or claimed (in the ledger).
func (p *Path) rollForward(ctx context.Context, marked holdover.Hold) (holdover.Hold, error) {
	ledgerCtx, cancel := context.WithTimeout(ctx, p.cfg.LedgerTimeout)
	defer cancel()
	fact := marked
	fact.State = holdover.StateClaimed
	known, err := p.ledger.Apply(ledgerCtx, fact)
	if err != nil {
		return marked, err
	}
	if !known.State.Ended() {
		return marked, fmt.Errorf("the ledger took the claim of hold %s and says its state is %s", marked.Token, known.State)
	}
	fact.State, fact.Claimed = known.State, known.Claimed
	after, err := p.store.Apply(ctx, fact)
	if err != nil {
		return fact, err
	}
	return after, nil
}

// Release implements holdover.Reserver.
func (p *Path) Release(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	changed, h, err := p.store.end(ctx, 0, token, holdover.StateReleased, shop, true)
	if err != nil {
		return p.failed(err)
	}
	if h.State != holdover.StateReleased {
		return p.late.AfterEnded(ctx, shop, token, p.result(h, "it had ended before"), holdover.EndError(token, h.State))
	}
	result := p.result(h, "redis took the units back")
	result.Replayed = !changed
	return result, nil
}

// Lookup implements holdover.Reserver.
func (p *Path) Lookup(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	h, err := p.store.Lookup(ctx, token)
	if err != nil {
		return p.failed(err)
	}
	if h.State == holdover.StateNone || (h.Shop != shop && h.Shop != 0) {
		return p.result(holdover.Hold{Token: token}, "redis does not know it"), fmt.Errorf("hold %s in shop %d: %w", token, shop, holdover.ErrUnknownHold)
	}
	return p.late.AfterLookup(ctx, p.result(h, "redis knows it"), nil)
}

func (p *Path) result(h holdover.Hold, reason string) holdover.Result {
	return holdover.Result{Hold: h, Decision: holdover.Decision{
		Pod: p.store.cfg.Pod, Stage: holdover.StageRedis, Store: holdover.StoreRedis, Reason: reason,
	}}
}

func (p *Path) failed(err error) (holdover.Result, error) {
	reason := "redis refused it"
	if holdover.NoAnswer(err) {
		reason = "redis gave no answer"
	}
	return p.result(holdover.Hold{}, reason), err
}
