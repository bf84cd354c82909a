package reservertest

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"holdover"
	"holdover/internal/model"
)

// move is one step of a random sequence of choices.
type move struct {
	Kind    kind
	Token   int
	Again   bool // with what the token was last used with
	Choices []holdover.Choice
}

// testChoicesAgainstModel compares random sequences of choices, without expiry,
// with the model: answers, lines and stock.
func testChoicesAgainstModel(s *suite) {
	left := s.f.Sequences
	if left == 0 {
		left = 20
	}
	groups := rapid.Permutation([]int64{1, 2, 3})
	moves := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) move {
		m := move{Kind: rapid.SampledFrom([]kind{doReserve, doReserve, doReserve, doClaim, doRelease}).Draw(t, "kind"), Token: rapid.IntRange(0, tokensInPlay-1).Draw(t, "token")}
		m.Again = rapid.Bool().Draw(t, "again")
		for item := range int64(2) {
			if item == 0 || rapid.Bool().Draw(t, "both items") {
				listed := groups.Draw(t, "groups")[:rapid.IntRange(1, 3).Draw(t, "how many groups")]
				m.Choices = append(m.Choices, holdover.Choice{Item: item, Groups: listed,
					Quantity: rapid.Int64Range(1, 4).Draw(t, "quantity"), Split: rapid.Bool().Draw(t, "split")})
			}
		}
		return m
	}), 8, 20)
	rapid.Check(s.t, func(t *rapid.T) {
		if left == 0 {
			return
		}
		left--
		sequence := moves.Draw(t, "moves")
		cfg := model.Config{Locations: model.ByLocation}
		if s.f.SumOverLocations {
			cfg.Locations = model.SumOverLocations
		}
		m := model.New(cfg)
		items := [2]int64{s.newItem(), s.newItem()}
		stock := map[[2]int64]int64{}
		for _, item := range items {
			for group := range int64(3) {
				if group == 2 && !s.f.SumOverLocations {
					continue // not known
				}
				stock[[2]int64{item, group + 1}] = rapid.Int64Range(0, 6).Draw(t, "stock")
			}
		}
		s.f.Load(s.t, stock)
		m.Load(s.f.Shop, stock)
		var tokens [tokensInPlay]holdover.Token
		var used [tokensInPlay][]holdover.Choice
		for i := range tokens {
			tokens[i] = holdover.NewToken()
		}
		for i, mv := range sequence {
			what := fmt.Sprintf("move %d, %s %+v", i, kindNames[mv.Kind], mv)
			token := tokens[mv.Token]
			var got, want holdover.Result
			var gotErr, wantErr error
			switch mv.Kind {
			case doReserve:
				if mv.Again && used[mv.Token] != nil {
					mv.Choices = used[mv.Token]
				} else {
					mv.Choices = slices.Clone(mv.Choices)
					for i := range mv.Choices {
						mv.Choices[i].Item = items[mv.Choices[i].Item]
					}
				}
				r := s.chooses(token, mv.Choices...)
				got, gotErr = s.reserve(r)
				want, wantErr = m.Reserve(t.Context(), r)
				if wantErr == nil {
					used[mv.Token] = mv.Choices
				}
			case doClaim, doRelease:
				if _, err := m.Lookup(t.Context(), s.f.Shop, token); err != nil {
					continue
				}
				if mv.Kind == doClaim {
					got, gotErr = s.claim(token)
					want, wantErr = m.Claim(t.Context(), s.f.Shop, token)
				} else {
					got, gotErr = s.release(token)
					want, wantErr = m.Release(t.Context(), s.f.Shop, token)
				}
			}
			s.settle()
			accepted := []class{classOf(wantErr)}
			if known, err := m.Lookup(t.Context(), s.f.Shop, token); err == nil && known.Hold.State.Ended() && accepted[0] == classTokenReused {
				accepted = append(accepted, endClass(known.Hold.State))
			}
			if accepted[0] == classNotLoaded {
				// Another item may be short too, and so may the sum over locations where
				// both stores must grant: which is told is left open.
				accepted = append(accepted, classOutOfStock)
			}
			if !slices.Contains(accepted, classOf(gotErr)) || gotErr == nil && (got.Replayed != want.Replayed || !slices.Equal(got.Hold.Lines, want.Hold.Lines)) {
				t.Fatalf("%s: %q, lines %v, replayed %t (error %v); the model says %q, lines %v, replayed %t",
					what, classOf(gotErr), got.Hold.Lines, got.Replayed, gotErr, accepted, want.Hold.Lines, want.Replayed)
			}
			for place := range stock {
				free, _ := m.Free(s.f.Shop, place[0], place[1])
				if n := s.f.Free(s.t, place[0], place[1]); n != free {
					t.Fatalf("%s: %d units of item %d free at group %d, the model says %d", what, n, place[0], place[1], free)
				}
			}
		}
	})
}
