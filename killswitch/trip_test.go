package killswitch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/killswitch"
)

func TestTripFollowsTheTableOfStages(t *testing.T) {
	for _, c := range []struct{ from, to holdover.Stage }{
		{holdover.StageRedis, holdover.StageRedis},
		{holdover.StageShadow, holdover.StageShadow},
		{holdover.StageJoint, holdover.StageShadow},
		{holdover.StageMySQL, holdover.StageShadow},
	} {
		t.Run(c.from.String(), func(t *testing.T) {
			sw, r, m := stubs(t, fenceAt(c.from, 5), fenceAt(c.from, 5))
			got, err := sw.Trip(t.Context(), "alice", "drill")
			if err != nil {
				t.Fatal(err)
			}
			want := holdover.Fence{Pod: "p", Epoch: 7, Stage: c.to, Latched: true, By: "alice", Reason: "drill"}
			for name, f := range map[string]holdover.Fence{"result": got.To, "redis": r.fence, "mysql": m.fence} {
				f.At = time.Time{}
				if f != want {
					t.Errorf("%s has %v, want %v", name, f, want)
				}
			}
			if got.Already || got.Owed != "" || got.From.Stage != c.from {
				t.Errorf("result is %+v", got)
			}
		})
	}
}

func TestTripRefusesMySQLOnlyWithTheWayOut(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageMySQLOnly, 9), fenceAt(holdover.StageMySQLOnly, 9))
	_, err := sw.Trip(t.Context(), "alice", "drill")
	if !errors.Is(err, killswitch.ErrRefused) || !strings.Contains(err.Error(), "holdover rollout return --pod p") {
		t.Errorf("error is %v", err)
	}
	r.err = away(holdover.StoreRedis, false) // it may be gone by then
	if _, err := sw.Trip(t.Context(), "alice", "drill"); !errors.Is(err, killswitch.ErrRefused) || !strings.Contains(err.Error(), "holdover rollout return --pod p") {
		t.Errorf("without redis: error is %v", err)
	}
	if r.fence.Epoch != 9 || m.fence.Epoch != 9 || r.trips+m.calls != 0 {
		t.Error("a refused trip wrote something")
	}
}

func TestTripNeedsNameAndReason(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5))
	for _, c := range []struct{ by, reason string }{
		{"", "drill"}, {"  ", "drill"}, {"alice", ""}, {"alice", "\t"}, {"alice", "two\nlines"}, {"al\x00ice", "drill"}, {"alice", "\xff"},
		{strings.Repeat("a", killswitch.MaxBy+1), "drill"}, {"alice", strings.Repeat("a", killswitch.MaxReason+1)},
	} {
		if _, err := sw.Trip(t.Context(), c.by, c.reason); !errors.Is(err, holdover.ErrInvalid) {
			t.Errorf("trip by %q because %q: error is %v", c.by, c.reason, err)
		}
		if _, err := sw.Restore(t.Context(), c.by, c.reason); !errors.Is(err, holdover.ErrInvalid) {
			t.Errorf("restore by %q because %q: error is %v", c.by, c.reason, err)
		}
	}
	if r.fence.Epoch != 5 || m.fence.Epoch != 5 {
		t.Error("a refused request moved a fence")
	}
}

func TestTripTellsMySQLFirstAndCarriesItsJournal(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5))
	gone := heldFact()
	gone.Hold.State = holdover.StateNone // given back since: nobody was told
	claimed := heldFact()
	claimed.Hold.State = holdover.StateClaimed
	m.journal = []holdover.Journaled{heldFact(), gone, claimed}
	r.onTrip = func(int) error {
		if f, _ := m.get(); f.Epoch != 7 {
			t.Errorf("redis was told when mysql was at %v", f)
		}
		return nil
	}
	got, err := sw.Trip(t.Context(), "alice", "drill")
	if err != nil {
		t.Fatal(err)
	}
	if got.Carried != 2 || got.NotCarried != 0 || len(r.facts) != 2 {
		t.Fatalf("carried %d (%d not), redis has %d facts; want 2, 0, 2", got.Carried, got.NotCarried, len(r.facts))
	}
	if h := r.facts[0]; h.Token != m.journal[0].Hold.Token || !h.Firm {
		t.Errorf("first fact is %+v", h)
	}
	if r.facts[1].State != holdover.StateClaimed {
		t.Errorf("second fact is %+v", r.facts[1])
	}
}

