package reservertest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"holdover"
	"holdover/internal/model"
)

type kind uint8

const (
	doReserve kind = iota
	doLapse        // a reserve with a short time to live, and waiting until it has passed
	doClaim
	doRelease
	doLookup
	doExpire
	doClaimPart // of what the token was last used with, or of anything
	doExtend    // Again: to an earlier time than before
)

var kindNames = [...]string{"reserve", "lapse", "claim", "release", "look-up", "expire", "claim a part of", "extend"}

// step is one operation of a random sequence. Places and tokens are indexes, so
// that a sequence can be read, and made shorter by rapid.
type step struct {
	Kind  kind
	Token int
	Again bool // with the lines that the token was last used with
	Cart  []pick
}

type pick struct {
	Place    int
	Quantity int64
}

func (s step) String() string {
	switch s.Kind {
	case doReserve, doLapse:
		again := ""
		if s.Again {
			again = " as before, or"
		}
		return fmt.Sprintf("%s token %d%s %v", kindNames[s.Kind], s.Token, again, s.Cart)
	case doExpire:
		return "expire"
	case doClaimPart:
		return fmt.Sprintf("claim of token %d a part of what it has (%t) as in %v", s.Token, s.Again, s.Cart)
	case doExtend:
		return fmt.Sprintf("extend token %d (earlier %t)", s.Token, s.Again)
	default:
		return fmt.Sprintf("%s token %d", kindNames[s.Kind], s.Token)
	}
}

const (
	tokensInPlay = 5
	placesInPlay = 4 // of three items: the first has two locations
)

func steps() *rapid.Generator[[]step] {
	cart := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) pick {
		return pick{rapid.IntRange(0, placesInPlay-1).Draw(t, "place"), rapid.Int64Range(1, 3).Draw(t, "quantity")}
	}), 1, 3)
	// As often as they stand here; waiting costs time on real stores.
	kinds := rapid.SampledFrom([]kind{
		doReserve, doReserve, doReserve, doReserve, doReserve, doReserve,
		doExtend, doExtend, doExtend, doClaim, doClaim, doClaimPart, doClaimPart, doRelease, doRelease, doLookup, doLapse, doExpire,
	})
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		s := step{Kind: kinds.Draw(t, "kind"), Token: rapid.IntRange(0, tokensInPlay-1).Draw(t, "token")}
		if s.Kind == doReserve || s.Kind == doLapse || s.Kind == doClaimPart {
			s.Cart = cart.Draw(t, "cart")
		}
		if s.Cart != nil || s.Kind == doExtend {
			s.Again = rapid.Bool().Draw(t, "again")
		}
		return s
	}), 10, 30)
}

// testRandomAgainstModel runs random sequences on the Reserver and on the model
// and compares the class of each answer, the state of the hold, and the free
// units.
func testRandomAgainstModel(s *suite) {
	left := s.f.Sequences
	if left == 0 {
		left = 20
	}
	failing := false
	gen := steps()
	rapid.Check(s.t, func(t *rapid.T) {
		// rapid counts for the whole process; real stores need a bound of
		// their own. Once a sequence fails, all of them run: rapid shrinks it.
		if left == 0 && !failing {
			return
		}
		left = max(left-1, 0)
		done := false
		defer func() { failing = failing || !done }()
		newRun(s, t).all(gen.Draw(t, "steps"))
		done = true
	})
}

// run is one sequence.
type run struct {
	s      *suite
	t      *rapid.T
	m      *model.Model
	tokens [tokensInPlay]holdover.Token
	used   [tokensInPlay][]holdover.Line // what the token was last used with
	places [placesInPlay]holdover.Line
}

func newRun(s *suite, t *rapid.T) *run {
	r := &run{s: s, t: t}
	cfg := model.Config{Locations: model.ByLocation, Limits: holdover.Limits{MaxLife: s.f.MaxLife}}
	if s.f.SumOverLocations {
		cfg.Locations = model.SumOverLocations
	}
	r.m = model.New(cfg)
	for i := range r.tokens {
		r.tokens[i] = holdover.NewToken()
	}
	stock := map[[2]int64]int64{}
	item := s.newItem()
	for i, group := range []int64{1, 2, 1, 1} {
		if i >= 2 {
			item = s.newItem()
		}
		r.places[i] = holdover.Line{Item: item, Group: group}
		stock[[2]int64{item, group}] = rapid.Int64Range(0, 5).Draw(t, fmt.Sprintf("stock at place %d", i))
	}
	s.f.Load(s.t, stock)
	r.m.Load(s.f.Shop, stock)
	return r
}

