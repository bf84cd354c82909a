// Package bench measures reserving: the unit pool of package mysqlpool against
// every other way that a shop could choose, each in its best honest form, on
// real servers. It is behind `holdover bench`.
//
// # Usage
//
//	report, err := bench.Run(ctx, bench.Config{Scenario: "hot"})
//	err = report.WriteText(os.Stdout)
//
// A scenario is a file of its own (hot.go, drain.go, ...), and a competitor one
// that begins with way_. [Ways] says in a sentence what each does. [Report] is
// what comes out; its JSON is read by `holdover advise`.
//
// A turn (turn.go): the tables are emptied, the way connects and gets its stock,
// callers run a closed loop, the way is closed, and then SQL and Redis are asked
// what is true. Competitors take their turns in one order and then in the other,
// round by round; figures are medians over the rounds, and a ratio is the median
// of the ratios within a round, so that what disturbs a machine for a second
// disturbs both.
//
// Three scenarios measure the migration itself, in open loops: calls begin at
// times fixed beforehand (openloop.go), and a latency is counted from there. mysql
// compares a pod in stage mysql with the pool alone, in this process. shadow and
// kill run real `holdover serve` processes (fleet.go) and buyers over HTTP
// (buyers.go): shadow compares the stages redis and shadow, and redis with itself
// as the measure of the method, then hangs MySQL; kill presses the switch again
// and again, and watches from outside when the last instance has acknowledged.
//
// # Guarantees
//
// Oversold units, false refusals and lost holds are counted from what callers
// were told and from the stores (truth.go), never from a way's own counters;
// connections, deadlocks and lock waits are the server's counts. Time for which
// connections are taken is measured by mysqlpool/connhold, for everybody alike.
//
// A way with a transaction for each call gets the number of connections that is
// best for it, tried out beforehand; holdover gets what Config says. Whatever
// wins against holdover is listed in Report.Loses.
//
// On a server of the user's own the run makes a schema of its own, with a random
// name, and drops it; one that exists is never touched. Keys in Redis have a
// prefix of their own and are removed. The counts of deadlocks and lock waits
// include what others do there meanwhile.
//
// # Concurrency
//
// One Run at a time: two would measure each other. Callers are goroutines that
// share nothing while they run: random numbers, histogram and counts are their
// own. Everything that a turn starts has ended when the turn is over.
//
// # Failure
//
// A broken invariant is no error: Report.OK is false, and Report.Broken says
// what. An error means that the run did not come to its end. Calls that fail are
// counted, and one of their errors is in Report.Notes.
//
// # Testing
//
// Each scenario runs for a moment on real servers, and its invariants hold; the
// way that is wrong on purpose is caught.
package bench
