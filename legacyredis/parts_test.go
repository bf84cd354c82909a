package legacyredis_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"holdover"
	"holdover/legacyredis"
)

func TestMarkOfAPart(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	other := holdover.Line{Item: item, Group: group + 1, Quantity: 2}
	cart := []holdover.Line{line(item, 5), other, line(item2, 4)}
	for name, test := range map[string]struct {
		part    []holdover.Line
		claimed []holdover.Line // nil: all
		left    [2]int64        // counters of 20
	}{
		"one line":                        {[]holdover.Line{line(item2, 4)}, []holdover.Line{line(item2, 4)}, [2]int64{20, 16}},
		"fewer units":                     {[]holdover.Line{line(item, 1), line(item2, 3)}, []holdover.Line{line(item, 1), line(item2, 3)}, [2]int64{19, 17}},
		"one location of two":             {[]holdover.Line{other}, []holdover.Line{other}, [2]int64{18, 20}},
		"another order, and a line twice": {[]holdover.Line{line(item2, 1), line(item, 2), line(item2, 1)}, []holdover.Line{line(item, 2), line(item2, 2)}, [2]int64{18, 18}},
		"all, in another order":           {[]holdover.Line{line(item2, 4), other, line(item, 5)}, nil, [2]int64{13, 16}},
		"no lines":                        {nil, nil, [2]int64{13, 16}},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			must[int](t)(r.Load(ctx, shop, map[int64]int64{item: 20, item2: 20}, true))
			token := holdover.NewToken()
			must[holdover.Grant](t)(r.Vote(ctx, holdover.Ticket{Attempt: 1}, request(token, cart...)))
			for _, again := range []bool{false, true} {
				h := must[holdover.Hold](t)(r.Mark(ctx, 0, shop, token, test.part))
				if h.State != holdover.StateClaiming || h.Again != again || !slices.Equal(h.Lines, cart) || !slices.Equal(h.Claimed, test.claimed) {
					t.Errorf("marked: %+v, want claimed %v, again %t", h, test.claimed, again)
				}
			}
			for _, another := range [][]holdover.Line{{line(item, 5)}, {line(item, 5), line(item2, 4)}} {
				r.unchanged("a claim of another part", func() {
					_, err := r.Mark(ctx, 0, shop, token, another)
					wantErr(t, "a claim of another part", err, holdover.ErrTokenReused)
				})
			}
			r.wantCounter(item, test.left[0])
			r.wantCounter(item2, test.left[1])
			if h := must[holdover.Hold](t)(r.Lookup(ctx, token)); !slices.Equal(h.Claimed, test.claimed) || !slices.Equal(h.Lines, cart) {
				t.Errorf("looked up: %+v", h)
			}
			// A repeated reserve is compared with what was reserved.
			if g := must[holdover.Grant](t)(r.Vote(ctx, holdover.Ticket{}, request(token, cart...))); !g.Replayed {
				t.Error("the repeated reserve is no replay")
			}
			h := must[holdover.Hold](t)(r.Lookup(ctx, token))
			h.State = holdover.StateClaimed
			if h = must[holdover.Hold](t)(r.Apply(ctx, h)); h.State != holdover.StateClaimed || !slices.Equal(h.Claimed, test.claimed) {
				t.Errorf("claimed: %+v", h)
			}
			r.wantCounter(item, test.left[0])
			r.wantCounter(item2, test.left[1])
		})
	}
}

func TestMarkOfWhatIsNoPart(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.load(map[int64]int64{item: 20, item2: 20})
	token := holdover.NewToken()
	must[holdover.Grant](t)(r.Vote(ctx, holdover.Ticket{}, request(token, line(item, 3), line(item2, 1))))
	for name, part := range map[string][]holdover.Line{
		"more units":              {line(item, 4)},
		"more units in two lines": {line(item, 2), line(item, 2)},
		"another item":            {line(item, 1), line(43, 1)},
		"another location":        {{Item: item, Group: group + 1, Quantity: 1}},
		"no units":                {line(item, 0)},
		"units below zero":        {line(item, 3), line(item2, -1)},
		"more than a number":      {line(item, 1<<60)},
	} {
		r.unchanged(name, func() {
			_, err := r.Mark(ctx, 0, shop, token, part)
			var invalid *holdover.InvalidError
			if !errors.As(err, &invalid) || invalid.Problem == "" {
				t.Errorf("%s: error is %v, want an *InvalidError", name, err)
			}
		})
	}
	// Units can't come back to a counter that is not there.
	r.raw.Del(ctx, "inventory:"+itoa(shop)+":"+itoa(item2))
	r.unchanged("a part without the counter of the rest", func() {
		_, err := r.Mark(ctx, 0, shop, token, []holdover.Line{line(item, 3)})
		wantErr(t, "a part without the counter of the rest", err, holdover.ErrNotLoaded)
	})
	must[holdover.Hold](t)(r.Mark(ctx, 0, shop, token, []holdover.Line{line(item, 1), line(item2, 1)}))
	r.wantCounter(item, 19)
}

