package dualwrite_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/killswitch"
)

// flip is a change of the agreement: to a neighbour, or by the kill switch.
type flip struct {
	from, to holdover.Stage
	kill     bool
}

func (f flip) String() string {
	if f.kill {
		return fmt.Sprintf("kill in %s", f.from)
	}
	return fmt.Sprintf("%s to %s", f.from, f.to)
}

// flips are all pairs of neighbouring stages both ways, and the kills.
func flips() []flip {
	var all []flip
	stages := holdover.Stages()
	for i := range stages[1:] {
		all = append(all, flip{from: stages[i], to: stages[i+1]}, flip{from: stages[i+1], to: stages[i]})
	}
	return append(all, flip{holdover.StageJoint, holdover.StageShadow, true}, flip{holdover.StageMySQL, holdover.StageShadow, true})
}

// crossing is one pod with two instances: ahead makes the flip and works with
// the new agreement, behind still has the old one.
type crossing struct {
	flip
	s             *stores
	sw            *killswitch.Switch
	ahead, behind *dualwrite.Facade
	faults        *faults // of behind
}

func newCrossing(t *testing.T, f flip) *crossing {
	c := &crossing{flip: f, s: newStores(t), faults: new(faults)}
	c.sw = newSwitch(t, c.s)
	quiet := func(c *dualwrite.Config) { c.ClaimAge, c.RebuildPause = time.Millisecond, time.Nanosecond }
	c.ahead = newFacade(t, c.s, quiet)
	c.behind = newFacade(t, c.s, wrap(c.faults), quiet)
	return c
}

// start brings both instances to the old stage and returns a shop with stock.
func (c *crossing) start(t *testing.T, stock map[[2]int64]int64) (shop int64) {
	t.Helper()
	c.faults.heal()
	home(t, c.sw, c.from, c.ahead, c.behind)
	shop = newShop()
	c.s.load(t, shop, stock)
	return shop
}

// cross makes the flip. It may run on the goroutine of a call.
func (c *crossing) cross(t *testing.T) {
	if c.kill {
		trip(t, c.sw)
	} else {
		fence, err := c.ahead.Agreed()
		if err == nil {
			err = move(t, c.ahead, fence, c.to)
		}
		if err != nil {
			t.Errorf("flip: %v", err)
		}
	}
	if err := c.ahead.Refresh(t.Context()); err != nil {
		t.Errorf("refresh: %v", err)
	}
	if fence, _ := c.ahead.Agreed(); fence.Stage != c.to {
		t.Errorf("the pod is in %s, want %s", fence, c.to)
	}
}

func (c *crossing) settle(t *testing.T) {
	t.Helper()
	for _, f := range []*dualwrite.Facade{c.ahead, c.behind} {
		if err := f.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, c.s, c.ahead)
	settle(t, c.s, c.behind)
	eventually(t, "no debt is left", func() bool { return c.ahead.Stats().Debts+c.behind.Stats().Debts == 0 })
}

// both reports whether both stores take part in both stages.
func (c *crossing) both() bool { return c.from.Dual() && c.to.Dual() }

// steps are the calls that an operation makes in a stage before it answers.
func stepsOf(op holdover.Op, stage holdover.Stage) []killPoint {
	r := func(name string) killPoint { return killPoint{step: name, store: holdover.StoreRedis} }
	m := func(name string) killPoint { return killPoint{step: name, store: holdover.StoreMySQL} }
	var steps []killPoint
	switch op {
	case holdover.OpReserve:
		steps = map[holdover.Stage][]killPoint{
			holdover.StageRedis: {r("Vote")}, holdover.StageShadow: {r("Vote")}, holdover.StageJoint: {r("Vote"), m("Vote")},
			holdover.StageMySQL: {m("Vote"), r("Copy")}, holdover.StageMySQLOnly: {m("Vote")},
		}[stage]
	case holdover.OpClaim:
		steps = []killPoint{r("Mark"), m("Apply")}
		if stage == holdover.StageMySQLOnly {
			steps = []killPoint{m("Claim")}
		}
	case holdover.OpExtend:
		steps = map[holdover.Stage][]killPoint{
			holdover.StageRedis: {r("Extend")}, holdover.StageShadow: {r("Extend"), m("Apply")}, holdover.StageJoint: {r("Extend"), m("Apply")},
			holdover.StageMySQL: {r("Extend"), m("Apply")}, holdover.StageMySQLOnly: {m("Extend")},
		}[stage]
	case holdover.OpRelease:
		steps = map[holdover.Stage][]killPoint{
			holdover.StageRedis: {r("End")}, holdover.StageShadow: {r("End")}, holdover.StageJoint: {r("End"), m("Apply")},
			holdover.StageMySQL: {r("End"), m("Apply")}, holdover.StageMySQLOnly: {m("End")},
		}[stage]
	}
	var both []killPoint
	for _, p := range steps {
		both = append(both, p, killPoint{p.step, p.store, true})
	}
	return both
}

