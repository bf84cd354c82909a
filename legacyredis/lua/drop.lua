-- Removes a held hold that should not be there, if it is still as it was seen, and
-- gives its units back. Without an end record: the token may be granted anew.
local epoch, token, granted, expires, attempt = unpack(ARGV, 5, 9)

if being_rebuilt() then return { 'rebuilding' } end
local refusal = check_fence(epoch)
if refusal then return refusal end
local h = read_hold(token)
if h.state ~= 'held' or h.granted ~= granted or h.expires ~= expires or h.attempt ~= attempt then return { 'ok', 0 } end
local items, units = units_of(h.lines)
local counters, bad = read_counters(h.shop, items)
bad = bad or room_for(h.shop, items, counters, units, 1)
if bad then return bad end
check_indexes(token)

return_units(h.shop, items, units)
redis.call('ZREM', HOLDS, token)
redis.call('DEL', hold_key(token))
return { 'ok', 1 }