// partlyMarked is a hold of 3 units of item and 2 of item2, of which one unit of
// item is being claimed.
func (r *rig) partlyMarked() holdover.Token {
	r.t.Helper()
	token := holdover.NewToken()
	must[holdover.Grant](r.t)(r.Vote(r.t.Context(), holdover.Ticket{Attempt: 1}, request(token, line(item, 3), line(item2, 2))))
	must[holdover.Hold](r.t)(r.Mark(r.t.Context(), 0, shop, token, []holdover.Line{line(item, 1)}))
	return token
}

// Every list of holds says what a mark is for.
func TestListsCarryTheMarkedPart(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.load(map[int64]int64{item: 20, item2: 20})
	r.partlyMarked()
	part := []holdover.Line{line(item, 1)}
	if marked := must[[]holdover.Hold](t)(r.Marked(ctx, 0, 10)); len(marked) != 1 || !slices.Equal(marked[0].Claimed, part) {
		t.Errorf("marked holds are %+v, want one of %v", marked, part)
	}
	var live []holdover.Hold
	for cursor := uint64(0); ; {
		page, next, err := r.LiveHolds(ctx, cursor, 10)
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, page...)
		if cursor = next; next == 0 {
			break
		}
	}
	if len(live) != 1 || !slices.Equal(live[0].Claimed, part) || len(live[0].Lines) != 2 {
		t.Errorf("live holds are %+v, want one of %v", live, part)
	}
}

// MySQL may have an end record: then the mark is rolled back, and only what it
// still kept goes back.
func TestMarkedPartIsRolledBack(t *testing.T) {
	for _, how := range []holdover.State{holdover.StateReleased, holdover.StateExpired} {
		r := newRig(t)
		r.load(map[int64]int64{item: 20, item2: 20})
		token := r.partlyMarked()
		r.wantCounter(item, 19)
		r.wantCounter(item2, 20)
		for range 2 {
			h := must[holdover.Hold](t)(r.Apply(t.Context(), fact(token, how, line(item, 3), line(item2, 2))))
			if h.State != how || h.Claimed != nil {
				t.Errorf("it is %+v, want %s and nothing claimed", h, how)
			}
			r.wantCounter(item, 20)
			r.wantCounter(item2, 20)
		}
		if h := must[holdover.Hold](t)(r.Lookup(t.Context(), token)); h.Claimed != nil {
			t.Errorf("looked up: %+v, want nothing claimed", h)
		}
	}
}

// A claim that MySQL has made alone may be of another part than the mark: the
// ledger is right.
func TestClaimedFactOfAnotherPartThanTheMark(t *testing.T) {
	r := newRig(t)
	r.load(map[int64]int64{item: 20, item2: 20})
	token := r.partlyMarked()
	f := fact(token, holdover.StateClaimed, line(item, 3), line(item2, 2))
	f.Claimed = []holdover.Line{line(item, 2), line(item2, 1)}
	for range 2 {
		h := must[holdover.Hold](t)(r.Apply(t.Context(), f))
		if h.State != holdover.StateClaimed || !slices.Equal(h.Claimed, f.Claimed) {
			t.Errorf("it is %+v, want claimed %v", h, f.Claimed)
		}
		r.wantCounter(item, 18)
		r.wantCounter(item2, 19)
	}
	// A fact that knows no lines says nothing about the part.
	must[holdover.Hold](t)(r.Apply(t.Context(), holdover.Hold{Token: token, State: holdover.StateClaimed}))
	if h := must[holdover.Hold](t)(r.Lookup(t.Context(), token)); !slices.Equal(h.Claimed, f.Claimed) {
		t.Errorf("afterwards it is %+v", h)
	}
	r.wantCounter(item, 18)
}

