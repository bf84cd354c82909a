-- The journal by location, with all that its sum needs: verification adds it up, retention removes its oldest.
-- In four statements, because neither dialect has an ALTER that does nothing when the key is there in both.
-- +goose Up
-- +goose NO TRANSACTION
SET @holdover_alter = (SELECT IF(COUNT(*) = 0,
  'ALTER TABLE ledger_entries ADD KEY ledger_entries_location (shop_id, item_id, group_id, at, kind, delta)', 'DO 0')
  FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'ledger_entries' AND index_name = 'ledger_entries_location');
PREPARE holdover_alter FROM @holdover_alter;
EXECUTE holdover_alter;
DEALLOCATE PREPARE holdover_alter;
