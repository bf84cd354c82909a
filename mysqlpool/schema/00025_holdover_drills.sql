-- Rehearsed kills: who, when, how fast, and who did not follow. Like the fences
-- that they wrote, they are never removed.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_drills (
  seq        BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  pod        VARCHAR(128) CHARACTER SET utf8mb4 NOT NULL,
  at         DATETIME(3) NOT NULL,
  drilled_by VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  reason     VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL,
  from_stage VARCHAR(16) CHARACTER SET ascii NOT NULL,
  epoch      BIGINT UNSIGNED NOT NULL,
  kill_ms    BIGINT NOT NULL,
  restore_ms BIGINT NOT NULL,
  instances  INT NOT NULL,
  missing    VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL,
  ok         BOOLEAN NOT NULL,
  problem    VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL,
  PRIMARY KEY (seq),
  KEY holdover_drills_ok (ok, seq)
) ENGINE=InnoDB;
