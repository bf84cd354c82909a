// Package model holds the handover protocol as a Promela model, in step with
// the code. It has no code of its own.
//
// # Usage
//
// `make model` checks it with spin; README.md says what is modelled, maps its
// steps to functions, and how to read a trail.
//
// # Guarantees
//
// Within the bounds that README.md states, every order of the steps is looked
// at, and each protection that is taken out is found to be missing.
//
// # Concurrency
//
// None: the processes are the model's.
//
// # Failure
//
// `run` ends with an error when a configuration finds a fault, a mutant finds
// none, or one of them does not end in its time or memory.
//
// # Testing
//
// The package's tests compare README.md with the tree and with the model: a
// function or flag that is named there has to exist.
package model
