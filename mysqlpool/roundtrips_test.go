package mysqlpool

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"holdover"
	"holdover/internal/teststack"
)

// TestRoundTrips counts the statements of each operation on its one connection:
// a slow network multiplies them. With a fence there is one more.
func TestRoundTrips(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.MaxOpenConns = 1 })
	ctx := t.Context()
	for item := int64(1); item <= 20; item++ {
		f.load(t, item, 1, 1000)
		if _, err := f.refill(ctx, shop, key{item, 1}, 500, 500); err != nil {
			t.Fatal(err)
		}
	}
	asked := func() int64 {
		var name string
		var n int64
		if err := each(ctx, f.main, func(rows *sql.Rows) error { return rows.Scan(&name, &n) }, "SHOW SESSION STATUS LIKE 'Questions'"); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := f.CompareAndSetFence(ctx, 0, fence(1, holdover.StageMySQL)); err != nil {
		t.Fatal(err)
	}
	f.load(t, 99, 1, 0)
	cart := request()
	for item := int64(1); item <= 20; item++ {
		cart.Lines = append(cart.Lines, line(item, 1, 2))
	}
	one, other := request(line(1, 1, 1)), request(line(1, 1, 1))
	for _, step := range []struct {
		name string
		want int64
		run  func() error
	}{
		{"reserve", 5, func() error { _, err := f.Vote(ctx, alone, one, false); return err }},
		{"reserve under the fence", 6, func() error {
			_, err := f.Vote(ctx, holdover.Ticket{Epoch: 1, Attempt: mine}, other, false)
			return err
		}},
		{"reserve a cart of 20 lines", 5, func() error { _, err := f.Vote(ctx, alone, cart, false); return err }},
		{"claim", 7, func() error { _, err := f.Claim(ctx, 0, 0, one.Token, false); return err }},
		{"claim a cart of 20 lines", 7, func() error { _, err := f.Claim(ctx, 0, 0, cart.Token, false); return err }},
		{"release", 5, func() error { _, err := f.End(ctx, 0, 0, other.Token, holdover.StateReleased, false); return err }},
		{"refusal", 5, func() error {
			_, err := f.Vote(ctx, alone, request(line(99, 1, 1)), false)
			if !errors.Is(err, holdover.ErrOutOfStock) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		}},
		{"look up", 1, func() error { _, err := f.Lookup(ctx, one.Token); return err }},
	} {
		before := asked()
		if err := step.run(); err != nil {
			t.Fatal(step.name, err)
		}
		if n := asked() - before - 1; n != step.want {
			t.Errorf("%s: %d round trips, want %d", step.name, n, step.want)
		}
	}
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
