// Package workload is traffic for a demo and for tests, and the auditor who
// judges it: buyers with real-looking carts who reserve, think, and pay, fail
// to pay or walk away; a book of what they were told; and an audit that counts
// the truth itself, in SQL and Redis commands of its own.
//
// # Usage
//
//	stock, err := workload.Stock(cfg)                      // load it into both stores
//	account := workload.NewAccount(workload.AccountConfig{})
//	stats, err := workload.Run(ctx, cfg, instances, account) // one run per pod
//	verdict, err := workload.Audit(ctx, account, db, redis, workload.AuditConfig{Stock: stock, Stage: stage})
//
// Account.Watch wraps any holdover.Reserver, so that a test with callers of
// its own can be audited too.
//
// # Guarantees
//
// The book holds only what buyers were told. Doubts are decided for the
// product: an unanswered call may have happened or not, a cart that nobody
// saw end may have had its units until its expiry and some time to reap it. What
// remains after that is a fault. The audit shares no code with the product;
// it knows the tables and the keys.
//
// What it can't see: an oversell that is over before anybody was told of it, a
// false refusal in the moment in which other carts came and went, and in
// joint a refusal within AuditConfig.JointLag of a release.
//
// # Concurrency
//
// An Account is safe for concurrent use. Run owns its goroutines and returns
// when the last buyer is gone. Audit wants a quiet pod: no buyers, and lanes
// and journal drained; reaping may go on.
//
// # Failure
//
// An account that is full refuses to buy (ErrAccountFull) and never forgets.
// Audit returns an error when it can't read, and a Verdict when it can; a
// difference between the stores must show in each of several readings.
//
// # Testing
//
// The judging is a pure function over a reading, tested with histories made
// by hand and with reservers that have a planted fault.
package workload
