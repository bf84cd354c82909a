package holdover

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// ErrAdjustRefused: there are not enough units that nobody holds to take away;
// see *AdjustRefusedError.
var ErrAdjustRefused = errors.New("the adjustment was refused")

// MaxUnits is the most units that a location can have: Redis's scripts count
// exactly up to here.
const MaxUnits = 1 << 53

// Bounds of what people write into an adjustment.
const (
	maxReason = 500
	maxBy     = 100
)

// Adjustment changes what the ledger owns of one item at one location: a
// restock, a correction, a count. The same token with the same change is the
// same adjustment, and is answered as it was the first time.
type Adjustment struct {
	Token Token `json:"token"`
	Shop  int64 `json:"shop_id"`
	Item  int64 `json:"item_id"`
	Group int64 `json:"group_id"`
	// Delta is how many units to add or, below zero, to take away. With Set it
	// is zero.
	Delta int64 `json:"delta,omitempty"`
	// Set is how many units the ledger shall have, live holds included, at the
	// moment of the change.
	Set *int64 `json:"set,omitempty"`
	// Clamp takes away as many as nobody holds, where the adjustment would be
	// refused without it.
	Clamp  bool   `json:"clamp,omitempty"`
	Reason string `json:"reason"` // why; kept with it
	By     string `json:"by"`     // who; kept with it
}

// Validate says what is wrong with a, as an *InvalidError.
func (a Adjustment) Validate() error {
	switch {
	case a.Token == Token{}:
		return invalid("token", "", "is missing: choose a random UUID for each adjustment")
	case a.Shop <= 0:
		return invalid("shop_id", a.Shop, "must be a positive number")
	case a.Item <= 0:
		return invalid("item_id", a.Item, "must be a positive number")
	case a.Group <= 0:
		return invalid("group_id", a.Group, "must be a positive number")
	case a.Set != nil && a.Delta != 0:
		return invalid("delta", a.Delta, "can't be given together with set")
	case a.Set == nil && a.Delta == 0:
		return invalid("delta", a.Delta, "is zero: give the units to add, or below zero to take away, or set")
	case a.Delta > MaxUnits || a.Delta < -MaxUnits:
		return invalid("delta", a.Delta, "is more than 2^53 units")
	case a.Set != nil && (*a.Set < 0 || *a.Set > MaxUnits):
		return invalid("set", *a.Set, "must be from 0 to 2^53")
	}
	if err := checkText("reason", a.Reason, maxReason); err != nil {
		return err
	}
	return checkText("by", a.By, maxBy)
}

func checkText(field, text string, most int) error {
	switch {
	case strings.TrimSpace(text) == "":
		return invalid(field, text, "is missing: it is kept with the change")
	case !utf8.ValidString(text) || utf8.RuneCountInString(text) > most:
		return invalid(field, text, fmt.Sprintf("must be text of at most %d characters", most))
	}
	return nil
}

// Wanted is the change that a asks for where the ledger has available units.
func (a Adjustment) Wanted(available int64) int64 {
	if a.Set != nil {
		return *a.Set - available
	}
	return a.Delta
}

// Content writes what a changes, without who and why: two adjustments with one
// token must agree in it.
func (a Adjustment) Content() string {
	change := fmt.Sprintf("add:%d", a.Delta)
	if a.Set != nil {
		change = fmt.Sprintf("set:%d", *a.Set)
	}
	return fmt.Sprintf("%d:%d:%d:%s:%t", a.Shop, a.Item, a.Group, change, a.Clamp)
}

// AdjustTerms is what the caller of MySQL's step knows of Redis. The zero value
// stands for a MySQL alone.
type AdjustTerms struct {
	// Redis says that the pod's Redis has to follow.
	Redis bool
	// Lowered units have left Redis's counter already: no more are taken away.
	Lowered int64
	// Free is how many units nobody held, as far as Redis has a say: for a refusal.
	Free int64
}

// Lowered is what Redis has given up for an adjustment that MySQL has not
// decided yet.
type Lowered struct {
	Adjustment
	Units int64 // have left the counter
	Free  int64 // units that nobody held, as far as Redis has a say
}

// Adjusted is an adjustment as it was decided, once for its token.
type Adjusted struct {
	Adjustment
	Refused   bool      `json:"refused"`   // too many of the units are held
	Changed   int64     `json:"changed"`   // what was added to the ledger; less than asked for with Clamp
	Available int64     `json:"available"` // the ledger afterwards, live holds included
	Free      int64     `json:"free"`      // with Refused: how many could have been taken away
	Owed      bool      `json:"owed"`      // Redis has not followed yet
	At        time.Time `json:"at"`        // MySQL's clock
	Replayed  bool      `json:"replayed"`  // decided by an earlier call
}

// Err is nil, or the refusal.
func (a Adjusted) Err() error {
	if !a.Refused {
		return nil
	}
	return &AdjustRefusedError{Token: a.Token, Shop: a.Shop, Item: a.Item, Group: a.Group, Wanted: -a.Wanted(a.Available), Available: a.Available, Free: a.Free}
}

// AdjustRefusedError says how much could be taken away, and what is held. It
// matches ErrAdjustRefused.
type AdjustRefusedError struct {
	Token             Token
	Shop, Item, Group int64
	Wanted            int64 // units that were to be taken away
	Available         int64 // in the ledger
	Free              int64 // of them nobody holds
}

func (e *AdjustRefusedError) Error() string {
	return fmt.Sprintf("adjustment %s: %d units of shop %d, item %d at group %d were to be taken away, the ledger has %d and %d of them are free: "+
		"take away no more, clamp, or wait until holds end, with a new token", e.Token, e.Wanted, e.Shop, e.Item, e.Group, e.Available, e.Free)
}

// Unwrap makes it match ErrAdjustRefused.
func (e *AdjustRefusedError) Unwrap() error { return ErrAdjustRefused }
