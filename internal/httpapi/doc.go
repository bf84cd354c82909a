// Package httpapi is the HTTP API of `holdover serve`: the reservations of the
// shops, the operator's view of the pods, health and metrics, and a client for
// the operator's commands.
//
// # Usage
//
//	handler, err := httpapi.New(httpapi.Config{Pods: pods, OperatorToken: token, Ready: ready, Metrics: metrics})
//	server := httpapi.Server("127.0.0.1:8080", handler)
//
// The caller listens, serves and shuts down. /openapi.json describes each
// route; the CLI talks to it with [Client].
//
// # Guarantees
//
// A request that is wrong in itself never reaches a Reserver: unknown, repeated
// or oddly cased fields, numbers that are not whole or do not fit, tokens that
// are no UUID, lines and times outside the limits. Each problem is named with
// its field.
//
// Every error is a [Problem] with a stable type, made in one place (problem.go),
// and every answer of a Reserver carries its decision: who, under which
// agreement, why. What may have been written is never shown as refused or
// failed: it is outcome-unknown, or a 500 that says so.
//
// Operator routes need the bearer token, and are off without one.
//
// # Concurrency
//
// The handler is safe for concurrent use and keeps no state. The only
// goroutines that it starts (one a pod, for the list of pods) end within the
// request.
//
// # Failure
//
// Bodies are bounded in size and time, operator calls in time; the operations
// of a Reserver bring their own deadlines. Kill and restore go on when the
// operator's connection is lost. A panic is a 500, counted and logged with its
// stack; after the answer has begun, a cut connection.
//
// # Testing
//
// The tests drive a real server with a scripted Reserver that counts its calls.
package httpapi
