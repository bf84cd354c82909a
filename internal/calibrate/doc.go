// Package calibrate compares old with old: the Redis path against a second
// redis-server that is fed the same calls, by the comparator that later compares
// Redis with MySQL. What it finds is the noise floor: the rate of differences and
// the latency delta that mean nothing.
//
// # Usage
//
//	result, err := calibrate.Run(ctx, calibrate.Config{Duration: time.Minute})
//	err = result.Report.WriteJSON(file) // for `holdover report --noise`
//
// pair.go is one call to both; run.go starts the servers and sends the buyers.
//
// # Guarantees
//
// Both servers get each call, one right after the other, and calls of one shop in
// the same order: where their answers differ, they differ. No MySQL is asked; a
// claim ends at the mark and its removal. The second server stands in MySQL's
// place in the observations: the stage is called shadow.
//
// # Concurrency
//
// A Pair is safe for concurrent use; calls of one shop wait for each other, and
// that wait is in neither time.
//
// # Failure
//
// A server that does not answer gives observations that can't be compared.
//
// # Testing
//
// On two real servers, with a difference made by hand.
package calibrate
