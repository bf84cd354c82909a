// Command holdover moves checkout reservations from Redis counters to MySQL
// unit rows, pod by pod, while the shop stays open.
//
// # Usage
//
//	holdover demo                         the whole migration in a minute, on servers of its own
//	holdover serve                        the reservation API; moves the pods as the flag says
//	holdover migrate up | status | print  the tables in each pod's MySQL
//	holdover stock import FILE | show     ledger and counters
//	holdover status                       what is true now, is it safe to move, what happens next
//	holdover kill | restore               back to Redis at once and latched; take the latch off
//	holdover drill                        the kill rehearsed, measured and undone at once
//	holdover verify | report              compare both stores now; what was compared so far
//	holdover bench SCENARIO               measure every way of reserving, in turn
//	holdover version
//
// cli.go holds the command line, each other file one command; config.go is the
// only reader of configuration files and of the environment.
//
// # Guarantees
//
// Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 3 checked and not
// satisfied, 4 nothing to judge. With --json exactly one JSON object goes to
// stdout; progress and logs go to stderr. A command that changes the agreement
// takes a reason, and --dry-run changes nothing.
//
// # Concurrency
//
// One command, one process. Commands may run at the same time as instances and
// as each other: the stores decide who was first.
//
// # Failure
//
// Every error names what happened and what to do. SIGINT and SIGTERM end a
// command in order: serve lets the calls under way finish.
//
// # Testing
//
// The tests run the commands in this process, on real servers.
package main
