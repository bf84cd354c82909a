package dualwrite_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// generousMySQL says that it has more than Redis has.
type generousMySQL struct {
	dualwrite.MySQL
	more int64
}

func (g generousMySQL) generous(stocks []holdover.Stock) {
	for i := range stocks {
		stocks[i].Available += g.more
	}
}

func (g generousMySQL) Probe(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, error) {
	stocks, err := g.MySQL.Probe(ctx, shop, items)
	g.generous(stocks)
	return stocks, err
}

func (g generousMySQL) Levels(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, map[int64]int64, error) {
	stocks, owed, err := g.MySQL.Levels(ctx, shop, items)
	g.generous(stocks)
	return stocks, owed, err
}

func (g generousMySQL) Standing(ctx context.Context, shop int64, items []int64) (holdover.Standing, error) {
	all, err := g.MySQL.Standing(ctx, shop, items)
	g.generous(all.Stocks)
	return all, err
}

// crowded has too many live holds to be read hold by hold.
type crowded struct{ dualwrite.Redis }

func (crowded) Standing(context.Context, int64, []int64) (holdover.Standing, error) {
	return holdover.Standing{}, errors.New("too many")
}

// A difference that can't be judged, because something is late somewhere or the
// item never stands still, is told as undecided: it may be a fault.
func TestDifferenceThatCannotBeJudgedIsUndecided(t *testing.T) {
	t.Run("one token is stuck", func(t *testing.T) {
		r, rec := observed(t, holdover.StageShadow, 1, func(c *dualwrite.Config) {
			c.MySQL, c.RecheckTries = generousMySQL{c.MySQL, 1}, 60
		})
		r.load(t, r.shop, map[[2]int64]int64{{2, 1}: 5})
		wantOK(t, "the only unit", reserveOn(r.f, r.one()))
		control := r.one()
		wantErr(t, "redis has none", reserveOn(r.f, control), holdover.ErrOutOfStock)
		wantEvidence(t, rec.last(t, control.Token, 1), denied, granted)

		stuck := request(r.shop, holdover.NewToken(), line(2, 1))
		r.inject(func(c call) bool { return mysqlOps("Apply")(c) && c.token == stuck.Token }, dropped)
		wantOK(t, "reserve", reserveOn(r.f, stuck))
		rec.last(t, stuck.Token, 1)
		eventually(t, "it is unmirrored", func() bool { return r.f.Stats().Unmirrored == 1 })
		q := r.one()
		wantErr(t, "redis has none", reserveOn(r.f, q), holdover.ErrOutOfStock)
		if o := rec.last(t, q.Token, 1); !o.Marks.Has(holdover.MarkUndecided) || o.MySQL.Outcome != holdover.OutcomeShed {
			t.Errorf("mysql %s, marks %b", o.MySQL.Outcome, o.Marks)
		}
	})
	t.Run("a hot item among too many holds", func(t *testing.T) {
		r, rec := observed(t, holdover.StageShadow, 40, func(c *dualwrite.Config) {
			c.MySQL, c.Redis, c.RecheckTries, c.LaneLag = generousMySQL{c.MySQL, 5}, crowded{c.Redis}, 30, time.Minute
		})
		q := request(r.shop, holdover.NewToken(), line(1, 41))
		wantErr(t, "redis has 40", reserveOn(r.f, q), holdover.ErrOutOfStock)
		if o := rec.last(t, q.Token, 1); !o.Marks.Has(holdover.MarkUndecided) {
			t.Errorf("mysql %s, marks %b", o.MySQL.Outcome, o.Marks)
		}
	})
}

// What is kept of a token whose mirror work was lost is short, whatever the
// driver said, or its panic.
func TestLostMirrorsCauseIsShort(t *testing.T) {
	r, rec := observed(t, holdover.StageShadow, 5)
	q := r.one()
	r.inject(func(c call) bool { return mysqlOps("Apply")(c) && c.token == q.Token }, panics)
	wantOK(t, "reserve", reserveOn(r.f, q))
	if n := len(rec.last(t, q.Token, 1).Proof.Cause); n == 0 || n > 300 {
		t.Errorf("%d bytes", n)
	}
}
