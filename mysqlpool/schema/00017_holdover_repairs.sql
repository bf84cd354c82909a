-- Every repair that was begun: what was changed where, by whom and why, with the state before and what it was to become.
-- Written before the store is changed; outcome is filled in after it, and is empty when the repairer died between the two.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_repairs (
  seq         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  pod         VARCHAR(128) CHARACTER SET utf8mb4 NOT NULL,
  epoch       BIGINT UNSIGNED NOT NULL,
  at          DATETIME(3) NOT NULL,
  repaired_by VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  reason      VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL,
  store       VARCHAR(16) CHARACTER SET ascii NOT NULL,
  action      VARCHAR(64) CHARACTER SET ascii NOT NULL,
  subject     VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  before_it   VARCHAR(2000) CHARACTER SET utf8mb4 NOT NULL,
  after_it    VARCHAR(2000) CHARACTER SET utf8mb4 NOT NULL,
  outcome     VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL,
  PRIMARY KEY (seq)
) ENGINE=InnoDB;
