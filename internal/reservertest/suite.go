package reservertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"holdover"
)

const (
	longTTL  = time.Hour              // never passes within a test
	shortTTL = 150 * time.Millisecond // passes while WaitExpired waits

	// patience bounds a call that hangs: far over any deadline of a store.
	patience = time.Minute
)

// suite is one subtest's view of its fixture. Its assertions wait for
// background work first.
type suite struct {
	t        *testing.T
	f        Fixture
	lastItem int64
}

func newSuite(t *testing.T, f Fixture) *suite {
	// Random items, so that a shop that was used before does no harm; small
	// enough for a number in Lua.
	return &suite{t: t, f: f, lastItem: rand.Int64N(1e9) * 1e3}
}

// in is the same suite for a subtest: the fixture stays.
func (s *suite) in(t *testing.T) *suite {
	c := *s
	c.t = t
	c.lastItem = rand.Int64N(1e9) * 1e3
	return &c
}

func (s *suite) ctx() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.t.Context(), patience)
}

// newItem returns an item that nobody has loaded.
func (s *suite) newItem() int64 {
	s.lastItem++
	return s.lastItem
}

// stocked returns a new item with units at group 1.
func (s *suite) stocked(units int64) int64 {
	s.t.Helper()
	item := s.newItem()
	s.f.Load(s.t, map[[2]int64]int64{{item, 1}: units})
	return item
}

func line(item, quantity int64) holdover.Line {
	return holdover.Line{Item: item, Group: 1, Quantity: quantity}
}

func (s *suite) request(token holdover.Token, ttl time.Duration, lines ...holdover.Line) holdover.Request {
	return holdover.Request{Shop: s.f.Shop, Token: token, TTL: ttl, Lines: lines}
}

func (s *suite) reserve(r holdover.Request) (holdover.Result, error) {
	ctx, cancel := s.ctx()
	defer cancel()
	res, err := s.f.Reserver.Reserve(ctx, r)
	s.checkAnswer("reserve", r.Token, res, err)
	return res, err
}

func (s *suite) claim(token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	ctx, cancel := s.ctx()
	defer cancel()
	res, err := s.f.Reserver.Claim(ctx, s.f.Shop, token, lines...)
	s.checkAnswer("claim", token, res, err)
	return res, err
}

func (s *suite) extend(token holdover.Token, ttl time.Duration) (holdover.Result, error) {
	ctx, cancel := s.ctx()
	defer cancel()
	res, err := s.f.Reserver.Extend(ctx, s.f.Shop, token, ttl)
	s.checkAnswer("extend", token, res, err)
	return res, err
}

func (s *suite) release(token holdover.Token) (holdover.Result, error) {
	ctx, cancel := s.ctx()
	defer cancel()
	res, err := s.f.Reserver.Release(ctx, s.f.Shop, token)
	s.checkAnswer("release", token, res, err)
	return res, err
}

func (s *suite) lookup(token holdover.Token) (holdover.Result, error) {
	ctx, cancel := s.ctx()
	defer cancel()
	res, err := s.f.Reserver.Lookup(ctx, s.f.Shop, token)
	s.checkAnswer("look-up", token, res, err)
	return res, err
}

// checkAnswer is what holds for every answer. Only Errorf: it is called from
// the goroutines of the races too.
func (s *suite) checkAnswer(op string, token holdover.Token, res holdover.Result, err error) {
	s.t.Helper()
	if !errors.Is(err, holdover.ErrInvalid) && (res.Decision.Store == holdover.StoreNone || res.Decision.Reason == "") {
		s.t.Errorf("%s (error: %v): the decision lacks store or reason: %+v", op, err, res.Decision)
	}
	if err == nil && (res.Hold.Token != token || res.Hold.Shop != s.f.Shop) {
		s.t.Errorf("%s of hold %s in shop %d: the answer is about hold %s in shop %d", op, token, s.f.Shop, res.Hold.Token, res.Hold.Shop)
	}
	var ended *holdover.EndedError
	if errors.As(err, &ended) && ended.Token != token {
		s.t.Errorf("%s of hold %s: the error is about hold %s", op, token, ended.Token)
	}
	var short *holdover.OutOfStockError
	if errors.As(err, &short) {
		s.checkShortage(short)
	}
}

func (s *suite) checkShortage(e *holdover.OutOfStockError) {
	s.t.Helper()
	if e.Store == holdover.StoreNone || e.Shop != s.f.Shop || len(e.Short) == 0 {
		s.t.Errorf("out of stock without store, shop or a shortage: %+v", e)
	}
	for _, short := range e.Short {
		if short.Left < 0 || short.Left >= short.Want {
			s.t.Errorf("out of stock although %d of %d wanted are left: %v", short.Left, short.Want, e)
		}
	}
}

// mustReserve is a new grant of lines for an hour under a new token.
func (s *suite) mustReserve(lines ...holdover.Line) holdover.Token {
	s.t.Helper()
	return s.mustReserveFor(longTTL, lines...)
}

func (s *suite) mustReserveFor(ttl time.Duration, lines ...holdover.Line) holdover.Token {
	s.t.Helper()
	token := holdover.NewToken()
	res, err := s.reserve(s.request(token, ttl, lines...))
	if err != nil {
		s.t.Fatalf("reserve %v: %v", lines, err)
	}
	if res.Replayed || res.Hold.State != holdover.StateHeld {
		s.t.Fatalf("a first reserve: replayed %t, state %s; want a new hold", res.Replayed, res.Hold.State)
	}
	return token
}

// lapsed is a hold of lines that is past its expiry and not expired.
func (s *suite) lapsed(lines ...holdover.Line) holdover.Token {
	s.t.Helper()
	token := s.mustReserveFor(shortTTL, lines...)
	s.settle()
	s.f.WaitExpired(s.t, token)
	return token
}

func (s *suite) settle() {
	s.t.Helper()
	if s.f.Settle != nil {
		s.f.Settle(s.t)
	}
}

func (s *suite) expire() {
	s.t.Helper()
	s.settle()
	s.f.Expire(s.t)
	s.settle()
}

func (s *suite) wantClass(what string, err error, want ...class) {
	s.t.Helper()
	if got := classOf(err); !slices.Contains(want, got) {
		s.t.Errorf("%s: %q (error: %v), want %q", what, got, err, want)
	}
}

func (s *suite) wantFree(item, want int64) {
	s.t.Helper()
	s.wantFreeAt(item, 1, want)
}

func (s *suite) wantFreeAt(item, group, want int64) {
	s.t.Helper()
	s.settle()
	if got := s.f.Free(s.t, item, group); got != want {
		s.t.Errorf("item %d at group %d has %d units free, want %d", item, group, got, want)
	}
}

func (s *suite) wantLedger(item, want int64) {
	s.t.Helper()
	if s.f.Ledger == nil {
		return
	}
	s.settle()
	if got := s.f.Ledger(s.t, item); got != want {
		s.t.Errorf("the ledger has %d units of item %d, want %d", got, item, want)
	}
}

func (s *suite) wantState(token holdover.Token, want holdover.State) {
	s.t.Helper()
	s.settle()
	res, err := s.lookup(token)
	if err != nil || res.Hold.State != want {
		s.t.Errorf("look-up of hold %s: state %s, error %v; want %s", token, res.Hold.State, err, want)
	}
}

// atOnce calls f from n goroutines that start together, and waits for them.
func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}
