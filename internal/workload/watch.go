package workload

import (
	"context"
	"errors"
	"time"

	"holdover"
)

// Watch returns a Reserver that asks r and writes down what r told the buyer.
// Any number of them may write to one account, which is how several instances
// of a pod are judged together. Only tokens whose Reserve went through a
// watched Reserver are followed.
func (a *Account) Watch(r holdover.Reserver) holdover.Reserver { return &watched{a: a, r: r} }

type watched struct {
	a *Account
	r holdover.Reserver
}

func (w *watched) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	normal, err := r.Normalize(holdover.Limits{})
	if err != nil {
		return w.r.Reserve(ctx, r) // a wrong request: the product refuses it, the book has no place for it
	}
	rec, start, err := w.a.begin(normal)
	if err != nil {
		return holdover.Result{}, err
	}
	res, err := w.r.Reserve(ctx, r)
	if rec != nil {
		w.a.reserved(rec, start, normal, res, err)
	}
	return res, err
}

func (w *watched) Claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	rec, start := w.a.find(token)
	if rec != nil {
		w.a.asksClaim(rec, start, len(lines) > 0)
	}
	res, err := w.r.Claim(ctx, shop, token, lines...)
	if rec != nil {
		w.a.claimed(rec, lines, res, err)
	}
	return res, err
}

func (w *watched) Release(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	rec, start := w.a.find(token)
	if rec != nil {
		w.a.asks(&rec.releaseAsked, start)
	}
	res, err := w.r.Release(ctx, shop, token)
	if rec != nil {
		w.a.released(rec, err)
	}
	return res, err
}

func (w *watched) Extend(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
	rec, _ := w.a.find(token)
	res, err := w.r.Extend(ctx, shop, token, ttl)
	if rec != nil {
		w.a.extended(rec, ttl, res, err)
	}
	return res, err
}

// Lookup is not written down: it promises nothing.
func (w *watched) Lookup(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	return w.r.Lookup(ctx, shop, token)
}

func (a *Account) asks(field *int64, start int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if *field == 0 {
		*field = start
	}
}

// reserved writes down the answer to a reserve that began at start.
func (a *Account) reserved(rec *record, start int64, asked holdover.Request, res holdover.Result, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	rec.running--
	rec.last = max(rec.last, now)
	var ended *holdover.EndedError
	switch {
	case err == nil:
		a.grant(rec, asked, res, now)
	case errors.Is(err, holdover.ErrOutOfStock):
		a.refuse(rec, start, now, res, err)
	case unanswered(err):
		a.counts.NoAnswer++
		rec.loose = true
	case notNow(err):
		a.counts.NotNow++
		rec.promise = max(rec.promise, promiseNothing)
	case errors.As(err, &ended):
		// A repeat after a lost answer may find the hold given back or expired.
		// After a grant it is news about the hold.
		if rec.promise == promiseGranted {
			a.tellEnded(rec, ended.State, now)
		} else {
			rec.promise = max(rec.promise, promiseNothing)
		}
	case errors.Is(err, holdover.ErrAlreadyClaimed) && rec.claimAsked != 0:
		// A repeat of a reserve behind its own claim.
	default:
		a.unexpected("reserve of hold %s: %v", rec.token, err)
		rec.loose = true
		rec.promise = max(rec.promise, promiseNothing)
	}
}

func (a *Account) grant(rec *record, asked holdover.Request, res holdover.Result, now int64) {
	if !holdover.SameLines(res.Hold.Lines, asked.Lines) {
		a.unexpected("reserve of hold %s: granted %v, asked for %v", rec.token, res.Hold.Lines, asked.Lines)
	}
	if rec.promise == promiseGranted {
		return
	}
	rec.promise = promiseGranted
	rec.granted = now
	rec.expires = res.Hold.ExpiresAt.UnixMilli()
	a.counts.Granted++
}

func (a *Account) refuse(rec *record, start, now int64, res holdover.Result, err error) {
	a.counts.Refused++
	if rec.promise == promiseGranted && rec.ending == endOpen && rec.granted < start {
		// The hold was promised and a repeat was asked to buy it anew.
		a.end(rec, endDenied, now)
		return
	}
	rec.promise = max(rec.promise, promiseRefused)
	if len(a.refusals) >= a.cfg.MaxRefusals {
		a.counts.Unkept++
		return
	}
	f := refusal{rec: rec, start: start, end: now, stage: res.Decision.Stage, store: res.Decision.Store}
	var short *holdover.OutOfStockError
	if errors.As(err, &short) && short.Store != holdover.StoreNone {
		f.store = short.Store
	}
	a.refusals = append(a.refusals, f)
}

func (a *Account) asksClaim(rec *record, start int64, part bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	rec.partAsked = rec.partAsked || part
	if rec.claimAsked == 0 {
		rec.claimAsked = start
	}
}

