-- What the shop owns: sellable and not yet claimed units, holds included.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS inventory_ledger (
  shop_id   BIGINT NOT NULL,
  item_id   BIGINT NOT NULL,
  group_id  BIGINT NOT NULL,
  available BIGINT NOT NULL,
  PRIMARY KEY (shop_id, item_id, group_id),
  CONSTRAINT inventory_ledger_available CHECK (available >= 0)
) ENGINE=InnoDB;
