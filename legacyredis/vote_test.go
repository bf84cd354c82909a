package legacyredis_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
	"holdover/legacyredis"
)

func TestHundredBuyersOfTenUnits(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 10})
	var granted, refused atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, err := r.Vote(t.Context(), holdover.Ticket{}, request(holdover.NewToken(), line(item, 1)))
			switch {
			case err == nil:
				granted.Add(1)
			case errors.Is(err, holdover.ErrOutOfStock):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if granted.Load() != 10 || refused.Load() != 90 {
		t.Errorf("%d granted and %d refused, want 10 and 90", granted.Load(), refused.Load())
	}
	r.wantCounter(item, 0)
}

// Pitfall 36: with one unit left, of two buyers of two units and one of one unit
// nobody is refused because of another's attempt.
func TestRefusedVoteLeavesNoTrace(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 1, item2: 5})
	token := holdover.NewToken()
	r.unchanged("a refused cart", func() {
		_, err := r.Vote(t.Context(), holdover.Ticket{}, request(token, line(item, 2), line(item2, 3)))
		var short *holdover.OutOfStockError
		if !errors.As(err, &short) {
			t.Fatalf("error is %v, want out of stock", err)
		}
		want := []holdover.Shortage{{Item: item, Group: group, Want: 2, Left: 1}}
		if short.Shop != shop || short.Store != holdover.StoreRedis || !slices.Equal(short.Short, want) {
			t.Errorf("refusal is %+v, want %+v", short, want)
		}
	})
	// It is not remembered: the same token asks anew.
	r.load(map[int64]int64{})
	must[int](t)(r.Load(t.Context(), shop, map[int64]int64{item: 2}, true))
	g := must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{}, request(token, line(item, 2), line(item2, 3))))
	if g.Replayed || !slices.Equal(g.Remaining, []int64{0, 2}) {
		t.Errorf("grant is %+v, want a new one with 0 and 2 left", g)
	}
}

// Two locations of an item draw on one counter: they are added up before the
// comparison, and what is left is told line by line.
func TestLocationsShareACounter(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 7})
	here, there := holdover.Line{Item: item, Group: 1, Quantity: 5}, holdover.Line{Item: item, Group: 2, Quantity: 5}
	_, err := r.Vote(t.Context(), holdover.Ticket{}, request(holdover.NewToken(), here, there))
	var short *holdover.OutOfStockError
	if !errors.As(err, &short) {
		t.Fatalf("error is %v, want out of stock", err)
	}
	if want := []holdover.Shortage{{Item: item, Group: 2, Want: 5, Left: 2}}; !slices.Equal(short.Short, want) {
		t.Errorf("short is %+v, want %+v", short.Short, want)
	}
	r.wantCounter(item, 7)
	there.Quantity = 2
	g := must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{}, request(holdover.NewToken(), here, there)))
	if !slices.Equal(g.Remaining, []int64{0, 0}) || !slices.Equal(g.Hold.Lines, []holdover.Line{here, there}) {
		t.Errorf("grant is %+v", g)
	}
	must[holdover.Hold](t)(r.End(t.Context(), 0, 0, g.Hold.Token, holdover.StateReleased))
	r.wantCounter(item, 7)
}

// A lost reply is answered by the same call once more; so is a script that runs
// twice because its first run was late.
func TestConcurrentDuplicatesTakeOnce(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 10})
	token := holdover.NewToken()
	var first atomic.Int64
	var wg sync.WaitGroup
	for attempt := range 16 {
		wg.Go(func() {
			g, err := r.Vote(t.Context(), holdover.Ticket{Attempt: holdover.Attempt(attempt + 1)}, request(token, line(item, 4)))
			if err != nil {
				t.Error(err)
			}
			if !g.Replayed {
				first.Add(1)
			}
		})
	}
	wg.Wait()
	if first.Load() != 1 {
		t.Errorf("%d calls took units, want one", first.Load())
	}
	r.wantCounter(item, 6)
}

