package holdover

import (
	"fmt"
	"time"
)

// Store names one of the two stores.
type Store uint8

// The stores. The zero Store is neither.
const (
	StoreNone Store = iota
	StoreRedis
	StoreMySQL
)

func (s Store) String() string {
	switch s {
	case StoreRedis:
		return "redis"
	case StoreMySQL:
		return "mysql"
	default:
		return "none"
	}
}

// MarshalText writes the store by its name.
func (s Store) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a store by its name.
func (s *Store) UnmarshalText(b []byte) error {
	switch string(b) {
	case "redis":
		*s = StoreRedis
	case "mysql":
		*s = StoreMySQL
	case "none":
		*s = StoreNone
	default:
		return &InvalidError{Field: "store", Value: clip(string(b)), Problem: "is not a store: want redis or mysql"}
	}
	return nil
}

// Epoch numbers the agreements of a pod; it only grows. Zero means "no fence"
// and is used by a store that stands alone, outside any migration.
type Epoch uint64

// Attempt identifies one try of one call, beside its token: a give-back undoes
// only what the same attempt did. Zero is no attempt.
type Attempt uint64

// Ticket is what a caller shows to a store that decides: the epoch it believes
// in, which the store checks, and its attempt.
type Ticket struct {
	Epoch   Epoch
	Attempt Attempt
}

// Fence is what the instances of a pod agree on, kept in the pod's Redis and
// in its MySQL. When the two differ, the larger epoch is agreed.
type Fence struct {
	Pod     string    `json:"pod"`
	Epoch   Epoch     `json:"epoch"`
	Stage   Stage     `json:"stage"`
	Latched bool      `json:"latched"` // the flag is ignored until somebody restores
	By      string    `json:"by"`      // who changed it last
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"` // by the clock of the store that holds it
}

func (f Fence) String() string {
	latched := ""
	if f.Latched {
		latched = ", latched"
	}
	return fmt.Sprintf("%s at epoch %d%s (by %s: %s)", f.Stage, f.Epoch, latched, f.By, f.Reason)
}

// Instance is one running process as the pod's Redis knows it.
type Instance struct {
	Name  string        `json:"name"` // as configured
	ID    string        `json:"id"`   // random at each start: two processes with one name are told apart
	Epoch Epoch         `json:"epoch"`
	Seen  time.Time     `json:"seen"` // last heartbeat, Redis's clock
	Age   time.Duration `json:"age_ns"`
	Busy  int64         `json:"busy"`  // mirror work in its lanes, unmirrored tokens and debts in its memory
	Debts int64         `json:"debts"` // of them: units that MySQL does not have, which is no lag
}

// Journaled is one row of MySQL's list of unmirrored facts: what the buyer was
// told and Redis does not have yet.
type Journaled struct {
	Hold    Hold
	Version uint64    // a drain deletes only the version that it applied
	Since   time.Time // MySQL's clock
}

// Stock is what the pool knows of one item at one location. Conservation:
// Available >= Issued, and Issued = Pooled + Held.
type Stock struct {
	Shop      int64 `json:"shop_id"`
	Item      int64 `json:"item_id"`
	Group     int64 `json:"group_id"`
	Available int64 `json:"available"` // ledger: sellable and not yet claimed, holds included
	Issued    int64 `json:"issued"`    // units taken out of the ledger's headroom: pool rows + held
	Pooled    int64 `json:"pooled"`    // rows in the pool
	Held      int64 `json:"held"`      // units in live holds
}

// Free is how many units a reserve could still get: the ledger less the holds.
func (s Stock) Free() int64 { return s.Available - s.Issued + s.Pooled }

// Standing is what one store has of a shop's items at one moment, hold by hold.
type Standing struct {
	Counters []int64        // Redis's, in the order of the items
	Stocks   []Stock        // MySQL's, one for each location
	Held     []StandingHold // of each live hold, each of its lines of these items
	Claiming []StandingHold // Redis's, of claims that are marked: out of the counter too
	Owed     []StandingHold // MySQL's, of holds that Redis granted and MySQL could not place
}

// StandingHold is what a hold has of an item.
type StandingHold struct {
	Token Token
	Item  int64
	Units int64
}
