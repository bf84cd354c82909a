-- What entries that retention has removed came to, by location: the journal's sum stays the ledger.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_balances (
  shop_id  BIGINT NOT NULL,
  item_id  BIGINT NOT NULL,
  group_id BIGINT NOT NULL,
  carried  BIGINT NOT NULL,
  entries  BIGINT UNSIGNED NOT NULL,
  at       DATETIME(3) NOT NULL,
  PRIMARY KEY (shop_id, item_id, group_id)
) ENGINE=InnoDB;
