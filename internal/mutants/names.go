package mutants

import (
	"slices"
	"strconv"
	"strings"
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
	JournalInReadiness = "journal-in-readiness" // readiness does not see MySQL's journal, and nobody drains it
	RedisRetries       = "redis-retries"        // units are taken by a plain DECRBY of a client with its default retries
)

// Bugs in MySQL's path that break no promise to a buyer at once: a report must
// show them (see internal/trial).
const (
	LoseMirror     = "lose-mirror"      // one of 5,000 facts is not written and told as written; "lose-mirror:200" one of 200
	GrantPastStock = "grant-past-stock" // MySQL grants where its ledger has nothing left
	SlowTail       = "slow-tail"        // its slowest grants, those above their running p99, take 30 % longer
)

// Names lists the mutants that a torture must catch.
func Names() []string {
	return []string{RedisEpoch, MySQLEpoch, MirrorBeforeAnswer, OrderedLanes, MarkBeforeLedger, JournalInKill, AttemptIDs, EndRecords, RedisRetries, JournalInReadiness}
}

// ReportNames lists those that a report must show.
func ReportNames() []string { return []string{LoseMirror, GrantPastStock, SlowTail} }

// Known reports whether a mutant of Names has the name.
func Known(name string) bool { return slices.Contains(Names(), name) }

// parse splits a name from its number; zero when it has none.
func parse(name string) (base string, every uint64, ok bool) {
	base, number, numbered := strings.Cut(name, ":")
	if !numbered {
		return base, 0, true
	}
	every, err := strconv.ParseUint(number, 10, 32)
	return base, every, err == nil && every > 0 && base == LoseMirror
}
