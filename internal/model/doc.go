// Package model is the sequential specification of a holdover.Reserver: what
// the stores and the facade must answer, in memory, under one mutex, on a clock
// that only moves when it is told to.
//
// # Usage
//
//	m := model.New(model.Config{Locations: model.ByLocation})
//	m.Load(shop, map[[2]int64]int64{{item, group}: 10})
//	m.Reserve(ctx, request)
//	m.Advance(time.Minute)
//	m.Expire()
//
// # Guarantees
//
// A cart is granted whole or not at all. A token stands for one shop and one
// list of lines for ever. A hold ends once: claimed, released or expired, and
// the second attempt says how it ended. A claim deducts the ledger once; the
// claim of a part frees the rest. An expiry moves forward only. A hold that is
// past its expiry is live until the expiry step finds it: [Model.Expire], or a
// reserve that is short of one of its items.
//
// The two stores count differently, and the model does both: see [Locations].
//
// # Concurrency
//
// All methods are safe for concurrent use; each is one step.
//
// # Failure
//
// Errors are the root's. A context that is over is a *holdover.StoreError and
// changes nothing.
//
// # Testing
//
// The package's own test states each rule once. internal/reservertest runs the
// conformance suite on it, and on broken variants that the suite must catch.
package model
