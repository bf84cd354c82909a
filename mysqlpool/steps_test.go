package mysqlpool

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"holdover"
)

// state names what a token is in MySQL before a step; tent and firm are held.
type state string

const (
	none     state = "none"
	tent     state = "tentative"
	firm     state = "firm"
	claimed  state = "claimed"
	ended    state = "released"
	recorded state = "recorded" // ended without ever having been held here
)

const (
	epoch   holdover.Epoch   = 4
	mine    holdover.Attempt = 11
	another holdover.Attempt = 12
)

// prepare brings the token into a state. The item has five units, the hold two.
func prepare(t *testing.T, f *fixture, r holdover.Request, s state) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	vote := func() {
		_, err := f.Vote(ctx, holdover.Ticket{Epoch: epoch, Attempt: mine}, r, false)
		must(err)
	}
	switch s {
	case none:
	case tent:
		vote()
	case firm:
		vote()
		_, err := f.Apply(ctx, fact(r, holdover.StateHeld))
		must(err)
	case claimed:
		vote()
		_, err := f.Claim(ctx, epoch, 0, r.Token, nil, false)
		must(err)
	case ended:
		vote()
		_, err := f.End(ctx, epoch, 0, r.Token, holdover.StateReleased, false)
		must(err)
	case recorded:
		_, err := f.End(ctx, epoch, 0, r.Token, holdover.StateReleased, false)
		must(err)
	}
}

