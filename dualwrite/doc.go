// Package dualwrite is the facade: a [holdover.Reserver] that runs the Redis
// path and the unit pool side by side, and moves between them without selling
// a unit twice.
//
// # Usage
//
// Make a [Facade] with [New], give it both stores, run its background work
// with [Facade.Run], and put its Reserve, Claim, Extend, Release and Lookup where
// the checkout called Redis before. Start reading at reserve.go: the data path of a
// reserve is one function.
//
// What runs where:
//
//	stage       a reserve asks                          an end (claim, release, expire) begins in
//	redis       Redis                                   Redis; a claim then writes the ledger
//	shadow      Redis; MySQL follows in a lane          Redis; MySQL follows in a lane
//	joint       Redis, then MySQL: both must grant      Redis, then MySQL
//	mysql       MySQL; copied to Redis before answering Redis, then MySQL; MySQL alone with its journal when Redis is away
//	mysql-only  MySQL                                   MySQL
//
// An extension begins where an end does: it is the promise that no expiry comes
// before its time (extend.go says why that holds across flips). A claim may take
// a part of the hold: Redis's mark gives the rest back at once, and the mark,
// the fact, the journal and the kill carry the part (Hold.Claimed).
//
// # Guarantees
//
// No acknowledged hold is lost and no unit is sold twice across any flip. The
// means: every step that decides carries an epoch that the store itself checks;
// neighbouring stages share a deciding store; before a buyer is told, both
// stores know or MySQL's journal does; a claim is marked in Redis before it
// touches the ledger; an attempt gives back only what it took itself. The
// shadow never costs a buyer anything: its work runs in ordered, bounded lanes,
// under recover, and is dropped, counted and remembered when they are full.
//
// A Redis that lost its view is filled from MySQL by [Facade.Rebuild] while buyers
// are served; rebuild.go says why nothing is lost by it.
//
// # Concurrency
//
// All methods are safe for concurrent use. The stage is read once per call from
// an atomic pointer and carried through. A call, once begun, is not interrupted
// by its caller's cancellation: it ends within CallTimeout, so that no hold is
// left half known.
//
// # Failure
//
// A store that gives no answer may still execute what it was sent: such calls
// return holdover.ErrUnknownOutcome or ErrUnavailable and may be repeated with
// the same token. A stale epoch is never returned to a caller: the call reads
// the new agreement and goes on in its stage, a bounded number of times.
//
// # What is compared
//
// Each operation of a dual stage is handed to Config.Observe once, with both
// answers, and with what may explain a difference together with its proof. An
// operation that a store does not answer, or whose mirror work is shed, is handed
// over too, as one that can't be compared.
//
// Nothing is handed over, and nothing counted, after
//
//   - a caller's mistake: a request that is not valid, a token that stands for other
//     lines, is unknown, or has ended, a claim that is under way
//   - a repeated claim, release or expiry that found it done in both stores
//   - an expiry that came too early, or that Redis did not answer: it is tried again,
//     and counts when it is over
//   - a stale epoch: the call goes on, and its last turn counts
//   - a marked claim that a sweep rolls forward, a fact that a drain or a repair
//     carries over: the buyer's call was handed over when it was made. One that a
//     store turns out never to have got is handed over when it is found (below)
//   - the death of the process between the buyer's answer and the lane
//
// Counted in Stats.Bypassed, and part of coverage's denominator, is what ends in a
// dual stage otherwise:
//
//   - an item that a deciding store has not loaded, a Redis that has lost its fence,
//     a store that is overbooked or asks to try again, an agreement that kept moving
//     or could not be read
//   - a grant in Redis that could not be made firm before its extension was answered
//   - in shadow, the end of a hold that only MySQL knew: the caller is told that there
//     is none, and it is ended behind him
//
// A difference about units is looked at again. Both stores stood still for LaneLag:
// what they have then is what they differ by. Buyers never let the item rest: both
// are read hold by hold, twice, with LaneLag and a second between. A hold that one
// store alone has at both readings is lost, one that is gone at the second was on its
// way; and what a store has in all, free and held, is moved by claims alone, which
// are seen. So a lasting difference is told under any traffic, and agreement by
// chance is none. This costs Redis two scripts of a few milliseconds per reading, at
// most one reading each ReadingEvery, and none with more than 500 live holds in the
// pod, or 1,000 lines of them: then such a difference stays undecided.
//
// A fact that one store never got shows when somebody makes up for it, and is told
// then, with the operation that found it: MySQL did not have the hold that a buyer
// ends; MySQL still had a hold that Redis had released, when its reaper comes or the
// buyer asks again; MySQL still had one that Redis knows as claimed; in mysql, Redis
// still had one that MySQL had released or claimed. A fact that was only overtaken,
// or that an outage kept from MySQL and that is made up for after the finder, notes in
// MySQL that it came late, and the finder waits for that note. What is lost
// with a cause that is known is mirror-lost: its work was dropped, is late, or an
// instance died without a word after the grant. Else it is unexplained.
//
// # Testing
//
// The conformance suite runs on the facade in every stage; faults are injected
// by wrapping the two store interfaces of stores.go.
package dualwrite
