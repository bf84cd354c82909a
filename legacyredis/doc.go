// Package legacyredis is the path that the migration leaves: stock counters in
// Redis, taken with DECRBY and given back with INCRBY inside scripts, the holds
// beside them, and Redis's half of the fence on which a pod's instances agree.
//
// # Usage
//
// Open gives a Store for one pod's Redis. Its methods are the steps of the
// handover protocol; the facade calls them. Reserving in Redis alone, as before
// the migration, is a Path:
//
//	store, err := legacyredis.Open(ctx, legacyredis.Config{Pod: "pod-a", Addr: "127.0.0.1:6379"})
//	path, err := legacyredis.NewPath(store, ledger, legacyredis.PathConfig{})
//	go path.Run(ctx) // expires holds, finishes claims
//	result, err := path.Reserve(ctx, request)
//
// Keys, behind Config.Prefix where not said otherwise:
//
//	inventory:<shop>:<item>  counter: ledger less units in live holds; Config.CounterTemplate, without the prefix
//	hold:<token>             hash: state, shop, lines ("item:group:quantity,..."), expires_ms, granted_ms, attempt, firm;
//	                         claimed (as lines): what a claim takes when it is a part, the rest being in the counters again
//	holds                    sorted set of held tokens by expiry
//	claiming                 sorted set of marked tokens by time of the mark
//	owed                     sorted set of tokens that ended here, and MySQL failed to follow, by time
//	adjust:<token>           hash: units given up for an adjustment, and how it was settled; for EndRetention after that
//	adjusting                sorted set of adjustments that are not settled, by time
//	fence, fence:history     hash; list, newest first
//	instances, instances:seen  hash by id; sorted set by last heartbeat
//	rebuild                  hash: who fills this Redis from MySQL, and how many steps are done; only while that lasts
//
// # Guarantees
//
// Every change is one script, which checks everything before it writes the
// first thing: a counter of another type, a missing one, a stale epoch leave
// nothing half done. All steps are idempotent by token, so a lost reply is
// answered by repeating the call. A vote never takes a counter below zero; a
// copy or a fact may, because somebody was told already. A missing counter is
// "not loaded", never zero. Times are Redis's own clock. Numbers are exact up
// to 2^53.
//
// An expiry moves forward only: by Extend, and by a fact or a copy that has a
// later one.
//
// A token that ended keeps a record of how for Config.EndRetention, and gets no
// units again but by a claim that is already in the ledger.
//
// # Concurrency
//
// A Store and a Path are safe for concurrent use by any number of goroutines
// and instances. They start no goroutine of their own; Path.Run and
// Store.FollowFence block until their context ends. Fence, kill and heartbeat
// use connections that buyers don't share.
//
// # Failure
//
// Every call has a deadline (Config.OpTimeout, or the caller's when shorter)
// and none is retried inside: a retry after a lost reply would be a second call.
// A *holdover.StoreError has Unknown set unless the change certainly did not
// happen (no connection, or an error as answer). Redis that lost its data has
// neither fence nor counters: steps answer ErrNoFence or ErrNotLoaded, and
// RaiseFence refuses to paint over it. A failover can lose acknowledged writes;
// Identity changes then.
//
// A Redis cluster is refused unless prefix and template share one hash tag: a
// cart's counters and its hold must change in one step.
//
// # Testing
//
// The tests run on a real Redis: every step in every state of a hold, as in the
// protocol's model, concurrent buyers, half-failed scripts, lost data, lost
// replies, and the faults of the old claim in both of its orders.
package legacyredis
