package dualwrite_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// killPoint is a moment of a reserve in mysql: before or after one of its steps.
type killPoint struct {
	step  string // the method of the store's interface
	store holdover.Store
	after bool
}

func (p killPoint) String() string {
	side := "before"
	if p.after {
		side = "after"
	}
	return fmt.Sprintf("%s-%s.%s", side, p.store, p.step)
}

func (p killPoint) match() func(call) bool { return ops(p.store, p.step) }

func (p killPoint) hook(hook func(), inner fault) fault {
	return func(ctx context.Context, c call, do func(context.Context) error) error {
		if !p.after {
			hook()
		}
		err := inner(ctx, c, do)
		if p.after {
			hook()
		}
		return err
	}
}

func plain(ctx context.Context, _ call, do func(context.Context) error) error { return do(ctx) }

// TestKillAtEveryStepOfAReserve trips the real switch at every step of a
// reserve in mysql: with units for everybody, and with the last unit going to
// somebody who reserves in Redis right after the flip; with Redis answering,
// losing its answer, silent for this instance since the copy, and known to be
// away before the call.
func TestKillAtEveryStepOfAReserve(t *testing.T) {
	vote, copied := killPoint{step: "Vote", store: holdover.StoreMySQL}, killPoint{step: "Copy", store: holdover.StoreRedis}
	journal := killPoint{step: "JournalGrant", store: holdover.StoreMySQL}
	afterwards := func(p killPoint) killPoint { p.after = true; return p }

	type redisIs int
	const (
		there      redisIs = iota
		losingCopy         // executed, answer lost: only this call
		deafToCopy         // not executed, no answer: only this call
		silent             // from the copy on, for this instance
		knownAway          // for this instance, and it knows
	)
	names := map[redisIs]string{there: "redis there", losingCopy: "copy's answer lost", deafToCopy: "copy dropped", silent: "redis silent", knownAway: "redis known away"}
	// What the buyer must be told when there are units for everybody: the stage
	// of the answer, or none.
	const no = holdover.StageUnknown
	for _, c := range []struct {
		redis  redisIs
		point  killPoint
		answer holdover.Stage // with units for everybody
		rival  holdover.Stage // when a rival gets the last unit in Redis after the flip, if it is there
	}{
		{there, vote, holdover.StageShadow, no},
		{there, afterwards(vote), holdover.StageShadow, no},
		{there, copied, holdover.StageShadow, no},
		{there, afterwards(copied), holdover.StageMySQL, holdover.StageMySQL},
		{losingCopy, copied, holdover.StageShadow, no},
		{losingCopy, afterwards(copied), holdover.StageShadow, holdover.StageShadow},
		{losingCopy, journal, holdover.StageShadow, holdover.StageShadow},
		{losingCopy, afterwards(journal), holdover.StageMySQL, holdover.StageMySQL},
		{deafToCopy, copied, holdover.StageShadow, no},
		{deafToCopy, afterwards(copied), holdover.StageShadow, no},
		{deafToCopy, journal, holdover.StageShadow, no},
		{deafToCopy, afterwards(journal), holdover.StageMySQL, holdover.StageMySQL},
		{silent, copied, no, no},
		{silent, afterwards(copied), no, no},
		{silent, journal, no, no},
		{silent, afterwards(journal), holdover.StageMySQL, holdover.StageMySQL},
		{knownAway, vote, no, no},
		{knownAway, afterwards(vote), holdover.StageMySQL, holdover.StageMySQL},
	} {
		t.Run(names[c.redis]+"/"+c.point.String(), func(t *testing.T) {
			for _, units := range []int64{2, 1} {
				t.Run(fmt.Sprintf("%d units", units), func(t *testing.T) {
					s := newStores(t)
					sw := newSwitch(t, s)
					f := new(faults)
					// An instance that knows Redis to be away keeps to it until it reads the fences again.
					facade := newFacade(t, s, wrap(f), func(c *dualwrite.Config) { c.AwayFor, c.DrainEvery = time.Hour, time.Hour })
					rival := newFacade(t, s)
					home(t, sw, holdover.StageMySQL, facade, rival)
					shop := newShop()
					s.load(t, shop, map[[2]int64]int64{{1, 1}: units})

					others := request(shop, holdover.NewToken(), line(1, 1))
					var theirs outcome
					kill := func() {
						if tripped := trip(t, sw); tripped.To.Stage != holdover.StageShadow {
							t.Errorf("tripped to %v", tripped.To)
						}
						theirs = reserveOn(rival, others)
					}
					inner := fault(plain)
					switch c.redis {
					case losingCopy, deafToCopy:
						inner = replyLost
						if c.redis == deafToCopy {
							inner = dropped
						}
						f.next(redisOps("Copy"), inner)
						if c.point.step != "Copy" {
							inner = plain
						}
					case silent:
						f.inject(redisOps(), func(ctx context.Context, c call, do func(context.Context) error) error {
							return noAnswer(c)
						})
						if c.point.step == "Copy" {
							inner = dropped
						}
					case knownAway:
						f.inject(redisOps(), dropped)
						warmUp := newShop()
						s.load(t, warmUp, map[[2]int64]int64{{1, 1}: 1})
						if got := reserveOn(facade, request(warmUp, holdover.NewToken(), line(1, 1))); got.err != nil {
							t.Fatalf("the reserve that finds out: %v", got)
						}
					}
					f.next(c.point.match(), c.point.hook(kill, inner))

					mine := request(shop, holdover.NewToken(), line(1, 1))
					got := reserveOn(facade, mine)

					want := c.answer
					if units == 1 {
						want = c.rival
					}
					switch {
					case want != no && (got.err != nil || got.res.Decision.Stage != want):
						t.Errorf("the buyer was told %v, want yes in %s", got, want)
					case want == no && got.err == nil:
						t.Errorf("the buyer was told %v, want no", got)
					case want == no && units == 1 && c.redis != silent && c.redis != knownAway && !errors.Is(got.err, holdover.ErrOutOfStock):
						t.Errorf("the loser was told %v, want out of stock", got)
					}
					if won := theirs.err == nil; units == 1 && won == (got.err == nil) {
						t.Errorf("one unit: this buyer was told %v, the other one %v", got, theirs)
					} else if units == 2 && !won {
						t.Errorf("the other buyer was told %v", theirs)
					}

					// An acknowledged hold is live in Redis at once: it decides now.
					held := int64(0)
					for r, o := range map[*holdover.Request]outcome{&mine: got, &others: theirs} {
						if o.err == nil {
							held++
							if state := s.redisState(t, r.Token); state != "held" {
								t.Errorf("an acknowledged hold is %s in redis after the kill", state)
							}
						}
					}
					f.heal()
					if err := errors.Join(facade.Refresh(t.Context()), facade.DrainOnce(t.Context())); err != nil {
						t.Fatal(err)
					}
					settle(t, s, facade)
					settle(t, s, rival)
					eventually(t, "no debt is left", func() bool { return facade.Stats().Debts+rival.Stats().Debts == 0 })
					// A buyer who was told no has no units left anywhere.
					if got.err != nil {
						s.states(t, mine.Token, "none", "none")
					}
					s.conserved(t, shop, 1, units, held, 0)
					for r, o := range map[*holdover.Request]outcome{&mine: got, &others: theirs} {
						if o.err != nil {
							continue
						}
						if res, err := rival.Claim(t.Context(), shop, r.Token); err != nil || res.Pending {
							t.Errorf("claim of an acknowledged hold: %+v, %v", res, err)
						}
					}
					settle(t, s, rival)
					s.conserved(t, shop, 1, units, 0, held)
				})
			}
		})
	}
}

