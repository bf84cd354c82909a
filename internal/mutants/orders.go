package mutants

import (
	"context"
	"fmt"
	"strings"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// lateCopies answers before Redis has the hold.
type lateCopies struct {
	dualwrite.Redis
	m *Mutant
}

const copyLag = 60 * time.Millisecond

func (l lateCopies) Copy(ctx context.Context, e holdover.Epoch, h holdover.Hold) (holdover.Copied, error) {
	l.m.later(ctx, copyLag, func(ctx context.Context) { _, _ = l.Redis.Copy(ctx, e, h) })
	return holdover.Copied{Hold: h, WouldGrant: true}, nil
}

// unorderedMirror lets what follows a grant overtake it on its way into MySQL.
type unorderedMirror struct {
	dualwrite.MySQL
	m *Mutant
}

const grantLag = 150 * time.Millisecond

func (u unorderedMirror) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	if h.State != holdover.StateHeld {
		return u.MySQL.Apply(ctx, h)
	}
	u.m.later(ctx, grantLag, func(ctx context.Context) { _, _ = u.MySQL.Apply(ctx, h) })
	h.Firm = true
	return h, nil
}

// noMarks lets a claim go to the ledger as soon as Redis knows the hold.
type noMarks struct{ dualwrite.Redis }

func (n noMarks) Mark(ctx context.Context, _ holdover.Epoch, shop int64, token holdover.Token, part []holdover.Line) (holdover.Hold, error) {
	h, err := n.Redis.Lookup(ctx, token)
	switch {
	case err != nil:
		return h, err
	case h.State == holdover.StateNone || h.Shop != shop:
		return h, holdover.ErrUnknownHold
	case h.State == holdover.StateClaimed:
		return h, nil
	case h.State.Ended():
		return h, holdover.EndError(token, h.State)
	}
	if h.Claimed, err = h.PartOf(part); err != nil {
		return h, err
	}
	h.State = holdover.StateClaiming
	return h, nil
}

// oneAttempt is every attempt's id.
const oneAttempt holdover.Attempt = 1

type oneAttemptRedis struct{ dualwrite.Redis }

func (o oneAttemptRedis) Vote(ctx context.Context, t holdover.Ticket, r holdover.Request) (holdover.Grant, error) {
	t.Attempt = oneAttempt
	return o.Redis.Vote(ctx, t, r)
}

func (o oneAttemptRedis) GiveBack(ctx context.Context, token holdover.Token, _ holdover.Attempt) (bool, error) {
	return o.Redis.GiveBack(ctx, token, oneAttempt)
}

type oneAttemptMySQL struct{ dualwrite.MySQL }

func (o oneAttemptMySQL) Vote(ctx context.Context, t holdover.Ticket, r holdover.Request, journal bool) (holdover.Grant, error) {
	t.Attempt = oneAttempt
	return o.MySQL.Vote(ctx, t, r, journal)
}

func (o oneAttemptMySQL) GiveBack(ctx context.Context, token holdover.Token, _ holdover.Attempt) (bool, error) {
	return o.MySQL.GiveBack(ctx, token, oneAttempt)
}

// forgetfulRedis keeps no end records.
type forgetfulRedis struct {
	dualwrite.Redis
	m *Mutant
}

func (f forgetfulRedis) End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State) (holdover.Hold, error) {
	h, err := f.Redis.End(ctx, e, shop, token, how)
	f.forget(ctx, h, err)
	return h, err
}

func (f forgetfulRedis) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	h, err := f.Redis.Apply(ctx, h)
	f.forget(ctx, h, err)
	return h, err
}

func (f forgetfulRedis) forget(ctx context.Context, h holdover.Hold, err error) {
	if err == nil && h.State.Ended() {
		f.m.redis.Del(ctx, "hold:"+h.Token.String())
	}
}

// forgetfulMySQL keeps none either.
type forgetfulMySQL struct {
	dualwrite.MySQL
	m *Mutant
}

func (f forgetfulMySQL) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	h, err := f.MySQL.Apply(ctx, h)
	f.forget(ctx, h, err)
	return h, err
}

func (f forgetfulMySQL) End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State, journal bool) (holdover.Hold, error) {
	h, err := f.MySQL.End(ctx, e, shop, token, how, journal)
	f.forget(ctx, h, err)
	return h, err
}

const sqlForget = `DELETE FROM reserved_quantities WHERE token = ? AND state <> 'held'`

func (f forgetfulMySQL) forget(ctx context.Context, h holdover.Hold, err error) {
	if err == nil && h.State.Ended() {
		_, _ = f.m.db.ExecContext(ctx, sqlForget, h.Token[:])
	}
}

// plainDecrements takes units the way most checkouts do: a DECRBY of a client
// with its default options. Such a client repeats a command whose reply was lost,
// and a DECRBY, unlike the product's scripts, knows no token: this is the control
// for both.
type plainDecrements struct {
	dualwrite.Redis
	m *Mutant
}

func (p plainDecrements) Vote(ctx context.Context, t holdover.Ticket, r holdover.Request) (holdover.Grant, error) {
	g, err := p.Redis.Vote(ctx, t, r)
	if err != nil || g.Replayed {
		return g, err
	}
	for _, l := range g.Hold.Lines {
		key := strings.NewReplacer("<shop>", fmt.Sprint(r.Shop), "<item>", fmt.Sprint(l.Item)).Replace("inventory:<shop>:<item>")
		// What the script took goes back, once whether or not the reply is lost, and
		// is taken again the other way.
		p.m.once.IncrBy(ctx, key, l.Quantity)
		p.m.redis.DecrBy(ctx, key, l.Quantity)
	}
	return g, nil
}
