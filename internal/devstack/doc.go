// Package devstack starts a private MySQL and one private Redis per pod, for the demo and for tests.
//
// # Usage
//
//	stack, err := devstack.Start(ctx, devstack.Config{Pods: []string{"pod-a", "pod-b"}})
//	if err != nil { ... }
//	defer stack.Close()
//	redis := stack.RedisAddr("pod-a") // 127.0.0.1:port
//	dsn := stack.MySQLDSN("pod-a")    // root@tcp(127.0.0.1:port)/holdover_pod_a
//
// The programs come from PATH, or from the cache folder that `make servers` (deploy/dev/install) fills. The environment
// variable HOLDOVER_DEV_MYSQL chooses between them: "mysql", "mariadb", or empty for MySQL where there is one.
// Config.MySQLDSN and Config.RedisAddrs put servers of the user's own in their place.
//
// # Guarantees
//
// Servers listen on free loopback ports, keep their data in a fresh temporary folder, and ignore every configuration
// file of the machine: two stacks never meet, nor does a stack meet a server that is already there. A port stays the
// stack's own while its server is stopped.
//
// Settings are durable ones. MySQL: sync_binlog=1, innodb_flush_log_at_trx_commit=1, binary log in ROW format. Redis:
// append-only file, appendfsync everysec, as in the production setting it stands for: a machine that loses power loses
// up to a second, and a killed redis-server what it had put off to write while a slow fsync was under way, up to two
// seconds. Config.RedisFsync "always" loses nothing that was answered. Config.Unflushed has MySQL wait for no disk: only a
// machine that crashes loses what it answered, so that teststack asks for it, and nothing that measures or shows does.
//
// Start returns when every server has answered a query and has proved to be the one that was started. When the program
// ends, in whatever way (return, os.Exit, panic, SIGINT, SIGKILL), its servers end and the folder goes: a small shell in a
// session of its own, the janitor, waits for the end of a pipe from this process. On Linux the kernel kills the servers
// too. Servers run in process groups of their own, so that Ctrl-C reaches the program alone and it can finish in order.
//
// # Concurrency
//
// All methods of Stack may be called from several goroutines; those that stop or start one server wait for each other.
// One goroutine per running server waits for its end; Close leaves none behind.
//
// # Failure
//
// A program that is not installed is [ErrNotInstalled], with the command that installs it. A server that dies while it
// starts gives an error with the end of its log. A port that is taken in the meantime is replaced. Stop, Start and Signal
// refuse servers that belong to the user. Schemas on the user's own MySQL are dropped by Close; a killed program leaves
// them there (their names begin with holdover_ and end in a random part, so that they disturb nobody).
//
// # Testing
//
// The tests start real servers, kill a child process in several ways, and wait for its servers to end. Tests of other
// packages use internal/teststack, which keeps one stack per test process.
package devstack