func (r *run) all(steps []step) {
	for i, st := range steps {
		what := fmt.Sprintf("step %d, %s", i, st)
		switch st.Kind {
		case doReserve, doLapse:
			r.reserve(what, st)
		case doClaim, doClaimPart, doRelease, doExtend, doLookup:
			r.other(what, st, i)
		case doExpire:
			r.s.expire()
			r.m.Expire()
		}
		r.s.settle()
		r.compareToken(what, r.tokens[st.Token])
		r.compareStock(what)
	}
	for _, token := range r.tokens {
		r.compareToken("at the end", token)
	}
}

// lines are the ones that st asks for, in normal form.
func (r *run) lines(st step) []holdover.Line {
	if used := r.used[st.Token]; st.Again && used != nil {
		return used
	}
	var lines []holdover.Line
	for _, p := range st.Cart {
		l := r.places[p.Place]
		l.Quantity = p.Quantity
		lines = append(lines, l)
	}
	req, err := r.s.request(r.tokens[st.Token], longTTL, lines...).Normalize(holdover.Limits{})
	if err != nil {
		r.t.Fatalf("the generator made a wrong request: %v", err)
	}
	return req.Lines
}

func (r *run) reserve(what string, st step) {
	token := r.tokens[st.Token]
	req := r.s.request(token, longTTL, r.lines(st)...)
	if st.Kind == doLapse {
		req.TTL = shortTTL
	}
	known, knownErr := r.m.Lookup(r.t.Context(), r.s.f.Shop, token)
	due := r.m.Due()
	got, gotErr := r.s.reserve(req)
	r.s.settle()

	r.expireAsDone(due)
	before := r.m.Clone()
	want, wantErr := r.m.Reserve(r.t.Context(), req)
	if classOf(wantErr) == classOutOfStock {
		r.m = before // whether a refusal expires what is due is not compared
	}

	accepted := []class{classOf(wantErr)}
	if knownErr == nil && known.Hold.State.Ended() && accepted[0] == classTokenReused {
		accepted = append(accepted, endClass(known.Hold.State))
	}
	if !slices.Contains(accepted, classOf(gotErr)) || got.Replayed != want.Replayed {
		r.t.Fatalf("%s: %q (replayed %t, error %v), the model says %q (replayed %t)",
			what, classOf(gotErr), got.Replayed, gotErr, accepted, want.Replayed)
	}
	if len(due) == 0 {
		r.compareShortage(what, req.Lines, gotErr, wantErr)
	}
	if gotErr != nil {
		return
	}
	r.used[st.Token] = req.Lines
	if st.Kind == doLapse && !got.Replayed {
		r.s.f.WaitExpired(r.s.t, token)
		r.m.Advance(shortTTL)
	}
}

// compareShortage looks at the items that have one location and one line: what
// is left of the others depends on who refused.
func (r *run) compareShortage(what string, lines []holdover.Line, gotErr, wantErr error) {
	var got, want *holdover.OutOfStockError
	if !errors.As(gotErr, &got) || !errors.As(wantErr, &want) {
		return
	}
	for _, short := range got.Short {
		if short.Item != r.places[0].Item && !slices.Contains(want.Short, short) {
			r.t.Fatalf("%s %v: the shortage is %+v, the model says %+v", what, lines, got.Short, want.Short)
		}
	}
}

// expireAsDone carries over what the Reserver has expired of the holds that were
// due, which it may do at any time. What it did not do, and should have, the
// model does.
func (r *run) expireAsDone(due []holdover.Token) {
	for _, t := range due {
		if res, err := r.s.lookup(t); err == nil && res.Hold.State == holdover.StateExpired {
			r.m.ExpireHold(t)
		}
	}
}

// claim claims in both. A late claim reserves, and so may expire what is due.
func (r *run) claim(token holdover.Token, lines []holdover.Line) (got, want holdover.Result, gotErr, wantErr error) {
	due := slices.DeleteFunc(r.m.Due(), func(t holdover.Token) bool { return t == token })
	got, gotErr = r.s.claim(token, lines...)
	r.s.settle()
	r.expireAsDone(due)
	before := r.m.Clone()
	want, wantErr = r.m.Claim(r.t.Context(), r.s.f.Shop, token, lines...)
	if classOf(wantErr) == classLate {
		r.m = before // whether a refusal expires what is due is not compared
	}
	return got, want, gotErr, wantErr
}

