-- Every adjustment of the ledger by its token: who asked for what and why, how it was decided, and whether Redis is owed it.
-- units is what to add, or with absolute what the ledger was to have; changed is what the ledger changed by.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_adjustments (
  token      BINARY(16) NOT NULL,
  shop_id    BIGINT NOT NULL,
  item_id    BIGINT NOT NULL,
  group_id   BIGINT NOT NULL,
  units      BIGINT NOT NULL,
  absolute   BOOLEAN NOT NULL,
  clamp      BOOLEAN NOT NULL,
  refused    BOOLEAN NOT NULL,
  changed    BIGINT NOT NULL,
  available  BIGINT NOT NULL,
  free       BIGINT NOT NULL,
  owed       BOOLEAN NOT NULL,
  changed_by VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  reason     VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL,
  at         DATETIME(3) NOT NULL,
  PRIMARY KEY (token),
  KEY holdover_adjustments_owed (owed, at)
) ENGINE=InnoDB;
