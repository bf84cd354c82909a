package bench

// The competitors' names in a report.
const (
	wayHoldover    = "holdover"
	wayRedis       = "redis"
	wayRedisBare   = "redis_bare"
	wayFirst       = "conditional_first"
	wayLast        = "conditional_last"
	wayPipelined   = "conditional_pipelined"
	wayBatchedRow  = "conditional_batched"
	wayVersion     = "version_cas"
	wayLock        = "select_for_update"
	wayCheck       = "check_then_write"
	wayUsual       = "usual"
	wayUncapped    = "usual_uncapped"
	wayInterpolate = "interpolated"
	wayProcedure   = "procedure"
	wayPerLine     = "per_line"
	wayPerPacket   = "per_line_pipelined"
	wayPerUnits    = "per_line_units"
	wayUnsorted    = "per_line_unsorted"
	wayOne         = "one_statement"
	wayUnion       = "union"
	wayLegacy      = "legacy"
	wayFloor       = "floor"
	wayStageRedis  = "stage_redis"
	wayStageShadow = "stage_shadow"
	wayStageMySQL  = "stage_mysql"
)

// Ways says in a sentence what each competitor does.
var Ways = map[string]string{
	wayHoldover:    "unit rows, calls of one process share transactions (package mysqlpool)",
	wayRedis:       "the path before the migration: a script in Redis with counter, hold and expiry (package legacyredis)",
	wayRedisBare:   "the least that Redis can do: a short script, waiting calls sent as one pipeline, none of the protocol's checks",
	wayFirst:       "one stock row: UPDATE ... WHERE available >= n first, then the hold; the lock is held to the commit",
	wayLast:        "one stock row: the hold first, the UPDATE last, COMMIT in a second packet",
	wayPipelined:   "one stock row: hold, UPDATE and COMMIT in one packet, a check constraint decides",
	wayBatchedRow:  "one stock row: calls of one process share a transaction, one summed UPDATE",
	wayVersion:     "one stock row: read, then UPDATE ... WHERE version = the one read, bounded retries with backoff",
	wayLock:        "one stock row: SELECT ... FOR UPDATE, decide in the program, write",
	wayCheck:       "one stock row: read, check in the program, write what was computed; wrong on purpose",
	wayUsual:       "unit rows: a transaction for each call, BeginTx with isolation, prepared statements",
	wayUncapped:    "the same with a connection for every client, as database/sql does by default",
	wayInterpolate: "unit rows: a transaction for each call, parameters interpolated",
	wayProcedure:   "unit rows: a transaction for each call in one stored procedure",
	wayPerLine:     "carts: one stock row an item, a conditional UPDATE for each line, sorted, in one transaction",
	wayPerPacket:   "carts: the same, all statements in one packet, the holds first",
	wayPerUnits:    "carts: unit rows, a SELECT and a DELETE for each line, sorted, in one transaction",
	wayUnsorted:    "carts: per_line in the order in which the lines come: it deadlocks",
	wayOne:         "carts: one stock row an item, one UPDATE for the whole cart, in one packet with holds and COMMIT",
	wayUnion:       "carts: unit rows, one locking UNION ALL for the whole cart, a transaction for each cart",
	wayLegacy:      "reserve in Redis, claim: the ledger row in MySQL, then Redis",
	wayFloor:       "one INSERT of a hold in autocommit, nothing is taken",
	wayStageRedis:  "a pod in stage redis: Redis decides, MySQL is left alone but for claims",
	wayStageShadow: "a pod in stage shadow: Redis decides, MySQL follows after the answer",
	wayStageMySQL:  "a pod in stage mysql: MySQL decides, Redis is written before the answer (package dualwrite)",
}

// wayOrder is the order of tables.
var wayOrder = []string{
	wayHoldover, wayRedis, wayRedisBare, wayLegacy, wayFloor, wayFirst, wayLast, wayPipelined, wayBatchedRow,
	wayVersion, wayLock, wayCheck, wayUsual, wayUncapped, wayInterpolate, wayProcedure,
	wayPerLine, wayPerPacket, wayPerUnits, wayUnsorted, wayOne, wayUnion, wayStageRedis, wayStageShadow, wayStageMySQL,
}

// everybody takes part where one unit of an item is reserved.
func (r *run) everybody(clients int) []contender {
	all := []contender{
		{name: wayHoldover, open: openHoldover},
		{name: wayRedis, open: openRedis, choose: true},
		{name: wayRedisBare, open: openRedisBare},
		{name: wayFirst, open: openConditionalFirst, choose: true},
		{name: wayLast, open: openConditionalLast, choose: true},
		{name: wayPipelined, open: openConditionalPipelined, choose: true},
		{name: wayBatchedRow, open: openConditionalBatched, conns: 2 * batchedRowTransactions},
		{name: wayVersion, open: openVersionCAS, choose: true},
		{name: wayLock, open: openSelectForUpdate, choose: true},
		{name: wayCheck, open: openCheckThenWrite, conns: min(64, clients), wrong: true},
		{name: wayUsual, open: openUsual, choose: true},
		{name: wayUncapped, open: openUsual, conns: min(clients, r.maxConnections-20)},
		{name: wayInterpolate, open: openInterpolated, choose: true},
		{name: wayProcedure, open: openProcedure, choose: true},
	}
	return all
}
