-- What one run of one instance compared in one period: once by run and seq, which grows by one within a run. lost is how many
-- before it were dropped for want of room and will never come. payload is JSON, as COMPRESS() makes it: UNCOMPRESS(payload) shows it.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_rollups (
  id       BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  run      VARBINARY(64) NOT NULL,
  seq      BIGINT UNSIGNED NOT NULL,
  lost     BIGINT UNSIGNED NOT NULL,
  pod      VARCHAR(128) CHARACTER SET utf8mb4 NOT NULL,
  instance VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  from_at  DATETIME(3) NOT NULL,
  to_at    DATETIME(3) NOT NULL,
  payload  MEDIUMBLOB NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY holdover_rollups_run (run, seq),
  KEY holdover_rollups_from (from_at)
) ENGINE=InnoDB;
