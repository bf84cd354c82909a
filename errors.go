package holdover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Sentinels: one sentence each, matched with errors.Is.
var (
	// ErrOutOfStock: the truth has fewer units than asked for; see *OutOfStockError.
	ErrOutOfStock = errors.New("out of stock")
	// ErrTokenReused: the token stands for other lines, or for another shop.
	ErrTokenReused = errors.New("the token was used for other lines: repeat the call with those, or look the token up; a new reservation needs a new token")
	// ErrAlreadyClaimed: the hold was claimed; it can't be reserved or released again.
	ErrAlreadyClaimed = errors.New("the hold is already claimed")
	// ErrEnded: the hold was released or has expired; see *EndedError.
	ErrEnded = errors.New("the hold has ended")
	// ErrUnknownHold: the store has no hold and no end record for the token.
	ErrUnknownHold = errors.New("no hold with this token")
	// ErrClaimPending: a claim of this hold has begun; it can't be released meanwhile.
	// Only the claim's own answer promises that it will be applied.
	ErrClaimPending = errors.New("a claim of this hold is under way")
	// ErrInvalid: the request itself is wrong; see *InvalidError. Nothing was written.
	ErrInvalid = errors.New("invalid request")
	// ErrNotLoaded: the store has no stock record for an item, which is neither zero nor full.
	ErrNotLoaded = errors.New("stock is not loaded")
	// ErrStale: the store's fence is at another epoch; see *StaleError. Nothing was written.
	ErrStale = errors.New("stale epoch")
	// ErrNoFence: the store has no fence: never initialized, or it lost its data.
	ErrNoFence = errors.New("no fence")
	// ErrUnavailable: a store could not be reached and nothing was promised; see *StoreError.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUnknownOutcome: a write may or may not have happened; look the token up, or repeat the call with it.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrOverloaded: a bounded queue is full; come back later.
	ErrOverloaded = errors.New("overloaded")
	// ErrNotReady: the pod has no agreed stage to act on.
	ErrNotReady = errors.New("not ready")
	// ErrTryAgain: the store is overbooked or in the middle of a change and votes on nothing now.
	ErrTryAgain = errors.New("try again")
)

// Shortage says what is missing on one line.
type Shortage struct {
	Item  int64 `json:"item_id"`
	Group int64 `json:"group_id"` // zero: none of the groups that a choice lists
	Want  int64 `json:"wanted"`
	Left  int64 `json:"left"` // never below zero
}

// OutOfStockError is a refusal by the truth. It matches ErrOutOfStock.
type OutOfStockError struct {
	Store Store
	Shop  int64
	Short []Shortage
}

func (e *OutOfStockError) Error() string {
	parts := make([]string, len(e.Short))
	for i, s := range e.Short {
		where := fmt.Sprintf("at group %d", s.Group)
		if s.Group == 0 {
			where = "at any listed group"
		}
		parts[i] = fmt.Sprintf("item %d %s: %d wanted, %d left", s.Item, where, s.Want, s.Left)
	}
	return fmt.Sprintf("out of stock in %s, shop %d: %s", e.Store, e.Shop, strings.Join(parts, "; "))
}

// Items are those that are short.
func (e *OutOfStockError) Items() []int64 {
	items := make([]int64, len(e.Short))
	for i, s := range e.Short {
		items[i] = s.Item
	}
	return items
}

// IsOutdated reports whether stocks, read after the refusal, have enough for
// every shortage: units came back meanwhile, and asking again may grant.
func (e *OutOfStockError) IsOutdated(stocks []Stock) bool {
	return !slices.ContainsFunc(e.Short, func(s Shortage) bool {
		return !slices.ContainsFunc(stocks, func(st Stock) bool {
			return st.Item == s.Item && st.Group == s.Group && st.Free() >= s.Want
		})
	})
}

// Unwrap makes it match ErrOutOfStock.
func (e *OutOfStockError) Unwrap() error { return ErrOutOfStock }

// EndedError says how a hold ended (released or expired). It matches ErrEnded.
type EndedError struct {
	Token Token
	State State
}

func (e *EndedError) Error() string {
	return fmt.Sprintf("hold %s has ended: %s", e.Token, e.State)
}

// Unwrap makes it match ErrEnded.
func (e *EndedError) Unwrap() error { return ErrEnded }

// EndError is the error that a hold in state s gives to somebody who wants to
// reserve or claim it: nil while it is live or unknown.
func EndError(token Token, s State) error {
	switch s {
	case StateClaimed:
		return fmt.Errorf("hold %s: %w", token, ErrAlreadyClaimed)
	case StateReleased, StateExpired:
		return &EndedError{Token: token, State: s}
	default:
		return nil
	}
}

// InvalidError names the field, its value and what is wrong with it. It
// matches ErrInvalid.
type InvalidError struct {
	Field, Value, Problem string
}

func (e *InvalidError) Error() string {
	if e.Value == "" {
		return e.Field + " " + e.Problem
	}
	return fmt.Sprintf("%s %q %s", e.Field, e.Value, e.Problem)
}

// Unwrap makes it match ErrInvalid.
func (e *InvalidError) Unwrap() error { return ErrInvalid }

func invalid(field string, value any, problem string) error {
	return &InvalidError{Field: field, Value: clip(fmt.Sprint(value)), Problem: problem}
}

// StaleError is a store's refusal of an epoch, with the fence it has. It
// matches ErrStale.
type StaleError struct {
	Store Store
	Asked Epoch
	Fence Fence
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%s refused epoch %d: its fence is %s", e.Store, e.Asked, e.Fence)
}

// Unwrap makes it match ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// StoreError is a failure of a store during one operation. It matches
// ErrUnknownOutcome when the write may have happened all the same, else
// ErrUnavailable; and the driver's error in both cases.
type StoreError struct {
	Store   Store
	Pod     string
	Op      string // what was being done, like "vote" or "apply claimed"
	Token   Token  // zero when no token is concerned
	Unknown bool   // the write may have happened
	Err     error
}

func (e *StoreError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of pod %s: %s", e.Store, e.Pod, e.Op)
	if e.Token != (Token{}) {
		fmt.Fprintf(&b, " of hold %s", e.Token)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.Unknown {
		b.WriteString(" (it may have happened: look the token up or repeat the call with it)")
	}
	return b.String()
}

// Unwrap gives the sentinel and the cause.
func (e *StoreError) Unwrap() []error {
	if e.Unknown {
		return []error{ErrUnknownOutcome, e.Err}
	}
	return []error{ErrUnavailable, e.Err}
}

// NoAnswer reports whether err means that a store gave no answer: unreachable,
// too slow, or its reply was lost. They look the same.
func NoAnswer(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknownOutcome)
}