// TestKillWhileACallHangsOnMySQL: whatever step of MySQL's a reserve waits for,
// the kill sends it to Redis at once, while MySQL still hangs (rule 8).
func TestKillWhileACallHangsOnMySQL(t *testing.T) {
	for _, c := range []struct {
		name string
		step string
		redi fault // of the copy
		hang func(*gate) fault
	}{
		{"vote not executed", "Vote", nil, func(g *gate) fault { return g.hang }},
		{"vote executed", "Vote", nil, func(g *gate) fault { return g.hangAfter }},
		{"journal not executed", "JournalGrant", dropped, func(g *gate) fault { return g.hang }},
		{"journal executed", "JournalGrant", dropped, func(g *gate) fault { return g.hangAfter }},
		{"due list", "Due", nil, func(g *gate) fault { return g.hang }},
		{"fence", "RaiseFence", nil, func(g *gate) fault { return g.hang }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStores(t)
			sw := newSwitch(t, s)
			f := new(faults)
			facade := newFacade(t, s, wrap(f), func(c *dualwrite.Config) { c.CallTimeout = time.Minute })
			home(t, sw, holdover.StageMySQL, facade)
			shop := newShop()
			s.load(t, shop, map[[2]int64]int64{{1, 1}: 1})
			mine := request(shop, holdover.NewToken(), line(1, 1))
			if c.redi != nil {
				f.next(redisOps("Copy"), c.redi)
			}
			switch c.step {
			case "Due": // asked before a refusal; Redis has the unit that MySQL lacks
				if _, err := s.db.Exec("UPDATE inventory_ledger SET available=0 WHERE shop_id=?", shop); err != nil {
					t.Fatal(err)
				}
			case "RaiseFence": // MySQL was silent at the last look: it is raised before it is used
				f.next(mysqlOps("Fence"), dropped)
				f.next(mysqlOps("RaiseFence"), dropped)
				if err := facade.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				f.heal()
			}
			g := newGate(t)
			f.inject(mysqlOps(c.step), c.hang(g))
			done := async(func() outcome { return reserveOn(facade, mine) })
			g.wait(t)
			// MySQL hangs for the facade from here on; the killer still reaches it.
			all := newGate(t)
			f.inject(func(k call) bool { return k.store == holdover.StoreMySQL && k.op != c.step }, all.stuck)
			trip(t, sw)
			refreshed := async(func() error { return facade.Refresh(context.Background()) }) // what the follower does
			got := await(t, done, "the call that waited for mysql")
			if got.err != nil || got.res.Decision.Stage != holdover.StageShadow || got.res.Decision.Store != holdover.StoreRedis {
				t.Fatalf("told %v, want yes from redis in shadow", got)
			}
			if state := s.redisState(t, mine.Token); state != "held" {
				t.Errorf("the hold is %s in redis", state)
			}
			f.heal()
			g.open()
			all.open()
			if err := await(t, refreshed, "the refresh"); err != nil {
				t.Fatal(err)
			}
			if c.step == "Due" {
				if _, err := s.db.Exec("UPDATE inventory_ledger SET available=1 WHERE shop_id=?", shop); err != nil {
					t.Fatal(err)
				}
			}
			settle(t, s, facade)
			eventually(t, "mysql has the hold", func() bool { return s.mysqlState(t, mine.Token) == "held" })
			s.conserved(t, shop, 1, 1, 1, 0)
		})
	}
}