// The kill carries claims of parts, and later expiries, from the journal.
func TestTripCarriesPartsAndExpiries(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.setFence(5, holdover.StageMySQL)
	r.load(map[int64]int64{item: 40, item2: 40})
	marked, held, ended, unknown := r.partlyMarked(), holdover.NewToken(), holdover.NewToken(), holdover.NewToken()
	extended, older := holdover.NewToken(), holdover.NewToken()
	cart := []holdover.Line{line(item, 3), line(item2, 2)}
	for _, token := range []holdover.Token{held, ended, extended, older} {
		must[holdover.Grant](t)(r.Vote(ctx, holdover.Ticket{Epoch: 5}, request(token, cart...)))
	}
	must[holdover.Hold](t)(r.End(ctx, 5, shop, ended, holdover.StateReleased))
	r.wantCounter(item, 40-1-3*3)

	claimed := func(token holdover.Token) holdover.Hold {
		f := fact(token, holdover.StateClaimed, cart...)
		f.Claimed = []holdover.Line{line(item, 2)}
		return f
	}
	before := must[holdover.Hold](t)(r.Lookup(ctx, older)).ExpiresAt
	late, early := fact(extended, holdover.StateHeld, cart...), fact(older, holdover.StateHeld, cart...)
	early.ExpiresAt = before.Add(-time.Minute)
	facts := []holdover.Hold{claimed(marked), claimed(held), claimed(ended), claimed(unknown), late, early}
	if err := r.Trip(ctx, fence(7, holdover.StageShadow), facts); err != nil {
		t.Fatal(err)
	}
	for _, token := range []holdover.Token{marked, held, ended, unknown} {
		h := must[holdover.Hold](t)(r.Lookup(ctx, token))
		if h.State != holdover.StateClaimed || !slices.Equal(h.Claimed, []holdover.Line{line(item, 2)}) {
			t.Errorf("it is %+v, want two units claimed", h)
		}
	}
	r.wantCounter(item, 40-4*2-2*3)
	r.wantCounter(item2, 40-2*2)
	r.wantExpiry(extended, late.ExpiresAt)
	r.wantExpiry(older, before)
}

// wantExpiry looks at the hold and at its place among those that will expire.
func (r *rig) wantExpiry(token holdover.Token, want time.Time) {
	r.t.Helper()
	h := must[holdover.Hold](r.t)(r.Lookup(r.t.Context(), token))
	score := must[float64](r.t)(r.raw.ZScore(r.t.Context(), "holds", token.String()).Result())
	if !h.ExpiresAt.Equal(want) || int64(score) != want.UnixMilli() {
		r.t.Errorf("it expires at %s and is listed at %s, want %s", h.ExpiresAt, time.UnixMilli(int64(score)).UTC(), want)
	}
}

func TestExtend(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.load(map[int64]int64{item: 20})
	const life = 10 * time.Hour
	token := holdover.NewToken()
	granted := must[holdover.Grant](t)(r.Vote(ctx, holdover.Ticket{}, request(token, line(item, 1)))).Hold

	before := r.redisNow()
	h := must[holdover.Hold](t)(r.Extend(ctx, 0, shop, token, 3*time.Hour, life))
	after := r.redisNow()
	if at := h.ExpiresAt.Add(-3 * time.Hour).UnixMilli(); at < before || at > after || h.Again {
		t.Errorf("extended by 3 h between %d and %d: %+v", before, after, h)
	}
	r.wantExpiry(token, h.ExpiresAt)

	r.unchanged("an extension that is shorter", func() {
		again := must[holdover.Hold](t)(r.Extend(ctx, 0, shop, token, time.Hour, life))
		if !again.Again || !again.ExpiresAt.Equal(h.ExpiresAt) {
			t.Errorf("it is %+v, want the expiry %s again", again, h.ExpiresAt)
		}
	})
	for _, again := range []bool{false, true} {
		h = must[holdover.Hold](t)(r.Extend(ctx, 0, 0, token, 11*time.Hour, life))
		if want := granted.GrantedAt.Add(life); !h.ExpiresAt.Equal(want) || h.Again != again {
			t.Errorf("at most: %+v, want %s from the grant, again %t", h, life, again)
		}
	}
	r.wantExpiry(token, h.ExpiresAt)
	r.unchanged("another shop", func() {
		_, err := r.Extend(ctx, 0, shop+1, token, 3*time.Hour, life)
		wantErr(t, "another shop", err, holdover.ErrUnknownHold)
	})

	// Past its expiry and not expired: it lives on, and the reaper leaves it alone.
	due := holdover.NewToken()
	r.prepare(due, "due", 0)
	h = must[holdover.Hold](t)(r.Extend(ctx, 0, shop, due, time.Hour, 100*365*24*time.Hour))
	r.wantExpiry(due, h.ExpiresAt)
	if h = must[holdover.Hold](t)(r.End(ctx, 0, 0, due, holdover.StateExpired)); h.State != holdover.StateHeld {
		t.Errorf("the expiry step made it %s", h.State)
	}
	r.wantCounter(item, 20-1-3)
}

