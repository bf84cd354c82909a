package holdover

import "time"

// Op is an operation on a hold.
type Op uint8

// The operations.
const (
	OpReserve Op = iota + 1
	OpClaim
	OpRelease
	OpExpire
	OpExtend
)

var opNames = [...]string{"none", "reserve", "claim", "release", "expire", "extend"}

func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return "unknown"
}

// MarshalText writes the operation by its name.
func (o Op) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Outcome is what one store said to one operation.
type Outcome uint8

// The outcomes. OutcomeNone: the store was not asked.
const (
	OutcomeNone Outcome = iota
	OutcomeGranted
	OutcomeRefused
	OutcomeError   // it failed, and nothing was written
	OutcomeUnknown // it may have been written
	OutcomeShed    // the work was dropped at a bound before the store was asked
)

var outcomeNames = [...]string{"none", "granted", "refused", "error", "unknown", "shed"}

func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}

// MarshalText writes the outcome by its name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Answer is one store's part of an observation.
type Answer struct {
	Outcome   Outcome       `json:"outcome"`
	State     State         `json:"state"`      // of the hold afterwards, where known
	Remaining []int64       `json:"remaining"`  // per line; nil when not known
	Latency   time.Duration `json:"latency_ns"` // the store's own time: no waiting in a lane
	Probe     bool          `json:"probe"`      // read without locking, not a real vote
	Err       string        `json:"err,omitempty"`
}

// Evidence is a recorded fact that may explain a difference. Without evidence
// a difference stays unexplained.
type Evidence uint8

// The kinds of evidence, each recorded by the code that saw it happen.
const (
	EvidenceEpochMoved     Evidence = iota + 1 // the pod's epoch changed while the operation ran
	EvidencePreShadow                          // the hold was granted before dual writing began
	EvidenceMirrorLost                         // the token is unmirrored: its mirror work was dropped or failed
	EvidenceOtherLocations                     // MySQL has the units at other locations of the item
	EvidencePoolShort                          // the pool gave up although the ledger had headroom
	EvidenceLastUnits                          // both stores were within the units of operations in flight
	EvidenceExpiryBetween                      // the hold's expiry passed between the two answers
)

var evidenceNames = [...]string{"none", "epoch-moved", "pre-shadow", "mirror-lost", "other-locations", "pool-short", "last-units", "expiry-between"}

func (e Evidence) String() string {
	if int(e) < len(evidenceNames) {
		return evidenceNames[e]
	}
	return "unknown"
}

// MarshalText writes the evidence by its name.
func (e Evidence) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// Observation is both stores' answers to one operation of a dual stage.
type Observation struct {
	Pod      string     `json:"pod"`
	Instance string     `json:"instance"`
	Epoch    Epoch      `json:"epoch"`
	Stage    Stage      `json:"stage"`
	Op       Op         `json:"op"`
	Shop     int64      `json:"shop_id"`
	Token    Token      `json:"token"`
	Lines    []Line     `json:"lines"`
	At       time.Time  `json:"at"` // when the call began, the instance's clock; for reading, not for deciding
	Redis    Answer     `json:"redis"`
	MySQL    Answer     `json:"mysql"`
	Marks    Marks      `json:"marks,omitempty"` // what was special about the call
	Evidence []Evidence `json:"evidence,omitempty"`
	Proof    *Proof     `json:"proof,omitempty"` // what was read when the evidence was recorded; nil without any
	Reason   string     `json:"reason"`          // the decision's reason, as the buyer's answer carries it
}

// Marks say what was special about a call, as far as only the facade knows it:
// a report says which of them it never saw.
type Marks uint16

// The marks.
const (
	MarkReplayed  Marks = 1 << iota // the token was known: the answer is the first one's
	MarkLate                        // a claim of a hold that had expired
	MarkPart                        // a claim of a part of the hold
	MarkChoice                      // a line named several locations
	MarkSplit                       // a line may be taken from several locations
	MarkMoved                       // the agreement moved while the call ran
	MarkUndecided                   // the answers differed, and the stores never stood still for it to be judged
)

// Has reports whether all of these marks are set.
func (m Marks) Has(which Marks) bool { return m&which == which }

// Proof is what the facade read when it recorded evidence. An explanation
// without the proof that its kind needs explains nothing.
type Proof struct {
	// EpochBegan and EpochEnded are the agreement's when the call began and when
	// its last answer came: for epoch-moved.
	EpochBegan Epoch `json:"epoch_began,omitempty"`
	EpochEnded Epoch `json:"epoch_ended,omitempty"`
	// GrantedAt and DualSince are Redis's times of the hold's grant and of the
	// beginning of dual writing: for pre-shadow.
	GrantedAt time.Time `json:"granted_at,omitzero"`
	DualSince time.Time `json:"dual_since,omitzero"`
	// RedisExpires and MySQLExpires are the hold's expiry as each store has it,
	// and AnsweredAt when the later answer came: for expiry-between.
	RedisExpires time.Time `json:"redis_expires,omitzero"`
	MySQLExpires time.Time `json:"mysql_expires,omitzero"`
	AnsweredAt   time.Time `json:"answered_at,omitzero"`
	// Sides is what both stores had of each item of the call, read together
	// after the difference was seen: for other-locations, pool-short and last-units.
	Sides []ItemSides `json:"sides,omitempty"`
	// Overlapping counts the operations on these items that were under way
	// between the two answers: for last-units.
	Overlapping int64 `json:"overlapping,omitempty"`
	// Cause says what was dropped or failed, and why: for mirror-lost.
	Cause string `json:"cause,omitempty"`
}

// ItemSides is what both stores have of one item.
type ItemSides struct {
	Item  int64   `json:"item_id"`
	Redis int64   `json:"redis"` // the counter
	MySQL []Stock `json:"mysql"` // one for each location
	// Owed is the units of holds that Redis granted and MySQL could not place: by
	// so much MySQL has more than Redis.
	Owed int64 `json:"owed,omitempty"`
	// Passing is the units of holds that were on their way from one store to the
	// other when both were read hold by hold: by so much MySQL had more for a moment.
	Passing int64 `json:"passing,omitempty"`
	// Lasting is by how much MySQL has more whatever buyers do, by two such readings.
	Lasting int64 `json:"lasting,omitempty"`
}
