// Package reservertest is the conformance suite of holdover.Reserver: every
// implementation passes it, the stores alone, the facade in each stage, and the
// model.
//
// # Usage
//
//	func TestConformance(t *testing.T) {
//		servers := start(t) // once: schema and Redis database
//		var shop int64
//		reservertest.Run(t, func(t *testing.T) reservertest.Fixture {
//			shop += 2 // the fixture's own, and the one after it
//			return servers.fixture(t, shop)
//		})
//	}
//
// Run makes a fixture for each of its subtests: what is slow to start is better
// shared, with a shop for each fixture.
//
// # Guarantees
//
// The suite counts stock behind the Reserver's back, through the fixture: what
// the Reserver says about itself proves nothing. It has no sleeps and no bounds
// on time but one that ends a call which hangs.
//
// Not part of the contract, and so not looked at: which of "token reused" and
// "ended" a token gives that ended and comes back with other lines, or with a
// part that is none to claim; whether a token that was released before anything
// was reserved can be reserved later; how many of the due holds of an item a
// short reserve expires, as long as it gets its units if there are any, and
// whether it does so at a preferred location before it goes to another one;
// which of two reasons a cart is refused for is told.
//
// # Concurrency
//
// Subtests run one after the other; the races are inside of them.
//
// # Failure
//
// A random sequence that fails is made shorter by rapid, which prints the seed
// and the operations, and keeps them in testdata/rapid of the package that runs
// the suite (-rapid.nofailfile: not). Fixture.Sequences bounds how many are run,
// whatever -rapid.checks says; rapid's own count of tests is not that number.
//
// # Testing
//
// The package's test runs the suite on the model, and, each in a process of its
// own, on broken models: every fault must be caught by each subtest that is
// named beside it.
package reservertest
