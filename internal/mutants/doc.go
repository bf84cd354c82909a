// Package mutants switches protections off, one at a time, so that it can be
// shown that each one is needed: internal/torture runs the product with a mutant
// and must catch it. Some are bugs for a divergence report to show. No
// configuration file can name one.
//
// # Usage
//
//	m, err := mutants.Make("redis-epoch", mutants.Servers{...})
//	redis := m.Redis(store) // instead of store
//
// # Guarantees
//
// None: that is the point.
//
// # Concurrency
//
// As the store that is wrapped. Close waits for what a mutant does late.
//
// # Failure
//
// A mutant's own failure is the wrapped store's.
//
// # Testing
//
// internal/torture must catch every mutant of Names, and a report must show every
// one of ReportNames; see their tests. The tests here show that the latter do what
// they say.
package mutants