// A driver may ignore the context, as go-sql-driver does while it waits for the
// answer to a COMMIT. The trip's bound must not depend on it.
func TestTripIsBoundedWhenMySQLHangs(t *testing.T) {
	for name, heeds := range map[string]bool{"context heeded": true, "context ignored": false} {
		t.Run(name, func(t *testing.T) {
			const budget = 50 * time.Millisecond
			sw, r, m := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5), func(c *killswitch.Config) { c.MySQLTimeout = budget })
			release := make(chan struct{})
			t.Cleanup(func() { close(release) })
			m.hang = func(ctx context.Context) {
				if heeds {
					<-ctx.Done()
				} else {
					<-release
				}
			}
			for _, want := range []bool{false, true} { // the second trip meets the call that the first left behind
				got, err := sw.Trip(t.Context(), "alice", "drill")
				if err != nil {
					t.Fatal(err)
				}
				if got.Already != want || !strings.Contains(got.Owed, "MySQL of pod p") {
					t.Errorf("result is %+v", got)
				}
				if got.Took > 100*budget { // generous: a loaded machine, not a hanging call
					t.Errorf("took %s with a budget of %s", got.Took, budget)
				}
			}
			if r.fence.Epoch != 7 || r.fence.Stage != holdover.StageShadow || !r.fence.Latched {
				t.Errorf("redis has %v", r.fence)
			}
		})
	}
}

func TestTripGoesOnWithoutMySQL(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5))
	m.err = away(holdover.StoreMySQL, false)
	got, err := sw.Trip(t.Context(), "alice", "drill")
	if err != nil || got.Owed == "" || r.fence.Epoch != 7 {
		t.Fatalf("got %+v, %v; redis has %v", got, err, r.fence)
	}
	// MySQL is back: a second trip takes no new epoch and pays what is owed.
	m.err = nil
	got, err = sw.Trip(t.Context(), "bob", "again")
	if err != nil || !got.Already || got.Owed != "" {
		t.Fatalf("got %+v, %v", got, err)
	}
	if m.fence != r.fence || m.fence.Epoch != 7 || m.fence.By != "alice" {
		t.Errorf("mysql has %v, redis has %v", m.fence, r.fence)
	}
}

func TestTripNeedsRedis(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5))
	r.err = away(holdover.StoreRedis, false)
	_, err := sw.Trip(t.Context(), "alice", "drill")
	if !errors.Is(err, holdover.ErrUnavailable) || !strings.Contains(err.Error(), "can't flip to a Redis that does not answer") {
		t.Errorf("error is %v", err)
	}
	if m.calls != 0 || m.fence.Epoch != 5 {
		t.Error("mysql was told of a flip that can't happen")
	}
}

func TestTripOfARedisThatLostItsData(t *testing.T) {
	sw, _, m := stubs(t, holdover.Fence{}, fenceAt(holdover.StageMySQL, 5))
	if _, err := sw.Trip(t.Context(), "alice", "drill"); !errors.Is(err, holdover.ErrNoFence) {
		t.Errorf("error is %v", err)
	}
	if m.fence.Epoch != 5 {
		t.Error("mysql was told of a flip that can't happen")
	}
}

// Redis goes away between the two writes: the result says so, and the next trip
// finishes with a larger epoch.
func TestTripThatStoppedHalfWayIsFinishedByTheNext(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5))
	m.journal = []holdover.Journaled{heldFact()}
	r.onTrip = func(int) error { r.err = away(holdover.StoreRedis, false); return nil }
	_, err := sw.Trip(t.Context(), "alice", "drill")
	if !errors.Is(err, holdover.ErrUnavailable) || !strings.Contains(err.Error(), "trip again") {
		t.Fatalf("error is %v", err)
	}
	if m.fence.Epoch != 7 || r.fence.Epoch != 5 {
		t.Fatalf("mysql at %d, redis at %d", m.fence.Epoch, r.fence.Epoch)
	}
	r.err, r.onTrip = nil, nil
	if _, err := sw.Restore(t.Context(), "bob", "too early"); !errors.Is(err, killswitch.ErrRefused) {
		t.Errorf("a restore of half a kill gave %v", err)
	}
	got, err := sw.Trip(t.Context(), "alice", "drill")
	if err != nil || got.Already || got.Carried != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if r.fence.Epoch != 9 || m.fence.Epoch != 9 || r.fence.Stage != holdover.StageShadow {
		t.Errorf("redis has %v, mysql has %v", r.fence, m.fence)
	}
}

func TestTripReadsAgainWhenRedisMovedOn(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageJoint, 5), fenceAt(holdover.StageJoint, 5))
	r.onTrip = func(call int) error {
		if call == 1 { // two steps and a kill by others, all before our call arrives
			r.fence = fenceAt(holdover.StageMySQL, 8)
		}
		return nil
	}
	got, err := sw.Trip(t.Context(), "alice", "drill")
	if err != nil {
		t.Fatal(err)
	}
	if got.To.Epoch != 10 || got.From.Epoch != 8 || r.fence.Epoch != 10 || m.fence.Epoch != 10 {
		t.Errorf("got %+v; redis has %v, mysql has %v", got, r.fence, m.fence)
	}
}

