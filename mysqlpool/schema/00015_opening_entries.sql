-- Rows that were in the ledger before it was journaled from the first unit on: an entry each with what is not explained yet.
-- One statement, so one snapshot of both tables; without locks, so that a shop that is open does not wait. The token is the
-- text "holdover opening". A second run finds nothing that is not explained.
-- +goose Up
-- +goose NO TRANSACTION
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
INSERT INTO ledger_entries (token, entry, shop_id, item_id, group_id, delta, kind, at)
SELECT UNHEX('686F6C646F766572206F70656E696E67'),
  (SELECT COALESCE(MAX(entry), 0) FROM ledger_entries WHERE token = UNHEX('686F6C646F766572206F70656E696E67'))
    + ROW_NUMBER() OVER (ORDER BY l.shop_id, l.item_id, l.group_id),
  l.shop_id, l.item_id, l.group_id, l.available - COALESCE(e.delta, 0), 'opening', UTC_TIMESTAMP(3)
FROM inventory_ledger l
LEFT JOIN (SELECT shop_id, item_id, group_id, SUM(delta) AS delta FROM ledger_entries
           WHERE kind <> 'oversold' GROUP BY shop_id, item_id, group_id) e
       ON e.shop_id = l.shop_id AND e.item_id = l.item_id AND e.group_id = l.group_id
LEFT JOIN holdover_balances b ON b.shop_id = l.shop_id AND b.item_id = l.item_id AND b.group_id = l.group_id
WHERE b.shop_id IS NULL AND l.available <> COALESCE(e.delta, 0);
