package mysqlpool

// The package's statements, each with a comment that a slow log, a
// processlist and performance_schema show (low cardinality: never a value).
//
// Lock order, everywhere: holdover_fence, pool_state, inventory_ledger,
// reservation_units, reserved_quantities, ledger_entries, holdover_unmirrored;
// inside a table by primary key. Under READ COMMITTED a statement keeps locks
// on the rows that it matched only, and none on gaps.
//
// FORCE INDEX (PRIMARY): on a table of a few rows the optimizer prefers a scan
// (and a filesort), which would lock or wait for rows of other items. The
// plans are asserted in plan_test.go.
const (
	stmtBegin  = `START TRANSACTION /*app='holdover',step='begin'*/`
	stmtCommit = `COMMIT /*app='holdover',step='commit'*/`
	// The statement before it has changed as many rows as expected, or this one
	// fails (errMismatch), and with it everything up to the COMMIT of its packet: a
	// check that costs no round trip. Not DO: MariaDB's forgives such an error.
	stmtExpect   = `SELECT IF(ROW_COUNT() <> ?, (SELECT 1 UNION ALL SELECT 2), 0) /*app='holdover',step='expect'*/`
	stmtRollback = `ROLLBACK /*app='holdover',step='rollback'*/`

	stmtServer            = `SELECT VERSION(), @@wait_timeout /*app='holdover',op='connect',step='detect'*/`
	stmtIsolation         = `SELECT @@transaction_isolation /*app='holdover',op='connect',step='isolation'*/`
	stmtIsolationMariaDB  = `SELECT @@tx_isolation /*app='holdover',op='connect',step='isolation'*/`
	stmtServerUUID        = `SELECT @@server_uuid /*app='holdover',op='connect',step='identity'*/`
	stmtServerUUIDMariaDB = `SELECT CONCAT(@@hostname, ':', @@port, ':', @@datadir) /*app='holdover',op='connect',step='identity'*/`
	stmtSchemaVersion     = `SELECT COALESCE(MAX(version_id), 0) FROM holdover_schema WHERE is_applied = 1 /*app='holdover',op='connect',step='schema'*/`
	stmtSchemaLock        = `SELECT GET_LOCK(?, ?) /*app='holdover',op='migrate',step='lock'*/`
	stmtSchemaUnlock      = `DO RELEASE_LOCK(?) /*app='holdover',op='migrate',step='unlock'*/`
)

// The fence. LOCK IN SHARE MODE is the form that both dialects know: a
// deciding transaction holds it to its end, so an epoch that was checked stays
// true until the commit.
const (
	stmtFence       = `SELECT pod, epoch, stage, latched, changed_by, reason, at FROM holdover_fence WHERE id = 1 /*app='holdover',op='fence',step='read'*/`
	stmtFenceShare  = `SELECT pod, epoch, stage, latched, changed_by, reason, at FROM holdover_fence WHERE id = 1 LOCK IN SHARE MODE /*app='holdover',op='fence',step='check'*/`
	stmtFenceUpdate = `SELECT pod, epoch, stage, latched, changed_by, reason, at FROM holdover_fence WHERE id = 1 FOR UPDATE /*app='holdover',op='fence',step='lock'*/`

	stmtFenceInsert = `INSERT INTO holdover_fence (id, pod, epoch, stage, latched, changed_by, reason, at)
VALUES (1, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(3)) /*app='holdover',op='fence',step='first'*/`
	stmtFenceSet = `UPDATE holdover_fence SET pod = ?, epoch = ?, stage = ?, latched = ?, changed_by = ?, reason = ?, at = UTC_TIMESTAMP(3)
WHERE id = 1 /*app='holdover',op='fence',step='set'*/`
	stmtAudit = `INSERT INTO holdover_audit (pod, epoch, stage, latched, changed_by, reason, at)
SELECT pod, epoch, stage, latched, changed_by, reason, at FROM holdover_fence WHERE id = 1 /*app='holdover',op='fence',step='audit'*/`
	stmtHistory = `SELECT pod, epoch, stage, latched, changed_by, reason, at FROM holdover_audit ORDER BY seq DESC LIMIT ? /*app='holdover',op='fence',step='history'*/`
)

