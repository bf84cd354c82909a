package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/internal/httpapi"
)

func TestEveryErrorIsAProblem(t *testing.T) {
	tok, _ := holdover.ParseToken(token)
	down := errors.New("connection refused")
	for _, c := range []struct {
		err    error
		status int
		kind   string
	}{
		{&holdover.OutOfStockError{Store: holdover.StoreMySQL, Shop: 5, Short: []holdover.Shortage{{Item: 7, Group: 1, Want: 2, Left: 1}}}, 409, "out-of-stock"},
		{fmt.Errorf("pod a: %w", holdover.ErrOutOfStock), 409, "out-of-stock"},
		{holdover.ErrTokenReused, 409, "token-reused"},
		{holdover.EndError(tok, holdover.StateClaimed), 409, "already-claimed"},
		{holdover.ErrClaimPending, 409, "claim-pending"},
		{holdover.EndError(tok, holdover.StateExpired), 410, "hold-ended"},
		{holdover.EndError(tok, holdover.StateReleased), 410, "hold-ended"},
		{&holdover.LateClaimError{Token: tok, Store: holdover.StoreMySQL, Shop: 5, Short: []holdover.Shortage{{Item: 7, Group: 1, Want: 2, Left: 1}}}, 410, "late-claim"},
		{holdover.ErrUnknownHold, 404, "unknown-hold"},
		{&holdover.InvalidError{Field: "quantity", Value: "-1", Problem: "must be positive"}, 422, "invalid"},
		{holdover.ErrNotLoaded, 503, "stock-not-loaded"},
		{&holdover.StaleError{Store: holdover.StoreRedis, Asked: 3}, 503, "stale-epoch"},
		{holdover.ErrNoFence, 503, "no-fence"},
		{&holdover.StoreError{Store: holdover.StoreRedis, Pod: "a", Op: "vote", Token: tok, Err: down}, 503, "unavailable"},
		{&holdover.StoreError{Store: holdover.StoreMySQL, Pod: "a", Op: "claim", Token: tok, Unknown: true, Err: down}, 503, "outcome-unknown"},
		{&holdover.StoreError{Store: holdover.StoreRedis, Pod: "a", Op: "vote", Err: context.DeadlineExceeded}, 503, "unavailable"},
		{errors.Join(holdover.ErrUnavailable, holdover.ErrUnknownOutcome), 503, "outcome-unknown"},
		{context.DeadlineExceeded, 503, "outcome-unknown"},
		{context.Canceled, 503, "outcome-unknown"},
		{holdover.ErrOverloaded, 503, "overloaded"},
		{holdover.ErrNotReady, 503, "not-ready"},
		{fmt.Errorf("%w: %w", holdover.ErrNotReady, context.DeadlineExceeded), 503, "not-ready"},
		{holdover.ErrTryAgain, 503, "try-again"},
		{errors.New("secret cause"), 500, "internal"},
	} {
		for _, path := range []string{"", "/" + token + "/claim", "/" + token + "/release"} {
			t.Run(fmt.Sprintf("%s %v", path, c.err), func(t *testing.T) {
				s := serve(t, func(c *httpapi.Config) { c.RetryAfter = 1500 * time.Millisecond })
				s.reserver.do = func(context.Context, string) (holdover.Result, error) {
					return holdover.Result{Decision: decision}, c.err
				}
				body := ""
				if path == "" {
					body = good
				}
				resp, p := s.problem(t, "POST", reservations+path, body)
				if p.Status != c.status || p.Type != "urn:holdover:"+c.kind {
					t.Errorf("got %d %s", p.Status, p.Type)
				}
				if p.Decision == nil || *p.Decision != shown {
					t.Errorf("the decision is %+v", p.Decision)
				}
				if p.Do == "" {
					t.Error("it doesn't say what to do")
				}
				want := ""
				if c.status == 503 {
					want = "2"
				}
				if got := resp.Header.Get("Retry-After"); got != want {
					t.Errorf("Retry-After is %q", got)
				}
				if c.status == 500 {
					if strings.Contains(p.Error(), "secret cause") || !strings.HasPrefix(p.Instance, "urn:uuid:") || !strings.Contains(s.logs.String(), p.Instance) || !strings.Contains(s.logs.String(), "secret cause") {
						t.Errorf("the cause belongs into the log, under the instance: %s; log: %s", p.Error(), s.logs.String())
					}
				} else if p.Detail != c.err.Error() && c.kind != "outcome-unknown" {
					t.Errorf("detail is %q", p.Detail)
				}
			})
		}
	}
}

