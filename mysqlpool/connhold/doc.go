// Package connhold measures how long database/sql keeps connections taken, and
// for whom. A pool needs as many connections as rate times hold time (Little's
// law), and hold time runs from taking a connection to giving it back: a
// transaction that waits for something else holds one all the while, and a list
// of slow queries doesn't show it. The package needs the standard library only,
// and works with any driver.
//
// # Usage
//
//	var totals connhold.Totals
//	db := sql.OpenDB(connhold.Wrap(connector, &totals))
//	ctx = connhold.WithTag(ctx, "reserve")
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	for _, t := range totals.Snapshot() { // the longest total first
//		fmt.Println(t.Tag, t.Count, t.Held, t.Quantile(0.99))
//	}
//
// A hold belongs to the tag of the context that took the connection. What a
// sql.Conn or a transaction runs later, under other contexts, is part of it.
//
// In sql.Conn.Raw the driver's own interfaces work as ever, and results, rows,
// statements and transactions are the driver's own, unwrapped:
//
//	conn.Raw(func(c any) error {
//		result, err := c.(driver.ExecerContext).ExecContext(ctx, statements, nil)
//		affected := result.(mysql.Result).AllRowsAffected()
//		...
//	})
//
// Code that needs the driver's connection itself reaches it by
//
//	c.(interface{ Unwrap() driver.Conn }).Unwrap()
//
// # Guarantees
//
// Every taking that is given back is reported once, connections that are
// dropped as bad included. Attempts that never got a connection, and the time
// that a caller waits for one, are not in it. A hold is reported when it ends:
// a connection that is never given back is not in the totals, but in
// sql.DBStats.InUse.
//
// One case is off by microseconds: a connection that the pool's own opener made
// is handed to its first taker without any call on it, so that hold begins with
// its first use, and has that context's tag. The same is true when a
// connection is new and its taker had no tag. One that is then never used is
// not reported.
//
// database/sql behaves as with the bare driver: every optional interface of the
// connection and the connector is forwarded; shape.go says what takes the place
// of those that a driver does not have. Two differences are visible to Raw
// only: the wrapper has methods there that say driver.ErrSkip or do nothing.
// For a driver without driver.SessionResetter or driver.Validator, a rollback
// by the caller after its context ended closes the connection, as database/sql
// does by itself.
//
// The cost is two looks at the clock and one at the context: about a tenth
// of a microsecond for one taking and giving back with Totals, and no
// allocation. WithTag allocates twice: call it once for a request.
//
// # Concurrency
//
// A connection's calls are serialized by database/sql. Totals is safe for
// concurrent use; a tag that is known costs two atomic additions.
//
// # Failure
//
// There is none of its own: the driver's errors pass through unchanged. A
// Recorder that blocks blocks the giving back; one that uses the same *sql.DB
// can deadlock.
//
// # Testing
//
// The same program runs on bare and wrapped connections of a driver in every
// shape, and of go-sql-driver on a real server, and must see the same. The cost
// is BenchmarkCheckout.
package connhold
