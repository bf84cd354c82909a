package workload

import (
	"context"
	"errors"
	"testing"
	"time"

	"holdover"
)

// script answers calls one after the other, as the test says.
type script struct {
	t       *testing.T
	answers []answer
}

type answer struct {
	res holdover.Result
	err error
}

func (s *script) next() (holdover.Result, error) {
	s.t.Helper()
	if len(s.answers) == 0 {
		s.t.Fatal("a call without an answer in the script")
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	return a.res, a.err
}

func (s *script) Reserve(_ context.Context, r holdover.Request) (holdover.Result, error) {
	res, err := s.next()
	if err == nil && res.Hold.Lines == nil {
		res.Hold.Lines = r.Lines
	}
	return res, err
}

func (s *script) Claim(context.Context, int64, holdover.Token, ...holdover.Line) (holdover.Result, error) {
	return s.next()
}

func (s *script) Extend(context.Context, int64, holdover.Token, time.Duration) (holdover.Result, error) {
	return s.next()
}

func (s *script) Release(context.Context, int64, holdover.Token) (holdover.Result, error) {
	return s.next()
}

func (s *script) Lookup(context.Context, int64, holdover.Token) (holdover.Result, error) {
	return s.next()
}

func TestWhatTheBookMakesOfAnswers(t *testing.T) {
	yes := answer{}
	lost := answer{err: &holdover.StoreError{Store: holdover.StoreMySQL, Op: "vote", Unknown: true, Err: errors.New("reply lost")}}
	away := answer{err: &holdover.StoreError{Store: holdover.StoreMySQL, Op: "vote", Err: errors.New("refused")}}
	out := answer{err: &holdover.OutOfStockError{Store: holdover.StoreRedis, Shop: 1}}
	later := answer{err: holdover.ErrNotReady}
	pending := answer{res: holdover.Result{Pending: true}}
	gone := answer{err: holdover.ErrUnknownHold}
	twice := answer{err: holdover.ErrAlreadyClaimed}
	reused := answer{err: holdover.ErrTokenReused}
	ended := func(s holdover.State) answer { return answer{err: &holdover.EndedError{State: s}} }

	tests := []struct {
		name    string
		calls   string // r reserve, c claim, l release (let go)
		answers []answer
		ttl     time.Duration
		promise promise
		ending  ending
		loose   bool
		want    Counts
	}{
		{"paid", "rc", []answer{yes, yes}, time.Hour, promiseGranted, endClaimed, false, Counts{Granted: 1, Claimed: 1}},
		{"payment failed", "rl", []answer{yes, yes}, time.Hour, promiseGranted, endReleased, false, Counts{Granted: 1, Released: 1}},
		{"refused", "r", []answer{out}, time.Hour, promiseRefused, endOpen, false, Counts{Refused: 1}},
		{"refused, then granted", "rr", []answer{out, yes}, time.Hour, promiseGranted, endOpen, false, Counts{Refused: 1, Granted: 1}},
		{"unknown, then granted", "rr", []answer{lost, yes}, time.Hour, promiseGranted, endOpen, true, Counts{NoAnswer: 1, Granted: 1}},
		{"unknown, then refused", "rr", []answer{away, out}, time.Hour, promiseRefused, endOpen, true, Counts{NoAnswer: 1, Refused: 1}},
		{"unknown for ever", "rr", []answer{lost, lost}, time.Hour, promiseAsked, endOpen, true, Counts{NoAnswer: 2}},
		{"unknown, then given back", "rr", []answer{lost, ended(holdover.StateReleased)}, time.Hour, promiseNothing, endOpen, true, Counts{NoAnswer: 1}},
		{"not now", "r", []answer{later}, time.Hour, promiseNothing, endOpen, false, Counts{NotNow: 1}},
		{"granted twice", "rr", []answer{yes, yes}, time.Hour, promiseGranted, endOpen, false, Counts{Granted: 1}},
		{"pending, then claimed", "rcc", []answer{yes, pending, yes}, time.Hour, promiseGranted, endClaimed, false, Counts{Granted: 1, Pending: 1, Claimed: 1}},
		{"a lost claim, claimed", "rcc", []answer{yes, lost, twice}, time.Hour, promiseGranted, endClaimed, false, Counts{Granted: 1, NoAnswer: 1, Claimed: 1}},
		{"a lost claim", "rc", []answer{yes, lost}, time.Hour, promiseGranted, endOpen, false, Counts{Granted: 1, NoAnswer: 1}},
		{"a lost release, released", "rll", []answer{yes, lost, ended(holdover.StateReleased)}, time.Hour, promiseGranted, endReleased, false, Counts{Granted: 1, NoAnswer: 1, Released: 1}},
		{"too late", "rc", []answer{yes, ended(holdover.StateExpired)}, time.Nanosecond, promiseGranted, endExpired, false, Counts{Granted: 1, Expired: 1}},
		{"told too late, too early", "rc", []answer{yes, ended(holdover.StateExpired)}, time.Hour, promiseGranted, endDenied, false, Counts{Granted: 1, Denied: 1, Errors: 1}},
		{"released by nobody", "rc", []answer{yes, ended(holdover.StateReleased)}, time.Hour, promiseGranted, endDenied, false, Counts{Granted: 1, Denied: 1, Errors: 1}},
		{"not known any more", "rc", []answer{yes, gone}, time.Hour, promiseGranted, endDenied, false, Counts{Granted: 1, Denied: 1, Errors: 1}},
		{"sold to somebody else", "rr", []answer{yes, out}, time.Hour, promiseGranted, endDenied, false, Counts{Granted: 1, Refused: 1, Denied: 1}},
		{"claimed by nobody", "rl", []answer{yes, twice}, time.Hour, promiseGranted, endOpen, false, Counts{Granted: 1, Errors: 1}},
		{"claimed, then released", "rcl", []answer{yes, yes, yes}, time.Hour, promiseGranted, endClaimed, false, Counts{Granted: 1, Claimed: 1, Errors: 1}},
		{"another's token", "r", []answer{reused}, time.Hour, promiseNothing, endOpen, true, Counts{Errors: 1}},
		{"other lines", "r", []answer{{res: holdover.Result{Hold: holdover.Hold{Lines: []holdover.Line{one(5, 1, 7)}}}}}, time.Hour, promiseGranted, endOpen, false, Counts{Granted: 1, Errors: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := NewAccount(AccountConfig{})
			s := &script{t: t, answers: test.answers}
			w := a.Watch(s)
			token := holdover.NewToken()
			for _, call := range test.calls {
				switch call {
				case 'r':
					// The TTL of the record is the test's; the limits want 100 ms.
					_, _ = w.Reserve(t.Context(), holdover.Request{Shop: 1, Token: token, Lines: []holdover.Line{one(5, 1, 1)}, TTL: max(test.ttl, time.Second)})
					if test.ttl < time.Second {
						a.records[token].ttl = int64(test.ttl) - clockGrain
					}
				case 'c':
					_, _ = w.Claim(t.Context(), 1, token)
				case 'l':
					_, _ = w.Release(t.Context(), 1, token)
				}
			}
			rec := a.records[token]
			if rec.promise != test.promise || rec.ending != test.ending || rec.loose != test.loose || rec.running != 0 {
				t.Errorf("promise %d, ending %s, loose %v, running %d", rec.promise, rec.ending, rec.loose, rec.running)
			}
			test.want.Tokens, test.want.Calls = 1, int64(len(test.calls))
			if got := a.Counts(); got != test.want {
				t.Errorf("counts %+v, want %+v", got, test.want)
			}
			if got := int64(len(a.Samples())); got != test.want.Errors {
				t.Errorf("%d samples of %d errors: %q", got, test.want.Errors, a.Samples())
			}
		})
	}
}

func TestAFullAccountDoesNotBuy(t *testing.T) {
	for name, cfg := range map[string]AccountConfig{"tokens": {MaxTokens: 1}, "lines": {MaxLines: 1}} {
		t.Run(name, func(t *testing.T) {
			a := NewAccount(cfg)
			s := &script{t: t, answers: []answer{{}, {}}}
			w := a.Watch(s)
			ask := func(token holdover.Token) error {
				_, err := w.Reserve(t.Context(), holdover.Request{Shop: 1, Token: token, Lines: []holdover.Line{one(5, 1, 1)}, TTL: time.Second})
				return err
			}
			first := holdover.NewToken()
			if err := ask(first); err != nil {
				t.Fatal(err)
			}
			if err := ask(holdover.NewToken()); !errors.Is(err, ErrAccountFull) {
				t.Errorf("error %v, want that the account is full", err)
			}
			if err := ask(first); err != nil {
				t.Errorf("a repeat of a known token: %v", err)
			}
			if len(s.answers) != 0 {
				t.Error("the store was asked for a sale outside the book, or not for the repeat")
			}
		})
	}
}

func TestRefusalsOverTheBoundLeaveNoVerdict(t *testing.T) {
	a := NewAccount(AccountConfig{MaxRefusals: 1})
	out := answer{err: &holdover.OutOfStockError{Store: holdover.StoreMySQL}}
	w := a.Watch(&script{t: t, answers: []answer{out, out}})
	for range 2 {
		_, _ = w.Reserve(t.Context(), holdover.Request{Shop: 1, Token: holdover.NewToken(), Lines: []holdover.Line{one(5, 1, 9)}, TTL: time.Second})
	}
	stock := []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 1}}
	r := Reading{Ledger: map[holdover.Stock]int64{{Shop: 1, Item: 5, Group: 1}: 1}}
	v, err := Judge(a, r, AuditConfig{Stock: stock, Stage: holdover.StageMySQLOnly})
	if err != nil || v.OK || v.Unjudged != 1 || v.faults() != 0 {
		t.Errorf("%+v, %v", v, err)
	}
}