func TestProblemsCarryTheirFacts(t *testing.T) {
	s := serve(t, nil)
	short := []holdover.Shortage{{Item: 7, Group: 1, Want: 2, Left: 1}, {Item: 8, Group: 3, Want: 9, Left: 0}}
	s.reserver.do = func(context.Context, string) (holdover.Result, error) {
		return holdover.Result{}, &holdover.OutOfStockError{Store: holdover.StoreRedis, Shop: 5, Short: short}
	}
	_, p := s.problem(t, "POST", reservations, good)
	if len(p.Short) != 2 || p.Short[0] != short[0] || p.Short[1] != short[1] {
		t.Errorf("what is left: %+v", p.Short)
	}
	if p.Decision == nil || p.Decision.Pod != "a" {
		t.Errorf("a decision without a pod gets the pod's name: %+v", p.Decision)
	}
	s.reserver.do = func(context.Context, string) (holdover.Result, error) {
		return holdover.Result{}, &holdover.EndedError{State: holdover.StateExpired}
	}
	if _, p = s.problem(t, "POST", reservations+"/"+token+"/claim", ""); p.State != "expired" {
		t.Errorf("how it ended: %q", p.State)
	}
	s.reserver.do = func(context.Context, string) (holdover.Result, error) {
		return holdover.Result{}, &holdover.LateClaimError{Store: holdover.StoreRedis, Shop: 5, Short: short}
	}
	if _, p = s.problem(t, "POST", reservations+"/"+token+"/claim", ""); p.State != "expired" || len(p.Short) != 2 || p.Short[1] != short[1] {
		t.Errorf("of a late claim: %q, %+v", p.State, p.Short)
	}
	s.reserver.do = func(context.Context, string) (holdover.Result, error) {
		return holdover.Result{Decision: decision}, &holdover.InvalidError{Field: "lines", Value: "item 7 at group 1", Problem: "is not in the hold"}
	}
	if _, p = s.problem(t, "POST", reservations+"/"+token+"/claim", `{"lines":[{"item_id":7,"group_id":1,"quantity":1}]}`); len(p.Errors) != 1 || p.Errors[0].Field != "body.lines" || p.Decision == nil {
		t.Errorf("what is no part of the hold: %+v", p)
	}
}

func TestPanicIsAProblem(t *testing.T) {
	s := serve(t, nil)
	s.reserver.do = func(context.Context, string) (holdover.Result, error) { panic("out of paper") }
	_, p := s.problem(t, "POST", reservations, good)
	if p.Status != 500 || !strings.Contains(p.Do, "same token") || strings.Contains(p.Error(), "paper") {
		t.Errorf("got %+v", p)
	}
	log := s.logs.String()
	if !strings.Contains(log, "out of paper") || !strings.Contains(log, p.Instance) || !strings.Contains(log, "problem_test.go") {
		t.Errorf("the log needs cause, instance and stack: %s", log)
	}
	if n := s.panics.Load(); n != 1 {
		t.Errorf("counted %d", n)
	}
	// The server goes on.
	s.reserver.do = func(context.Context, string) (holdover.Result, error) { return holdover.Result{}, nil }
	if resp, b := s.call(t, "POST", reservations, good); resp.StatusCode != 201 {
		t.Errorf("afterwards: %d %s", resp.StatusCode, b)
	}
}
