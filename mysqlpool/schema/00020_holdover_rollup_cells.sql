-- The part of a rollup in one stage and operation: counts to be added up in SQL, and the rest as compressed JSON.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_rollup_cells (
  rollup      BIGINT UNSIGNED NOT NULL,
  stage       VARCHAR(16) CHARACTER SET ascii NOT NULL,
  op          VARCHAR(16) CHARACTER SET ascii NOT NULL,
  minute      DATETIME NOT NULL,
  eligible    BIGINT UNSIGNED NOT NULL,
  compared    BIGINT UNSIGNED NOT NULL,
  differed    BIGINT UNSIGNED NOT NULL,
  unexplained BIGINT UNSIGNED NOT NULL,
  payload     MEDIUMBLOB NOT NULL,
  PRIMARY KEY (rollup, stage, op)
) ENGINE=InnoDB;
