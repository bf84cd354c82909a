// Package holdover is the vocabulary of a migration that moves checkout
// reservations from Redis counters to MySQL unit rows while the shop stays
// open. It holds types, one contract and the errors; the standard library is
// all that it imports. The parts are in the folders beside it:
//
//	legacyredis   the DECR/INCR path: counters, hold records, scripts, fence
//	mysqlpool     the unit pool: one row per sellable unit, ledger, journal, fence
//	dualwrite     the facade: what runs where in each stage
//	compare       observations become kinds, rates, latency deltas, a report
//	killswitch    the latch that flips a pod back to Redis
//	rollout       flags, and the loop that moves a pod one stage at a time
//
// # Usage
//
// A program that reserves stock holds a [Reserver]. During the migration that
// is a dualwrite.Facade; after it, a mysqlpool.Pool. The calls stay the same.
//
// # Words
//
// A store is redis or mysql; a role is truth (its answer goes to the buyer) or
// shadow. A pod is a slice of shops with one Redis and one MySQL of its own. An
// instance is one running process; a pod has several. A hold is lines reserved
// under one [Token], with an expiry. A fence is what all instances of a pod
// agree on: an epoch that only grows, and the [Stage] that goes with it.
//
// # Guarantees
//
// The package decides nothing; the guarantees are those of dualwrite.
//
// # Concurrency
//
// Values are plain data. A Reserver is safe for concurrent use.
//
// # Failure
//
// Every error that leaves a package matches one of the sentinels in errors.go
// with errors.Is, and the typed ones carry what an operator needs.
//
// # Testing
//
// internal/reservertest is the conformance suite that every Reserver passes.
package holdover
