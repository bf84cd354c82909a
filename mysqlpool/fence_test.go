package mysqlpool

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"holdover"
)

func TestFence(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	if _, err := f.Fence(ctx); !errors.Is(err, holdover.ErrNoFence) {
		t.Fatalf("no fence: %v", err)
	}
	f.load(t, 1, 1, 5)
	if _, err := f.Vote(ctx, holdover.Ticket{Epoch: 1, Attempt: mine}, request(line(1, 1, 1)), false); !errors.Is(err, holdover.ErrNoFence) {
		t.Fatalf("a vote without a fence: %v", err)
	}
	first := fence(1, holdover.StageRedis)
	first.Latched = true
	if err := f.CompareAndSetFence(ctx, 0, first); err != nil {
		t.Fatal(err)
	}
	got, err := f.Fence(ctx)
	if err != nil || got.At.IsZero() {
		t.Fatalf("%+v, %v", got, err)
	}
	got.At = time.Time{}
	if got != first {
		t.Fatalf("%+v, want %+v", got, first)
	}
	var stale *holdover.StaleError
	if err := f.CompareAndSetFence(ctx, 0, fence(2, holdover.StageShadow)); !errors.As(err, &stale) || stale.Fence.Epoch != 1 {
		t.Fatalf("from no fence: %v", err)
	}
	if err := f.CompareAndSetFence(ctx, 1, fence(1, holdover.StageShadow)); !errors.Is(err, holdover.ErrInvalid) {
		t.Fatalf("not larger: %v", err)
	}
	if err := f.CompareAndSetFence(ctx, 1, fence(2, holdover.StageShadow)); err != nil {
		t.Fatal(err)
	}
	for _, e := range []holdover.Epoch{1, 2} {
		if after, err := f.RaiseFence(ctx, fence(e, holdover.StageMySQL)); err != nil || after.Epoch != 2 || after.Stage != holdover.StageShadow {
			t.Fatalf("raised to a smaller or equal epoch: %+v, %v", after, err)
		}
	}
	if after, err := f.RaiseFence(ctx, fence(9, holdover.StageJoint)); err != nil || after.Epoch != 9 || after.Stage != holdover.StageJoint {
		t.Fatalf("%+v, %v", after, err)
	}
	history, err := f.FenceHistory(ctx, 10)
	if err != nil || len(history) != 3 || history[0].Epoch != 9 || history[2].Epoch != 1 {
		t.Fatalf("%+v, %v", history, err)
	}
}

