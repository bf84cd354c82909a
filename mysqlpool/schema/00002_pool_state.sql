-- How many units have left the ledger's headroom (pool rows + held), and the number of the next unit.
-- The row's lock is the refill's single flight.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS pool_state (
  shop_id   BIGINT NOT NULL,
  item_id   BIGINT NOT NULL,
  group_id  BIGINT NOT NULL,
  issued    BIGINT NOT NULL,
  next_unit BIGINT NOT NULL,
  PRIMARY KEY (shop_id, item_id, group_id),
  CONSTRAINT pool_state_issued CHECK (issued >= 0)
) ENGINE=InnoDB;
