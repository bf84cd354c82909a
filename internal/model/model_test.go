package model_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"holdover"
	"holdover/internal/model"
)

const shop, item = 3, 41

func request(token holdover.Token, group, quantity int64) holdover.Request {
	return holdover.Request{Shop: shop, Token: token, TTL: time.Minute,
		Lines: []holdover.Line{{Item: item, Group: group, Quantity: quantity}}}
}

func stocked(locations model.Locations, first, second int64) *model.Model {
	m := model.New(model.Config{Locations: locations})
	m.Load(shop, map[[2]int64]int64{{item, 1}: first, {item, 2}: second})
	return m
}

func wantFree(t *testing.T, m *model.Model, group, want int64) {
	t.Helper()
	if got, loaded := m.Free(shop, item, group); got != want || !loaded {
		t.Errorf("%d units free at group %d (loaded %t), want %d", got, group, loaded, want)
	}
}

func TestLocationsAreCountedApartOrTogether(t *testing.T) {
	apart := stocked(model.ByLocation, 3, 2)
	_, err := apart.Reserve(t.Context(), request(holdover.NewToken(), 1, 4))
	var short *holdover.OutOfStockError
	if !errors.As(err, &short) || short.Short[0] != (holdover.Shortage{Item: item, Group: 1, Want: 4, Left: 3}) {
		t.Errorf("4 of 3 at a location: %v", err)
	}
	if _, loaded := apart.Free(shop, item, 9); loaded {
		t.Error("a location without a record has stock")
	}
	wantFree(t, apart, 1, 3)
	wantFree(t, apart, 2, 2)

	together := stocked(model.SumOverLocations, 3, 2)
	token := holdover.NewToken()
	if _, err := together.Reserve(t.Context(), request(token, 1, 4)); err != nil {
		t.Errorf("4 of 5 of all locations: %v", err)
	}
	wantFree(t, together, 1, 1)
	wantFree(t, together, 2, 1)
	if _, err := together.Claim(t.Context(), shop, token); err != nil {
		t.Errorf("claim: %v", err)
	}
	wantFree(t, together, 1, 1)
	if left := together.Ledger(shop, item); left != 1 {
		t.Errorf("the ledger has %d units after 4 of 5 were claimed", left)
	}
}

func TestExpiryIsAStep(t *testing.T) {
	m := stocked(model.ByLocation, 2, 0)
	first, second := holdover.NewToken(), holdover.NewToken()
	for _, token := range []holdover.Token{first, second} {
		if _, err := m.Reserve(t.Context(), request(token, 1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := m.Expire(); n != 0 {
		t.Errorf("%d holds expired before their time", n)
	}
	m.Advance(time.Minute)
	wantFree(t, m, 1, 0)
	if due := m.Due(); len(due) != 2 {
		t.Errorf("%d holds are due, want 2", len(due))
	}
	if _, err := m.Claim(t.Context(), shop, first); err != nil {
		t.Errorf("late claim: %v", err)
	}
	if _, err := m.Reserve(t.Context(), request(holdover.NewToken(), 1, 1)); err != nil {
		t.Errorf("reserve of what a due hold has: %v", err)
	}
	_, err := m.Claim(t.Context(), shop, second)
	var ended *holdover.EndedError
	if !errors.As(err, &ended) || ended.State != holdover.StateExpired {
		t.Errorf("claim of the hold that gave its unit away: %v", err)
	}
	wantFree(t, m, 1, 0)
}

func TestCloneIsIndependent(t *testing.T) {
	m := stocked(model.ByLocation, 2, 0)
	token := holdover.NewToken()
	if _, err := m.Reserve(t.Context(), request(token, 1, 1)); err != nil {
		t.Fatal(err)
	}
	c := m.Clone()
	if _, err := c.Release(t.Context(), shop, token); err != nil {
		t.Fatal(err)
	}
	c.Load(shop, map[[2]int64]int64{{item, 1}: 5})
	wantFree(t, c, 1, 7)
	wantFree(t, m, 1, 1)
	res, err := m.Lookup(t.Context(), shop, token)
	if err != nil || res.Hold.State != holdover.StateHeld {
		t.Errorf("a release in the copy reached the original: %s, %v", res.Hold.State, err)
	}
}

func TestCancelledContextChangesNothing(t *testing.T) {
	m := stocked(model.ByLocation, 2, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	token := holdover.NewToken()
	if _, err := m.Reserve(ctx, request(token, 1, 1)); !errors.Is(err, holdover.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want unavailable because of the context", err)
	}
	wantFree(t, m, 1, 2)
	if _, err := m.Lookup(t.Context(), shop, token); !errors.Is(err, holdover.ErrUnknownHold) {
		t.Errorf("look-up: %v", err)
	}
}

func TestClaimOfAPartFreesTheRest(t *testing.T) {
	m := stocked(model.ByLocation, 5, 0)
	token := holdover.NewToken()
	if _, err := m.Reserve(t.Context(), request(token, 1, 3)); err != nil {
		t.Fatal(err)
	}
	part := holdover.Line{Item: item, Group: 1, Quantity: 1}
	tooMuch := part
	tooMuch.Quantity = 4
	if _, err := m.Claim(t.Context(), shop, token, tooMuch); !errors.Is(err, holdover.ErrInvalid) {
		t.Errorf("more than the hold has: %v", err)
	}
	wantFree(t, m, 1, 2)
	for _, replayed := range []bool{false, true} {
		res, err := m.Claim(t.Context(), shop, token, part)
		if err != nil || res.Replayed != replayed || len(res.Hold.Claimed) != 1 || res.Hold.Claimed[0] != part {
			t.Errorf("claim of a part: %+v, %v", res, err)
		}
		wantFree(t, m, 1, 4)
	}
	if left := m.Ledger(shop, item); left != 4 {
		t.Errorf("the ledger has %d units after 1 of 5 was claimed", left)
	}
	if _, err := m.Claim(t.Context(), shop, token); !errors.Is(err, holdover.ErrTokenReused) {
		t.Errorf("then a claim of all: %v", err)
	}
}

func TestExtensionMovesForwardOnly(t *testing.T) {
	m := model.New(model.Config{Limits: holdover.Limits{MaxLife: time.Hour}})
	m.Load(shop, map[[2]int64]int64{{item, 1}: 1})
	token := holdover.NewToken()
	if _, err := m.Reserve(t.Context(), request(token, 1, 1)); err != nil { // for a minute
		t.Fatal(err)
	}
	granted := m.Now()
	m.Advance(time.Minute) // due, and not expired
	for _, step := range []struct {
		ttl, lives time.Duration
		again      bool
	}{{2 * time.Minute, 3 * time.Minute, false}, {time.Minute, 3 * time.Minute, true}, {2 * time.Hour, time.Hour, false}, {3 * time.Hour, time.Hour, true}} {
		res, err := m.Extend(t.Context(), shop, token, step.ttl)
		if err != nil || res.Replayed != step.again || res.Hold.ExpiresAt.Sub(granted) != step.lives {
			t.Errorf("by %s: %+v, %v; want %s from the grant", step.ttl, res, err, step.lives)
		}
	}
	if n := m.Expire(); n != 0 {
		t.Errorf("%d holds expired before their time", n)
	}
	if _, err := m.Release(t.Context(), shop, token); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Extend(t.Context(), shop, token, time.Minute); !errors.Is(err, holdover.ErrEnded) {
		t.Errorf("of a released hold: %v", err)
	}
}
