// Package killswitch is the latch that flips a pod back to Redis: trip,
// restore, see that every instance took part, and follow the fence.
//
// # Usage
//
// One [Switch] per pod, over the two halves of the pod's fence:
//
//	sw, err := killswitch.New(killswitch.Config{Pod: "eu-1", Redis: redis, MySQL: mysql})
//	tripped, err := sw.Trip(ctx, "alice", "checkout errors since 10:02")
//	acks, missing, took, err := sw.WaitAcknowledged(ctx, tripped.To.Epoch)
//	...
//	restored, err := sw.Restore(ctx, "alice", "cause found and fixed")
//
// [TripAll] and [RestoreAll] do the same for many pods at once. Each instance
// runs one [Follower] per pod, which notices a new fence.
//
// # Guarantees
//
// A trip takes the largest epoch seen plus two, tells MySQL first and reads
// its journal in the same call, and then tells Redis once, with those facts
// (rule 4 of the handover protocol). MySQL has [Config].MySQLTimeout in all;
// after that Redis is told alone and MySQL is owed the fence, which
// [Tripped].Owed says. What a trip does by stage:
//
//	redis, shadow   the stage stays, latched
//	joint, mysql    shadow, latched
//	mysql-only      refused: Redis has to be rebuilt first
//
// A Redis without a fence, with one older than MySQL's unlatched one, or than a latch
// that it had followed, has lost data: trip and restore are refused, since it would
// sell again what was sold since.
//
// A drill trips, waits for every instance and takes its own latch off at once,
// whatever comes in between; its fences' reasons begin with [DrillPrefix]. One that
// is older than [LongestDrill] was left behind by a drill that died: Restore ends it.
//
// A trip of a latched pod changes nothing and says so; only a drill's latch is
// taken over, by a fence of its own, which the drill then leaves alone. A trip asks neither the
// flag source nor readiness. A restore only takes the latch off, at the same
// stage and the next epoch; it needs MySQL to have the latched fence first.
//
// # Concurrency
//
// All methods are safe for concurrent use, also by several processes on one
// pod: the stores decide who was first, and the other one reads again.
//
// # Failure
//
// A Redis that does not answer can't be flipped to: the trip fails with
// holdover.ErrUnavailable or holdover.ErrUnknownOutcome before MySQL is
// touched, or says that MySQL was told and Redis was not; trip again then. A
// fact that Redis refuses does not stop the flip: it is reported as not carried
// and stays in MySQL's journal, from where the drain carries it. A MySQL call
// that outlives its deadline is left behind (one at a time; the next trip
// counts MySQL as silent meanwhile), and [Switch.Close] waits for it.
//
// # Testing
//
// The orders and faults are tested on small stubs of the two interfaces, the
// whole on real servers.
package killswitch
