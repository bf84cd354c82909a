-- Undoes a tentative grant of this attempt. Rule 9.
local token, attempt = ARGV[5], ARGV[6]

if being_rebuilt() then return { 'rebuilding' } end
local h = read_hold(token)
if h.state ~= 'held' or attempt == '0' or h.attempt ~= attempt or is_firm(h) then return { 'ok', 0 } end
local items, units = units_of(h.lines)
local counters, bad = read_counters(h.shop, items)
bad = bad or room_for(h.shop, items, counters, units, 1)
if bad then return bad end
check_indexes(token)

return_units(h.shop, items, units)
redis.call('ZREM', HOLDS, token)
redis.call('DEL', hold_key(token))
return { 'ok', 1 }
