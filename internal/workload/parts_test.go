package workload

import (
	"testing"
	"testing/synctest"
	"time"

	"holdover"
	"holdover/internal/model"
)

// stall is a model with three units of one item, and a book of what it says.
type stall struct {
	*model.Model
	t *testing.T
	a *Account
	holdover.Reserver
}

func newStall(t *testing.T) *stall {
	m := model.New(model.Config{Now: time.Now})
	m.Load(1, map[[2]int64]int64{{5, 1}: 3})
	a := NewAccount(AccountConfig{})
	return &stall{Model: m, t: t, a: a, Reserver: a.Watch(m)}
}

func (s *stall) reserve(units int64, ttl time.Duration) (holdover.Token, error) {
	token := holdover.NewToken()
	_, err := s.Reserver.Reserve(s.t.Context(), holdover.Request{Shop: 1, Token: token, Lines: []holdover.Line{one(5, 1, units)}, TTL: ttl})
	return token, err
}

// read is a reading of the model, with the ledger's entries under the tokens
// that the product writes.
func (s *stall) read() Reading {
	s.t.Helper()
	k := holdover.Stock{Shop: 1, Item: 5, Group: 1}
	r := Reading{Now: s.Now(), Ledger: map[holdover.Stock]int64{k: s.Ledger(1, 5)}, MySQL: map[holdover.Token]StoredHold{}}
	for token := range s.a.records {
		res, err := s.Model.Lookup(s.t.Context(), 1, token)
		if err != nil {
			continue
		}
		if res.Hold.Late != (holdover.Token{}) {
			r.MySQL[token] = StoredHold{1, holdover.StateExpired, res.Hold.Lines}
			token = res.Hold.Late
		}
		r.MySQL[token] = StoredHold{1, res.Hold.State, res.Hold.Lines}
		if res.Hold.State == holdover.StateClaimed {
			for _, l := range res.Hold.Part() {
				r.Entries = append(r.Entries, Entry{token, 1, l.Item, l.Group, -l.Quantity, "claim"})
			}
		}
	}
	return r
}

func (s *stall) judge(spoil func(*Reading)) Verdict {
	s.t.Helper()
	r := s.read()
	spoil(&r)
	v, err := Judge(s.a, r, AuditConfig{Stock: []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 3}}, Stage: holdover.StageMySQLOnly})
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func sound(*Reading) {}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestBookOfAClaimedPart(t *testing.T) {
	part := func(t *testing.T) (*stall, holdover.Token) {
		s := newStall(t)
		token := must[holdover.Token](t)(s.reserve(3, time.Hour))
		must[holdover.Result](t)(s.Reserver.Claim(t.Context(), 1, token, one(5, 1, 1)))
		return s, token
	}
	t.Run("the rest is sold again", func(t *testing.T) {
		s, token := part(t)
		must[holdover.Token](t)(s.reserve(2, time.Hour))
		if v := s.judge(sound); !v.OK || v.Oversold != 0 {
			t.Errorf("verdict %+v", v)
		}
		_, _ = s.Reserver.Claim(t.Context(), 1, token, one(5, 1, 2)) // refused: another part
		if v := s.judge(sound); !v.OK {
			t.Errorf("after a claim of another part: %+v", v)
		}
	})
	t.Run("more than the rest is sold again", func(t *testing.T) {
		s, _ := part(t)
		s.Load(1, map[[2]int64]int64{{5, 1}: 1}) // a unit that the book knows nothing of
		must[holdover.Token](t)(s.reserve(3, time.Hour))
		if v := s.judge(sound); v.Oversold != 1 {
			t.Errorf("verdict %+v, want one unit oversold", v)
		}
	})
	t.Run("the rest is refused", func(t *testing.T) {
		s, _ := part(t)
		s.Load(1, map[[2]int64]int64{{5, 1}: -1})
		if _, err := s.reserve(2, time.Hour); err == nil {
			t.Fatal("the model sold two of one unit")
		}
		if v := s.judge(sound); v.FalseSoldOut != 1 {
			t.Errorf("verdict %+v, want one false refusal", v)
		}
	})
	t.Run("all of it is deducted", func(t *testing.T) {
		s, _ := part(t)
		if v := s.judge(func(r *Reading) { r.Entries[0].Delta = -3 }); v.DoubleClaims != 1 {
			t.Errorf("verdict %+v, want units deducted beyond the part", v)
		}
	})
	t.Run("nothing is deducted", func(t *testing.T) {
		s, _ := part(t)
		if v := s.judge(func(r *Reading) { r.Entries = nil }); v.LostHolds != 1 {
			t.Errorf("verdict %+v, want a lost claim", v)
		}
	})
	t.Run("told of another part", func(t *testing.T) {
		a := NewAccount(AccountConfig{})
		w := a.Watch(&script{t: t, answers: []answer{{}, {res: holdover.Result{Hold: holdover.Hold{Lines: []holdover.Line{one(5, 1, 3)}}}}}})
		token := holdover.NewToken()
		must[holdover.Result](t)(w.Reserve(t.Context(), holdover.Request{Shop: 1, Token: token, Lines: []holdover.Line{one(5, 1, 3)}, TTL: time.Hour}))
		must[holdover.Result](t)(w.Claim(t.Context(), 1, token, one(5, 1, 1)))
		if n := a.Counts().Errors; n != 1 {
			t.Errorf("%d unexpected answers, want 1", n)
		}
	})
	t.Run("a lost answer", func(t *testing.T) {
		lost := answer{err: &holdover.StoreError{Store: holdover.StoreMySQL, Op: "claim", Unknown: true}}
		a := NewAccount(AccountConfig{})
		w := a.Watch(&script{t: t, answers: []answer{{}, lost, {}}})
		ask := func(units int64) holdover.Token {
			token := holdover.NewToken()
			must[holdover.Result](t)(w.Reserve(t.Context(), holdover.Request{Shop: 1, Token: token, Lines: []holdover.Line{one(5, 1, units)}, TTL: time.Hour}))
			return token
		}
		first := ask(3)
		_, _ = w.Claim(t.Context(), 1, first, one(5, 1, 1))
		ask(2) // the rest, perhaps
		k := holdover.Stock{Shop: 1, Item: 5, Group: 1}
		r := Reading{Ledger: map[holdover.Stock]int64{k: 2}, MySQL: map[holdover.Token]StoredHold{first: {1, holdover.StateClaimed, nil}},
			Entries: []Entry{{first, 1, 5, 1, -1, "claim"}}, Now: time.UnixMilli(1)}
		v, err := Judge(a, r, AuditConfig{Stock: []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 3}}, Stage: holdover.StageMySQLOnly})
		if err != nil || v.Oversold != 0 || v.LostHolds != 0 || v.DoubleClaims != 0 {
			t.Errorf("verdict %+v, %v", v, err)
		}
	})
}

func TestBookOfAnExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStall(t)
		token := must[holdover.Token](t)(s.reserve(3, time.Second))
		must[holdover.Result](t)(s.Reserver.Extend(t.Context(), 1, token, time.Hour))
		time.Sleep(time.Minute) // far beyond the first expiry
		if _, err := s.reserve(1, time.Hour); err == nil {
			t.Fatal("the model sold a unit of an extended hold")
		}
		if v := s.judge(sound); !v.OK {
			t.Errorf("a refusal for an extended hold: %+v", v)
		}
		// It must still be there, and nobody may be told that it has expired.
		if v := s.judge(func(r *Reading) { delete(r.MySQL, token) }); v.LostHolds != 1 {
			t.Errorf("without the hold: %+v", v)
		}
		s.ExpireHold(token) // not due: nothing happens
		s.Advance(2 * time.Hour)
		s.ExpireHold(token)
		s.Advance(-2 * time.Hour)
		_, _ = s.Reserver.Release(t.Context(), 1, token)
		if v := s.judge(sound); v.UnexpectedTold != 1 {
			t.Errorf("told expired before the extended time: %+v", v)
		}
	})
	synctest.Test(t, func(t *testing.T) { // nobody was told whether it took effect
		lost := answer{err: &holdover.StoreError{Store: holdover.StoreMySQL, Op: "extend", Unknown: true}}
		a := NewAccount(AccountConfig{})
		w := a.Watch(&script{t: t, answers: []answer{{}, lost, {err: &holdover.OutOfStockError{Store: holdover.StoreMySQL, Shop: 1}}}})
		first := holdover.NewToken()
		ask := func(token holdover.Token, units int64) error {
			_, err := w.Reserve(t.Context(), holdover.Request{Shop: 1, Token: token, Lines: []holdover.Line{one(5, 1, units)}, TTL: time.Second})
			return err
		}
		if err := ask(first, 3); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Extend(t.Context(), 1, first, time.Hour)
		time.Sleep(time.Minute)
		if err := ask(holdover.NewToken(), 1); err == nil {
			t.Fatal("granted")
		}
		k := holdover.Stock{Shop: 1, Item: 5, Group: 1}
		v, err := Judge(a, Reading{Now: time.Now(), Ledger: map[holdover.Stock]int64{k: 3}}, AuditConfig{Stock: []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 3}}, Stage: holdover.StageMySQLOnly})
		if err != nil || v.FalseSoldOut != 0 {
			t.Errorf("verdict %+v, %v", v, err)
		}
	})
}

// A claim that comes after the expiry is in the ledger under another token.
func TestBookOfALateClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStall(t)
		token := must[holdover.Token](t)(s.reserve(3, time.Second))
		time.Sleep(time.Minute)
		s.Expire()
		other := must[holdover.Token](t)(s.reserve(1, time.Hour))
		if _, err := s.Reserver.Claim(t.Context(), 1, token); err == nil {
			t.Fatal("three of two units were claimed late")
		}
		must[holdover.Result](t)(s.Reserver.Release(t.Context(), 1, other))
		res := must[holdover.Result](t)(s.Reserver.Claim(t.Context(), 1, token))
		if res.Hold.Late == (holdover.Token{}) {
			t.Fatalf("not a late claim: %+v", res)
		}
		if v := s.judge(sound); !v.OK || v.Deductions != 1 || v.Foreign != 0 {
			t.Errorf("verdict %+v", v)
		}
		if v := s.judge(func(r *Reading) { r.Entries = nil }); v.LostHolds != 1 {
			t.Errorf("without the entry: %+v", v)
		}
	})
}
