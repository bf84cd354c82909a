package holdover

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"time"
)

// Token names a hold and is its idempotency key: 128 bits chosen by the
// caller, written as a UUID.
type Token [16]byte

// NewToken returns a random token (a version 4 UUID).
func NewToken() Token {
	var t Token
	_, _ = rand.Read(t[:]) // crypto/rand.Read never fails
	t[6] = t[6]&0x0f | 0x40
	t[8] = t[8]&0x3f | 0x80
	return t
}

// ParseToken reads a UUID in its canonical form of 36 characters.
func ParseToken(s string) (Token, error) {
	var t Token
	bad := &InvalidError{Field: "token", Value: clip(s), Problem: "is not a UUID like 123e4567-e89b-42d3-a456-426614174000"}
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return t, bad
	}
	digits := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	if _, err := hex.Decode(t[:], []byte(digits)); err != nil || t == (Token{}) {
		return Token{}, bad
	}
	return t, nil
}

func (t Token) String() string {
	h := hex.EncodeToString(t[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// MarshalText writes the token as a UUID.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads a UUID.
func (t *Token) UnmarshalText(b []byte) (err error) {
	*t, err = ParseToken(string(b))
	return err
}

// Line asks for Quantity units of an item at one location (group).
type Line struct {
	Item     int64 `json:"item_id"`
	Group    int64 `json:"group_id"`
	Quantity int64 `json:"quantity"`
}

// State is how far a hold has come. It ends exactly once.
type State uint8

// The states of a hold. Claiming is Redis's mark that a claim has begun: such
// a hold neither expires nor can be released.
const (
	StateNone State = iota // the store does not know the token
	StateHeld
	StateClaiming
	StateClaimed
	StateReleased
	StateExpired
)

var stateNames = [...]string{"none", "held", "claiming", "claimed", "released", "expired"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// MarshalText writes the state by its name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state by its name.
func (s *State) UnmarshalText(b []byte) (err error) {
	*s, err = ParseState(string(b))
	return err
}

// ParseState reads a state by its name.
func ParseState(name string) (State, error) {
	for i, n := range stateNames {
		if n == name {
			return State(i), nil
		}
	}
	return StateNone, &InvalidError{Field: "state", Value: clip(name), Problem: "is not the state of a hold"}
}

// Live reports whether the hold still has units: held or claiming.
func (s State) Live() bool { return s == StateHeld || s == StateClaiming }

// Ended reports whether the hold is over.
func (s State) Ended() bool { return s == StateClaimed || s == StateReleased || s == StateExpired }

// Request asks for all of its lines and choices or nothing, for TTL from now by
// the deciding store's clock. The same token with the same lines is the same
// reservation; with the same choices too, wherever their units were found.
type Request struct {
	Shop    int64
	Token   Token
	Lines   []Line
	Choices []Choice // lines whose location the store picks
	TTL     time.Duration
}

// Hold is what a store knows of a token.
type Hold struct {
	Token     Token     `json:"token"`
	Shop      int64     `json:"shop_id"`
	Lines     []Line    `json:"lines"`
	State     State     `json:"state"`
	ExpiresAt time.Time `json:"expires_at"` // absolute, by the clock of the store that granted it; copied, never recomputed
	GrantedAt time.Time `json:"granted_at"`
	Attempt   Attempt   `json:"-"` // the attempt that took it
	Firm      bool      `json:"-"` // confirmed by an answer, a replay, a copy or a fact: no give-back can undo it
	Again     bool      `json:"-"` // the step that returned it found it this way and changed nothing
	Missing   bool      `json:"-"` // the step that returned it did not know the hold before
	// Claimed is what a claim took when it was a part of Lines only; the rest
	// was given back with it. Nil: all of Lines.
	Claimed []Line `json:"claimed,omitempty"`
	// Late is the token under which the units of this expired hold were taken
	// again and claimed: the ledger's entries are under it. See Token.Late. Zero:
	// claimed in time, or not at all.
	Late Token `json:"late_token,omitzero"`
}

// Part is what a claim of the hold takes, or took, out of the ledger.
func (h Hold) Part() []Line {
	if h.Claimed != nil {
		return h.Claimed
	}
	return h.Lines
}

// Rest is what a claim of a part gives back: Lines less Claimed.
func (h Hold) Rest() []Line {
	if h.Claimed == nil {
		return nil
	}
	var rest []Line
	for _, l := range h.Lines {
		for _, c := range h.Claimed {
			if c.Item == l.Item && c.Group == l.Group {
				l.Quantity -= c.Quantity
			}
		}
		if l.Quantity > 0 {
			rest = append(rest, l)
		}
	}
	return rest
}

// PartOf normalizes the lines of a claim against the hold's: nil when they are
// all of it. The error is an *InvalidError when they are no part of it.
func (h Hold) PartOf(lines []Line) ([]Line, error) {
	if len(lines) == 0 {
		return nil, nil
	}
	part, err := normalLines(lines, Limits{MaxQuantity: math.MaxInt64, MaxLines: math.MaxInt}.withDefaults())
	if err != nil {
		return nil, err
	}
	for _, p := range part {
		i := slices.IndexFunc(h.Lines, func(l Line) bool { return l.Item == p.Item && l.Group == p.Group })
		switch {
		case i < 0:
			return nil, invalid("lines", fmt.Sprintf("item %d at group %d", p.Item, p.Group), "is not in the hold: a claim takes a part of it")
		case p.Quantity > h.Lines[i].Quantity:
			return nil, invalid("lines", fmt.Sprintf("item %d at group %d: %d units", p.Item, p.Group, p.Quantity), fmt.Sprintf("is more than the %d units of the hold", h.Lines[i].Quantity))
		}
	}
	if SameLines(part, h.Lines) {
		return nil, nil
	}
	return part, nil
}

// Grant is a store's yes to a vote.
type Grant struct {
	Hold      Hold
	Replayed  bool    // the hold was there already
	Remaining []int64 // units left per line of Hold.Lines after this grant; nil when the store does not say
}

// Copied is Redis's side of copying a grant of MySQL's.
type Copied struct {
	Hold       Hold
	Replayed   bool
	WouldGrant bool    // what a vote would have answered before the copy
	Remaining  []int64 // the counter of each line's item afterwards; may be below zero
}

// Result is what a caller is told. Decision is filled in on errors too.
type Result struct {
	Hold     Hold
	Replayed bool // the same answer was given before
	Pending  bool // a claim that is marked and will be applied exactly once when the ledger is back
	Decision Decision
}

// Decision says who decided, under which agreement, and why.
type Decision struct {
	Pod    string `json:"pod"`
	Stage  Stage  `json:"stage"`
	Epoch  Epoch  `json:"epoch"`
	Store  Store  `json:"store"`
	Reason string `json:"reason"`
}

// Limits bound what a request may ask for. A zero field means the default.
type Limits struct {
	MaxLines    int           // lines of one cart; 200
	MaxQuantity int64         // units of one line; 1,000,000
	MinTTL      time.Duration // 100 ms
	MaxTTL      time.Duration // 24 h
	MaxLife     time.Duration // of a hold from its grant, extensions included; 48 h, at least MaxTTL
	MaxGroups   int           // locations of one choice; 32

	NoLateClaims bool // a claim of an expired hold is refused even if its units are still there; false
}

func (l Limits) withDefaults() Limits {
	if l.MaxLines == 0 {
		l.MaxLines = 200
	}
	if l.MaxQuantity == 0 {
		l.MaxQuantity = 1_000_000
	}
	if l.MinTTL == 0 {
		l.MinTTL = 100 * time.Millisecond
	}
	if l.MaxTTL == 0 {
		l.MaxTTL = 24 * time.Hour
	}
	if l.MaxLife == 0 {
		l.MaxLife = max(48*time.Hour, l.MaxTTL)
	}
	if l.MaxGroups == 0 {
		l.MaxGroups = 32
	}
	return l
}

// Normalize checks r against the limits and returns it with its lines in the
// one order that every store uses: by item, then group, one line each, with
// the quantities of repeated lines added up. A choice of one group becomes a
// line. The error is an *InvalidError.
func (r Request) Normalize(l Limits) (Request, error) {
	l = l.withDefaults()
	switch {
	case r.Shop <= 0:
		return r, invalid("shop_id", r.Shop, "must be a positive number")
	case r.Token == Token{}:
		return r, invalid("token", "", "is missing: choose a random UUID for each reservation")
	case len(r.Lines)+len(r.Choices) == 0:
		return r, invalid("lines", 0, "must have at least one line")
	case len(r.Lines)+len(r.Choices) > l.MaxLines:
		return r, invalid("lines", len(r.Lines)+len(r.Choices), fmt.Sprintf("has more than the limit of %d lines", l.MaxLines))
	case r.TTL < l.MinTTL || r.TTL > l.MaxTTL:
		return r, invalid("ttl", r.TTL, fmt.Sprintf("must be between %s and %s", l.MinTTL, l.MaxTTL))
	}
	if len(r.Choices) > 0 {
		if err := r.normalChoices(l); err != nil {
			return r, err
		}
	}
	lines, err := normalLines(r.Lines, l)
	if err != nil {
		return r, err
	}
	r.Lines = lines
	return r, nil
}

// normalLines sorts lines and adds up those of one item at one group.
func normalLines(lines []Line, l Limits) ([]Line, error) {
	lines = slices.Clone(lines)
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(cmp.Compare(a.Item, b.Item), cmp.Compare(a.Group, b.Group))
	})
	merged := lines[:0]
	for _, line := range lines {
		switch {
		case line.Item <= 0:
			return nil, invalid("item_id", line.Item, "must be a positive number")
		case line.Group <= 0:
			return nil, invalid("group_id", line.Group, "must be a positive number")
		case line.Quantity <= 0:
			return nil, invalid("quantity", line.Quantity, "must be a positive number")
		case line.Quantity > l.MaxQuantity:
			return nil, invalid("quantity", line.Quantity, fmt.Sprintf("is over the limit of %d units a line", l.MaxQuantity))
		}
		if n := len(merged); n > 0 && merged[n-1].Item == line.Item && merged[n-1].Group == line.Group {
			if line.Quantity > l.MaxQuantity-merged[n-1].Quantity {
				return nil, invalid("quantity", line.Quantity, fmt.Sprintf("takes item %d over the limit of %d units: its lines are added up", line.Item, l.MaxQuantity))
			}
			merged[n-1].Quantity += line.Quantity
			continue
		}
		merged = append(merged, line)
	}
	return merged, nil
}

// CheckExtension checks a time to live that a hold is to be extended by, and
// returns how long it may live from its grant.
func (l Limits) CheckExtension(ttl time.Duration) (life time.Duration, err error) {
	l = l.withDefaults()
	if ttl < l.MinTTL || ttl > l.MaxTTL {
		return 0, invalid("ttl", ttl, fmt.Sprintf("must be between %s and %s", l.MinTTL, l.MaxTTL))
	}
	return l.MaxLife, nil
}

// SameLines reports whether two normalized line lists are equal: the test of
// "the same token with other lines".
func SameLines(a, b []Line) bool { return slices.Equal(a, b) }

func clip(s string) string {
	if len(s) > 64 {
		return s[:61] + "..."
	}
	return s
}
