-- The outcomes of complete verifications, newest last; the oldest are removed.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_verifications (
  seq         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  pod         VARCHAR(128) CHARACTER SET utf8mb4 NOT NULL,
  at          DATETIME(3) NOT NULL,
  epoch       BIGINT UNSIGNED NOT NULL,
  redis_id    VARCHAR(128) CHARACTER SET ascii NOT NULL,
  clean       BOOLEAN NOT NULL,
  differences BIGINT UNSIGNED NOT NULL,
  unsettled   BIGINT UNSIGNED NOT NULL,
  summary     VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL,
  verified_by VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  PRIMARY KEY (seq),
  KEY holdover_verifications_clean (clean, seq)
) ENGINE=InnoDB;
