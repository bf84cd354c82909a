-- Facts that came here after their hold had ended: what is missing when a hold ends
-- may have been on its way. Rows of a day.
-- +goose Up
-- +goose NO TRANSACTION
CREATE TABLE IF NOT EXISTS holdover_latecomers (
  token BINARY(16) NOT NULL,
  fact  ENUM('held', 'claimed', 'released', 'expired') CHARACTER SET ascii NOT NULL,
  at    DATETIME(3) NOT NULL,
  PRIMARY KEY (token, fact),
  KEY holdover_latecomers_at (at)
) ENGINE=InnoDB;
