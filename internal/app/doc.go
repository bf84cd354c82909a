// Package app wires the parts into pods and the pods into one program. It
// decides nothing.
//
// # Usage
//
// [New] builds everything from a [Config]; [App.Run] runs it until its context
// ends; [App.Close] closes the stores. Reading order: config.go, pod.go, app.go.
// operator.go answers on-call's questions, metrics.go the scrape. What is compared
// goes from comparator.go over a spool on disk and ship.go into MySQL; report.go
// reads it there, of all instances.
//
// # Guarantees
//
// What it starts it stops, in reverse order. A record of what was compared is in
// MySQL once, in the order of its run, also when MySQL was away or the process was
// killed; what is lost on the way is counted.
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
