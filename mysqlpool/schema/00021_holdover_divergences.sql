-- Sampled observations of a rollup; the counts are in its cells. place is the observation's among those of its run.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_divergences (
  rollup  BIGINT UNSIGNED NOT NULL,
  n       INT UNSIGNED NOT NULL,
  place   BIGINT UNSIGNED NOT NULL,
  kind    VARCHAR(32) CHARACTER SET ascii NOT NULL,
  at      DATETIME(3) NOT NULL,
  shop_id BIGINT NOT NULL,
  token   BINARY(16) NOT NULL,
  payload MEDIUMBLOB NOT NULL,
  PRIMARY KEY (rollup, n),
  KEY holdover_divergences_kind (kind, at),
  KEY holdover_divergences_token (token)
) ENGINE=InnoDB;
