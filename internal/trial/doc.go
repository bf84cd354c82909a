// Package trial tries the report: is the verdict pass while the new path is
// right, and fail, with the right reason, while it has a bug?
//
// # Usage
//
//	result, err := trial.Run(ctx, trial.Config{Duration: time.Minute, Baskets: baskets})
//
// Each case is a pod of its own on real servers, with four instances in stage
// shadow, buyers with real-looking carts at two locations that Redis can't tell
// apart, and stock that runs out. The first case has no bug; the others have one
// of those that internal/mutants makes.
//
// # Guarantees
//
// The verdict is that of the product's own report, read from MySQL. A case is as
// it should be only when its verdict is, and when one of the gates that its bug
// must break is among the broken ones.
//
// The times of instances with a slow store are judged against those of the same
// pod's other instances in the same minute: on one machine no earlier minute is
// as good a witness.
//
// # Concurrency
//
// Cases run one after the other, since they share the machine. Run owns what it
// starts and stops it.
//
// # Failure
//
// Run returns an error when a case could not be run; a wrong verdict is in its
// result.
//
// # Testing
//
// The tests run every case, shorter than the command does.
package trial
