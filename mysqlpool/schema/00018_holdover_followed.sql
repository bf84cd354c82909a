-- The largest epoch at which the pod's Redis was seen: one row. A Redis below it
-- came back with older data; below a kill's epoch that it never had, it is only
-- late. Beside the fence, whose row buyers read.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_followed (
  id    TINYINT NOT NULL,
  epoch BIGINT UNSIGNED NOT NULL,
  PRIMARY KEY (id),
  CONSTRAINT holdover_followed_single CHECK (id = 1)
) ENGINE=InnoDB;
