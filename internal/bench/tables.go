package bench

// The competitors' own tables, in the scratch schema. They are as lean as the
// job allows: a hold has a token, an expiry and an index to expire by.
const (
	// The check lets a pipelined transaction fail by itself when stock is short.
	createStock = `CREATE TABLE bench_stock (
  item_id   BIGINT NOT NULL PRIMARY KEY,
  available BIGINT NOT NULL,
  version   BIGINT NOT NULL DEFAULT 0,
  CONSTRAINT bench_stock_available CHECK (available >= 0)
) ENGINE=InnoDB`
	createHolds = `CREATE TABLE bench_holds (
  token      BINARY(16) NOT NULL,
  line       SMALLINT UNSIGNED NOT NULL,
  item_id    BIGINT NOT NULL,
  quantity   BIGINT NOT NULL,
  claimed    BOOLEAN NOT NULL DEFAULT 0,
  expires_at DATETIME(3) NOT NULL,
  PRIMARY KEY (token, line),
  KEY bench_holds_due (expires_at)
) ENGINE=InnoDB`
	createUnits = `CREATE TABLE bench_units (
  item_id BIGINT NOT NULL,
  unit    BIGINT NOT NULL,
  PRIMARY KEY (item_id, unit)
) ENGINE=InnoDB`
	createClaims = `CREATE TABLE bench_claims (
  token    BINARY(16) NOT NULL PRIMARY KEY,
  item_id  BIGINT NOT NULL,
  quantity BIGINT NOT NULL
) ENGINE=InnoDB`

	// One unit of an item, in one round trip. The answer is the unit's number.
	createTake = `CREATE PROCEDURE bench_take(IN the_token BINARY(16), IN the_item BIGINT)
BEGIN
  DECLARE taken BIGINT DEFAULT NULL;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET taken = NULL;
  START TRANSACTION;
  SELECT unit INTO taken FROM bench_units WHERE item_id = the_item ORDER BY unit LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF taken IS NULL THEN
    ROLLBACK;
  ELSE
    DELETE FROM bench_units WHERE item_id = the_item AND unit = taken;
    INSERT INTO bench_holds (token, line, item_id, quantity, expires_at)
      VALUES (the_token, 0, the_item, 1, UTC_TIMESTAMP(3) + INTERVAL 900 SECOND);
    COMMIT;
  END IF;
  SELECT taken;
END`

	stmtTables = `SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'
AND table_name NOT IN ('holdover_schema', 'bench_digits')`
)

// Statements that several competitors share.
const (
	beginTx    = `START TRANSACTION; `
	commitTx   = `COMMIT`
	rollbackTx = `ROLLBACK`

	insertHold     = insertHoldHead + insertHoldRow
	insertHoldHead = `INSERT INTO bench_holds (token, line, item_id, quantity, expires_at) VALUES `
	insertHoldRow  = `(?, ?, ?, ?, UTC_TIMESTAMP(3) + INTERVAL 900 SECOND)`

	updateStock = `UPDATE bench_stock SET available = available - ? WHERE item_id = ? AND available >= ?`
	claimHold   = `UPDATE bench_holds SET claimed = 1 WHERE token = ? AND claimed = 0`
)
