// Package compare turns what both stores said into something a person can
// sign off on: kinds, exact counts, coverage, paired times, samples, a
// verdict; and compares the state of both stores under live traffic.
//
// # Usage
//
//	c, err := compare.New(compare.Config{Pod: "eu-1", Instance: "a", Path: "events.jsonl"})
//	facade config: Observe: c.Observe
//	...
//	c.Report().WriteText(os.Stdout)
//	c.Close()
//
// [ReadFiles] rebuilds the same report from event files, [Merge] adds up
// instances and pods, [Verify] compares the state of the stores, [Repair] brings
// one to where the other is, and [Comparator.RecordVerification] puts its result into the report.
//
// # Words
//
// An observation of a dual stage is eligible. It is compared when both stores
// granted or refused; when one failed, is unknown or was shed it is not
// comparable, which is never a mismatch. Coverage is compared over eligible.
//
// The direction of a divergence is what the truth of the stage does if the
// other store is right (in joint Redis counts as the truth):
//
//	truth granted, other refused                        oversell
//	truth refused, other granted                        undersell
//	both said yes, truth has the units free, other not  oversell
//	both said yes, truth has the units taken, other not undersell
//	both said yes, released against expired and so on   neutral
//	a counter above / below what it should be           oversell / undersell
//
// So Redis refusing in shadow what MySQL would grant is undersell, and MySQL
// granting in mysql what DECR would have refused is oversell. Units are those
// of the lines. Redis's claiming agrees with held and with claimed in MySQL.
//
// A divergence is explained only by evidence that the facade recorded when it
// happened and that fits its shape (units at other locations can't explain
// that Redis refused), and only within its kind's budget; otherwise it is
// unexplained. The first piece of evidence that fits names the kind.
//
// # Guarantees
//
// Counts are exact: moved in Observe itself, whatever happens to the event. An
// observation is counted once: the kinds but foreign-write add up to eligible.
// A report made from the events of a closed run equals the live one, because
// the events carry snapshots of the counts (matches have no event of their
// own) and one function computes what follows from them. There is no verdict
// where nothing was compared or coverage is too low, and none is ok while
// anything is unexplained. Samples are drawn evenly over the period. Times
// are kept in nanoseconds and shown in microseconds; the delta is mysql minus
// redis of each pair; probes stand apart from votes.
//
// A verification calls something a difference only when it saw the same
// difference again Recheck later, on both sides. An item's counter is read
// between two readings of itself and of the ledger; it is right when nothing
// moved and the sums agree, different when at two looks or more nothing moved
// and all of those agree on how far it is off, and unsettled otherwise. That nothing
// moved where it is off is said only after two readings in a row that are the same,
// hold by hold: a buyer who leaves while another one comes moves no counter.
// Unsettled is not clean. No stock at all is not clean either. What MySQL's
// journal has is lag and no difference, unless it stays there too long, and so is an
// adjustment that one store has and the other is to get. A counter that is missing is
// a difference whatever the journal has: that waits for the counter. Pages are
// read at a bounded pace; a store that gives no answer for a while is asked again.
//
// A repair changes only what it finds as it was found, by token and toward the
// store that decides, with steps that can be repeated; a counter only while it
// stands where it was read, and where Redis decides only on request. It is planned
// for one epoch: Redis refuses its steps in another one, and a kill or a step of the
// pod ends it. Each change is recorded before it is made. What can't be repaired is
// in its answer, with why.
//
// # Concurrency
//
// Everything is safe for concurrent use. One lock covers the counts. One
// goroutine writes events; Close ends it and waits. Verify runs in its
// caller's goroutine and holds the live holds of both stores in memory.
//
// # Failure
//
// Observe never waits for the sink, and no panic leaves it: a comparison that
// panics counts as not comparable. A full queue drops the event and counts
// that; a sink that fails or panics is logged once and counted. A process that
// is killed leaves a file without its last counts, which the report says.
// Verify returns an error when a store can't be read: nothing was verified.
//
// # Testing
//
// The package needs no server: it compares values. Tests plant a divergence
// of each kind and look for it, and verify tables in memory whose traffic is
// moved between the reads.
package compare