func fact(r holdover.Request, s holdover.State) holdover.Hold {
	return holdover.Hold{
		Token: r.Token, Shop: r.Shop, Lines: r.Lines, State: s,
		ExpiresAt: time.Now().UTC().Add(time.Hour).Truncate(time.Millisecond), GrantedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
}

// after is what a step must leave: state and firmness of the token, whether
// the journal names it, and how the step answered.
type after struct {
	state   state
	journal bool
	err     error // sentinel
	undone  bool  // GiveBack's answer
}

// TestStates is the table of the protocol's model: every step at MySQL in every
// state of its token.
func TestStates(t *testing.T) {
	f := newFixture(t)
	if err := f.CompareAndSetFence(t.Context(), 0, fence(epoch, holdover.StageMySQL)); err != nil {
		t.Fatal(err)
	}
	hold := func(h holdover.Hold, err error) (bool, error) { return false, err }
	steps := []struct {
		name   string
		epoch  bool // refused under another epoch
		run    func(ctx context.Context, e holdover.Epoch, r holdover.Request) (bool, error)
		expect map[state]after
	}{
		{"vote", true, func(ctx context.Context, e holdover.Epoch, r holdover.Request) (bool, error) {
			_, err := f.Vote(ctx, holdover.Ticket{Epoch: e, Attempt: mine}, r, false)
			return false, err
		}, map[state]after{
			none: {state: tent}, tent: {state: tent}, firm: {state: firm},
			claimed: {state: claimed, err: holdover.ErrAlreadyClaimed}, ended: {state: ended, err: holdover.ErrEnded}, recorded: {state: recorded, err: holdover.ErrEnded},
		}},
		{"vote of another attempt, journaled", true, func(ctx context.Context, e holdover.Epoch, r holdover.Request) (bool, error) {
			_, err := f.Vote(ctx, holdover.Ticket{Epoch: e, Attempt: another}, r, true)
			return false, err
		}, map[state]after{
			none: {state: firm, journal: true}, tent: {state: firm, journal: true}, firm: {state: firm, journal: true},
			claimed: {state: claimed, err: holdover.ErrAlreadyClaimed}, ended: {state: ended, err: holdover.ErrEnded}, recorded: {state: recorded, err: holdover.ErrEnded},
		}},
		{"claim", true, func(ctx context.Context, e holdover.Epoch, r holdover.Request) (bool, error) {
			return hold(f.Claim(ctx, e, 0, r.Token, nil, false))
		}, map[state]after{
			none: {state: none, err: holdover.ErrUnknownHold}, tent: {state: claimed}, firm: {state: claimed},
			claimed: {state: claimed}, ended: {state: ended, err: holdover.ErrEnded}, recorded: {state: recorded, err: holdover.ErrEnded},
		}},
		{"claim, journaled", true, func(ctx context.Context, e holdover.Epoch, r holdover.Request) (bool, error) {
			return hold(f.Claim(ctx, e, 0, r.Token, nil, true))
		}, map[state]after{
			none: {state: none, err: holdover.ErrUnknownHold}, tent: {state: claimed, journal: true}, firm: {state: claimed, journal: true},
			claimed: {state: claimed}, ended: {state: ended, err: holdover.ErrEnded}, recorded: {state: recorded, err: holdover.ErrEnded},
		}},
		{"end", true, func(ctx context.Context, e holdover.Epoch, r holdover.Request) (bool, error) {
			return hold(f.End(ctx, e, 0, r.Token, holdover.StateReleased, false))
		}, map[state]after{
			none: {state: recorded}, tent: {state: ended}, firm: {state: ended},
			claimed: {state: claimed, err: holdover.ErrAlreadyClaimed}, ended: {state: ended}, recorded: {state: recorded},
		}},
		{"end, journaled", true, func(ctx context.Context, e holdover.Epoch, r holdover.Request) (bool, error) {
			return hold(f.End(ctx, e, 0, r.Token, holdover.StateReleased, true))
		}, map[state]after{
			none: {state: recorded, journal: true}, tent: {state: ended, journal: true}, firm: {state: ended, journal: true},
			claimed: {state: claimed, err: holdover.ErrAlreadyClaimed}, ended: {state: ended, journal: true}, recorded: {state: recorded, journal: true},
		}},
		{"journal a grant", true, func(ctx context.Context, e holdover.Epoch, r holdover.Request) (bool, error) {
			return false, f.JournalGrant(ctx, e, r.Token)
		}, map[state]after{
			none: {state: none, err: holdover.ErrUnknownHold}, tent: {state: firm, journal: true}, firm: {state: firm, journal: true},
			claimed: {state: claimed, err: holdover.ErrAlreadyClaimed}, ended: {state: ended, err: holdover.ErrEnded}, recorded: {state: recorded, err: holdover.ErrEnded},
		}},
		{"apply held", false, func(ctx context.Context, _ holdover.Epoch, r holdover.Request) (bool, error) {
			return hold(f.Apply(ctx, fact(r, holdover.StateHeld)))
		}, map[state]after{
			none: {state: firm}, tent: {state: firm}, firm: {state: firm},
			claimed: {state: claimed}, ended: {state: ended}, recorded: {state: recorded},
		}},
		{"apply claimed", false, func(ctx context.Context, _ holdover.Epoch, r holdover.Request) (bool, error) {
			return hold(f.Apply(ctx, fact(r, holdover.StateClaimed)))
		}, map[state]after{
			none: {state: claimed}, tent: {state: claimed}, firm: {state: claimed},
			claimed: {state: claimed}, ended: {state: ended}, recorded: {state: recorded},
		}},
		{"apply released", false, func(ctx context.Context, _ holdover.Epoch, r holdover.Request) (bool, error) {
			return hold(f.Apply(ctx, fact(r, holdover.StateReleased)))
		}, map[state]after{
			none: {state: recorded}, tent: {state: ended}, firm: {state: ended},
			claimed: {state: claimed}, ended: {state: ended}, recorded: {state: recorded},
		}},
		{"give back", false, func(ctx context.Context, _ holdover.Epoch, r holdover.Request) (bool, error) {
			return f.GiveBack(ctx, r.Token, mine)
		}, map[state]after{
			none: {state: none}, tent: {state: none, undone: true}, firm: {state: firm},
			claimed: {state: claimed}, ended: {state: ended}, recorded: {state: recorded},
		}},
		{"give back of another attempt", false, func(ctx context.Context, _ holdover.Epoch, r holdover.Request) (bool, error) {
			return f.GiveBack(ctx, r.Token, another)
		}, map[state]after{
			none: {state: none}, tent: {state: tent}, firm: {state: firm},
			claimed: {state: claimed}, ended: {state: ended}, recorded: {state: recorded},
		}},
	}
	var item int64
	for _, step := range steps {
		for _, from := range []state{none, tent, firm, claimed, ended, recorded} {
			want := step.expect[from]
			t.Run(fmt.Sprintf("%s/%s", step.name, from), func(t *testing.T) {
				item++
				f.load(t, item, 1, 5)
				r := request(line(item, 1, 2))
				prepare(t, f, r, from)
				before := f.stock(t, item, 1)

				_, err := step.run(t.Context(), epoch+1, r)
				if step.epoch {
					var stale *holdover.StaleError
					if !errors.As(err, &stale) || stale.Asked != epoch+1 || stale.Fence.Epoch != epoch || stale.Fence.Stage != holdover.StageMySQL {
						t.Fatalf("under another epoch: %v, want a StaleError with the fence", err)
					}
					if got := tokenState(t, f, r.Token); got != from {
						t.Fatalf("a stale step made %s of %s", got, from)
					}
					if now := f.stock(t, item, 1); now != before {
						t.Fatalf("a stale step changed the stock: %+v to %+v", before, now)
					}
					if n := f.number(t, "SELECT COUNT(*) FROM holdover_unmirrored WHERE token=?", r.Token[:]); n != 0 {
						t.Fatal("a stale step wrote the journal")
					}
					undone, err := step.run(t.Context(), epoch, r)
					check(t, f, r, want, undone, err)
					return
				}
				// A fact is not refused for its epoch: the first run did it; the second must change nothing.
				again, againErr := step.run(t.Context(), epoch+1, r)
				if again || !errors.Is(againErr, want.err) {
					t.Fatalf("repeated: %v, %v", again, againErr)
				}
				check(t, f, r, want, want.undone, err)
			})
		}
	}
	f.conserved(t)
}

func tokenState(t *testing.T, f *fixture, token holdover.Token) state {
	t.Helper()
	h, err := f.Lookup(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case h.State == holdover.StateNone:
		return none
	case h.State == holdover.StateHeld && h.Firm:
		return firm
	case h.State == holdover.StateHeld:
		return tent
	case h.State == holdover.StateClaimed:
		return claimed
	case len(h.Lines) == 0:
		return recorded
	}
	return ended
}

func check(t *testing.T, f *fixture, r holdover.Request, want after, undone bool, err error) {
	t.Helper()
	if want.err == nil && err != nil || !errors.Is(err, want.err) {
		t.Errorf("error %v, want %v", err, want.err)
	}
	if undone != want.undone {
		t.Errorf("undone: %v, want %v", undone, want.undone)
	}
	if got := tokenState(t, f, r.Token); got != want.state {
		t.Errorf("left as %s, want %s", got, want.state)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM holdover_unmirrored WHERE token=?", r.Token[:]); (n == 1) != want.journal {
		t.Errorf("%d journal rows, want %v", n, want.journal)
	}
	st := f.stock(t, r.Lines[0].Item, 1)
	available, held, entries := int64(5), int64(0), int64(0)
	switch want.state {
	case tent, firm:
		held = 2
	case claimed:
		available, entries = 3, 1
	}
	if st.Available != available || st.Held != held || st.Issued != st.Pooled+st.Held {
		t.Errorf("stock %+v, want %d available and %d held", st, available, held)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM ledger_entries WHERE token=?", r.Token[:]); n != entries {
		t.Errorf("%d ledger entries, want %d", n, entries)
	}
}

// TestExpiry: a hold past its expiry lives until the expiry step runs; one that
// is not due is left alone.
func TestExpiry(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 5)
	h := f.reserveOne(t, line(1, 1, 2))
	after, err := f.End(t.Context(), 0, 0, h.Token, holdover.StateExpired, false)
	if err != nil || after.State != holdover.StateHeld {
		t.Fatalf("not due, but %v, %v", after.State, err)
	}
	f.exec(t, "UPDATE reserved_quantities SET expires_at = UTC_TIMESTAMP(3) - INTERVAL 1 SECOND WHERE token=?", h.Token[:])
	for _, limits := range [][]int64{nil, {1}, {1, 99}} {
		due, err := f.Due(t.Context(), 0, shop, limits, 10)
		if err != nil || len(due) != 1 || due[0].Token != h.Token || !holdover.SameLines(due[0].Lines, h.Lines) {
			t.Fatalf("due: %+v, %v", due, err)
		}
	}
	if due, err := f.Due(t.Context(), time.Hour, 0, nil, 10); err != nil || len(due) != 0 {
		t.Fatalf("due within the grace: %+v, %v", due, err)
	}
	if due, err := f.Due(t.Context(), 0, shop, []int64{2}, 10); err != nil || len(due) != 0 {
		t.Fatalf("due of another item: %+v, %v", due, err)
	}
	after, err = f.End(t.Context(), 0, 0, h.Token, holdover.StateExpired, false)
	if err != nil || after.State != holdover.StateExpired {
		t.Fatalf("due, but %v, %v", after.State, err)
	}
	if _, err := f.Claim(t.Context(), 0, 0, h.Token, nil, false); !errors.Is(err, holdover.ErrEnded) {
		t.Fatalf("claim after the expiry: %v", err)
	}
	f.conserved(t)
}

