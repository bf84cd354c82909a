-- What the instances of the pod agree on: one row.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_fence (
  id         TINYINT NOT NULL,
  pod        VARCHAR(128) CHARACTER SET utf8mb4 NOT NULL,
  epoch      BIGINT UNSIGNED NOT NULL,
  stage      VARCHAR(16) CHARACTER SET ascii NOT NULL,
  latched    BOOLEAN NOT NULL,
  changed_by VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  reason     VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL,
  at         DATETIME(3) NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT holdover_fence_single CHECK (id = 1)
) ENGINE=InnoDB;
