package dualwrite

import (
	"context"
	"time"

	"holdover"
)

// A step at a store is atomic: one script in Redis, one transaction in MySQL.
// Rule numbers are those of the handover protocol (see doc.go).
//
// Every step's error is one of the root's: a *StaleError when the epoch was
// refused (nothing written), ErrNoFence when the store has no fence, a
// *StoreError when it gave no answer, or the step's own refusals as named.
// A returned Hold has Again set when the step changed nothing because the hold
// was that way already (a repeated claim or release).

// Fenced is the half of the fence that each store keeps.
type Fenced interface {
	// Fence reads the store's fence; ErrNoFence when it has none.
	Fence(ctx context.Context) (holdover.Fence, error)
}

// Steps are what both stores can do with a hold.
type Steps interface {
	// Lookup returns what the store knows, end records included; State is
	// StateNone (and no error) for an unknown token. No epoch.
	Lookup(ctx context.Context, token holdover.Token) (holdover.Hold, error)
	// Apply carries a fact: h.State is held (a firm grant), claimed, released
	// or expired. Never refused for its epoch, idempotent by token (rule 17),
	// and never revives a token with an end record (rule 15). It returns the
	// hold as it is afterwards: a fact that lost against an end record is seen
	// by the State. A held fact that finds no unit: ErrOutOfStock in MySQL (a
	// debt); Redis's counter goes below zero instead. A held fact of a hold that
	// is there moves its expiry forward, never back; a claimed one takes
	// h.Claimed, or all, and gives the rest back.
	Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error)
	// GiveBack undoes a tentative grant of this attempt and reports whether it
	// did. Firm holds, other attempts' holds, ended holds and holds older than
	// the store's give-back window (its own clock) stay (rule 9).
	GiveBack(ctx context.Context, token holdover.Token, a holdover.Attempt) (bool, error)
	// Due lists up to limit held (not claiming) holds whose expiry is at least
	// grace past, oldest first. Nothing is changed. items, when not empty,
	// narrows it to holds with one of these items of the shop.
	Due(ctx context.Context, grace time.Duration, shop int64, items []int64, limit int) ([]holdover.Hold, error)
}

// Redis is the pod's Redis.
type Redis interface {
	Fenced
	Steps
	RedisAdjustments
	RedisRebuild
	RedisOwed

	// CompareAndSetFence writes f if the fence is still at epoch from (zero: no
	// fence yet); else a *StaleError with the fence that is there (rule 3).
	CompareAndSetFence(ctx context.Context, from holdover.Epoch, f holdover.Fence) error
	// Vote asks for a grant under t.Epoch (rules 1, 6, 11). Refusals:
	// *OutOfStockError, ErrTokenReused, *EndedError, ErrAlreadyClaimed,
	// ErrNotLoaded, ErrTryAgain (overbooked: a replay is not confirmed). A
	// replay by another attempt makes the hold firm (rule 9); a hold that is
	// claiming is replayed like a held one.
	Vote(ctx context.Context, t holdover.Ticket, r holdover.Request) (holdover.Grant, error)
	// Look looks again after a vote was short, at one moment and under the epoch: up
	// to limit held holds of r's items that are due, oldest first. When none is, and
	// the units are still short: *OutOfStockError. Neither means that units have come
	// back meanwhile. Nothing is changed.
	Look(ctx context.Context, e holdover.Epoch, r holdover.Request, limit int) ([]holdover.Hold, error)
	// Copy writes a grant of MySQL's (rule 7): firm, expiry as given, the
	// counter may go below zero. wouldGrant and remaining are what DECR would
	// have said. Errors: as Apply, *StaleError, *EndedError, ErrAlreadyClaimed.
	Copy(ctx context.Context, e holdover.Epoch, h holdover.Hold) (holdover.Copied, error)
	// Mark begins a claim: held becomes claiming (rule 12). With part, only
	// those lines: the rest goes back to the counters in the same step, and the
	// hold's Claimed says so from then on. It returns the hold; claimed and
	// claiming are no error when they are of the same part, else ErrTokenReused.
	// A hold of another shop is unknown; shop zero is any. Errors:
	// ErrUnknownHold, *EndedError, *InvalidError (no part of the hold).
	Mark(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, part []holdover.Line) (holdover.Hold, error)
	// Extend moves a held hold's expiry to at least ttl from now, at most life
	// from its grant, never back. A hold of another shop is unknown; shop zero
	// is any. Errors: ErrUnknownHold, *EndedError, ErrAlreadyClaimed,
	// ErrClaimPending.
	Extend(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, ttl, life time.Duration) (holdover.Hold, error)
	// End begins an end: held, or unknown, becomes how (released or expired),
	// and the units go back to the counter (rule 13). Ended already: no error,
	// the hold says how. For StateExpired a hold whose expiry has not passed is
	// left alone and returned held. A hold of another shop: ErrUnknownHold; shop
	// zero is any. Errors: ErrClaimPending, ErrAlreadyClaimed.
	End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State) (holdover.Hold, error)
	// Marked lists up to limit holds that have been claiming for at least age.
	Marked(ctx context.Context, age time.Duration, limit int) ([]holdover.Hold, error)
	// Counters reads the stock counters of items; ErrNotLoaded names a missing one.
	Counters(ctx context.Context, shop int64, items []int64) ([]int64, error)
	// Standing reads the items hold by hold, at one moment: an error when there
	// are too many live holds for that.
	Standing(ctx context.Context, shop int64, items []int64) (holdover.Standing, error)
	// Trip applies facts and raises the fence to f, in one script; a
	// *StaleError when the fence is at f.Epoch or beyond (rules 2 and 4).
	Trip(ctx context.Context, f holdover.Fence, facts []holdover.Hold) error
	// Instances lists the processes with a heartbeat younger than maxAge.
	Instances(ctx context.Context, maxAge time.Duration) ([]holdover.Instance, error)
	// History lists the fences ever set, newest first.
	History(ctx context.Context, limit int) ([]holdover.Fence, error)
	// DropFence removes the fence if it is not beyond epoch upTo, else a
	// *StaleError; see Return.
	DropFence(ctx context.Context, upTo holdover.Epoch) error
	// Identity names the server process: another one may have older data.
	Identity(ctx context.Context) (string, error)
}

