-- Holds, one row a line, and how they ended. Line 0 exists for every token, so that two attempts with one token and
-- other lines collide on it. The end record of a hold that was never here is line 0 with item, group and quantity 0.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS reserved_quantities (
  token      BINARY(16) NOT NULL,
  line       SMALLINT UNSIGNED NOT NULL,
  shop_id    BIGINT NOT NULL,
  item_id    BIGINT NOT NULL,
  group_id   BIGINT NOT NULL,
  quantity   BIGINT NOT NULL,
  state      ENUM('held', 'claimed', 'released', 'expired') CHARACTER SET ascii NOT NULL,
  expires_at DATETIME(3) NOT NULL,
  granted_at DATETIME(3) NOT NULL,
  ended_at   DATETIME(3) NULL,
  attempt    BIGINT UNSIGNED NOT NULL,
  firm       BOOLEAN NOT NULL,
  PRIMARY KEY (token, line),
  KEY reserved_quantities_due (state, expires_at),
  CONSTRAINT reserved_quantities_quantity CHECK (quantity >= 0)
) ENGINE=InnoDB;
