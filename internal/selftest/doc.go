// Package selftest shows that the comparator sees every kind of divergence: on
// servers of its own and under load, each kind is planted many times, with real
// flips of the stage.
//
// # Usage
//
//	result, err := selftest.Run(ctx, selftest.Config{Times: 20})
//
// run.go is the course of it: holds are granted in redis; the pod goes to shadow
// over them; every kind is planted by several planters at a time while buyers are
// at work on other shops; then the stage flips in the middle of calls.
//
// # Guarantees
//
// What was caught is read from the comparator's own record, after it was closed.
// OK is true only when each kind was planted as often as asked and each plant was
// seen as what it is.
//
// # Concurrency
//
// Run runs everything and returns when it has ended.
//
// # Failure
//
// A plant that can't be made is an error: a self-test that skips one proves
// nothing.
//
// # Testing
//
// A short run is a test of this package.
package selftest