// oneWinner checks two answers about one unit, and the stores behind them.
func (c *crossing) oneWinner(t *testing.T, shop, item int64, a, b outcome) {
	t.Helper()
	granted := int64(0)
	for _, o := range []outcome{a, b} {
		switch {
		case o.err == nil:
			granted++
		case !errors.Is(o.err, holdover.ErrOutOfStock):
			t.Errorf("the loser was told %v, want out of stock", o)
		}
	}
	if granted > 1 {
		t.Errorf("one unit was granted twice:\n%v\n%v", a, b)
	}
	// In joint either of two buyers may stand in the other one's way.
	if granted == 0 && c.from != holdover.StageJoint && c.to != holdover.StageJoint {
		t.Errorf("the last unit was refused to both:\n%v\n%v", a, b)
	}
	switch {
	case c.both():
		c.s.conserved(t, shop, item, 1, granted, 0)
	case c.to.Truth() == holdover.StoreRedis:
		if live, counter := c.s.liveInRedis(t, shop, item), c.s.counter(t, shop, item); live != granted || counter != 1-granted {
			t.Errorf("redis has %d units in live holds and %d in its counter; %d were granted", live, counter, granted)
		}
	default:
		if live := c.s.liveInMySQL(t, shop, item); live != granted {
			t.Errorf("mysql has %d units in live holds; %d were granted", live, granted)
		}
	}
}

// TestTwoInstancesRaceForTheLastUnit: one instance works with the new stage and
// one with the old, in each pair of neighbouring stages. The other instance
// reserves at every step of a reserve begun in the old stage.
func TestTwoInstancesRaceForTheLastUnit(t *testing.T) {
	for _, f := range flips() {
		t.Run(f.String(), func(t *testing.T) {
			c := newCrossing(t, f)
			last := map[[2]int64]int64{{1, 1}: 1}
			for _, point := range stepsOf(holdover.OpReserve, f.from) {
				t.Run("flip "+point.String(), func(t *testing.T) {
					shop := c.start(t, last)
					var theirs outcome
					c.faults.next(point.match(), point.hook(func() {
						c.cross(t)
						theirs = reserveOn(c.ahead, request(shop, holdover.NewToken(), line(1, 1)))
					}, plain))
					mine := reserveOn(c.behind, request(shop, holdover.NewToken(), line(1, 1)))
					c.settle(t)
					c.oneWinner(t, shop, 1, mine, theirs)
				})
			}
			t.Run("old one first", func(t *testing.T) {
				shop := c.start(t, last)
				c.cross(t)
				mine := reserveOn(c.behind, request(shop, holdover.NewToken(), line(1, 1)))
				theirs := reserveOn(c.ahead, request(shop, holdover.NewToken(), line(1, 1)))
				c.settle(t)
				if mine.err != nil || mine.res.Decision.Stage != c.to {
					t.Errorf("the first one was told %v, want yes in %s", mine, c.to)
				}
				c.oneWinner(t, shop, 1, mine, theirs)
			})
			t.Run("new one first", func(t *testing.T) {
				shop := c.start(t, last)
				c.cross(t)
				theirs := reserveOn(c.ahead, request(shop, holdover.NewToken(), line(1, 1)))
				mine := reserveOn(c.behind, request(shop, holdover.NewToken(), line(1, 1)))
				c.settle(t)
				if theirs.err != nil {
					t.Errorf("the first one was told %v", theirs)
				}
				c.oneWinner(t, shop, 1, mine, theirs)
			})
			t.Run("at once", func(t *testing.T) {
				const items = 12
				stock := map[[2]int64]int64{}
				for item := range int64(items) {
					stock[[2]int64{item + 1, 1}] = 1
				}
				shop := c.start(t, stock)
				var mine, theirs [items]outcome
				var calls sync.WaitGroup
				begin := make(chan struct{})
				for i := range items {
					calls.Go(func() {
						<-begin
						mine[i] = reserveOn(c.behind, request(shop, holdover.NewToken(), line(int64(i+1), 1)))
					})
					calls.Go(func() {
						<-begin
						theirs[i] = reserveOn(c.ahead, request(shop, holdover.NewToken(), line(int64(i+1), 1)))
					})
				}
				calls.Go(func() { <-begin; c.cross(t) })
				close(begin)
				calls.Wait()
				c.settle(t)
				for i := range items {
					c.oneWinner(t, shop, int64(i+1), mine[i], theirs[i])
				}
			})
		})
	}
}

