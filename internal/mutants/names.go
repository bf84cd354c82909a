package mutants

import (
	"slices"
)

// The protections that can be switched off.
const (
	RedisEpoch         = "redis-epoch"          // Redis does not check the epoch of a deciding step
	MySQLEpoch         = "mysql-epoch"          // MySQL does not
	MirrorBeforeAnswer = "mirror-before-answer" // in mysql, Redis is written after the answer
	OrderedLanes       = "ordered-lanes"        // a token's mirror work is not done in its order
	MarkBeforeLedger   = "mark-before-ledger"   // a claim goes to the ledger without a mark in Redis
	JournalInKill      = "journal-in-kill"      // the kill carries nothing over
	AttemptIDs         = "attempt-ids"          // all attempts are one
	EndRecords         = "end-records"          // how a token ended is forgotten at once
	RedisRetries       = "redis-retries"        // units are taken by a plain DECRBY of a client with its default retries
)

// Names lists the mutants.
func Names() []string {
	return []string{RedisEpoch, MySQLEpoch, MirrorBeforeAnswer, OrderedLanes, MarkBeforeLedger, JournalInKill, AttemptIDs, EndRecords, RedisRetries}
}

// Known reports whether a mutant has the name.
func Known(name string) bool { return slices.Contains(Names(), name) }
