// Package teststack gives tests a real MySQL and a real Redis: one stack of internal/devstack per test process.
//
// # Usage
//
//	func TestMain(m *testing.M) { teststack.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		dsn := teststack.MySQLDSN(t)           // a fresh schema of this test's own
//		dsn = teststack.PreparedDSN(t, migrate) // one with tables in it, which are not made for each test again
//		addr, db := teststack.FreshRedis(t)    // an empty logical database of this test's own
//		...
//	}
//
// Without Main the first use starts the stack; it then ends with the process. With a name or several, Main starts that
// many pods: MySQLDSN and FreshRedis serve the first, Stack has them all.
//
// # Guarantees
//
// A server that is missing or does not start fails the tests, and never skips them. A schema and a logical database belong
// to one test and are removed after it, whether or not it passed; a prepared schema is emptied instead, unless the test has
// altered it. MySQL waits for no disk; what it answered outlives a SIGKILL all the same.
//
// # Concurrency
//
// Everything may be called from parallel tests. A test that stops or hangs a server must not run beside others of its
// package, and must bring the server back before it ends; or it starts a devstack of its own.
//
// # Failure
//
// The error of devstack, with the command that installs what is missing.
//
// # Testing
//
// Its own tests check that fresh means empty, and that nothing is left.
package teststack