// TestKillWhileMySQLHangsAndRedisRefuses: the call that moves on is refused by
// Redis, and what MySQL did for it meanwhile is given back.
func TestKillWhileMySQLHangsAndRedisRefuses(t *testing.T) {
	for name, hang := range map[string]func(*gate) fault{
		"vote not executed": func(g *gate) fault { return g.hang },
		"vote executed":     func(g *gate) fault { return g.hangAfter },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStores(t)
			sw := newSwitch(t, s)
			f := new(faults)
			facade, rival := newFacade(t, s, wrap(f)), newFacade(t, s)
			home(t, sw, holdover.StageMySQL, facade, rival)
			shop := newShop()
			s.load(t, shop, map[[2]int64]int64{{1, 1}: 1})
			g := newGate(t)
			f.next(mysqlOps("Vote"), hang(g))
			mine, others := request(shop, holdover.NewToken(), line(1, 1)), request(shop, holdover.NewToken(), line(1, 1))
			done := async(func() outcome { return reserveOn(facade, mine) })
			g.wait(t)
			trip(t, sw)
			if got := reserveOn(rival, others); got.err != nil {
				t.Fatalf("the buyer after the flip: %v", got)
			}
			if err := facade.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := await(t, done, "the call that waited for mysql"); !errors.Is(got.err, holdover.ErrOutOfStock) || got.res.Decision.Stage != holdover.StageShadow {
				t.Errorf("told %v, want out of stock in shadow", got)
			}
			g.open()
			settle(t, s, facade)
			settle(t, s, rival)
			eventually(t, "mysql has the winner's hold", func() bool { return s.mysqlState(t, others.Token) == "held" })
			s.states(t, mine.Token, "none", "none")
			s.conserved(t, shop, 1, 1, 1, 0)
		})
	}
}