// TestEndsRaceAcrossAFlip: an instance with the old stage claims and one with
// the new stage releases the same hold, and the other way round. It ends
// exactly once, and both are told so.
func TestEndsRaceAcrossAFlip(t *testing.T) {
	claim := func(f *dualwrite.Facade, shop int64, token holdover.Token) outcome { return claimOn(f, shop, token) }
	release := func(f *dualwrite.Facade, shop int64, token holdover.Token) outcome { return releaseOn(f, shop, token) }
	for _, f := range flips() {
		t.Run(f.String(), func(t *testing.T) {
			c := newCrossing(t, f)
			for _, race := range []struct {
				name         string
				op           holdover.Op // of the one behind
				mine, theirs func(*dualwrite.Facade, int64, holdover.Token) outcome
			}{
				{"claim behind, release ahead", holdover.OpClaim, claim, release},
				{"release behind, claim ahead", holdover.OpRelease, release, claim},
				{"claim behind, claim ahead", holdover.OpClaim, claim, claim},
				{"release behind, release ahead", holdover.OpRelease, release, release},
			} {
				for _, point := range stepsOf(race.op, f.from) {
					t.Run(race.name+"/flip "+point.String(), func(t *testing.T) {
						shop := c.start(t, map[[2]int64]int64{{1, 1}: 2})
						token := holdover.NewToken()
						if got := reserveOn(c.behind, request(shop, token, line(1, 1))); got.err != nil {
							t.Fatal(got)
						}
						c.settle(t)
						var theirs outcome
						done := make(chan struct{}) // the step may run after the answer, in a lane
						c.faults.next(point.match(), point.hook(func() {
							defer close(done)
							c.cross(t)
							theirs = race.theirs(c.ahead, shop, token)
						}, plain))
						mine := race.mine(c.behind, shop, token)
						await(t, done, "the other one's end")
						c.settle(t)
						for range 2 { // whatever is still marked is rolled forward
							if err := c.ahead.SweepOnce(t.Context()); err != nil {
								t.Fatal(err)
							}
							c.settle(t)
						}
						c.oneEnd(t, shop, token, mine, theirs)
					})
				}
			}
		})
	}
}

// oneEnd checks that one hold of one unit, of two, ended once and as both were told.
func (c *crossing) oneEnd(t *testing.T, shop int64, token holdover.Token, mine, theirs outcome) {
	t.Helper()
	truth := func() string {
		if c.to.Truth() == holdover.StoreMySQL {
			return c.s.mysqlState(t, token)
		}
		return c.s.redisState(t, token)
	}
	state := truth()
	var sold int64
	switch state {
	case "claimed":
		sold = 1
	case "released":
	default:
		t.Errorf("the hold is %s in the end", state)
	}
	for _, o := range []outcome{mine, theirs} {
		switch {
		case o.err == nil && o.res.Hold.State.String() == state, o.err == nil && o.res.Pending && state == "claimed":
		case o.err == nil:
			t.Errorf("told %v, and the hold is %s", o, state)
		case state == "claimed" && (errors.Is(o.err, holdover.ErrAlreadyClaimed) || errors.Is(o.err, holdover.ErrClaimPending)):
		case state == "released" && errors.Is(o.err, holdover.ErrEnded):
		default:
			t.Errorf("told %v, and the hold is %s", o, state)
		}
	}
	if mine.err != nil && theirs.err != nil {
		t.Errorf("nobody ended it, says who asked: %v; %v", mine, theirs)
	}
	if c.both() {
		c.s.states(t, token, state, state)
		c.s.conserved(t, shop, 1, 2, 0, sold)
		return
	}
	if got := c.s.sold(t, shop, 1); got != sold || c.s.ledger(t, shop, 1) != 2-sold {
		t.Errorf("%d units sold and %d in the ledger; the hold is %s", got, c.s.ledger(t, shop, 1), state)
	}
	if live := c.s.liveInRedis(t, shop, 1); c.to.Truth() == holdover.StoreRedis && live != 0 {
		t.Errorf("redis still holds %d units", live)
	}
	if live := c.s.liveInMySQL(t, shop, 1); c.to.Truth() == holdover.StoreMySQL && live != 0 {
		t.Errorf("mysql still holds %d units", live)
	}
}
