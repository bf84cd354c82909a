// Package faults puts failures between a client and a server: a TCP proxy whose
// connections can be cut, slowed down, left hanging, or robbed of their replies.
//
// # Usage
//
//	p, err := faults.Listen("127.0.0.1:6379")
//	client := connect(p.Addr())
//	p.Set(faults.Mode{LoseReplies: true}) // requests pass, answers vanish
//	p.Heal()
//	err = p.Close()
//
// # Guarantees
//
// A mode counts for every connection, the ones that are open and those to come.
// After Heal each connection either carries all its bytes in their order or is
// closed: one that lost bytes is never used again. Bytes that were held arrive
// then, also when their sender has gone: that is a request which is carried out
// late.
//
// # Concurrency
//
// All methods may be called from several goroutines. A connection has two of its
// own, which end with it.
//
// # Failure
//
// A server that does not answer is seen by the client as a connection that is
// closed at once.
//
// # Testing
//
// Against an echo server, mode by mode.
package faults
