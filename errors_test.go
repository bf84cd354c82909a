package holdover_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdover"
)

// sentinels are all of errors.go.
var sentinels = map[string]error{
	"ErrOutOfStock": holdover.ErrOutOfStock, "ErrTokenReused": holdover.ErrTokenReused, "ErrAlreadyClaimed": holdover.ErrAlreadyClaimed,
	"ErrEnded": holdover.ErrEnded, "ErrUnknownHold": holdover.ErrUnknownHold, "ErrClaimPending": holdover.ErrClaimPending,
	"ErrInvalid": holdover.ErrInvalid, "ErrNotLoaded": holdover.ErrNotLoaded, "ErrStale": holdover.ErrStale,
	"ErrNoFence": holdover.ErrNoFence, "ErrUnavailable": holdover.ErrUnavailable, "ErrUnknownOutcome": holdover.ErrUnknownOutcome,
	"ErrOverloaded": holdover.ErrOverloaded, "ErrNotReady": holdover.ErrNotReady, "ErrTryAgain": holdover.ErrTryAgain,
}

// A caller branches on the sentinels, so each typed error matches exactly its
// own, also when it is wrapped.
func TestTypedErrorsMatchTheirSentinel(t *testing.T) {
	token := holdover.Token{0: 0xab, 15: 1}
	cause := context.DeadlineExceeded
	for _, c := range []struct {
		err   error
		want  []string // sentinels
		texts []string // what an operator needs from the message
	}{
		{&holdover.OutOfStockError{Store: holdover.StoreMySQL, Shop: 7, Short: []holdover.Shortage{{Item: 3, Group: 4, Want: 5, Left: 1}, {Item: 8, Group: 9, Want: 2}}},
			[]string{"ErrOutOfStock"}, []string{"mysql", "shop 7", "item 3 at group 4: 5 wanted, 1 left", "item 8 at group 9: 2 wanted, 0 left"}},
		{&holdover.EndedError{Token: token, State: holdover.StateExpired}, []string{"ErrEnded"}, []string{token.String(), "expired"}},
		{&holdover.InvalidError{Field: "quantity", Value: "-1", Problem: "must be a positive number"}, []string{"ErrInvalid"}, []string{`quantity "-1" must be`}},
		{&holdover.InvalidError{Field: "token", Problem: "is missing"}, []string{"ErrInvalid"}, []string{"token is missing"}},
		{&holdover.StaleError{Store: holdover.StoreRedis, Asked: 4, Fence: holdover.Fence{Epoch: 6, Stage: holdover.StageShadow, Latched: true, By: "ada", Reason: "errors"}},
			[]string{"ErrStale"}, []string{"redis", "epoch 4", "shadow at epoch 6, latched", "ada", "errors"}},
		{&holdover.StoreError{Store: holdover.StoreMySQL, Pod: "eu-1", Op: "vote", Token: token, Err: cause},
			[]string{"ErrUnavailable"}, []string{"mysql of pod eu-1", "vote", token.String(), cause.Error()}},
		{&holdover.StoreError{Store: holdover.StoreMySQL, Pod: "eu-1", Op: "vote", Token: token, Unknown: true, Err: cause},
			[]string{"ErrUnknownOutcome"}, []string{"may have happened", "look the token up"}},
		{holdover.EndError(token, holdover.StateClaimed), []string{"ErrAlreadyClaimed"}, []string{token.String()}},
		{holdover.EndError(token, holdover.StateReleased), []string{"ErrEnded"}, []string{"released"}},
	} {
		wrapped := fmt.Errorf("pod eu-1: %w", c.err)
		for name, sentinel := range sentinels {
			want := false
			for _, w := range c.want {
				want = want || w == name
			}
			if errors.Is(c.err, sentinel) != want || errors.Is(wrapped, sentinel) != want {
				t.Errorf("%T %q: matching %s is %v, want %v", c.err, c.err, name, !want, want)
			}
		}
		for _, text := range c.texts {
			if !strings.Contains(c.err.Error(), text) {
				t.Errorf("%T says %q, without %q", c.err, c.err, text)
			}
		}
	}
}

func TestTypedErrorsAreFoundWhenWrapped(t *testing.T) {
	wrap := func(err error) error { return errors.Join(errors.New("another"), fmt.Errorf("during a call: %w", err)) }
	var (
		short   *holdover.OutOfStockError
		ended   *holdover.EndedError
		invalid *holdover.InvalidError
		stale   *holdover.StaleError
		store   *holdover.StoreError
	)
	for _, c := range []struct {
		err    error
		target any
	}{
		{&holdover.OutOfStockError{Shop: 1}, &short},
		{&holdover.EndedError{State: holdover.StateReleased}, &ended},
		{&holdover.InvalidError{Field: "x"}, &invalid},
		{&holdover.StaleError{Asked: 3}, &stale},
		{&holdover.StoreError{Pod: "p", Err: context.Canceled}, &store},
	} {
		if !errors.As(wrap(c.err), c.target) {
			t.Errorf("%T is not found when it is wrapped", c.err)
		} else if found := reflect.ValueOf(c.target).Elem().Interface(); found != any(c.err) {
			t.Errorf("found %v instead of %v", found, c.err)
		}
	}
	if cause := wrap(&holdover.StoreError{Err: context.DeadlineExceeded}); !errors.Is(cause, context.DeadlineExceeded) {
		t.Error("the driver's error is lost")
	}
}

func TestEndErrorOfALiveHoldIsNone(t *testing.T) {
	for _, s := range []holdover.State{holdover.StateNone, holdover.StateHeld, holdover.StateClaiming} {
		if err := holdover.EndError(holdover.NewToken(), s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestNoAnswer(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&holdover.StoreError{Err: context.DeadlineExceeded}, true},
		{&holdover.StoreError{Unknown: true, Err: context.DeadlineExceeded}, true},
		{fmt.Errorf("call: %w", holdover.ErrUnavailable), true},
		{nil, false},
		{&holdover.OutOfStockError{}, false},
		{&holdover.StaleError{}, false},
		{holdover.ErrNoFence, false}, // an answer: there is none
		{context.DeadlineExceeded, false},
	} {
		if got := holdover.NoAnswer(c.err); got != c.want {
			t.Errorf("NoAnswer(%v) = %v", c.err, got)
		}
	}
}

// What a caller sent is repeated shortened: a message is for a log line.
func TestErrorsDoNotRepeatLongInput(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	_, tokenErr := holdover.ParseToken(long)
	_, stateErr := holdover.ParseState(long)
	_, stageErr := holdover.ParseStage(long)
	storeErr := new(holdover.Store).UnmarshalText([]byte(long))
	for what, err := range map[string]error{"token": tokenErr, "state": stateErr, "stage": stageErr, "store": storeErr} {
		if err == nil || len(err.Error()) > 300 {
			t.Errorf("%s: the error has %d bytes", what, len(fmt.Sprint(err)))
		}
	}
	r := holdover.Request{Shop: 1, Token: holdover.NewToken(), TTL: time.Minute, Lines: make([]holdover.Line, 5000)}
	if _, err := r.Normalize(holdover.Limits{}); err == nil || len(err.Error()) > 300 {
		t.Errorf("too many lines: the error has %d bytes", len(fmt.Sprint(err)))
	}
}