// claimed writes down the answer to a claim of lines; none are all.
func (a *Account) claimed(rec *record, lines []holdover.Line, res holdover.Result, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if err == nil {
		a.tellPart(rec, lines, res.Hold)
		if res.Hold.Late != (holdover.Token{}) {
			rec.late = res.Hold.Late
		}
	}
	var ended *holdover.EndedError
	switch {
	case err == nil && res.Pending:
		a.end(rec, endPending, now)
	case errors.Is(err, holdover.ErrTokenReused) && rec.partAsked:
		// Another part was claimed; what of it the buyer was told is written down.
	case err == nil || errors.Is(err, holdover.ErrAlreadyClaimed):
		a.end(rec, endClaimed, now)
	case errors.As(err, &ended):
		a.tellEnded(rec, ended.State, now)
	case errors.Is(err, holdover.ErrUnknownHold):
		a.unknownHold(rec, "claim", now)
	default:
		a.failed(rec, "claim", err)
	}
}

// tellPart checks what a claim says that it took.
func (a *Account) tellPart(rec *record, asked []holdover.Line, h holdover.Hold) {
	part, err := h.PartOf(asked)
	if err != nil || !holdover.SameLines(part, h.Claimed) {
		a.unexpected("claim of hold %s: asked for %v of %v, and told that %v is claimed", rec.token, asked, h.Lines, h.Claimed)
	}
	if h.Claimed != nil && rec.part == nil {
		rec.part = a.compact(holdover.Request{Shop: rec.shop, Lines: h.Claimed})
	}
}

// extended writes down the answer to an extension by ttl.
func (a *Account) extended(rec *record, ttl time.Duration, res holdover.Result, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	var ended *holdover.EndedError
	switch {
	case err == nil:
		rec.expires = max(rec.expires, res.Hold.ExpiresAt.UnixMilli())
		rec.ttl = max(rec.ttl, int64(res.Hold.ExpiresAt.Sub(res.Hold.GrantedAt)))
	case unanswered(err):
		rec.mayLive = max(rec.mayLive, now+int64(ttl))
		a.counts.NoAnswer++
	case errors.As(err, &ended):
		a.tellEnded(rec, ended.State, now)
	case errors.Is(err, holdover.ErrAlreadyClaimed) && rec.claimAsked != 0:
	case errors.Is(err, holdover.ErrClaimPending) && rec.claimAsked != 0:
	case errors.Is(err, holdover.ErrUnknownHold):
		a.unknownHold(rec, "extension", now)
	default:
		a.failed(rec, "extension", err)
	}
}

// released writes down the answer to a release.
func (a *Account) released(rec *record, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	var ended *holdover.EndedError
	switch {
	case err == nil:
		a.end(rec, endReleased, now)
	case errors.As(err, &ended):
		a.tellEnded(rec, ended.State, now)
	case errors.Is(err, holdover.ErrAlreadyClaimed) && rec.claimAsked != 0:
		a.end(rec, endClaimed, now)
	case errors.Is(err, holdover.ErrClaimPending) && rec.claimAsked != 0:
		a.end(rec, endPending, now)
	case errors.Is(err, holdover.ErrUnknownHold):
		a.unknownHold(rec, "release", now)
	default:
		a.failed(rec, "release", err)
	}
}

// tellEnded is the word that a hold was released or has expired already.
func (a *Account) tellEnded(rec *record, how holdover.State, now int64) {
	switch {
	case how == holdover.StateReleased && rec.releaseAsked != 0:
		a.end(rec, endReleased, now)
	case how == holdover.StateExpired && now-rec.first+clockGrain < rec.ttl:
		// Too early even when the store took it at the first moment.
		if rec.promise == promiseGranted && rec.ending == endOpen {
			a.unexpected("hold %s: told expired %s before its time", rec.token, since(rec.ttl-(now-rec.first)))
		}
		a.deny(rec, now)
	case how == holdover.StateExpired:
		a.end(rec, endExpired, now)
	default:
		a.unexpected("hold %s: told that it has ended (%s), which its buyer did not ask for", rec.token, how)
		a.deny(rec, now)
	}
}

func (a *Account) unknownHold(rec *record, op string, now int64) {
	if rec.promise != promiseGranted {
		return // nothing was promised
	}
	a.unexpected("%s of hold %s: it was granted, and is not known any more", op, rec.token)
	a.deny(rec, now)
}

func (a *Account) deny(rec *record, now int64) {
	if rec.promise == promiseGranted && rec.ending == endOpen {
		a.end(rec, endDenied, now)
	}
}

func (a *Account) failed(rec *record, op string, err error) {
	switch {
	case unanswered(err):
		a.counts.NoAnswer++
	case notNow(err):
		a.counts.NotNow++
	default:
		a.unexpected("%s of hold %s: %v", op, rec.token, err)
	}
}

// unanswered reports whether the buyer can't know what happened.
func unanswered(err error) bool {
	return holdover.NoAnswer(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