func (r *run) other(what string, st step, nth int) {
	token := r.tokens[st.Token]
	if _, err := r.m.Lookup(r.t.Context(), r.s.f.Shop, token); err != nil {
		token = holdover.NewToken() // ending an unknown token may leave a record: not on one in play
	}
	var (
		got, want       holdover.Result
		gotErr, wantErr error
	)
	var accepted []class // beside what the model says
	switch st.Kind {
	case doClaim:
		got, want, gotErr, wantErr = r.claim(token, nil)
	case doClaimPart:
		part := r.part(st)
		what = fmt.Sprintf("%s: %v", what, part)
		known, _ := r.m.Lookup(r.t.Context(), r.s.f.Shop, token)
		if _, noPart := known.Hold.PartOf(part); noPart != nil && known.Hold.State.Ended() {
			accepted = []class{classInvalid, classTokenReused} // two reasons: which is told is left open
		}
		got, want, gotErr, wantErr = r.claim(token, part)
	case doExtend:
		// Real time goes on between two steps, the model's does not: each
		// extension ends clearly later than all before it, or clearly earlier.
		ttl := 2*longTTL + time.Duration(nth)*10*time.Minute
		if st.Again {
			ttl = longTTL - time.Duration(nth+1)*time.Minute
		}
		got, gotErr = r.s.extend(token, ttl)
		want, wantErr = r.m.Extend(r.t.Context(), r.s.f.Shop, token, ttl)
	case doRelease:
		got, gotErr = r.s.release(token)
		want, wantErr = r.m.Release(r.t.Context(), r.s.f.Shop, token)
	default:
		got, gotErr = r.s.lookup(token)
		want, wantErr = r.m.Lookup(r.t.Context(), r.s.f.Shop, token)
	}
	accepted = append(accepted, classOf(wantErr))
	if !slices.Contains(accepted, classOf(gotErr)) || got.Pending || st.Kind != doLookup && got.Replayed != want.Replayed {
		r.t.Fatalf("%s: %q (replayed %t, pending %t, error %v), the model says %q (replayed %t)",
			what, classOf(gotErr), got.Replayed, got.Pending, gotErr, classOf(wantErr), want.Replayed)
	}
	if gotErr == nil && got.Hold.State != want.Hold.State {
		r.t.Fatalf("%s: the hold is %s, in the model it is %s", what, got.Hold.State, want.Hold.State)
	}
}

// part is a part of what the token was last used with, or, now and then, none.
func (r *run) part(st step) []holdover.Line {
	used := r.used[st.Token]
	if !st.Again || len(used) == 0 {
		return r.lines(st)
	}
	var part []holdover.Line
	for _, p := range st.Cart {
		l := used[p.Place%len(used)]
		if !slices.ContainsFunc(part, func(o holdover.Line) bool { return o.Item == l.Item && o.Group == l.Group }) {
			l.Quantity = min(p.Quantity, l.Quantity)
			part = append(part, l)
		}
	}
	return part
}

func (r *run) compareToken(what string, token holdover.Token) {
	got, gotErr := r.s.lookup(token)
	want, wantErr := r.m.Lookup(r.t.Context(), r.s.f.Shop, token)
	if classOf(gotErr) != classOf(wantErr) || got.Hold.State != want.Hold.State {
		r.t.Fatalf("%s: look-up of hold %s: %s (error %v), the model says %s (error %v)",
			what, token, got.Hold.State, gotErr, want.Hold.State, wantErr)
	}
	if wantErr == nil && !slices.Equal(got.Hold.Claimed, want.Hold.Claimed) {
		r.t.Fatalf("%s: of hold %s %v is claimed, in the model %v", what, token, got.Hold.Claimed, want.Hold.Claimed)
	}
	lives := func(h holdover.Hold) time.Duration { return h.ExpiresAt.Sub(h.GrantedAt) }
	if diff := lives(got.Hold) - lives(want.Hold); want.Hold.State.Live() && diff.Abs() > 5*time.Minute { // what the steps may have taken
		r.t.Fatalf("%s: hold %s lives for %s from its grant, in the model for %s", what, token, lives(got.Hold), lives(want.Hold))
	}
	if want.Hold.State.Live() && !slices.Equal(got.Hold.Lines, want.Hold.Lines) {
		r.t.Fatalf("%s: hold %s has lines %v, in the model %v", what, token, got.Hold.Lines, want.Hold.Lines)
	}
}

func (r *run) compareStock(what string) {
	for i, p := range r.places {
		want, _ := r.m.Free(r.s.f.Shop, p.Item, p.Group)
		if got := r.s.f.Free(r.s.t, p.Item, p.Group); got != want {
			r.t.Fatalf("%s: %d units free at place %d, the model says %d", what, got, i, want)
		}
		if r.s.f.Ledger == nil {
			continue
		}
		if got, want := r.s.f.Ledger(r.s.t, p.Item), r.m.Ledger(r.s.f.Shop, p.Item); got != want {
			r.t.Fatalf("%s: the ledger has %d units of the item at place %d, the model says %d", what, got, i, want)
		}
	}
}
