-- Units of holds that Redis granted and MySQL could not place where they were
-- asked for. What MySQL has free besides is that much more than Redis's counters.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_debts (
  token      BINARY(16) NOT NULL,
  shop_id    BIGINT NOT NULL,
  item_id    BIGINT NOT NULL,
  quantity   BIGINT NOT NULL,
  expires_at DATETIME(3) NOT NULL,
  PRIMARY KEY (token, item_id),
  KEY holdover_debts_item (shop_id, item_id),
  KEY holdover_debts_expiry (expires_at)
) ENGINE=InnoDB;
