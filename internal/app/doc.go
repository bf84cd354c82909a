// Package app wires the parts into pods and the pods into one program. It
// decides nothing.
//
// # Usage
//
// [New] builds everything from a [Config]; [App.Run] runs it until its context
// ends; [App.Close] closes the stores. Reading order: config.go, pod.go, app.go.
// operator.go answers on-call's questions, metrics.go the scrape.
//
// # Guarantees
//
// What it starts it stops, in reverse order.
//
// # Concurrency
//
// An App is run once. Its Pods are safe for concurrent use.
//
// # Failure
//
// A store that does not answer at start is not an error: the pod is not ready
// until its fence can be read. A wrong configuration is one.
//
// # Testing
//
// The demo and the tests of cmd/holdover run whole Apps on real servers.
package app