// Rule 11: an overbooked counter confirms nothing; look-ups and ends go on.
func TestOverbookedReplaysNoVote(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 3})
	token, other := holdover.NewToken(), holdover.NewToken()
	must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{Attempt: 1}, request(token, line(item, 3))))
	c := must[legacyredis.Copied](t)(r.Copy(t.Context(), 0, fact(other, holdover.StateHeld, line(item, 2))))
	if c.WouldGrant || c.Replayed || !slices.Equal(c.Remaining, []int64{-2}) {
		t.Errorf("copy is %+v, want one that a vote would have refused, and -2 left", c)
	}
	again := must[legacyredis.Copied](t)(r.Copy(t.Context(), 0, fact(other, holdover.StateHeld, line(item, 2))))
	if again.WouldGrant || !again.Replayed {
		t.Errorf("the repeated copy is %+v, want the same answer, replayed", again)
	}
	_, err := r.Vote(t.Context(), holdover.Ticket{Attempt: 2}, request(token, line(item, 3)))
	wantErr(t, "replay while overbooked", err, holdover.ErrTryAgain)
	if h := must[holdover.Hold](t)(r.Lookup(t.Context(), token)); h.State != holdover.StateHeld || h.Firm {
		t.Errorf("hold is %+v, want a tentative one: the replay confirmed nothing", h)
	}
	must[holdover.Hold](t)(r.End(t.Context(), 0, 0, other, holdover.StateReleased))
	if g := must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{Attempt: 2}, request(token, line(item, 3)))); !g.Replayed || !g.Hold.Firm {
		t.Errorf("grant is %+v, want a replay that makes the hold firm", g)
	}
}

func TestTokenReused(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 10, item2: 10})
	must[int](t)(r.Load(t.Context(), shop+1, map[int64]int64{item: 10}, false))
	token := holdover.NewToken()
	must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{}, request(token, line(item, 1))))
	elsewhere := request(token, line(item, 1))
	elsewhere.Shop++
	r.unchanged("a reused token", func() {
		for _, again := range []holdover.Request{
			request(token, line(item, 2)), request(token, line(item2, 1)),
			request(token, holdover.Line{Item: item, Group: group + 1, Quantity: 1}),
			request(token, line(item, 1), line(item2, 1)), elsewhere,
		} {
			_, err := r.Vote(t.Context(), holdover.Ticket{}, again)
			wantErr(t, "vote", err, holdover.ErrTokenReused)
			_, err = r.Copy(t.Context(), 0, holdover.Hold{Token: token, Shop: again.Shop, Lines: again.Lines, ExpiresAt: time.UnixMilli(5)})
			wantErr(t, "copy", err, holdover.ErrTokenReused)
			_, err = r.Apply(t.Context(), holdover.Hold{Token: token, Shop: again.Shop, Lines: again.Lines, State: holdover.StateClaimed})
			wantErr(t, "fact", err, holdover.ErrTokenReused)
		}
	})
}

// Pitfall 49: an expiry is copied to the millisecond, and a vote's is Redis's own.
func TestExpiry(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 10})
	want := fact(holdover.NewToken(), holdover.StateHeld, line(item, 1))
	c := must[legacyredis.Copied](t)(r.Copy(t.Context(), 0, want))
	if !c.Hold.ExpiresAt.Equal(want.ExpiresAt) || !c.Hold.GrantedAt.Equal(want.GrantedAt) || c.Hold.Attempt != want.Attempt {
		t.Errorf("copy is %+v, want the times and attempt of %+v", c.Hold, want)
	}
	before := r.redisNow()
	g := must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{}, request(holdover.NewToken(), line(item, 1))))
	after := r.redisNow()
	granted := g.Hold.GrantedAt.UnixMilli()
	if granted < before || granted > after || g.Hold.ExpiresAt.Sub(g.Hold.GrantedAt) != time.Hour {
		t.Errorf("granted at %d (Redis's clock went from %d to %d), for %s", granted, before, after, g.Hold.ExpiresAt.Sub(g.Hold.GrantedAt))
	}
	if h := must[holdover.Hold](t)(r.Lookup(t.Context(), g.Hold.Token)); !h.ExpiresAt.Equal(g.Hold.ExpiresAt) || !h.GrantedAt.Equal(g.Hold.GrantedAt) {
		t.Errorf("looked up %+v, granted %+v", h, g.Hold)
	}
}