// Units. One branch a line, joined by UNION ALL inside a derived table: every
// branch takes its own locks, and the statement starts with SELECT, so that a
// read-write splitter sends it to the primary. A branch without its own
// FOR UPDATE locks nothing.
const (
	unionHead = `SELECT * FROM (`
	unionEnd  = `) u`
	unionJoin = ` UNION ALL `

	// The first column is the branch's place in the list.
	grabBranch = `SELECT ? AS place, unit, UTC_TIMESTAMP(3) AS now_at FROM reservation_units FORCE INDEX (PRIMARY)
WHERE shop_id = ? AND item_id = ? AND group_id = ? ORDER BY unit LIMIT ? FOR UPDATE SKIP LOCKED`
	// With a scan hint, a unit number: rows that purge has not removed yet are not
	// read again. Each number from the hint on is looked up by its key: a range
	// would do, but when most rows are dead the statistics say that the table is
	// empty, and the optimizer then reads the index from its beginning.
	hintBranch = `SELECT ? AS place, u.unit, UTC_TIMESTAMP(3) AS now_at
FROM (WITH RECURSIVE n AS (SELECT ? AS unit UNION ALL SELECT unit + 1 FROM n WHERE unit + 1 < ?) SELECT unit FROM n) d
STRAIGHT_JOIN reservation_units u FORCE INDEX (PRIMARY) ON u.shop_id = ? AND u.item_id = ? AND u.group_id = ? AND u.unit = d.unit
LIMIT ? FOR UPDATE SKIP LOCKED`
	grabTail = ` /*app='holdover',op='reserve',step='grab'*/`
	// Without SKIP LOCKED: units in transactions that may roll back are waited for.
	waitBranch = `SELECT ? AS place, unit, UTC_TIMESTAMP(3) AS now_at FROM reservation_units FORCE INDEX (PRIMARY)
WHERE shop_id = ? AND item_id = ? AND group_id = ? ORDER BY unit LIMIT ? FOR UPDATE`
	waitTail = ` /*app='holdover',op='reserve',step='wait'*/`

	// Units by their whole keys, as one literal: a list in the WHERE clause, IN or
	// OR, with a hint or without, becomes a scan while the pool is small, and a scan
	// locks other buyers' rows: it deadlocks. A join in the written order looks each
	// unit up.
	unitsHead = `JSON_TABLE('[`
	unitsRow  = `[?,?,?,?]`
	unitsTail = `]', '$[*]' COLUMNS (n FOR ORDINALITY, shop_id BIGINT PATH '$[0]', item_id BIGINT PATH '$[1]', group_id BIGINT PATH '$[2]', unit BIGINT PATH '$[3]')) `
	unitsJoin = `d STRAIGHT_JOIN reservation_units u FORCE INDEX (PRIMARY)
ON u.shop_id = d.shop_id AND u.item_id = d.item_id AND u.group_id = d.group_id AND u.unit = d.unit`

	// The first column is the unit's place in the list. The list is a derived table,
	// or MySQL takes FOR UPDATE for a lock on it, too.
	grabListedHead = `SELECT d.n, UTC_TIMESTAMP(3) FROM (SELECT * FROM `
	grabListedTail = `d) ` + unitsJoin + ` FOR UPDATE SKIP LOCKED /*app='holdover',op='reserve',step='grab'*/`
	stmtGrabUnit   = `SELECT 1, UTC_TIMESTAMP(3) FROM reservation_units FORCE INDEX (PRIMARY)
WHERE shop_id = ? AND item_id = ? AND group_id = ? AND unit = ? FOR UPDATE SKIP LOCKED /*app='holdover',op='reserve',step='grab'*/`

	deleteUnitsHead = `DELETE u FROM `
	deleteUnitsTail = unitsJoin + ` /*app='holdover',op='reserve',step='take'*/`
	// One unit needs no list: a join of one table takes the hint, and the key.
	stmtDeleteUnit = `DELETE u FROM reservation_units u FORCE INDEX (PRIMARY)
WHERE u.shop_id = ? AND u.item_id = ? AND u.group_id = ? AND u.unit = ? /*app='holdover',op='reserve',step='take'*/`
	// Units in a row, all of them there and locked: the limit ends the scan before
	// it reads, and waits for, the unit behind them. Without a hint: that one makes
	// the optimizer read all of the index when most of its rows are dead.
	stmtDeleteRun = `DELETE FROM reservation_units
WHERE shop_id = ? AND item_id = ? AND group_id = ? AND unit BETWEEN ? AND ? LIMIT ? /*app='holdover',op='reserve',step='take'*/`

	// The server counts: a list of 1,000 rows would have to be written and parsed.
	stmtInsertUnits = `INSERT INTO reservation_units (shop_id, item_id, group_id, unit)
WITH RECURSIVE n AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
SELECT ?, ?, ?, ? + i FROM n /*app='holdover',op='refill',step='units'*/`

	// A plain read: what it counts may be locked, which is fine for a refill.
	stmtPooled = `SELECT COUNT(*), MIN(unit) FROM (SELECT unit FROM reservation_units FORCE INDEX (PRIMARY)
WHERE shop_id = ? AND item_id = ? AND group_id = ? AND unit >= ? LIMIT ?) u /*app='holdover',op='refill',step='count'*/`
)