// TestGiveBackWindow: an old tentative grant is firm, and stays.
func TestGiveBackWindow(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 5)
	r := request(line(1, 1, 2))
	g, err := f.Vote(t.Context(), holdover.Ticket{Attempt: mine}, r, false)
	if err != nil || g.Hold.Firm {
		t.Fatalf("%+v, %v", g, err)
	}
	f.exec(t, "UPDATE reserved_quantities SET granted_at = granted_at - INTERVAL 11 SECOND WHERE token=?", r.Token[:])
	if h, err := f.Lookup(t.Context(), r.Token); err != nil || !h.Firm {
		t.Fatalf("past the window: %+v, %v", h, err)
	}
	if undone, err := f.GiveBack(t.Context(), r.Token, mine); undone || err != nil {
		t.Fatalf("given back after the window: %v, %v", undone, err)
	}
}

// TestFactKeepsTimes: times of the granting store are copied, never recomputed.
func TestFactKeepsTimes(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 5)
	h := fact(request(line(1, 1, 2)), holdover.StateHeld)
	h.ExpiresAt = time.Date(2001, 2, 3, 4, 5, 6, 789e6, time.UTC)
	h.GrantedAt = h.ExpiresAt.Add(-time.Minute)
	if _, err := f.Apply(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	got, err := f.Lookup(t.Context(), h.Token)
	if err != nil || !got.ExpiresAt.Equal(h.ExpiresAt) || !got.GrantedAt.Equal(h.GrantedAt) || !got.Firm {
		t.Fatalf("%+v, %v", got, err)
	}
}

