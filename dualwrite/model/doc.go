// Package model holds the handover protocol as a Promela model, in step with
// the code: README.md maps its steps to functions and says what each
// configuration covers. `make model` checks it with spin; the package's own
// tests only compare its page with the tree.
package model
