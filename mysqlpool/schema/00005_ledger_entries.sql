-- Append-only: why the ledger changed, by token. The key makes a second deduction for a token impossible.
-- Kind 'oversold' names units that a claim owed and no location had: the ledger was not changed by it.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS ledger_entries (
  token    BINARY(16) NOT NULL,
  entry    INT UNSIGNED NOT NULL,
  shop_id  BIGINT NOT NULL,
  item_id  BIGINT NOT NULL,
  group_id BIGINT NOT NULL,
  delta    BIGINT NOT NULL,
  kind     VARCHAR(16) CHARACTER SET ascii NOT NULL,
  at       DATETIME(3) NOT NULL,
  PRIMARY KEY (token, entry)
) ENGINE=InnoDB;
