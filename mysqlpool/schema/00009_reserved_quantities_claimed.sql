-- How much of a line a claim took, when it was not all of it; NULL: all. Neither dialect's ADD COLUMN can be repeated
-- in the same words, so a run that died after it is told by the column.
-- +goose Up
-- +goose NO TRANSACTION
SET @ddl = IF((SELECT COUNT(*) FROM information_schema.columns
  WHERE table_schema = DATABASE() AND table_name = 'reserved_quantities' AND column_name = 'claimed') = 0,
  'ALTER TABLE reserved_quantities ADD COLUMN claimed BIGINT NULL', 'DO 0');
PREPARE add_column FROM @ddl;
EXECUTE add_column;
DEALLOCATE PREPARE add_column;
