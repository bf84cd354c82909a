// Package mysqlpool is the unit pool: a MySQL schema where one row of
// reservation_units is one sellable unit, buyers take rows that nobody else has
// locked, and the ledger has the last word on what is sold out. It also keeps
// MySQL's half of the pod's fence and the journal of facts that Redis does not
// have. It stands alone: a user keeps only this package after the migration.
//
// # Usage
//
//	_, err := mysqlpool.Migrate(ctx, dsn)
//	store, err := mysqlpool.Open(ctx, mysqlpool.Config{Pod: "eu-1", DSN: dsn})
//	defer store.Close()
//	pool := mysqlpool.NewPool(store, mysqlpool.PoolConfig{})
//	go pool.Run(ctx) // refill, expiry, purge; stop it by ctx
//	res, err := pool.Reserve(ctx, holdover.Request{...})
//
// During the migration the dualwrite facade uses the Store's steps instead.
// Pool.ClaimTx claims inside the application's own transaction.
//
// A reserve, from the outside in: Pool.Reserve (pool.go), Store.Vote and the
// data path (reserve.go), which waits for its turn in a shared transaction
// (batch.go); locks of the next units by their numbers, or from where the last
// scan ended (lock.go, positions.go); the refill in between (refill.go); a token
// that has rows (replay.go). Claims, releases, expiries and extensions share
// transactions too (together.go, extend.go); what does not fit goes alone
// (end.go, apply.go).
//
// Beside the pool, for the time of the migration: what instances compared
// (comparison.go), who has signed a report (signoff.go), and the outcomes of
// verifications (verified.go).
//
// # Guarantees
//
// For every item and location: available >= issued >= 0, and issued = rows in
// the pool + units in live holds, at every commit. The exception is named: a
// claim that another store decided and that finds nothing free takes the stock
// that other holds stand for, and what no location has is an 'oversold' entry
// in ledger_entries. A buyer is refused only when one snapshot of the ledger,
// or its lock, says that too little is left; rows locked by others never make
// an item look sold out. A claim deducts the ledger once, in the transaction
// that ends the hold. A token that ended is never granted again while its end
// record is kept.
//
// # Concurrency
//
// Store and Pool are safe for concurrent use. Concurrent calls of one Store
// share transactions, of at most BatchSize calls, BatchTransactions of reserves
// and EndTransactions of each kind of end at a time. A call that finds a free
// one goes at once, in its caller's goroutine; those that wait go round about by
// item, are bounded by BatchQueue, and leave when their context ends. A call
// that the server refuses is found by halving, and harms nobody else in its
// transaction; a row lock that somebody else keeps delays them by LockWait at
// most. The batcher's own cost is about 1 µs and three allocations a call among
// 256 callers, 0.1 µs and two alone (BenchmarkBatcher).
//
// Sessions run at READ COMMITTED
// with settings from the connection string. Locks are taken in one order
// (statements.go). A buyer on the fast path waits for nobody; refills wait for
// the item's pool_state row. Fence and journal work has four connections of its
// own. Run is the only thing that goes on by itself; its ctx stops it.
//
// # Failure
//
// Every call ends within Config.OpTimeout. Deadlocks and lock waits are tried
// again outside the transaction, a bounded number of times. Any error rolls
// back. A failure is a *holdover.StoreError: Unknown only when COMMIT was sent
// and not answered; look the token up, or repeat the call with it. A server
// that turned read-only is said so, and its connection is dropped.
//
// # Testing
//
// The tests run against a real server, MySQL or MariaDB. The conformance suite
// of internal/reservertest passes on Pool.
package mysqlpool
