// Package demo tells the whole migration once, on real servers of its own:
// three pods go redis -> shadow -> joint -> mysql under traffic, the kill
// switch is flipped on the busiest, restored, and goes forward again. At the
// end an auditor counts stock, holds and ledger in SQL and Redis.
//
// # Usage
//
// [Run] does all of it. story.go is the story, result.go what is counted.
//
// # Guarantees
//
// The result is judged from what buyers were told and from the stores, never
// from the product's own counters.
//
// # Concurrency
//
// One Run at a time in a process is enough; several do not disturb each other.
//
// # Failure
//
// A story that does not come to its end is an error that says where it stood,
// and what each pod was waiting for. The servers end with Run in any case.
//
// # Testing
//
// A short run is a test of this package; CI runs a longer one by the command.
package demo