// A tentative grant older than the window counts as firm, by Redis's clock.
func TestGiveBackWindow(t *testing.T) {
	r := newRig(t, func(c *legacyredis.Config) { c.OpTimeout, c.GiveBackWindow = 2*time.Second, 2100*time.Millisecond })
	r.load(map[int64]int64{item: 10})
	young, old := holdover.NewToken(), holdover.NewToken()
	for _, token := range []holdover.Token{young, old} {
		must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{Attempt: 5}, request(token, line(item, 1))))
	}
	// Instead of waiting, make the hold older.
	if err := r.raw.HSet(t.Context(), "hold:"+old.String(), "granted_ms", r.redisNow()-60_000).Err(); err != nil {
		t.Fatal(err)
	}
	if h := must[holdover.Hold](t)(r.Lookup(t.Context(), old)); !h.Firm {
		t.Errorf("%+v is not firm", h)
	}
	if done := must[bool](t)(r.GiveBack(t.Context(), old, 5)); done {
		t.Error("an old grant was given back")
	}
	if done := must[bool](t)(r.GiveBack(t.Context(), young, 5)); !done {
		t.Error("a young grant was not given back")
	}
	r.wantCounter(item, 9)
}

func TestNumbersUpTo2To53(t *testing.T) {
	r := newRig(t)
	const most = int64(1) << 53
	big := int64(9_223_372_036_854_775_000) // ids are int64, beyond what a Lua number holds
	must[int](t)(r.Load(t.Context(), big, map[int64]int64{big: most}, false))
	req := holdover.Request{Shop: big, Token: holdover.NewToken(), TTL: time.Hour, Lines: []holdover.Line{{Item: big, Group: big - 1, Quantity: most - 1}}}
	g := must[holdover.Grant](t)(r.Vote(t.Context(), holdover.Ticket{}, req))
	if !slices.Equal(g.Remaining, []int64{1}) || !slices.Equal(g.Hold.Lines, req.Lines) || g.Hold.Shop != big {
		t.Errorf("grant is %+v", g)
	}
	if got := must[[]int64](t)(r.Counters(t.Context(), big, []int64{big})); got[0] != 1 {
		t.Errorf("counter is %d, want 1", got[0])
	}
	must[holdover.Hold](t)(r.End(t.Context(), 0, 0, req.Token, holdover.StateReleased))
	if got := must[[]int64](t)(r.Counters(t.Context(), big, []int64{big})); got[0] != most {
		t.Errorf("counter is %d, want 2^53", got[0])
	}

	over := req
	over.Token, over.Lines = holdover.NewToken(), []holdover.Line{{Item: big, Group: 1, Quantity: most}, {Item: big, Group: 2, Quantity: 1}}
	_, err := r.Vote(t.Context(), holdover.Ticket{}, over)
	wantErr(t, "more than 2^53 of one item", err, holdover.ErrInvalid)
}

// A token's end record leaves after the retention time.
func TestEndRecordExpires(t *testing.T) {
	r := newRig(t, func(c *legacyredis.Config) { c.EndRetention = time.Hour })
	r.load(map[int64]int64{item: 10})
	for _, end := range []holdover.State{holdover.StateReleased, holdover.StateExpired, holdover.StateClaimed} {
		token := holdover.NewToken()
		r.prepare(token, "held", 0)
		if ttl := r.raw.PTTL(t.Context(), "hold:"+token.String()).Val(); ttl >= 0 {
			t.Errorf("a live hold leaves by itself in %s", ttl)
		}
		must[holdover.Hold](t)(r.Apply(t.Context(), fact(token, end, line(item, 3))))
		if ttl := r.raw.PTTL(t.Context(), "hold:"+token.String()).Val(); ttl <= 0 || ttl > time.Hour {
			t.Errorf("the record of %s leaves in %s, want within an hour", end, ttl)
		}
	}
}