// TestDebt: a held fact that finds no unit is refused, and leaves nothing.
func TestDebt(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 1)
	h := fact(request(line(1, 1, 2)), holdover.StateHeld)
	var short *holdover.OutOfStockError
	if _, err := f.Apply(t.Context(), h); !errors.As(err, &short) || short.Short[0].Left != 1 || short.Short[0].Want != 2 {
		t.Fatalf("%v", err)
	}
	if got, _ := f.Lookup(t.Context(), h.Token); got.State != holdover.StateNone {
		t.Fatal("a debt left a record")
	}
}

// TestChangedWhileWaiting: a step that read a hold and then waited for its
// item's lock does nothing to what the hold has become in the meantime.
func TestChangedWhileWaiting(t *testing.T) {
	f := newFixture(t)
	f.load(t, 1, 1, 10)
	ctx := t.Context()
	for _, test := range []struct {
		name  string
		step  func(holdover.Request) (string, error)
		while func(holdover.Request) // what happens to the hold, without its item's lock
		want  string
	}{
		{"firm before it was given back", func(r holdover.Request) (string, error) {
			undone, err := f.GiveBack(ctx, r.Token, mine)
			return fmt.Sprint(undone), err
		}, func(r holdover.Request) {
			if _, err := f.Apply(ctx, fact(r, holdover.StateHeld)); err != nil {
				t.Error(err)
			}
		}, "false held"},
		{"another hold with its token before the claim", func(r holdover.Request) (string, error) {
			h, err := f.Claim(ctx, 0, 0, r.Token, nil, false)
			return fmt.Sprint(h.Attempt), err
		}, func(r holdover.Request) {
			f.exec(t, "UPDATE reserved_quantities SET attempt=99 WHERE token=?", r.Token[:])
		}, "99 claimed"},
		{"released before the claim", func(r holdover.Request) (string, error) {
			_, err := f.Claim(ctx, 0, 0, r.Token, nil, false)
			if errors.Is(err, holdover.ErrEnded) {
				return "ended", nil
			}
			return "", err
		}, func(r holdover.Request) {
			f.exec(t, "UPDATE reserved_quantities SET state='released', ended_at=UTC_TIMESTAMP(3) WHERE token=?", r.Token[:])
		}, "ended released"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(line(1, 1, 1))
			if _, err := f.Vote(ctx, holdover.Ticket{Attempt: mine}, r, false); err != nil {
				t.Fatal(err)
			}
			blocker := begin(t, f.db)
			if _, err := blocker.ExecContext(ctx, "SELECT * FROM pool_state FOR UPDATE"); err != nil {
				t.Fatal(err)
			}
			type answer struct {
				text string
				err  error
			}
			answered := make(chan answer, 1)
			go func() { text, err := test.step(r); answered <- answer{text, err} }()
			eventually(t, "the step waits", func() bool {
				return f.waitsForLock(t)
			})
			test.while(r)
			if err := blocker.Rollback(); err != nil {
				t.Fatal(err)
			}
			got := <-answered
			h, err := f.Lookup(ctx, r.Token)
			if err != nil || got.err != nil || got.text+" "+h.State.String() != test.want {
				t.Errorf("%q, %v, then %s, %v; want %q", got.text, got.err, h.State, err, test.want)
			}
		})
	}
}
