package workload

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"holdover"
)

// AuditConfig says what the auditor may take for given. Zero fields mean the
// defaults, but for Stock and Stage, which it needs.
type AuditConfig struct {
	Stock []holdover.Stock // what the pod began with; only these shops are looked at
	Stage holdover.Stage   // the pod's agreed stage now: whose holds count

	RedisPrefix     string // of the hold keys
	CounterTemplate string // inventory:<shop>:<item>

	ExpiryMargin time.Duration // a hold may be gone so long before its expiry: clocks and reading time; 1 s
	ReapGrace    time.Duration // an expired hold may still have units for so long; 10 s
	JointLag     time.Duration // in joint one store may be so far behind the other; 2 s

	Readings    int           // of the stores before a difference counts; 5
	Settle      time.Duration // between two readings; 500 ms
	ReadTimeout time.Duration // of one reading; 1 min
	MaxDetails  int           // 50
}

func (c AuditConfig) withDefaults() (AuditConfig, error) {
	set(&c.CounterTemplate, "inventory:<shop>:<item>")
	set(&c.ExpiryMargin, time.Second)
	set(&c.ReapGrace, 10*time.Second)
	set(&c.JointLag, 2*time.Second)
	set(&c.Readings, 5)
	set(&c.Settle, 500*time.Millisecond)
	set(&c.ReadTimeout, time.Minute)
	set(&c.MaxDetails, 50)
	switch {
	case len(c.Stock) == 0:
		return c, errors.New("audit: no initial stock to compare with")
	case c.Stage < holdover.StageRedis || c.Stage > holdover.StageMySQLOnly:
		return c, fmt.Errorf("audit: %s is not a stage whose holds could be looked for", c.Stage)
	case c.Readings < 0 || c.ExpiryMargin < 0 || c.ReapGrace < 0 || c.JointLag < 0 || c.Settle < 0 || c.ReadTimeout < 0:
		return c, errors.New("audit: a number of the configuration is negative")
	}
	return c, nil
}

// Verdict is what the auditor found. OK is true when every fault is zero and
// there was something to judge.
type Verdict struct {
	OK bool `json:"ok"`

	// Faults.
	Oversold       int64 `json:"oversold"`        // units promised beyond the stock, at the worst moment of each item
	LostHolds      int64 `json:"lost_holds"`      // granted, not ended, and not there; or claimed and not deducted
	DoubleClaims   int64 `json:"double_claims"`   // tokens deducted more than once, or for more than they had
	WrongEnds      int64 `json:"wrong_ends"`      // ended otherwise than told, or deducted though nobody claimed
	FalseSoldOut   int64 `json:"false_sold_out"`  // refusals while enough was free all the time
	LedgerOff      int64 `json:"ledger_off"`      // locations whose ledger is not initial stock less deductions, or negative
	CountersOff    int64 `json:"counters_off"`    // Redis counters that are not ledger less live holds
	UnexpectedTold int64 `json:"unexpected_told"` // answers that no buyer may get

	// What it rests on.
	Tokens         int64 `json:"tokens"`
	Refusals       int64 `json:"refusals"`
	MutualRefusals int64 `json:"mutual_refusals"` // true only if other refused carts had the units; not a fault by itself
	Unjudged       int64 `json:"unjudged"`        // refusals that the account did not keep
	Expired        int64 `json:"expired"`         // the account's holds that a store let expire
	StillPending   int64 `json:"still_pending"`   // claims told pending that are marked and not in the ledger yet
	UnknownTokens  int64 `json:"unknown_tokens"`  // reserves without any clear answer
	UnknownKept    int64 `json:"unknown_kept"`    // those of them that a store has as live or claimed
	Deductions     int64 `json:"deductions"`      // ledger entries of the account's tokens
	Foreign        int64 `json:"foreign"`         // deductions of tokens that are not in the account
	Readings       int   `json:"readings"`        // of the stores that it took

	Details []string `json:"details,omitempty"` // the first faults in words
	More    int64    `json:"more,omitempty"`    // faults without a detail
}

// faults adds up everything that must be zero.
func (v *Verdict) faults() int64 {
	return v.Oversold + v.LostHolds + v.DoubleClaims + v.WrongEnds + v.FalseSoldOut +
		v.LedgerOff + v.CountersOff + v.UnexpectedTold
}

func (v *Verdict) detail(limit int, format string, args ...any) {
	if len(v.Details) >= limit {
		v.More++
		return
	}
	v.Details = append(v.Details, fmt.Sprintf(format, args...))
}

// Reading is what the auditor read in the stores of one pod, with its own
// commands. Holds and deductions are those of the stock's shops.
type Reading struct {
	Now    time.Time                // MySQL's clock
	Ledger map[holdover.Stock]int64 // key: shop, item and group alone

	MySQL   map[holdover.Token]StoredHold
	Entries []Entry

	HasRedis bool
	Redis    map[holdover.Token]StoredHold
	Counters map[holdover.Stock]int64 // key: shop and item alone; a missing counter is missing
}

// StoredHold is a hold as a store has it.
type StoredHold struct {
	Shop  int64
	State holdover.State
	Lines []holdover.Line
}

// Entry is one row of the ledger's journal.
type Entry struct {
	Token holdover.Token
	Shop  int64
	Item  int64
	Group int64
	Delta int64  // negative: taken out of the ledger
	Kind  string // an entry of kind "oversold" has no ledger behind it
}

const kindOversold = "oversold"

func sortStock(a, b holdover.Stock) int {
	return cmp.Or(cmp.Compare(a.Shop, b.Shop), cmp.Compare(a.Item, b.Item), cmp.Compare(a.Group, b.Group))
}