// pool_state, over lists of whole keys (keysWhere). Those of the ledger are in
// ledgertable.go.
const (
	lockPoolsHead = `SELECT shop_id, item_id, group_id, issued, next_unit, UTC_TIMESTAMP(3) FROM pool_state FORCE INDEX (PRIMARY) WHERE `
	lockPoolsTail = ` ORDER BY shop_id, item_id, group_id FOR UPDATE /*app='holdover',op='ledger',step='pool'*/`
	stmtRefilled  = `UPDATE pool_state FORCE INDEX (PRIMARY) SET issued = issued + ?, next_unit = next_unit + ?
WHERE shop_id = ? AND item_id = ? AND group_id = ? /*app='holdover',op='refill',step='issued'*/`

	// issued + CASE ... END for the lines of one hold.
	moveIssuedHead = `UPDATE pool_state FORCE INDEX (PRIMARY) SET issued = issued + CASE`
	moveIssuedTail = ` /*app='holdover',op='ledger',step='issued'*/`
	caseWhen       = ` WHEN shop_id = ? AND item_id = ? AND group_id = ? THEN ?`
	caseEnd        = ` ELSE 0 END WHERE `

	stmtSetIssued = `UPDATE pool_state FORCE INDEX (PRIMARY) SET issued = ? WHERE shop_id = ? AND item_id = ? AND group_id = ? /*app='holdover',op='claim',step='set_issued'*/`
)

const (
	importPoolHead = `INSERT IGNORE INTO pool_state (shop_id, item_id, group_id, issued, next_unit) VALUES `
	importPoolTail = ` /*app='holdover',op='import',step='pool_state'*/`
)