// TestFenceRace: of many writers of the first fence, and of each next one, one wins.
func TestFenceRace(t *testing.T) {
	f := newFixture(t)
	for from := holdover.Epoch(0); from < 3; from++ {
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for range 8 {
			wg.Go(func() {
				err := f.CompareAndSetFence(t.Context(), from, fence(from+1, holdover.StageShadow))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case !errors.Is(err, holdover.ErrStale):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Fatalf("from %d: %d won", from, won)
		}
	}
}

// TestTrip: one transaction raises the fence and returns the journal with the
// holds as they are now.
func TestTrip(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for item := int64(1); item <= 4; item++ {
		f.load(t, item, 1, 10)
	}
	if err := f.CompareAndSetFence(ctx, 0, fence(epoch, holdover.StageMySQL)); err != nil {
		t.Fatal(err)
	}
	ticket := holdover.Ticket{Epoch: epoch, Attempt: mine}
	held := request(line(1, 1, 1), line(2, 1, 2), line(3, 1, 1))
	sold, back, given, quiet := request(line(2, 1, 1)), request(line(1, 1, 1)), request(line(4, 1, 1)), request(line(4, 1, 1))
	for _, r := range []holdover.Request{held, sold, back, given} {
		if _, err := f.Vote(ctx, ticket, r, true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Vote(ctx, ticket, quiet, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Claim(ctx, epoch, 0, sold.Token, nil, true); err != nil {
		t.Fatal(err)
	}
	if _, err := f.End(ctx, epoch, 0, back.Token, holdover.StateReleased, false); err != nil {
		t.Fatal(err)
	}
	// What the journal names is carried into Redis: it can't be taken away here only.
	if ok, err := f.GiveBack(ctx, given.Token, mine); err != nil || ok {
		t.Fatal(ok, err)
	}
	kill := fence(epoch+2, holdover.StageShadow)
	kill.Latched = true
	facts, err := f.TripFence(ctx, kill)
	if err != nil {
		t.Fatal(err)
	}
	want := map[holdover.Token]holdover.State{
		held.Token: holdover.StateHeld, sold.Token: holdover.StateClaimed, back.Token: holdover.StateReleased, given.Token: holdover.StateHeld,
	}
	if len(facts) != len(want) {
		t.Fatalf("%d facts: %+v", len(facts), facts)
	}
	for _, j := range facts {
		if j.Hold.State != want[j.Hold.Token] || j.Version == 0 || j.Since.IsZero() {
			t.Errorf("%+v, want %s", j, want[j.Hold.Token])
		}
		if j.Hold.Token == held.Token && !holdover.SameLines(j.Hold.Lines, held.Lines) {
			t.Errorf("lines %v", j.Hold.Lines)
		}
	}
	if got, err := f.Fence(ctx); err != nil || got.Epoch != epoch+2 || !got.Latched {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := f.Vote(ctx, ticket, request(line(1, 1, 1)), false); !errors.Is(err, holdover.ErrStale) {
		t.Fatalf("after the trip: %v", err)
	}
	// A second kill, with an older epoch: the facts again, the fence stays.
	if again, err := f.TripFence(ctx, kill); err != nil || len(again) != len(want) {
		t.Fatalf("%d, %v", len(again), err)
	}
	if got, _ := f.Fence(ctx); got.Epoch != epoch+2 {
		t.Fatalf("%+v", got)
	}
}

// TestTripBound: a journal that a kill can't carry is an error, and the fence stays.
func TestTripBound(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.JournalMax = 2 })
	ctx := t.Context()
	f.load(t, 1, 1, 10)
	if err := f.CompareAndSetFence(ctx, 0, fence(1, holdover.StageMySQL)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := f.Vote(ctx, holdover.Ticket{Epoch: 1, Attempt: mine}, request(line(1, 1, 1)), true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.TripFence(ctx, fence(3, holdover.StageShadow)); !errors.Is(err, holdover.ErrOverloaded) {
		t.Fatalf("%v", err)
	}
	if got, err := f.Fence(ctx); err != nil || got.Epoch != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
}

// TestTripWithMainPoolBusy: all connections of the main pool wait, and the kill
// goes through on its own.
func TestTripWithMainPoolBusy(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxOpenConns = 1 })
	ctx := t.Context()
	if err := f.CompareAndSetFence(ctx, 0, fence(1, holdover.StageMySQL)); err != nil {
		t.Fatal(err)
	}
	busy, err := f.main.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if _, err := f.TripFence(ctx, fence(3, holdover.StageShadow)); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := f.Lookup(short, holdover.NewToken()); !errors.Is(err, holdover.ErrUnavailable) {
		t.Fatalf("the main pool was not busy, the test shows nothing: %v", err)
	}
}

// TestTripWaitsForDeciders: a deciding transaction holds the fence to its end,
// so its journal row is never missed by a kill.
func TestTripWaitsForDeciders(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	if err := f.CompareAndSetFence(ctx, 0, fence(1, holdover.StageMySQL)); err != nil {
		t.Fatal(err)
	}
	inside, finish := make(chan struct{}), make(chan struct{})
	token := holdover.NewToken()
	var wg sync.WaitGroup
	wg.Go(func() {
		err := f.transact(ctx, f.main, "test", token, func(ctx context.Context, tx *tx) error {
			if err := tx.checkFence(ctx, 1); err != nil {
				return err
			}
			close(inside)
			<-finish
			return tx.journal(ctx, token)
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-inside
	tripped := make(chan []holdover.Journaled, 1)
	wg.Go(func() {
		facts, err := f.TripFence(ctx, fence(3, holdover.StageShadow))
		if err != nil {
			t.Error(err)
		}
		tripped <- facts
	})
	// The kill is seen to wait before the decider goes on.
	eventually(t, "the kill waits for the fence", func() bool {
		return f.waitsForLock(t) || len(tripped) > 0
	})
	if len(tripped) > 0 {
		t.Error("the kill did not wait")
	}
	close(finish)
	if facts := <-tripped; len(facts) != 1 || facts[0].Hold.Token != token {
		t.Errorf("the kill missed a fact: %+v", facts)
	}
	wg.Wait()
}

func TestJournal(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.load(t, 1, 1, 10)
	if n, oldest, err := f.JournalSize(ctx); n != 0 || oldest != 0 || err != nil {
		t.Fatal(n, oldest, err)
	}
	a := request(line(1, 1, 1))
	if _, err := f.Vote(ctx, alone, a, true); err != nil {
		t.Fatal(err)
	}
	first, err := f.Journal(ctx, 10)
	if err != nil || len(first) != 1 || first[0].Hold.Token != a.Token {
		t.Fatalf("%+v, %v", first, err)
	}
	// A newer fact: the old version clears nothing.
	if _, err := f.Claim(ctx, 0, 0, a.Token, nil, true); err != nil {
		t.Fatal(err)
	}
	if err := f.ClearJournal(ctx, a.Token, first[0].Version); err != nil {
		t.Fatal(err)
	}
	second, err := f.Journal(ctx, 10)
	if err != nil || len(second) != 1 || second[0].Hold.State != holdover.StateClaimed {
		t.Fatalf("%+v, %v", second, err)
	}
	if !second[0].Since.Equal(first[0].Since) {
		t.Error("a newer fact made the row younger")
	}
	if n, oldest, err := f.JournalSize(ctx); n != 1 || oldest < 0 || err != nil {
		t.Fatal(n, oldest, err)
	}
	if err := f.ClearJournal(ctx, a.Token, second[0].Version); err != nil {
		t.Fatal(err)
	}
	// Written again after it was cleared: a late drain with any old version clears nothing.
	if err := f.transact(ctx, f.main, "test", a.Token, func(ctx context.Context, tx *tx) error { return tx.journal(ctx, a.Token) }); err != nil {
		t.Fatal(err)
	}
	for _, old := range []uint64{first[0].Version, second[0].Version} {
		if err := f.ClearJournal(ctx, a.Token, old); err != nil {
			t.Fatal(err)
		}
	}
	if n, _, err := f.JournalSize(ctx); n != 1 || err != nil {
		t.Fatal("a late drain deleted a newer fact", n, err)
	}
	// Oldest first, and no more than asked for.
	for range 3 {
		if _, err := f.Vote(ctx, alone, request(line(1, 1, 1)), true); err != nil {
			t.Fatal(err)
		}
	}
	two, err := f.Journal(ctx, 2)
	if err != nil || len(two) != 2 || two[0].Hold.Token != a.Token && two[0].Since.Equal(two[1].Since) == false {
		t.Fatalf("%+v, %v", two, err)
	}
}