func TestTripGivesUpAfterItsAttempts(t *testing.T) {
	sw, r, _ := stubs(t, fenceAt(holdover.StageJoint, 5), fenceAt(holdover.StageJoint, 5), func(c *killswitch.Config) { c.Attempts = 3 })
	r.onTrip = func(int) error { r.fence.Epoch += 10; return nil }
	if _, err := sw.Trip(t.Context(), "alice", "drill"); !errors.Is(err, holdover.ErrStale) {
		t.Errorf("error is %v", err)
	}
	if r.trips != 3 {
		t.Errorf("%d attempts, want 3", r.trips)
	}
}

// MySQL ahead of Redis and latched is half a kill: another one finishes it from
// the larger epoch.
func TestTripWithMySQLAheadTakesTheLargerEpoch(t *testing.T) {
	half := fenceAt(holdover.StageShadow, 6)
	half.Latched = true
	sw, r, m := stubs(t, fenceAt(holdover.StageMySQL, 4), half)
	got, err := sw.Trip(t.Context(), "alice", "drill")
	if err != nil {
		t.Fatal(err)
	}
	if got.From.Epoch != 6 || got.To.Epoch != 8 || r.fence.Epoch != 8 || m.fence.Epoch != 8 {
		t.Errorf("got %+v; redis has %v, mysql has %v", got, r.fence, m.fence)
	}
}

// MySQL ahead and not latched: every change but a kill writes Redis first, so
// this Redis has older data, and would sell again what MySQL has sold since.
func TestTripRefusesARedisWithOlderData(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageJoint, 4), fenceAt(holdover.StageMySQL, 5))
	got, err := sw.Trip(t.Context(), "alice", "drill")
	if !errors.Is(err, killswitch.ErrRefused) || !strings.Contains(err.Error(), "older data") || !strings.Contains(err.Error(), "--repair") {
		t.Errorf("got %+v, error is %v", got, err)
	}
	if r.fence.Epoch != 4 || m.fence.Epoch != 5 || r.trips+m.calls != 0 {
		t.Error("a refused trip wrote something")
	}
}

func TestTripAsksAgainWhenRedisAnswerIsLost(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5))
	m.journal = []holdover.Journaled{heldFact()}
	r.onTrip = func(call int) error {
		if call == 1 {
			return away(holdover.StoreRedis, true) // done, and the answer lost
		}
		return nil
	}
	got, err := sw.Trip(t.Context(), "alice", "drill")
	if err != nil {
		t.Fatal(err)
	}
	if got.To.Epoch != 7 || r.fence.Epoch != 7 || len(r.facts) != 1 || r.trips != 2 {
		t.Errorf("got %+v; redis has %v and %d facts after %d calls", got, r.fence, len(r.facts), r.trips)
	}
}

func TestAFactThatRedisRefusesDoesNotStopTheFlip(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5))
	m.journal = []holdover.Journaled{heldFact()}
	r.refuse = func(facts []holdover.Hold) error {
		if len(facts) > 0 {
			return holdover.ErrNotLoaded
		}
		return nil
	}
	got, err := sw.Trip(t.Context(), "alice", "drill")
	if err != nil {
		t.Fatal(err)
	}
	if got.Carried != 0 || got.NotCarried != 1 || got.Owed == "" || r.fence.Epoch != 7 {
		t.Errorf("got %+v; redis has %v", got, r.fence)
	}
}

func TestTwoTripsAtOnceAgree(t *testing.T) {
	sw, r, m := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5))
	other, err := killswitch.New(killswitch.Config{Pod: "p", Redis: r, MySQL: m})
	if err != nil {
		t.Fatal(err)
	}
	r.onTrip = func(call int) error {
		if call == 1 { // between our two writes somebody else trips, whole
			if _, err := other.Trip(t.Context(), "bob", "the same fire"); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	got, err := sw.Trip(t.Context(), "alice", "drill")
	if err != nil {
		t.Fatal(err)
	}
	if !got.Already || got.To.By != "bob" || r.fence.Epoch != 9 || r.fence != m.fence {
		t.Errorf("got %+v; redis has %v, mysql has %v", got, r.fence, m.fence)
	}
}

func TestTripAllGoesOnWhenOnePodFails(t *testing.T) {
	good, _, _ := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5))
	bad, r, _ := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5))
	r.err = away(holdover.StoreRedis, false)
	worse, w, _ := stubs(t, fenceAt(holdover.StageMySQL, 5), fenceAt(holdover.StageMySQL, 5))
	w.onTrip = func(int) error { panic("broken driver") }
	results := killswitch.TripAll(t.Context(), []*killswitch.Switch{bad, worse, good}, "alice", "drill")
	if results[0].Err == nil || results[1].Err == nil || results[2].Err != nil {
		t.Fatalf("errors are %v, %v, %v", results[0].Err, results[1].Err, results[2].Err)
	}
	if results[2].To.Stage != holdover.StageShadow || results[1].Pod != "p" {
		t.Errorf("results are %+v", results)
	}
	for _, r := range killswitch.RestoreAll(t.Context(), []*killswitch.Switch{bad, good}, "alice", "over")[1:] {
		if r.Err != nil || r.To.Latched {
			t.Errorf("restore gave %+v", r)
		}
	}
}
