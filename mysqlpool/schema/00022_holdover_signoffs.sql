-- Who decided what about which report. They are never removed.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_signoffs (
  id        BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  pod       VARCHAR(128) CHARACTER SET utf8mb4 NOT NULL,
  stage     VARCHAR(16) CHARACTER SET ascii NOT NULL,
  epoch     BIGINT UNSIGNED NOT NULL,
  digest    VARCHAR(128) CHARACTER SET ascii NOT NULL,
  verdict   VARCHAR(16) CHARACTER SET ascii NOT NULL,
  decision  VARCHAR(16) CHARACTER SET ascii NOT NULL,
  signed_by VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  note      VARCHAR(2000) CHARACTER SET utf8mb4 NOT NULL,
  from_at   DATETIME(3) NOT NULL,
  to_at     DATETIME(3) NOT NULL,
  at        DATETIME(3) NOT NULL,
  PRIMARY KEY (id),
  KEY holdover_signoffs_epoch (epoch, id)
) ENGINE=InnoDB;
