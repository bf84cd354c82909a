-- Looks again before a refusal, at one moment: the holds of the lines' items that
-- are due, or none when the units are there by now. Refused as a vote when nothing
-- is due and they are still short.
local epoch, shop, lines, limit, bound = unpack(ARGV, 5, 9)

local refusal = check_fence(epoch)
if refusal then return refusal end
local items = units_of(lines)
local counters, bad = read_counters(shop, items)
if bad then return bad end
local due = listed('holds', 0, shop, 0, tonumber(limit), tonumber(bound), items)
local short = shortages(lines, counters)
if #due == 0 and #short > 0 then return { 'short', short } end
return { 'ok', due }
