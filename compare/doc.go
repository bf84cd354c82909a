// Package compare turns what both stores said into exact counts by period that a
// report is made of, with kinds, proofs, paired times and samples; and compares
// the state of both stores under live traffic.
//
// # Usage
//
//	c, err := compare.New(compare.Config{Pod: "eu-1", Instance: "a", Path: "events.jsonl", Spool: "spool"})
//	facade config: Observe: c.Observe
//	...
//	c.Close()
//
// Each minute is a [Rollup]: a line in the event file, and a file in the spool
// that waits until a shipper has sent it ([OpenSpool]). [ReadRollups] reads them
// from files, [Sum] adds up periods, instances and pods, [Comparator.Total] is
// the run so far. [Verify] compares the state of the stores, [Repair] brings one to
// where the other is, and [Comparator.RecordVerification] puts the result into the
// counts.
//
// # Words
//
// An observation of a dual stage is eligible. It is compared when both stores
// granted or refused; when one failed, is unknown or was shed it is not
// comparable, which is never a mismatch. Coverage is compared over eligible, with
// the operations that nobody handed over (bypassed) in the denominator.
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
// happened, that fits its shape (units at other locations can't explain that
// Redis refused), and whose proof, read at that time, says so:
//
//	last-unit-race  both stores' units of each item: one line near its end in both
//	                and in the answers; and operations in flight, or agreement afterwards,
//	                less the holds that were on their way between the stores
//	location        the item's units at each location: short at the line's, enough in all;
//	                or, when Redis refuses, that the stores differ by the units of earlier
//	                grants that MySQL could not place, and by nothing else
//	pool-short      the ledger's headroom at the line's location, though MySQL refused
//	expiry-skew     both expiries, and an answer at or after the earlier one
//	pre-shadow      the hold's grant, before dual writing began
//	straddled-flip  the epochs at the begin and at the end, the later one above
//	mirror-lost     what was lost, and why
//
// Without it, it is unexplained, and says which proof is missing. The first piece
// of evidence that fits names the kind. How many explanations are too many is for
// the report to say.
//
// A stratum is a kind of call or a circumstance ([StratumNames]); a report lists
// those that never occurred.
//
// # Guarantees
//
// Counts are exact: moved in Observe itself, whatever happens to the event. An
// observation is counted once: a cell's kinds and its outcomes each add up to its
// eligible ones, and a rollup whose parts don't is refused. The rollups of a closed
// run add up to what it counted, without gaps in their numbers and times. Samples
// are drawn evenly over a period, and over a sum by what each stands for: the same
// ones whatever the order. Times are kept in nanoseconds and shown in microseconds;
// the delta is mysql minus redis of each pair; probes stand apart from votes.
// Sketches of other parameters are refused.
//
// Observations of reserved shops are counted as planted, and in no other figure.
//
// A divergence's event carries both answers, their difference, the proof, the
// operations on its items and token within two seconds of it as far as the newest
// 4,096 still have them, and a next step. Its line is written a second later, for
// what comes after it; a sample of a rollup that is closed within that second has
// less of it.
//
// The open period is rewritten in the spool each second: a process that is killed
// loses no more than that. The next one of its name closes it as torn, unless its
// lock says that it lives. A closed period that the disk does not take stays in memory,
// with up to 29 others, and is tried again each second; only what the system can read
// and can't make sense of is put aside. Files are synced when a period is closed, and not
// before: a machine that loses its power may lose the open one, which then can't be
// read, is put aside and counted.
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
// Everything is safe for concurrent use. One lock covers the counts; it is held for
// the moving of figures and, once a flush, for the swap of one set for another. One
// goroutine writes events and rollups; Close ends it and waits. Verify runs in its
// caller's goroutine and holds the live holds of both stores in memory.
//
// A spool is one pod's and instance's. Two processes of one name may write and send
// from one folder: whoever keeps the rollups takes each once by its run and number.
//
// # Failure
//
// Observe never waits for the sink, and no panic leaves it: a comparison that
// panics counts as not comparable. A full queue drops the event and counts
// that; a sink or a disk that fails or panics is logged once and counted, and the
// rollup after one that could never be written says that it is lost. A full spool drops
// the oldest, and the next one says so. Half a line at the end of a file is a note,
// any other that can't be read an error with its file and line.
// Verify returns an error when a store can't be read: nothing was verified.
//
// # Testing
//
// The package needs no server: it compares values. Tests plant a divergence
// of each kind and look for it, take each proof away, kill runs by copying what
// they left on disk, and verify tables in memory whose traffic is moved between the
// reads.
package compare
