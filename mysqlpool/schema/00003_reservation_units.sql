-- One row is one sellable unit: the primary key is the whole row, so one locked record is one unit.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS reservation_units (
  shop_id  BIGINT NOT NULL,
  item_id  BIGINT NOT NULL,
  group_id BIGINT NOT NULL,
  unit     BIGINT NOT NULL,
  PRIMARY KEY (shop_id, item_id, group_id, unit)
) ENGINE=InnoDB;
