package mysqlpool

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"holdover"
	"holdover/internal/teststack"
)

// TestRoundTrips counts what goes over the wire for each operation: a slow
// network multiplies it. A fence costs no round trip of its own.
func TestRoundTrips(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for item := int64(1); item <= 20; item++ {
		f.load(t, item, 1, 1000)
		if _, err := f.refill(ctx, key{shop, item, 1}, 500, 500); err != nil {
			t.Fatal(err)
		}
	}
	f.load(t, 99, 1, 0)
	if err := f.CompareAndSetFence(ctx, 0, fence(1, holdover.StageMySQL)); err != nil {
		t.Fatal(err)
	}
	s, wire := f.overCable(t, func(c *Config) { c.MaxOpenConns = 1 })
	cart := request()
	for item := int64(1); item <= 20; item++ {
		cart.Lines = append(cart.Lines, line(item, 1, 2))
	}
	one, other, third := request(line(1, 1, 1)), request(line(1, 1, 1)), request(line(1, 1, 3))
	for _, step := range []struct {
		name string
		want int64
		run  func() error
	}{
		{"reserve", 2, func() error { _, err := s.Vote(ctx, alone, one, false); return err }},
		{"reserve under the fence, journaled", 2, func() error {
			_, err := s.Vote(ctx, holdover.Ticket{Epoch: 1, Attempt: mine}, other, true)
			return err
		}},
		{"reserve a cart of 20 lines", 2, func() error { _, err := s.Vote(ctx, alone, cart, false); return err }},
		{"reserve for a partial claim", 2, func() error { _, err := s.Vote(ctx, alone, third, false); return err }},
		{"extend", 2, func() error {
			_, err := s.Extend(ctx, 0, 0, one.Token, 2*time.Hour, 24*time.Hour, false)
			return err
		}},
		{"claim", 2, func() error { _, err := s.Claim(ctx, 0, 0, one.Token, nil, false); return err }},
		{"claim a part under the fence", 2, func() error {
			_, err := s.Claim(ctx, 1, shop, third.Token, []holdover.Line{line(1, 1, 2)}, false)
			return err
		}},
		{"claim a cart of 20 lines", 2, func() error { _, err := s.Claim(ctx, 0, 0, cart.Token, nil, false); return err }},
		{"release", 2, func() error { _, err := s.End(ctx, 0, 0, other.Token, holdover.StateReleased, false); return err }},
		{"refusal", 2, func() error { // grab; the ledger's word, and whether the token is known
			_, err := s.Vote(ctx, alone, request(line(99, 1, 1)), false)
			if !errors.Is(err, holdover.ErrOutOfStock) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		}},
		{"refill", 3, func() error { // lock, count, write; the count is left out when it is known
			_, err := s.refill(ctx, key{shop, 2, 1}, 800, 1000)
			return err
		}},
		{"look up", 1, func() error { _, err := s.Lookup(ctx, one.Token); return err }},
	} {
		before := wire.asks.Load()
		if err := step.run(); err != nil {
			t.Fatal(step.name, err)
		}
		if n := wire.asks.Load() - before; n != step.want {
			t.Errorf("%s: %d round trips, want %d", step.name, n, step.want)
		}
	}
	f.conserved(t)
}

func TestIdentity(t *testing.T) {
	f := newFixture(t)
	version, mariadb, err := f.Version(t.Context())
	if err != nil || version == "" || mariadb != teststack.MariaDB() {
		t.Errorf("%q, %v, %v", version, mariadb, err)
	}
	id, err := f.ServerUUID(t.Context())
	if err != nil || id == "" {
		t.Errorf("%q, %v", id, err)
	}
	if again, _ := f.open(t).ServerUUID(t.Context()); again != id {
		t.Errorf("%q and %q on one server", id, again)
	}
	if err := f.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
