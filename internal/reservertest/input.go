package reservertest

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"holdover"
)

func testBadInput(s *suite) {
	item := s.stocked(5)
	good := s.mustReserve(line(item, 1))
	many := make([]holdover.Line, 5000)
	for i := range many {
		many[i] = holdover.Line{Item: item, Group: int64(i + 1), Quantity: 1}
	}
	for _, test := range []struct {
		name  string
		spoil func(r *holdover.Request)
	}{
		{"NoShop", func(r *holdover.Request) { r.Shop = 0 }},
		{"NegativeShop", func(r *holdover.Request) { r.Shop = -1 }},
		{"ZeroToken", func(r *holdover.Request) { r.Token = holdover.Token{} }},
		{"NoLines", func(r *holdover.Request) { r.Lines = nil }},
		{"TooManyLines", func(r *holdover.Request) { r.Lines = many }},
		{"ZeroQuantity", func(r *holdover.Request) { r.Lines = []holdover.Line{line(item, 0)} }},
		{"NegativeQuantity", func(r *holdover.Request) { r.Lines = []holdover.Line{line(item, -2)} }},
		{"SumOfOppositeQuantities", func(r *holdover.Request) { r.Lines = []holdover.Line{line(item, 3), line(item, -2)} }},
		{"AbsurdQuantity", func(r *holdover.Request) { r.Lines = []holdover.Line{line(item, math.MaxInt64)} }},
		{"QuantitiesThatOverflow", func(r *holdover.Request) {
			r.Lines = []holdover.Line{line(item, math.MaxInt64), line(item, math.MaxInt64), line(item, 3)}
		}},
		{"SecondLineIsWrong", func(r *holdover.Request) { r.Lines = []holdover.Line{line(item, 1), line(item+1, 0)} }},
		{"ZeroItem", func(r *holdover.Request) { r.Lines = []holdover.Line{{Group: 1, Quantity: 1}} }},
		{"NegativeItem", func(r *holdover.Request) { r.Lines = []holdover.Line{{Item: -item, Group: 1, Quantity: 1}} }},
		{"ZeroGroup", func(r *holdover.Request) { r.Lines = []holdover.Line{{Item: item, Quantity: 1}} }},
		{"NoTimeToLive", func(r *holdover.Request) { r.TTL = 0 }},
		{"NegativeTimeToLive", func(r *holdover.Request) { r.TTL = -time.Second }},
		{"ShortTimeToLive", func(r *holdover.Request) { r.TTL = time.Millisecond }},
		{"AbsurdTimeToLive", func(r *holdover.Request) { r.TTL = 1000 * time.Hour }},
		{"LongestTimeToLive", func(r *holdover.Request) { r.TTL = math.MaxInt64 }},
	} {
		s.t.Run(test.name, func(t *testing.T) {
			s := s.in(t)
			r := s.request(holdover.NewToken(), longTTL, line(item, 1))
			test.spoil(&r)
			_, err := s.reserve(r)
			s.wantClass("reserve", err, classInvalid)
			s.wantFree(item, 4)
			s.wantLedger(item, 5)
			if (r.Token != holdover.Token{}) {
				_, err := s.lookup(r.Token)
				s.wantClass("look-up", err, classUnknownHold)
			}
			s.wantState(good, holdover.StateHeld)
		})
	}
	for name, do := range map[string]func(holdover.Token) (holdover.Result, error){
		"claim": func(token holdover.Token) (holdover.Result, error) { return s.claim(token) }, "release": s.release, "look-up": s.lookup,
	} {
		_, err := do(holdover.Token{})
		s.wantClass(name+" of the zero token", err, classInvalid, classUnknownHold)
	}
	s.wantFree(item, 4)
	s.wantLedger(item, 5)
}

func testCancelledContext(s *suite) {
	s.t.Run("BeforeTheCall", func(t *testing.T) {
		s := s.in(t)
		item := s.stocked(5)
		held := s.mustReserve(line(item, 1))
		s.settle()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := s.request(holdover.NewToken(), longTTL, line(item, 1))
		if _, err := s.f.Reserver.Reserve(ctx, r); err == nil {
			t.Error("reserve with a cancelled context: no error")
		}
		if _, err := s.f.Reserver.Claim(ctx, s.f.Shop, held); err == nil {
			t.Error("claim with a cancelled context: no error")
		}
		if _, err := s.f.Reserver.Extend(ctx, s.f.Shop, held, 2*longTTL); err == nil {
			t.Error("extend with a cancelled context: no error")
		}
		if _, err := s.f.Reserver.Lookup(ctx, s.f.Shop, held); err == nil {
			t.Error("look-up with a cancelled context: no error")
		}
		s.settle()
		// Nobody knows now what was done; repeating settles it.
		if _, err := s.reserve(r); err != nil {
			t.Errorf("repeated reserve: %v", err)
		}
		if _, err := s.claim(held); err != nil {
			t.Errorf("repeated claim: %v", err)
		}
		s.wantState(r.Token, holdover.StateHeld)
		s.wantState(held, holdover.StateClaimed)
		s.wantFree(item, 3)
		s.wantLedger(item, 4)
	})
	s.t.Run("DuringTheCall", func(t *testing.T) {
		s := s.in(t)
		const calls = 16
		item := s.stocked(3 * calls)
		interrupted := 0
		for i := range calls {
			// Deadlines from "at once" to some milliseconds: wherever the
			// call is interrupted, the repeat decides.
			during := func(call func(ctx context.Context) error) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*50*time.Microsecond)
				defer cancel()
				err := call(ctx)
				if err == nil {
					return
				}
				interrupted++
				if ended := errors.Is(err, holdover.ErrEnded) || errors.Is(err, holdover.ErrOutOfStock) || errors.Is(err, holdover.ErrUnknownHold); ended {
					t.Errorf("an interrupted call was answered with a refusal: %v", err)
				}
			}
			r := s.request(holdover.NewToken(), longTTL, line(item, 2))
			during(func(ctx context.Context) error { _, err := s.f.Reserver.Reserve(ctx, r); return err })
			if _, err := s.reserve(r); err != nil {
				t.Fatalf("repeated reserve: %v", err)
			}
			if i%2 == 0 {
				during(func(ctx context.Context) error { _, err := s.f.Reserver.Claim(ctx, s.f.Shop, r.Token); return err })
				if _, err := s.claim(r.Token); err != nil {
					t.Fatalf("repeated claim: %v", err)
				}
				continue
			}
			during(func(ctx context.Context) error { _, err := s.f.Reserver.Release(ctx, s.f.Shop, r.Token); return err })
			if _, err := s.release(r.Token); err != nil {
				t.Fatalf("repeated release: %v", err)
			}
		}
		if interrupted == 0 {
			t.Error("no call was interrupted")
		}
		s.wantFree(item, 2*calls)
		s.wantLedger(item, 2*calls)
	})
}