// MySQL is the pod's MySQL.
type MySQL interface {
	Fenced
	Steps
	MySQLAdjustments
	MySQLSnapshot

	// RaiseFence writes f if its epoch is larger than the store's, and returns
	// the fence that is there afterwards (rule 2).
	RaiseFence(ctx context.Context, f holdover.Fence) (holdover.Fence, error)
	// Vote takes units under t.Epoch (rules 1, 7, 11); with journal it writes
	// the journal row in the same transaction (Redis is known to be away).
	// Refusals: as Redis.Vote; *OutOfStockError only when the ledger says so.
	Vote(ctx context.Context, t holdover.Ticket, r holdover.Request, journal bool) (holdover.Grant, error)
	// JournalGrant records that Redis does not have a held token, in a
	// transaction that reads the fence (rule 7). Errors: ErrUnknownHold,
	// *EndedError, ErrAlreadyClaimed.
	JournalGrant(ctx context.Context, e holdover.Epoch, token holdover.Token) error
	// Claim deducts the ledger and ends the hold without Redis's mark, under
	// the epoch; with journal it records that Redis does not know (rule 12 with
	// Redis away, or mysql-only). Claimed already: no error. A hold of another
	// shop is unknown; shop zero is any. With part, only those lines: see
	// Redis.Mark. Errors: ErrUnknownHold, *EndedError, ErrTokenReused,
	// *InvalidError.
	Claim(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, part []holdover.Line, journal bool) (holdover.Hold, error)
	// Extend is Redis.Extend in MySQL, under the epoch; with journal it records
	// that Redis does not know.
	Extend(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, ttl, life time.Duration, journal bool) (holdover.Hold, error)
	// End ends the hold in MySQL alone, under the epoch (rule 14). Ended
	// already: no error, the hold says how. StateExpired leaves a hold whose
	// expiry has not passed. A hold of another shop: ErrUnknownHold; shop zero
	// is any. Errors: ErrAlreadyClaimed.
	End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State, journal bool) (holdover.Hold, error)
	// Owe notes a hold that was refused here and that Redis granted; Owes asks for
	// one. Levels is Probe and the units of such holds, by item, of all instances,
	// both at one moment.
	Owe(ctx context.Context, h holdover.Hold) error
	Owes(ctx context.Context, token holdover.Token) (bool, error)
	Levels(ctx context.Context, shop int64, items []int64) (stocks []holdover.Stock, owed map[int64]int64, err error)
	// NoteLate notes facts that came when their hold had ended here; CameLate asks
	// for one.
	NoteLate(ctx context.Context, token holdover.Token, facts ...holdover.State) error
	CameLate(ctx context.Context, token holdover.Token, fact holdover.State) (bool, error)
	// Standing reads the items hold by hold, at one moment.
	Standing(ctx context.Context, shop int64, items []int64) (holdover.Standing, error)
	// Probe reads, without a lock, every location of the request's items.
	Probe(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, error)

	// Journal lists up to limit unmirrored facts, oldest first. A row's hold is
	// what the store knows now.
	Journal(ctx context.Context, limit int) ([]holdover.Journaled, error)
	// JournalSize counts the rows and gives the age of the oldest (MySQL's clock).
	JournalSize(ctx context.Context) (rows int64, oldest time.Duration, err error)
	// LastVerified is the newest verification and the newest clean one; At is
	// zero when there is none.
	LastVerified(ctx context.Context) (last, clean holdover.Verified, err error)
	// RecordVerified keeps an outcome; At is set by MySQL's clock.
	RecordVerified(ctx context.Context, v holdover.Verified) error
	// LastDrill is the newest rehearsed kill and the newest that passed; At is
	// zero when there is none.
	LastDrill(ctx context.Context) (last, passed holdover.Drill, err error)
	// FenceHistory lists the fences ever written here, newest first.
	FenceHistory(ctx context.Context, limit int) ([]holdover.Fence, error)
	// Followed is the largest epoch at which Redis was seen, as NoteFollowed has
	// recorded it: it tells a Redis that has older data from one that a kill has
	// not reached yet.
	Followed(ctx context.Context) (holdover.Epoch, error)
	NoteFollowed(ctx context.Context, epoch holdover.Epoch) error
	// ClearJournal deletes the row of token if it is still at version.
	ClearJournal(ctx context.Context, token holdover.Token, version uint64) error
}
