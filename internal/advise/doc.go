// Package advise says whether a shop should move its reservations to the unit
// pool at all, from the metrics of a live pod, from a file of `holdover bench`,
// and from three answers that no metric gives.
//
// # Usage
//
//	before, err := advise.Scrape(ctx, client, "http://checkout-1:8377")
//	... some seconds later ...
//	numbers, err := advise.FromPod("pod-a", []advise.Pair{{before, after}})
//	numbers.Add(report) // of a bench run: what was measured there and is not known yet
//	advice := advise.Judge(numbers, advise.Answers{LedgerHere: advise.Yes})
//	fmt.Print(advice.Text())
//
// # Guarantees
//
// Judge is a pure function. The hottest item's peak rate is held against what
// one row takes, 1 / hold time: below half of it a conditional UPDATE is
// enough, and the advice is no. The advice is yes when the peak is more than
// the row takes, or so close that half of all optimistic attempts would be
// lost; the row's hold time must then have been measured, and the three
// questions answered. In between, and with anything missing, it depends, and
// the advice says on what. An answer that rules the pool out is a no, whatever
// the numbers.
//
// The rates are worked out as if reserves came by chance (Poisson). In a flash
// sale they come closer together; give the peak of the worst second then.
//
// # Concurrency
//
// Nothing here runs by itself, and nothing is shared.
//
// # Failure
//
// An instance that can't be read is an error with its address. A number that is
// missing is no error: the advice says how to get it.
//
// # Testing
//
// Every branch is a row of a table, and the text is compared with golden files
// (renew them with -update).
package advise
