-- The journal: facts that the pod's Redis does not have yet. A drain deletes only the version that it applied;
-- versions are random, so a row that was deleted and written again never looks like the old one.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_unmirrored (
  token   BINARY(16) NOT NULL,
  version BIGINT UNSIGNED NOT NULL,
  since   DATETIME(3) NOT NULL,
  PRIMARY KEY (token),
  KEY holdover_unmirrored_since (since)
) ENGINE=InnoDB;