// Holds. holdColumns takes one parameter, the give-back window in microseconds:
// a tentative hold that is older can't be given back any more, so it is firm.
const (
	holdColumns = `r.token, r.line, r.shop_id, r.item_id, r.group_id, r.quantity, r.state, r.expires_at, r.granted_at, r.attempt,
(r.firm OR r.granted_at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND), r.expires_at <= UTC_TIMESTAMP(3), r.claimed, UTC_TIMESTAMP(3)`

	stmtHold       = `SELECT ` + holdColumns + ` FROM reserved_quantities r FORCE INDEX (PRIMARY) WHERE r.token = ? ORDER BY r.line /*app='holdover',op='lookup',step='hold'*/`
	stmtHoldUpdate = `SELECT ` + holdColumns + ` FROM reserved_quantities r FORCE INDEX (PRIMARY) WHERE r.token = ? ORDER BY r.line FOR UPDATE /*app='holdover',op='replay',step='lock'*/`

	// Several holds in one read; nothing is locked.
	holdsHead = `SELECT ` + holdColumns + ` FROM reserved_quantities r FORCE INDEX (PRIMARY) WHERE r.token IN (`
	holdsTail = `) ORDER BY r.token, r.line /*app='holdover',op='end',step='holds'*/`
	takenHead = `SELECT token FROM reserved_quantities FORCE INDEX (PRIMARY) WHERE line = 0 AND token IN (`
	takenTail = `) /*app='holdover',op='reserve',step='taken'*/`

	// Several holds ended or extended together. The list is joined in the written
	// order, so that each row is looked up by its key: attempt and time of the
	// grant tell a hold from a later one with its token.
	holdListHead  = `UPDATE (`
	holdListFirst = `SELECT ? AS token, ? AS attempt, CAST(? AS DATETIME(3)) AS granted_at, ? AS state, CAST(? AS DATETIME(3)) AS expires_at`
	holdListNext  = ` UNION ALL SELECT ?, ?, CAST(? AS DATETIME(3)), ?, CAST(? AS DATETIME(3))`
	holdListJoin  = `) d STRAIGHT_JOIN reserved_quantities r FORCE INDEX (PRIMARY) ON r.token = d.token `
	holdListWhere = ` WHERE r.state = 'held' AND r.attempt = d.attempt AND r.granted_at = d.granted_at`
	// An expiry ends the hold only if nobody has extended it since it was read.
	endHoldsTail = holdListJoin + `SET r.state = d.state, r.ended_at = UTC_TIMESTAMP(3)` + holdListWhere + ` AND r.expires_at <= d.expires_at /*app='holdover',op='end',step='holds'*/`
	// An extension was told to a buyer: no give-back may undo its hold, and no
	// other one that was read before it may move it back.
	extendHoldsTail = holdListJoin + `SET r.expires_at = GREATEST(r.expires_at, d.expires_at), r.firm = 1` + holdListWhere + ` /*app='holdover',op='extend',step='holds'*/`
	// In the application's own transaction, which may be at REPEATABLE READ: each
	// row by its whole key, because a search by the token alone would lock the gap
	// behind it, and with it other buyers' inserts.
	endLinesHead  = `UPDATE (`
	endLinesFirst = `SELECT ? AS line`
	endLinesNext  = ` UNION ALL SELECT ?`
	endLinesTail  = `) d STRAIGHT_JOIN reserved_quantities r FORCE INDEX (PRIMARY) ON r.token = ? AND r.line = d.line
SET r.state = 'claimed', r.ended_at = UTC_TIMESTAMP(3)
WHERE r.state = 'held' AND r.attempt = ? AND r.granted_at = ? /*app='holdover',op='claim_tx',step='lines'*/`

	stmtClaimedPart = `UPDATE reserved_quantities FORCE INDEX (PRIMARY) SET claimed = ? WHERE token = ? AND line = ? /*app='holdover',op='claim',step='part'*/`
	stmtLater       = `UPDATE reserved_quantities FORCE INDEX (PRIMARY) SET expires_at = ?, firm = 1
WHERE token = ? AND state = 'held' AND expires_at < ? /*app='holdover',op='extend',step='fact'*/`

	// A plain INSERT: a second grant of a token fails on line 0, whatever its
	// lines are, and is found out by reading. Never ON DUPLICATE KEY.
	insertHoldHead = `INSERT INTO reserved_quantities
(token, line, shop_id, item_id, group_id, quantity, state, expires_at, granted_at, ended_at, attempt, firm) VALUES `
	insertHoldRow  = `(?, ?, ?, ?, ?, ?, 'held', ?, ?, NULL, ?, ?)`
	insertClaimRow = `(?, ?, ?, ?, ?, ?, 'claimed', ?, ?, UTC_TIMESTAMP(3), ?, ?)`
	insertHoldTail = ` /*app='holdover',op='reserve',step='hold'*/`
	stmtEndRecord  = insertHoldHead + `(?, 0, 0, 0, 0, 0, ?, UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), 0, 1) /*app='holdover',op='end',step='record'*/`
	stmtFirm       = `UPDATE reserved_quantities FORCE INDEX (PRIMARY) SET firm = 1 WHERE token = ? AND state = 'held' /*app='holdover',op='replay',step='firm'*/`
	stmtEndHold    = `UPDATE reserved_quantities FORCE INDEX (PRIMARY) SET state = ?, ended_at = UTC_TIMESTAMP(3)
WHERE token = ? AND state = 'held' AND attempt = ? AND granted_at = ? AND expires_at <= ? /*app='holdover',op='end',step='hold'*/`
	// A DELETE takes an index hint only as a join, and honours it only there.
	deleteHold   = `DELETE r FROM (SELECT ? AS token) t STRAIGHT_JOIN reserved_quantities r FORCE INDEX (PRIMARY) ON r.token = t.token `
	stmtGiveBack = deleteHold + `WHERE r.state = 'held' AND r.attempt = ? AND r.granted_at = ?
AND r.firm = 0 AND r.granted_at > UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND /*app='holdover',op='give_back',step='hold'*/`

	entriesHead = `INSERT INTO ledger_entries (token, entry, shop_id, item_id, group_id, delta, kind, at) VALUES `
	entriesRow  = `(?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(3))`
	entriesTail = ` /*app='holdover',op='claim',step='entries'*/`

	// Pages of whole holds: the inner query picks the tokens, the outer one reads
	// their lines in the same snapshot. Line 0 stands for the hold;
	// (state, expires_at, token, line) is the index's own order.
	pageHead = `SELECT ` + holdColumns + ` FROM (`
	stmtDue  = pageHead + `SELECT token, expires_at FROM reserved_quantities WHERE state = 'held' AND line = 0
AND expires_at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND AND (expires_at > ? OR (expires_at = ? AND token > ?))
ORDER BY expires_at, token LIMIT ?) p JOIN reserved_quantities r ON r.token = p.token
ORDER BY p.expires_at, p.token, r.line /*app='holdover',op='expire',step='due'*/`
	dueItemsHead = pageHead + `SELECT DISTINCT token, expires_at FROM reserved_quantities WHERE state = 'held'
AND expires_at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND AND shop_id = ? AND item_id IN (`
	dueItemsTail = `) ORDER BY expires_at, token LIMIT ?) p JOIN reserved_quantities r ON r.token = p.token
ORDER BY p.expires_at, p.token, r.line /*app='holdover',op='expire',step='due_items'*/`
	stmtLive = pageHead + `SELECT token FROM reserved_quantities WHERE token > ? AND line = 0 AND state = 'held'
ORDER BY token LIMIT ?) p JOIN reserved_quantities r ON r.token = p.token
ORDER BY p.token, r.line /*app='holdover',op='verify',step='live'*/`

	// A row of the journal protects its end record.
	stmtPurgeable = `SELECT r.token, r.expires_at FROM reserved_quantities r WHERE r.state = ? AND r.line = 0
AND r.expires_at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND AND r.ended_at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND
AND NOT EXISTS (SELECT 1 FROM holdover_unmirrored j WHERE j.token = r.token)
ORDER BY r.expires_at, r.token LIMIT ? /*app='holdover',op='purge',step='list'*/`
	stmtPurge = deleteHold + `WHERE r.state <> 'held' /*app='holdover',op='purge',step='delete'*/`
)

// The journal. Its row's version is new and random with every write.
const (
	stmtJournal = `INSERT INTO holdover_unmirrored (token, version, since) VALUES (?, ?, UTC_TIMESTAMP(3))
ON DUPLICATE KEY UPDATE version = ? /*app='holdover',op='journal',step='write'*/`
	stmtJournalRead = `SELECT j.token, j.version, j.since, r.line, r.shop_id, r.item_id, r.group_id, r.quantity, r.state, r.expires_at, r.granted_at, r.attempt,
(r.firm OR r.granted_at <= UTC_TIMESTAMP(3) - INTERVAL ? MICROSECOND), r.claimed
FROM (SELECT token, version, since FROM holdover_unmirrored ORDER BY since, token LIMIT ?) j
LEFT JOIN reserved_quantities r ON r.token = j.token
ORDER BY j.since, j.token, r.line /*app='holdover',op='journal',step='read'*/`
	stmtJournalSize = `SELECT COUNT(*), COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(since), UTC_TIMESTAMP(3)), 0) FROM holdover_unmirrored /*app='holdover',op='journal',step='size'*/`
	stmtJournalDone = `DELETE FROM holdover_unmirrored WHERE token = ? AND version = ? /*app='holdover',op='journal',step='clear'*/`
)
