-- Every fence that was ever written here.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_audit (
  seq        BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  pod        VARCHAR(128) CHARACTER SET utf8mb4 NOT NULL,
  epoch      BIGINT UNSIGNED NOT NULL,
  stage      VARCHAR(16) CHARACTER SET ascii NOT NULL,
  latched    BOOLEAN NOT NULL,
  changed_by VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  reason     VARCHAR(1000) CHARACTER SET utf8mb4 NOT NULL,
  at         DATETIME(3) NOT NULL,
  PRIMARY KEY (seq),
  KEY holdover_audit_epoch (epoch)
) ENGINE=InnoDB;