// Facts and copies move an expiry forward, never back.
func TestExpiryMovesForwardOnly(t *testing.T) {
	for name, tell := range map[string]func(r *rig, h holdover.Hold) error{
		"fact": func(r *rig, h holdover.Hold) error { _, err := r.Apply(r.t.Context(), h); return err },
		"copy": func(r *rig, h holdover.Hold) error { _, err := r.Copy(r.t.Context(), 0, h); return err },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.load(map[int64]int64{item: 20})
			h := fact(holdover.NewToken(), holdover.StateHeld, line(item, 2))
			for _, step := range []struct{ tell, want time.Duration }{{0, 0}, {time.Hour, time.Hour}, {time.Minute, time.Hour}, {2 * time.Hour, 2 * time.Hour}} {
				told := h
				told.ExpiresAt = h.ExpiresAt.Add(step.tell)
				if err := tell(r, told); err != nil {
					t.Fatal(err)
				}
				r.wantExpiry(h.Token, h.ExpiresAt.Add(step.want))
			}
			r.wantCounter(item, 18)
			must[holdover.Hold](t)(r.Mark(t.Context(), 0, shop, h.Token, nil))
			h.ExpiresAt = h.ExpiresAt.Add(3 * time.Hour)
			if err := tell(r, h); err != nil {
				t.Fatal(err)
			}
			if r.indexed(h.Token) != "claiming" {
				t.Errorf("a marked hold is listed in %q: it could expire", r.indexed(h.Token))
			}
		})
	}
}

// A pending claim of a part is rolled forward as that part.
func TestPendingClaimOfAPart(t *testing.T) {
	p := newPath(t)
	ctx := t.Context()
	p.stock(item, 10)
	p.stock(item2, 10)
	token := holdover.NewToken()
	must[holdover.Result](t)(p.Reserve(ctx, request(token, line(item, 3), line(item2, 2))))
	p.ledger.away.Store(true)
	part := line(item, 1)
	if got := must[holdover.Result](t)(p.Claim(ctx, shop, token, part)); !got.Pending {
		t.Errorf("claim is %+v, want pending", got)
	}
	p.wantCounter(item, 9)
	p.wantCounter(item2, 10)
	_, err := p.Claim(ctx, shop, token)
	wantErr(t, "a claim of all", err, holdover.ErrTokenReused)
	_, err = p.Extend(ctx, shop, token, time.Hour)
	wantErr(t, "an extension", err, holdover.ErrClaimPending)
	for _, n := range []int64{9, 9} { // the old rebuild counts what the mark keeps
		if got := must[int64](t)(p.Resync(ctx, shop, item, 10)); got != n {
			t.Errorf("counter is %d, want %d", got, n)
		}
	}
	if got := must[int64](t)(p.Resync(ctx, shop, item2, 10)); got != 10 {
		t.Errorf("counter of the line that is not claimed is %d, want 10", got)
	}

	p.ledger.away.Store(false)
	if swept, err := p.Sweep(ctx); err != nil || swept.Claimed != 1 {
		t.Errorf("sweep: %+v, %v", swept, err)
	}
	got := must[holdover.Result](t)(p.Claim(ctx, shop, token, part))
	if !got.Replayed || got.Hold.State != holdover.StateClaimed || !slices.Equal(got.Hold.Claimed, []holdover.Line{part}) {
		t.Errorf("the repeated claim: %+v", got)
	}
	p.wantLedger(item, 9)
	p.wantLedger(item2, 10)
	p.wantCounter(item, 9)
	p.wantCounter(item2, 10)
}

// The old claim knows no parts, and no marks: it leaves a marked hold alone.
func TestLegacyClaimLeavesAMarkedPart(t *testing.T) {
	p := newPath(t)
	p.stock(item, 10)
	p.stock(item2, 10)
	token := p.partlyMarked()
	p.unchanged("the old claim", func() {
		err := p.LegacyClaim(t.Context(), legacyredis.RedisFirst, shop, token, func() error { return nil })
		wantErr(t, "the old claim", err, holdover.ErrClaimPending)
	})
	p.wantLedger(item, 10)
}
